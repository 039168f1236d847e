"""Deletes expired rows, a few per transaction, so that no transaction is long."""

from collections.abc import Mapping

from sqlalchemy import ColumnElement, Connection, Table, delete, literal, or_, select

from schedd.store import checkpoints
from schedd.store.records import RetentionLimits
from schedd.store.tables import (
    audit,
    batches,
    breaches,
    clusters,
    decisions,
    evaluations,
    events,
    expected,
    jobs,
    nodes,
    promises,
    published_starts,
    searches,
    share_samples,
    tokens,
)

ROWS_PER_TRANSACTION = 500  # maximum number of rows of one table that one transaction deletes


def purge(
    connection: Connection, limits: RetentionLimits, at: int, unseen: Mapping[int, int] | None = None
) -> Mapping[str, int]:
    """Delete up to ``ROWS_PER_TRANSACTION`` expired rows of each table; return the numbers by table.

    Nothing after the oldest stored checkpoint is deleted: recovery needs it. ``unseen`` has by cluster the
    seconds that do not count as age: see ``log_gaps``.
    """
    gone: dict[str, int] = {}
    not_counted = unseen or {}
    for cluster in connection.scalars(select(clusters.c.id)).all():
        now = at - not_counted.get(cluster, 0)
        needed = checkpoints.oldest(connection, cluster).batch
        _delete_log(connection, gone, cluster, needed, now - limits.events)
        _delete_oldest(connection, gone, decisions, cluster, now - limits.decisions, needed)
        _delete_oldest(connection, gone, published_starts, cluster, now - limits.start_estimates)
        _delete_oldest(connection, gone, expected, cluster, now - limits.start_estimates)
        _delete_oldest(connection, gone, promises, cluster, now - limits.promises)
        _delete_oldest(connection, gone, breaches, cluster, now - limits.promises)
        _delete_oldest(connection, gone, evaluations, cluster, now - limits.plan_metrics)
        _delete_oldest(connection, gone, searches, cluster, now - limits.plan_metrics)
        _delete_oldest(connection, gone, share_samples, cluster, now - limits.plan_metrics)
        _delete_ended_jobs(connection, gone, cluster, now - limits.jobs)
        _delete_superseded_nodes(connection, gone, cluster, now - limits.jobs)
    now = at - max(not_counted.values(), default=0)
    delete_audit_entries(connection, now - limits.audit, gone)
    ended = now - limits.tokens
    _delete(connection, gone, tokens, or_(tokens.c.expires < ended, tokens.c.revoked < ended))
    return gone


def delete_audit_entries(connection: Connection, before: int, gone: dict[str, int] | None = None) -> None:
    """Delete the audit entries before this time; add their number to ``gone``."""
    _delete(connection, gone if gone is not None else {}, audit, audit.c.time < before)


def _delete_log(connection: Connection, gone: dict[str, int], cluster: int, needed: int, before: int) -> None:
    """Delete batches by the daemon's clock, and the events of these batches."""
    query = select(batches.c.number, batches.c.now, batches.c.last_event).where(batches.c.cluster == cluster)
    rows = connection.execute(query.order_by(batches.c.number).limit(ROWS_PER_TRANSACTION)).all()
    past = [row for row in rows if row.now < before and row.number <= needed]
    if past:
        last = past[-1]
        _delete(connection, gone, batches, batches.c.cluster == cluster, batches.c.number <= last.number)
        _delete(connection, gone, events, events.c.cluster == cluster, events.c.number <= last.last_event)


def _delete_ended_jobs(connection: Connection, gone: dict[str, int], cluster: int, before: int) -> None:
    """Delete jobs that ended long ago."""
    own = (jobs.c.cluster == cluster, jobs.c.ended < before)
    past = connection.scalars(
        select(jobs.c.id).where(*own).order_by(jobs.c.ended).limit(ROWS_PER_TRANSACTION)
    ).all()
    if past:
        _delete(connection, gone, jobs, jobs.c.cluster == cluster, jobs.c.id.in_(past))


def _delete_superseded_nodes(connection: Connection, gone: dict[str, int], cluster: int, before: int) -> None:
    """Delete old states of nodes, except the latest state of each."""
    own = nodes.c.cluster == cluster
    # Rows are ordered by time, and few old ones remain: the latest states of unchanged nodes.
    young = select(nodes.c.event).where(own, nodes.c.time >= before).order_by(nodes.c.event).limit(1)
    until = connection.scalar(young)
    later = nodes.alias()
    newer = select(later.c.event).where(
        later.c.cluster == cluster, later.c.node == nodes.c.node, later.c.event > nodes.c.event
    )
    which = (own, nodes.c.event < until, newer.exists()) if until is not None else (own, newer.exists())
    past = connection.scalars(
        select(nodes.c.event).where(*which).order_by(nodes.c.event).limit(ROWS_PER_TRANSACTION)
    ).all()
    if past:
        _delete(connection, gone, nodes, *which, nodes.c.event <= past[-1])


def _delete_oldest(
    connection: Connection,
    gone: dict[str, int],
    table: Table,
    cluster: int,
    before: int,
    needed: int | None = None,
) -> None:
    """Delete rows older than ``before`` of batches up to ``needed``, which come first by key."""
    own = table.c.cluster == cluster
    key = list(table.primary_key.columns)[1]
    columns = [
        key.label("of"),
        table.c.time,
        table.c.batch if needed is not None else literal(0).label("batch"),
    ]
    rows = connection.execute(select(*columns).where(own).order_by(key).limit(ROWS_PER_TRANSACTION)).all()
    past = [row.of for row in rows if row.time < before and (needed is None or row.batch <= needed)]
    if past:
        _delete(connection, gone, table, own, key <= past[-1])


def _delete(connection: Connection, gone: dict[str, int], table: Table, *which: ColumnElement[bool]) -> None:
    count = connection.execute(delete(table).where(*which)).rowcount
    if count:
        gone[table.name] = gone.get(table.name, 0) + count
