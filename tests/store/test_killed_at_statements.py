"""Kills at each statement of table creation, upgrade and downgrade, and of the daemon's first start.

The random moments are in ``test_killed_table_creation.py``.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import inspect

from schedd.store import Store, connections, schema_version, tables_version
from schedd.store.database import Database
from schedd.store.records import LogPosition
from schedd.store.tables_version import NEEDED_VERSION
from schedd.wire import Event
from tests.conftest import ROOT
from tests.store import next_version as second_version
from tests.store.conftest import NewDatabase
from tests.store.daemon_processes import DaemonProcess, UnavailableError
from tests.store.event_builders import queued
from tests.store.forked_processes import DaemonLauncher, run_program, start_program
from tests.store.test_log_loss import MAIN, work
from tests.waits import WAIT_S

_STRIDE = int(os.environ.get("SCHEDD_STATEMENT_STRIDE", "23"))
"""Kill at every n-th statement in the short test; at each in the long one."""
_MOST = 5_000


@pytest.fixture
def next_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program needs the second version of the tables, as the killed processes do."""
    second_version.use_next_version(monkeypatch, tmp_path)


class KilledProcesses:
    """Forks the processes to kill."""

    def __init__(self, url: str) -> None:
        self._process = start_program(
            "tests.store.kill_at_statement", url, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def kill_at(self, what: str, number: int) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, number]) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def killed_processes(url: str) -> Iterator[KilledProcesses]:
    made = KilledProcesses(url)
    try:
        yield made
    finally:
        made.close()


def schema_state(url: str) -> tuple[str | None, int]:
    """Return the schema version and the number of tables."""
    engine = connections.create_readers(connections.parse_database_url(url))
    with engine.begin() as connection:
        found = tables_version.revision(connection), len(inspect(connection).get_table_names())
    engine.dispose()
    return found


def stored_events(url: str, cluster: int) -> list[Event]:
    store = Store.open(url)
    found = [event for batch in store.events_after(cluster, LogPosition()) for event in batch.events]
    assert not store.recover(cluster, before=0).damage
    store.close()
    return found


def fill(url: str) -> int:
    """A database with acknowledged events and a checkpoint; returns the number of the cluster."""
    store = Store.open(url)
    cluster = store.register_cluster("main", 1_000)
    for number in range(5):
        assert store.append_events(cluster, LogPosition(number, number), [queued(number)], 1_000) is not None
    store.save_checkpoint(cluster, LogPosition(3, 3), 1_000, b"nothing that can be read")
    store.close()
    return cluster


def kill_at_places(url: str, what: str, stride: int, before: tuple[str | None, int]) -> Counter[str]:
    """Kill it at each ``stride``-th place until its end; the tables are then the old or the new."""
    done: Counter[str] = Counter()
    with killed_processes(url) as killed:
        for number in range(1, _MOST, stride):
            said = killed.kill_at(what, number)
            found = schema_state(url)
            if said != "killed":
                assert said.startswith("done "), said
                done["places"] = int(said.split()[1])
                return done
            done["kills"] += 1
            if found != before:  # it had committed, and was killed before it could say so
                done["after the commit"] += 1
                assert done["after the commit"] <= 6, "the tables changed, and it goes on"
    raise AssertionError(f"{what} never ends")


def kill_creation(url: str, stride: int) -> Counter[str]:
    done = kill_at_places(url, "make", stride, (None, 0))
    assert schema_state(url)[0] == schema_version.head()
    store = Store.open(url)
    assert store.register_cluster("main", 1_000) > 0
    store.close()
    return done


def kill_migrations(url: str, stride: int, old: str = "0001") -> dict[str, Counter[str]]:
    """Kill the downgrade to an old version and the upgrade from it, with events in the log."""
    cluster = fill(url)
    acknowledged, whole = stored_events(url, cluster), schema_state(url)
    back = kill_at_places(url, f"back {old}", stride, whole)
    there = schema_state(url)
    assert there[0] == old
    up = kill_at_places(url, "upgrade", stride, there)
    assert schema_state(url) == whole
    assert stored_events(url, cluster) == acknowledged
    return {"back": back, "up": up}


@pytest.mark.usefixtures("next_version")
def test_table_creation_killed_at_any_statement_is_atomic(url: str) -> None:
    assert kill_creation(url, _STRIDE)["kills"] >= 3


@pytest.mark.usefixtures("next_version")
def test_kill_at_any_migration_statement_loses_no_event(url: str) -> None:
    done = kill_migrations(url, min(_STRIDE, 5))
    assert done["back"]["kills"] >= 2
    assert done["up"]["kills"] >= 3


def kill_first_start(launcher: DaemonLauncher, folder: Path, url: str, numbers: range) -> int:
    """Kill the daemon at these places of its first life, each time with the database of the previous
    attempt.
    """
    daemon = DaemonProcess(launcher, folder, url, checkpoint=0.2)
    kills = 0
    try:
        for number in numbers:
            daemon.environment["SCHEDD_TEST_DIE_AT"] = str(number)
            daemon.start()
            if not was_killed_before_ready(daemon):
                break
            kills += 1
            assert schema_state(url) in ((None, 0), (NEEDED_VERSION, schema_state(url)[1]))
            daemon.kill()
        daemon.kill()
        daemon.environment.clear()
        daemon.start().await_ready()
        work(daemon, 0, 3)
        daemon.kill()
        daemon.start().await_ready()
        assert len(daemon.get(f"{MAIN}/jobs", limit=10)["jobs"]) == 3
    finally:
        daemon.kill()
    return kills


def was_killed_before_ready(daemon: DaemonProcess) -> bool:
    """Return whether the daemon was killed before it was ready."""
    while daemon.alive:
        try:
            daemon.get("/readyz")
        except UnavailableError:
            continue
        return False
    return True


def test_daemon_killed_during_its_first_start_restarts(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path
) -> None:
    assert kill_first_start(launcher, tmp_path, new_database(), range(10, 400, 200)) >= 1


@pytest.mark.usefixtures("next_version")
def test_killed_migration_continues_with_the_command(tmp_path: Path) -> None:
    """The daemon says which; the command does it."""
    url = f"sqlite:///{tmp_path}/a.sqlite"
    cluster = fill(url)
    acknowledged = stored_events(url, cluster)
    database = Database(url)
    database.migrate(second_version.FIRST, back=True)
    database.close()
    with killed_processes(url) as killed:
        assert killed.kill_at("upgrade", 4) == "killed"
    config = tmp_path / "schedd.toml"
    config.write_text(f'[server]\nport = 0\n[store]\nurl = "{url}"\n[clusters.main]\n')
    program, file = "tests.store.next_version", str(config)
    serve = run_program(program, "serve", "--config", file, timeout=WAIT_S)
    assert serve.returncode != 0
    assert "run `schedd migrate`" in serve.stdout + serve.stderr
    done = run_program(program, "migrate", "--config", file, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    assert stored_events(url, cluster) == acknowledged


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("next_version")
def test_kills_at_every_statement_lose_nothing(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = kill_creation(new_database(), 1)
    both = kill_migrations(new_database(), 1)
    url = new_database()
    kills = kill_first_start(launcher, tmp_path, url, range(1, 1_000, 3))
    with capsys.disabled():
        sys.stdout.write(f"\n{url.partition(':')[0]}: making {dict(made)}, migrating ")
        sys.stdout.write(
            f"{ {name: dict(one) for name, one in both.items()} }, daemon's first start {kills}\n"
        )
