"""The real daemon during failures of its database, disk or clock: it loses nothing and continues."""

import json
import os
import re
import resource
import shutil
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from urllib.request import Request, urlopen

import psycopg
import pytest
from sqlalchemy import event, text

from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.settings.daemon import StoreSettings
from schedd.store import AuditRecord, DurableJournal, Store
from schedd.store.database import Database
from schedd.store.errors import DatabaseUnavailable, DiskFull
from tests.store.cluster_simulation import ClusterSimulation
from tests.store.conftest import NewDatabase
from tests.store.daemon_processes import TOKEN, DaemonProcess, UnavailableError, unavailability
from tests.store.event_builders import queued
from tests.store.forked_processes import DaemonLauncher
from tests.store.postgres import PostgresServer
from tests.store.socket_proxy import SocketProxy
from tests.store.test_crash import check_database, replay_log
from tests.waits import WAIT_S, wait_until

_SEED = int(os.environ.get("SCHEDD_CRASH_SEED", "20261121"))
_NOBODY = 65_534  # the user id of nobody
FOR_HOW_LONG = [0, pytest.param(60, marks=pytest.mark.soak)]
"""Seconds."""


@contextmanager
def failed_writes(daemon: DaemonProcess, seconds: float = 0) -> Iterator[None]:
    """Run a block with failing writes; check at its end that the daemon reports it and answers reads.

    It answers reads for ``seconds`` more.
    """
    yield
    wait_until(lambda: "main:" in unavailability(daemon, "/readyz"), "the daemon did not notice")
    until = time.monotonic() + seconds
    while True:
        assert daemon.get("/v1/clusters/main/jobs")["as_of"]
        if time.monotonic() >= until:
            return
        time.sleep(0.2)


def survive_fault(
    launcher: DaemonLauncher,
    folder: Path,
    url: str,
    fault: Callable[[DaemonProcess], None],
    *,
    skew: str = "",
    checked: str = "",
) -> None:
    """Run a workload with a fault in its middle, which must not end the daemon; the database is then looked
    at by the URL ``checked``, where that is another.
    """
    daemon = DaemonProcess(launcher, folder, url, checkpoint=0.3, lease=2.0)
    daemon.patience = 5.0
    daemon.skew = skew
    simulation = ClusterSimulation(Random(_SEED))
    daemon.start().await_ready()
    try:
        run_rounds(simulation, daemon, 15)
        pid = daemon.pid
        beside = DaemonProcess.beside(daemon)
        faulty = threading.Thread(target=fault, args=(beside,))
        faulty.start()
        while faulty.is_alive():
            try:
                simulation.run_round(daemon)
            except UnavailableError:
                time.sleep(0.05)
        faulty.join()
        beside.hang_up()
        run_rounds(simulation, daemon, 15)
        settle_simulation(simulation, daemon)
        assert (daemon.pid, daemon.alive) == (pid, True)
        daemon.kill()
        check_and_print(checked or url, simulation, daemon)
    finally:
        daemon.kill()


def check_and_print(url: str, simulation: ClusterSimulation, daemon: DaemonProcess) -> None:
    """Check that nothing was lost, and print the counts (``pytest -rP``)."""
    check_database(url, simulation)
    simulation.counts["decisions made again from the log"] = replay_log(url)
    sys.stdout.write(
        ", ".join(f"{what}: {count}" for what, count in sorted(simulation.counts.items())) + "\n"
    )


def run_rounds(simulation: ClusterSimulation, daemon: DaemonProcess, times: int) -> None:
    until = time.monotonic() + WAIT_S
    while times:
        assert time.monotonic() < until
        try:
            simulation.run_round(daemon)
            times -= 1
        except UnavailableError:
            time.sleep(0.05)


def settle_simulation(simulation: ClusterSimulation, daemon: DaemonProcess) -> None:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            simulation.settle(daemon)
        except UnavailableError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the daemon did not come back")


