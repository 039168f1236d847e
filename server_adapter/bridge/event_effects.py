"""Effects of events on a state: the inverse of `diff`."""

from collections.abc import Iterable
from dataclasses import replace

from schedd.wire import (
    Event,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobHeld,
    JobQueued,
    JobReleased,
    JobStarted,
    NodeChanged,
    QueueChanged,
    Reserve,
    ServerChanged,
    Snapshot,
    Unreserve,
)
from server_adapter.bridge.facts import job_version
from server_adapter.bridge.state import ServerReservation, ServerState


def hold(job: JobFacts, holds: str) -> JobFacts:
    """The job after JobHeld."""
    return replace(job, holds=holds, state="H", eligible=job.eligible if holds == "l" else None)


def release(job: JobFacts, time: int) -> JobFacts:
    """Return the job after JobReleased: queued and eligible (a slot limit's hold did not end eligibility)."""
    return replace(job, holds="", state="Q", eligible=job.eligible if job.holds == "l" else time)


def start(job: JobFacts, event: JobStarted) -> JobFacts:
    """Return the job after JobStarted: with one more start, on these shares."""
    started = replace(
        job, state="R", started=event.time, shares=event.shares, starts=job.starts + 1, by=event.by
    )
    return replace(started, version=job_version(started))


def apply(state: ServerState, events: Iterable[Event]) -> ServerState:
    """Return the state after the events. Raises KeyError for an event about an unknown job."""
    jobs, nodes, queues, server = dict(state.jobs), dict(state.nodes), dict(state.queues), state.server
    reservations = dict(state.reservations)
    for event in events:
        match event:
            case JobQueued() | JobAltered():
                jobs[event.job.id] = event.job
            case JobHeld():
                jobs[event.job_id] = hold(jobs[event.job_id], event.holds)
            case JobReleased():
                jobs[event.job_id] = release(jobs[event.job_id], event.time)
            case JobStarted():
                jobs[event.job_id] = start(jobs[event.job_id], event)
            case JobEnded() | JobDeleted():
                del jobs[event.job_id]
            case NodeChanged():
                nodes[event.node.name] = event.node
            case QueueChanged():
                queues[event.queue.name] = event.queue
            case Reserve():
                reservations[event.name] = _reservation(event)
            case Unreserve():
                for queue in reservations.pop(event.name).queues:
                    queues.pop(queue, None)
            case ServerChanged():
                server = event.server
            case Snapshot():
                jobs = {job.id: job for job in event.jobs}
                nodes = {node.name: node for node in event.nodes}
                queues = {queue.name: queue for queue in event.queues}
                server = event.server
                if event.reservations is not None:
                    reservations = {one.name: _reservation(one) for one in event.reservations}
            case _:
                pass
    return ServerState(jobs=jobs, nodes=nodes, queues=queues, server=server, reservations=reservations)


def _reservation(event: Reserve) -> ServerReservation:
    end = event.start if event.end is None else event.end
    return ServerReservation(event.start, end, event.nodes, event.queues, event.shares)
