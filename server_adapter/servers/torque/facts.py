"""Converts objects of a TORQUE server to the daemon's facts: one pure function for each type.

Only attributes that the plan needs are read. A malformed attribute counts as absent, so that one odd value
never hides an object (protocol document, section 6).
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

from schedd.wire import JobFacts, NodeFacts, QueueFacts, ServerFacts, ShareFacts
from schedd.wire.facts import JobLetter, NodeStateName
from schedd.wire.job_extensions import extension_resources
from server_adapter.bridge.facts import (
    ACTIVE,
    Ending,
    Values,
    parse_count,
    parse_number,
    parse_or,
    parse_time,
    request_version,
    submission_attributes,
)
from server_adapter.bridge.lost_runs import NodeReport
from server_adapter.bridge.state import NOTHING_WRITTEN, FactParsers, WrittenAttributes
from server_adapter.torque import notation as read
from server_adapter.torque.gpu_status import common_types, parse_gpu_status
from server_adapter.torque.task_requests import task_request

JOB_ATTRIBUTES: Final = (
    "Job_Name",
    "Job_Owner",
    "job_state",
    "queue",
    "euser",
    "egroup",
    "Account_Name",
    "ctime",
    "qtime",
    "etime",
    "Priority",
    "Hold_Types",
    "Execution_Time",
    "depend",
    "exec_host",
    "exec_gpus",
    "Resource_List",
    "req_information",
    "request_version",
    "node_exclusive",
    "start_time",
    "start_count",
    "exit_status",
    "Rerunable",
    "Checkpoint",
    "comp_time",
    "comment",
    "job_array_id",
    "job_array_request",
    "array_slot_limit",
    "x",
    "planned_start",
    "planned_nodes",
)
"""Attributes requested for every job, if the server knows them."""

_STATES: Final[Mapping[str, JobLetter]] = {
    "Q": "Q",
    "H": "H",
    "W": "W",
    "T": "T",
    "R": "R",
    "E": "R",
    "S": "S",
}

_KNOWN_STATES: Final = frozenset(
    {
        *("free", "offline", "down", "reserve", "job-exclusive", "job-sharing", "busy", "time-shared"),
        *("unknown", "state-unknown", "MOM-list-not-sent"),
    }
)
_DOWN: Final = frozenset({"down", "unknown", "state-unknown", "MOM-list-not-sent"})
"""The last one is of a new node: the server has not sent it the list of all nodes yet."""

_RESOURCE: Final = "Resource_List."
_SUFFIX: Final = re.compile(r"(:\d+(?:\[\d*\])?)\.[^:,@]+(?=[:,]|$)")  # the server's name of a job's id
_DEFAULT: Final = "resources_default."
_LIMITS: Final = ("max_", "resources_max.", "resources_min.", "resources_available.")
_HOLDS: Final = frozenset("uosla")
_NO_HOSTS: Final[tuple[tuple[str, int], ...]] = ()
_LEFT_OUT: Final = frozenset({"neednodes"})  # the server's own working copy of nodes


def job_facts(name: str, values: Values) -> JobFacts:
    """Return the facts of a job that is not complete.

    An exiting job (E) that ran still holds its nodes and counts as running. A held job without a hold letter
    is held by its array's slot limit (4.2): hold `l`. For a queued job, `start_time` is a written plan, never
    a start.
    """
    get = values.get
    # An unknown state may hold resources. A job that has none waits, and is not started.
    state = _STATES.get(get("job_state", ""), "R" if get("exec_host") else "T")
    if get("job_state") == "E" and not get("exec_host"):
        state = "T"  # deleted in its queue, as by a failed dependency: it leaves, and never ran
    active = state in ACTIVE
    holds = "".join([letter for letter in get("Hold_Types", "") if letter in _HOLDS])
    if state == "H" and not holds:
        holds = "l"
    resources = {
        key[14:]: value
        for key, value in values.items()
        if key.startswith(_RESOURCE) and key[14:] not in _LEFT_OUT
    }
    if "x" in values:
        resources = {**extension_resources(values["x"]), **resources}
    if "feature" in resources:
        resources["feature"] = _features(resources["feature"])
    if tasks := task_request(values):
        resources["tasks"] = tasks
    barred = state == "W" or holds not in ("", "l")
    queue, depend = get("queue", ""), get("depend", "")
    if "." not in name:  # display_job_server_suffix = False: ids lack the suffix that dependencies have
        depend = _SUFFIX.sub(r"\1", depend)
    not_before, starts = parse_time(get("Execution_Time")), max(0, parse_number(get("start_count")) or 0)
    exclusive = parse_or(read.flag, get("node_exclusive"), default=False)
    return JobFacts(
        id=name,
        owner=get("euser") or get("Job_Owner", "").partition("@")[0],
        queue=queue,
        submitted=parse_time(get("ctime")) or parse_time(get("qtime")) or 0,
        state=state,
        resources=resources,
        name=get("Job_Name", ""),
        group=get("egroup", ""),
        account=get("Account_Name", ""),
        project=get("project", ""),
        priority=parse_number(get("Priority")) or 0,
        eligible=None if barred and not active else parse_time(get("etime")),
        not_before=not_before,
        holds=holds,
        depend=depend,
        array=array_id(name) if "job_array_id" in values else "",
        slot_limit=_slot_limit(values) if "job_array_id" in values else None,
        exclusive=exclusive,
        started=parse_time(get("start_time")) if active else None,
        shares=shares(values) if active else (),
        starts=starts,
        rerunnable=parse_or(read.flag, get("Rerunable"), default=True),
        checkpoint=get("Checkpoint", ""),
        exit_status=parse_number(get("exit_status")) if starts and not active else None,
        version=request_version(queue, depend, not_before, exclusive, starts, resources),
    )


def ending(values: Values) -> Ending:
    """A job in state C."""
    held = shares(values)
    return Ending(
        exit_status=parse_number(values.get("exit_status")),
        completed=parse_time(values.get("comp_time")),
        started=parse_time(values.get("start_time")) if held else None,
        starts=max(0, parse_number(values.get("start_count")) or 0),
        shares=held,
    )


def shares(values: Values) -> tuple[ShareFacts, ...]:
    """Return the shares in `exec_host` and `exec_gpus` by node, without memory."""
    hosts = parse_or(read.exec_host, values.get("exec_host"), default=_NO_HOSTS)
    gpus: Counter[str] = Counter()
    for part in values.get("exec_gpus", "").split("+"):
        node, dash, _ = part.partition("-gpu/")
        if dash:
            gpus[node] += 1
    return tuple([ShareFacts(node, slots, gpus=gpus[node]) for node, slots in hosts])


def node_facts(name: str, values: Values, before: NodeFacts | None = None) -> NodeFacts:
    """Return a node's facts; a silent node's unreported memory is that of `before`."""
    report = read.node_status(values.get("status", ""))
    devices = parse_gpu_status(values.get("gpu_status", ""))
    unusable = sum(not device.usable for device in devices)
    mem = parse_or(read.kib, report.get("physmem"), default=0)
    vmem = parse_or(read.kib, report.get("totmem"), default=0)
    return NodeFacts(
        name=name,
        cpus=parse_count(values.get("np")),
        state=node_state(values.get("state", "")),
        mem=mem or (before.mem if before else 0),
        vmem=vmem or (before.vmem if before else 0),
        gpus=max(0, parse_count(values.get("gpus")) - unusable),
        unusable={"gpus": min(unusable, parse_count(values.get("gpus")))} if unusable else {},
        resources=_amounts(report.get("gres", "")),
        properties=tuple(
            dict.fromkeys([*read.split_list(values.get("properties", "")), *common_types(devices)])
        ),
    )


def node_report(values: Values) -> NodeReport | None:
    """Return the mom's own list of its jobs; None if it has not reported one."""
    status = values.get("status", "")
    at, jobs = parse_time(read.node_status(status).get("rectime")), read.mom_jobs(status)
    return None if at is None or jobs is None else NodeReport(at, jobs)


