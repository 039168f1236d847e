"""The store: what the daemon must not lose, one transaction per call. One thread writes, any may read."""

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
    StartAccuracy,
    TimelineEntry,
    Token,
)
from schedd.store.tables import clusters
from schedd.wire import Decision, Event

__all__ = ["Store"]

_RECENT = 20_000
_MOST_TIME = 1 << 62


class Store:
    """Every method raises StoreError when the database fails; then nothing of the call was kept, or all of it
    was and the same call made again changes nothing.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._log_gaps = LogGaps()

    @classmethod
    def open(cls, url: str) -> "Store":
        """The store at ``url`` (``sqlite:///PATH``, a path, ``postgresql://…``); an empty one gets tables.

        Raises SchemaOlder, SchemaNewer, or DatabaseUnavailable.
        """
        return cls(Database.open(url))

    def close(self) -> None:
        """Let go of all connections."""
        self.database.close()

    # ---- clusters and the event log -------------------------------------------------------------

    def register_cluster(self, name: str, now: int) -> int:
        """The number of the cluster ``name``, which is entered when it is new."""
        with self.database.write() as connection:
            found = connection.scalar(select(clusters.c.id).where(clusters.c.name == name))
            if found is None:
                found = connection.scalar(
                    insert(clusters).values(name=replace_nul(name), created=now).returning(clusters.c.id)
                )
            assert found is not None
            return int(found)

    def find_cluster(self, name: str) -> int | None:
        """The number of the cluster ``name``; None when there is none."""
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
        """Write those events that the log does not have as one batch; None when it has them all.

        ``last`` is what the writer knows to be the last batch and event, those ``pending`` included: batches
        without events that wait to be written. Anything later is of an earlier try whose answer was lost: of
        the same events it is the answer now, of others it is replaced. Outcomes of decisions and starts of
        jobs that the events tell are noted with what was decided and told. ``deferred``: see
        ``Database.write``.
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
        """The batches after ``after``, with their events."""
        with self.database.read() as connection:
            return tuple(event_log.batches_after(connection, cluster, after))

    def batch_calls(self, cluster: int, batch: int) -> int:
        """How often the engine is to be called for this batch; -1 where there is none."""
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
        """Write what followed from a batch, what was told by it included. Made again it changes nothing.

        ``state`` is the checkpoint (compressed with zlib) from which who follows is to go on, and not from
        the calls.
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
        """Write batches without events that wait to be written. Made again it changes nothing."""
        waiting = tuple(pending)
        if waiting:
            with self.database.write(guarded=True) as connection:
                _insert_pending(connection, cluster, waiting)

    def skip_batch(self, cluster: int, batch: EventBatch, *, pending: Iterable[EventBatch] = ()) -> None:
        """Who follows the log is to call the engine for ``batch`` only so often as it has ``calls``.

        Made again it changes nothing.
        """
        waiting = tuple(pending)
        with self.database.write(guarded=True) as connection:
            _insert_pending(connection, cluster, waiting)
            event_log.set_calls(connection, cluster, batch.number, batch.calls)

    def skip_batches_after(self, cluster: int, number: int) -> None:
        """Who follows the log is to call the engine for no batch after ``number`` that is there by now."""
        with self.database.write(guarded=True) as connection:
            event_log.skip_batches_after(connection, cluster, number)

    def decisions_after(self, cluster: int, decision: str, limit: int = 1_000) -> Sequence[Decision]:
        """Up to ``limit`` decisions after the id ``decision`` (empty: from the first kept), in order."""
        with self.database.read() as connection:
            return decision_records.decisions_after(connection, cluster, decision, limit)

    def last_decision(self, cluster: int) -> str:
        """The highest id of a decision ever kept; empty before the first."""
        with self.database.read() as connection:
            return decision_records.last_decision_id(connection, cluster)

    def open_decisions(self, cluster: int) -> Sequence[Decision]:
        """The last decisions, in order, without runs whose outcome is known."""
        with self.database.read() as connection:
            return decision_records.open_decisions(connection, cluster, _RECENT)

    def accuracy(
        self, cluster: int, since: int = 0, until: int = _MOST_TIME, *, queue: str = "", user: str = ""
    ) -> StartAccuracy:
        """How wrong the starts told in ``[since, until)`` were, of jobs that have started."""
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
        """The expected starts told in ``[since, until)``, the latest first; see ``expected.foreseen``."""
        with self.database.read() as connection:
            return expected_starts.expected_starts_between(
                connection, cluster, since, until, queue=queue, user=user, kinds=kinds
            )

    def count_broken_promises(
        self, cluster: int, since: int, until: int, *, queue: str = "", user: str = ""
    ) -> int:
        """How many promises were broken in ``[since, until)``; of a queue, a user, where they are given."""
        with self.database.read() as connection:
            return decision_records.count_broken_promises(
                connection, cluster, since, until, queue=queue, user=user
            )

    # ---- what became of jobs and nodes ----------------------------------------------------------

    def record_history(self, cluster: int) -> Iterator[None]:
        """Note what the events so far say of jobs and nodes, a transaction in each step. One thread's."""
        return HistoryWriter(self.database, cluster).steps()

    def job_history(self, cluster: int, job: str) -> JobHistory | None:
        """What is known of a job, ended or not; None when nothing is. `123` may stand for `123.server`."""
        with self.database.read() as connection:
            return history.job_history(connection, cluster, job)

    def jobs_ended_since(self, cluster: int, since: int, most: int) -> Sequence[JobHistory]:
        """The last jobs that ran and ended at ``since`` or later, as far as is noted; the latest first."""
        with self.database.read() as connection:
            return history.jobs_ended_since(connection, cluster, since, most)

    def ended_subjobs(self, cluster: int, array: str, most: int) -> Sequence[JobHistory]:
        """The jobs of an array (`7[].server`) that have ended, as far as is noted."""
        with self.database.read() as connection:
            return history.ended_subjobs(connection, cluster, array, most)

    def period_usage(self, cluster: int, since: int, until: int, most: int) -> PeriodUsage:
        """The jobs that started, and the cpus there were, within ``[since, until)``; see ``history``."""
        with self.database.read() as connection:
            return history.period_usage(connection, cluster, since, until, most)

    def job_timeline(self, cluster: int, job: str) -> Sequence[TimelineEntry]:
        """What happened to a job, in order: events, decisions, told starts, promises, breaches, as kept."""
        with self.database.read() as connection:
            return history.job_timeline(connection, cluster, job)

    def node_history(self, cluster: int, node: str) -> Sequence[NodeHistory]:
        """What a node was since when, in order."""
        with self.database.read() as connection:
            return history.node_history(connection, cluster, node)

    def node_alerts(self, cluster: int, node: str) -> Sequence[NodeAlert]:
        """When and why a node got no new jobs though the server had it up, as far as decisions are kept."""
        with self.database.read() as connection:
            return history.node_alerts(connection, cluster, node)

    def jobs_started_since(self, cluster: int, since: int) -> Sequence[JobHistory]:
        """The jobs whose last run began at ``since`` or later, by start, as far as the log was noted."""
        with self.database.read() as connection:
            return history.jobs_started_since(connection, cluster, since)

    def total_cpus(self, cluster: int) -> int:
        """How many cpus the cluster's nodes have together."""
        with self.database.read() as connection:
            return history.total_cpus(connection, cluster)

    def last_published_starts(self, cluster: int, since: int) -> Mapping[str, PublishedStart]:
        """By job, the start told last of those that began at ``since`` or later."""
        with self.database.read() as connection:
            return decision_records.last_published_starts(connection, cluster, since)

    def published_starts(self, cluster: int, limit: int = 1_000) -> Sequence[PublishedStart]:
        """The starts told last of jobs that have started, newest first."""
        with self.database.read() as connection:
            return decision_records.published_starts(connection, cluster, limit)

    def broken_promises(self, cluster: int, limit: int = 1_000) -> Sequence[PromiseBreach]:
        """The promises broken last, newest first."""
        with self.database.read() as connection:
            return decision_records.broken_promises(connection, cluster, limit)

    # ---- what the plan was worth ----------------------------------------------------------------

    def save_plan_metrics(self, cluster: int, found: PlanMetricsSample) -> None:
        """Keep what the plan was worth; of the same second only the last is kept."""
        with self.database.write(guarded=True) as connection:
            plan_metrics.save_plan_metrics(connection, cluster, found)

    def plan_metrics(
        self, cluster: int, since: int, until: int, limit: int, every: int = 1
    ) -> Sequence[PlanMetricsSample]:
        """Up to ``limit`` of those in ``[since, until)``, in order; the last of each ``every`` seconds."""
        with self.database.read() as connection:
            return plan_metrics.list_plan_metrics(connection, cluster, since, until, limit, every)

    def save_search(self, cluster: int, report: SearchRecord) -> None:
        """Keep what a search says of itself. Made again it changes nothing."""
        with self.database.write(guarded=True) as connection:
            plan_metrics.save_search(connection, cluster, report)

    def searches(self, cluster: int, before: int | None, limit: int) -> Sequence[SearchRecord]:
        """Up to ``limit`` reports, of searches with numbers below ``before`` or of all, newest first."""
        with self.database.read() as connection:
            return plan_metrics.list_searches(connection, cluster, before, limit)

    # ---- who wants to be told of starts ---------------------------------------------------------

    def add_notice_subscription(self, cluster: int, wish: NoticeSubscription) -> int:
        """Keep what somebody wants to be told of; returns its number."""
        with self.database.write(guarded=True) as connection:
            return notice_subscriptions.add_subscription(connection, cluster, wish)

    def remove_notice_subscription(self, number: int) -> None:
        """Forget a wish, and what was told by it."""
        with self.database.write(guarded=True) as connection:
            notice_subscriptions.remove_subscription(connection, number)

    def notice_subscriptions(self, cluster: int) -> Sequence[NoticeSubscription]:
        """All of a cluster, the oldest first."""
        with self.database.read() as connection:
            return notice_subscriptions.list_subscriptions(connection, cluster)

    def last_notices(self, cluster: int) -> Mapping[tuple[int, str], LastNotice]:
        """What was told last, by number of the wish and job."""
        with self.database.read() as connection:
            return notice_subscriptions.last_notices(connection, cluster)

    def notified_users(self, cluster: int, since: int) -> Sequence[tuple[str, int]]:
        """Who was told of a start after ``since`` (UTC seconds), and when; the oldest first."""
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
        """Keep what is told now, and forget jobs that are gone. ``told``: to whom, when, and until when it
        no longer matters who was.
        """
        with self.database.write(guarded=True) as connection:
            notice_subscriptions.update_last_notices(connection, new, gone, now)
            if told[0]:
                notice_subscriptions.record_notified_users(connection, cluster, *told)

    # ---- checkpoints and recovery ---------------------------------------------------------------

    def save_checkpoint(
        self, cluster: int, at: LogPosition, time: int, checkpoint: bytes, facts: bytes = b""
    ) -> None:
        """Keep the engine's state after ``at``, all batches up to which are kept: compressed with zlib."""
        with self.database.write(guarded=True) as connection:
            checkpoints.save(connection, cluster, at, time, checkpoint, facts)

    def latest_checkpoint(self, cluster: int, before: int | None = None) -> tuple[bytes, LogPosition] | None:
        """The newest checkpoint (of a batch below ``before``, if given) and what it comes after; or None."""
        with self.database.read() as connection:
            return checkpoints.latest(connection, cluster, before)

    def recover(self, cluster: int, before: int | None = None) -> RecoveryPoint:
        """What a daemon goes on from; ``before``: from a checkpoint of a batch below that.

        Raises BadCheckpoint.
        """
        with self.database.read() as connection:
            found = checkpoints.latest(connection, cluster, before)
            checkpoint, at = found if found is not None else (None, LogPosition())
            return _recovered(connection, cluster, checkpoint, at)

    def recover_facts(self, cluster: int) -> Iterator[RecoveryPoint]:
        """What a daemon goes on from that can read no checkpoint: the lasting facts beside one of them, the
        newest first, and the batches that follow.
        """
        with self.database.read() as connection:
            for facts, at in checkpoints.latest_facts(connection, cluster):
                yield replace(_recovered(connection, cluster, None, at), facts=facts)

    def open_job_promises(self, cluster: int) -> Mapping[str, PromisedJob]:
        """By job that has not ended, as far as is known: its last promise, and how often one was broken."""
        with self.database.read() as connection:
            return decision_records.open_job_promises(connection, cluster)

    def log_digest(self, cluster: int, batch: int) -> bytes | None:
        """The digest of the log up to a batch, as it was kept; None where it is not known."""
        with self.database.read() as connection:
            return event_log.digest_at(connection, cluster, batch)[1]

    def last_position(self, cluster: int) -> LogPosition:
        """The cluster's last batch and event."""
        with self.database.read() as connection:
            return event_log.last_position(connection, cluster)

    def leader(self) -> LeaderLease | None:
        """Which daemon leads, as far as the database knows."""
        with self.database.read() as connection:
            return lease.current_leader(connection)

    def purge(self, limits: RetentionLimits, now: int, own: int | None = None) -> Mapping[str, int]:
        """Remove a slice of what is past its time; empty when nothing was. To be called now and then.

        Given the cluster ``own`` whose log is written up to ``now``, time that no log saw does not count.
        """
        unseen: Mapping[int, int] = {}
        if own is not None:
            with self.database.read() as connection:
                unseen = self._log_gaps.uncounted_seconds(connection, own, now)
        with self.database.write(guarded=True) as connection:
            return retention.purge(connection, limits, now, unseen)

    # ---- accounts -------------------------------------------------------------------------------

    def insert_ledger_rows(self, cluster: int, new: Iterable[LedgerRow]) -> None:
        """Keep changes of accounts. Made again it changes nothing."""
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
        """Up to ``limit`` changes of accounts in ``[since, until)``, newest first."""
        with self.database.read() as connection:
            return ledger.rows(
                connection, cluster, since, until, limit, account=account, user=user, before=before
            )

    def charges(
        self, cluster: int, since: int, until: int, by: Sequence[str], *, account: str = "", user: str = ""
    ) -> Sequence[ChargeTotal]:
        """What was charged in ``[since, until)``, summed up ``by`` month, account and user."""
        with self.database.read() as connection:
            return ledger.charges(connection, cluster, since, until, by, account=account, user=user)

    # ---- rights ---------------------------------------------------------------------------------

    def add_token(
        self, name: str, role: Role, now: int, expires: int | None = None, scope: Sequence[str] = ()
    ) -> str:
        """Make a token of 256 random bits, for the clusters in ``scope`` or for all; it is returned this
        once.
        """
        with self.database.write() as connection:
            return tokens_and_audit.add_token(connection, name, role, now, expires, scope)

    def find_token(self, token: str) -> Token | None:
        """What is known of a token that somebody shows, valid or not."""
        with self.database.read() as connection:
            return tokens_and_audit.find_token(connection, token)

    def tokens(self) -> Sequence[Token]:
        """All tokens, oldest first."""
        with self.database.read() as connection:
            return tokens_and_audit.list_tokens(connection)

    def revoke_token(self, token: int, now: int) -> bool:
        """Revoke the token with this id; False when there is none that is not revoked yet."""
        with self.database.write() as connection:
            return tokens_and_audit.revoke_token(connection, token, now)

    def audit(self, entry: AuditRecord) -> None:
        """Keep what somebody did."""
        with self.database.write() as connection:
            cluster = connection.scalar(select(clusters.c.id).where(clusters.c.name == entry.cluster))
            tokens_and_audit.insert_audit_entry(connection, entry, cluster)

    def audit_entries(self, since: int = 0, limit: int = 1_000) -> Sequence[AuditRecord]:
        """What was done at ``since`` or later, newest first."""
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
    """The batch that an earlier try with these very events has written; None when it did not."""
    found = tuple(there)
    if not found or found[:-1] != waiting or not found[-1].events:
        return None
    return found[-1] if {event.id for event in found[-1].events} <= {event.id for event in new} else None


def _new_events(connection: Connection, cluster: int, new: Sequence[Event]) -> list[Event]:
    """The events that the log does not have, each once."""
    first = {replace_nul(event.id): event for event in reversed(new)}
    there = event_log.known_deliveries(connection, cluster, list(first))
    return [
        event for event in new if replace_nul(event.id) not in there and first[replace_nul(event.id)] is event
    ]
