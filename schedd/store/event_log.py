"""The event log: events, grouped in the batches that the engine handled."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import (
    Column,
    CompoundSelect,
    Connection,
    Row,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    literal,
    select,
    union_all,
    update,
)

from schedd.error_text import describe_error
from schedd.store import hash_chain
from schedd.store.bulk_rows import bulk_insert
from schedd.store.codec import decode_event, encode_event, event_job_id, replace_nul
from schedd.store.errors import LogTruncated
from schedd.store.records import EventBatch, LogPosition
from schedd.store.tables import batches, checkpoints, clusters, events
from schedd.wire import Event

_IN = 500  # maximum number of values in one IN list
_NO_EVENTS = hash_chain.digest_events(())
_PAGE = 1_000  # number of events that are read at once


# Statements of each batch, made once: building one with its cache key takes longer than executing it.
_NUMBERS: Final = ((batches, batches.c.number), (checkpoints, checkpoints.c.batch))


def _newest(table: Table, number: Column[Any]) -> Select[Any]:
    query = select(number.label("number"), table.c.last_event).where(table.c.cluster == bindparam("cluster"))
    last = query.order_by(number.desc()).limit(1).subquery()
    return select(last.c.number, last.c.last_event)


_POSITIONS: Final[CompoundSelect[Any]] = union_all(
    select(literal(0).label("number"), func.max(events.c.number).label("last_event")).where(
        events.c.cluster == bindparam("cluster")
    ),
    *(_newest(table, number) for table, number in _NUMBERS),
)
"""All of a quiet cluster's events may be past their time; its checkpoint still knows their numbers."""
_KNOWN: Final = select(events.c.delivery).where(
    events.c.cluster == bindparam("cluster"), events.c.delivery.in_(bindparam("names", expanding=True))
)
_KNOWN_BY_ARRAY: Final = (
    "SELECT delivery FROM events WHERE cluster = %s AND delivery = ANY(%b::text[])"  # for PostgreSQL
)
_CHAINS: Final = [
    select(table.c.chain).where(table.c.cluster == bindparam("cluster"), number == bindparam("number"))
    for table, number in _NUMBERS
]
_INSERT_BATCHES: Final = insert(batches)


def last_position(connection: Connection, cluster: int) -> LogPosition:
    """Return the cluster's last batch and event."""
    rows = connection.execute(_POSITIONS, {"cluster": cluster}).all()
    return LogPosition(max(row.number for row in rows), max(row.last_event or 0 for row in rows))


def known_deliveries(connection: Connection, cluster: int, deliveries: Sequence[str]) -> set[str]:
    """Return the subset of the deliveries that is in the log."""
    if connection.dialect.name == "postgresql":
        return set(connection.exec_driver_sql(_KNOWN_BY_ARRAY, (cluster, list(deliveries))).scalars())
    found: set[str] = set()
    for at in range(0, len(deliveries), _IN):
        names = list(deliveries[at : at + _IN])
        found.update(connection.scalars(_KNOWN, {"cluster": cluster, "names": names}))
    return found


def append_events(
    connection: Connection, cluster: int, after: int, new: Iterable[Event]
) -> tuple[int, bytes]:
    """Insert new events, numbered from ``after + 1``; return the last number and the digest of the events."""
    rows: list[dict[str, Any]] = []
    number = after
    for number, event in enumerate(new, after + 1):
        body, packed = encode_event(event)
        rows.append(
            {
                "cluster": cluster,
                "number": number,
                "delivery": replace_nul(event.id),
                "time": event.time,
                "type": event.type,
                "body": body,
                "packed": packed,
                "job": event_job_id(event),
            }
        )
    bulk_insert(connection, events, rows)
    written = ((row["number"], row["delivery"], row["body"], row["packed"]) for row in rows)
    return number, hash_chain.digest_events(written)


def insert_batches(
    connection: Connection,
    cluster: int,
    rows: Sequence[EventBatch],
    digests: Mapping[int, bytes] | None = None,
) -> bytes:
    """Insert batches; ``digests`` of the events by batch number. Return the chain's digest (empty: no
    batch).

    Raises LogTruncated when the batch before them is missing.
    """
    if not rows:
        return b""
    before = rows[0].number - 1
    there, link = digest_at(connection, cluster, before)
    if before and not there:
        raise LogTruncated(f"batch {before} was stored, and is no longer in the database")
    values: list[dict[str, Any]] = []
    for batch in rows:
        digest_events = (digests or {}).get(batch.number, _NO_EVENTS)
        link = hash_chain.extend_chain(link or hash_chain.EMPTY_CHAIN, _digested_fields(batch), digest_events)
        values.append(
            {
                "cluster": cluster,
                "number": batch.number,
                "now": batch.now,
                "calls": batch.calls,
                "paused": replace_nul(batch.paused),
                "resumed": batch.resumed,
                "settings": batch.settings or None,
                "last_event": batch.last_event,
                "chain": link,
            }
        )
    connection.execute(_INSERT_BATCHES, values)
    return link or b""


def _digested_fields(batch: EventBatch) -> tuple[int, int, str, bool, str, int]:
    paused = replace_nul(batch.paused)
    return batch.number, batch.now, paused, batch.resumed, batch.settings, batch.last_event


