"""Deliveries that are acknowledged before the planner has handled them: none is lost."""

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from sqlalchemy import select

from schedd.engine import EngineSettings
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.cluster.early_acknowledgements import EarlyAcknowledgements
from schedd.service.cluster.errors import PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import new_engine
from schedd.service.settings.daemon import StoreSettings
from schedd.store import MemoryJournal, NotLeader, Store, StoreError, tables
from schedd.store.delivery_file import DeliveryFile
from schedd.store.errors import DatabaseUnavailable
from schedd.supervision import Supervisor
from schedd.wire import Delivery, Event
from tests.cli.run_main import run_main
from tests.service.planner_harness import StillClock, T, job, node
from tests.store.daemon_processes import DaemonProcess
from tests.store.forked_processes import DaemonLauncher
from tests.waits import WAIT_S, wait_until

SETTINGS = EngineSettings()
_DELIVERY: TypeAdapter[Delivery] = TypeAdapter(Delivery)


@contextmanager
def leader(url: str, folder: Path) -> Iterator[PlanLoop]:
    """A daemon's planner that leads over the database."""
    durable = DaemonStore(StoreSettings(url=url, watermarks=folder, checkpoint=3600))
    assert durable.open()
    engine = new_engine(SETTINGS, T)
    loop = PlanLoop("c", engine, MemoryJournal(), StillClock(), succession=durable.failover("c", SETTINGS))
    loop.start()
    try:
        durable.start_election([loop])
        wait_until(lambda: not loop.on_standby)
        yield loop
    finally:
        durable.stop_election()
        loop.stop()
        durable.close()


@contextmanager
def busy(loop: PlanLoop) -> Iterator[None]:
    """Let the planner do something else within the block."""
    begun, over = threading.Event(), threading.Event()

    def work(_: object) -> None:
        begun.set()
        over.wait(WAIT_S)

    done = loop.call_between_batches(work)
    assert begun.wait(WAIT_S)
    try:
        yield
    finally:
        over.set()
        done.result(WAIT_S)


def deliver_early(loop: PlanLoop, *events: Event) -> "Future[Any]":
    """Submit events to a busy planner, and acknowledge them; return the planner's result."""
    handled = loop.submit(events)
    stored = loop.store_delivery(_DELIVERY.dump_json(Delivery(events=events)), len(events), handled)
    assert stored is not None
    assert stored.result(WAIT_S)
    assert not handled.done()
    return handled


def stored_bodies(url: str, cluster: str = "c") -> list[bytes]:
    store = Store.open(url)
    try:
        return [body for _, body in store.deliveries(store.register_cluster(cluster, T))]
    finally:
        store.close()


