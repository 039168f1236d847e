"""Queue of events for the daemon: numbered once, stored until acknowledged, sent again with the same ids."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

OUTCOMES = frozenset(
    {
        *("run_accepted", "run_refused", "preemption_done", "extension_done", "switched"),
        "transfer_step_done",
    }
)
"""Types of the events with the outcome of a decision. Each decision is handled once, so they are never made
again."""


@dataclass(frozen=True, slots=True)
class EncodedEvent:
    """An encoded event."""

    id: str
    type: str
    body: bytes


class Outbox:
    """First in, first out. Ids are `EPOCH:SEQUENCE`, taken from `ids` in the order of the events.

    If more than `limit` events wait (a long outage of the daemon), all but the outcomes of decisions are
    dropped and `overflowed` is set: a snapshot then replaces them.
    """

    def __init__(self, epoch: int, limit: int = 20_000) -> None:
        self._waiting: deque[EncodedEvent] = deque()
        self._limit = limit
        self.overflowed = False
        self.ids: Iterator[str] = _sequence(epoch)

    def __len__(self) -> int:
        return len(self._waiting)

    def append(self, encoded: EncodedEvent) -> None:
        self._waiting.append(encoded)
        if len(self._waiting) > self._limit:
            self._waiting = deque(kept for kept in self._waiting if kept.type in OUTCOMES)
            self.overflowed = True

    def batch(self, count: int = 500, size: int = 8_000_000) -> list[EncodedEvent]:
        """Return the oldest events, at most `count` and `size` bytes, but at least one."""
        chosen: list[EncodedEvent] = []
        total = 0
        for encoded in self._waiting:
            total += len(encoded.body)
            if chosen and (len(chosen) >= count or total > size):
                break
            chosen.append(encoded)
        return chosen

    def acknowledge(self, batch: list[EncodedEvent]) -> None:
        """Remove events that the daemon has handled."""
        for encoded in batch:
            if self._waiting and self._waiting[0] is encoded:
                self._waiting.popleft()
            elif encoded in self._waiting:
                self._waiting.remove(encoded)


def _sequence(epoch: int) -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"{epoch}:{number}"
