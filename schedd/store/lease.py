"""The lease of the leader: one row with holder, term and expiry.

All times are taken from the database's clock, so the clocks of the daemons' hosts do not matter. Acquiring
the lease increases the term; renewing does not. A write transaction under a term locks the row's key, so the
lease cannot change hands before the transaction ends.
"""

from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    and_,
    case,
    cast,
    func,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from schedd.store.errors import LeaseExpired, NotLeader
from schedd.store.records import LeaderLease
from schedd.store.tables import leases

_NAME = "leader"


def _now(dialect: str) -> ColumnElement[int]:
    """Return the SQL expression for milliseconds since the epoch by the database's clock."""
    if dialect == "postgresql":
        return cast(func.extract("epoch", func.clock_timestamp()) * 1000, BigInteger)
    return cast((func.julianday("now") - 2440587.5) * 86_400_000, BigInteger)


def acquire(
    connection: Connection,
    holder: str,
    seconds: float,
    *,
    force: bool = False,
    first: int = 1,
    above: int = 0,
    stuck: tuple[int, int] | None = None,
) -> int | None:
    """Acquire the lease if it is free, expired, or held under the same name, or in any case with ``force``.

    If (term, expiry) still equals ``stuck``, the lease counts as expired. Return the new term, or None when
    another daemon holds the lease. The term is higher than ``above``, and in a new database at least
    ``first``.
    """
    now = _now(connection.dialect.name)
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    row = dialect.insert(leases).values(
        name=_NAME,
        holder=holder,
        term=max(first, above + 1),
        expires=now + int(seconds * 1000),
        since=now,
    )
    free = or_(leases.c.expires < now, leases.c.holder == holder)
    if stuck is not None:
        free = or_(free, and_(leases.c.term == stuck[0], leases.c.expires == stuck[1]))
    new = {
        "holder": row.excluded.holder,
        "term": case((leases.c.term > above, leases.c.term + 1), else_=above + 1),
        "expires": row.excluded.expires,
        "since": row.excluded.since,
    }
    statement = row.on_conflict_do_update(
        index_elements=[leases.c.name], set_=new, where=text("TRUE") if force else free
    )
    term = connection.scalar(statement.returning(leases.c.term))
    return int(term) if term is not None else None


def end_stuck(connection: Connection) -> int:
    """Terminate the daemons' transactions that are older than 3 s while the lease is expired; return their
    number.

    They would block a takeover. PostgreSQL itself terminates transactions of silent clients between
    statements, but not within a large statement.
    """
    return int(connection.scalar(_END_STUCK, {"name": _NAME}) or 0)


_END_STUCK = text("""
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name = 'schedd'
      AND pid <> pg_backend_pid() AND xact_start < clock_timestamp() - interval '3 seconds'
      AND EXISTS (SELECT FROM leases WHERE name = :name
                  AND expires < extract(epoch FROM clock_timestamp()) * 1000)
""")


def renew(connection: Connection, holder: str, term: int, seconds: float) -> bool:
    """Extend the lease, even if it has expired; return False when another daemon has acquired it."""
    statement = update(leases).where(leases.c.name == _NAME, leases.c.holder == holder, leases.c.term == term)
    return (
        connection.execute(
            statement.values(expires=_now(connection.dialect.name) + int(seconds * 1000))
        ).rowcount
        > 0
    )


def release(connection: Connection, holder: str, term: int) -> None:
    """End the lease at once; the term stays."""
    statement = update(leases).where(leases.c.name == _NAME, leases.c.holder == holder, leases.c.term == term)
    connection.execute(statement.values(expires=0))


@cache
def _check_statement(dialect: str) -> Select[Any]:
    """Return the statement, made once: each transaction begins with it."""
    query = select(leases.c.holder, leases.c.term, (leases.c.expires < _now(dialect)).label("over"))
    return query.where(leases.c.name == _NAME).with_for_update(read=True, key_share=True)


def check(connection: Connection, holder: str, term: int, *, expires: bool = True) -> None:
    """Raise NotLeader unless the lease is held in this term, LeaseExpired if it has expired and ``expires``.

    Until the transaction ends, the lease can be renewed but not acquired.
    """
    row = connection.execute(_check_statement(connection.dialect.name)).first()
    if row is None or (row.holder, row.term) != (holder, term):
        who = f"{row.holder} leads in term {row.term}" if row is not None else "nobody leads"
        raise NotLeader(f"{holder} no longer leads in term {term}: {who}")
    if expires and row.over:
        raise LeaseExpired(f"the lease of {holder} has expired, and is not renewed yet")


def term_and_expiry(connection: Connection) -> tuple[int, int] | None:
    """Return the row's term and expiry; each renewal writes another expiry."""
    row = connection.execute(select(leases.c.term, leases.c.expires).where(leases.c.name == _NAME)).first()
    return (row.term, row.expires) if row is not None else None


def current_leader(connection: Connection) -> LeaderLease | None:
    """Return the present holder, term and remaining time of the lease; None before the first leader."""
    query = select(
        leases.c.holder,
        leases.c.term,
        leases.c.since,
        (leases.c.expires - _now(connection.dialect.name)).label("left"),
    )
    row = connection.execute(query.where(leases.c.name == _NAME)).first()
    return (
        LeaderLease(row.holder, row.term, row.since // 1000, max(0, row.left) / 1000)
        if row is not None
        else None
    )
