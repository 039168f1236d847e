"""A database that lost a part of the log: reported loudly, no starts, repaired by a snapshot."""

import contextlib
import http.client
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, select, update

from schedd.store import LogWatermark, LogWatermarkFile, Store
from schedd.store.errors import LogTruncated
from schedd.store.records import EventBatch, LogPosition
from schedd.store.tables import batches, checkpoints, events, metadata
from tests.store.daemon_processes import TOKEN, DaemonProcess, UnavailableError
from tests.store.event_builders import queued
from tests.store.forked_processes import DaemonLauncher
from tests.waits import WAIT_S, wait_until

MAIN = "/v1/clusters/main"
NODE = {"name": "n1", "cpus": 4, "mem": 8 << 20}


def job(number: int) -> dict[str, Any]:
    return {
        "id": f"{number}.s",
        "owner": "ann@x",
        "queue": "batch",
        "submitted": 1_000,
        "resources": {"nodes": "1:ppn=4", "walltime": "600"},
    }


def work(daemon: DaemonProcess, first: int, count: int = 20) -> None:
    """Store this many acknowledged batches."""
    now = int(time.time())
    node = {"type": "node_changed", "id": f"n:{first}", "time": now, "node": NODE}
    daemon.post(f"{MAIN}/events", {"events": [node]})
    for number in range(first, first + count):
        event = {"type": "job_queued", "id": f"j:{number}", "time": now, "job": job(number)}
        daemon.post(f"{MAIN}/events", {"events": [event]})


