"""Admission of submissions: values, feasible nodes, limits, access lists.

The checks have the order and the texts of the real server; a refused submission still uses up a job number.
"""

import re
from collections.abc import Callable, Mapping

from server_adapter.emulator.destination import GPU_MODES
from server_adapter.emulator.errors import RefusalError, SubmissionCode, bad_value, refusal
from server_adapter.emulator.jobs import JobOrder, Queue
from server_adapter.emulator.nodes import EmulatedNode
from server_adapter.emulator.state import Cluster
from server_adapter.emulator.status_attributes import clock
from server_adapter.torque.errors import TorqueErrorCode
from server_adapter.torque.notation import kib, seconds, slots

RESOURCES = frozenset(
    [
        *("nodes", "walltime", "mem", "vmem", "pmem", "pvmem", "ncpus", "procs", "cput", "pcput", "nodect"),
        *("neednodes", "nice", "file", "host", "arch", "gpus", "mics", "naccesspolicy", "procct"),
        *("procs_bitmap", "size", "software", "other", "signal", "opsys", "trl", "advres", "qos", "feature"),
        *(
            "minwclimit",
            "x",
            "prologue",
            "epilogue",
            "gattr",
            "geometry",
            "nodeset",
            "partition",
            "gres",
            "tpn",
        ),
    ]
)
"""Resources known to the server; others are refused with 15037."""

_TIMES = ("walltime", "cput", "pcput")
_READERS: Mapping[str, Callable[[str], int]] = {
    **dict.fromkeys(_TIMES, seconds),
    **dict.fromkeys(("mem", "vmem", "pmem", "pvmem", "file"), kib),
    **dict.fromkeys(("ncpus", "procs", "nodect", "nice"), int),
}
_WORD = re.compile(r"[\w.\-/]+(=[\w.\-]+)?", re.ASCII)
_NOWHERE = (
    "cannot locate feasible nodes (nodes file is empty, all systems are busy, "
    "or no nodes have the requested feature)"
)
_MAX_ARRAY = 100_000


def check_values(resources: Mapping[str, str]) -> None:
    """Raise refusals 15016 and 15131 for malformed values, 15037 for unknown resources."""
    for name, value in resources.items():
        if name not in RESOURCES:
            raise RefusalError(TorqueErrorCode.UNKRESC, f"Unknown resource type  Resource_List.{name}")
        if name == "nodes":
            _check_syntax(value)
        elif name in _READERS:
            try:
                _READERS[name](value)
            except ValueError:
                raise bad_value(f"Resource_List.{name}") from None


def _check_syntax(nodes: str) -> None:
    for part in nodes.split("+"):
        first, *rest = part.split(":")
        if not all(_WORD.fullmatch(word) for word in (first, *rest)):
            raise bad_value("Resource_List.nodes")
        counts = [first] if first.isdecimal() else []
        counts += [word.partition("=")[2] for word in rest if word.startswith("ppn=")]
        if any(not count.isdecimal() or int(count) < 1 for count in counts):
            raise refusal(SubmissionCode.SYNTAX, "Invalid Syntax")


def check_feasible(text: str, nodes: Mapping[str, EmulatedNode]) -> None:
    """Raise refusal 15038 if a `+` part of `nodes=` can never fit.

    Like the real server: each part is checked separately, so `4+1` passes on four nodes; nodes count in any
    state.
    """
    for part in text.split("+"):
        first, *rest = part.split(":")
        count = int(first) if first.isdecimal() else 1
        gpus = next((int(word[5:]) for word in rest if re.fullmatch(r"gpus=\d{1,6}", word)), 0)
        wanted = {word for word in rest if "=" not in word and not (gpus and word.lower() in GPU_MODES)}
        per_node = next((int(word[4:]) for word in rest if word.startswith("ppn=")), 1)
        coprocessors = any(word.startswith("mics=") for word in rest)
        if not first.isdecimal() and first not in nodes:
            wanted.add(first)
        able = [
            node
            for name, node in nodes.items()
            if node.slots >= per_node
            and node.gpus >= gpus
            and wanted <= set(node.properties)
            and (first.isdecimal() or first in wanted or first == name)
        ]
        if coprocessors or len(able) < count:
            raise refusal(TorqueErrorCode.EXCQRESC, _NOWHERE)


def check_queue(queue: Queue, order: JobOrder) -> None:
    """Raise refusals 15023 and 15007 if the queue does not accept this user's jobs."""
    where = f"user {order.user}@{order.origin}, queue {queue.name}"
    if not queue.enabled:
        raise refusal(TorqueErrorCode.QUNOENB, f"queue is disabled: {where}")
    users = [user.partition("@")[0] for user in queue.attributes.get("acl_users", "").split(",")]
    if queue.attributes.get("acl_user_enable") == "True" and order.user not in users:
        raise refusal(TorqueErrorCode.PERM, f"user ACL rejected the submitting user: {where}")


