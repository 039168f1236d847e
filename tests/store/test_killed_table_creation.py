"""Kills during table creation and migration: the tables are the old or the new ones."""

import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import pytest
from sqlalchemy import text

from schedd.store import Store, connections, schema_version, tables_version
from schedd.store.database import Database
from tests.store.forked_processes import start_program
from tests.store.next_version import FIRST, NEXT, use_next_version

_KILLS = int(os.environ.get("SCHEDD_TABLE_KILLS", "6"))
_LONGEST_S = 0.2
"""A kill comes at most so late; a creation takes 0.04 to 0.13 s on a machine that is not busy."""


def kill_after(url: str, what: str, after: float, *options: str) -> bool:
    """Start a creation of the tables or a migration, and kill it after ``after`` seconds; return whether it
    was done.
    """
    process = start_program("tests.store.table_creation", url, what, *options, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = process.stdout.read() == "done\n"
    process.stdout.close()
    return done


def schema_revision(url: str) -> str | None:
    engine = connections.create_readers(connections.parse_database_url(url))
    with engine.begin() as connection:
        found = tables_version.revision(connection)
    engine.dispose()
    return found


def test_kill_during_table_creation_is_atomic(url: str) -> None:
    random = Random(20)
    for _ in range(_KILLS):
        done = kill_after(url, "make", random.uniform(0, _LONGEST_S))
        assert schema_revision(url) in (None, schema_version.head())
        if done:
            assert schema_revision(url) == schema_version.head()
    store = Store.open(url)
    assert store.register_cluster("main", 1_000) > 0
    store.close()


def test_kill_during_migration_is_atomic(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_next_version(monkeypatch, tmp_path)
    engine = connections.create_writer(connections.parse_database_url(url))
    with engine.begin() as connection:
        schema_version.upgrade(connection, FIRST)
        connection.execute(text("INSERT INTO clusters (name, created) VALUES ('main', 1)"))
    engine.dispose()
    random = Random(21)
    seen = set()
    for _ in range(_KILLS):
        kill_after(url, "migrate", random.uniform(0, _LONGEST_S), str(schema_version.scripts()))
        seen.add(schema_revision(url))
    assert seen <= {FIRST, NEXT}
    database = Database(url)
    database.migrate()
    database.close()
    store = Store.open(url)
    assert store.find_cluster("main") == 1
    store.close()
