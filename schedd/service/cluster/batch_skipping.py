"""A batch over which the engine fails is passed over: no input, and no error of ours, stops a cluster.

The incident is kept, the log marks the batch, the engine is rebuilt without it and told what to set aside;
it asks the adapter for a snapshot, which makes up for what is lost. Where that fails, too, more is set aside,
and at last the plan is made anew.
"""

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from schedd.engine import Engine
from schedd.service.cluster.engine_calls import CallWatchdog, EngineCallFailed, call_engine
from schedd.service.cluster.promise_tracker import PromiseTracker
from schedd.service.cluster.retries import StoreRetries
from schedd.store import EventBatch
from schedd.wire import BatchSkipped, Run

__all__ = ["BatchSkipper", "rebuild_engine"]

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

Rebuild = Callable[[EngineCallFailed], tuple[Engine, PromiseTracker | None]]


class BatchSkipper:
    """What one cluster's planner does when a call failed.

    ``row`` counts the failures in a row; what they were at is set aside together.
    """

    def __init__(self, cluster: str, retries: StoreRetries, watch: CallWatchdog) -> None:
        self.trouble = ""
        self._cluster = cluster
        self._retries = retries
        self._watchdog = watch
        self._failures_in_row = 0
        self._successes = 0
        self._jobs: dict[str, None] = {}
        self._steps: dict[str, None] = {}

    @property
    def needs_new_plan(self) -> bool:
        """Whether so many calls failed in a row that the plan is to be made anew."""
        return self._failures_in_row >= _ANEW

    def record_success(self) -> None:
        """A call went well."""
        if not self._failures_in_row:
            return
        self._successes += 1
        if self._successes % _HALVED == 0:
            self._watchdog.limit_factor = max(1, self._watchdog.limit_factor // 2)
        if self._successes >= _WELL:
            self._failures_in_row = self._successes = 0

    def record_failure(self, failed: EngineCallFailed) -> None:
        """A call failed. Raises PlannerStopped when told to end while it waits for the next try."""
        self._failures_in_row += 1
        self._successes = 0
        if failed.job:
            self._jobs[failed.job] = None
        elif failed.step:
            self._steps[failed.step] = None
        if failed.late:
            self._watchdog.limit_factor = min(2 * self._watchdog.limit_factor, _LONGER)
        self.trouble = f"{failed}; it is passed over"
        _log.error(
            "the planner failed over a batch, which is passed over",
            cluster=self._cluster,
            batch=failed.batch.number,
            why=failed.why,
            job=failed.job,
            step=failed.step,
            in_a_row=self._failures_in_row,
            exc_info=failed.__cause__ if not failed.late else None,
        )
        if self._failures_in_row > 2:
            self._retries.wait(min(_LONGEST_S, 0.01 * 2.0 ** min(self._failures_in_row, 20)))

    def skip_event(
        self, failed: EngineCallFailed, now: int, out: Sequence[Run], last: str, *, anew: bool
    ) -> BatchSkipped:
        """What the rebuilt engine is told. ``out`` are runs that may matter, ``last`` the last decision."""
        return BatchSkipped(
            id=f"passed:{failed.batch.number}.{failed.batch.calls}:{now}.{self._failures_in_row}",
            time=now,
            batch=failed.batch.number,
            why=failed.why,
            jobs=tuple(self._jobs),
            steps=tuple(self._steps),
            out={run.job_id: run.expires for run in out if run.expires >= now},
            decided=int(last[1:] or 0),
            anew=anew or self.needs_new_plan,
        )

    def finish_skip(self) -> None:
        """The engine goes on without the batch."""
        self.trouble = ""
        self._jobs.clear()
        self._steps.clear()
        if self.needs_new_plan:
            self._failures_in_row = 1


def rebuild_engine(engine: Engine, failed: EngineCallFailed, watch: CallWatchdog) -> Engine | None:
    """The engine from its last checkpoint and what it was called with since, but for the call that failed.

    None when the oldest of these calls are not known any more. Raises EngineCallFailed where another fails,
    too.
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
            call_engine(new, EventBatch(number=0, now=one.now, last_event=0), one.events, 0, watch)
        elif one.paused:
            new.pause(one.paused)
        else:
            new.resume()
    return new
