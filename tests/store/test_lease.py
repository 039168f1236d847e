"""The lease: one daemon leads, by the database's clock; decisions of others are not stored."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import text

from schedd.store import DurableJournal, Leadership, NotLeader, RetentionLimits, Store
from schedd.store import lease as leases
from schedd.store.errors import LeaseExpired, StoreError
from tests.store.conftest import NewDatabase
from tests.store.event_builders import StoredState, queued, run
from tests.store.postgres import PostgresServer
from tests.waits import WAIT_S


class DaemonStores:
    """Stores of several daemons on one database."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self._stack = stack

    def add_daemon(self, holder: str, seconds: float = 60.0) -> tuple[Store, Leadership]:
        store = Store.open(self.url)
        self._stack.callback(store.close)
        lead = Leadership(store.database, holder, seconds=seconds, first=lambda: 1)
        self._stack.callback(lead.release)
        return store, lead

    def expire_lease(self) -> None:
        store = Store.open(self.url)
        with store.database.write() as connection:
            connection.execute(text("UPDATE leases SET expires = 1"))
        store.close()


@pytest.fixture
def daemons(new_database: NewDatabase) -> Iterator[DaemonStores]:
    with ExitStack() as stack:
        yield DaemonStores(new_database(), stack)


@pytest.fixture
def postgres_daemons(postgres: PostgresServer) -> Iterator[DaemonStores]:
    """SQLite has no lease: a lock on its file ends with the process."""
    url = postgres.create("leases")
    with ExitStack() as stack:
        yield DaemonStores(url, stack)
    postgres.drop("leases")


def test_leader_releases_the_lease(daemons: DaemonStores) -> None:
    _, first = daemons.add_daemon("a")
    _, second = daemons.add_daemon("b")
    assert (first.is_leader, first.try_acquire(), first.is_leader, first.term) == (False, True, True, 1)
    assert (second.try_acquire(), second.is_leader, second.term) == (False, False, 0)
    first.release()
    assert not first.is_leader
    assert (second.try_acquire(), second.term) == (True, 2)


def test_term_increases_with_every_acquisition_and_marks_decisions(daemons: DaemonStores) -> None:
    for life in (1, 2, 3):
        store, lead = daemons.add_daemon("a")
        assert lead.try_acquire()
        journal = DurableJournal(store, "c", 1000, lead=lead)
        batch = journal.commit_events([queued(life)], 1000)
        assert batch is not None
        made = journal.commit_decisions(batch, [run(life, f"{life}.srv")])
        assert [decision.term for decision in made] == [life]
        journal.close()
        lead.release()
    found = Store.open(daemons.url)
    assert [decision.term for decision in found.decisions_after(1, "")] == [1, 2, 3]
    found.close()


def test_replaced_leader_writes_nothing(postgres_daemons: DaemonStores) -> None:
    store, first = postgres_daemons.add_daemon("a")
    other, second = postgres_daemons.add_daemon("b")
    assert first.try_acquire()
    journal = DurableJournal(store, "c", 1000, lead=first)
    batch = journal.commit_events([queued(1)], 1000)
    assert batch is not None
    postgres_daemons.expire_lease()
    assert second.try_acquire()
    for call in (
        lambda: journal.commit_events([queued(2)], 1000),
        lambda: journal.commit_decisions(batch, [run(1, "1.srv")]),
        lambda: journal.maybe_checkpoint(StoredState, 1000, must=True),
        lambda: store.purge(RetentionLimits(), 10**10),
    ):
        with pytest.raises(NotLeader, match="b leads in term 2"):
            call()
    assert other.decisions_after(1, "") == []
    assert other.last_position(1).event == 1
    assert not NotLeader.retryable
    journal.close()


def test_expired_lease_can_be_renewed_unless_acquired_by_another(postgres_daemons: DaemonStores) -> None:
    store, lead = postgres_daemons.add_daemon("a")
    assert lead.try_acquire()
    journal = DurableJournal(store, "c", 1000, lead=lead)
    postgres_daemons.expire_lease()
    with pytest.raises(LeaseExpired) as caught:
        journal.commit_events([queued(1)], 1000)
    assert caught.value.retryable
    with store.database.lease_transaction() as connection:
        assert leases.renew(connection, "a", 1, 60)
    assert journal.commit_events([queued(1)], 1000) is not None
    with store.database.lease_transaction() as connection:
        assert not leases.renew(connection, "a", 2, 60)
        assert not leases.renew(connection, "b", 1, 60)
    journal.close()


