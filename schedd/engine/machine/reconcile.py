"""Reconciliation with a snapshot of the server: its credibility, and the events for all differences."""

from collections import Counter
from dataclasses import replace

from schedd.engine.component.registry import components
from schedd.engine.facts.job_requests import holds_resources
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.machine.nodes import with_known_memory
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
    QueueChanged,
    ServerChanged,
    Snapshot,
)

START_SETTLES_S = 5
"""Maximum correction of a run's start by a server, in seconds: it first reports the time of sending the job.
"""
_FEW = 5  # a loss of so few jobs or nodes is never suspicious, whatever its share
_ACCEPTED = 0  # in the place of the moment since when a loss is doubted: it is not doubted any more
_ALL_GONE_S = 3600
"""A server without any of its jobs is not believed this soon after its restart, unless an admin resumes: jobs
that count as gone lose their places and promises, and a federation sends these elsewhere.
"""


def find_doubt(state: EngineState, snapshot: Snapshot) -> str:
    """Return why the snapshot should not be believed; empty if it should.

    The age of the server is no reason: a server reads its jobs from disk before it answers, and reports
    unknown nodes as down. A large loss is accepted after snapshots have repeated it for the server's grace;
    the loss of all jobs in a restart, an hour after the restart.
    """
    settings = state.settings
    if not snapshot.complete:
        return "the reply was cut short"
    if state.lost:  # the former state is void
        state.doubted_loss = None
        return ""
    there = {job.id for job in snapshot.jobs if job.state != "C"}
    known_nodes = {name for name, facts in state.node_facts.items() if facts.cpus}
    lost: set[str] = set()
    words: list[str] = []
    for known, seen, what in (
        (state.records.keys() | state.arriving.keys(), there, "jobs"),
        (known_nodes, {node.name for node in snapshot.nodes}, "nodes"),
    ):
        gone = known - seen
        if len(gone) > _FEW and len(gone) > settings.snapshot_loss * len(known):
            lost |= {f"{what} {name}" for name in gone}
            words.append(f"{len(gone)} of {len(known)} {what}")
    if not lost:
        state.doubted_loss = None
        return ""
    since, before = state.doubted_loss if state.doubted_loss is not None else (state.now, frozenset[str]())
    # Jobs and nodes of the first loss may have ended since, but may not have returned, unless an admin
    # accepted the loss: a server that lost its jobs gives their numbers to new ones.
    known_names = {f"jobs {name}" for name in (*state.records, *state.arriving)} | {
        f"nodes {name}" for name in known_nodes
    }
    if since > _ACCEPTED and not before & known_names <= lost:
        since = state.now
    age = snapshot.server_age
    emptied = bool(state.records) and not state.records.keys() & there
    if emptied and since > _ACCEPTED and age is not None and age < _ALL_GONE_S:
        state.doubted_loss = (since, frozenset(lost))
        lacking = f"the server lacks all {len(state.records)} jobs since its restart"
        return f"{lacking}; `schedd resume` if they are gone"
    if state.now - since >= settings.server_grace:
        state.doubted_loss = None
        return ""
    state.doubted_loss = (since, frozenset(lost))
    return f"the server lacks {' and '.join(words)}"


def accept_loss(state: EngineState) -> None:
    """An admin resumes: what the last snapshot lacked is gone, if the next one lacks it, too."""
    if state.doubted_loss is not None:
        state.doubted_loss = (_ACCEPTED, state.doubted_loss[1])


def request_snapshot_again(state: EngineState, event: str) -> None:
    """Ask for a snapshot after an admin has accepted a loss."""
    if state.doubted_loss is not None and state.doubted_loss[0] == _ACCEPTED:
        state.doubted_loss = (_ACCEPTED - 1, state.doubted_loss[1])
        state.request_snapshot(event, "an admin accepted what the last one lacked")


