"""Inbox of a planner's thread: events to handle, and calls between two batches."""

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

_T = TypeVar("_T")
_Call = tuple[Callable[[Engine], Any], "Future[Any]"]


class Inbox:
    """Any thread adds work, one thread takes and answers it; ``condition`` signals new work."""

    def __init__(self, meters: ClusterMetrics, most_pending: int) -> None:
        self.condition = threading.Condition()
        self.pending = 0  # number of events without an answer
        self.most_pending = most_pending
        self.calls: deque[_Call] = deque()
        self._deliveries: deque[PendingDelivery] = deque()
        self._orders: deque[PendingDelivery] = deque()
        self._meters = meters

    def __bool__(self) -> bool:
        """Whether there is work."""
        return bool(self._deliveries or self._orders or self.calls)

    def deliver(
        self, events: Sequence[Event], check: Callable[[], None], *, order: bool = False
    ) -> "Future[DeliveryResult]":
        """Add events. Raises Overloaded, and the exceptions of ``check``, which is called with the lock held.

        ``order``: handle them only when no other deliveries are pending.
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
        """Add a call between two batches. Raises the exceptions of ``check``."""
        answer: Future[_T] = Future()
        with self.condition:
            check()
            self.calls.append((call, answer))
            self.condition.notify()
        return answer

    def wake(self) -> None:
        with self.condition:
            self.condition.notify()

    def next_deliveries(self) -> list[PendingDelivery]:
        """Return all pending deliveries; without any, the next order."""
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
        """Answer the deliveries that ``batch`` completes (None: there was no new event).

        ``taken``: number of moved jobs by event, see ``Outcome``.
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
        """Answer the deliveries of these parts with an error; their remaining events are not handled."""
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
        """Run the pending calls with the present engine. Raises PlannerStopped and NotLeader."""
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
            except Exception as error:  # an error for the caller, not for the planner
                answer.set_exception(error)

    def _next(self) -> PendingDelivery | None:
        with self.condition:
            waiting = self._deliveries or self._orders
            return waiting.popleft() if waiting else None

    def refuse(self, why: str) -> None:
        """Answer all pending work with PlannerStopped."""
        for delivery in iter(self._next, None):
            if delivery.answer.set_running_or_notify_cancel():
                delivery.answer.set_exception(PlannerStopped(why))
        while self.calls:
            _, answer = self.calls.popleft()
            if answer.set_running_or_notify_cancel():
                answer.set_exception(PlannerStopped(why))
