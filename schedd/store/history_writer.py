"""Writes the history of jobs and nodes from the event log, some minutes late, so that events need not wait.

``jobs`` has one row per job, updated by each event of the job; ``nodes`` has one row per change of a node.
``clusters.noted`` is the number of the last event that they include.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import Any, Final

from pydantic import TypeAdapter
from sqlalchemy import Connection, bindparam, func, select, update
from sqlalchemy import Row as Stored

from schedd.store import event_log, expected_starts
from schedd.store.bulk_rows import bulk_insert
from schedd.store.codec import decode_event, event_job_id, event_json, replace_nul
from schedd.store.database import Database
from schedd.store.tables import clusters, events, jobs, nodes
from schedd.wire import (
    Event,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobQueued,
    JobStarted,
    NodeChanged,
    NodeFacts,
    StartsExpected,
)
from schedd.wire.snapshot_json import JsonReader, read_jobs

Row = dict[str, Any]
# Other writers wait during a transaction, which takes about 10 ms on a busy machine.
_SLICE = 100  # events per transaction
_JOBS = 100  # jobs of a server snapshot per transaction
_ESTIMATES = 250  # expected starts per transaction; an event may have thousands
_RUNNING_STATES = ("R", "E", "S")
_RECORDED_TYPES = frozenset(
    {
        *("job_queued", "job_altered", "job_started", "job_ended", "job_deleted", "node_changed"),
        "starts_expected",
    }
)
"""Types of events that change the history, except server snapshots."""
_COMPARED_COLUMNS = ("owner", "queue", "name", "resources", "submitted", "state", "runs")
"""Columns that are compared with a job in a server snapshot."""
MOVED_TO: Final = "moved to "  # beginning of the column `how` of a job that left for another server
_NODES = TypeAdapter(list[NodeFacts])


def last_recorded_event(connection: Connection, cluster: int) -> int:
    """Return the number of the last event that is in the history or no longer in the log."""
    known = connection.scalar(select(clusters.c.noted).where(clusters.c.id == cluster)) or 0
    first = connection.scalar(select(func.min(events.c.number)).where(events.c.cluster == cluster))
    return max(known, (first or 1) - 1)


def job_changes(event: Event) -> Row | None:
    """Return the changed columns of the event's job, or None.

    ``runs`` is an increment unless the event describes the job completely (then ``owner`` is a key, too).
    """
    if isinstance(event, JobQueued | JobAltered):
        return _job_columns(event.job, event.time)
    if isinstance(event, JobStarted):
        shares = json.dumps([[share.node, share.cpus] for share in event.shares])
        return {
            "seen": event.time,
            "state": "R",
            "started": event.time,
            "held": replace_nul(shares),
            "runs": 1,
        }
    if isinstance(event, JobEnded):
        return {"seen": event.time, "ended": event.time, "exit": event.exit_status, "how": "ended"}
    if isinstance(event, JobDeleted):
        return {"seen": event.time, "ended": event.time, "exit": None, "how": _describe_leaving(event)}
    return None


def _describe_leaving(event: JobDeleted) -> str:
    return f"{MOVED_TO}{replace_nul(event.moved_to)}" if event.moved_to else "deleted"


class _Replaced(Exception):
    """The event is no longer in the log."""


@dataclass(frozen=True, slots=True)
class HistoryWriter:
    """Updates the history of one cluster. For one thread of the leading daemon."""

    database: Database
    cluster: int

    def steps(self) -> Iterator[int]:
        """Record the events of the log, one short transaction per step; yield the last recorded event.

        The first step that finds fewer events than a transaction takes is the last. What arrives meanwhile is
        left to the next call: a transaction for every few events would slow down the planner.
        An interrupted server snapshot is processed again from its beginning; unchanged jobs cause no writes.
        """
        while True:
            with self.database.read() as connection:
                after = last_recorded_event(connection, self.cluster)
                rows = event_log.rows_after(connection, self.cluster, after, _SLICE)
            if not rows:
                return
            last, recorded = False, after
            try:
                if rows[0].type == "snapshot":
                    for _ in self._record_snapshot(rows[0]):
                        yield after
                    recorded = rows[0].number
                else:
                    before_snapshot = list(takewhile(lambda row: row.type != "snapshot", rows))
                    for _ in self._record_events(before_snapshot):
                        yield after
                    recorded = before_snapshot[-1].number
                    last = len(before_snapshot) == len(rows) < _SLICE
            except _Replaced:
                pass
            yield recorded
            if last:
                return

    def _record_events(self, rows: Sequence[Stored[Any]]) -> Iterator[None]:
        job_rows: dict[str, Row] = {}
        changes: list[tuple[int, NodeChanged]] = []
        foreseen: list[tuple[Stored[Any], StartsExpected]] = []
        for row in rows:
            event = decode_event(row.type, row.body, row.packed) if row.type in _RECORDED_TYPES else None
            if isinstance(event, NodeChanged):
                changes.append((row.number, event))
            elif isinstance(event, StartsExpected):
                foreseen.append((row, event))
            elif event is not None:
                _merge_changes(job_rows, event)
        for row, said in foreseen:
            for at in range(0, len(said.jobs), _ESTIMATES):
                some = replace(said, jobs=said.jobs[at : at + _ESTIMATES])
                with self._write(row) as connection:
                    expected_starts.insert_expected_starts(connection, self.cluster, row.number, some)
                yield
        with self._write(rows[-1]) as connection:
            for number, change in changes:
                _insert_node_changes(connection, self.cluster, number, change.time, (change.node,))
            _upsert_jobs(connection, self.cluster, job_rows)
            self._set_recorded(connection, rows[-1].number)

    def _record_snapshot(self, row: Stored[Any]) -> Iterator[None]:
        reader = JsonReader(event_json(row.body, row.packed))
        there: set[str] = set()
        known_nodes: list[NodeFacts] = []
        complete = True
        for name in reader.members():
            if name == "jobs":
                some = read_jobs(reader)
                while found := list(islice(some, _JOBS)):
                    found = [job for job in found if job.state != "C"]  # over, though the server lists it
                    there.update(replace_nul(job.id) for job in found)
                    self._write_jobs(row, self._changed_jobs(found, row.time))
                    yield
            elif name == "nodes":
                known_nodes = _NODES.validate_python(reader.value())
            elif name == "complete":
                complete = bool(reader.value())
            else:
                reader.value()
        if complete:
            gone = {"seen": row.time, "ended": row.time, "exit": None, "how": "gone"}
            left = [job for job in self._open_jobs() if job not in there]
            for at in range(0, len(left), _JOBS):
                self._write_jobs(row, dict.fromkeys(left[at : at + _JOBS], gone))
                yield
        with self._write(row) as connection:
            _insert_node_changes(connection, self.cluster, row.number, row.time, known_nodes)
            self._set_recorded(connection, row.number)

    def _changed_jobs(self, found: Sequence[JobFacts], time: int) -> dict[str, Row]:
        """Return the rows of the snapshot's jobs that differ from the history."""
        rows = {replace_nul(job.id): _job_columns(job, time) for job in found}
        query = select(jobs.c.id, *(jobs.c[name] for name in _COMPARED_COLUMNS)).where(
            jobs.c.cluster == self.cluster, jobs.c.ended.is_(None), jobs.c.id.in_(rows)
        )
        with self.database.read() as connection:
            known = {row[0]: tuple(row[1:]) for row in connection.execute(query)}
        return {
            job: row
            for job, row in rows.items()
            if known.get(job) != tuple(row[name] for name in _COMPARED_COLUMNS)
        }

    def _open_jobs(self) -> Sequence[str]:
        query = select(jobs.c.id).where(jobs.c.cluster == self.cluster, jobs.c.ended.is_(None))
        with self.database.read() as connection:
            return connection.scalars(query).all()

    def _write_jobs(self, row: Stored[Any], job_rows: dict[str, Row]) -> None:
        if job_rows:
            with self._write(row) as connection:
                _upsert_jobs(connection, self.cluster, job_rows)

    @contextmanager
    def _write(self, row: Stored[Any]) -> Iterator[Connection]:
        """Run the block as a transaction for the changes of an event. Raises _Replaced."""
        query = select(events.c.delivery).where(
            events.c.cluster == self.cluster, events.c.number == row.number
        )
        # Not synced by itself: after a power failure the same is written again, because the log comes first.
        with self.database.write(guarded=True, deferred=True) as connection:
            if connection.scalar(query) != row.delivery:
                raise _Replaced
            yield connection

    def _set_recorded(self, connection: Connection, number: int) -> None:
        connection.execute(update(clusters).where(clusters.c.id == self.cluster).values(noted=number))


