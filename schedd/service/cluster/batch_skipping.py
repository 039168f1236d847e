"""Skips a batch that makes the engine fail, so that neither input nor a defect stops a cluster.

The incident is written to a file, the log marks the batch, and the engine is rebuilt without it. An event
names the jobs or steps to quarantine; the engine requests a snapshot from the adapter, which makes up for the
lost events. After repeated failures more is quarantined, and in the end the plan is rebuilt.
"""

from collections.abc import Sequence
from typing import Final

import structlog

from schedd.engine import Engine
from schedd.service.cluster.engine_calls import CallWatchdog, EngineCallFailed, call_engine
from schedd.service.cluster.retries import StoreRetries
from schedd.store import EventBatch
from schedd.wire import BatchSkipped, Run

_log = structlog.get_logger(__name__)

_ANEW: Final = 8  # consecutive failures after which the plan is rebuilt
_WELL: Final = 100  # successful calls after which the count of failures starts again
_LONGEST_S: Final = 5.0
"""Maximum wait between attempts: failures may be transient, and the cluster is stopped meanwhile."""
_LONGER: Final = 8  # maximum factor of the time limit after timeouts
_HALVED: Final = 10  # successful calls after which the factor is halved


class BatchSkipper:
    """Decides what one planner does after failed engine calls.

    It counts consecutive failures; the jobs and steps of all of them are quarantined together.
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
        """Whether the plan must be rebuilt, after many consecutive failures."""
        return self._failures_in_row >= _ANEW

    def record_success(self) -> None:
        """Record a successful call."""
        if not self._failures_in_row:
            return
        self._successes += 1
        if self._successes % _HALVED == 0:
            self._watchdog.limit_factor = max(1, self._watchdog.limit_factor // 2)
        if self._successes >= _WELL:
            self._failures_in_row = self._successes = 0

    def record_failure(self, failed: EngineCallFailed) -> None:
        """Record a failed call, and wait. Raises PlannerStopped if the planner is stopped meanwhile."""
        self._failures_in_row += 1
        self._successes = 0
        if failed.job:
            self._jobs[failed.job] = None
        elif failed.step:
            self._steps[failed.step] = None
        if failed.late:
            self._watchdog.limit_factor = min(2 * self._watchdog.limit_factor, _LONGER)
        self.trouble = f"{failed}; it is skipped"
        _log.error(
            "the planner failed on a batch, which is skipped",
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
        """Return the event for a rebuilt engine. ``out`` are runs that may be open, ``last`` is the last
        decision.
        """
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
        """Record that the engine continues without the batch."""
        self.trouble = ""
        self._jobs.clear()
        self._steps.clear()
        if self.needs_new_plan:
            self._failures_in_row = 1


def rebuild_engine(engine: Engine, failed: EngineCallFailed, watch: CallWatchdog) -> Engine | None:
    """Rebuild the engine from its last checkpoint and the later calls, without the failed call.

    Return None when the oldest of these calls are no longer in memory. Raises EngineCallFailed when another
    call fails.
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
