"""Common part of the executors of decisions about a present run: preemptions, resumptions and extensions."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from schedd.wire import ExtendRun, ExtensionDone, JobFacts, Preempt, PreemptionDone, Resume
from server_adapter.batch.supervision import TaskSet
from server_adapter.bridge.decision_queue import DecisionOutcomes, decision_key
from server_adapter.bridge.delivery import DaemonExchange
from server_adapter.bridge.facts import ACTIVE
from server_adapter.bridge.journal import JournalWriteError
from server_adapter.bridge.run_checks import describe_old_term

SETTLING_S: Final = 2.0  # time until a request with a lost answer is checked
_SAME_RUN_S: Final = 30  # two reported starts of one run differ by at most this

_S = TypeVar("_S")
_J = TypeVar("_J")
_D = TypeVar("_D", bound=Preempt | Resume | ExtendRun)


@dataclass(frozen=True, slots=True)
class RunOrderOutcome:
    """Outcome of a decision. `outage`: none can be carried out at present, whatever the job."""

    done: bool
    code: int = 0
    text: str = ""
    outage: bool = False


class RunOrderExecutor(ABC, Generic[_S, _J, _D]):
    """Executes decisions, several at a time. `barred` returns the reason against any, or an empty text;
    `term` is the highest known leader's term. Events have the time of `clock`, decisions expire by
    `cluster_time` (default: the same).
    """

    def __init__(
        self,
        server: _S,
        delivery: DaemonExchange,
        barred: Callable[[], str],
        request_reading: Callable[[], None],
        term: Callable[[], int],
        journal: _J,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        cluster_time: Callable[[], float] | None = None,
    ) -> None:
        self._server = server
        self._delivery = delivery
        self._barred = barred
        self._request_reading = request_reading
        self._term = term
        self._journal = journal
        self._clock = clock
        self._cluster_time = cluster_time or clock
        self._sleep = sleep
        self._tasks = TaskSet("a decision about a run")
        self._under_way: set[str] = set()
        self._outcomes: DecisionOutcomes[RunOrderOutcome] = DecisionOutcomes()

    def begin(self, order: _D) -> None:
        """Execute one decision, unless it is under way; its outcome is reported to the daemon."""
        if decision_key(order) not in self._under_way:
            self._under_way.add(decision_key(order))
            self._tasks.spawn(self._carry_out(order))

    async def close(self) -> None:
        """Cancel the decisions that are under way."""
        await self._tasks.close()

    async def _carry_out(self, order: _D) -> None:
        try:
            outcome = self._outcomes.find(order) or await self._attempt(order)
        except JournalWriteError as error:
            outcome = RunOrderOutcome(False, text=str(error), outage=True)
        finally:
            self._under_way.discard(decision_key(order))
        self._outcomes.record(order, outcome)
        self._log_outcome(order, outcome)
        kind = ExtensionDone if isinstance(order, ExtendRun) else PreemptionDone
        await self._delivery.enqueue(
            kind(
                id=next(self._delivery.ids),
                time=int(self._clock()),
                decision_id=order.id,
                job_id=order.job_id,
                done=outcome.done,
                code=outcome.code,
                text=outcome.text,
                outage=outcome.outage,
            )
        )
        self._request_reading()

    @abstractmethod
    async def _attempt(self, order: _D) -> RunOrderOutcome: ...

    @abstractmethod
    def _log_outcome(self, order: _D, outcome: RunOrderOutcome) -> None: ...

    def _refusal(self, order: _D) -> str:
        """Return the reason against any decision of this term, or an empty text."""
        if barred := self._barred():
            return barred
        return describe_old_term(order.term, self._term()) if order.term < self._term() else ""


def is_this_run(order: Preempt | Resume | ExtendRun, job: JobFacts | None) -> bool:
    """Return whether the job is still in the run of the decision. A job that is exiting is not: it can be
    neither signalled nor requeued, and its nodes are free in a moment.
    """
    if job is None or job.state not in ACTIVE - {"E"}:
        return False
    return job.started is None or abs(job.started - order.started) <= _SAME_RUN_S
