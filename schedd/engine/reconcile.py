"""A snapshot against what was believed: is it credible, and what follows from the differences."""

from collections import Counter
from dataclasses import replace

from schedd.engine.records import JobRecord, Phase
from schedd.engine.state import EngineState
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

__all__ = ["differences", "doubt", "in_words"]

_FEW = 5
"""A loss of so few jobs or nodes is never suspicious, whatever its share."""


def doubt(state: EngineState, snapshot: Snapshot) -> str:
    """Why the snapshot should not be believed; empty when it should.

    A large loss is believed after all when snapshots insist on it for the server's grace.
    """
    settings = state.settings
    if not snapshot.complete:
        return "the reply was cut short"
    if snapshot.server_age is not None and snapshot.server_age < settings.server_grace:
        return f"the server is up for only {snapshot.server_age} s (grace {settings.server_grace} s)"
    jobs = frozenset(state.records) - {job.id for job in snapshot.jobs if job.state != "C"}
    nodes = frozenset(state.plan.nodes) - {node.name for node in snapshot.nodes}
    for lost, known, what in ((jobs, len(state.records), "jobs"), (nodes, len(state.plan.nodes), "nodes")):
        if len(lost) > _FEW and len(lost) > settings.snapshot_loss * known:
            since = state.doubted[0] if state.doubted is not None and state.doubted[1] == lost else state.now
            if state.now - since >= settings.server_grace:
                continue
            state.doubted = (since, lost)
            return f"it lacks {len(lost)} of {known} {what}"
    state.doubted = None
    return ""


def differences(state: EngineState, snapshot: Snapshot) -> list[Event]:
    """The events that lead from what was believed to what the snapshot says: ends, changes, arrivals."""
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
    known_nodes = state.node_facts
    changes += [
        NodeChanged(id=event, time=at, node=node)
        for node in snapshot.nodes
        if known_nodes.get(node.name) != node
    ]
    there = {node.name for node in snapshot.nodes}
    changes += [
        NodeChanged(id=event, time=at, node=_absent(facts))
        for name, facts in known_nodes.items()
        if name not in there and facts.state != "down"
    ]
    seen: set[str] = set()
    for job in snapshot.jobs:
        if job.state == "C":
            continue
        seen.add(job.id)
        record = state.records.get(job.id)
        if record is None:
            arrivals.append(JobQueued(id=event, time=job.started or at, job=job))
        else:
            changes += _job_changes(event, at, record, job)
    for job_id, record in state.records.items():
        if job_id not in seen:
            gone = JobEnded if record.phase is Phase.RUNNING else JobDeleted
            ends.append(gone(id=event, time=at, job_id=job_id))
    return ends + changes + arrivals


def _absent(facts: NodeFacts) -> NodeFacts:
    return replace(facts, state="down")


def _job_changes(event: str, at: int, record: JobRecord, job: JobFacts) -> list[Event]:
    if job.state in ("R", "E"):
        if record.phase is not Phase.RUNNING or not _same_run(record, job):
            return [JobStarted(id=event, time=job.started or at, job_id=job.id, shares=job.shares)]
        return []
    if record.phase is Phase.RUNNING:
        return [JobQueued(id=event, time=at, job=job)]
    if record.phase is Phase.DISPATCHED:
        return []  # the outcome of the decision is still to come
    if record.facts != job:
        return [JobAltered(id=event, time=at, job=job)]
    return []


def _same_run(record: JobRecord, job: JobFacts) -> bool:
    """Whether this is the run that is known, by its start."""
    return job.started is None or job.started == record.started


def in_words(found: list[Event]) -> str:
    """The differences as a person would count them."""
    counts = Counter(event.type.replace("_", " ") for event in found)
    return "the server's state differed: " + ", ".join(f"{n} x {what}" for what, n in sorted(counts.items()))