def differences(state: EngineState, snapshot: Snapshot) -> list[Event]:
    """Return the events from the known state to the snapshot: ends, changes, arrivals."""
    at, event = snapshot.time, snapshot.id
    ends: list[Event] = []
    changes: list[Event] = []
    arrivals: list[Event] = []
    if snapshot.server != state.server:
        changes.append(ServerChanged(id=event, time=at, server=snapshot.server))
    changes += [
        QueueChanged(id=event, time=at, queue=queue)
        for queue in snapshot.queues
        if state.queues.get(queue.name) != queue
    ]
    changes += _node_changes(state, snapshot)
    for one in components():
        if one.snapshot_changes is not None:
            changes += one.snapshot_changes(state, snapshot)
    seen: set[str] = set()
    for job in snapshot.jobs:
        if job.state == "C":
            continue
        seen.add(job.id)
        record = state.records.get(job.id)
        if record is None:
            arrivals.append(JobQueued(id=event, time=at, job=job))
        else:
            changes += _job_changes(state, snapshot, record, job)
    for job_id, record in state.records.items():
        if job_id not in seen:
            gone = JobEnded if record.phase is Phase.RUNNING else JobDeleted
            ends.append(gone(id=event, time=at, job_id=job_id))
    return ends + changes + arrivals


def _node_changes(state: EngineState, snapshot: Snapshot) -> list[Event]:
    known = state.node_facts
    there = {node.name for node in snapshot.nodes}
    now = [
        node
        for node in snapshot.nodes
        if known.get(node.name) != with_known_memory(known.get(node.name), node)
    ]
    # Adjacent, so that they are taken over together.
    gone = [_absent(facts) for name, facts in known.items() if name not in there and not is_absent(facts)]
    return [NodeChanged(id=snapshot.id, time=snapshot.time, node=node) for node in now + gone]


def _absent(facts: NodeFacts) -> NodeFacts:
    """A node that the server no longer has: nothing can ever run there."""
    return replace(facts, state="down", cpus=0, gpus=0, resources={}, properties=())


def is_absent(facts: NodeFacts) -> bool:
    """Return whether the server has removed this node, which the engine keeps for the jobs that ran there."""
    return facts.state == "down" and not (facts.cpus or facts.gpus or facts.resources or facts.properties)


def is_removal(change: Event, snapshot: Snapshot) -> bool:
    """Return whether the server has removed a node, which only a snapshot can report."""
    return isinstance(change, NodeChanged) and all(change.node.name != one.name for one in snapshot.nodes)


def _job_changes(state: EngineState, snapshot: Snapshot, record: JobRecord, job: JobFacts) -> list[Event]:
    event, at = snapshot.id, snapshot.time
    if holds_resources(job):
        altered = JobAltered(id=event, time=at, job=job)
        if record.phase is Phase.RUNNING and _same_run(record, job):
            # The version is the server's affair while the job runs, and its start settles within seconds.
            known = record.facts
            return [altered] if replace(job, version=known.version, started=known.started) != known else []
        moment = job.started or at
        begun = JobStarted(id=event, time=moment, job_id=job.id, shares=job.shares, by=job.by)
        return [begun, altered]
    if record.phase is Phase.RUNNING or (
        record.phase is Phase.DISPATCHED and _failed_to_start(state, at, record, job)
    ):
        return [JobQueued(id=event, time=at, job=job)]
    return [JobAltered(id=event, time=at, job=job)] if record.facts != job else []


def _failed_to_start(state: EngineState, at: int, record: JobRecord, job: JobFacts) -> bool:
    """Return whether a job due to start did not; an outcome accepted later is still to come."""
    accepted_at = record.attempt.expires - state.settings.start_wait
    return job.starts > record.facts.starts or (record.attempt.accepted and at > accepted_at)


def _same_run(record: JobRecord, job: JobFacts) -> bool:
    """Whether this is the run that is known, by its start and its nodes."""
    held = {(share.node, share.cpus) for share in record.facts.shares}
    settles = START_SETTLES_S if job.starts == record.facts.starts else 0
    return (job.started is None or abs(job.started - record.run.started) <= settles) and (
        not job.shares or {(share.node, share.cpus) for share in job.shares} == held
    )


def format_differences(found: list[Event]) -> str:
    """The differences as a person would count them; empty when there is none."""
    counts = Counter(event.type.replace("_", " ") for event in found)
    listed = ", ".join(f"{n} x {what}" for what, n in sorted(counts.items()))
    return f"the server's state differed: {listed}" if listed else ""
