"""Bounded log of the engine's calls, for incidents."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from schedd.wire import Event, Snapshot
from schedd.wire.quick_init import quick_init


@quick_init
@dataclass(frozen=True, slots=True)
class LoggedBatch:
    """A call of ``handle``; or, where ``paused`` is not None, of ``pause`` (why) or ``resume`` (empty).

    ``decided`` is the number of decisions that the engine had made before it.
    """

    now: int
    events: tuple[Event, ...]
    paused: str | None = None
    decided: int = 0


@dataclass(frozen=True, slots=True)
class Incident:
    """A checkpoint and the later batches, without the ``lost`` oldest ones.

    ``decided`` is the number of decisions at the end.
    """

    checkpoint: bytes
    batches: tuple[LoggedBatch, ...]
    decided: int
    lost: int = 0


class BatchLog:
    """Batches since the last checkpoint, bounded in number and weight.

    ``lost`` counts dropped batches: with any of these, the log does not continue the checkpoint.
    """

    def __init__(self, batches: int, weight: int) -> None:
        self._batches = batches
        self._most = weight
        self._kept: deque[tuple[LoggedBatch, int]] = deque()
        self._weight = 0
        self.lost = 0

    def append(self, batch: LoggedBatch) -> None:
        """Keep one more batch."""
        weight = 1 + len(batch.events)
        for event in batch.events:
            if type(event) is Snapshot:
                weight += len(event.jobs) + len(event.nodes) - 1
        self._kept.append((batch, weight))
        self._weight += weight
        while len(self._kept) > self._batches or (self._weight > self._most and len(self._kept) > 1):
            self._weight -= self._kept.popleft()[1]
            self.lost += 1

    @property
    def full(self) -> bool:
        """Whether it is time for a checkpoint, lest the oldest have to go."""
        return 2 * len(self._kept) > self._batches or 2 * self._weight > self._most

    def clear(self) -> None:
        """Clear the log after a checkpoint."""
        self._kept.clear()
        self._weight = self.lost = 0

    def __iter__(self) -> Iterator[LoggedBatch]:
        return (batch for batch, _ in self._kept)

    def __len__(self) -> int:
        return len(self._kept)