def test_daemon_survives_a_full_disk(launcher: DaemonLauncher, tmp_path: Path) -> None:
    def fill(daemon: DaemonProcess) -> None:
        before = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        with failed_writes(daemon):
            resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (4096, before[1]))
        shown = daemon.get("/v1/clusters/main")
        assert shown["stale"].startswith("the database is unavailable: ")
        assert shown["halted"]
        with pytest.raises(
            UnavailableError, match="starting jobs was not paused: the database is unavailable"
        ):
            daemon.post("/v1/clusters/main/pause", {"reason": "the disk is full"})
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, before)

    survive_fault(launcher, tmp_path, f"sqlite:///{tmp_path}/a.sqlite", fill)


@pytest.mark.parametrize("seconds", FOR_HOW_LONG)
def test_daemon_survives_a_locked_database_file(
    launcher: DaemonLauncher, tmp_path: Path, seconds: float
) -> None:
    def lock(daemon: DaemonProcess) -> None:
        other = sqlite3.connect(tmp_path / "a.sqlite", isolation_level=None, timeout=WAIT_S)
        try:
            other.execute("BEGIN IMMEDIATE")
            with failed_writes(daemon, seconds):
                pass
        finally:
            other.close()

    survive_fault(launcher, tmp_path, f"sqlite:///{tmp_path}/a.sqlite", lock)


@pytest.mark.parametrize("seconds", FOR_HOW_LONG)
def test_database_server_crash_and_return(launcher: DaemonLauncher, tmp_path: Path, seconds: float) -> None:
    server = PostgresServer()
    server.start()
    try:

        def crash(daemon: DaemonProcess) -> None:
            with failed_writes(daemon, seconds):
                server.stop(signal.SIGQUIT)
            server.start()

        survive_fault(launcher, tmp_path, server.create("faults"), crash)
    finally:
        server.close()


@pytest.mark.parametrize("seconds", FOR_HOW_LONG)
def test_silent_database_host(
    launcher: DaemonLauncher, postgres: PostgresServer, tmp_path: Path, seconds: float
) -> None:
    line = SocketProxy(postgres.folder)
    url = postgres.create("silent")

    def silence(daemon: DaemonProcess) -> None:
        with failed_writes(daemon, seconds):
            line.drop()
            time.sleep(3)  # longer than a connection is waited for
        line.mend()

    try:
        survive_fault(
            launcher, tmp_path, url.replace(str(postgres.folder), str(line.folder)), silence, checked=url
        )
    finally:
        line.close()
        postgres.drop("silent")


def test_idle_leader_reports_that_its_database_is_gone(launcher: DaemonLauncher, tmp_path: Path) -> None:
    def failing_and_leading() -> str:
        asked = Request(
            f"http://127.0.0.1:{daemon.port}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urlopen(asked, timeout=WAIT_S) as answer:
            lines = answer.read().decode()
        return "".join(re.findall(r"^schedd_(?:failing|leading)\{.*\} (\d)", lines, re.MULTILINE))

    def wait_for_status(found: str) -> None:
        wait_until(lambda: failing_and_leading() == found, failing_and_leading)

    server = PostgresServer()
    server.start()
    daemon = DaemonProcess(launcher, tmp_path, server.create("idle"), lease=1).start()
    try:
        daemon.await_ready()
        wait_for_status("01")
        server.stop(signal.SIGQUIT)
        wait_for_status("10")
        with pytest.raises(UnavailableError, match="main: postgresql://schedd@/idle"):
            daemon.get("/readyz")
        server.start()
        wait_for_status("01")
        assert daemon.get("/readyz")["status"].startswith("ready")
        said = [json.loads(one)["event"] for one in daemon.log.read_text().splitlines()]
        assert said.count("database unavailable; retrying") == said.count("database available again") == 1
    finally:
        daemon.kill()
        server.close()


@pytest.mark.parametrize("silent", [False, True])
def test_daemon_waits_for_a_database_that_starts_later(
    launcher: DaemonLauncher, tmp_path: Path, *, silent: bool
) -> None:
    server = PostgresServer()
    server.start()
    url = server.create("later")
    server.stop()
    line = SocketProxy(server.folder)
    line.cut()
    chosen = url.replace(str(server.folder), str(line.folder)) if silent else url
    daemon = DaemonProcess(launcher, tmp_path, chosen)
    path = tmp_path / "notify"
    daemon.environment["NOTIFY_SOCKET"] = str(path)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(path))
            manager.settimeout(WAIT_S)
            daemon.start()
            told = manager.recv(4096).decode().splitlines()
            assert told[0].startswith("STATUS=waiting: postgresql://schedd@/later")
            assert ("timeout" in told[0]) == silent
            assert told[1:] == ["EXTEND_TIMEOUT_USEC=60000000"]
            with pytest.raises(UnavailableError, match="waits for its database"):
                daemon.get("/readyz")
            assert daemon.get("/healthz")["status"] == "ok"
            daemon.signal(signal.SIGHUP)  # no reason to say that it is ready
            assert manager.recv(4096).decode().startswith("STATUS=waiting: ")
            server.start()
            line.mend()
            daemon.await_ready()
            while (last := manager.recv(4096).decode()).startswith("STATUS=waiting: "):
                pass
            assert last == "READY=1\nSTATUS=ready"
        said = [json.loads(one)["event"] for one in daemon.log.read_text().splitlines()]
        assert said.count("database unavailable; retrying") == said.count("database available again") == 1
    finally:
        daemon.kill()
        line.close()
        server.close()


