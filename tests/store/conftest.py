"""Fixtures for SQLite and PostgreSQL databases."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from schedd.store import Store, connections
from tests.store.forked_processes import DaemonLauncher, shared_launcher
from tests.store.postgres import PostgresServer
from tests.waits import WAIT_S

_NUMBER = count(1)


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


NewDatabase = Callable[[], str]


@pytest.fixture(params=["sqlite", "postgresql"])
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewDatabase]:
    """Return a function that creates an empty database and returns its URL."""
    made: list[str] = []

    def new() -> str:
        made.append(f"t{next(_NUMBER)}")
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path}/{made[-1]}.sqlite"
        return str(request.getfixturevalue("postgres").create(made[-1]))

    yield new
    if request.param == "postgresql":
        for name in made:
            request.getfixturevalue("postgres").drop(name)


@pytest.fixture
def url(new_database: NewDatabase) -> str:
    """The URL of an empty database."""
    return new_database()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An open store on an empty database."""
    opened = Store.open(url)
    yield opened
    opened.close()