def decisions(daemon: DaemonProcess, after: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = daemon.get(f"{MAIN}/decisions", after=after, limit=10_000)["decisions"]
    return found


def snapshot(daemon: DaemonProcess, jobs: int) -> None:
    """The snapshot of the adapter on request."""
    event = {
        "type": "snapshot",
        "id": f"s:{time.time_ns()}",
        "time": int(time.time()),
        "jobs": [job(number) for number in range(jobs)],
        "nodes": [NODE],
    }
    daemon.post(f"{MAIN}/events", {"events": [event]})


def truncate_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def garble_middle(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + b"\x5a" * (len(data) - len(data) // 2))


def wal_path(of: str) -> Path:
    return Path(of.removeprefix("sqlite:///") + "-wal")


def empty(url: str) -> None:
    """Delete all rows, as after restoring a dump without data."""
    store = Store.open(url)
    with store.database.write() as connection:
        for table in reversed(metadata.sorted_tables):
            connection.execute(delete(table))
    store.close()


def delete_log_tail(url: str) -> None:
    """Delete the end of the log, as after a restore or a failover to a late replica."""
    store = Store.open(url)
    with store.database.write() as connection:
        last = connection.scalar(select(func.max(batches.c.number)))
        assert last is not None
        event = select(batches.c.last_event).where(batches.c.number == last // 2).scalar_subquery()
        connection.execute(delete(checkpoints).where(checkpoints.c.batch > last // 2))
        connection.execute(delete(events).where(events.c.number > event))
        connection.execute(delete(batches).where(batches.c.number > last // 2))
    store.close()


def delete_batch(url: str) -> None:
    store = Store.open(url)
    with store.database.write() as connection:
        last = connection.scalar(select(func.max(batches.c.number)))
        assert last is not None
        connection.execute(delete(batches).where(batches.c.number == last - 3))
    store.close()


def alter_an_event(url: str) -> None:
    store = Store.open(url)
    with store.database.write() as connection:
        # The last event may be one of the daemon's own, without an owner.
        last = connection.scalar(select(func.max(events.c.number)).where(events.c.body.contains("ann@x")))
        assert last is not None
        altered = update(events).where(events.c.number == last)
        connection.execute(altered.values(body=func.replace(events.c.body, "ann@x", "bob@x")))
    store.close()


def garble_an_event(url: str) -> None:
    store = Store.open(url)
    with store.database.write() as connection:
        last = connection.scalar(select(func.max(events.c.number)))
        connection.execute(update(events).where(events.c.number == last).values(body="{"))
    store.close()


HARM: dict[str, Callable[[str], None]] = {
    "an emptied database": empty,
    "a database of an hour ago": delete_log_tail,
    "a batch that is gone": delete_batch,
    "an event that was altered": alter_an_event,
    "an event that cannot be read": garble_an_event,
}
HARM_TO_FILES: dict[str, Callable[[str], None]] = {
    "half of the WAL": lambda url: truncate_half(wal_path(url)),
    "garbage in the WAL": lambda url: garble_middle(wal_path(url)),
    "no WAL": lambda url: wal_path(url).unlink(),
    "no file": lambda url: Path(url.removeprefix("sqlite:///")).unlink(),
}


def check_detection_and_repair(
    launcher: DaemonLauncher, folder: Path, url: str, harm: Callable[[str], None]
) -> None:
    daemon = DaemonProcess(launcher, folder, url, checkpoint=3_600, watermarks=str(folder / "marks"))
    try:
        daemon.start().await_ready()
        work(daemon, 0)
        before = decisions(daemon)
        daemon.kill()
        harm(url)
        daemon.start()
        wait_until(lambda: "a part of the log is lost" in readiness(daemon))
        told = [one for one in decisions(daemon) if one["id"] > before[-1]["id"]]
        assert {one["kind"] for one in told if one["type"] == "alert"} >= {"log", "snapshot"}
        assert not [one for one in told if one["type"] == "run"]
        assert min(one["term"] for one in told) > max(one["term"] for one in before)
        assert 'schedd_log_losses_total{cluster="main"} 1.0' in metrics(daemon)
        assert "a part of the log is lost" in daemon.log.read_text()
        snapshot(daemon, 20)
        daemon.await_ready()
        assert len(daemon.get(f"{MAIN}/jobs", limit=100)["jobs"]) == 20
        work(daemon, 20)
        daemon.kill()
        # From here on all is well again.
        said = len(daemon.log.read_text())
        daemon.start().await_ready()
        assert "a part of the log is lost" not in daemon.log.read_text()[said:]
        assert len(daemon.get(f"{MAIN}/jobs", limit=100)["jobs"]) == 40
    finally:
        daemon.kill()


def readiness(daemon: DaemonProcess) -> str:
    """Return why the daemon is not ready; empty if it is."""
    try:
        daemon.get("/readyz")
    except UnavailableError as error:
        return str(error)
    return ""


def metrics(daemon: DaemonProcess) -> str:
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=WAIT_S)
    ) as connection:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        return connection.getresponse().read().decode()


@pytest.mark.covering
@pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
def test_missing_database_parts_are_detected_and_repaired(
    launcher: DaemonLauncher, tmp_path: Path, url: str, harm: Callable[[str], None]
) -> None:
    check_detection_and_repair(launcher, tmp_path, url, harm)


@pytest.mark.parametrize("harm", HARM_TO_FILES.values(), ids=HARM_TO_FILES)
def test_missing_sqlite_files_are_detected_and_repaired(
    launcher: DaemonLauncher, tmp_path: Path, harm: Callable[[str], None]
) -> None:
    check_detection_and_repair(launcher, tmp_path, f"sqlite:///{tmp_path}/s.sqlite", harm)


def test_killed_daemon_reports_no_log_loss(launcher: DaemonLauncher, tmp_path: Path, url: str) -> None:
    daemon = DaemonProcess(launcher, tmp_path, url, watermarks=str(tmp_path / "marks"))
    for life in range(4):
        daemon.start().await_ready()
        work(daemon, 10 * life, 10)
        daemon.kill()
    assert "a part of the log is lost" not in daemon.log.read_text()


def test_log_tail_lost_under_the_leader_is_detected(
    launcher: DaemonLauncher, tmp_path: Path, url: str
) -> None:
    daemon = DaemonProcess(launcher, tmp_path, url, checkpoint=3_600, watermarks=str(tmp_path / "marks"))
    try:
        daemon.start().await_ready()
        work(daemon, 0)
        delete_log_tail(url)
        with contextlib.suppress(UnavailableError):
            work(daemon, 20, 1)
        wait_until(lambda: "a part of the log is lost" in readiness(daemon))
        daemon.insist(lambda: snapshot(daemon, 20))  # it gave up the lead, and takes it again
        daemon.await_ready()
        assert len(daemon.get(f"{MAIN}/jobs", limit=100)["jobs"]) == 20
    finally:
        daemon.kill()


def test_adapter_with_later_decisions_reveals_a_loss(
    launcher: DaemonLauncher, tmp_path: Path, url: str
) -> None:
    """After the loss of the host, only the adapter knows the later decisions."""
    daemon = DaemonProcess(launcher, tmp_path, url, watermarks=str(tmp_path / "marks"))
    try:
        daemon.start().await_ready()
        work(daemon, 0, 2)
        late = "d000000004711"
        found = decisions(daemon, after=late)  # from the beginning: it is another life's
        end = time.monotonic() + WAIT_S
        while not (found and found[-1]["id"] > late) and time.monotonic() < end:
            found = decisions(daemon, after=found[-1]["id"] if found else "")
        assert {one["kind"] for one in found if one["type"] == "alert"} >= {"log", "snapshot"}
        assert (
            min(one["id"] for one in found if one["type"] == "alert" and one["kind"] == "log")
            > "d000000004711"
        )
        assert "has read decisions up to" in readiness(daemon)
        snapshot(daemon, 2)
        daemon.get("/readyz")
    finally:
        daemon.kill()


# ---- parts --------------------------------------------------------------------------------------


def test_batch_after_a_missing_batch_is_not_written(store: Store) -> None:
    cluster = store.register_cluster("main", 1_000)
    for number in range(3):
        store.append_events(cluster, LogPosition(number, number), [queued(number)], 1_000)
    with store.database.write() as connection:
        connection.execute(delete(batches).where(batches.c.number > 1))
        connection.execute(delete(events).where(events.c.number > 1))
    with pytest.raises(LogTruncated, match="batch 3"):
        store.append_events(cluster, LogPosition(3, 3), [queued(3)], 1_000)
    waiting = EventBatch(number=4, now=1_000, last_event=3)
    with pytest.raises(LogTruncated, match="batch 3"):
        store.insert_batches(cluster, [waiting])
    assert store.last_position(cluster) == LogPosition(1, 1)


def test_watermark_survives_a_torn_write(tmp_path: Path) -> None:
    path = tmp_path / "marks" / "s.mark"
    mark = LogWatermarkFile(path)
    assert mark.read() == LogWatermark()
    for number in range(1, 6):
        mark.write(
            LogWatermark(batch=number, event=number, chain_batch=number, chain="aa", last_decision=7, term=2)
        )
    mark.close()
    assert LogWatermarkFile(path).read() == LogWatermark(
        batch=5, event=5, chain_batch=5, chain="aa", last_decision=7, term=2, count=5
    )
    data = bytearray(path.read_bytes())
    data[512 + 20] ^= 0xFF  # the fifth is in the second slot
    path.write_bytes(data)
    assert LogWatermarkFile(path).read().batch == 4
    path.write_bytes(b"\0" * 1_024)
    assert LogWatermarkFile(path).read() == LogWatermark()


def test_unwritable_watermark_is_reported_once_and_ignored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file" / "s.mark"
    (tmp_path / "file").write_text("no folder")
    mark = LogWatermarkFile(path)
    mark.write(LogWatermark(batch=1))
    mark.write(LogWatermark(batch=2))
    mark.sync()
    assert capsys.readouterr().out.count("cannot be written") == 1
