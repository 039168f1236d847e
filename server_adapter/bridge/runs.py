"""Run decisions on their way: carried out beside each other, each outcome told to the daemon."""

import asyncio
import logging
from collections.abc import Callable

from schedd.wire import Event, Run, RunAccepted, RunRefused
from server_adapter.batch.errors import RightsError
from server_adapter.bridge.accepted import AcceptedRuns
from server_adapter.bridge.delivery import PostOffice
from server_adapter.bridge.dispatch import Dispatcher
from server_adapter.bridge.server import Outcome

_log = logging.getLogger(__name__)


class Runs:
    """Hands decisions to the dispatcher. `look` is called after each outcome: something has changed."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        delivery: PostOffice,
        accepted: AcceptedRuns,
        look: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._dispatcher = dispatcher
        self._delivery = delivery
        self._accepted = accepted
        self._look = look
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, run: Run) -> None:
        """Carries out one decision; what became of it goes to the daemon."""
        task = asyncio.create_task(self._carry_out(run))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finished(self) -> None:
        """Waits until all that were begun have come to something."""
        await asyncio.gather(*self._tasks)

    async def close(self) -> None:
        """Ends those that wait."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry_out(self, run: Run) -> None:
        outcome = await self._attempt(run)
        if outcome.accepted:
            self._accepted.note(run.job_id)
            _log.info("%s runs on %s", run.job_id, "+".join(share.node for share in run.shares))
        else:
            _log.info("%s was not started: %s", run.job_id, outcome.text)
        await self._delivery.put(self._event(run, outcome))
        self._look()

    async def _attempt(self, run: Run) -> Outcome:
        try:
            return await self._dispatcher.run(run)
        except (RightsError, ValueError) as error:
            return Outcome(False, 0, str(error))

    def _event(self, run: Run, outcome: Outcome) -> Event:
        name, now = next(self._delivery.ids), int(self._clock())
        if outcome.accepted:
            return RunAccepted(id=name, time=now, decision_id=run.id, job_id=run.job_id)
        return RunRefused(
            id=name, time=now, decision_id=run.id, job_id=run.job_id, code=outcome.code, text=outcome.text
        )
