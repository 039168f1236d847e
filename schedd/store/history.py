"""History of jobs and nodes, which is kept much longer than the events."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Table, func, or_, select

from schedd.store.codec import decode_event, replace_nul
from schedd.store.history_writer import MOVED_TO, Row, job_changes, last_recorded_event
from schedd.store.records import JobHistory, NodeAlert, NodeHistory, PeriodUsage, RunUsage, TimelineEntry
from schedd.store.tables import breaches, decisions, events, expected, jobs, nodes, promises, published_starts
from schedd.wire import Event, JobAltered, JobDeleted, JobEnded, JobQueued, JobStarted

_OF_NODES = frozenset({"black_hole", "no_room", "overrun", "power"})
"""Kinds of alerts that concern the availability or power state of nodes."""
_OF_A_JOB = (events, decisions, published_starts, expected, promises, breaches)


def job_history(connection: Connection, cluster: int, job: str) -> JobHistory | None:
    """Return the history of a job, ended or not; None if the job is unknown.

    `123` means the newest `123.server` or `123[].server`. Events that are not yet in the history tables
    count, except server snapshots.
    """
    since, name = last_recorded_event(connection, cluster), replace_nul(job)
    row = select(jobs).where(jobs.c.cluster == cluster, jobs.c.id == name)
    known: Row = {
        str(key): value for key, value in (connection.execute(row).mappings().first() or {}).items()
    }
    later = (
        select(events).where(events.c.cluster == cluster, events.c.number > since).order_by(events.c.number)
    )
    said = connection.execute(later.where(events.c.job == name)).all()
    if not known and not said:
        name = _resolve_short_id(connection, cluster, name, since)
        return job_history(connection, cluster, name) if name else None
    for one in said:
        news = job_changes(decode_event(one.type, one.body, one.packed))
        if news is not None:
            runs = known.get("runs", 0)
            known.update(news)
            if "owner" not in news and "runs" in news:
                known["runs"] += runs
    return _history_from_row({**known, "id": name}) if "owner" in known else None


def _resolve_short_id(connection: Connection, cluster: int, name: str, since: int) -> str:
    """Return the newest job id that is ``name`` followed by a server name; empty if there is none."""
    endings = (".", "[].")
    of_log = or_(*(events.c.job.startswith(name + ending, autoescape=True) for ending in endings))
    query = select(events.c.job).where(events.c.cluster == cluster, events.c.number > since, of_log)
    found = connection.scalar(query.order_by(events.c.number.desc()).limit(1))
    if found is None:
        noted_so = or_(*(jobs.c.id.startswith(name + ending, autoescape=True) for ending in endings))
        query = select(jobs.c.id).where(jobs.c.cluster == cluster, noted_so)
        found = connection.scalar(query.order_by(jobs.c.seen.desc()).limit(1))
    return str(found or "")


def jobs_started_since(connection: Connection, cluster: int, since: int) -> Sequence[JobHistory]:
    """Return the jobs that last started at ``since`` or later, by start."""
    query = select(jobs).where(jobs.c.cluster == cluster, jobs.c.started >= since)
    rows = connection.execute(query.order_by(jobs.c.started, jobs.c.id)).mappings()
    return [_history_from_row({str(key): value for key, value in row.items()}) for row in rows]


def total_cpus(connection: Connection, cluster: int) -> int:
    """Return the total number of cpus, by the last known state of each node."""
    last = select(nodes.c.node, func.max(nodes.c.event).label("event")).where(nodes.c.cluster == cluster)
    newest = last.group_by(nodes.c.node).subquery()
    here = (nodes.c.cluster == cluster, nodes.c.node == newest.c.node, nodes.c.event == newest.c.event)
    return int(connection.scalar(select(func.coalesce(func.sum(nodes.c.cpus), 0)).where(*here)) or 0)


def _history_from_row(row: Mapping[str, Any]) -> JobHistory:
    moved_to = row["how"].removeprefix(MOVED_TO) if row["how"].startswith(MOVED_TO) else ""
    return JobHistory(
        id=row["id"],
        owner=row["owner"],
        queue=row["queue"],
        name=row["name"],
        resources=json.loads(row["resources"]),
        submitted=row["submitted"],
        state=row["state"],
        runs=row["runs"],
        started=row.get("started"),
        held=tuple((node, cpus) for node, cpus in json.loads(row.get("held") or "[]")),
        ended=row["ended"],
        exit_status=row["exit"],
        how="moved" if moved_to else row["how"],
        moved_to=moved_to,
    )


def jobs_ended_since(connection: Connection, cluster: int, since: int, most: int) -> Sequence[JobHistory]:
    """Return the newest jobs that ran and ended at ``since`` or later, at most ``most``, newest first."""
    query = select(jobs).where(jobs.c.cluster == cluster, jobs.c.ended >= since, jobs.c.started.is_not(None))
    rows = connection.execute(query.order_by(jobs.c.ended.desc()).limit(most)).mappings()
    return [_history_from_row({str(key): value for key, value in row.items()}) for row in rows]


def ended_subjobs(connection: Connection, cluster: int, array: str, most: int) -> Sequence[JobHistory]:
    """Return up to ``most`` ended subjobs of an array (`7[].server` or `7[]`)."""
    head, _, tail = array.partition("[]")
    own = [jobs.c.id.startswith(f"{head}[", autoescape=True)]
    if tail:
        own.append(jobs.c.id.endswith(f"]{tail}", autoescape=True))
    query = select(jobs).where(jobs.c.cluster == cluster, jobs.c.ended.is_not(None), *own).limit(most)
    rows = connection.execute(query).mappings()
    return [_history_from_row({str(key): value for key, value in row.items()}) for row in rows]


def period_usage(connection: Connection, cluster: int, since: int, until: int, most: int) -> PeriodUsage:
    """Return the jobs that ran in ``[since, until)``, and the changes of the number of cpus.

    Jobs: at most ``most``, started, submitted before ``until``, not ended before ``since``.
    """
    return PeriodUsage(
        runs=_runs(connection, cluster, since, until, most), cpus=_cpus_over_time(connection, cluster, until)
    )


def _runs(connection: Connection, cluster: int, since: int, until: int, most: int) -> Sequence[RunUsage]:
    names = ("queue", "resources", "submitted", "started", "held", "ended", "how")
    query = select(*(jobs.c[name] for name in names)).where(
        jobs.c.cluster == cluster,
        jobs.c.submitted < until,
        jobs.c.started.is_not(None),
        or_(jobs.c.ended >= since, jobs.c.ended.is_(None)),
    )
    return [
        RunUsage(
            row.queue,
            json.loads(row.resources),
            row.submitted,
            row.started,
            sum(held for _, held in json.loads(row.held or "[]")),
            row.ended,
            row.how,
        )
        for row in connection.execute(query.limit(most))
    ]


def _cpus_over_time(connection: Connection, cluster: int, until: int) -> Sequence[tuple[int, int]]:
    columns = (nodes.c.time, nodes.c.node, nodes.c.state, nodes.c.cpus)
    query = select(*columns).where(nodes.c.cluster == cluster, nodes.c.time < until)
    here: dict[str, int] = {}
    found: list[tuple[int, int]] = []
    for row in connection.execute(query.order_by(nodes.c.event)):
        now = row.cpus if row.state != "down" else 0
        before = here.get(row.node, 0)
        here[row.node] = now
        if now != before:
            found.append((row.time, now - before))
    return sorted(found)


_ORDERS: Final = {
    "run": "start",
    "preempt": "preemption",
    "resume": "resume",
    "extend_run": "longer walltime",
}
"""Words for the types of decisions about a job that the server carries out."""


def job_timeline(connection: Connection, cluster: int, job: str) -> Sequence[TimelineEntry]:
    """Return the stored events, decisions, estimates, promises and breaches of a job, in order of time.

    Within a second, published starts follow the request, and a decision precedes the event that answers it.
    """
    job = replace_nul(job)
    of = {table: (table.c.cluster == cluster, table.c.job == job) for table in _OF_A_JOB}
    said = select(events.c.time, events.c.type, events.c.body, events.c.packed).where(*of[events])
    order: list[tuple[int, float]] = []
    found: list[TimelineEntry] = []
    answered: dict[str, tuple[int, float]] = {}
    requested: dict[int, float] = {}
    over = False
    for row in connection.execute(said.order_by(events.c.number)):
        event = decode_event(row.type, row.body, row.packed)
        ends = isinstance(event, JobEnded | JobDeleted)
        if not (ends and over):  # an adapter repeats an end as long as the server lists the job
            place = len(found)
            answered.setdefault(getattr(event, "decision_id", ""), (row.time, place))
            if isinstance(event, JobQueued | JobAltered):
                requested[row.time] = place
            order.append((row.time, place))
            found.append(TimelineEntry(row.time, "event", _describe_event(event)))
        over = ends
    runs = select(decisions).where(*of[decisions], decisions.c.type.in_(_ORDERS))
    for row in connection.execute(runs):
        time, place = answered.get(row.id, (row.time, inf))
        order.append((row.time, place - 0.5 if time == row.time else inf))
        found.append(TimelineEntry(row.time, "decision", _outcome(row), decision=row.id))
    for entry in _published_entries(connection, of):
        order.append((entry.time, requested.get(entry.time, -1) + 0.25))
        found.append(entry)
    for row in connection.execute(select(breaches).where(*of[breaches])):
        order.append((row.time, inf))
        found.append(_promise_change(row))
    return [found[at] for at in sorted(range(len(found)), key=order.__getitem__)]


def _published_entries(
    connection: Connection, of: Mapping[Table, tuple[ColumnElement[bool], ...]]
) -> Iterator[TimelineEntry]:
    """Yield planned starts, promises and expected starts; ``of``: by table, the conditions of the job."""
    for row in connection.execute(select(published_starts).where(*of[published_starts])):
        yield TimelineEntry(row.time, "published", row.why, row.start)
    weak = ("", "if an assumed walltime ahead holds")
    for row in connection.execute(select(promises).where(*of[promises])):
        yield TimelineEntry(row.time, "promise", weak[row.weak], row.promised)
    for row in connection.execute(select(expected).where(*of[expected])):
        yield TimelineEntry(row.time, "forecast", _expected(row), row.start)


def _expected(row: Any) -> str:
    by = datetime.fromtimestamp(row.latest, UTC)
    return f"90 % by {by:%Y-%m-%d %H:%M:%S} UTC"


def _promise_change(row: Any) -> TimelineEntry:
    if row.kind == "kept":
        return TimelineEntry(row.time, "risk", "the present plan can keep it again", row.planned)
    if row.kind == "ended":
        return TimelineEntry(row.time, "promise", f"ended: {row.cause}, by {row.event}", row.promised)
    return TimelineEntry(
        row.time, "breach" if row.kind == "broken" else "risk", f"{row.cause}, by {row.event}", row.planned
    )


def _outcome(row: Any) -> str:
    code = f" (code {row.code})" if row.code is not None else ""
    said = json.loads(row.body) if row.type in ("run", "preempt") else {}
    reason = f"; planned for then: {said['why']}" if said.get("why") else ""
    preemptor = f" for job {said['preemptor']}" if said.get("preemptor") else ""
    return f"{_ORDERS[row.type]}{preemptor} ordered: {row.outcome or 'no answer known'}{code}{reason}"


def _describe_event(event: Event) -> str:
    if isinstance(event, JobStarted):
        return "started on " + " ".join(f"{share.node}:{share.cpus}" for share in event.shares)
    if isinstance(event, JobEnded):
        status = "not known" if event.exit_status is None else str(event.exit_status)
        return f"ended, exit status {status}"
    if isinstance(event, JobDeleted) and event.moved_to:
        return f"{MOVED_TO}{event.moved_to}"
    if isinstance(event, JobQueued | JobAltered):
        asked = ",".join(f"{name}={value}" for name, value in event.job.resources.items())
        return f"{event.type.removeprefix('job_')} in {event.job.queue}: {asked}"
    return event.type.removeprefix("job_").replace("_", " ")


def node_alerts(connection: Connection, cluster: int, node: str) -> Sequence[NodeAlert]:
    """Return the alerts that closed a node which the server showed as up, and its power switches, by time.

    They cover the retention time of decisions.
    """
    query = select(decisions.c.time, decisions.c.type, decisions.c.body).where(
        decisions.c.cluster == cluster,
        decisions.c.type.in_(("alert", "switch")),
        decisions.c.body.contains(json.dumps(node, ensure_ascii=False)[1:-1], autoescape=True),
    )
    whole = re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w.-])")
    found = []
    for row in connection.execute(query.order_by(decisions.c.time)):
        alert = json.loads(row.body)
        if row.type == "switch":
            if alert["node"] == node:
                words = f"ordered {'on' if alert['on'] else 'off'}"
                found.append(NodeAlert(row.time, "power", words))
        elif alert["kind"] in _OF_NODES and whole.search(alert["text"]):
            found.append(NodeAlert(row.time, alert["kind"], alert["text"]))
    return found


def node_history(connection: Connection, cluster: int, node: str) -> Sequence[NodeHistory]:
    """Return the states of a node, in order of time."""
    query = select(nodes).where(nodes.c.cluster == cluster, nodes.c.node == replace_nul(node))
    return [
        NodeHistory(row.time, row.state, row.cpus, row.mem, row.gpus)
        for row in connection.execute(query.order_by(nodes.c.event))
    ]
