"""Mutated checkpoints, in their rows and in the bytes of a SQLite file: a read returns the stored checkpoint
or an error.
"""

import hashlib
import os
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from sqlalchemy import insert, select, update

from schedd.engine import Engine, EngineSettings
from schedd.store import DurableJournal, Store
from schedd.store import checkpoints as kept
from schedd.store.errors import BadCheckpoint, StoreError
from schedd.store.records import LogPosition
from schedd.store.tables import checkpoints
from schedd.wire import NodeChanged, NodeFacts
from tests.store.event_builders import queued

_SHORT = 2_000
_LONG = int(os.environ.get("SCHEDD_CHECKPOINT_MUTATIONS", "60000"))
Row = dict[str, Any]


@pytest.fixture
def store_with_checkpoints(tmp_path: Path) -> Iterator[Store]:
    """A store with two checkpoints of each of two clusters, at equal log positions."""
    store = Store.open(f"sqlite:///{tmp_path}/a.sqlite")
    for name in ("main", "east"):
        journal = DurableJournal(store, name, 1_000)
        engine = Engine(EngineSettings(), 1_000)
        for turn in range(2):
            node = NodeChanged(id=f"n:{turn}", time=1_000, node=NodeFacts(name=f"{name}{turn}", cpus=4))
            jobs = [queued(number) for number in range(turn * 20, turn * 20 + 20)]
            batch = journal.commit_events([node, *jobs], 1_000)
            assert batch is not None
            journal.commit_decisions(batch, engine.handle(batch.events, batch.now).decisions)
            assert journal.maybe_checkpoint(engine.freeze, 1_000, must=True)
        journal.close()
    yield store
    store.close()


def rows(store: Store) -> list[Row]:
    with store.database.read() as connection:
        return [dict(row) for row in connection.execute(select(checkpoints)).mappings()]


def mutated_bytes(random: Random, body: bytes, others: list[bytes]) -> tuple[str, bytes]:
    """Return the kind of a random mutation and the mutated bytes."""
    at = random.randrange(len(body))
    far = random.randrange(at, len(body)) + 1
    other = random.choice(others)
    kinds = {
        "byte": lambda: body[:at] + bytes([random.randrange(256)]) + body[at + 1 :],
        "bit": lambda: body[:at] + bytes([body[at] ^ 1 << random.randrange(8)]) + body[at + 1 :],
        "cut": lambda: body[:at],
        "beginning cut": lambda: body[at:],
        "hole": lambda: body[:at] + body[far:],
        "more": lambda: body[:at] + random.randbytes(random.randint(1, 9)) + body[at:],
        "twice": lambda: body[:far] + body[at:],
        "splice": lambda: body[:at] + other[at:],
        "other body": lambda: body[:52] + other[52:],
        "other head": lambda: other[:52] + body[52:],
        "zeros": lambda: body[:at] + bytes(far - at) + body[far:],
        "swap": lambda: body[:at] + body[at:far][::-1] + body[far:],
    }
    kind = random.choice(list(kinds))
    return kind, kinds[kind]()


def mutation(random: Random, row: Row, others: list[Row]) -> tuple[str, Mapping[str, Any]]:
    """Return the columns to change in a row."""
    other = random.choice(others)
    if random.random() < 0.85:
        kind, body = mutated_bytes(random, row["body"], [each["body"] for each in others])
        return kind, {"body": body}
    column = random.choice(["last_event", "time", "chain", "body", "all", "type"])
    if column == "all":  # the row of another cluster or batch under this one's key
        return "other row", {name: other[name] for name in ("last_event", "time", "chain", "body")}
    if column == "type":
        name = random.choice(["last_event", "time", "chain", "body"])
        return "type", {name: random.choice([b"x", b"", 7, 1 << 62, -1])}
    if column == "chain":
        return "chain", {"chain": random.choice([None, b"", mutated_bytes(random, row["chain"], [b"x"])[1]])}
    if column == "body":
        return "body of another", {"body": other["body"]}
    return column, {column: row[column] ^ 1 << random.randrange(62)}


def mutate_rows(store: Store, times: int, seed: int) -> Counter[str]:
    """Mutate rows, each in a transaction that is rolled back."""
    random, done = Random(seed), Counter[str]()
    there = rows(store)
    for _ in range(times):
        row = random.choice([one for one in there if one["batch"] == 2])
        kind, changed = mutation(random, row, [one for one in there if one is not row])
        if all(row[name] == value for name, value in changed.items()):
            continue
        with suppress(InterruptedError), store.database.write() as connection:
            here = (checkpoints.c.cluster == row["cluster"], checkpoints.c.batch == row["batch"])
            # As the file may hold it: SQLite looks at no types.
            sets = ", ".join(f"{name} = ?" for name in changed)
            connection.exec_driver_sql(
                f"UPDATE checkpoints SET {sets} WHERE cluster = ? AND batch = ?",
                (*changed.values(), row["cluster"], row["batch"]),
            )
            assert connection.execute(select(checkpoints.c.batch).where(*here)).first() is not None
            with pytest.raises(BadCheckpoint):
                kept.latest(connection, row["cluster"])
            found = kept.latest(connection, row["cluster"], row["batch"])
            assert found is not None, "the one before it is still read"
            raise InterruptedError
        done[kind] += 1
    return done