def check_limits(cluster: Cluster, queue: Queue, order: JobOrder, name: str) -> None:
    """Raise refusals 15048 and 15076 for too many jobs; an array counts with all its subjobs.

    `name` is the id of the refused job.
    """
    server_most = cluster.attributes.get("max_user_queuable")
    most_here, most_each = queue.attributes.get("max_queuable"), queue.attributes.get("max_user_queuable")
    if server_most is None and most_here is None and most_each is None:
        return  # mostly: nothing to count
    new = len(array_indices(order, cluster)) if order.array else 1
    live = list(cluster.live_jobs())
    mine = sum(job.order.user == order.user for job in live)
    if server_most is not None and mine + new > int(server_most):
        detail = f"Job {name} violates the global server limit of {server_most} jobs queued per user"
        raise refusal(TorqueErrorCode.MAXQUED, detail)
    here = [job.order.user for job in live if job.queue == queue.name]
    where = f"user {order.user}@{order.origin}, queue {queue.name}"
    if most_here is not None and len(here) + new > int(most_here):
        detail = f"total number of jobs in queue exceeds the queue limit: {where}"
        raise refusal(TorqueErrorCode.MAXQUED, detail)
    if most_each is not None and here.count(order.user) + new > int(most_each):
        detail = f"total number of current user's jobs exceeds the queue limit: {where}"
        raise refusal(SubmissionCode.MAXUSERQUED, detail)


def check_queue_capacity(cluster: Cluster, queue: Queue, user: str) -> None:
    """Raise refusals 15048 and 15076, with short texts, if a queue is full for the user."""
    here = [job.order.user for job in cluster.live_jobs() if job.queue == queue.name]
    most = queue.attributes.get("max_queuable")
    if most is not None and len(here) >= int(most):
        raise RefusalError(TorqueErrorCode.MAXQUED)
    most = queue.attributes.get("max_user_queuable")
    if most is not None and here.count(user) >= int(most):
        raise RefusalError(SubmissionCode.MAXUSERQUED)


def check_amounts(cluster: Cluster, queue: Queue, resources: Mapping[str, str]) -> None:
    """Raise refusal 15038 for resources beyond the limits of the queue, else of the server."""
    for name, value in resources.items():
        for whose, attributes in (("queue", queue.attributes), ("server", cluster.attributes)):
            most = attributes.get(f"resources_max.{name}")
            if most is not None:
                if amount(value) > amount(most):
                    raise refusal(TorqueErrorCode.EXCQRESC, f"cannot satisfy {whose} max {name} requirement")
                break
        least = queue.attributes.get(f"resources_min.{name}")
        if least is not None and amount(value) < amount(least):
            raise refusal(TorqueErrorCode.EXCQRESC, f"Cannot satisfy queue min {name} requirement")


def written(name: str, value: str) -> str:
    """Format a resource's value like the server: times as `HH:MM:SS`, others unchanged."""
    return clock(seconds(value)) if name in _TIMES else value


def amount(text: str) -> int:
    """Return seconds or KiB; 0 for other text."""
    for parse in (seconds, kib):
        try:
            return parse(text)
        except ValueError:
            continue
    return 0


def array_indices(order: JobOrder, cluster: Cluster) -> tuple[int, ...]:
    """Return the indices of an array. Raises refusal 15083."""
    try:
        indices = slots(order.array.partition("%")[0])
    except ValueError:
        raise RefusalError(SubmissionCode.ARRAY) from None
    most = cluster.attributes.get("max_job_array_size")
    if most is not None and len(indices) > int(most):
        raise refusal(SubmissionCode.ARRAY, f"Requested array size too large, limit is {most}")
    if len(indices) > _MAX_ARRAY:
        raise refusal(SubmissionCode.ARRAY, f"Requested array size too large, limit is {_MAX_ARRAY}")
    return indices


def array_slot_limit(order: JobOrder, cluster: Cluster) -> int | None:
    """Return the slot limit of an array: from the request, else from the server. Raises refusal 15083."""
    text = order.array.partition("%")[2]
    most = cluster.attributes.get("max_slot_limit")
    if not text:
        return None if most is None else int(most)
    if not text.isdecimal() or int(text) < 1:
        raise bad_value("job_array_request")
    if most is not None and int(text) > int(most):
        raise refusal(SubmissionCode.ARRAY, f"Requested slot limit invalid, limit is {most}")
    return int(text)