def test_takeover_waits_for_a_guarded_commit(postgres_daemons: DaemonStores) -> None:
    store, first = postgres_daemons.add_daemon("a")
    _, second = postgres_daemons.add_daemon("b")
    assert first.try_acquire()
    taken: list[bool] = []
    other = threading.Thread(target=lambda: taken.append(second.try_acquire()))
    with store.database.write(guarded=True) as connection:
        with store.database.lease_transaction() as renewal:  # a renewal does not wait
            assert leases.renew(renewal, "a", 1, 0.0)
        other.start()
        other.join(0.5)
        waited = other.is_alive()
        connection.execute(text("INSERT INTO clusters (name, created) VALUES ('x', 1)"))
    other.join(WAIT_S)
    assert waited
    assert taken == [True]


def test_first_term_of_a_new_database_is_higher_than_the_terms_of_a_lost_one(
    new_database: NewDatabase,
) -> None:
    with ExitStack() as stack:
        _, lost = DaemonStores(new_database(), stack).add_daemon("a")
        seen = 0
        for _ in range(3):
            assert lost.try_acquire()
            seen = lost.term
            lost.release()
        store = Store.open(new_database())
        stack.callback(store.close)
        new = Leadership(store.database, "a")
        stack.callback(new.release)
        before = int(time.time())
        assert new.try_acquire()
        assert new.term >= before > seen == 3
        first = new.term
        new.release()
        assert new.try_acquire()
        assert new.term == first + 1


def test_same_holder_leads_again_at_once(postgres_daemons: DaemonStores) -> None:
    _, dead = postgres_daemons.add_daemon("a")
    assert dead.try_acquire()
    _, again = postgres_daemons.add_daemon("a")
    assert again.try_acquire()
    assert again.term == 2


@pytest.mark.usefixtures("hurried")
def test_leader_that_cannot_renew_stops_before_its_lease_ends(
    postgres_daemons: DaemonStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = threading.Semaphore(0)

    def cut_off(*_: object) -> bool:
        attempts.release()
        raise LeaseExpired("no answer")

    monkeypatch.setattr("schedd.store.lease.renew", cut_off)
    store, lead = postgres_daemons.add_daemon("a", seconds=4 * WAIT_S)
    assert lead.try_acquire()
    for _ in range(2):
        assert attempts.acquire(timeout=WAIT_S)
    begun = time.monotonic()
    with store.database.read() as connection:
        found = leases.current_leader(connection)
    assert found is not None
    assert begun < lead._until < begun + found.expires_in_s
    led = lead.is_leader
    clock = SimpleNamespace(monotonic=lambda: lead._until, time=time.time)
    monkeypatch.setattr("schedd.store.leadership.time", clock)
    assert (led, lead.is_leader, lead.lost_reason) == (True, False, "")


@pytest.mark.usefixtures("hurried")
def test_renewal_extends_the_lease_and_detects_its_loss(postgres_daemons: DaemonStores) -> None:
    store, lead = postgres_daemons.add_daemon("a", seconds=WAIT_S)
    assert lead.try_acquire()
    expiries: list[int] = []
    while len(expiries) < 5:
        with store.database.read() as connection:
            found = leases.current_leader(connection)
            row = leases.term_and_expiry(connection)
        assert found is not None
        assert row is not None
        assert (found.holder, found.term) == ("a", 1)
        assert found.expires_in_s > 0
        if row[1] not in expiries:
            expiries.append(row[1])
    assert expiries == sorted(expiries)
    with store.database.write() as connection:
        connection.execute(text("UPDATE leases SET holder = 'b', term = 2"))
    pause = threading.Event()
    while not lead.lost_reason:
        pause.wait(0.01)
    assert not lead.is_leader
    assert lead.lost_reason == "b leads in term 2"
    lead.release()
    assert not lead.try_acquire()
    with store.database.write() as connection:
        leases.release(connection, "b", 2)
    assert lead.try_acquire()
    assert (lead.is_leader, lead.lost_reason, lead.term) == (True, "", 3)


def test_takeover_ends_a_disconnected_leaders_transaction(
    postgres_daemons: DaemonStores,
) -> None:
    _, first = postgres_daemons.add_daemon("a")
    assert first.try_acquire()
    first._stopping.set()  # it renews no more
    _, second = postgres_daemons.add_daemon("b")
    held = psycopg.connect(postgres_daemons.url.replace("+psycopg", ""), application_name="schedd")
    # As a backend that waits for the rest of a large statement: nothing ends it for being idle.
    held.execute("SET idle_in_transaction_session_timeout = 0")
    held.commit()
    held.execute("SELECT 1 FROM leases FOR KEY SHARE")
    postgres_daemons.expire_lease()
    until = time.monotonic() + WAIT_S
    taken, tries = False, 0
    while not taken:
        assert time.monotonic() < until
        tries += 1
        with suppress(StoreError):
            taken = second.try_acquire()
    assert (second.term, tries > 1) == (2, True)
    with pytest.raises(psycopg.OperationalError):
        held.execute("SELECT 1")
    held.close()
