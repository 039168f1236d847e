"""The lease when the clock of the database's host is set: `clock_timestamp()` of the server is shadowed."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import psycopg
import pytest

from schedd.store import Leadership, NotLeader, Store
from schedd.store.lease import current_leader, term_and_expiry
from tests.store.postgres import PostgresServer
from tests.waits import wait_until

HOUR = 3_600
_SHADOW = """
CREATE SCHEMA shadow;
CREATE TABLE shadow.ahead (seconds bigint);
INSERT INTO shadow.ahead VALUES (0);
CREATE FUNCTION shadow.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
  'SELECT pg_catalog.clock_timestamp() + make_interval(secs => (SELECT seconds FROM shadow.ahead))';
ALTER DATABASE leaseclock SET search_path = public, shadow, pg_catalog;
"""


class DatabaseClock:
    """The clock of the database's host."""

    def __init__(self, address: str) -> None:
        self._address = address

    def set(self, ahead: int) -> None:
        with psycopg.connect(self._address) as connection:
            connection.execute("UPDATE shadow.ahead SET seconds = %s", (ahead,))


class TwoDaemons:
    """Two daemons' leaderships on one database."""

    def __init__(self, server: PostgresServer, stack: ExitStack) -> None:
        self._url = server.create("leaseclock")
        stack.callback(server.drop, "leaseclock")
        with psycopg.connect(server.address("leaseclock")) as connection:
            connection.execute(_SHADOW)
        self.clock = DatabaseClock(server.address("leaseclock"))
        self._stack = stack

    def add_daemon(self, holder: str, seconds: float = 1.0) -> tuple[Store, Leadership]:
        store = Store.open(self._url)
        self._stack.callback(store.close)
        lead = Leadership(store.database, holder, seconds=seconds, first=lambda: 1)
        self._stack.callback(lead.release)
        return store, lead


@pytest.fixture
def two_daemons(postgres: PostgresServer) -> Iterator[TwoDaemons]:
    with ExitStack() as stack:
        yield TwoDaemons(postgres, stack)


def seconds_left(store: Store) -> float:
    with store.database.read() as connection:
        found = current_leader(connection)
    assert found is not None
    return found.expires_in_s


def test_database_clock_can_be_set(two_daemons: TwoDaemons) -> None:
    store, lead = two_daemons.add_daemon("a", 60)
    assert lead.try_acquire()
    before = seconds_left(store)
    two_daemons.clock.set(-HOUR)
    assert seconds_left(store) > before + HOUR - 60


def test_database_clock_set_forward_ends_the_leadership(two_daemons: TwoDaemons) -> None:
    store, first = two_daemons.add_daemon("a", 60)
    _, second = two_daemons.add_daemon("b", 60)
    assert first.try_acquire()
    assert not second.try_acquire()
    two_daemons.clock.set(HOUR)
    assert (second.try_acquire(), second.term) == (True, 2)
    with pytest.raises(NotLeader, match="b leads in term 2"), store.database.write(guarded=True):
        pass
    assert not first.try_acquire() or first.term > 2


@pytest.mark.usefixtures("hurried")
def test_leader_continues_after_a_database_clock_decrease(
    two_daemons: TwoDaemons, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, first = two_daemons.add_daemon("a", 60)
    _, second = two_daemons.add_daemon("b", 60)
    ahead = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead[0], time=time.time)
    monkeypatch.setattr("schedd.store.leadership.time", clock)

    def expiry() -> tuple[int, int] | None:
        with store.database.read() as connection:
            return term_and_expiry(connection)

    assert first.try_acquire()
    two_daemons.clock.set(-HOUR)
    wait_until(lambda: 0 < seconds_left(store) <= 60)  # the next renewal is by the new clock
    for _ in range(30):  # of 10 s: longer than four periods, after which a lease counts as expired
        before = expiry()
        while expiry() == before:
            time.sleep(0.01)
        assert not second.try_acquire()
        ahead[0] += 10
    wait_until(lambda: first.is_leader)
    assert (first.term, first.lost_reason) == (1, "")


def test_standby_takes_over_soon_after_a_clock_decrease_at_leader_death(two_daemons: TwoDaemons) -> None:
    store, first = two_daemons.add_daemon("a")
    _, second = two_daemons.add_daemon("b")
    assert first.try_acquire()
    first._stopping.set()  # it renews no more
    two_daemons.clock.set(-HOUR)
    begun = time.monotonic()
    tries = 0
    while not second.try_acquire():
        tries += 1
        assert time.monotonic() < begun + 60
        time.sleep(0.05)
    assert not first.is_leader, "it stopped by its own clock before another leads"
    assert tries > 0
    assert second.term == 2
    assert seconds_left(store) <= 1
