"""The store: persistent state. A call is a transaction; one thread writes, any thread reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection, insert, select

from schedd.store import (
    checkpoints,
    decision_records,
    event_log,
    expected_starts,
    history,
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
from schedd.store.history_writer import HistoryWriter
from schedd.store.log_gaps import LogGaps
from schedd.store.records import (
    RESUME_FROM_CHECKPOINT,
    AuditRecord,
    ChargeTotal,
    EventBatch,
    ExpectedStartRecord,
    JobHistory,
    LastNotice,
    LeaderLease,
    LedgerRow,
    LogPosition,
    NodeAlert,
    NodeHistory,
    NoticeSubscription,
    PeriodUsage,
    PlanMetricsSample,
    Promise,
    PromiseBreach,
    PromisedJob,
    PublishedStart,
    RecoveryPoint,
    RetentionLimits,
    Role,
    SearchRecord,
    ShareSample,
    StartAccuracy,
    TimelineEntry,
    Token,
)
from schedd.store.tables import clusters
from schedd.wire import Decision, Event

_RECENT = 20_000
_MOST_TIME = 1 << 62


class Store:
    """All methods raise StoreError when the database fails.

    Then the call had no effect, or it had its full effect and repeating it changes nothing.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._log_gaps = LogGaps()

    @classmethod
    def open(cls, url: str) -> "Store":
        """Open the store at ``url`` (``sqlite:///PATH``, a path, ``postgresql://…``); create tables if it is
        empty.

        Raises SchemaOlder, SchemaNewer, or DatabaseUnavailable.
        """
        return cls(Database.open(url))

    def close(self) -> None:
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
            number, told = event_log.append_events(connection, cluster, last.event, fresh)
            batch = EventBatch(
                number=last.batch + 1,
                now=now,
                last_event=number,
                events=tuple(fresh),
                paused=paused,
                settings=settings,
            )
            link = event_log.insert_batches(connection, cluster, (*waiting, batch), {batch.number: told})
            decision_records.record_outcomes(connection, cluster, fresh)
            decision_records.record_actual_starts(
                connection, cluster, dict(decision_records.actual_starts(fresh))
            )
            return replace(batch, chain=link)

    def events_after(self, cluster: int, after: LogPosition) -> tuple[EventBatch, ...]:
        """Return the batches after ``after``, with their events."""
        with self.database.read() as connection:
            return tuple(event_log.batches_after(connection, cluster, after))

    def batch_calls(self, cluster: int, batch: int) -> int:
        """Return the number of engine calls for a batch; -1 if the batch does not exist."""
        with self.database.read() as connection:
            return event_log.batch_calls(connection, cluster, batch)

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

    def skip_batches_after(self, cluster: int, number: int) -> None:
        """Record that followers make no engine calls for the present batches after ``number``."""
        with self.database.write(guarded=True) as connection:
            event_log.skip_batches_after(connection, cluster, number)

    def decisions_after(self, cluster: int, decision: str, limit: int = 1_000) -> Sequence[Decision]:
        """Return up to ``limit`` decisions after the id ``decision`` (empty: from the first), in order."""
        with self.database.read() as connection:
            return decision_records.decisions_after(connection, cluster, decision, limit)

    def last_decision(self, cluster: int) -> str:
        """Return the highest decision id ever stored; empty before the first."""
        with self.database.read() as connection:
            return decision_records.last_decision_id(connection, cluster)

    def open_decisions(self, cluster: int) -> Sequence[Decision]:
        """Return the last decisions without an outcome, in order."""
        with self.database.read() as connection:
            return decision_records.open_decisions(connection, cluster, _RECENT)

    def accuracy(
        self, cluster: int, since: int = 0, until: int = _MOST_TIME, *, queue: str = "", user: str = ""
    ) -> StartAccuracy:
        """Return the errors of the starts published in ``[since, until)``, for jobs that have started."""
        with self.database.read() as connection:
            return decision_records.start_accuracy(connection, cluster, since, until, queue=queue, user=user)

    def expected_starts(
        self,
        cluster: int,
        since: int,
        until: int,
        *,
        queue: str = "",
        user: str = "",
        kinds: Iterable[str] = (),
    ) -> Sequence[ExpectedStartRecord]:
        """Return the expected starts published in ``[since, until)``, newest first; see
        ``expected_starts``.
        """
        with self.database.read() as connection:
            return expected_starts.expected_starts_between(
                connection, cluster, since, until, queue=queue, user=user, kinds=kinds
            )

    def count_broken_promises(
        self, cluster: int, since: int, until: int, *, queue: str = "", user: str = ""
    ) -> int:
        """Return the number of promises broken in ``[since, until)``; optional filters: queue and user."""
        with self.database.read() as connection:
            return decision_records.count_broken_promises(
                connection, cluster, since, until, queue=queue, user=user
            )

    # ---- history of jobs and nodes --------------------------------------------------------------

    def record_history(self, cluster: int) -> Iterator[None]:
        """Update the history of jobs and nodes from the log, one transaction per step. For one thread."""
        return HistoryWriter(self.database, cluster).steps()

    def job_history(self, cluster: int, job: str) -> JobHistory | None:
        """Return the history of a job, ended or not; None if it is unknown. `123` may abbreviate
        `123.server`.
        """
        with self.database.read() as connection:
            return history.job_history(connection, cluster, job)

    def jobs_ended_since(self, cluster: int, since: int, most: int) -> Sequence[JobHistory]:
        """Return up to ``most`` jobs that ran and ended at ``since`` or later, newest first."""
        with self.database.read() as connection:
            return history.jobs_ended_since(connection, cluster, since, most)

    def ended_subjobs(self, cluster: int, array: str, most: int) -> Sequence[JobHistory]:
        """Return up to ``most`` ended subjobs of an array (`7[].server`)."""
        with self.database.read() as connection:
            return history.ended_subjobs(connection, cluster, array, most)

    def period_usage(self, cluster: int, since: int, until: int, most: int) -> PeriodUsage:
        """Return the jobs that ran in ``[since, until)``, and the changes of the number of cpus."""
        with self.database.read() as connection:
            return history.period_usage(connection, cluster, since, until, most)

    def job_timeline(self, cluster: int, job: str) -> Sequence[TimelineEntry]:
        """Return the stored events, decisions, estimates, promises and breaches of a job, in order
        of time.
        """
        with self.database.read() as connection:
            return history.job_timeline(connection, cluster, job)

    def node_history(self, cluster: int, node: str) -> Sequence[NodeHistory]:
        """Return the states of a node, in order of time."""
        with self.database.read() as connection:
            return history.node_history(connection, cluster, node)

    def node_alerts(self, cluster: int, node: str) -> Sequence[NodeAlert]:
        """Return the alerts that closed a node which was up, within the retention time of decisions."""
        with self.database.read() as connection:
            return history.node_alerts(connection, cluster, node)

    def jobs_started_since(self, cluster: int, since: int) -> Sequence[JobHistory]:
        """Return the jobs that last started at ``since`` or later, by start."""
        with self.database.read() as connection:
            return history.jobs_started_since(connection, cluster, since)

    def total_cpus(self, cluster: int) -> int:
        """Return the total number of cpus of the cluster's nodes."""
        with self.database.read() as connection:
            return history.total_cpus(connection, cluster)

    def last_published_starts(self, cluster: int, since: int) -> Mapping[str, PublishedStart]:
        """Return the last published start of each job that started at ``since`` or later."""
        with self.database.read() as connection:
            return decision_records.last_published_starts(connection, cluster, since)

    def published_starts(self, cluster: int, limit: int = 1_000) -> Sequence[PublishedStart]:
        """Return the last published starts of jobs that have started, newest first."""
        with self.database.read() as connection:
            return decision_records.published_starts(connection, cluster, limit)

    def broken_promises(self, cluster: int, limit: int = 1_000) -> Sequence[PromiseBreach]:
        """Return the broken promises, newest first."""
        with self.database.read() as connection:
            return decision_records.broken_promises(connection, cluster, limit)

    # ---- plan metrics ---------------------------------------------------------------------------

    def save_plan_metrics(self, cluster: int, found: PlanMetricsSample) -> None:
        """Store a sample; it replaces an earlier sample with the same second."""
        with self.database.write(guarded=True) as connection:
            plan_metrics.save_plan_metrics(connection, cluster, found)

    def plan_metrics(
        self, cluster: int, since: int, until: int, limit: int, every: int = 1
    ) -> Sequence[PlanMetricsSample]:
        """Return up to ``limit`` samples in ``[since, until)``, in order; the last one per ``every``
        seconds.
        """
        with self.database.read() as connection:
            return plan_metrics.list_plan_metrics(connection, cluster, since, until, limit, every)

    def save_search(self, cluster: int, report: SearchRecord) -> None:
        """Store the report of a search. Idempotent."""
        with self.database.write(guarded=True) as connection:
            plan_metrics.save_search(connection, cluster, report)

    def searches(self, cluster: int, before: int | None, limit: int) -> Sequence[SearchRecord]:
        """Return up to ``limit`` reports, newest first; with numbers below ``before``, if given."""
        with self.database.read() as connection:
            return plan_metrics.list_searches(connection, cluster, before, limit)

    # ---- fair shares ----------------------------------------------------------------------------

    def save_share_sample(self, cluster: int, found: ShareSample) -> None:
        """Store a sample; it replaces an earlier sample with the same second."""
        with self.database.write(guarded=True) as connection:
            share_history.save_share_sample(connection, cluster, found)

    def share_samples(
        self, cluster: int, since: int, until: int, limit: int, every: int = 1
    ) -> Sequence[ShareSample]:
        """Return up to ``limit`` samples in ``[since, until)``, in order; the last one per ``every``
        seconds.
        """
        with self.database.read() as connection:
            return share_history.list_share_samples(connection, cluster, since, until, limit, every)

    # ---- notices to users -----------------------------------------------------------------------

    def add_notice_subscription(self, cluster: int, wish: NoticeSubscription) -> int:
        with self.database.write(guarded=True) as connection:
            return notice_subscriptions.add_subscription(connection, cluster, wish)

    def remove_notice_subscription(self, number: int) -> None:
        """Delete a subscription and its sent notices."""
        with self.database.write(guarded=True) as connection:
            notice_subscriptions.remove_subscription(connection, number)

    def notice_subscriptions(self, cluster: int) -> Sequence[NoticeSubscription]:
        """Return the subscriptions of a cluster, oldest first."""
        with self.database.read() as connection:
            return notice_subscriptions.list_subscriptions(connection, cluster)

    def last_notices(self, cluster: int) -> Mapping[tuple[int, str], LastNotice]:
        """Return the last notice by (subscription, job)."""
        with self.database.read() as connection:
            return notice_subscriptions.last_notices(connection, cluster)

    def notified_users(self, cluster: int, since: int) -> Sequence[tuple[str, int]]:
        """Return (user, time) of the notices sent after ``since`` (UTC seconds), oldest first."""
        with self.database.read() as connection:
            return notice_subscriptions.notified_users(connection, cluster, since)

    def update_last_notices(
        self,
        cluster: int,
        new: Mapping[tuple[int, str], LastNotice],
        gone: Iterable[tuple[int, str]],
        now: int,
        told: tuple[Sequence[str], int, int] = ((), 0, 0),
    ) -> None:
        """Store the latest notices, and delete the rows of jobs that are ``gone``.

        ``told``: the notified users, the time, and the end of the period of deleted older records of users.
        """
        with self.database.write(guarded=True) as connection:
            notice_subscriptions.update_last_notices(connection, new, gone, now)
            if told[0]:
                notice_subscriptions.record_notified_users(connection, cluster, *told)

    # ---- checkpoints and recovery ---------------------------------------------------------------

    def save_checkpoint(
        self, cluster: int, at: LogPosition, time: int, checkpoint: bytes, facts: bytes = b""
    ) -> None:
        """Store the engine's state after ``at``, compressed with zlib. All batches up to ``at`` must be
        stored.
        """
        with self.database.write(guarded=True) as connection:
            checkpoints.save(connection, cluster, at, time, checkpoint, facts)

    def latest_checkpoint(self, cluster: int, before: int | None = None) -> tuple[bytes, LogPosition] | None:
        """Return the newest checkpoint (of a batch below ``before``, if given) and its position, or None."""
        with self.database.read() as connection:
            return checkpoints.latest(connection, cluster, before)

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

    def open_job_promises(self, cluster: int) -> Mapping[str, PromisedJob]:
        """Return, by job without a recorded end, its last promise and its broken ones."""
        with self.database.read() as connection:
            return decision_records.open_job_promises(connection, cluster)

    def log_digest(self, cluster: int, batch: int) -> bytes | None:
        """Return the stored digest of the log up to a batch; None if it is unknown."""
        with self.database.read() as connection:
            return event_log.digest_at(connection, cluster, batch)[1]

    def last_position(self, cluster: int) -> LogPosition:
        """Return the cluster's last batch and event."""
        with self.database.read() as connection:
            return event_log.last_position(connection, cluster)

    def leader(self) -> LeaderLease | None:
        """Return the current leader as stored in the database."""
        with self.database.read() as connection:
            return lease.current_leader(connection)

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

    def insert_ledger_rows(self, cluster: int, new: Iterable[LedgerRow]) -> None:
        """Store changes of accounts. Idempotent."""
        with self.database.write(guarded=True) as connection:
            ledger.insert_rows(connection, cluster, new)

    def ledger_rows(
        self,
        cluster: int,
        since: int,
        until: int,
        limit: int,
        *,
        account: str = "",
        user: str = "",
        before: int | None = None,
    ) -> Sequence[LedgerRow]:
        """Return up to ``limit`` changes of accounts in ``[since, until)``, newest first."""
        with self.database.read() as connection:
            return ledger.rows(
                connection, cluster, since, until, limit, account=account, user=user, before=before
            )

    def charges(
        self, cluster: int, since: int, until: int, by: Sequence[str], *, account: str = "", user: str = ""
    ) -> Sequence[ChargeTotal]:
        """Return the sums of charges in ``[since, until)``, grouped ``by`` any of month, account and user."""
        with self.database.read() as connection:
            return ledger.charges(connection, cluster, since, until, by, account=account, user=user)

    # ---- tokens and audit -----------------------------------------------------------------------

    def add_token(
        self, name: str, role: Role, now: int, expires: int | None = None, scope: Sequence[str] = ()
    ) -> str:
        """Create a token for the clusters in ``scope`` (empty: all) and return it; it cannot be read
        again.
        """
        with self.database.write() as connection:
            return tokens_and_audit.add_token(connection, name, role, now, expires, scope)

    def find_token(self, token: str) -> Token | None:
        """Return the record of a token, valid or not; None if it is unknown."""
        with self.database.read() as connection:
            return tokens_and_audit.find_token(connection, token)

    def tokens(self) -> Sequence[Token]:
        """Return all tokens, oldest first."""
        with self.database.read() as connection:
            return tokens_and_audit.list_tokens(connection)

    def revoke_token(self, token: int, now: int) -> bool:
        """Revoke the token with this id; return False when there is no such token or it is revoked."""
        with self.database.write() as connection:
            return tokens_and_audit.revoke_token(connection, token, now)

    def audit(self, entry: AuditRecord) -> None:
        with self.database.write() as connection:
            cluster = connection.scalar(select(clusters.c.id).where(clusters.c.name == entry.cluster))
            tokens_and_audit.insert_audit_entry(connection, entry, cluster)

    def audit_entries(self, since: int = 0, limit: int = 1_000) -> Sequence[AuditRecord]:
        """Return the audit entries at ``since`` or later, newest first."""
        with self.database.read() as connection:
            return tokens_and_audit.audit_entries(connection, since, limit)


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
