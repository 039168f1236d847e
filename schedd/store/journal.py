"""The journal: durability as the engine's thread sees it, on a database or in memory.

For each batch, call ``commit_events`` (or ``add_wakeup``), the engine, then ``commit_decisions``; only then
may the decisions be published. ``maybe_checkpoint`` follows. After a retryable StoreError, repeat the same
call with the same arguments before any other; the engine waits meanwhile. An event may be acknowledged after
``sync_events``: one sync covers the events and their decisions.
"""

import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from schedd.store.checkpoint_writer import CheckpointWriter, FrozenContent
from schedd.store.errors import LeaseExpired, StoreError
from schedd.store.history_recorder import HistoryRecorder
from schedd.store.leadership import Leadership
from schedd.store.log_watermark import LogWatermark, LogWatermarkFile
from schedd.store.records import EventBatch, LogPosition, Promise, PromiseBreach, RetentionLimits
from schedd.store.store import Store
from schedd.wire import Decision, Event

_DELIVERIES = 200_000
_PENDING = 1_000


class BatchJournal(Protocol):
    """The journal of one cluster."""

    @property
    def history_error(self) -> Exception | None:
        """Why the history was last not recorded, or expired rows were not deleted; None: no error."""
        ...

    @property
    def history_events_behind(self) -> int:
        """Number of stored events that the history does not include yet."""
        ...

    def use_settings(self, settings: str) -> None:
        """Record these settings (JSON) with the next batch; the engine works with them from then on."""
        ...

    def commit_events(self, events: Sequence[Event], now: int, paused: str = "") -> EventBatch | None:
        """Store a batch that the engine will handle at ``now``, without events that were stored before.

        Returns None when no event is new: then the engine must not be called.
        """
        ...

    def sync_events(self) -> None:
        """Return when all stored events are durable. Raises StoreError."""
        ...

    def replace_deliveries(self, new: Sequence[bytes], logged: Sequence[int] = ()) -> Sequence[int]:
        """Store the bodies of ``new`` deliveries durably and return their numbers; delete those that are
        ``logged``. Any one thread may call it. Raises StoreError.
        """
        ...

    def deliveries(self) -> Sequence[tuple[int, bytes]]:
        """Return the stored deliveries in the order of their arrival: number and body. Raises StoreError."""
        ...

    def add_wakeup(self, now: int, paused: str = "", *, resumed: bool = False) -> EventBatch:
        """Return a batch without events, for a timed call of the engine; it is stored with the next batch."""
        ...

    def commit_decisions(
        self,
        batch: EventBatch,
        decisions: Sequence[Decision],
        promises: Sequence[Promise] = (),
        breaches: Sequence[PromiseBreach] = (),
        state: bytes = b"",
    ) -> tuple[Decision, ...]:
        """Store the results of ``batch``; return the decisions with the leader's term, ready for publication.

        ``state`` is a checkpoint after the batch, if repeating the batch may lead to another state: followers
        restart from it.
        """
        ...

    def skip_batch(self, batch: EventBatch) -> None:
        """Record that the engine failed on the last ``batch``: followers make ``calls`` engine calls."""
        ...

    def maybe_checkpoint(self, freeze: Callable[[], FrozenContent], now: int, *, must: bool = False) -> bool:
        """Start a checkpoint if one is due; return whether one was completed since the last call.

        ``freeze`` returns the state, which another thread encodes. With ``must``, return only after the
        checkpoint is stored.
        """
        ...

    def close(self) -> None:
        """Release threads and files."""
        ...


class MemoryJournal:
    """A journal without persistence, for replays and trials."""

    history_error: Exception | None = None
    history_events_behind = 0

    def __init__(self) -> None:
        self._tail = LogPosition()
        self._seen: dict[str, None] = {}

    def use_settings(self, settings: str) -> None:
        """Do nothing."""

    def commit_events(self, events: Sequence[Event], now: int, paused: str = "") -> EventBatch | None:
        """Return a batch of the events that are not among the last 200,000."""
        fresh: list[Event] = []
        for event in events:
            if event.id not in self._seen:
                self._seen[event.id] = None
                fresh.append(event)
        while len(self._seen) > _DELIVERIES:
            del self._seen[next(iter(self._seen))]
        return self._next(tuple(fresh), now, paused) if fresh else None

    def sync_events(self) -> None:
        """Do nothing."""

    def replace_deliveries(self, new: Sequence[bytes], logged: Sequence[int] = ()) -> Sequence[int]:  # noqa: ARG002
        """Raise StoreError: nothing is durable here."""
        raise StoreError("deliveries are not stored")

    def deliveries(self) -> Sequence[tuple[int, bytes]]:
        """Return nothing."""
        return ()

    def add_wakeup(self, now: int, paused: str = "", *, resumed: bool = False) -> EventBatch:
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
        """Return the decisions unchanged."""
        return tuple(decisions)

    def skip_batch(self, batch: EventBatch) -> None:
        """Do nothing."""

    def maybe_checkpoint(self, freeze: Callable[[], FrozenContent], now: int, *, must: bool = False) -> bool:  # noqa: ARG002
        """Return False: there are no checkpoints."""
        return False

    def close(self) -> None:
        """Do nothing."""


