"""What the engine's thread asks of durability, and two answers: a database, or memory alone.

For each batch, in this order: ``commit_events`` (or ``woke``), the engine, ``commit_decisions``, and only
then may anybody hear of the decisions; ``maybe_checkpoint`` after that. Where a call raises a retryable
StoreError it is made again, with the same arguments, before any other; the engine waits meanwhile. An event
may be acknowledged when ``settle`` has returned: the events and what follows from them are synced together.
"""

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from schedd.store.checkpoint_writer import CheckpointWriter, FrozenState
from schedd.store.errors import LeaseExpired, StoreError
from schedd.store.leadership import Leadership
from schedd.store.log_watermark import LogWatermark, LogWatermarkFile
from schedd.store.records import EventBatch, LogPosition, Promise, PromiseBreach, RetentionLimits
from schedd.store.store import Store
from schedd.wire import Decision, Event

__all__ = ["BatchJournal", "DurableJournal", "MemoryJournal"]

_DELIVERIES = 200_000
_PENDING = 1_000
_MOST_SLICES = 50
"""With a checkpoint; most are of 500 rows."""
_BREATH_S = 0.02
_REST = 4
"""Rest so many times as long as a slice has taken of the processor."""
_NO_MORE = object()


class BatchJournal(Protocol):
    """One cluster's."""

    def use_settings(self, settings: str) -> None:
        """From the next batch on the engine works under these settings, given as JSON."""
        ...

    def commit_events(self, events: Sequence[Event], now: int, paused: str = "") -> EventBatch | None:
        """Keep a batch that the engine is to handle at ``now``; events kept before are left out.

        None when none is new: the engine is not to be called.
        """
        ...

    def sync_events(self) -> None:
        """All events that were kept are durable when it returns. Raises StoreError."""
        ...

    def add_wakeup(self, now: int, paused: str = "", *, resumed: bool = False) -> EventBatch:
        """The engine is to be called without events, having been ``resumed``; kept with what comes next."""
        ...

    def commit_decisions(
        self,
        batch: EventBatch,
        decisions: Sequence[Decision],
        promises: Sequence[Promise] = (),
        breaches: Sequence[PromiseBreach] = (),
        state: bytes = b"",
    ) -> tuple[Decision, ...]:
        """Keep what followed from ``batch``; returns the decisions as they may be heard of, with the term.

        ``state`` is the checkpoint after it, where the same calls may lead to another state: who follows goes
        on from that.
        """
        ...

    def skip_batch(self, batch: EventBatch) -> None:
        """The engine failed over ``batch``, the last one: who follows is to call it only so often as this has
        ``calls``.
        """
        ...

    def maybe_checkpoint(self, freeze: Callable[[], FrozenState], now: int, *, must: bool = False) -> bool:
        """Begin to keep the engine's present state, if it is time for that; whether one was kept since.

        ``freeze`` takes the state; another thread encodes it. If it ``must`` be, it is kept
        when this returns.
        """
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class MemoryJournal:
    """Nothing is kept beyond the process: for replays and trials."""

    def __init__(self) -> None:
        self._tail = LogPosition()
        self._seen: dict[str, None] = {}

    def use_settings(self, settings: str) -> None:
        """Nothing to do."""

    def commit_events(self, events: Sequence[Event], now: int, paused: str = "") -> EventBatch | None:
        """A batch of those events that are new, among the last 200,000 at least."""
        fresh: list[Event] = []
        for event in events:
            if event.id not in self._seen:
                self._seen[event.id] = None
                fresh.append(event)
        while len(self._seen) > _DELIVERIES:
            del self._seen[next(iter(self._seen))]
        return self._next(tuple(fresh), now, paused) if fresh else None

    def sync_events(self) -> None:
        """Nothing to do."""

    def add_wakeup(self, now: int, paused: str = "", *, resumed: bool = False) -> EventBatch:
        """A batch without events."""
        return replace(self._next((), now, paused), resumed=resumed)

    def _next(self, events: tuple[Event, ...], now: int, paused: str) -> EventBatch:
        self._tail = LogPosition(self._tail.batch + 1, self._tail.event + len(events))
        return EventBatch(
            number=self._tail.batch, now=now, last_event=self._tail.event, events=events, paused=paused
        )

    def commit_decisions(
        self,
        batch: EventBatch,  # noqa: ARG002
        decisions: Sequence[Decision],
        promises: Sequence[Promise] = (),  # noqa: ARG002
        breaches: Sequence[PromiseBreach] = (),  # noqa: ARG002
        state: bytes = b"",  # noqa: ARG002
    ) -> tuple[Decision, ...]:
        """Nothing to do."""
        return tuple(decisions)

    def skip_batch(self, batch: EventBatch) -> None:
        """Nothing to do."""

    def maybe_checkpoint(self, freeze: Callable[[], FrozenState], now: int, *, must: bool = False) -> bool:  # noqa: ARG002
        """Never."""
        return False

    def close(self) -> None:
        """Nothing to do."""


