"""The store: persistent state. A call is a transaction; one thread writes, any thread reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from threading import Lock
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, insert, select

from schedd.store import (
    acknowledged_deliveries,
    checkpoints,
    decision_records,
    delivery_file,
    event_log,
    expected_starts,
    history,
    history_writer,
    lease,
    ledger,
    notice_subscriptions,
    plan_metrics,
    retention,
    share_history,
    tokens_and_audit,
)
from schedd.store.codec import replace_nul
from schedd.store.database import Database
from schedd.store.delivery_file import DeliveryFile, DeliveryFileReport
from schedd.store.history_writer import HistoryWriter
from schedd.store.log_gaps import LogGaps
from schedd.store.records import (
    RESUME_FROM_CHECKPOINT,
    AuditRecord,
    EventBatch,
    LastNotice,
    LogPosition,
    Promise,
    PromiseBreach,
    RecoveryPoint,
    RetentionLimits,
)
from schedd.store.tables import clusters
from schedd.wire import Decision, Event

_P = ParamSpec("_P")
_T = TypeVar("_T")
_RECENT = 20_000


def _reads(ask: Callable[Concatenate[Connection, _P], _T]) -> Callable[Concatenate["Store", _P], _T]:
    """Return a method that calls the function in a reading transaction."""

    @wraps(ask)
    def method(store: "Store", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with store.database.read() as connection:
            return ask(connection, *args, **kwargs)

    return method


def _writes(
    change: Callable[Concatenate[Connection, _P], _T], *, guarded: bool = True
) -> Callable[Concatenate["Store", _P], _T]:
    """Return a method that calls the function in a writing transaction; ``guarded``: only of the leader."""

    @wraps(change)
    def method(store: "Store", /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with store.database.write(guarded=guarded) as connection:
            return change(connection, *args, **kwargs)

    return method


class Store:
    """All methods raise StoreError when the database fails.

    Then the call had no effect, or it had its full effect and repeating it changes nothing.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._log_gaps = LogGaps()
        self._delivery_files: dict[int, DeliveryFile] = {}
        self._lock = Lock()  # of the above

    @classmethod
    def open(cls, url: str) -> "Store":
        """Open the store at ``url`` (``sqlite:///PATH``, a path, ``postgresql://…``); create tables if it is
        empty.

        Raises SchemaOlder, SchemaNewer, or DatabaseUnavailable.
        """
        return cls(Database.open(url))

    def close(self) -> None:
        for file in self._delivery_files.values():
            file.close()
        self.database.close()

    # ---- clusters and the event log -------------------------------------------------------------

    def register_cluster(self, name: str, now: int) -> int:
        """Return the number of the cluster ``name``; insert it if it is new."""
        with self.database.write() as connection:
            found = connection.scalar(select(clusters.c.id).where(clusters.c.name == name))
            if found is None:
                found = connection.scalar(
                    insert(clusters).values(name=replace_nul(name), created=now).returning(clusters.c.id)
                )
            assert found is not None
            return int(found)

    def find_cluster(self, name: str) -> int | None:
        """Return the number of the cluster ``name``; None if it is unknown."""
        with self.database.read() as connection:
            return connection.scalar(select(clusters.c.id).where(clusters.c.name == replace_nul(name)))

    def append_events(
        self,
        cluster: int,
        last: LogPosition,
        new: Sequence[Event],
        now: int,
        *,
        pending: Iterable[EventBatch] = (),
        paused: str = "",
        settings: str = "",
        deferred: bool = False,
    ) -> EventBatch | None:
        """Store the events that are not in the log as one batch; return it, or None if there are none.

        ``last`` is the position that the writer expects after ``pending``, its unwritten batches without
        events. Later records come from an earlier attempt with a lost confirmation: with the same events
        it is returned, otherwise it is replaced. Outcomes of decisions and actual starts in the events are
        stored with the decisions and estimates. ``deferred``: see ``Database.write``.
        """
        waiting = tuple(pending)
        durable = LogPosition(waiting[0].number - 1 if waiting else last.batch, last.event)
        with self.database.write(guarded=True, deferred=deferred) as connection:
            if event_log.last_position(connection, cluster) != durable:
                kept = _earlier_attempt(event_log.batches_after(connection, cluster, durable), waiting, new)
                if kept is not None:
                    return kept
                event_log.delete_after(connection, cluster, durable)
            fresh = _new_events(connection, cluster, new)
            if not fresh:
                event_log.insert_batches(connection, cluster, waiting)
                return None
            number, digest = event_log.append_events(connection, cluster, last.event, fresh)
            batch = EventBatch(
                number=last.batch + 1,
                now=now,
                last_event=number,
                events=tuple(fresh),
                paused=paused,
                settings=settings,
            )
            link = event_log.insert_batches(connection, cluster, (*waiting, batch), {batch.number: digest})
            decision_records.record_outcomes(connection, cluster, fresh)
            decision_records.record_actual_starts(
                connection, cluster, dict(decision_records.actual_starts(fresh))
            )
            return replace(batch, chain=link)

    def events_after(self, cluster: int, after: LogPosition) -> tuple[EventBatch, ...]:
        """Return the batches after ``after``, with their events."""
        with self.database.read() as connection:
            return tuple(event_log.batches_after(connection, cluster, after))

    batch_calls = _reads(event_log.batch_calls)

    # ---- acknowledged deliveries ----------------------------------------------------------------

    def replace_deliveries(
        self, cluster: int, new: Sequence[bytes], logged: Sequence[int] = ()
    ) -> Sequence[int]:
        """Store the bodies of ``new`` deliveries durably and return their numbers; delete those that are
        ``logged``.

        Unlike the other methods it may be called while another thread writes, and does not wait for it.
        """
        file = self._delivery_file(cluster)
        if file is None:
            with self.database.write_beside() as connection:
                return acknowledged_deliveries.replace_deliveries(connection, cluster, new, logged)
        moved = [number for number in logged if number <= file.above]
        if moved:
            with self.database.write(guarded=True) as connection:
                acknowledged_deliveries.replace_deliveries(connection, cluster, (), moved)
        return file.replace(new, logged)

    def deliveries(self, cluster: int) -> Sequence[tuple[int, bytes]]:
        """Return the stored deliveries in the order of their arrival: number and body."""
        with self.database.read() as connection:
            found = dict(acknowledged_deliveries.list_deliveries(connection, cluster))
        file = self._delivery_file(cluster)
        if file is not None:
            found.update(file.deliveries())
        return sorted(found.items())

    def move_deliveries(self, cluster: int) -> None:
        """Move deliveries from their file into the database, so that a copy of it is complete."""
        file = self._delivery_file(cluster)
        left = file.deliveries() if file is not None else ()
        if file is not None and left:
            with self.database.write(guarded=True) as connection:
                # A process that was killed here before has inserted them, and has not removed them.
                there = dict(acknowledged_deliveries.list_deliveries(connection, cluster))
                new = [(number, body) for number, body in left if number not in there]
                acknowledged_deliveries.insert_deliveries(connection, cluster, new)
            file.replace((), [number for number, _ in left])
        with self._lock:
            if self._delivery_files.pop(cluster, None) is not None and file is not None:
                file.close()

    def delivery_files(self) -> Sequence[DeliveryFileReport]:
        """Return reports of the files with deliveries next to the database, also of those that no cluster
        uses. Nothing is changed.
        """
        path = self.database.path
        files = delivery_file.find_files(path) if path is not None else ()
        if path is None or not files:
            return ()
        with self.database.read() as connection:
            rows = connection.execute(select(clusters.c.id, clusters.c.name, clusters.c.created)).all()
        users = {
            (delivery_file.path_of(path, row.name), delivery_file.owner_of(row.name, row.created)): row.id
            for row in rows
        }
        found: list[DeliveryFileReport] = []
        for file in files:
            owner = delivery_file.read_owner(file)
            waiting = delivery_file.count_deliveries(file, owner)
            found.append(DeliveryFileReport(file, users.get((file, owner)), waiting))
        return found

    def _delivery_file(self, cluster: int) -> DeliveryFile | None:
        """Return the file for acknowledged deliveries of a cluster; None on PostgreSQL."""
        path = self.database.path
        if path is None:
            return None
        with self._lock:
            if cluster not in self._delivery_files:
                with self.database.read() as connection:
                    last = acknowledged_deliveries.last_number(connection, cluster)
                    named = select(clusters.c.name, clusters.c.created).where(clusters.c.id == cluster)
                    name, created = connection.execute(named).one()
                file = delivery_file.path_of(path, name)
                owner = delivery_file.owner_of(name, created)
                self._delivery_files[cluster] = DeliveryFile(file, owner, last)
            return self._delivery_files[cluster]

    # ---- decisions ------------------------------------------------------------------------------

    def record_decisions(
        self,
        cluster: int,
        batch: EventBatch,
        decisions: Iterable[Decision],
        *,
        promises: Iterable[Promise] = (),
        breaches: Iterable[PromiseBreach] = (),
        pending: Iterable[EventBatch] = (),
        state: bytes = b"",
    ) -> None:
        """Store the results of a batch, including published starts. Idempotent.

        ``state`` is a checkpoint (compressed with zlib) after the batch, from which followers restart instead
        of repeating its engine calls.
        """
        waiting = tuple(pending)
        with self.database.write(guarded=True) as connection:
            _insert_pending(connection, cluster, waiting)
            decision_records.insert_decisions(connection, cluster, batch.number, decisions)
            decision_records.insert_promises(connection, cluster, batch.number, promises)
            decision_records.insert_breaches(connection, cluster, batch.number, breaches)
            if state:
                event_log.set_calls(connection, cluster, batch.number, RESUME_FROM_CHECKPOINT)
                at = LogPosition(batch.number, batch.last_event)
                checkpoints.save(connection, cluster, at, batch.now, state)

    def insert_batches(self, cluster: int, pending: Iterable[EventBatch]) -> None:
        """Store pending batches without events. Idempotent."""
        waiting = tuple(pending)
        if waiting:
            with self.database.write(guarded=True) as connection:
                _insert_pending(connection, cluster, waiting)

    def skip_batch(self, cluster: int, batch: EventBatch, *, pending: Iterable[EventBatch] = ()) -> None:
        """Record that followers make only ``calls`` engine calls for ``batch``. Idempotent."""
        waiting = tuple(pending)
        with self.database.write(guarded=True) as connection:
            _insert_pending(connection, cluster, waiting)
            event_log.set_calls(connection, cluster, batch.number, batch.calls)

    skip_batches_after = _writes(event_log.skip_batches_after)
    decisions_after = _reads(decision_records.decisions_after)
    last_decision = _reads(decision_records.last_decision_id)

    def open_decisions(self, cluster: int) -> Sequence[Decision]:
        """Return the last decisions without an outcome, in order."""
        with self.database.read() as connection:
            return decision_records.open_decisions(connection, cluster, _RECENT)

    accuracy = _reads(decision_records.start_accuracy)
    expected_starts = _reads(expected_starts.expected_starts_between)
    count_broken_promises = _reads(decision_records.count_broken_promises)

    # ---- history of jobs and nodes --------------------------------------------------------------

    def record_history(self, cluster: int) -> Iterator[int]:
        """Update the history of jobs and nodes from the log, one transaction per step; yield the last
        recorded event. For one thread.
        """
        return HistoryWriter(self.database, cluster).steps()

    last_recorded_event = _reads(history_writer.last_recorded_event)
    job_history = _reads(history.job_history)
    jobs_ended_since = _reads(history.jobs_ended_since)
    ended_subjobs = _reads(history.ended_subjobs)
    period_usage = _reads(history.period_usage)
    job_timeline = _reads(history.job_timeline)
    node_history = _reads(history.node_history)
    node_alerts = _reads(history.node_alerts)
    jobs_started_since = _reads(history.jobs_started_since)
    total_cpus = _reads(history.total_cpus)
    last_published_starts = _reads(decision_records.last_published_starts)
    published_starts = _reads(decision_records.published_starts)
    broken_promises = _reads(decision_records.broken_promises)

    # ---- plan metrics ---------------------------------------------------------------------------

    save_plan_metrics = _writes(plan_metrics.save_plan_metrics)
    save_search = _writes(plan_metrics.save_search)
    searches = _reads(plan_metrics.list_searches)
    plan_metrics = _reads(plan_metrics.list_plan_metrics)

    # ---- fair shares ----------------------------------------------------------------------------

    save_share_sample = _writes(share_history.save_share_sample)
    share_samples = _reads(share_history.list_share_samples)

    # ---- notices to users -----------------------------------------------------------------------

    add_notice_subscription = _writes(notice_subscriptions.add_subscription)
    remove_notice_subscription = _writes(notice_subscriptions.remove_subscription)
    last_notices = _reads(notice_subscriptions.last_notices)
    notified_users = _reads(notice_subscriptions.notified_users)
    notice_subscriptions = _reads(notice_subscriptions.list_subscriptions)

    def update_last_notices(
        self,
        cluster: int,
        new: Mapping[tuple[int, str], LastNotice],
        gone: Iterable[tuple[int, str]],
        now: int,
        notified_users: tuple[Sequence[str], int, int] = ((), 0, 0),
    ) -> None:
        """Store the latest notices, and delete the rows of jobs that are ``gone``.

        ``notified_users``: their names, the time, and the end of the period of the deleted older records.
        """
        with self.database.write(guarded=True) as connection:
            notice_subscriptions.update_last_notices(connection, new, gone, now)
            if notified_users[0]:
                notice_subscriptions.record_notified_users(connection, cluster, *notified_users)

    # ---- checkpoints and recovery ---------------------------------------------------------------

    save_checkpoint = _writes(checkpoints.save)
    latest_checkpoint = _reads(checkpoints.latest)

    def recover(self, cluster: int, before: int | None = None) -> RecoveryPoint:
        """Return the newest recovery point, with a checkpoint of a batch below ``before``, if given.

        Raises BadCheckpoint.
        """
        with self.database.read() as connection:
            found = checkpoints.latest(connection, cluster, before)
            checkpoint, at = found if found is not None else (None, LogPosition())
            return _recovered(connection, cluster, checkpoint, at)

    def recover_facts(self, cluster: int) -> Iterator[RecoveryPoint]:
        """Yield recovery points with lasting facts instead of a checkpoint, newest first.

        For a daemon that can read no checkpoint.
        """
        with self.database.read() as connection:
            for facts, at in checkpoints.latest_facts(connection, cluster):
                yield replace(_recovered(connection, cluster, None, at), facts=facts)

    open_job_promises = _reads(decision_records.open_job_promises)

    def log_digest(self, cluster: int, batch: int) -> bytes | None:
        """Return the stored digest of the log up to a batch; None if it is unknown."""
        with self.database.read() as connection:
            return event_log.digest_at(connection, cluster, batch)[1]

    last_position = _reads(event_log.last_position)
    leader = _reads(lease.current_leader)

    def purge(self, limits: RetentionLimits, now: int, own: int | None = None) -> Mapping[str, int]:
        """Delete some expired rows; return their numbers by table, empty if nothing has expired.

        With ``own``, a cluster with a log that is complete up to ``now``, gaps in the log do not count as
        age.
        """
        unseen: Mapping[int, int] = {}
        if own is not None:
            with self.database.read() as connection:
                unseen = self._log_gaps.uncounted_seconds(connection, own, now)
        with self.database.write(guarded=True) as connection:
            return retention.purge(connection, limits, now, unseen)

    # ---- accounts -------------------------------------------------------------------------------

    insert_ledger_rows = _writes(ledger.insert_rows)
    ledger_rows = _reads(ledger.rows)
    charges = _reads(ledger.charges)

    # ---- tokens and audit -----------------------------------------------------------------------

    add_token = _writes(tokens_and_audit.add_token, guarded=False)
    find_token = _reads(tokens_and_audit.find_token)
    tokens = _reads(tokens_and_audit.list_tokens)
    revoke_token = _writes(tokens_and_audit.revoke_token, guarded=False)

    def audit(self, entry: AuditRecord) -> None:
        with self.database.write() as connection:
            cluster = connection.scalar(select(clusters.c.id).where(clusters.c.name == entry.cluster))
            tokens_and_audit.insert_audit_entry(connection, entry, cluster)

    audit_entries = _reads(tokens_and_audit.audit_entries)


