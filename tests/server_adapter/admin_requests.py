"""Requests of an administrator, by their effect (protocol document, sections 5 and 6)."""

from collections.abc import Collection, Mapping, Sequence

from server_adapter.batch.codes import ManagerCommand, ObjectType, RequestCode
from server_adapter.batch.requests import JobRequest, ManageRequest, RunRequest, SignalRequest, StatusRequest
from server_adapter.dis import Attribute, Operation


def destination(hosts: Sequence[tuple[str, int]]) -> str:
    """`node1:ppn=4+node2:ppn=4`, the one form that all versions take to mean exactly that.

    Raises `ValueError` for no hosts, no slots, or a host given twice (2.5 refuses it, 4.x and 6.x add up).
    """
    names = [name for name, _ in hosts]
    if not hosts or len(set(names)) < len(names) or any(count < 1 for _, count in hosts):
        raise ValueError(f"not a destination: {hosts!r}")
    return "+".join(f"{name}:ppn={count}" for name, count in hosts)


def status_request(code: RequestCode, name: str = "", attributes: Collection[str] = ()) -> StatusRequest:
    """Status of one or all objects; no attributes named means all."""
    return StatusRequest(code=code, name=name, attributes=tuple(map(Attribute, sorted(attributes))))


def run(job: str, hosts: Sequence[tuple[str, int]], *, asynchronous: bool = False) -> RunRequest:
    """Starts a job on these slots. An asynchronous run is answered before the mom has the job."""
    code = RequestCode.ASYNC_RUN_JOB if asynchronous else RequestCode.RUN_JOB
    return RunRequest(code=code, job=job, destination=destination(hosts))


def alter(job: str, values: Mapping[str, str | None]) -> ManageRequest:
    """Sets a job's attributes by `name` or `name.resource`; None unsets.

    Always the synchronous request: 6.1-dev crashes under many asynchronous ones (protocol document, 8).
    """
    return _job(RequestCode.MODIFY_JOB, job, [_entry(key, value) for key, value in values.items()])


def hold(job: str, letters: str = "u") -> ManageRequest:
    """Holds a job: `u` for its user, `o` for operators, `s` for the system."""
    return _job(RequestCode.HOLD_JOB, job, [Attribute("Hold_Types", letters)])


def release(job: str, letters: str = "u") -> ManageRequest:
    """Takes holds away."""
    return _job(RequestCode.RELEASE_JOB, job, [Attribute("Hold_Types", letters)])


def delete(job: str) -> ManageRequest:
    """Deletes a job, killing it if it runs."""
    return _job(RequestCode.DELETE_JOB, job, [], ManagerCommand.DELETE)


def requeue(job: str) -> JobRequest:
    """Kills a running job and queues it again."""
    return JobRequest(code=RequestCode.RERUN, job=job)


def signal(job: str, name: str) -> SignalRequest:
    """Sends a signal to a running job."""
    return SignalRequest(code=RequestCode.SIGNAL_JOB, job=job, signal=name)


def set_server(values: Mapping[str, str | None]) -> ManageRequest:
    """Sets the server's attributes."""
    return _manager(ObjectType.SERVER, "", [_entry(key, value) for key, value in values.items()])


def set_queue(name: str, values: Mapping[str, str | None]) -> ManageRequest:
    """Sets a queue's attributes."""
    return _manager(ObjectType.QUEUE, name, [_entry(key, value) for key, value in values.items()])


def set_node_offline(name: str, offline: bool) -> ManageRequest:
    """Takes a node out of service, or back."""
    operation = Operation.INCR if offline else Operation.DECR
    return _manager(ObjectType.NODE, name, [Attribute("state", "offline", operation=operation)])


def set_node_note(name: str, note: str) -> ManageRequest:
    """Writes a node's note."""
    return _manager(ObjectType.NODE, name, [Attribute("note", note)])


def _job(
    code: RequestCode,
    job: str,
    attributes: Sequence[Attribute],
    command: ManagerCommand = ManagerCommand.SET,
) -> ManageRequest:
    return ManageRequest(
        code=code, command=command, object_type=ObjectType.JOB, name=job, attributes=tuple(attributes)
    )


def _manager(kind: ObjectType, name: str, attributes: Sequence[Attribute]) -> ManageRequest:
    return ManageRequest(
        code=RequestCode.MANAGER,
        command=ManagerCommand.SET,
        object_type=kind,
        name=name,
        attributes=tuple(attributes),
    )


def _entry(key: str, value: str | None) -> Attribute:
    name, dot, resource = key.partition(".")
    operation = Operation.SET if value is not None else Operation.UNSET
    return Attribute(name, value or "", resource if dot else None, operation)