class DurableJournal:
    """One cluster's journal in a store.

    Checkpoints are made at most every ``every`` seconds, and so seldom that making them takes at most a
    twentieth of the time, unless the engine did so much since that a restart would be slow. A thread of
    their own encodes and writes them. With each go some slices of what is past its time, and what became of
    jobs and nodes is noted.
    """

    def __init__(
        self,
        store: Store,
        cluster: str,
        now: int,
        *,
        lead: Leadership | None = None,
        every: float = 5.0,
        limits: RetentionLimits | None = None,
        mark: LogWatermarkFile | None = None,
    ) -> None:
        self._store = store
        self._lead = lead
        self._limits = limits or RetentionLimits()
        self.cluster = store.register_cluster(cluster, now)
        self._tail = store.last_position(self.cluster)
        self._pending: list[EventBatch] = []
        self._unsynced = True
        """Whether events were kept that may be lost with the machine: by an earlier process, too."""
        self._paused = ""
        self._settings = ""
        self._background = CheckpointWriter(every)
        self._mark = mark
        self._digest_position = LogPosition(), b""
        self._decided = int(store.last_decision(self.cluster)[1:] or 0)
        self._noting: Iterator[None] | None = None

    def use_settings(self, settings: str) -> None:
        """Written with the next batch, and so before anybody hears of what follows from it."""
        self._settings = settings

    def commit_events(self, events: Sequence[Event], now: int, paused: str = "") -> EventBatch | None:
        """Kept when it returns, also if this process is killed, and durable after ``commit_decisions`` that
        writes something, or after ``settle``. Raises StoreError; then it may be called again with other
        events, too.
        """
        batch = self._store.append_events(
            self.cluster,
            self._tail,
            events,
            now,
            pending=self._pending,
            paused=paused,
            settings=self._settings,
            deferred=True,
        )
        self._unsynced = True
        if batch is not None:
            self._tail = LogPosition(batch.number, batch.last_event)
            self._digest_position = self._tail, batch.chain
            self._settings = ""
        self._pending.clear()
        self._paused = paused
        return batch

    def sync_events(self) -> None:
        """All events that were kept are durable when it returns. Raises StoreError."""
        if self._unsynced:
            self._store.database.sync()
            self._unsynced = False
            self._write_watermark()

    def add_wakeup(self, now: int, paused: str = "", *, resumed: bool = False) -> EventBatch:
        """Wakes in a row that lead to no decision, and change no pause, are written with what comes next."""
        last = self._pending[-1] if self._pending else None
        turned = resumed or bool(self._settings)
        if last is not None and (last.now, last.paused) == (now, paused) and not turned:
            self._pending[-1] = batch = replace(last, calls=last.calls + 1)
            return batch
        batch = EventBatch(
            number=self._tail.batch + 1,
            now=now,
            last_event=self._tail.event,
            paused=paused,
            resumed=resumed,
            settings=self._settings,
        )
        self._settings = ""
        self._tail = LogPosition(batch.number, batch.last_event)
        self._pending.append(batch)
        return batch

    def commit_decisions(
        self,
        batch: EventBatch,
        decisions: Sequence[Decision],
        promises: Sequence[Promise] = (),
        breaches: Sequence[PromiseBreach] = (),
        state: bytes = b"",
    ) -> tuple[Decision, ...]:
        """Durable when it returns. Raises StoreError; it is to be called again then before all else.

        Each decision carries the leader's term. They are returned only while this daemon leads.
        """
        made = tuple(replace(decision, term=self._term()) for decision in decisions)
        turned = batch.resumed or batch.paused != self._paused
        if made or promises or breaches or turned or state or len(self._pending) >= _PENDING:
            self._store.record_decisions(
                self.cluster,
                batch,
                made,
                promises=promises,
                breaches=breaches,
                pending=self._pending,
                state=zlib.compress(state, 1) if state else b"",
            )
            if made:
                self._decided = int(made[-1].id[1:])
            self._all_durable(batch.paused)
        if made and self._lead is not None and not self._lead.is_leader:
            raise LeaseExpired("the lease ended while the decisions were written")
        return made

    def skip_batch(self, batch: EventBatch) -> None:
        """Durable when it returns. Raises StoreError; it is to be called again then before all else."""
        if self._pending and self._pending[-1].number == batch.number:
            self._pending[-1] = batch
        self._store.skip_batch(self.cluster, batch, pending=self._pending)
        self._all_durable(batch.paused)

    def _all_durable(self, paused: str) -> None:
        """Something was written durably, and with it all that was written before."""
        self._pending.clear()
        self._paused = paused
        self._unsynced = False
        self._write_watermark()

    def _write_watermark(self) -> None:
        if self._mark is not None:
            at, chain = self._digest_position
            marked = LogWatermark(
                batch=self._tail.batch,
                event=self._tail.event,
                digest_batch=at.batch,
                digest=chain.hex(),
                last_decision=self._decided,
                term=self._term(),
            )
            self._mark.write(marked)

    def _term(self) -> int:
        return self._lead.term if self._lead is not None else 0

    def maybe_checkpoint(self, freeze: Callable[[], FrozenState], now: int, *, must: bool = False) -> bool:
        """Raises StoreError of a checkpoint that was not kept; the next one is made in its time."""
        if must:
            with suppress(StoreError):  # of an older state
                self._background.finished(wait=True)
        kept = self._background.finished()
        if must or self._background.is_due:
            self._store.insert_batches(self.cluster, self._pending)
            self.sync_events()
            self._all_durable(self._paused)
            at = self._tail

            def keep(body: bytes, facts: bytes) -> None:
                self._store.save_checkpoint(self.cluster, at, now, body, facts)
                if self._mark is not None:
                    self._mark.sync()
                if must:  # somebody waits
                    return
                self._run_slices(self._record_history)
                self._run_slices(lambda: bool(self._store.purge(self._limits, now, self.cluster)))

            self._background.start(freeze(), keep)
        return (self._background.finished(wait=True) if must else False) or kept

    def _run_slices(self, work: Callable[[], bool]) -> None:
        """Call ``work`` as long as there is more to do, but not for long, and let others go on in between."""
        for _ in range(_MOST_SLICES):
            begun = time.thread_time()
            if not work() or self._background.pause(max(_BREATH_S, _REST * (time.thread_time() - begun))):
                return

    def _record_history(self) -> bool:
        """From where the last slice ended, so that the largest snapshot is noted to its end."""
        if self._noting is None:
            self._noting = self._store.record_history(self.cluster)
        noting, self._noting = self._noting, None  # it is of no more use when it fails
        more = next(noting, _NO_MORE) is not _NO_MORE
        if more:
            self._noting = noting
        return more

    def close(self) -> None:
        """End the thread that makes checkpoints; the store stays open."""
        self._background.close()
        if self._mark is not None:
            self._mark.close()
