"""A batch over which the engine fails is passed over: no input, and no error of ours, stops a cluster.

The incident is kept, the log marks the batch, the engine is rebuilt without it and told what to set aside;
it asks the adapter for a snapshot, which makes up for what is lost. Where that fails, too, more is set aside,
and at last the plan is made anew.
"""

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from schedd.engine import Engine
from schedd.service.cluster.calls import CallFailed, Watch, call
from schedd.service.cluster.promised import Promised
from schedd.service.cluster.retries import Retries
from schedd.store import EventBatch
from schedd.wire import PassedOver, Run

__all__ = ["Passing", "rebuilt"]

_log = structlog.get_logger(__name__)

_ANEW: Final = 8
"""After so many failures in a row the plan is made anew."""
_WELL: Final = 100
"""Calls that went well after which a failure is the first one again."""
_LONGEST_S: Final = 5.0
"""Between two tries at most: what fails may fail for a moment alone, and meanwhile the cluster is stopped."""
_LONGER: Final = 8
"""By so much longer than usual a call may take at most, after others that did not return."""
_HALVED: Final = 10
"""Calls that went well after which that is halved."""

Rebuild = Callable[[CallFailed], tuple[Engine, Promised | None]]


class Passing:
    """What one cluster's planner does when a call failed.

    ``row`` counts the failures in a row; what they were at is set aside together.
    """

    def __init__(self, cluster: str, retries: Retries, watch: Watch) -> None:
        self.trouble = ""
        self._cluster = cluster
        self._retries = retries
        self._watch = watch
        self._row = 0
        self._well = 0
        self._jobs: dict[str, None] = {}
        self._steps: dict[str, None] = {}

    @property
    def hopeless(self) -> bool:
        """Whether so many calls failed in a row that the plan is to be made anew."""
        return self._row >= _ANEW

    def went_well(self) -> None:
        """A call went well."""
        if not self._row:
            return
        self._well += 1
        if self._well % _HALVED == 0:
            self._watch.times = max(1, self._watch.times // 2)
        if self._well >= _WELL:
            self._row = self._well = 0

    def note(self, failed: CallFailed) -> None:
        """A call failed. Raises PlannerStopped when told to end while it waits for the next try."""
        self._row += 1
        self._well = 0
        if failed.job:
            self._jobs[failed.job] = None
        elif failed.step:
            self._steps[failed.step] = None
        if failed.late:
            self._watch.times = min(2 * self._watch.times, _LONGER)
        self.trouble = f"{failed}; it is passed over"
        _log.error(
            "the planner failed over a batch, which is passed over",
            cluster=self._cluster,
            batch=failed.batch.number,
            why=failed.why,
            job=failed.job,
            step=failed.step,
            in_a_row=self._row,
            exc_info=failed.__cause__ if not failed.late else None,
        )
        if self._row > 2:
            self._retries.rest(min(_LONGEST_S, 0.01 * 2.0 ** min(self._row, 20)))

    def word(self, failed: CallFailed, now: int, out: Sequence[Run], last: str, *, anew: bool) -> PassedOver:
        """What the rebuilt engine is told. ``out`` are runs that may matter, ``last`` the last decision."""
        return PassedOver(
            id=f"passed:{failed.batch.number}.{failed.batch.calls}:{now}.{self._row}",
            time=now,
            batch=failed.batch.number,
            why=failed.why,
            jobs=tuple(self._jobs),
            steps=tuple(self._steps),
            out={run.job_id: run.expires for run in out if run.expires >= now},
            decided=int(last[1:] or 0),
            anew=anew or self.hopeless,
        )

    def done(self) -> None:
        """The engine goes on without the batch."""
        self.trouble = ""
        self._jobs.clear()
        self._steps.clear()
        if self.hopeless:
            self._row = 1


def rebuilt(engine: Engine, failed: CallFailed, watch: Watch) -> Engine | None:
    """The engine from its last checkpoint and what it was called with since, but for the call that failed.

    None when the oldest of these calls are not known any more. Raises CallFailed where another fails, too.
    """
    incident = engine.incident()
    if incident.lost:
        return None
    logged = list(incident.batches)
    if logged and logged[-1].paused is None and logged[-1].events == failed.batch.events:
        logged.pop()
    new = Engine.restore(incident.checkpoint, engine.state.settings)
    for one in logged:
        if one.paused is None:
            call(new, EventBatch(number=0, now=one.now, last_event=0), one.events, 0, watch)
        elif one.paused:
            new.pause(one.paused)
        else:
            new.resume()
    return new