def test_wait_for_the_database_can_be_stopped(launcher: DaemonLauncher, tmp_path: Path) -> None:
    daemon = DaemonProcess(launcher, tmp_path, f"postgresql://schedd@/none?host={tmp_path}").start()
    wait_until(lambda: daemon.log.exists() and "database unavailable; retrying" in daemon.log.read_text())
    daemon.kill(signal.SIGTERM)
    assert "stopped" in daemon.log.read_text()


def test_adapter_returns_after_an_absence_with_all_events(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path
) -> None:
    url = new_database()
    daemon = DaemonProcess(launcher, tmp_path, url, checkpoint=0.3)
    simulation = ClusterSimulation(Random(_SEED))
    daemon.start().await_ready()
    try:
        run_rounds(simulation, daemon, 15)
        sent = len(simulation.acknowledged)
        until = time.monotonic() + 7  # run decisions are void after 5
        while time.monotonic() < until:
            simulation.advance_server()
            time.sleep(0.2)
        assert len(simulation.acknowledged) == sent
        waiting = len(simulation.outbox)
        assert waiting > 10
        run_rounds(simulation, daemon, 15)
        settle_simulation(simulation, daemon)
        daemon.kill()
        simulation.counts["events that waited for the adapter"] = waiting
        check_and_print(url, simulation, daemon)
    finally:
        daemon.kill()


def test_daemon_survives_a_clock_decrease(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path
) -> None:
    skew = tmp_path / "skew"
    skew.write_text("0")

    def decrease_clock(daemon: DaemonProcess) -> None:
        skew.write_text("-100")
        time.sleep(1)
        skew.write_text("-40")

    survive_fault(launcher, tmp_path, new_database(), decrease_clock, skew=str(skew))


def test_daemon_restarts_after_a_clock_decrease(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path
) -> None:
    url = new_database()
    skew = tmp_path / "skew"
    skew.write_text("0")
    daemon = DaemonProcess(launcher, tmp_path, url, checkpoint=0.3)
    daemon.skew = str(skew)
    simulation = ClusterSimulation(Random(_SEED))
    daemon.start().await_ready()
    try:
        run_rounds(simulation, daemon, 15)
        daemon.kill()
        skew.write_text("-3600")
        daemon.start().await_ready()
        run_rounds(simulation, daemon, 15)
        settle_simulation(simulation, daemon)
        daemon.kill()
        check_and_print(url, simulation, daemon)
    finally:
        daemon.kill()