def test_acknowledged_events_are_handled_after_the_planner_ended_without_them(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with leader(url, tmp_path) as loop:
        loop.submit([node("n1")]).result(WAIT_S)
        first = job("1.s")
        with busy(loop):
            deliver_early(loop, first)
            deliver_early(loop, job("2.s"), replace(first))
            loop._stopping = True  # the planner handles nothing more, as after a kill
            monkeypatch.setattr(loop._inbox, "next_deliveries", list)
    assert len(stored_bodies(url)) == 2
    with leader(url, tmp_path) as loop:
        assert {record.id for record in loop.published.records if record is not None} == {"1.s", "2.s"}
    assert stored_bodies(url) == []


def test_a_migration_moves_acknowledged_events_into_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/db.sqlite"
    store = Store.open(url)
    store.replace_deliveries(store.register_cluster("c", T), [b"1", b"2"])
    store.close()
    with monkeypatch.context() as patch:
        patch.setattr(DeliveryFile, "replace", lambda *_: sys.exit("killed"))
        assert run_main(["migrate", "--database", url]) == "killed"
    file = f"{tmp_path}/db.sqlite.c.deliveries"
    assert capsys.readouterr().out == ""
    assert run_main(["migrate", "--database", url]) == 0
    assert f"{file}: acknowledged deliveries moved to the database: 2\n" in capsys.readouterr().out
    assert stored_bodies(url) == [b"1", b"2"]
    Path(file).unlink()
    assert stored_bodies(url) == [b"1", b"2"], "a copy of the database is complete"
    assert run_main(["migrate", "downgrade", "--to", "base", "--database", url]) == 0
    assert not Path(file).exists()


def test_handled_deliveries_are_deleted(url: str, tmp_path: Path) -> None:
    with leader(url, tmp_path) as loop:
        with busy(loop):
            handled = deliver_early(loop, node("n1"))
        assert handled.result(WAIT_S).accepted == 1
        wait_until(lambda: stored_bodies(url) == [])


def test_events_of_another_version_are_replaced_by_a_snapshot(url: str, tmp_path: Path) -> None:
    with leader(url, tmp_path) as loop:
        loop.submit([node("n1")]).result(WAIT_S)
    store = Store.open(url)
    body = json.dumps({"events": [{"type": "of a newer version", "id": "1"}]}).encode()
    store.replace_deliveries(store.register_cluster("c", T), [body])
    store.close()
    with leader(url, tmp_path) as loop:
        assert "acknowledged events are lost" in loop.published.stale
    assert stored_bodies(url) == []


def test_nothing_is_acknowledged_while_the_database_fails(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DatabaseUnavailable("gone")

    with leader(url, tmp_path) as loop:
        with monkeypatch.context() as patch:
            patch.setattr(loop._planner.journal, "commit_events", fail)
            first = loop.submit([node("n1")])
            wait_until(lambda: bool(loop.trouble))
            handled = loop.submit([job("1.s")])
            assert loop.store_delivery(b"{}", 1, handled) is None
        assert first.result(WAIT_S).accepted == 1
        assert handled.result(WAIT_S).accepted == 1
        assert stored_bodies(url) == []


class RecordingJournal(MemoryJournal):
    """A journal that keeps deliveries in memory, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.error: StoreError | None = None
        self.calls: list[tuple[list[bytes], list[int]]] = []

    def replace_deliveries(self, new: Sequence[bytes], logged: Sequence[int] = ()) -> Sequence[int]:
        self.calls.append((list(new), list(logged)))
        if self.error is not None:
            raise self.error
        return [10 * len(self.calls) + i for i, _ in enumerate(new)]


@pytest.fixture
def journal() -> RecordingJournal:
    return RecordingJournal()


@pytest.fixture
def acknowledgements(journal: RecordingJournal) -> Iterator[EarlyAcknowledgements]:
    found = EarlyAcknowledgements(Supervisor(), "c", lambda: journal)
    found.start()
    yield found
    found.end()


def test_handled_deliveries_are_not_stored(
    journal: RecordingJournal, acknowledgements: EarlyAcknowledgements
) -> None:
    handled: Future[None] = Future()
    handled.set_result(None)
    assert not acknowledgements.store(b"{}", handled).result(WAIT_S)
    assert journal.calls == []


@pytest.mark.parametrize("error", [DatabaseUnavailable("gone"), NotLeader("another"), StoreError("a defect")])
def test_deliveries_that_cannot_be_stored_wait_for_the_planner(
    journal: RecordingJournal, acknowledgements: EarlyAcknowledgements, error: StoreError
) -> None:
    journal.error = error
    handled: Future[None] = Future()
    assert not acknowledgements.store(b"{}", handled).result(WAIT_S)
    assert not acknowledgements.is_acknowledged(handled)


def test_only_deliveries_in_the_log_are_deleted(
    journal: RecordingJournal, acknowledgements: EarlyAcknowledgements
) -> None:
    logged: Future[None] = Future()
    given_up: Future[None] = Future()
    assert acknowledgements.store(b"1", logged).result(WAIT_S)
    assert acknowledgements.store(b"2", given_up).result(WAIT_S)
    assert acknowledgements.is_acknowledged(given_up)
    given_up.set_exception(PlannerStopped("an error"))
    logged.set_result(None)
    wait_until(lambda: bool(journal.calls[-1][1]))
    assert journal.calls == [([b"1"], []), ([b"2"], []), ([], [10])]


def test_an_ended_service_acknowledges_nothing(acknowledgements: EarlyAcknowledgements) -> None:
    acknowledgements.end()
    assert not acknowledgements.store(b"{}", Future()).result(WAIT_S)


def test_a_killed_daemon_has_all_acknowledged_events(
    url: str, tmp_path: Path, launcher: DaemonLauncher
) -> None:
    daemon = DaemonProcess(launcher, tmp_path, url)
    daemon.headers["Prefer"] = "respond-async"
    events = "/v1/clusters/main/events"
    acknowledged: list[str] = []
    number = 0
    for _ in range(2):
        daemon.start().await_ready()
        pending = False
        while not pending:  # so many jobs keep the planner busy
            sent = [asdict(job(f"{number + i}.s")) for i in range(200)]
            number += len(sent)
            pending = daemon.post(events, {"events": sent})["pending"]
            acknowledged += [event["id"] for event in sent]
        daemon.kill()
        if url.startswith("sqlite"):  # elsewhere they are in the database, and its lease is still valid
            before = stored_bodies(url, "main")
            assert run_main(["migrate", "--database", url]) == 0
            assert stored_bodies(url, "main") == before
    daemon.start().await_ready()
    daemon.kill()
    store = Store.open(url)
    with store.database.read() as connection:
        assert set(acknowledged) <= set(connection.scalars(select(tables.events.c.delivery)))
    store.close()
    assert stored_bodies(url, "main") == []
