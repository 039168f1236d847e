"""Submission of jobs to the emulated OpenPBS: attributes, arrays with subjobs, jobs of reservations."""

import re
from collections.abc import Iterable
from dataclasses import replace

from server_adapter.dis import Attribute
from server_adapter.emulator import submission
from server_adapter.emulator.errors import RefusalError
from server_adapter.emulator.jobs import Job, JobOrder, Queue
from server_adapter.emulator.openpbs import select_statements
from server_adapter.emulator.openpbs.state import PbsCluster
from server_adapter.emulator.status_attributes import clock
from server_adapter.openpbs.codes import OpenPBSErrorCode
from server_adapter.openpbs.notation import index_ranges, select, subjob, unquote
from server_adapter.torque.notation import seconds

_WORD = re.compile(r"<jsdl-hpcpa:\w+>(.*?)</jsdl-hpcpa:\w+>")
_ON_ARRAY = re.compile(r"(after\w*):([^,]*)")
_FOR_MANAGERS = "partition"  # a resource of the server that users may not request


def order_from(attributes: Iterable[Attribute], *, user: str, queue: str, host: str, script: str) -> JobOrder:
    """Return the order in a QueueJob request. Raises refusal 15014."""
    found = [
        replace(entry, name="job_array_request") if entry.name == "array_indices_submitted" else entry
        for entry in attributes
    ]
    order = submission.order_from(found, user=user, queue=queue, script=script)
    named = order.extra.get("executable", "")
    words = [_WORD.sub(r"\1", named), *_WORD.findall(order.extra.get("argument_list", ""))]
    # A submission without a script has an executable: its sleep time comes from the arguments.
    program = " ".join(word for word in words if word)
    return replace(order, script=script or program, host=host, origin=host)


def submit(cluster: PbsCluster, order: JobOrder, name: str | None = None) -> str:
    """Queue the order's job, or its array; return the id, `7[].srv` for an array.

    Raises refusals 15007, 15014, 15018, 15021, 15023, 15035, 15036, 15046, 15054, 15107.
    """
    name = name or submission.next_id(cluster)
    queue = _queue(cluster, order)
    resources = full_resources(cluster, order, queue)
    order = replace(order, depend=_ON_ARRAY.sub(_on_arrays, order.depend))
    if not order.array:
        _enter(cluster, order, queue, name, resources)
        return name
    number, _, server = name.partition(".")
    array = f"{number}[].{server}"
    for index in _indices(cluster, order):
        _enter(cluster, order, queue, subjob(array, index), dict(resources), array, index)
    return array


def full_resources(cluster: PbsCluster, order: JobOrder, queue: Queue) -> dict[str, str]:
    """Return the order's complete Resource_List. Raises refusals 15014, 15035."""
    for name, value in order.resources.items():
        check_value(cluster, name, value)
    types = select_statements.resource_types(cluster)
    given = {types.spelled(name): written(name, value) for name, value in order.resources.items()}
    defaults: dict[str, str] = {}
    for source in (cluster.attributes, queue.attributes):
        for key, value in source.items():
            word, _, resource = key.partition(".")
            if word == "resources_default" and resource:
                defaults[resource] = value
    if "max_walltime" in given and "min_walltime" not in given:
        raise RefusalError(OpenPBSErrorCode.MAX_NO_MINWT, 'Cannot have "max_walltime" without "min_walltime"')
    if "max_walltime" in given and seconds(given["min_walltime"]) > seconds(given["max_walltime"]):
        raise RefusalError(
            OpenPBSErrorCode.MIN_GT_MAXWT, '"min_walltime" can not be greater than "max_walltime"'
        )
    if order.array and "min_walltime" in given:
        text = '"min_walltime" and "max_walltime" are not valid resources for a job array'
        raise RefusalError(OpenPBSErrorCode.NOSTF_JOBARRAY, text)
    try:
        return select_statements.complete(cluster, given, defaults)
    except ValueError:
        raise RefusalError(
            OpenPBSErrorCode.BADATVAL, "Illegal attribute or resource value Resource_List.select"
        ) from None


