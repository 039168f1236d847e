"""Deliveries of events to the planner, and their division into batches."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from schedd.wire import Event, Snapshot

_MOST = 200  # maximum number of events in a batch: about 50 ms of work


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """Reply to a delivery: number of new events, ids of known ones, and the generation that includes all.

    ``taken``: number of jobs that a search result or a chosen plan among the events moved.
    """

    accepted: int
    duplicates: tuple[str, ...]
    generation: int
    taken: int = 0
    spent: float = 0.0  # processor time of the planner for it, in seconds


@dataclass(slots=True)
class PendingDelivery:
    """Events of one sender with their results; ``answer`` is set when all are handled."""

    events: Sequence[Event]
    answer: "Future[DeliveryResult]"
    accepted: int = 0
    duplicates: list[str] = field(default_factory=list)
    taken: int = 0
    spent: float = 0.0
    failed: bool = False  # it was answered with an error; the remaining events are not handled
    came: float = field(default_factory=time.monotonic)  # arrival by the monotonic clock


@dataclass(frozen=True, slots=True)
class DeliveryPart:
    """Some events of a delivery; ``last``: they end with its last event."""

    delivery: PendingDelivery
    events: Sequence[Event]
    last: bool


def cut_batches(deliveries: Sequence[PendingDelivery]) -> Iterator[Sequence[DeliveryPart]]:
    """Yield batches of bounded size, in order. A server snapshot is a batch of its own."""
    batch: list[DeliveryPart] = []
    size = 0
    for delivery in deliveries:
        begin = 0
        for end in _cuts(delivery.events):
            events = delivery.events[begin:end]
            alone = any(isinstance(event, Snapshot) for event in events)
            if batch and (alone or size + len(events) > _MOST):
                yield batch
                batch, size = [], 0
            batch.append(DeliveryPart(delivery, events, end == len(delivery.events)))
            size += len(events)
            begin = end
            if alone:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _cuts(events: Sequence[Event]) -> Iterator[int]:
    """Yield the positions for cutting a delivery, including its end."""
    begin = 0
    for i, event in enumerate(events):
        if isinstance(event, Snapshot):
            if i > begin:
                yield i
            if i + 1 < len(events):
                yield i + 1
            begin = i + 1
        elif i - begin == _MOST:
            yield i
            begin = i
    yield len(events)