def test_pause_and_resume_survive_kills(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path
) -> None:
    url = new_database()
    daemon = DaemonProcess(launcher, tmp_path, url, checkpoint=3600)
    simulation = ClusterSimulation(Random(_SEED))
    daemon.start().await_ready()
    try:
        run_rounds(simulation, daemon, 10)
        daemon.post("/v1/clusters/main/pause", {"reason": "lunch"})
        daemon.kill()
        daemon.start().await_ready()
        assert daemon.get("/v1/clusters/main")["paused"] == "lunch"
        settle_simulation(simulation, daemon)
        started = simulation.accepted.total()
        run_rounds(simulation, daemon, 10)
        assert simulation.accepted.total() == started
        daemon.post("/v1/clusters/main/resume", {})
        daemon.kill()
        daemon.start().await_ready()
        assert daemon.get("/v1/clusters/main")["paused"] == ""
        run_rounds(simulation, daemon, 10)
        settle_simulation(simulation, daemon)
        daemon.kill()
        check_and_print(url, simulation, daemon)
        store = Store.open(url)
        acts = [(entry.who, entry.act, entry.detail, entry.cluster) for entry in store.audit_entries()]
        store.close()
        assert acts == [("tests", "resume", "", "main"), ("tests", "pause", "lunch", "main")]
    finally:
        daemon.kill()


def test_clean_stop_writes_a_checkpoint_and_releases_the_lease(
    launcher: DaemonLauncher, new_database: NewDatabase, tmp_path: Path
) -> None:
    url = new_database()
    daemon = DaemonProcess(launcher, tmp_path, url, checkpoint=3600)
    simulation = ClusterSimulation(Random(_SEED))
    daemon.start().await_ready()
    run_rounds(simulation, daemon, 10)
    daemon.kill(signal.SIGTERM)
    store = Store.open(url)
    cluster = store.register_cluster("main", 0)
    found = store.recover(cluster)
    assert found.checkpoint is not None
    assert (found.after, found.batches) == (store.last_position(cluster), ())
    lead = store.leader()
    assert lead is not None
    if url.startswith("postgresql"):
        assert lead.expires_in_s == 0
    store.close()
    stop = daemon.log.read_text().partition('"event": "stopping"')[2]
    assert "stopped" in stop
    assert '"level": "error"' not in stop  # before it, an alert may report a node that was down for long


