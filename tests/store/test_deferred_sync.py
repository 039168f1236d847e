"""Events and their decisions are synced once, before they are acknowledged or published."""

import errno
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from schedd.store import DurableJournal, Leadership, LogWatermarkFile, Promise, Store
from schedd.store.errors import DatabaseBusy, DatabaseUnavailable
from schedd.wire import Alert
from tests.store.event_builders import StoredState, queued

ALERT = Alert(id="d000000000001", cause="", time=1000, kind="by_hand", text="a job was started by hand")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.open(f"sqlite:///{tmp_path}/s.sqlite")
    yield made
    made.close()


@pytest.fixture
def syncs(store: Store) -> list[str]:
    """`commit` for each transaction that the database syncs, `deferred` for each other one, `sync` for each
    sync by itself.
    """
    found: list[str] = []
    levels = ["FULL"]

    def note_level(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("PRAGMA synchronous="):
            levels.append(statement.partition("=")[2])

    event.listen(store.database._writer, "before_cursor_execute", note_level)
    event.listen(
        store.database._writer,
        "commit",
        lambda _: found.append("commit" if levels[-1] == "FULL" else "deferred"),
    )
    sync = store.database.sync

    def noted() -> None:
        found.append("sync")
        sync()

    store.database.sync = noted  # type: ignore[method-assign]
    return found


def test_events_and_decisions_are_synced_together(store: Store, syncs: list[str]) -> None:
    journal = DurableJournal(store, "c", 1000)
    journal.sync_events()
    syncs.clear()
    batch = journal.commit_events([queued(1)], 1000)
    assert batch is not None
    assert syncs == ["deferred"]
    journal.commit_decisions(batch, [ALERT])
    journal.sync_events()
    assert syncs == ["deferred", "commit"]
    journal.close()


def test_events_without_results_are_synced_once(store: Store, syncs: list[str]) -> None:
    journal = DurableJournal(store, "c", 1000)
    journal.sync_events()
    syncs.clear()
    batch = journal.commit_events([queued(1)], 1000)
    assert batch is not None
    journal.commit_decisions(batch, [])
    journal.sync_events()
    journal.sync_events()
    assert syncs == ["deferred", "sync"]
    journal.close()


def test_events_from_an_earlier_process_are_synced_before_acknowledgement(
    store: Store, syncs: list[str]
) -> None:
    first = DurableJournal(store, "c", 1000)
    assert first.commit_events([queued(1)], 1000) is not None
    first.close()  # killed before it could sync
    second = DurableJournal(store, "c", 1000)
    syncs.clear()
    assert second.commit_events([queued(1)], 1001) is None  # it has them
    second.sync_events()
    assert syncs[-1] == "sync"
    second.close()


def test_watermark_never_precedes_the_disk(store: Store, tmp_path: Path) -> None:
    """Otherwise a crash of the host would look like a lost part of the log."""
    mark = LogWatermarkFile(tmp_path / "mark")
    journal = DurableJournal(store, "c", 1000, mark=mark)
    journal.sync_events()
    assert journal.commit_events([queued(1)], 1000) is not None
    assert mark.read().batch == 0
    journal.sync_events()
    assert mark.read().batch == 1
    journal.close()


def test_checkpoint_syncs_deferred_events(store: Store, syncs: list[str]) -> None:
    journal = DurableJournal(store, "c", 1000, every=0)
    journal.sync_events()
    assert journal.commit_events([queued(1)], 1000) is not None
    syncs.clear()
    journal.maybe_checkpoint(StoredState, 1000, must=True)
    assert syncs[0] == "sync"
    journal.close()


@pytest.mark.parametrize("events", [1, 30])
def test_statements_of_a_batch_are_not_built_again(store: Store, events: int) -> None:
    """To build a statement, and the key by which its compiled text is found, takes longer than to execute it:
    at one event in a batch three fifths of the time of storing it.
    """
    lead = Leadership(store.database, "here", seconds=60)
    assert lead.try_acquire()
    journal = DurableJournal(store, "c", 1000, lead=lead)
    executed: list[object] = []

    def note(_connection: Any, statement: object, *_: Any) -> None:
        executed.append(statement)

    event.listen(store.database._writer, "before_execute", note)

    def commit(first: int) -> list[object]:
        executed.clear()
        batch = journal.commit_events([queued(first + i) for i in range(events)], 1000)
        assert batch is not None
        decision = replace(ALERT, id=f"d{batch.number:012d}")
        journal.commit_decisions(batch, [decision], [Promise(f"{first}.x", 1000, 2000, False)])
        return list(executed)

    try:
        commit(1)  # the first one looks for a checkpoint, too
        once, again = commit(101), commit(201)
        assert len(once) == len(again) > 5
        assert [one is other for one, other in zip(once, again, strict=True)] == [True] * len(once)
    finally:
        lead.release()
        journal.close()


@pytest.mark.parametrize("then", ["sync", "write"])
def test_log_that_could_not_be_synced_is_moved_into_the_database(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, then: str
) -> None:
    """The kernel drops what it could not write: a second sync of the same log succeeds without it."""
    journal = DurableJournal(store, "c", 1000)
    with store.database.write() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout = 10")
    assert journal.commit_events([queued(1)], 1000) is not None
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail_to_sync)
        with pytest.raises(DatabaseUnavailable, match="cannot be synced"):
            journal.sync_events()
    reader = sqlite3.connect(tmp_path / "s.sqlite", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM events").fetchone()
    with pytest.raises(DatabaseBusy, match="a reader holds its log"):
        journal.sync_events()
    reader.close()
    if then == "sync":
        journal.sync_events()
        assert Path(f"{tmp_path}/s.sqlite-wal").stat().st_size == 0
    else:
        with store.database.write():
            assert Path(f"{tmp_path}/s.sqlite-wal").stat().st_size == 0
    journal.close()
    shutil.copy(tmp_path / "s.sqlite", tmp_path / "copy.sqlite")  # without the log
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as copy:
        assert copy.execute("SELECT count(*) FROM events").fetchone() == (1,)


def fail_to_sync(_file: int) -> None:
    raise OSError(errno.EIO, "Input/output error")
