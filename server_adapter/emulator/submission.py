"""New jobs: a submission's attributes become an order, then jobs (protocol document, sections 5 and 6)."""

from collections.abc import Iterable

from server_adapter.dis import Attribute
from server_adapter.emulator.dependencies import parse_depend, unmet
from server_adapter.emulator.errors import RefusalError, refusal
from server_adapter.emulator.jobs import Job, Order, Queue, State
from server_adapter.emulator.lifecycle import apply_slot_limit, settle
from server_adapter.emulator.state import Cluster
from server_adapter.torque.codes import SchedulerCommand
from server_adapter.torque.errors import ServerCode
from server_adapter.torque.values import kib, seconds, slots

RESOURCES = frozenset(
    [
        "nodes",
        "walltime",
        "mem",
        "vmem",
        "pmem",
        "pvmem",
        "ncpus",
        "procs",
        "cput",
        "pcput",
        "nodect",
        "neednodes",
        "nice",
        "file",
        "host",
        "arch",
        "gpus",
        "mics",
        "naccesspolicy",
        "procct",
        "procs_bitmap",
        "size",
        "software",
        "other",
        "signal",
        "opsys",
        "trl",
        "advres",
        "qos",
        "feature",
        "x",
        "prologue",
        "epilogue",
        "gattr",
        "geometry",
        "nodeset",
        "partition",
    ]
)
"""Resources that the server knows; others are refused with 15037."""

_BOOLEANS = ("Rerunable", "fault_tolerant")
_DEFAULTS = {
    "Checkpoint": "u",
    "Join_Path": "n",
    "Keep_Files": "n",
    "Mail_Points": "a",
    "fault_tolerant": "False",
    "job_radix": "0",
}
_MAX_ARRAY = 100_000


def order_from(attributes: Iterable[Attribute], *, user: str, queue: str, script: str = "") -> Order:
    """The order in a QueueJob request. Raises refusals 15016 and 15037."""
    resources: dict[str, str] = {}
    plain: dict[str, str] = {}
    for entry in attributes:
        if entry.name == "Resource_List" and entry.resource is not None:
            resources[entry.resource] = entry.value
        else:
            plain[entry.name] = entry.value
    for name in _BOOLEANS:
        if name in plain:
            plain[name] = plain[name].capitalize()
    holds = plain.pop("Hold_Types", "n")
    try:
        priority = int(plain.pop("Priority", "0"))
        moment = plain.pop("Execution_Time", "")
        not_before = int(moment) if moment else None
    except ValueError:
        raise RefusalError(ServerCode.BADATVAL) from None
    return Order(
        user=user,
        name=plain.pop("Job_Name", "STDIN"),
        queue=queue,
        resources=resources,
        holds="" if holds == "n" else holds,
        priority=priority,
        depend=plain.pop("depend", ""),
        not_before=not_before,
        array=plain.pop("job_array_request", ""),
        rerunnable=plain.pop("Rerunable", "True") == "True",
        variables=plain.pop("Variable_List", ""),
        host=plain.get("submit_host", "localhost"),
        extra=plain,
        script=script,
    )


def next_id(cluster: Cluster) -> str:
    """Takes the next job number."""
    number, cluster.next_number = cluster.next_number, cluster.next_number + 1
    return f"{number}.{cluster.server}"


def check(cluster: Cluster, order: Order, *, by_root: bool = False) -> Queue:
    """The queue that takes the order. Raises refusals 15020, 15023, 15025, 15037, 15038, 15048, 15056."""
    if by_root:
        raise refusal(ServerCode.BADUSER, "root user root not allowed")
    queue = cluster.queue(order.queue or cluster.attributes["default_queue"])
    if not queue.enabled:
        raise RefusalError(ServerCode.QUNOENB)
    _check_limits(cluster, queue, order)
    for name in order.resources:
        if name not in RESOURCES:
            raise RefusalError(ServerCode.UNKRESC, f"Unknown resource type  Resource_List.{name}")
    for wait in parse_depend(order.depend):
        if wait.job not in cluster.jobs:
            raise refusal(ServerCode.BADDEPEND, f"cannot find job {wait.job}")
    return queue