class DurableJournal:
    """The journal of one cluster in a store.

    Checkpoints are written at most every ``every`` seconds, by a thread of its own; see CheckpointWriter.
    After each one, the history of jobs and nodes is recorded; see HistoryRecorder.
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
        self.cluster = store.register_cluster(cluster, now)
        self._tail = store.last_position(self.cluster)
        self._pending: list[EventBatch] = []
        self._unsynced = True  # whether stored events may not be durable yet, also from an earlier process
        self._paused = ""
        self._settings = ""
        self._background = CheckpointWriter(every)
        self._mark = mark
        self._digest_position = LogPosition(), b""
        self._decided = int(store.last_decision(self.cluster)[1:] or 0)
        self._history = HistoryRecorder(store, self.cluster, limits or RetentionLimits())

    @property
    def history_error(self) -> Exception | None:
        """The error of the last attempt to record the history or to delete expired rows."""
        return self._history.error

    @property
    def history_events_behind(self) -> int:
        """Number of stored events that the history does not include yet; any thread may read it."""
        return self._history.events_behind(self._tail.event)

    def use_settings(self, settings: str) -> None:
        """Record these settings with the next batch, before its decisions are published."""
        self._settings = settings

    def commit_events(self, events: Sequence[Event], now: int, paused: str = "") -> EventBatch | None:
        """Store a batch of events. It survives the end of this process when this returns.

        It is durable after ``sync_events``, or after ``commit_decisions`` with something to write. Raises
        StoreError; then the call may be repeated, also with more events.
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
        """Return when all stored events are durable. Raises StoreError."""
        if self._unsynced:
            self._store.database.sync()
            self._unsynced = False
            self._write_watermark()

    def replace_deliveries(self, new: Sequence[bytes], logged: Sequence[int] = ()) -> Sequence[int]:
        """As ``Store.replace_deliveries``."""
        return self._store.replace_deliveries(self.cluster, new, logged)

    def deliveries(self) -> Sequence[tuple[int, bytes]]:
        """As ``Store.deliveries``."""
        return self._store.deliveries(self.cluster)

    def add_wakeup(self, now: int, paused: str = "", *, resumed: bool = False) -> EventBatch:
        """Return a batch without events; those without results are merged and stored with the next."""
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
        """Store the results of a batch durably. Raises StoreError; repeat the call before any other.

        Each decision gets the leader's term. Raises LeaseExpired when this daemon no longer leads.
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
        """Record durably that a batch is skipped. Raises StoreError; repeat the call before any other."""
        if self._pending and self._pending[-1].number == batch.number:
            self._pending[-1] = batch
        self._store.skip_batch(self.cluster, batch, pending=self._pending)
        self._all_durable(batch.paused)

    def _all_durable(self, paused: str) -> None:
        """Note that a durable write has included all earlier ones."""
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
                chain_batch=at.batch,
                chain=chain.hex(),
                last_decision=self._decided,
                term=self._term(),
            )
            self._mark.write(marked)

    def _term(self) -> int:
        return self._lead.term if self._lead is not None else 0

    def maybe_checkpoint(self, freeze: Callable[[], FrozenContent], now: int, *, must: bool = False) -> bool:
        """Start a checkpoint if due. Raises StoreError for a failed one; the next comes at its time."""
        if must:
            with suppress(StoreError):  # of an older state
                self._background.abandon()
        kept = self._background.finished()
        if must or self._background.is_due:
            self._store.insert_batches(self.cluster, self._pending)
            self.sync_events()
            self._all_durable(self._paused)
            at = self._tail

            def store_checkpoint(body: bytes, facts: bytes) -> None:
                self._store.save_checkpoint(self.cluster, at, now, body, facts)
                if self._mark is not None:
                    self._mark.sync()
                if not must:
                    self._history.start(now, at.event, busy=self._background.is_urgent)

            self._background.start(freeze(), store_checkpoint)
        return (self._background.finished(wait=True) if must else False) or kept

    def close(self) -> None:
        """End the threads that write checkpoints and history; the store stays open."""
        self._background.close()
        self._history.close()
        with suppress(StoreError):
            self._store.move_deliveries(self.cluster)
        if self._mark is not None:
            self._mark.close()