def digest_at(connection: Connection, cluster: int, number: int) -> tuple[bool, bytes | None]:
    """Return whether the batch ``number`` is in the log, and the chain's digest after it, if known."""
    there = False
    for query in _CHAINS:
        row = connection.execute(query, {"cluster": cluster, "number": number}).first()
        there = there or row is not None
        if row is not None and row.chain is not None:
            return True, bytes(row.chain)
    return there, None


def set_calls(connection: Connection, cluster: int, number: int, calls: int) -> None:
    """Set the number of engine calls for a logged batch."""
    here = (batches.c.cluster == cluster, batches.c.number == number)
    connection.execute(update(batches).where(*here).values(calls=calls))


def skip_batches_after(connection: Connection, cluster: int, number: int) -> None:
    """Set the number of engine calls to 0 for all batches after ``number``."""
    later = (batches.c.cluster == cluster, batches.c.number > number)
    connection.execute(update(batches).where(*later).values(calls=0))


def delete_after(connection: Connection, cluster: int, last: LogPosition) -> None:
    """Delete the batches and events after ``last``: a commit that seemed to fail may have succeeded."""
    connection.execute(delete(events).where(events.c.cluster == cluster, events.c.number > last.event))
    connection.execute(delete(batches).where(batches.c.cluster == cluster, batches.c.number > last.batch))
    connection.execute(
        update(clusters)
        .where(clusters.c.id == cluster, clusters.c.noted > last.event)
        .values(noted=last.event)
    )


def batch_calls(connection: Connection, cluster: int, batch: int) -> int:
    """Return the number of engine calls for a batch; -1 if the batch does not exist."""
    query = select(batches.c.calls).where(batches.c.cluster == cluster, batches.c.number == batch)
    found: int | None = connection.execute(query).scalar_one_or_none()
    return -1 if found is None else found


def batches_after(
    connection: Connection, cluster: int, after: LogPosition, damage: list[str] | None = None
) -> Iterator[EventBatch]:
    """Yield the batches after ``after`` with their events, in order.

    With a list ``damage``, descriptions of missing or altered records are appended to it, and unreadable
    events are left out. Without it, an unreadable event raises ValueError.
    """
    found: list[str] = []
    link = digest_at(connection, cluster, after.batch)[1] if damage is not None else None
    query = select(batches).where(batches.c.cluster == cluster, batches.c.number > after.batch)
    stored = _EventRows(connection, cluster, after.event)
    seen = after
    for row in connection.execute(query.order_by(batches.c.number)).all():
        own = stored.until(row.last_event)
        batch = EventBatch(
            number=row.number,
            now=row.now,
            last_event=row.last_event,
            events=tuple(_decoded(own, found if damage is not None else None)),
            calls=row.calls,
            paused=row.paused,
            resumed=row.resumed,
            settings=row.settings or "",
            chain=row.chain or b"",
        )
        if row.number != seen.batch + 1:
            found.append(
                f"{_format_count(row.number - seen.batch - 1, 'batch', 'batches')} before batch {row.number}"
            )
        elif damage is not None and link is not None and row.chain is not None:
            written = ((event.number, event.delivery, event.body, event.packed) for event in own)
            if (
                hash_chain.extend_chain(link, _digested_fields(batch), hash_chain.digest_events(written))
                != row.chain
            ):
                found.append(f"batch {row.number} differs from what was written")
        missing = max(0, row.last_event - seen.event) - len(own)
        if missing:
            found.append(f"{_format_count(missing, 'event', 'events')} up to batch {row.number}")
        link, seen = row.chain or None, LogPosition(row.number, max(seen.event, row.last_event))
        yield batch
    if damage is not None:
        if rest := len(stored.until(None)):
            found.append(f"the batches of {_format_count(rest, 'event', 'events')} after batch {seen.batch}")
        damage += found


def _format_count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _decoded(rows: Iterable[Row[Any]], damage: list[str] | None) -> Iterator[Event]:
    for row in rows:
        try:
            yield decode_event(row.type, row.body, row.packed)
        except (ValueError, zlib.error) as error:
            if damage is None:
                raise
            damage.append(f"event {row.number} cannot be read ({describe_error(error)})")


def rows_after(connection: Connection, cluster: int, event: int, limit: int) -> Sequence[Row[Any]]:
    """Return up to ``limit`` rows of events after ``event``, in order."""
    query = select(events).where(events.c.cluster == cluster, events.c.number > event)
    return connection.execute(query.order_by(events.c.number).limit(limit)).all()


class _EventRows:
    """Reads the rows of events after a number, in pages."""

    def __init__(self, connection: Connection, cluster: int, event: int) -> None:
        self._rows = self._read(connection, cluster, event)
        self._next = next(self._rows, None)

    def until(self, last: int | None) -> list[Row[Any]]:
        """Return the next rows up to the event ``last``; None: all."""
        found: list[Row[Any]] = []
        while self._next is not None and (last is None or self._next.number <= last):
            found.append(self._next)
            self._next = next(self._rows, None)
        return found

    @staticmethod
    def _read(connection: Connection, cluster: int, event: int) -> Iterator[Row[Any]]:
        while rows := rows_after(connection, cluster, event, _PAGE):
            yield from rows
            event = rows[-1].number
