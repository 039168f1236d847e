"""Run times of jobs before the daemon's first start, learned from the server's accounting logs."""

from pathlib import Path
from typing import Final

import structlog

from schedd.dialect.accounting import EndedRun
from schedd.dialect.units import parse_walltime
from schedd.engine import EngineSettings, array_name
from schedd.features.prediction.settings import prediction_settings
from schedd.features.prediction.state import PredictionState
from schedd.policy.site import SitePolicy
from schedd.predict import JobFeatures, Learner, RunTimePredictor, RunTimes
from schedd.service.cluster.accounting_logs import ended_runs

_log = structlog.get_logger(__name__)
_OLDEST: Final = 365 * 86_400
_QUEUED, _STARTED, _ENDED = 2, 1, 0  # order within a second: ends first, as in a batch of events


def earlier_part(settings: EngineSettings, cluster: str, now: int) -> PredictionState | None:
    """Return the component's state with the run times of the server's logs; None: see ``past_runs``."""
    learned = past_runs(settings, cluster, now)
    return PredictionState(RunTimePredictor(Learner(learned))) if learned is not None else None


def past_runs(settings: EngineSettings, cluster: str, now: int) -> RunTimes | None:
    """Return the run-time predictor trained on the last year's runs, in chronological order.

    None if prediction is off or no logs are configured. Each run is predicted at its submission and learned
    at its end, so that the calibration is right, too. Unreadable records are logged and skipped. A node has
    the speed that the settings give for its name, else 1: the logs do not have its properties.
    """
    given = prediction_settings(settings)
    if not given.predict or not given.predict_from:
        return None
    site = settings.site
    fastest = max(site.speeds.values(), default=1.0)
    runs = []
    for run in ended_runs(Path(given.predict_from), now - _OLDEST, cluster, "how long jobs ran"):
        ask = _job_features(run, fastest)
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
            learner.record_start(str(i), moment, speed=_run_speed(run, site))
        if what == _ENDED:
            learner.record_end(str(i), moment)
    _log.info("run times were learned", cluster=cluster, runs=learner.run_times.ends)
    return learner.run_times


def _run_speed(run: EndedRun, site: SitePolicy) -> float:
    """Return the speed of the slowest node of a run, by the nodes' names."""
    if not site.speeds:
        return 1.0
    hosts = {part.partition("/")[0] for part in run.values.get("exec_host", "").split("+")}
    return min((site.speed(host, (host.partition(".")[0],), 1.0) for host in hosts if host), default=1.0)


def _job_features(run: EndedRun, fastest: float) -> JobFeatures | None:
    """Return the job's features; None if the log has no walltime."""
    values = run.values
    try:
        walltime = parse_walltime(values.get("Resource_List.walltime", ""))
    except ValueError:
        return None
    if walltime < 1:
        return None
    name = array_name(run.id, values.get("jobname", ""))
    return JobFeatures(values.get("user", ""), walltime, run.procs, name, fastest)