def queue_facts(name: str, values: Values) -> QueueFacts:
    """Return the facts of a queue. A routing queue executes no jobs: it counts as stopped, and has routes."""
    routes = [route.strip() for route in values.get("route_destinations", "").split(",")]
    executes = values.get("queue_type", "E").lower().startswith("e")
    return QueueFacts(
        name=name,
        started=executes and parse_or(read.flag, values.get("started"), default=False),
        enabled=parse_or(read.flag, values.get("enabled"), default=False),
        priority=parse_number(values.get("Priority")) or 0,
        defaults=_with_features(_group(values, _DEFAULT), values.get("features_required", "")),
        limits=_limits(values),
        routes=() if executes else tuple([route for route in routes if route]),
        attributes=submission_attributes(values),
    )


def _features(text: str) -> str:
    """Return the features of a job, each once, as `a:b`.

    4.2.10 appends its queue's `features_required` after a comma, and once more at each alteration of the job,
    also of its comment.
    """
    return ":".join(dict.fromkeys(name.strip() for name in re.split("[:,]", text) if name.strip()))


def _with_features(defaults: dict[str, str], required: str) -> dict[str, str]:
    """Return a queue's defaults, `features_required` as properties in `neednodes`."""
    features = [feature.strip() for feature in required.split(",") if feature.strip()]
    if not features:
        return defaults
    needed = [defaults["neednodes"]] if "neednodes" in defaults else []
    return {**defaults, "neednodes": ":".join([*needed, *features])}


