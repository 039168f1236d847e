"""One daemon leads, on the database's clock; what another decides after that is not kept."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psycopg
import pytest
from sqlalchemy import text

from schedd.store import DurableJournal, Leadership, NotLeader, Store
from schedd.store import lease as leases
from schedd.store.errors import LeaseExpired, StoreError
from tests.store.build import AState, queued, run
from tests.store.conftest import NewDatabase
from tests.store.postgres import PostgresServer


class Daemons:
    """Stores of several daemons on one database."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self._stack = stack

    def one(self, holder: str, seconds: float = 60.0) -> tuple[Store, Leadership]:
        store = Store.open(self.url)
        self._stack.callback(store.close)
        lead = Leadership(store.database, holder, seconds=seconds)
        self._stack.callback(lead.give_up)
        return store, lead

    def let_it_run_out(self) -> None:
        store = Store.open(self.url)
        with store.database.write() as connection:
            connection.execute(text("UPDATE leases SET expires = 1"))
        store.close()


@pytest.fixture
def daemons(new_database: NewDatabase) -> Iterator[Daemons]:
    with ExitStack() as stack:
        yield Daemons(new_database(), stack)


@pytest.fixture
def on_postgres(postgres: PostgresServer) -> Iterator[Daemons]:
    """SQLite has no lease: a lock on its file ends with the process."""
    url = postgres.create("leases")
    with ExitStack() as stack:
        yield Daemons(url, stack)
    postgres.drop("leases")


def test_one_leads_and_gives_up(daemons: Daemons) -> None:
    _, first = daemons.one("a")
    _, second = daemons.one("b")
    assert (first.leads, first.take(), first.leads, first.term) == (False, True, True, 1)
    assert (second.take(), second.leads, second.term) == (False, False, 0)
    first.give_up()
    assert not first.leads
    assert (second.take(), second.term) == (True, 2)


def test_the_term_grows_with_every_take_and_is_on_every_decision(daemons: Daemons) -> None:
    for life in (1, 2, 3):
        store, lead = daemons.one("a")
        assert lead.take()
        journal = DurableJournal(store, "c", 1000, lead=lead)
        batch = journal.commit_events([queued(life)], 1000)
        assert batch is not None
        made = journal.commit_decisions(batch, [run(life, f"{life}.srv")])
        assert [decision.term for decision in made] == [life]
        journal.close()
        lead.give_up()
    found = Store.open(daemons.url)
    assert [decision.term for decision in found.decisions_after(1, "")] == [1, 2, 3]
    found.close()


def test_who_was_replaced_writes_nothing_more(on_postgres: Daemons) -> None:
    store, first = on_postgres.one("a")
    other, second = on_postgres.one("b")
    assert first.take()
    journal = DurableJournal(store, "c", 1000, lead=first)
    batch = journal.commit_events([queued(1)], 1000)
    assert batch is not None
    on_postgres.let_it_run_out()
    assert second.take()
    for call in (
        lambda: journal.commit_events([queued(2)], 1000),
        lambda: journal.commit_decisions(batch, [run(1, "1.srv")]),
        lambda: journal.maybe_checkpoint(AState, 1000, must=True),
        lambda: store.purge(journal._limits, 10**10),
    ):
        with pytest.raises(NotLeader, match="b leads in term 2"):
            call()
    assert other.decisions_after(1, "") == []
    assert other.tail(1).event == 1
    assert not NotLeader.retryable
    journal.close()


def test_a_lease_that_is_over_but_not_taken_can_be_renewed_in_its_term(on_postgres: Daemons) -> None:
    store, lead = on_postgres.one("a")
    assert lead.take()
    journal = DurableJournal(store, "c", 1000, lead=lead)
    on_postgres.let_it_run_out()
    with pytest.raises(LeaseExpired) as caught:
        journal.commit_events([queued(1)], 1000)
    assert caught.value.retryable
    with store.database.renewing() as connection:
        assert leases.renew(connection, "a", 1, 60)
    assert journal.commit_events([queued(1)], 1000) is not None
    with store.database.renewing() as connection:
        assert not leases.renew(connection, "a", 2, 60)
        assert not leases.renew(connection, "b", 1, 60)
    journal.close()


def test_nobody_takes_over_between_the_check_and_the_commit(on_postgres: Daemons) -> None:
    store, first = on_postgres.one("a")
    _, second = on_postgres.one("b")
    assert first.take()
    taken: list[bool] = []
    other = threading.Thread(target=lambda: taken.append(second.take()))
    with store.database.write(guarded=True) as connection:
        with store.database.renewing() as renewal:  # a renewal does not wait
            assert leases.renew(renewal, "a", 1, 0.0)
        other.start()
        other.join(0.5)
        waited = other.is_alive()
        connection.execute(text("INSERT INTO clusters (name, created) VALUES ('x', 1)"))
    other.join(30)
    assert waited
    assert taken == [True]


def test_its_own_name_leads_again_at_once(on_postgres: Daemons) -> None:
    _, dead = on_postgres.one("a")
    assert dead.take()
    _, again = on_postgres.one("a")
    assert again.take()
    assert again.term == 2


def test_a_leader_that_cannot_renew_stops_before_its_lease_ends(
    on_postgres: Daemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lead = on_postgres.one("a", seconds=1.0)
    assert lead.take()

    def cut_off(*_: object) -> bool:
        raise LeaseExpired("no answer")

    monkeypatch.setattr("schedd.store.lease.renew", cut_off)
    ended = threading.Event()
    while lead.leads:
        ended.wait(0.01)
    with store.database.read() as connection:
        found = leases.read(connection)
    assert found is not None
    assert found.left > 0
    assert not lead.lost


def test_renewal_keeps_it_and_tells_when_it_is_lost(on_postgres: Daemons) -> None:
    store, lead = on_postgres.one("a", seconds=1.0)
    assert lead.take()
    pause = threading.Event()
    for _ in range(20):
        pause.wait(0.1)
        with store.database.read() as connection:
            found = leases.read(connection)
        assert found is not None
        assert (found.holder, found.term) == ("a", 1)
        assert found.left > 0
    with store.database.write() as connection:
        connection.execute(text("UPDATE leases SET holder = 'b', term = 2"))
    while not lead.lost:
        pause.wait(0.01)
    assert not lead.leads
    assert lead.lost == "b leads in term 2"
    lead.give_up()
    assert not lead.take()
    with store.database.write() as connection:
        leases.release(connection, "b", 2)
    assert lead.take()
    assert (lead.leads, lead.lost, lead.term) == (True, "", 3)


def test_a_take_over_ends_the_transaction_of_a_leader_that_was_cut_off_in_a_statement(
    on_postgres: Daemons,
) -> None:
    _, first = on_postgres.one("a")
    assert first.take()
    first._stopping.set()  # it renews no more
    _, second = on_postgres.one("b")
    held = psycopg.connect(on_postgres.url.replace("+psycopg", ""), application_name="schedd")
    # As a backend that waits for the rest of a large statement: nothing ends it for being idle.
    held.execute("SET idle_in_transaction_session_timeout = 0")
    held.commit()
    held.execute("SELECT 1 FROM leases FOR KEY SHARE")
    on_postgres.let_it_run_out()
    until = time.monotonic() + 30
    taken, tries = False, 0
    while not taken:
        assert time.monotonic() < until
        tries += 1
        with suppress(StoreError):
            taken = second.take()
    assert (second.term, tries > 1) == (2, True)
    with pytest.raises(psycopg.OperationalError):
        held.execute("SELECT 1")
    held.close()
