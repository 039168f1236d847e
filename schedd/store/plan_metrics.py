"""Plan metrics over time, and the reports of searches."""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite

from schedd.store.records import PlanMetricsSample, SearchRecord
from schedd.store.tables import evaluations as _evaluations
from schedd.store.tables import searches as _searches


def save_plan_metrics(connection: Connection, cluster: int, found: PlanMetricsSample) -> None:
    """Store a sample; it replaces an earlier one of the same second."""
    body = json.dumps(dict(found.values), separators=(",", ":"), allow_nan=False)
    _upsert(
        connection,
        _evaluations,
        {
            "cluster": cluster,
            "time": found.time,
            "generation": found.generation,
            "jobs": found.jobs,
            "body": body,
        },
    )


def list_plan_metrics(
    connection: Connection, cluster: int, since: int, until: int, limit: int, every: int = 1
) -> Sequence[PlanMetricsSample]:
    """Return up to ``limit`` samples in ``[since, until)``, in order; the last one per ``every`` seconds."""
    table = _evaluations
    within = (table.c.cluster == cluster, table.c.time >= since, table.c.time < until)
    query = select(table).where(*within)
    if every > 1:
        last = select(func.max(table.c.time)).where(*within).group_by(table.c.time // every)
        query = select(table).where(table.c.cluster == cluster, table.c.time.in_(last))
    rows = connection.execute(query.order_by(table.c.time).limit(limit))
    return [PlanMetricsSample(row.time, row.generation, row.jobs, json.loads(row.body)) for row in rows]


def save_search(connection: Connection, cluster: int, report: SearchRecord) -> None:
    """Store the report of a search. Idempotent."""
    row = {"cluster": cluster, "number": report.number, "time": report.time, "body": report.body}
    _upsert(connection, _searches, row)


def list_searches(
    connection: Connection, cluster: int, before: int | None, limit: int
) -> Sequence[SearchRecord]:
    """Return up to ``limit`` reports, newest first; with numbers below ``before``, if given."""
    table = _searches
    query = select(table).where(table.c.cluster == cluster)
    if before is not None:
        query = query.where(table.c.number < before)
    rows = connection.execute(query.order_by(table.c.number.desc()).limit(limit))
    return [SearchRecord(row.number, row.time, row.body) for row in rows]


def _upsert(connection: Connection, table: Table, row: dict[str, Any]) -> None:
    """Insert a row, or replace the one with the same key."""
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table).values(row)
    keys = [column.name for column in table.primary_key.columns]
    new = {name: statement.excluded[name] for name in row if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=new))
