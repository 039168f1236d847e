"""Users' subscriptions to notices, and the notices that were sent."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from schedd.store import tables
from schedd.store.codec import replace_nul
from schedd.store.records import LastNotice, NoticeSubscription
from schedd.store.tables import notices, notices_sent

_LAST_NOTICES: Final = tables.last_notices


def add_subscription(connection: Connection, cluster: int, wish: NoticeSubscription) -> int:
    """Insert a subscription; return its number."""
    values = {
        "cluster": cluster,
        "who": replace_nul(wish.user),
        "job": replace_nul(wish.job),
        "moved": wish.min_move_s,
        "ahead": wish.lead_s,
        "way": wish.channel,
        "address": replace_nul(wish.address),
        "created": wish.created,
        "lost": wish.on_lost_deadline,
        "tighter": wish.on_tighter_walltime,
    }
    number = connection.scalar(insert(notices).values(values).returning(notices.c.id))
    assert number is not None
    return int(number)


def remove_subscription(connection: Connection, number: int) -> None:
    """Delete a subscription and its sent notices."""
    connection.execute(delete(_LAST_NOTICES).where(_LAST_NOTICES.c.notice == number))
    connection.execute(delete(notices).where(notices.c.id == number))


def list_subscriptions(connection: Connection, cluster: int) -> Sequence[NoticeSubscription]:
    """Return the subscriptions of a cluster, oldest first."""
    rows = connection.execute(select(notices).where(notices.c.cluster == cluster).order_by(notices.c.id))
    return [
        NoticeSubscription(
            row.who,
            row.job,
            row.moved,
            row.ahead,
            row.way,
            row.address,
            row.created,
            row.id,
            row.lost,
            row.tighter,
        )
        for row in rows
    ]


def last_notices(connection: Connection, cluster: int) -> Mapping[tuple[int, str], LastNotice]:
    query = select(_LAST_NOTICES).join(notices).where(notices.c.cluster == cluster)
    return {
        (row.notice, row.job): LastNotice(row.start, row.soon, row.lost, row.tighter, row.walltime)
        for row in connection.execute(query)
    }


def update_last_notices(
    connection: Connection,
    new: Mapping[tuple[int, str], LastNotice],
    gone: Iterable[tuple[int, str]],
    now: int,
) -> None:
    """Store the latest notices, and delete the rows of jobs that are ``gone``. Idempotent."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    for (number, job), mark in new.items():
        row = {"notice": number, "job": job, **asdict(mark), "time": now}
        statement = dialect.insert(_LAST_NOTICES).values(row)
        update = {name: statement.excluded[name] for name in row if name not in ("notice", "job")}
        connection.execute(statement.on_conflict_do_update(index_elements=["notice", "job"], set_=update))
    for number, job in gone:
        connection.execute(
            delete(_LAST_NOTICES).where(_LAST_NOTICES.c.notice == number, _LAST_NOTICES.c.job == job)
        )


def notified_users(connection: Connection, cluster: int, since: int) -> Sequence[tuple[str, int]]:
    """Return (user, time) of the notices sent after ``since``, oldest first."""
    table = notices_sent.c
    query = select(table.who, table.time).where(table.cluster == cluster, table.time > since)
    return [(row.who, row.time) for row in connection.execute(query.order_by(table.time, table.id))]


def record_notified_users(
    connection: Connection, cluster: int, whom: Iterable[str], time: int, forget: int
) -> None:
    """Record notices to users at ``time``, and delete records up to ``forget``."""
    table = notices_sent.c
    connection.execute(delete(notices_sent).where(table.cluster == cluster, table.time <= forget))
    rows = [{"cluster": cluster, "who": replace_nul(who), "time": time} for who in whom]
    if rows:
        connection.execute(insert(notices_sent), rows)
