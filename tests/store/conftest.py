"""Fixtures for SQLite and PostgreSQL databases."""

import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Protocol

import pytest

from schedd.store import Store, connections
from tests.store.forked_processes import DaemonLauncher, shared_launcher
from tests.store.postgres import PostgresServer
from tests.waits import WAIT_S

_NUMBER = count(1)


class HurriedEvent(threading.Event):
    """An event with short waits: a long lease is renewed all the time."""

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002  (Event's)
        return super().wait(0.01)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let leaders renew a lease of minutes all the time; one of seconds would end on a busy machine."""
    monkeypatch.setattr("schedd.store.leadership.threading", SimpleNamespace(Event=HurriedEvent))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL. Without it the tests fail: their guarantees would be untested."""
    server = PostgresServer()
    with pytest.MonkeyPatch.context() as patch:
        # A test's process may get no processor for seconds in the middle of a transaction.
        patch.setattr(connections, "SILENT_CLIENT_MS", 1000 * int(WAIT_S))
        try:
            server.start()
            yield server
        finally:
            server.close()


@pytest.fixture(scope="session")
def launcher() -> DaemonLauncher:
    """The process that forks daemons."""
    return shared_launcher()


class NewDatabase(Protocol):
    """Creates an empty database, or one with empty tables, and returns its URL."""

    def __call__(self, *, tables: bool = False) -> str: ...


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewDatabase]:
    made: list[str] = []

    def new(*, tables: bool = False) -> str:
        made.append(f"t{next(_NUMBER)}")
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path}/{made[-1]}.sqlite"
        server: PostgresServer = request.getfixturevalue("postgres")
        return server.create(made[-1], request.getfixturevalue("tables") if tables else "template0")

    yield new
    if request.param == "postgresql":
        for name in made:
            request.getfixturevalue("postgres").drop(name)


@pytest.fixture(scope="session")
def tables(postgres: PostgresServer) -> str:
    """A PostgreSQL database with empty tables. A copy takes less time than the creation of tables."""
    Store.open(postgres.create("tables")).close()
    return "tables"


@pytest.fixture
def url(new_database: NewDatabase, request: pytest.FixtureRequest) -> str:
    """The URL of an empty database; with empty tables for tests that get an open store."""
    return new_database(tables="store" in request.fixturenames)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An open store on an empty database."""
    opened = Store.open(url)
    yield opened
    opened.close()