def server_facts(values: Values) -> ServerFacts:
    return ServerFacts(
        scheduling=parse_or(read.flag, values.get("scheduling"), default=False),
        open=parse_or(read.flag, values.get("query_other_jobs"), default=False),
        version=values.get("pbs_version", ""),
        family="torque",
        defaults=_group(values, _DEFAULT),
        limits=_limits(values),
        attributes={**submission_attributes(values), **_kill_delay(values)},
    )


def _kill_delay(values: Values) -> dict[str, str]:
    """Return the server's `kill_delay`, if it has one: its jobs cannot be requeued for others."""
    delay = values.get("kill_delay", "")
    return {"kill_delay": delay} if parse_number(delay) else {}


def array_id(name: str) -> str:
    """Return the array of a subjob: `9[].server` for `9[3].server`."""
    head, bracket, rest = name.partition("[")
    return head + "[]" + rest.partition("]")[2] if bracket else ""


def _slot_limit(values: Values) -> int | None:
    """Return the slot limit of the job's array: the current setting, else the request (`0-99%10`)."""
    _, percent, asked = values.get("job_array_request", "").rpartition("%")
    limit = parse_number(values.get("array_slot_limit")) or parse_number(asked if percent else None)
    return limit if limit is not None and limit > 0 else None


def unknown_node_states(text: str) -> set[str]:
    """Return the words of a node's state that this version does not know."""
    return {*read.split_list(text)} - _KNOWN_STATES


def is_known_job_state(letter: str) -> bool:
    """Return whether this version knows the state of a job."""
    return letter in _STATES or letter == "C"


def node_state(text: str) -> NodeStateName:
    """Return the state of a node: up, drain or down. A node in an unknown state gets no new jobs."""
    states = read.split_list(text)
    if not states or _DOWN.intersection(states):
        return "down"
    is_closed = "offline" in states or "reserve" in states or unknown_node_states(text)
    return "drain" if is_closed else "up"


def _amounts(text: str) -> dict[str, int]:
    """Parse the generic resources of a mom, `matlab:2+scratch:100`; only whole numbers are returned."""
    found: dict[str, int] = {}
    for part in text.split("+"):
        name, _, amount = part.replace("=", ":").partition(":")
        if name and amount.isdecimal() and (count := parse_number(amount)) is not None:
            found[name] = count
    return found


def _group(values: Values, prefix: str) -> dict[str, str]:
    return {key[len(prefix) :]: value for key, value in values.items() if key.startswith(prefix)}


def _limits(values: Values) -> dict[str, str]:
    return {key: value for key, value in values.items() if key.startswith(_LIMITS)}


def is_over(values: Values) -> bool:
    """Return whether a listed job is complete."""
    return values.get("job_state") == "C"


def writing(values: Values) -> WrittenAttributes:
    """Return the attributes written on a job; `start_time` counts only while the job does not run."""
    comment, nodes = values.get("comment", ""), values.get("planned_nodes", "")
    waits = values.get("job_state") not in ACTIVE
    start = parse_time(values.get("start_time")) if waits else None
    planned = parse_time(values.get("planned_start"))
    if not comment and not nodes and start is None and planned is None:
        return NOTHING_WRITTEN
    return WrittenAttributes(comment, start, planned, nodes)


FACT_PARSERS: Final = FactParsers(
    job=job_facts,
    is_over=is_over,
    ending=ending,
    writing=writing,
    node=node_facts,
    queue=queue_facts,
    server=server_facts,
    report=node_report,
)
