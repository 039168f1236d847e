"""How long jobs ran before the daemon's first start: learned from the server's accounting logs."""

from pathlib import Path
from typing import Final

import structlog

from schedd.dialect.accounting import EndedRun
from schedd.dialect.units import parse_walltime
from schedd.engine.facts.arrays import whole_name
from schedd.engine.facts.settings import EngineSettings
from schedd.predict import JobFeatures, Learner, RunTimes
from schedd.service.cluster.accounting_logs import ended_runs

__all__ = ["past_runs"]

_log = structlog.get_logger(__name__)
_OLDEST: Final = 365 * 86_400
_QUEUED, _STARTED, _ENDED = 2, 1, 0
"""Of the same second ends count first, as in a batch of events."""


def past_runs(settings: EngineSettings, cluster: str, now: int) -> RunTimes | None:
    """What the runs of the last year teach, in the order in which they happened; None where the site predicts
    nothing or names no logs.

    Each is predicted at its submission and learned from when it ended, so that calibration begins right, too.
    What cannot be read is told in the log and passed over: a daemon starts without it, too.
    """
    if not settings.predict or not settings.predict_from:
        return None
    runs = []
    for run in ended_runs(Path(settings.predict_from), now - _OLDEST, cluster, "how long jobs ran"):
        ask = _job_features(run)
        if (
            ask is not None
            and not run.lost
            and settings.predicts(run.values.get("queue", ""))
            and run.end <= now
        ):
            runs.append((run, ask))
    learner = Learner()
    moments = [(run.eligible, _QUEUED, i) for i, (run, _) in enumerate(runs)]
    moments += [(run.start, _STARTED, i) for i, (run, _) in enumerate(runs) if run.start > run.eligible]
    moments += [(max(run.end, run.start + 1), _ENDED, i) for i, (run, _) in enumerate(runs)]
    for moment, what, i in sorted(moments):
        run, ask = runs[i]
        if what == _QUEUED:
            learner.predict_job(str(i), ask, moment)
        if what == _STARTED or (what == _QUEUED and run.start == run.eligible):
            learner.record_start(str(i), moment)
        if what == _ENDED:
            learner.record_end(str(i), moment)
    _log.info("run times were learned", cluster=cluster, runs=learner.run_times.ends)
    return learner.run_times


def _job_features(run: EndedRun) -> JobFeatures | None:
    """What the job asked for; None where the log does not say for how long."""
    values = run.values
    try:
        walltime = parse_walltime(values.get("Resource_List.walltime", ""))
    except ValueError:
        return None
    if walltime < 1:
        return None
    name = whole_name(run.id, values.get("jobname", ""))
    return JobFeatures(values.get("user", ""), walltime, run.procs, name)