def _check_limits(cluster: Cluster, queue: Queue, order: Order) -> None:
    for attribute, user in (("max_queuable", None), ("max_user_queuable", order.user)):
        limit = queue.attributes.get(attribute)
        if limit is not None:
            jobs = (job for job in cluster.live_jobs() if job.queue == queue.name)
            if sum(user in (None, job.order.user) for job in jobs) >= int(limit):
                raise RefusalError(ServerCode.MAXQUED)
    for name, value in order.resources.items():
        most = queue.attributes.get(f"resources_max.{name}")
        least = queue.attributes.get(f"resources_min.{name}")
        if (most is not None and _amount(value) > _amount(most)) or (
            least is not None and _amount(value) < _amount(least)
        ):
            raise RefusalError(ServerCode.EXCQRESC)


def _amount(text: str) -> int:
    for parse in (seconds, kib):
        try:
            return parse(text)
        except ValueError:
            continue
    return 0


def submit(cluster: Cluster, order: Order, name: str | None = None) -> str:
    """Queues the order's job, or its array's sub-jobs; returns the id, `7[].srv` for an array."""
    queue = check(cluster, order)
    name = name or next_id(cluster)
    if not order.array:
        _enqueue(cluster, order, queue, name, None, None)
        return name
    number, _, server = name.partition(".")
    array = f"{number}[].{server}"
    request, _, limit = order.array.partition("%")
    try:
        indices = slots(request)
        slot_limit = int(limit) if limit else None
    except ValueError:
        raise RefusalError(ServerCode.BADATVAL) from None
    if len(indices) > _MAX_ARRAY:
        raise RefusalError(ServerCode.BADATVAL)
    members = []
    for place, index in enumerate(indices):
        limited = slot_limit is not None and place >= slot_limit
        member = f"{number}[{index}].{server}"
        job = _enqueue(cluster, order, queue, member, array, index, limited=limited)
        if slot_limit is not None:
            job.attributes["slot_limit"] = str(slot_limit)
        members.append(job)
    apply_slot_limit(cluster, members)
    return array


def _enqueue(
    cluster: Cluster,
    order: Order,
    queue: Queue,
    name: str,
    array: str | None,
    index: int | None,
    *,
    limited: bool = False,
) -> Job:
    job = Job(
        id=name,
        order=order,
        queue=queue.name,
        created=cluster.now,
        rank=cluster.next_rank,
        resources=_with_defaults(cluster, order, queue),
        state=State.HELD,
        holds=set(order.holds) | ({"l"} if limited else set()),
        priority=order.priority,
        queued=cluster.now,
        not_before=order.not_before,
        attributes={**_DEFAULTS, **order.extra},
        array=array,
        index=index,
    )
    cluster.next_rank += 1
    cluster.jobs[name] = job
    if any(True for _ in unmet(job, cluster.jobs)):
        job.holds.add("d")
        cluster.dependents.add(name)
    settle(cluster, job)
    job.touch(cluster.now)
    cluster.poke(SchedulerCommand.NEW)
    for wait in parse_depend(order.depend):
        cluster.jobs[wait.job].revision += 1
    return job


def _with_defaults(cluster: Cluster, order: Order, queue: Queue) -> dict[str, str]:
    resources = dict(order.resources)
    nodes = resources.get("nodes")
    if nodes is not None:
        resources.setdefault("nodect", str(node_count(nodes)))
        resources.setdefault("neednodes", nodes)
    for source in (queue.attributes, cluster.attributes):
        for key, value in source.items():
            name, _, resource = key.partition(".")
            if name == "resources_default":
                resources.setdefault(resource, value)
    return resources


def node_count(nodes: str) -> int:
    """The nodes that a `nodes=` request names: `2:ppn=2+1:big` is 3."""
    total = 0
    for part in nodes.split("+"):
        first = part.split(":")[0]
        total += int(first) if first.isdecimal() else 1
    return total