def check_value(cluster: PbsCluster, name: str, value: str) -> None:
    """Raise refusal 15035 (unknown resource), 15003 (the server's own) or 15014 (invalid value)."""
    if name.lower() == _FOR_MANAGERS:
        text = f"Cannot set attribute, read only or insufficient permission  Resource_List.{name}"
        raise RefusalError(OpenPBSErrorCode.ATTRRO, text)
    if not select_statements.is_known(cluster, name):
        raise RefusalError(OpenPBSErrorCode.UNKRESC, f"Unknown resource Resource_List.{name}")
    name = select_statements.resource_types(cluster).spelled(name)
    try:
        if name == "select":
            _check_chunks(cluster, value)
        elif name == "place":
            select_statements.check_place(value)
            _check_group(cluster, value)
        elif name in select_statements.TIMES:
            seconds(value)
        elif not select_statements.is_value(cluster, name, value):
            raise ValueError(value)
    except ValueError:
        text = f"Illegal attribute or resource value Resource_List.{name}"
        raise RefusalError(OpenPBSErrorCode.BADATVAL, text) from None


def _check_group(cluster: PbsCluster, place: str) -> None:
    """Raise refusal 15100 for a `group=` on a resource that is not a string."""
    groups = [word.partition("=")[2] for word in place.split(":") if word.startswith("group=")]
    types = select_statements.resource_types(cluster)
    if any(types.resource_type(name) not in ("string", "string_array") for name in groups):
        text = "Resource is not of type string or array_of_strings Resource_List.place"
        raise RefusalError(OpenPBSErrorCode.RESCNOTSTR, text)


def _check_chunks(cluster: PbsCluster, text: str) -> None:
    for _, asked in select(text):
        for name, value in asked.items():
            if not select_statements.is_known(cluster, name):
                raise RefusalError(OpenPBSErrorCode.UNKRESC, f"Unknown resource: {name}")
            if not select_statements.is_value(cluster, name, unquote(value)):
                raise ValueError(value)


def written(name: str, value: str) -> str:
    """Format a resource's value like the server."""
    name = name.lower()
    return clock(seconds(value)) if name in select_statements.TIMES else value


def _queue(cluster: PbsCluster, order: JobOrder) -> Queue:
    if order.user == "root" and "acl_roots" not in cluster.attributes:
        raise RefusalError(OpenPBSErrorCode.BADUSER, "Bad UID for job execution")
    name = order.queue.partition("@")[0] or cluster.attributes.get("default_queue", "")
    queue = cluster.queues.get(name)
    if queue is None:
        raise RefusalError(OpenPBSErrorCode.UNKQUE, "Unknown queue")
    if not queue.enabled:
        raise RefusalError(OpenPBSErrorCode.QUNOENB, "Queue is not enabled")
    users = [user.partition("@")[0] for user in queue.attributes.get("acl_users", "").split(",")]
    if queue.attributes.get("acl_user_enable") == "True" and order.user not in users:
        raise RefusalError(OpenPBSErrorCode.PERM, "Unauthorized Request ")
    return queue


def _indices(cluster: PbsCluster, order: JobOrder) -> list[int]:
    try:
        found = [one for part in index_ranges(order.array) for one in part]
    except ValueError:
        raise RefusalError(
            OpenPBSErrorCode.BADATVAL, "Illegal attribute or resource value for array_indices_submitted"
        ) from None
    if len(found) > int(cluster.attributes.get("max_array_size", "10000")):
        raise RefusalError(OpenPBSErrorCode.MAXARRAYSIZE, "Array job exceeds server or queue size limit")
    return found


def _enter(
    cluster: PbsCluster,
    order: JobOrder,
    queue: Queue,
    name: str,
    resources: dict[str, str],
    array: str | None = None,
    index: int | None = None,
) -> None:
    job: Job = submission.enqueue(cluster, order, queue, name, resources, array, index)
    for torque_only in ("fault_tolerant", "job_radix"):
        job.attributes.pop(torque_only, None)
    job.attributes.setdefault("project", "_pbs_project_default")
    held = next((one for one in cluster.reservations.values() if one.queue == queue.name), None)
    if held is not None:
        job.attributes["reserve_ID"] = held.id


def _on_arrays(found: re.Match[str]) -> str:
    """Convert conditions on arrays to conditions on each of their subjobs."""
    kind, jobs = found.groups()
    return f"{kind}array:{jobs}" if "[]" in jobs else f"{kind}:{jobs}"
