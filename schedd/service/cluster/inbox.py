"""What others ask of a planner's thread: to handle events, and to do something between two batches."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from schedd.engine import Engine
from schedd.service.cluster.deliveries import DeliveryPart, DeliveryResult, PendingDelivery
from schedd.service.cluster.errors import Overloaded, PlannerStopped, StandingBy
from schedd.service.cluster.metrics import ClusterMetrics
from schedd.store import EventBatch, NotLeader
from schedd.wire import Event

__all__ = ["Inbox"]

_T = TypeVar("_T")
_Call = tuple[Callable[[Engine], Any], "Future[Any]"]


class Inbox:
    """Any thread puts something in, one takes it out and answers; ``turn`` rings when there is something."""

    def __init__(self, meters: ClusterMetrics, most_pending: int) -> None:
        self.condition = threading.Condition()
        self.pending = 0
        """Events that are not answered yet."""
        self.most_pending = most_pending
        self.calls: deque[_Call] = deque()
        self._deliveries: deque[PendingDelivery] = deque()
        self._orders: deque[PendingDelivery] = deque()
        self._meters = meters

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self._deliveries or self._orders or self.calls)

    def deliver(
        self, events: Sequence[Event], check: Callable[[], None], *, order: bool = False
    ) -> "Future[DeliveryResult]":
        """Hand in events. Raises Overloaded, and what ``check`` raises when it is called in turn.

        ``order``: it waits until no others do.
        """
        answer: Future[DeliveryResult] = Future()
        with self.condition:
            check()
            if self.pending and self.pending + len(events) > self.most_pending:
                raise Overloaded(f"{self.pending} events wait to be handled; send them again later")
            self.pending += len(events)
            (self._orders if order else self._deliveries).append(PendingDelivery(events, answer))
            self.condition.notify()
        return answer

    def call(self, call: Callable[[Engine], _T], check: Callable[[], None]) -> "Future[_T]":
        """Ask for a call. Raises what ``check`` raises."""
        answer: Future[_T] = Future()
        with self.condition:
            check()
            self.calls.append((call, answer))
            self.condition.notify()
        return answer

    def wake(self) -> None:
        """Let the thread look around."""
        with self.condition:
            self.condition.notify()

    def next_deliveries(self) -> list[PendingDelivery]:
        """All deliveries that wait and are no orders; where there are none, the next order."""
        with self.condition:
            if self._deliveries:
                taken = list(self._deliveries)
                self._deliveries.clear()
                return taken
            return [self._orders.popleft()] if self._orders else []

    def answer(
        self,
        parts: Sequence[DeliveryPart],
        batch: EventBatch | None,
        generation: int,
        taken: Mapping[str, int],
    ) -> None:
        """Answer those deliveries of which ``batch`` (None: nothing was new) held the last event.

        ``taken``: by event how many jobs it moved, see ``Outcome``.
        """
        fresh = {event.id for event in batch.events} if batch is not None else set()
        for part in parts:
            delivery = part.delivery
            for event in part.events:
                if event.id in fresh:
                    fresh.remove(event.id)
                    delivery.accepted += 1
                    delivery.taken += taken.get(event.id, 0)
                else:
                    delivery.duplicates.append(event.id)
            if not part.last:
                continue
            with self.condition:
                self.pending -= len(delivery.events)
            self._meters.count_events(delivery.accepted, delivery.came)
            if delivery.answer.set_running_or_notify_cancel():
                delivery.answer.set_result(
                    DeliveryResult(
                        delivery.accepted,
                        tuple(delivery.duplicates),
                        generation,
                        delivery.taken,
                        delivery.spent,
                    )
                )

    def fail(self, parts: Sequence[DeliveryPart], error: Exception) -> None:
        """Answer the deliveries of these parts with an error; what more there is of them is not handled."""
        for part in parts:
            delivery = part.delivery
            if delivery.failed:
                continue
            delivery.failed = True
            with self.condition:
                self.pending -= len(delivery.events)
            if delivery.answer.set_running_or_notify_cancel():
                delivery.answer.set_exception(error)

    def answer_calls(self, engine: Callable[[], Engine]) -> None:
        """Call what is asked for, with the engine of the moment. Raises PlannerStopped and NotLeader."""
        while self.calls:
            call, answer = self.calls.popleft()
            if not answer.set_running_or_notify_cancel():
                continue
            try:
                answer.set_result(call(engine()))
            except StandingBy as error:
                answer.set_exception(error)
            except (PlannerStopped, NotLeader) as error:
                answer.set_exception(PlannerStopped(str(error)))
                raise
            except Exception as error:  # the caller's business, not the planner's
                answer.set_exception(error)

    def _next(self) -> PendingDelivery | None:
        with self.condition:
            waiting = self._deliveries or self._orders
            return waiting.popleft() if waiting else None

    def refuse(self, why: str) -> None:
        """Answer all that waits with PlannerStopped."""
        for delivery in iter(self._next, None):
            if delivery.answer.set_running_or_notify_cancel():
                delivery.answer.set_exception(PlannerStopped(why))
        while self.calls:
            _, answer = self.calls.popleft()
            if answer.set_running_or_notify_cancel():
                answer.set_exception(PlannerStopped(why))
