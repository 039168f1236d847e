"""What became of every job and node, kept far longer than the events that told it. Over one transaction.

``jobs`` has one row for each job, brought up to date with the events that speak of it; ``nodes`` one row for
each change of a node. Both follow the log some minutes behind, so that no event waits for them;
``clusters.noted`` is the number of the last event that they know of.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from schedd.store.codec import decode_event, plain
from schedd.store.records import JobPast, Moment, NodePast
from schedd.store.tables import breaches, clusters, decisions, events, jobs, nodes, promises, told
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
    Snapshot,
)

__all__ = ["cpus", "job_of", "job_past", "moments", "node_past", "note", "noted", "started_since"]

_Row = dict[str, Any]
_RUNS = ("R", "E", "S")
_OF_A_JOB = (events, decisions, told, promises, breaches)


def job_of(event: Event) -> str | None:
    """The job that an event speaks of, where it is one."""
    job = getattr(event, "job", None)
    name = job.id if job is not None else getattr(event, "job_id", None)
    return plain(name) if name is not None else None


# ---- writing ------------------------------------------------------------------------------------


def noted(connection: Connection, cluster: int) -> int:
    """The number of the last event that was noted, or that is gone."""
    known = connection.scalar(select(clusters.c.noted).where(clusters.c.id == cluster)) or 0
    first = connection.scalar(select(func.min(events.c.number)).where(events.c.cluster == cluster))
    return max(known, (first or 1) - 1)


def note(connection: Connection, cluster: int, first: int, new: Sequence[Event]) -> None:
    """Note what ``new`` events, numbered from ``first`` on, say of jobs and nodes."""
    told: dict[str, _Row] = {}
    for number, event in enumerate(new, first):
        if isinstance(event, Snapshot):
            _put_jobs(connection, cluster, told)
            told = {}
            _put_jobs(connection, cluster, _differences(connection, cluster, event))
            _put_nodes(connection, cluster, number, event.time, event.nodes)
        elif isinstance(event, NodeChanged):
            _put_nodes(connection, cluster, number, event.time, (event.node,))
        else:
            for job, row in _said(event):
                known = told.setdefault(job, {})
                runs = known.get("runs", 0) + row.get("runs", 0)
                known.update(row)
                if runs and "owner" not in row:
                    known["runs"] = runs
    _put_jobs(connection, cluster, told)
    connection.execute(update(clusters).where(clusters.c.id == cluster).values(noted=first + len(new) - 1))


def _said(event: Event) -> Iterator[tuple[str, _Row]]:
    job = job_of(event)
    if job is None:
        return
    if isinstance(event, JobQueued | JobAltered):
        yield job, _row_of(event.job, event.time)
    elif isinstance(event, JobStarted):
        shares = json.dumps([[share.node, share.cpus] for share in event.shares])
        yield job, {"seen": event.time, "state": "R", "started": event.time, "held": plain(shares), "runs": 1}
    elif isinstance(event, JobEnded):
        yield job, {"seen": event.time, "ended": event.time, "exit": event.exit_status, "how": "ended"}
    elif isinstance(event, JobDeleted):
        yield job, {"seen": event.time, "ended": event.time, "exit": None, "how": "deleted"}


def _row_of(job: JobFacts, time: int) -> _Row:
    """What a whole description says; of a job that does not run it leaves its last run as it was."""
    row: _Row = {
        "seen": time,
        "owner": plain(job.owner),
        "queue": plain(job.queue),
        "name": plain(job.name),
        "resources": plain(json.dumps(dict(job.resources), separators=(",", ":"))),
        "submitted": job.submitted,
        "state": job.state,
        "runs": job.starts,
        "ended": None,
        "exit": None,
        "how": "",
    }
    if job.state in _RUNS and job.started is not None:
        row["started"] = job.started
        row["held"] = plain(json.dumps([[share.node, share.cpus] for share in job.shares]))
        row["runs"] = max(1, job.starts)
    return row


def _differences(connection: Connection, cluster: int, snapshot: Snapshot) -> dict[str, _Row]:
    """Of all jobs in a snapshot those that are not known like that; and those that are gone."""
    names = ("owner", "queue", "name", "resources", "submitted", "state", "runs")
    query = select(jobs.c.id, *(jobs.c[name] for name in names))
    there = connection.execute(query.where(jobs.c.cluster == cluster, jobs.c.ended.is_(None)))
    known = {row[0]: tuple(row[1:]) for row in there}
    found: dict[str, _Row] = {}
    for job in snapshot.jobs:
        if job.state == "C":  # over, though the server still lists it
            continue
        row = _row_of(job, snapshot.time)
        if known.pop(plain(job.id), None) != tuple(row[name] for name in names):
            found[plain(job.id)] = row
    if snapshot.complete:
        gone = {"seen": snapshot.time, "ended": snapshot.time, "exit": None, "how": "gone"}
        found.update(dict.fromkeys(known, gone))
    return found


def _put_jobs(connection: Connection, cluster: int, told: dict[str, _Row]) -> None:
    """Rows that say alike much go together; whole descriptions make new rows where there are none."""
    alike: dict[tuple[str, ...], list[_Row]] = defaultdict(list)
    for job, row in told.items():
        alike[tuple(sorted(row))].append({"cluster": cluster, "id": job, **row})
    for names, rows in alike.items():
        if "owner" in names:
            dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
            statement = dialect.insert(jobs)
            new = {name: statement.excluded[name] for name in names}
            connection.execute(
                statement.on_conflict_do_update(index_elements=[jobs.c.cluster, jobs.c.id], set_=new), rows
            )
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


def _put_nodes(
    connection: Connection, cluster: int, number: int, time: int, facts: Iterable[NodeFacts]
) -> None:
    """A row for each node that is not as it was when it was last spoken of."""
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
            "node": plain(node.name),
            "time": time,
            "state": node.state,
            "cpus": node.cpus,
            "mem": node.mem,
            "gpus": node.gpus,
        }
        for node in {node.name: node for node in facts}.values()
        if known.get(plain(node.name)) != (node.state, node.cpus, node.mem, node.gpus)
    ]
    if rows:
        connection.execute(insert(nodes), rows)


# ---- reading ------------------------------------------------------------------------------------


def job_past(connection: Connection, cluster: int, job: str) -> JobPast | None:
    """What is known of a job, ended or not; None when nothing is. `123` stands for the `123.server` or
    `123[].server` that was last heard of.

    What the log says and is not noted yet counts, but for what only a snapshot says.
    """
    since, name = noted(connection, cluster), plain(job)
    row = select(jobs).where(jobs.c.cluster == cluster, jobs.c.id == name)
    known: _Row = {
        str(key): value for key, value in (connection.execute(row).mappings().first() or {}).items()
    }
    later = (
        select(events).where(events.c.cluster == cluster, events.c.number > since).order_by(events.c.number)
    )
    said = connection.execute(later.where(events.c.job == name)).all()
    if not known and not said:
        name = _alike(connection, cluster, name, since)
        return job_past(connection, cluster, name) if name else None
    for one in said:
        for _, news in _said(decode_event(one.type, one.body, one.packed)):
            runs = known.get("runs", 0)
            known.update(news)
            if "owner" not in news and "runs" in news:
                known["runs"] += runs
    return _past({**known, "id": name}) if "owner" in known else None


def _alike(connection: Connection, cluster: int, name: str, since: int) -> str:
    """The job that was last heard of whose id begins so and goes on with the server's name; or nothing."""
    endings = (".", "[].")
    of_log = or_(*(events.c.job.startswith(name + ending, autoescape=True) for ending in endings))
    query = select(events.c.job).where(events.c.cluster == cluster, events.c.number > since, of_log)
    found = connection.scalar(query.order_by(events.c.number.desc()).limit(1))
    if found is None:
        noted_so = or_(*(jobs.c.id.startswith(name + ending, autoescape=True) for ending in endings))
        query = select(jobs.c.id).where(jobs.c.cluster == cluster, noted_so)
        found = connection.scalar(query.order_by(jobs.c.seen.desc()).limit(1))
    return str(found or "")


