"""The store: what the daemon must not lose, one transaction per call. One thread writes, any may read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sqlalchemy import Connection, insert, select

from schedd.store import (
    checkpoints,
    decided,
    expected,
    history,
    lease,
    ledger,
    log,
    notices,
    quality,
    retention,
    rights,
)
from schedd.store.codec import plain
from schedd.store.database import Database
from schedd.store.noting import Noting
from schedd.store.records import (
    STATE_KEPT,
    Accuracy,
    AuditEntry,
    Batch,
    Breach,
    Charged,
    Evaluated,
    Foreseen,
    JobPast,
    Lead,
    LedgerRow,
    Limits,
    Moment,
    NodeAlert,
    NodePast,
    Noticed,
    Promise,
    PromisedJob,
    Recovered,
    Role,
    SearchRecord,
    Tail,
    Token,
    Told,
    Wish,
    Within,
)
from schedd.store.tables import clusters
from schedd.store.unseen import Unseen
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
        self._unseen = Unseen()

    @classmethod
    def open(cls, url: str) -> "Store":
        """The store at ``url`` (``sqlite:///PATH``, a path, ``postgresql://…``); an empty one gets tables.

        Raises SchemaOlder, SchemaNewer, or DatabaseGone.
        """
        return cls(Database.open(url))

    def close(self) -> None:
        """Let go of all connections."""
        self.database.close()

    # ---- clusters and the event log -------------------------------------------------------------

    def cluster(self, name: str, now: int) -> int:
        """The number of the cluster ``name``, which is entered when it is new."""
        with self.database.write() as connection:
            found = connection.scalar(select(clusters.c.id).where(clusters.c.name == name))
            if found is None:
                found = connection.scalar(
                    insert(clusters).values(name=plain(name), created=now).returning(clusters.c.id)
                )
            assert found is not None
            return int(found)

    def known_cluster(self, name: str) -> int | None:
        """The number of the cluster ``name``; None when there is none."""
        with self.database.read() as connection:
            return connection.scalar(select(clusters.c.id).where(clusters.c.name == plain(name)))

    def append(
        self,
        cluster: int,
        last: Tail,
        new: Sequence[Event],
        now: int,
        *,
        pending: Iterable[Batch] = (),
        paused: str = "",
        settings: str = "",
        deferred: bool = False,
    ) -> Batch | None:
        """Write those events that the log does not have as one batch; None when it has them all.

        ``last`` is what the writer knows to be the last batch and event, those ``pending`` included: batches
        without events that wait to be written. Anything later is of an earlier try whose answer was lost: of
        the same events it is the answer now, of others it is replaced. Outcomes of decisions and starts of
        jobs that the events tell are noted with what was decided and told. ``deferred``: see
        ``Database.write``.
        """
        waiting = tuple(pending)
        durable = Tail(waiting[0].number - 1 if waiting else last.batch, last.event)
        with self.database.write(guarded=True, deferred=deferred) as connection:
            if log.tail(connection, cluster) != durable:
                kept = _kept(log.batches_after(connection, cluster, durable), waiting, new)
                if kept is not None:
                    return kept
                log.forget_after(connection, cluster, durable)
            fresh = _fresh(connection, cluster, new)
            if not fresh:
                log.put_batches(connection, cluster, waiting)
                return None
            number, told = log.append(connection, cluster, last.event, fresh)
            batch = Batch(
                number=last.batch + 1,
                now=now,
                last_event=number,
                events=tuple(fresh),
                paused=paused,
                settings=settings,
            )
            link = log.put_batches(connection, cluster, (*waiting, batch), {batch.number: told})
            decided.put_outcomes(connection, cluster, fresh)
            decided.put_starts(connection, cluster, dict(decided.starts_in(fresh)))
            return replace(batch, chain=link)

    def events_after(self, cluster: int, after: Tail) -> tuple[Batch, ...]:
        """The batches after ``after``, with their events."""
        with self.database.read() as connection:
            return tuple(log.batches_after(connection, cluster, after))

    def calls_of(self, cluster: int, batch: int) -> int:
        """How often the engine is to be called for this batch; -1 where there is none."""
        with self.database.read() as connection:
            return log.calls_of(connection, cluster, batch)

    # ---- decisions ------------------------------------------------------------------------------

    def record(
        self,
        cluster: int,
        batch: Batch,
        decisions: Iterable[Decision],
        *,
        promises: Iterable[Promise] = (),
        breaches: Iterable[Breach] = (),
        pending: Iterable[Batch] = (),
        state: bytes = b"",
    ) -> None:
        """Write what followed from a batch, what was told by it included. Made again it changes nothing.

        ``state`` is the checkpoint (compressed with zlib) from which who follows is to go on, and not from
        the calls.
        """
        waiting = tuple(pending)
        with self.database.write(guarded=True) as connection:
            _put_waiting(connection, cluster, waiting)
            decided.put_decisions(connection, cluster, batch.number, decisions)
            decided.put_promises(connection, cluster, batch.number, promises)
            decided.put_breaches(connection, cluster, batch.number, breaches)
            if state:
                log.set_calls(connection, cluster, batch.number, STATE_KEPT)
                at = Tail(batch.number, batch.last_event)
                checkpoints.save(connection, cluster, at, batch.now, state)

    def put_batches(self, cluster: int, pending: Iterable[Batch]) -> None:
        """Write batches without events that wait to be written. Made again it changes nothing."""
        waiting = tuple(pending)
        if waiting:
            with self.database.write(guarded=True) as connection:
                _put_waiting(connection, cluster, waiting)

    def pass_over(self, cluster: int, batch: Batch, *, pending: Iterable[Batch] = ()) -> None:
        """Who follows the log is to call the engine for ``batch`` only so often as it has ``calls``.

        Made again it changes nothing.
        """
        waiting = tuple(pending)
        with self.database.write(guarded=True) as connection:
            _put_waiting(connection, cluster, waiting)
            log.set_calls(connection, cluster, batch.number, batch.calls)

    def pass_over_after(self, cluster: int, number: int) -> None:
        """Who follows the log is to call the engine for no batch after ``number`` that is there by now."""
        with self.database.write(guarded=True) as connection:
            log.pass_over_after(connection, cluster, number)

    def decisions_after(self, cluster: int, decision: str, limit: int = 1_000) -> Sequence[Decision]:
        """Up to ``limit`` decisions after the id ``decision`` (empty: from the first kept), in order."""
        with self.database.read() as connection:
            return decided.after(connection, cluster, decision, limit)

    def last_decision(self, cluster: int) -> str:
        """The highest id of a decision ever kept; empty before the first."""
        with self.database.read() as connection:
            return decided.last_id(connection, cluster)

    def recent(self, cluster: int) -> Sequence[Decision]:
        """The last decisions, in order, without runs whose outcome is known."""
        with self.database.read() as connection:
            return decided.recent(connection, cluster, _RECENT)

    def accuracy(
        self, cluster: int, since: int = 0, until: int = _MOST_TIME, *, queue: str = "", user: str = ""
    ) -> Accuracy:
        """How wrong the starts told in ``[since, until)`` were, of jobs that have started."""
        with self.database.read() as connection:
            return decided.accuracy(connection, cluster, since, until, queue=queue, user=user)

    def foreseen(
        self,
        cluster: int,
        since: int,
        until: int,
        *,
        queue: str = "",
        user: str = "",
        kinds: Iterable[str] = (),
    ) -> Sequence[Foreseen]:
        """The expected starts told in ``[since, until)``, the latest first; see ``expected.foreseen``."""
        with self.database.read() as connection:
            return expected.foreseen(connection, cluster, since, until, queue=queue, user=user, kinds=kinds)

    def broken_in(self, cluster: int, since: int, until: int, *, queue: str = "", user: str = "") -> int:
        """How many promises were broken in ``[since, until)``; of a queue, a user, where they are given."""
        with self.database.read() as connection:
            return decided.broken_in(connection, cluster, since, until, queue=queue, user=user)

    # ---- what became of jobs and nodes ----------------------------------------------------------

    def note_past(self, cluster: int) -> Iterator[None]:
        """Note what the events so far say of jobs and nodes, a transaction in each step. One thread's."""
        return Noting(self.database, cluster).slices()

    def job_past(self, cluster: int, job: str) -> JobPast | None:
        """What is known of a job, ended or not; None when nothing is. `123` may stand for `123.server`."""
        with self.database.read() as connection:
            return history.job_past(connection, cluster, job)

    def ended_since(self, cluster: int, since: int, most: int) -> Sequence[JobPast]:
        """The last jobs that ran and ended at ``since`` or later, as far as is noted; the latest first."""
        with self.database.read() as connection:
            return history.ended_since(connection, cluster, since, most)

    def of_array(self, cluster: int, array: str, most: int) -> Sequence[JobPast]:
        """The jobs of an array (`7[].server`) that have ended, as far as is noted."""
        with self.database.read() as connection:
            return history.of_array(connection, cluster, array, most)

    def within(self, cluster: int, since: int, until: int, most: int) -> Within:
        """The jobs that started, and the cpus there were, within ``[since, until)``; see ``history``."""
        with self.database.read() as connection:
            return history.within(connection, cluster, since, until, most)

    def moments(self, cluster: int, job: str) -> Sequence[Moment]:
        """What happened to a job, in order: events, decisions, told starts, promises, breaches, as kept."""
        with self.database.read() as connection:
            return history.moments(connection, cluster, job)

    def node_past(self, cluster: int, node: str) -> Sequence[NodePast]:
        """What a node was since when, in order."""
        with self.database.read() as connection:
            return history.node_past(connection, cluster, node)

    def node_alerts(self, cluster: int, node: str) -> Sequence[NodeAlert]:
        """When and why a node got no new jobs though the server had it up, as far as decisions are kept."""
        with self.database.read() as connection:
            return history.node_alerts(connection, cluster, node)

    def started_since(self, cluster: int, since: int) -> Sequence[JobPast]:
        """The jobs whose last run began at ``since`` or later, by start, as far as the log was noted."""
        with self.database.read() as connection:
            return history.started_since(connection, cluster, since)

    def cpus(self, cluster: int) -> int:
        """How many cpus the cluster's nodes have together."""
        with self.database.read() as connection:
            return history.cpus(connection, cluster)

    def told_last(self, cluster: int, since: int) -> Mapping[str, Told]:
        """By job, the start told last of those that began at ``since`` or later."""
        with self.database.read() as connection:
            return decided.told_last(connection, cluster, since)

    def told(self, cluster: int, limit: int = 1_000) -> Sequence[Told]:
        """The starts told last of jobs that have started, newest first."""
        with self.database.read() as connection:
            return decided.told_and_actual(connection, cluster, limit)

    def broken(self, cluster: int, limit: int = 1_000) -> Sequence[Breach]:
        """The promises broken last, newest first."""
        with self.database.read() as connection:
            return decided.broken(connection, cluster, limit)

    # ---- what the plan was worth ----------------------------------------------------------------

    def put_evaluation(self, cluster: int, found: Evaluated) -> None:
        """Keep what the plan was worth; of the same second only the last is kept."""
        with self.database.write(guarded=True) as connection:
            quality.put_evaluation(connection, cluster, found)

    def evaluations(
        self, cluster: int, since: int, until: int, limit: int, every: int = 1
    ) -> Sequence[Evaluated]:
        """Up to ``limit`` of those in ``[since, until)``, in order; the last of each ``every`` seconds."""
        with self.database.read() as connection:
            return quality.evaluations(connection, cluster, since, until, limit, every)

    def put_search(self, cluster: int, report: SearchRecord) -> None:
        """Keep what a search says of itself. Made again it changes nothing."""
        with self.database.write(guarded=True) as connection:
            quality.put_search(connection, cluster, report)

    def searches(self, cluster: int, before: int | None, limit: int) -> Sequence[SearchRecord]:
        """Up to ``limit`` reports, of searches with numbers below ``before`` or of all, newest first."""
        with self.database.read() as connection:
            return quality.searches(connection, cluster, before, limit)

    # ---- who wants to be told of starts ---------------------------------------------------------

    def add_wish(self, cluster: int, wish: Wish) -> int:
        """Keep what somebody wants to be told of; returns its number."""
        with self.database.write(guarded=True) as connection:
            return notices.add(connection, cluster, wish)

    def remove_wish(self, number: int) -> None:
        """Forget a wish, and what was told by it."""
        with self.database.write(guarded=True) as connection:
            notices.remove(connection, number)

    def wishes(self, cluster: int) -> Sequence[Wish]:
        """All of a cluster, the oldest first."""
        with self.database.read() as connection:
            return notices.wishes(connection, cluster)

    def noticed(self, cluster: int) -> Mapping[tuple[int, str], Noticed]:
        """What was told last, by number of the wish and job."""
        with self.database.read() as connection:
            return notices.marks(connection, cluster)

    def told_users(self, cluster: int, since: int) -> Sequence[tuple[str, int]]:
        """Who was told of a start after ``since`` (UTC seconds), and when; the oldest first."""
        with self.database.read() as connection:
            return notices.told(connection, cluster, since)

    def put_noticed(
        self,
        cluster: int,
        new: Mapping[tuple[int, str], Noticed],
        gone: Iterable[tuple[int, str]],
        now: int,
        told: tuple[Sequence[str], int, int] = ((), 0, 0),
    ) -> None:
        """Keep what is told now, and forget jobs that are gone. ``told``: to whom, when, and until when it
        no longer matters who was.
        """
        with self.database.write(guarded=True) as connection:
            notices.put_marks(connection, new, gone, now)
            if told[0]:
                notices.put_told(connection, cluster, *told)

    # ---- checkpoints and recovery ---------------------------------------------------------------

    def save_checkpoint(
        self, cluster: int, at: Tail, time: int, checkpoint: bytes, facts: bytes = b""
    ) -> None:
        """Keep the engine's state after ``at``, all batches up to which are kept: compressed with zlib."""
        with self.database.write(guarded=True) as connection:
            checkpoints.save(connection, cluster, at, time, checkpoint, facts)

    def latest_checkpoint(self, cluster: int, before: int | None = None) -> tuple[bytes, Tail] | None:
        """The newest checkpoint (of a batch below ``before``, if given) and what it comes after; or None."""
        with self.database.read() as connection:
            return checkpoints.latest(connection, cluster, before)

    def recover(self, cluster: int, before: int | None = None) -> Recovered:
        """What a daemon goes on from; ``before``: from a checkpoint of a batch below that.

        Raises BadCheckpoint.
        """
        with self.database.read() as connection:
            found = checkpoints.latest(connection, cluster, before)
            checkpoint, at = found if found is not None else (None, Tail())
            return _recovered(connection, cluster, checkpoint, at)

    def recover_facts(self, cluster: int) -> Iterator[Recovered]:
        """What a daemon goes on from that can read no checkpoint: the lasting facts beside one of them, the
        newest first, and the batches that follow.
        """
        with self.database.read() as connection:
            for facts, at in checkpoints.latest_facts(connection, cluster):
                yield replace(_recovered(connection, cluster, None, at), facts=facts)

    def promises_of_open_jobs(self, cluster: int) -> Mapping[str, PromisedJob]:
        """By job that has not ended, as far as is known: its last promise, and how often one was broken."""
        with self.database.read() as connection:
            return decided.promises_of_open_jobs(connection, cluster)

    def chain(self, cluster: int, batch: int) -> bytes | None:
        """The digest of the log up to a batch, as it was kept; None where it is not known."""
        with self.database.read() as connection:
            return log.chain_at(connection, cluster, batch)[1]

    def tail(self, cluster: int) -> Tail:
        """The cluster's last batch and event."""
        with self.database.read() as connection:
            return log.tail(connection, cluster)

    def leader(self) -> Lead | None:
        """Which daemon leads, as far as the database knows."""
        with self.database.read() as connection:
            return lease.read(connection)

    def purge(self, limits: Limits, now: int, own: int | None = None) -> Mapping[str, int]:
        """Remove a slice of what is past its time; empty when nothing was. To be called now and then.

        Given the cluster ``own`` whose log is written up to ``now``, time that no log saw does not count.
        """
        unseen: Mapping[int, int] = {}
        if own is not None:
            with self.database.read() as connection:
                unseen = self._unseen.seconds(connection, own, now)
        with self.database.write(guarded=True) as connection:
            return retention.purge(connection, limits, now, unseen)

    # ---- accounts -------------------------------------------------------------------------------

    def put_ledger(self, cluster: int, new: Iterable[LedgerRow]) -> None:
        """Keep changes of accounts. Made again it changes nothing."""
        with self.database.write(guarded=True) as connection:
            ledger.put(connection, cluster, new)

    def ledger(
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

    def charged(
        self, cluster: int, since: int, until: int, by: Sequence[str], *, account: str = "", user: str = ""
    ) -> Sequence[Charged]:
        """What was charged in ``[since, until)``, summed up ``by`` month, account and user."""
        with self.database.read() as connection:
            return ledger.charged(connection, cluster, since, until, by, account=account, user=user)

    # ---- rights ---------------------------------------------------------------------------------

    def add_token(
        self, name: str, role: Role, now: int, expires: int | None = None, scope: Sequence[str] = ()
    ) -> str:
        """Make a token of 256 random bits, for the clusters in ``scope`` or for all; it is returned this
        once.
        """
        with self.database.write() as connection:
            return rights.add_token(connection, name, role, now, expires, scope)

    def find_token(self, token: str) -> Token | None:
        """What is known of a token that somebody shows, valid or not."""
        with self.database.read() as connection:
            return rights.find_token(connection, token)

    def tokens(self) -> Sequence[Token]:
        """All tokens, oldest first."""
        with self.database.read() as connection:
            return rights.list_tokens(connection)

    def revoke_token(self, token: int, now: int) -> bool:
        """Revoke the token with this id; False when there is none that is not revoked yet."""
        with self.database.write() as connection:
            return rights.revoke_token(connection, token, now)

    def audit(self, entry: AuditEntry) -> None:
        """Keep what somebody did."""
        with self.database.write() as connection:
            cluster = connection.scalar(select(clusters.c.id).where(clusters.c.name == entry.cluster))
            rights.note(connection, entry, cluster)

    def audited(self, since: int = 0, limit: int = 1_000) -> Sequence[AuditEntry]:
        """What was done at ``since`` or later, newest first."""
        with self.database.read() as connection:
            return rights.audited(connection, since, limit)


def _recovered(connection: Connection, cluster: int, checkpoint: bytes | None, at: Tail) -> Recovered:
    damage: list[str] = []
    batches = tuple(log.batches_after(connection, cluster, at, damage))
    made = select(clusters.c.created).where(clusters.c.id == cluster)
    begun = connection.execute(made).scalar_one()
    return Recovered(begun, checkpoint, at, batches, tuple(damage))


def _put_waiting(connection: Connection, cluster: int, waiting: tuple[Batch, ...]) -> None:
    if waiting:
        log.forget_after(connection, cluster, Tail(waiting[0].number - 1, waiting[0].last_event))
        log.put_batches(connection, cluster, waiting)


def _kept(there: Iterable[Batch], waiting: tuple[Batch, ...], new: Sequence[Event]) -> Batch | None:
    """The batch that an earlier try with these very events has written; None when it did not."""
    found = tuple(there)
    if not found or found[:-1] != waiting or not found[-1].events:
        return None
    return found[-1] if {event.id for event in found[-1].events} <= {event.id for event in new} else None


def _fresh(connection: Connection, cluster: int, new: Sequence[Event]) -> list[Event]:
    """The events that the log does not have, each once."""
    first = {plain(event.id): event for event in reversed(new)}
    there = log.known(connection, cluster, list(first))
    return [event for event in new if plain(event.id) not in there and first[plain(event.id)] is event]
