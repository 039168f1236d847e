"""The event log and the batches in which the engine handled it. Functions over one transaction."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from schedd.store.codec import decode_event, encode_event, job_of, plain
from schedd.store.records import Batch, Tail
from schedd.store.tables import batches, checkpoints, clusters, events
from schedd.wire import Event

__all__ = ["append", "batches_after", "forget_after", "known", "put_batches", "rows_after", "tail"]

_IN = 500
"""Values of one IN list."""
_PAGE = 1_000
"""Events that are read together."""


def tail(connection: Connection, cluster: int) -> Tail:
    """The cluster's last batch and event."""
    event = connection.scalar(select(func.max(events.c.number)).where(events.c.cluster == cluster)) or 0
    batch = 0
    # All of a quiet cluster's events may be past their time; its checkpoint still knows their numbers.
    for table, number in ((batches, batches.c.number), (checkpoints, checkpoints.c.batch)):
        query = select(number.label("number"), table.c.last_event).where(table.c.cluster == cluster)
        row = connection.execute(query.order_by(number.desc()).limit(1)).first()
        if row is not None:
            batch, event = max(batch, row.number), max(event, row.last_event)
    return Tail(batch, event)


def known(connection: Connection, cluster: int, deliveries: Sequence[str]) -> set[str]:
    """Which of these deliveries the log has."""
    found: set[str] = set()
    for at in range(0, len(deliveries), _IN):
        query = select(events.c.delivery).where(
            events.c.cluster == cluster, events.c.delivery.in_(deliveries[at : at + _IN])
        )
        found.update(connection.scalars(query))
    return found


def append(connection: Connection, cluster: int, after: int, new: Iterable[Event]) -> int:
    """Write events that the log does not have, numbered from ``after + 1``; returns the last number."""
    rows: list[dict[str, Any]] = []
    number = after
    for number, event in enumerate(new, after + 1):
        body, packed = encode_event(event)
        rows.append(
            {
                "cluster": cluster,
                "number": number,
                "delivery": plain(event.id),
                "time": event.time,
                "type": event.type,
                "body": body,
                "packed": packed,
                "job": job_of(event),
            }
        )
    if rows:
        connection.execute(insert(events), rows)
    return number


def put_batches(connection: Connection, cluster: int, rows: Iterable[Batch]) -> None:
    """Write what the engine is called with."""
    values = [
        {
            "cluster": cluster,
            "number": batch.number,
            "now": batch.now,
            "calls": batch.calls,
            "paused": plain(batch.paused),
            "resumed": batch.resumed,
            "settings": batch.settings or None,
            "last_event": batch.last_event,
        }
        for batch in rows
    ]
    if values:
        connection.execute(insert(batches), values)


def forget_after(connection: Connection, cluster: int, last: Tail) -> None:
    """Take out batches and events after ``last``: a commit that seemed to fail may have gone through."""
    connection.execute(delete(events).where(events.c.cluster == cluster, events.c.number > last.event))
    connection.execute(delete(batches).where(batches.c.cluster == cluster, batches.c.number > last.batch))
    connection.execute(
        update(clusters)
        .where(clusters.c.id == cluster, clusters.c.noted > last.event)
        .values(noted=last.event)
    )


def batches_after(connection: Connection, cluster: int, batch: int, event: int) -> Iterator[Batch]:
    """The batches after ``batch`` with their events, all after ``event``, in order."""
    stored = _events_after(connection, cluster, event)
    query = select(batches).where(batches.c.cluster == cluster, batches.c.number > batch)
    seen = event
    for row in connection.execute(query.order_by(batches.c.number)).all():
        own = tuple(islice(stored, row.last_event - seen))
        seen = row.last_event
        yield Batch(
            number=row.number,
            now=row.now,
            last_event=row.last_event,
            events=own,
            calls=row.calls,
            paused=row.paused,
            resumed=row.resumed,
            settings=row.settings or "",
        )


def rows_after(connection: Connection, cluster: int, event: int, limit: int) -> Sequence[Row[Any]]:
    """Up to ``limit`` rows of events after ``event``, in order; their numbers follow each other."""
    query = select(events).where(events.c.cluster == cluster, events.c.number > event)
    return connection.execute(query.order_by(events.c.number).limit(limit)).all()


def _events_after(connection: Connection, cluster: int, event: int) -> Iterator[Event]:
    while rows := rows_after(connection, cluster, event, _PAGE):
        for row in rows:
            yield decode_event(row.type, row.body, row.packed)
        event = rows[-1].number
