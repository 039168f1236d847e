"""Deliveries that were acknowledged before their events were in the log."""

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from schedd.store.tables import deliveries

_LAST: Final = select(func.max(deliveries.c.number)).where(deliveries.c.cluster == bindparam("cluster"))
_INSERT: Final = insert(deliveries)
_DELETE: Final = delete(deliveries).where(
    deliveries.c.cluster == bindparam("cluster"),
    deliveries.c.number.in_(bindparam("numbers", expanding=True)),
)
# In PostgreSQL, where each statement waits for the server and then for the interpreter.
_APPEND: Final = """
    INSERT INTO deliveries (cluster, number, body)
    SELECT %s, last.number + new.place, new.body
    FROM (SELECT coalesce(max(number), 0) AS number FROM deliveries WHERE cluster = %s) AS last,
        unnest(%b::bytea[]) WITH ORDINALITY AS new (body, place)
    RETURNING number
"""
_MOST_NUMBERS: Final = 500  # in one statement


def replace_deliveries(
    connection: Connection, cluster: int, new: Sequence[bytes], logged: Sequence[int]
) -> Sequence[int]:
    """Store the bodies of ``new`` deliveries and return their numbers; delete those that are ``logged``."""
    numbers: Sequence[int] = ()
    if new and connection.dialect.name == "postgresql":
        numbers = sorted(connection.exec_driver_sql(_APPEND, (cluster, cluster, list(new))).scalars())
    elif new:
        last = last_number(connection, cluster)
        numbers = range(last + 1, last + 1 + len(new))
        insert_deliveries(connection, cluster, zip(numbers, new, strict=True))
    for at in range(0, len(logged), _MOST_NUMBERS):
        some = list(logged[at : at + _MOST_NUMBERS])
        connection.execute(_DELETE, {"cluster": cluster, "numbers": some})
    return numbers


def insert_deliveries(connection: Connection, cluster: int, new: Iterable[tuple[int, bytes]]) -> None:
    """Store deliveries with their numbers."""
    rows = [{"cluster": cluster, "number": number, "body": body} for number, body in new]
    if rows:
        connection.execute(_INSERT, rows)


def last_number(connection: Connection, cluster: int) -> int:
    """Return the highest number of a stored delivery; 0: there is none."""
    return connection.scalar(_LAST, {"cluster": cluster}) or 0


def list_deliveries(connection: Connection, cluster: int) -> Sequence[tuple[int, bytes]]:
    """Return the stored deliveries in the order of their arrival: number and body."""
    query = select(deliveries.c.number, deliveries.c.body).where(deliveries.c.cluster == cluster)
    rows = connection.execute(query.order_by(deliveries.c.number)).all()
    return [(row.number, bytes(row.body)) for row in rows]