def started_since(connection: Connection, cluster: int, since: int) -> Sequence[JobPast]:
    """The jobs whose last run began at ``since`` or later, by start."""
    query = select(jobs).where(jobs.c.cluster == cluster, jobs.c.started >= since)
    rows = connection.execute(query.order_by(jobs.c.started, jobs.c.id)).mappings()
    return [_past({str(key): value for key, value in row.items()}) for row in rows]


def cpus(connection: Connection, cluster: int) -> int:
    """How many cpus the nodes have by what was told of each last."""
    last = select(nodes.c.node, func.max(nodes.c.event).label("event")).where(nodes.c.cluster == cluster)
    newest = last.group_by(nodes.c.node).subquery()
    here = (nodes.c.cluster == cluster, nodes.c.node == newest.c.node, nodes.c.event == newest.c.event)
    return int(connection.scalar(select(func.coalesce(func.sum(nodes.c.cpus), 0)).where(*here)) or 0)


def _past(row: Mapping[str, Any]) -> JobPast:
    return JobPast(
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
        how=row["how"],
    )


def moments(connection: Connection, cluster: int, job: str) -> Sequence[Moment]:
    """What happened to a job, as far as it is kept: events, decisions, promises, breaches; in order."""
    job = plain(job)
    of = {table: (table.c.cluster == cluster, table.c.job == job) for table in _OF_A_JOB}
    said = select(events.c.time, events.c.type, events.c.body, events.c.packed).where(*of[events])
    found = [
        Moment(row.time, "event", _words(decode_event(row.type, row.body, row.packed)))
        for row in connection.execute(said)
    ]
    runs = select(decisions).where(*of[decisions], decisions.c.type == "run")
    found += [Moment(row.time, "decision", _outcome(row)) for row in connection.execute(runs)]
    tells = select(told).where(*of[told])
    found += [Moment(row.time, "told", row.why, row.start) for row in connection.execute(tells)]
    made = select(promises).where(*of[promises])
    weak = ("no later than this", "no later than this, if an assumed walltime ahead holds")
    found += [Moment(row.time, "promise", weak[row.weak], row.promised) for row in connection.execute(made)]
    broken = select(breaches).where(*of[breaches])
    found += [
        Moment(row.time, "breach", f"{row.cause}, by {row.event}", row.planned)
        for row in connection.execute(broken)
    ]
    return sorted(found, key=lambda moment: moment.time)


def _outcome(row: Any) -> str:
    code = f" (code {row.code})" if row.code is not None else ""
    return f"to be started, {row.id}: {row.outcome or 'no answer known'}{code}"


def _words(event: Event) -> str:
    if isinstance(event, JobStarted):
        return "started on " + " ".join(f"{share.node}:{share.cpus}" for share in event.shares)
    if isinstance(event, JobEnded):
        return f"ended, exit status {event.exit_status}"
    if isinstance(event, JobQueued | JobAltered):
        asked = ",".join(f"{name}={value}" for name, value in event.job.resources.items())
        return f"{event.type.removeprefix('job_')} in {event.job.queue}: {asked}"
    return event.type.removeprefix("job_").replace("_", " ")


def node_past(connection: Connection, cluster: int, node: str) -> Sequence[NodePast]:
    """What a node was since when, in order."""
    query = select(nodes).where(nodes.c.cluster == cluster, nodes.c.node == plain(node))
    return [
        NodePast(row.time, row.state, row.cpus, row.mem, row.gpus)
        for row in connection.execute(query.order_by(nodes.c.event))
    ]
