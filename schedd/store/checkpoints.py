"""Checkpoints of the engine. The two newest are kept: the second is the fallback for an unreadable one."""

import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from schedd.store import event_log
from schedd.store.checkpoint_envelope import CheckpointRow, seal, unseal
from schedd.store.errors import BadCheckpoint
from schedd.store.records import LogPosition
from schedd.store.tables import checkpoints

_KEPT = 2


def save(
    connection: Connection, cluster: int, at: LogPosition, time: int, body: bytes, facts: bytes = b""
) -> None:
    """Store a compressed checkpoint after ``at`` with its lasting facts; delete older ones."""
    _, chain = event_log.digest_at(connection, cluster, at.batch)
    same = (checkpoints.c.cluster == cluster, checkpoints.c.batch == at.batch)
    connection.execute(delete(checkpoints).where(*same))
    values: dict[str, Any] = {"batch": at.batch, "last_event": at.event, "time": time, "chain": chain}
    place = CheckpointRow(cluster, at, time, chain)
    values |= {"body": seal(place, body), "facts": seal(place, facts) if facts else None}
    connection.execute(insert(checkpoints).values(cluster=cluster, **values))
    newest = select(checkpoints.c.batch).where(checkpoints.c.cluster == cluster)
    kept = connection.scalars(newest.order_by(checkpoints.c.batch.desc()).limit(_KEPT)).all()
    connection.execute(
        delete(checkpoints).where(checkpoints.c.cluster == cluster, checkpoints.c.batch < kept[-1])
    )


def latest(
    connection: Connection, cluster: int, before: int | None = None
) -> tuple[bytes, LogPosition] | None:
    """Return the newest checkpoint (of a batch below ``before``, if given) and its position in the log, or
    None.

    Raises BadCheckpoint when it cannot be read.
    """
    query = select(checkpoints).where(checkpoints.c.cluster == cluster)
    if before is not None:
        query = query.where(checkpoints.c.batch < before)
    row = connection.execute(query.order_by(checkpoints.c.batch.desc()).limit(1)).first()
    if row is None:
        return None
    at = LogPosition(row.batch, row.last_event)
    body = unseal(_place(row), bytes(row.body))
    try:
        return zlib.decompress(body), at
    except zlib.error as error:
        raise BadCheckpoint(row.batch, f"checkpoint after batch {row.batch}: {error}") from None


def latest_facts(connection: Connection, cluster: int) -> Iterator[tuple[bytes, LogPosition]]:
    """Yield the readable lasting facts, newest first, each with its position in the log."""
    query = select(checkpoints).where(checkpoints.c.cluster == cluster, checkpoints.c.facts.is_not(None))
    for row in connection.execute(query.order_by(checkpoints.c.batch.desc())).all():
        with suppress(BadCheckpoint, zlib.error, TypeError):
            facts = unseal(_place(row), bytes(row.facts))
            yield zlib.decompress(facts), LogPosition(row.batch, row.last_event)


def _place(row: Row[Any]) -> CheckpointRow:
    """Return the row without its body. Raises BadCheckpoint for values of a wrong type.

    SQLite does not enforce column types, so a damaged file can contain any value.
    """
    numbers = (row.cluster, row.batch, row.last_event, row.time)
    fine = isinstance(row.body, bytes | memoryview) and isinstance(row.chain, bytes | memoryview | None)
    if not fine or not all(isinstance(one, int) for one in numbers):
        raise BadCheckpoint(row.batch, f"checkpoint after batch {row.batch}: its row is damaged")
    chain = bytes(row.chain) if row.chain is not None else None
    return CheckpointRow(row.cluster, LogPosition(row.batch, row.last_event), row.time, chain)


def oldest(connection: Connection, cluster: int) -> LogPosition:
    """Return the position of the oldest stored checkpoint; recovery needs the log from there on."""
    query = select(checkpoints.c.batch, checkpoints.c.last_event).where(checkpoints.c.cluster == cluster)
    row = connection.execute(query.order_by(checkpoints.c.batch).limit(1)).first()
    return LogPosition(row.batch, row.last_event) if row is not None else LogPosition()