def _merge_changes(job_rows: dict[str, Row], event: Event) -> None:
    job, row = event_job_id(event), job_changes(event)
    if job is None or row is None:
        return
    known = job_rows.setdefault(job, {})
    runs = known.get("runs", 0) + row.get("runs", 0)
    known.update(row)
    if runs and "owner" not in row:
        known["runs"] = runs


def _job_columns(job: JobFacts, time: int) -> Row:
    """Return the columns of a complete job description, without its last run if the job does not run."""
    row: Row = {
        "seen": time,
        "owner": replace_nul(job.owner),
        "queue": replace_nul(job.queue),
        "name": replace_nul(job.name),
        "resources": replace_nul(json.dumps(dict(job.resources), separators=(",", ":"))),
        "submitted": job.submitted,
        "state": job.state,
        "runs": job.starts,
        "ended": None,
        "exit": None,
        "how": "",
    }
    if job.state in _RUNNING_STATES and job.started is not None:
        row["started"] = job.started
        row["held"] = replace_nul(json.dumps([[share.node, share.cpus] for share in job.shares]))
        row["runs"] = max(1, job.starts)
    return row


def _upsert_jobs(connection: Connection, cluster: int, job_rows: dict[str, Row]) -> None:
    """Insert or update jobs, grouped by their changed columns. Only complete descriptions insert rows."""
    expected_starts.record_actual_starts(
        connection, cluster, {job: row["started"] for job, row in job_rows.items() if "started" in row}
    )
    alike: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for job, row in job_rows.items():
        alike[tuple(sorted(row))].append({"cluster": cluster, "id": job, **row})
    for names, rows in alike.items():
        if "owner" in names:
            bulk_insert(connection, jobs, rows, "replace")
        else:
            values: dict[str, Any] = {
                name: bindparam(f"to_{name}", type_=jobs.c[name].type) for name in names
            }
            if "runs" in names:
                values["runs"] = jobs.c.runs + values["runs"]
            statement = update(jobs).where(
                jobs.c.cluster == cluster, jobs.c.id == bindparam("of", type_=jobs.c.id.type)
            )
            connection.execute(
                statement.values(values),
                [{"of": row["id"], **{f"to_{name}": row[name] for name in names}} for row in rows],
            )


def _insert_node_changes(
    connection: Connection, cluster: int, number: int, time: int, facts: Iterable[NodeFacts]
) -> None:
    """Insert a row for each node that differs from its last row."""
    newest = select(nodes.c.node, func.max(nodes.c.event).label("event")).where(nodes.c.cluster == cluster)
    last = newest.group_by(nodes.c.node).subquery()
    query = select(nodes.c.node, nodes.c.state, nodes.c.cpus, nodes.c.mem, nodes.c.gpus).join(
        last, (nodes.c.node == last.c.node) & (nodes.c.event == last.c.event)
    )
    known = {row[0]: tuple(row[1:]) for row in connection.execute(query.where(nodes.c.cluster == cluster))}
    rows = [
        {
            "cluster": cluster,
            "event": number,
            "node": replace_nul(node.name),
            "time": time,
            "state": node.state,
            "cpus": node.cpus,
            "mem": node.mem,
            "gpus": node.gpus,
        }
        for node in {node.name: node for node in facts}.values()
        if known.get(replace_nul(node.name)) != (node.state, node.cpus, node.mem, node.gpus)
    ]
    bulk_insert(connection, nodes, rows)
