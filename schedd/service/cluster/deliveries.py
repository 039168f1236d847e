"""Deliveries of events on their way to the planner, and how they are cut into batches."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from schedd.wire import Event, Snapshot

__all__ = ["DeliveryPart", "DeliveryResult", "PendingDelivery", "cut_batches"]

_MOST = 200
"""Events at most in one batch: about 50 ms of work."""


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """The answer to a delivery: how many events were new, which were known, the generation that holds all.

    ``taken``: how many jobs moved by what a search found, or by a plan that was chosen, where it brought one.
    """

    accepted: int
    duplicates: tuple[str, ...]
    generation: int
    taken: int = 0
    spent: float = 0.0
    """Processor time that the planner took for it, in seconds."""


@dataclass(slots=True)
class PendingDelivery:
    """Events of one sender, and what became of those handled so far; ``answer`` when all are."""

    events: Sequence[Event]
    answer: "Future[DeliveryResult]"
    accepted: int = 0
    duplicates: list[str] = field(default_factory=list)
    taken: int = 0
    spent: float = 0.0
    failed: bool = False
    """It was answered with an error: the rest of it is not handled."""
    came: float = field(default_factory=time.monotonic)
    """When, by the monotonic clock."""


@dataclass(frozen=True, slots=True)
class DeliveryPart:
    """Some events of a delivery, perhaps its last."""

    delivery: PendingDelivery
    events: Sequence[Event]
    last: bool


def cut_batches(deliveries: Sequence[PendingDelivery]) -> Iterator[Sequence[DeliveryPart]]:
    """In order, in batches of bounded size. A snapshot stands alone: what it says must not be reordered."""
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
    """Where to cut a delivery: around its snapshots, and so that no piece is too large. Ends with its end."""
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