def _recovered(
    connection: Connection, cluster: int, checkpoint: bytes | None, at: LogPosition
) -> RecoveryPoint:
    damage: list[str] = []
    batches = tuple(event_log.batches_after(connection, cluster, at, damage))
    made = select(clusters.c.created).where(clusters.c.id == cluster)
    begun = connection.execute(made).scalar_one()
    return RecoveryPoint(begun, checkpoint, at, batches, tuple(damage))


def _insert_pending(connection: Connection, cluster: int, waiting: tuple[EventBatch, ...]) -> None:
    if waiting:
        event_log.delete_after(connection, cluster, LogPosition(waiting[0].number - 1, waiting[0].last_event))
        event_log.insert_batches(connection, cluster, waiting)


def _earlier_attempt(
    there: Iterable[EventBatch], waiting: tuple[EventBatch, ...], new: Sequence[Event]
) -> EventBatch | None:
    """Return the batch that an earlier attempt wrote with the same events; None if there is none."""
    found = tuple(there)
    if not found or found[:-1] != waiting or not found[-1].events:
        return None
    return found[-1] if {event.id for event in found[-1].events} <= {event.id for event in new} else None


def _new_events(connection: Connection, cluster: int, new: Sequence[Event]) -> list[Event]:
    """Return the events that are not in the log, without duplicates."""
    first = {replace_nul(event.id): event for event in reversed(new)}
    there = event_log.known_deliveries(connection, cluster, list(first))
    return [
        event for event in new if replace_nul(event.id) not in there and first[replace_nul(event.id)] is event
    ]