def test_full_database_stores_no_partial_batch(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/a.sqlite")
    journal = DurableJournal(store, "c", 1000)
    pages = [10]

    @event.listens_for(store.database._writer, "connect")
    def _limit(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages[0]}").close()

    store.database._writer.dispose()
    many = [queued(number) for number in range(2_000)]
    with pytest.raises(DiskFull, match="free space") as caught:
        journal.commit_events(many, 1000)
    assert caught.value.retryable
    assert store.last_position(journal.cluster).event == 0
    pages[0] = 100_000
    store.database._writer.dispose()
    batch = journal.commit_events(many, 1000)
    assert batch is not None
    assert len(batch.events) == 2_000
    journal.close()
    store.close()


def test_postgresql_disk_full_is_recognised(postgres: PostgresServer) -> None:
    store = Store.open(postgres.create("full"))
    statement = "DO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$"
    with pytest.raises(DiskFull, match="could not extend file"), store.database.write() as connection:
        connection.execute(text(statement))
    store.close()
    postgres.drop("full")


def test_commit_with_lost_confirmation_is_not_repeated(postgres: PostgresServer) -> None:
    url = postgres.create("lost")
    store = Store.open(url)
    journal = DurableJournal(store, "c", 1000)
    assert journal.commit_events([queued(1)], 1000) is not None
    journal.add_wakeup(1001)
    # Simulates a commit without confirmation: the journal does not know of it.
    known, waiting = journal._tail, list(journal._pending)
    first = journal.commit_events([queued(2), queued(1)], 1002)
    journal._tail, journal._pending = known, waiting
    second = journal.commit_events([queued(2), queued(1)], 1003)
    assert second == first
    assert [batch.number for batch in store.events_after(journal.cluster, known)] == [3]
    with psycopg.connect(postgres.address("lost")) as connection:
        assert connection.execute("SELECT count(*) FROM events").fetchone() == (2,)
    journal.close()
    store.close()
    postgres.drop("lost")


def test_first_read_does_not_make_a_moved_database_file_again(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path}/s.sqlite")  # only its writer has connected
    try:
        (tmp_path / "s.sqlite").rename(tmp_path / "away")
        with pytest.raises(DatabaseUnavailable, match="moved or deleted"), database.read():
            pass
        assert not (tmp_path / "s.sqlite").exists()
    finally:
        database.close()


def test_moved_or_deleted_database_file_is_reported(tmp_path: Path) -> None:
    """SQLite goes on writing to a deleted file, and the daemon went on starting jobs."""
    entry = AuditRecord(1, "root", "pause", "cooling", "main")
    store = Store.open(f"sqlite:///{tmp_path}/s.sqlite")
    try:
        store.audit(entry)
        (tmp_path / "s.sqlite").rename(tmp_path / "away")
        for _ in range(2):
            with pytest.raises(DatabaseUnavailable, match="moved or deleted while in use: put it back"):
                store.audit(entry)
        (tmp_path / "away").rename(tmp_path / "s.sqlite")
        store.audit(entry)
        assert len(store.audit_entries(0, 10)) == 2
    finally:
        store.close()


def test_a_moved_database_file_is_reported_while_nothing_is_written(tmp_path: Path) -> None:
    """Only the next write noticed it, which an idle cluster has minutes later."""
    durable = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/s.sqlite"))
    try:
        assert durable.open()
        durable.tokens()
        (tmp_path / "s.sqlite").rename(tmp_path / "away")
        with pytest.raises(DatabaseUnavailable, match="put it back"):
            durable.tokens()
        assert "moved or deleted while in use" in durable.trouble
        (tmp_path / "away").rename(tmp_path / "s.sqlite")
        durable.tokens()
        assert durable.trouble == ""
    finally:
        durable.close()


def test_replaced_database_file_asks_for_a_restart(tmp_path: Path) -> None:
    """A copy or a restored backup is another file: the daemon never went on, although the text said so."""
    entry = AuditRecord(1, "root", "pause", "cooling", "main")
    store = Store.open(f"sqlite:///{tmp_path}/s.sqlite")
    try:
        store.audit(entry)
        (tmp_path / "s.sqlite").rename(tmp_path / "away")
        shutil.copy(tmp_path / "away", tmp_path / "s.sqlite")
        with pytest.raises(DatabaseUnavailable, match=r"restart schedd to continue with this one$"):
            store.audit(entry)
    finally:
        store.close()


def test_database_is_written_once_its_disk_is_no_longer_read_only() -> None:
    """Connections of readers kept SQLite's index of the log read-only for all later writers."""
    entry = AuditRecord(1, "root", "pause", "cooling", "main")
    with tempfile.TemporaryDirectory() as name, unprivileged(Path(name)) as folder:
        first = Store.open(f"sqlite:///{folder}/s.sqlite")
        first.audit(entry)
        left = folder / "left"  # as a killed daemon leaves it
        left.mkdir()
        for part in ("s.sqlite", "s.sqlite-wal", "s.sqlite-shm"):
            shutil.copy(folder / part, left)
        first.close()
        for file in (*left.iterdir(), left):
            file.chmod(0o555)
        store = Store.open(f"sqlite:///{left}/s.sqlite")
        try:
            assert len(store.audit_entries(0, 10)) == 1
            with pytest.raises(DatabaseUnavailable):
                store.audit(entry)
            assert len(store.audit_entries(0, 10)) == 1
            for file in (left, *left.iterdir()):
                file.chmod(0o755)
            with suppress(DatabaseUnavailable):
                store.audit(entry)
            store.audit(entry)
            assert len(store.audit_entries(0, 10)) >= 2
        finally:
            store.close()


@contextmanager
def unprivileged(folder: Path) -> Iterator[Path]:
    """Run the block as a user to whom modes of files apply; the folder is this user's."""
    if os.geteuid() != 0:
        yield folder
        return
    os.chown(folder, _NOBODY, _NOBODY)
    os.seteuid(_NOBODY)
    try:
        yield folder
    finally:
        os.seteuid(0)
