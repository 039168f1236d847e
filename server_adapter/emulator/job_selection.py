"""SelectJobs and SelStat: which jobs meet a request's conditions (protocol document, section 5)."""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from server_adapter.dis import Attribute, Operation, values_by_key
from server_adapter.emulator.jobs import Job
from server_adapter.emulator.principal import Principal, is_job_visible
from server_adapter.emulator.state import Cluster
from server_adapter.emulator.status_attributes import job_attributes
from server_adapter.torque.notation import kib, seconds

_COMPARE: dict[Operation, Callable[[Any, Any], bool]] = {
    Operation.SET: operator.eq,
    Operation.EQ: operator.eq,
    Operation.NE: operator.ne,
    Operation.GE: operator.ge,
    Operation.GT: operator.gt,
    Operation.LE: operator.le,
    Operation.LT: operator.lt,
}


def selected(cluster: Cluster, conditions: Sequence[Attribute], who: Principal) -> Iterator[Job]:
    """Yield the jobs that meet all conditions, in their order; finished jobs only if a condition on the state
    includes them.

    Raises refusal 15020 for an unknown queue.
    """
    for entry in conditions:
        if entry.name == "destination" and (queue := entry.value.partition("@")[0]):
            cluster.queue(queue)
    finished = any(entry.name == "job_state" and "C" in entry.value for entry in conditions)
    for job in cluster.jobs.values():
        if job.finished and not finished:
            continue
        if is_job_visible(cluster, who, job) and all(_meets(cluster, job, entry) for entry in conditions):
            yield job


def _meets(cluster: Cluster, job: Job, condition: Attribute) -> bool:
    match condition.name:
        case "destination" | "queue":
            return condition.value.partition("@")[0] in ("", job.queue)
        case "job_state":
            inside = job.state.value in condition.value
            return not inside if condition.operation is Operation.NE else inside
        case "User_List" | "euser" | "Job_Owner":
            users = {word.partition("@")[0] for word in condition.value.split(",")}
            return (job.order.user in users) is not (condition.operation is Operation.NE)
    found = values_by_key(job_attributes(cluster, job, privileged=True))
    value = found.get(condition.key)
    if value is None:
        return condition.operation is Operation.NE
    left, right = _comparable(value), _comparable(condition.value)
    if type(left) is not type(right):
        left, right = value, condition.value  # a number and a word: compare as words
    compare = _COMPARE.get(condition.operation, _COMPARE[Operation.EQ])
    return bool(compare(left, right))


def _comparable(text: str) -> int | str:
    parsers: tuple[Callable[[str], int], ...] = (int, kib, seconds)
    for parse in parsers:
        try:
            return parse(text)
        except ValueError:
            continue
    return text