def mutate_files(store: Store, folder: Path, times: int, seed: int) -> Counter[str]:
    """Mutate bytes of the database file, within checkpoints and elsewhere."""
    random, done = Random(seed), Counter[str]()
    written = {
        (row["cluster"], LogPosition(row["batch"], row["last_event"])): zlib.decompress(row["body"][52:])
        for row in rows(store)
    }
    store.close()  # moves the WAL into the file
    whole = (folder / "a.sqlite").read_bytes()
    copy = folder / "copy.sqlite"
    for number in range(times):
        data = bytearray(whole)
        for _ in range(random.choice((1, 1, 4))):
            at = random.randrange(100, len(data))
            size = random.choice((1, 1, 8, 4096))
            data[at : at + size] = random.randbytes(min(size, len(data) - at))
        if number % 20 == 0:
            del data[random.randrange(4096, len(data)) :]
        copy.write_bytes(data)
        for old in folder.glob("copy.sqlite-*"):
            old.unlink()
        try:
            opened = Store.open(f"sqlite:///{copy}")
        except StoreError:
            done["not opened"] += 1
            continue
        for cluster in (1, 2):
            try:
                found = opened.latest_checkpoint(cluster)
            except StoreError as error:
                done[type(error).__name__] += 1
            else:
                assert found is None or written[(cluster, found[1])] == found[0]
                done["unharmed" if found is not None else "none"] += 1
        opened.close()
    return done


def test_mutated_checkpoint_rows_are_detected(store_with_checkpoints: Store) -> None:
    done = mutate_rows(store_with_checkpoints, _SHORT, 20)
    assert len(done) == 18, sorted(done)
    assert done.total() > 0.9 * _SHORT


def test_mutated_files_are_detected(store_with_checkpoints: Store, tmp_path: Path) -> None:
    done = mutate_files(store_with_checkpoints, tmp_path, 60, 20)
    assert done["BadCheckpoint"]
    assert done["unharmed"]


def test_file_with_undecodable_tables_is_reported_as_damaged(
    store_with_checkpoints: Store, tmp_path: Path
) -> None:
    """SQLite quotes the damaged bytes, which the driver cannot decode."""
    store_with_checkpoints.close()
    path = tmp_path / "a.sqlite"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"CREATE TABLE events (", b"CREATE \xc9ABLE \xffvents ("))
    with pytest.raises(StoreError, match="damaged"):
        Store.open(f"sqlite:///{path}")


def test_every_stored_byte_is_checked(store_with_checkpoints: Store) -> None:
    row = rows(store_with_checkpoints)[0]
    with suppress(InterruptedError), store_with_checkpoints.database.write() as connection:
        here = (checkpoints.c.cluster == row["cluster"], checkpoints.c.batch == row["batch"])
        for at in range(len(row["body"])):
            body = bytearray(row["body"])
            body[at] ^= 1
            connection.execute(update(checkpoints).where(*here).values(body=bytes(body)))
            with pytest.raises(BadCheckpoint):
                kept.latest(connection, row["cluster"], row["batch"] + 1)
        raise InterruptedError


def test_checkpoint_in_the_first_format_is_readable(store: Store) -> None:
    cluster = store.register_cluster("main", 1_000)
    body = zlib.compress(b"what a version before this one kept")
    digest = hashlib.sha256(struct.pack("<QQQ", 3, 4, len(body)) + body).digest()
    seal = struct.pack("<12sQ32s", b"schedd-ckpt1", len(body), digest) + body
    values = {"cluster": cluster, "batch": 3, "last_event": 4, "time": 1, "chain": None, "body": seal}
    with store.database.write() as connection:
        connection.execute(insert(checkpoints).values(values))
    assert store.latest_checkpoint(cluster) == (b"what a version before this one kept", LogPosition(3, 4))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_mutated_checkpoints_are_detected_in_a_long_run(
    store_with_checkpoints: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_rows = mutate_rows(store_with_checkpoints, _LONG, 2_000)
    of_files = mutate_files(store_with_checkpoints, tmp_path, _LONG // 30, 2_001)
    with capsys.disabled():
        sys.stdout.write(f"\n{of_rows.total():,} rows mutated, none taken: {dict(of_rows)}; ")
        sys.stdout.write(f"{_LONG // 30:,} files: {dict(of_files)}\n")
