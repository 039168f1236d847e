"""Submission of jobs: from a request's attributes to an order, then to jobs (protocol document, 5 and 6)."""

from collections.abc import Iterable

from server_adapter.dis import Attribute
from server_adapter.emulator import admission
from server_adapter.emulator.dependencies import COUNTED, OF_ARRAYS, parse_depend, register, unmet_conditions
from server_adapter.emulator.errors import RefusalError, bad_value, refusal
from server_adapter.emulator.jobs import Job, JobOrder, JobState, Queue
from server_adapter.emulator.lifecycle import apply_slot_limit, release_dependents, settle
from server_adapter.emulator.state import Cluster
from server_adapter.emulator.task_requests import task_attributes
from server_adapter.torque.codes import SchedulerCommand
from server_adapter.torque.errors import TorqueErrorCode

_BOOLEANS = ("Rerunable", "fault_tolerant", "node_exclusive")
_DEFAULTS = {
    "Checkpoint": "u",
    "Join_Path": "n",
    "Keep_Files": "n",
    "Mail_Points": "a",
    "fault_tolerant": "False",
    "job_radix": "0",
}


def order_from(attributes: Iterable[Attribute], *, user: str, queue: str, script: str = "") -> JobOrder:
    """Return the order in a QueueJob request. Raises refusals 15016 and 15037."""
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
    if (tasks := plain.pop("req_information", None)) is not None:
        plain |= task_attributes(tasks)
    holds = plain.pop("Hold_Types", "n")
    try:
        priority = int(plain.pop("Priority", "0"))
        moment = plain.pop("Execution_Time", "")
        not_before = int(moment) if moment else None
    except ValueError:
        raise bad_value("Priority") from None
    return JobOrder(
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
    number, cluster.next_number = cluster.next_number, cluster.next_number + 1
    return f"{number}.{cluster.server}"


def check(cluster: Cluster, order: JobOrder, name: str, *, by_root: bool = False) -> Queue:
    """Return the queue that accepts the order as the job `name`.

    Raises refusals 15007, 15016, 15020, 15023, 15025, 15037, 15038, 15048, 15056, 15076, 15083, 15131.
    """
    if by_root:
        raise refusal(TorqueErrorCode.BADUSER, "root user root not allowed")
    wanted = order.queue or cluster.attributes["default_queue"]
    queue = cluster.queues.get(wanted)
    if queue is None:
        raise refusal(TorqueErrorCode.UNKQUE, "requested queue not found")
    admission.check_values(order.resources)
    if order.array:
        admission.array_indices(order, cluster)
        admission.array_slot_limit(order, cluster)
    admission.check_queue(queue, order)
    resources = with_defaults(cluster, order, queue)
    admission.check_amounts(cluster, queue, resources)
    if "nodes" in resources:
        admission.check_feasible(resources["nodes"], cluster.nodes)
    admission.check_limits(cluster, queue, order, name)
    for condition in parse_depend(order.depend):
        known = cluster.arrays if condition.kind in OF_ARRAYS else cluster.jobs
        if condition.kind not in COUNTED and condition.job not in known:
            raise RefusalError(TorqueErrorCode.BADDEPEND)
    return queue


def submit(cluster: Cluster, order: JobOrder, name: str | None = None) -> str:
    """Queue the order's job, or its array's subjobs; return the id, `7[].srv` for an array."""
    name = name or next_id(cluster)
    queue = check(cluster, order, name)
    resources = with_defaults(cluster, order, queue)
    if not order.array:
        enqueue(cluster, order, queue, name, resources)
        return name
    number, _, server = name.partition(".")
    array = f"{number}[].{server}"
    indices, slot_limit = admission.array_indices(order, cluster), admission.array_slot_limit(order, cluster)
    members = []
    for place, index in enumerate(indices):
        limited = slot_limit is not None and place >= slot_limit
        member = f"{number}[{index}].{server}"
        job = enqueue(cluster, order, queue, member, dict(resources), array, index, limited=limited)
        if slot_limit is not None:
            job.attributes["slot_limit"] = str(slot_limit)
        members.append(job)
    apply_slot_limit(cluster, members)
    return array


def enqueue(
    cluster: Cluster,
    order: JobOrder,
    queue: Queue,
    name: str,
    resources: dict[str, str],
    array: str | None = None,
    index: int | None = None,
    *,
    limited: bool = False,
) -> Job:
    """Add a job to the queue, held by its dependencies and, if `limited`, by its array's slot limit."""
    job = Job(
        id=name,
        order=order,
        queue=queue.name,
        created=cluster.now,
        rank=cluster.next_rank,
        resources=resources,
        state=JobState.HELD,
        holds=set(order.holds) | ({"l"} if limited else set()),
        priority=order.priority,
        queued=cluster.now,
        not_before=order.not_before,
        attributes={**_DEFAULTS, **order.extra},
        depend=order.depend,
        array=array,
        index=index,
    )
    register(job, cluster.jobs)
    cluster.next_rank += 1
    cluster.jobs[name] = job
    if array is not None:
        cluster.arrays.setdefault(array, {})[name] = job
    if any(True for _ in unmet_conditions(job, cluster.jobs)):
        job.holds.add("d")
        cluster.dependents.add(name)
    settle(cluster, job)
    job.touch(cluster.now)
    cluster.poke(SchedulerCommand.NEW)
    if job.depend:
        release_dependents(cluster)
    return job


def with_defaults(cluster: Cluster, order: JobOrder, queue: Queue) -> dict[str, str]:
    """Return the order's resources in the server's notation, with the defaults of queue and server."""
    resources = {name: admission.written(name, value) for name, value in order.resources.items()}
    _count_nodes(resources)
    anywhere = "ncpus" in resources or "procs" in resources
    for source in (queue.attributes, cluster.attributes):
        for key, value in source.items():
            name, _, resource = key.partition(".")
            if name == "resources_default" and not (resource == "nodes" and anywhere):
                resources.setdefault(resource, value)
    _count_nodes(resources)
    return resources


def _count_nodes(resources: dict[str, str]) -> None:
    nodes = resources.get("nodes")
    if nodes is not None:
        resources.setdefault("nodect", str(node_count(nodes)))
        resources.setdefault("neednodes", nodes)


def node_count(nodes: str) -> int:
    """Return the number of nodes in a `nodes=` request: `2:ppn=2+1:big` is 3."""
    total = 0
    for part in nodes.split("+"):
        first = part.split(":")[0]
        total += int(first) if first.isdecimal() else 1
    return total
