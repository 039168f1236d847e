"""Checks before a downgrade of the schema: is there data that the older version cannot read?

Each type of event and decision, and each format of the engine's state, is listed here with the schema version
that introduced it. A new type or format therefore needs a migration, if only an empty one.
"""

import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import ColumnElement, Connection, func, inspect, select, text

from schedd.store.checkpoint_envelope import unchecked_body
from schedd.store.tables import checkpoints, clusters, decisions, events

RECORDS: Final[Mapping[str, frozenset[str]]] = {
    version: frozenset(types.split())
    for version, types in {
        "0001": (
            "account_moved account_set alert bag_end_reported batch_skipped book booking_step "
            "clock_set contact_changed deadlines_forecast extend_run extension_done job_altered "
            "job_deleted job_ended job_held job_queued job_released job_started ledger_stored log_lost "
            "node_changed plan_chosen plan_improved "
            "planning_held planning_released policy_changed power_requested preempt preemption_done "
            "queue_changed reserve resource_counted resume run run_accepted run_refused runs_read "
            "server_changed snapshot starts_expected switch "
            "switched transfer_decision transfer_release transfer_request transfer_step_done "
            "transfer_withdrawal unreserve watts_read write_attributes"
        ),
    }.items()
}
"""Types of events and decisions, by the schema version that introduced them."""
STATE_FORMATS: Final[Mapping[str, int]] = {"0001": 12}
"""Format of the engine's state, by the schema version that introduced it."""
_MAY_GO: Final = frozenset(
    {"expected", "evaluations", "searches", "share_samples", "last_notices", "notices_sent", "leases"}
)
"""Tables with measurements or data that is recreated; a downgrade may drop them with their rows."""
_SHOWN: Final = 5


def known_records(version: str) -> frozenset[str]:
    """Return the types of events and decisions known to programs of this schema version."""
    return frozenset().union(*(types for since, types in RECORDS.items() if since <= version))


def state_format(version: str) -> int:
    """Return the state format that programs of this schema version read; 0: none."""
    return max((number for since, number in STATE_FORMATS.items() if since <= version), default=0)


def obstacles(connection: Connection, wanted: str) -> list[str]:
    """Return the reasons against a downgrade to ``wanted``, as sentences; empty if it is possible."""
    if wanted == "base":
        return []
    found: list[str] = []
    there = set(inspect(connection).get_table_names())
    if not {"clusters", "batches", "events", "decisions", "checkpoints"} <= there:
        return found
    known = known_records(wanted)
    for row in connection.execute(select(clusters.c.id, clusters.c.name)).all():
        # A program that cannot read the state starts from the lasting facts stored with it, and reads the
        # log from its beginning.
        readable = _newest_state_format(connection, row.id) in (None, state_format(wanted))
        since = _last_event(connection, row.id) if readable else 0
        kinds = _unknown(
            connection, events.c.type, known, events.c.cluster == row.id, events.c.number > since
        )
        kinds += _unknown(connection, decisions.c.type, known, decisions.c.cluster == row.id)
        if kinds:
            shown = ", ".join(kinds[:_SHOWN]) + (", and more" if len(kinds) > _SHOWN else "")
            found.append(f"cluster {row.name}: its log has records that version does not know: {shown}")
    return found


def _newest_state_format(connection: Connection, cluster: int) -> int | None:
    """Return the format of the newest state; None if there is none or it is unreadable."""
    query = select(checkpoints.c.body).where(checkpoints.c.cluster == cluster)
    row = connection.execute(query.order_by(checkpoints.c.batch.desc()).limit(1)).first()
    if row is None:
        return None
    try:
        line, _, _ = zlib.decompressobj().decompress(unchecked_body(bytes(row.body)), 64).partition(b"\n")
        return int(line.rpartition(b" ")[2])
    except (zlib.error, ValueError, TypeError):
        return None


def _last_event(connection: Connection, cluster: int) -> int:
    """Return the last event covered by the oldest stored checkpoint."""
    query = select(func.min(checkpoints.c.last_event)).where(checkpoints.c.cluster == cluster)
    return connection.scalar(query) or 0


def _unknown(
    connection: Connection, column: ColumnElement[str], known: frozenset[str], *which: ColumnElement[bool]
) -> list[str]:
    query = select(column, func.count()).where(*which).group_by(column).order_by(column)
    return [f"{count} {kind}" for kind, count in connection.execute(query) if kind not in known]


def rows_by_table(connection: Connection) -> dict[str, int]:
    """Return the number of rows of each table that must not be dropped with rows in it."""
    quote = connection.dialect.identifier_preparer.quote
    names = set(inspect(connection).get_table_names()) - _MAY_GO
    return {
        name: connection.scalar(text(f"SELECT count(*) FROM {quote(name)}")) or 0 for name in sorted(names)
    }


def dropped_rows(connection: Connection, before: Mapping[str, int]) -> Sequence[str]:
    """Return descriptions of the tables that were dropped although they had rows."""
    there = set(inspect(connection).get_table_names())
    return [f"table {name} with {n} rows" for name, n in before.items() if n and name not in there]
