"""Executes run decisions in parallel, and reports each outcome to the daemon."""

import logging
from collections.abc import Callable

from schedd.wire import Event, Run, RunAccepted, RunRefused
from server_adapter.batch.errors import RightsError
from server_adapter.batch.supervision import TaskSet
from server_adapter.bridge.accepted_runs import AcceptedRuns
from server_adapter.bridge.delivery import DaemonExchange
from server_adapter.bridge.dispatch import Dispatcher
from server_adapter.bridge.journal import JournalWriteError
from server_adapter.bridge.server import RunOutcome

_log = logging.getLogger(__name__)


class RunExecutor:
    """Hands decisions to the dispatcher.

    A refusal calls `request_reading`, since something has changed on the server. A start calls
    `request_reading_soon`: the server shows it a moment later.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        delivery: DaemonExchange,
        accepted: AcceptedRuns,
        request_reading: Callable[[], None],
        request_reading_soon: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._dispatcher = dispatcher
        self._delivery = delivery
        self._accepted = accepted
        self._request_reading = request_reading
        self._request_reading_soon = request_reading_soon
        self._clock = clock
        self._tasks = TaskSet("a run decision")

    def begin(self, run: Run) -> None:
        """Execute one decision; its outcome is reported to the daemon."""
        self._tasks.spawn(self._carry_out(run))

    async def close(self) -> None:
        """Cancel waiting decisions."""
        await self._tasks.close()

    async def _carry_out(self, run: Run) -> None:
        try:
            outcome = await self._attempt(run)
        except Exception:
            # It is unknown whether the server accepted the run: the next reading shows it, and the decision
            # expires.
            self._request_reading()
            raise
        if outcome.accepted:
            self._accepted.note(run.job_id)
            _log.info("%s runs on %s", run.job_id, "+".join(share.node for share in run.shares))
        else:
            _log.info("%s was not started: %s", run.job_id, outcome.text)
        await self._delivery.enqueue(self._event(run, outcome))
        if outcome.accepted:
            self._request_reading_soon()
        else:
            self._request_reading()

    async def _attempt(self, run: Run) -> RunOutcome:
        try:
            return await self._dispatcher.run(run)
        except (RightsError, JournalWriteError) as error:
            return RunOutcome(False, 0, str(error), outage=True)
        except ValueError as error:
            return RunOutcome(False, 0, str(error))

    def _event(self, run: Run, outcome: RunOutcome) -> Event:
        name, now = next(self._delivery.ids), int(self._clock())
        if outcome.accepted:
            return RunAccepted(id=name, time=now, decision_id=run.id, job_id=run.job_id)
        return RunRefused(
            id=name,
            time=now,
            decision_id=run.id,
            job_id=run.job_id,
            code=outcome.code,
            text=outcome.text,
            outage=outcome.outage,
            fragmented=outcome.fragmented,
        )
