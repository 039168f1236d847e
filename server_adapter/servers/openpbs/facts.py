"""Converts objects of an OpenPBS server to the daemon's facts: one pure function for each type.

A malformed attribute counts as absent, so that one odd value never hides an object.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from schedd.wire import (
    NO_TYPES,
    JobFacts,
    NodeFacts,
    QueueFacts,
    ResourceFacts,
    ResourceTypes,
    ServerFacts,
    ShareFacts,
)
from schedd.wire.bounds import AMOUNT_END, CORES_END, bounded
from schedd.wire.facts import JobLetter, NodeStateName
from schedd.wire.resources import OF_QUEUE, RESERVATION, SORT_PRIORITY
from server_adapter.batch.status_objects import DescribedObject
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
from server_adapter.bridge.state import NOTHING_WRITTEN, FactParsers, WrittenAttributes
from server_adapter.openpbs.notation import (
    VnodePiece,
    boolean,
    exec_vnode,
    kib,
    parse_amount,
    select,
    split_chunks,
)

FAMILY: Final = "openpbs"

JOB_ATTRIBUTES: Final = (
    "job_state",
    "substate",
    "queue",
    "Job_Name",
    "Job_Owner",
    "euser",
    "egroup",
    "Account_Name",
    "project",
    "Priority",
    "ctime",
    "qtime",
    "etime",
    "stime",
    "Hold_Types",
    "Execution_Time",
    "depend",
    "exec_vnode",
    "Resource_List",
    "schedselect",
    "run_count",
    "comment",
    "estimated",
    "array",
    "array_id",
    "array_indices_submitted",
    "array_indices_remaining",
    "max_run_subjobs",
    "reserve_ID",
    "Exit_status",
    "Rerunable",
    "Checkpoint",
    "resources_released",
    "obittime",
    "history_timestamp",
)
"""Attributes requested for every job."""

SOFT_WALLTIME: Final = "soft_walltime"  # pbs_sched plans a job with this estimate of its run time

_STATES: Final[Mapping[str, JobLetter]] = {
    "Q": "Q",
    "H": "H",
    "W": "W",
    "T": "T",
    "R": "R",
    "E": "R",
    "S": "S",
    "U": "S",
}
_MOVED: Final = "M"
_OVER: Final = frozenset({"F", "X", _MOVED})
_HOLDS: Final = frozenset("uosp")
_DOWN: Final = frozenset({"down", "Stale", "state-unknown", "unknown", "unresolvable"})
_DRAIN: Final = frozenset({"offline", "provisioning", "wait-provisioning", "sleep", "maintenance"})
_KNOWN_STATES: Final = _DOWN | _DRAIN | {"free", "busy", "job-busy", "job-exclusive", "resv-exclusive"}
_RESOURCE: Final = "Resource_List."
AVAILABLE: Final = "resources_available."  # prefix of the resources of a vnode
ASSIGNED: Final = "resources_assigned."  # prefix of the resources held by jobs
UNUSABLE: Final = "resources_unusable."  # prefix of the resources of a host's vnodes that are not up, our own
_DEFAULT: Final = "resources_default."
_LIMITS: Final = ("max_", "resources_max.", "resources_min.", "resources_available.", "queued_jobs_threshold")
_NOT_AMOUNTS: Final = frozenset({"ncpus", "mem", "vmem", "ngpus", "host", "vnode"})
_PLAN_NAMES: Final = {"ncpus": "cpus", "ngpus": "gpus"}  # other resources keep their names
SHARED: Final = "default_shared"  # `sharing` of a vnode without a setting
_NO_CHUNKS: Final[list[list[VnodePiece]]] = []


def job_facts(name: str, values: Values, types: ResourceTypes = NO_TYPES) -> JobFacts:
    """Return the facts of a job that has not ended. An exiting job (E) still holds its vnodes and counts as
    running.

    Its resource `schedselect` is the server's select with all defaults. A job of a reservation requests the
    reservation's vnodes in each chunk (`resv=R12`). Resource names are converted to the server's spelling
    (`types`).
    """
    get = values.get
    # An unknown state may hold resources. A job that has none waits, and is not started.
    state = _STATES.get(get("job_state", ""), "R" if get("exec_vnode") else "T")
    active = state in ACTIVE
    holds = "".join([letter for letter in get("Hold_Types", "") if letter in _HOLDS])
    resources = {types.spelled(key[14:]): value for key, value in values.items() if key.startswith(_RESOURCE)}
    if wrote_length(values):
        del resources[SOFT_WALLTIME]
    if "select" in resources:
        resources["select"] = types.spelled_select(resources["select"])
    if schedselect := types.spelled_select(get("schedselect", "")):
        reservation = get("reserve_ID", "").partition(".")[0]
        resources["schedselect"] = (
            _inside_reservation(schedselect, reservation) if reservation else schedselect
        )
    queue, depend = get("queue", ""), get("depend", "")
    not_before, starts = parse_time(get("Execution_Time")), max(0, parse_number(get("run_count")) or 0)
    return JobFacts(
        id=name,
        owner=get("euser") or get("Job_Owner", "").partition("@")[0],
        queue=queue,
        submitted=parse_time(get("ctime")) or parse_time(get("qtime")) or 0,
        state=state,
        family=FAMILY,
        resources=resources,
        name=get("Job_Name", ""),
        group=get("egroup", ""),
        account=get("Account_Name", ""),
        project=get("project", ""),
        priority=parse_number(get("Priority")) or 0,
        eligible=None if (state == "W" or holds) and not active else parse_time(get("etime")),
        not_before=not_before,
        holds=holds,
        depend=depend,
        array=get("array_id", ""),
        slot_limit=limit if (limit := parse_number(get("max_run_subjobs"))) is None else max(0, limit),
        exclusive="excl" in resources.get("place", ""),
        started=parse_time(get("stime")) if active else None,
        shares=shares(get("exec_vnode", "")) if active else (),
        starts=starts,
        rerunnable=get("Rerunable", "True").lower() not in ("false", "f", "n", "no", "0"),
        checkpoint=get("Checkpoint", ""),
        exit_status=parse_number(get("Exit_status")) if starts and not active else None,
        version=request_version(queue, depend, not_before, False, starts, resources),
    )


def shares(text: str) -> tuple[ShareFacts, ...]:
    """Return the resources of an `exec_vnode` by vnode, in its order; memory in KiB."""
    held: dict[str, ShareFacts] = {}
    for chunk in parse_or(exec_vnode, text or None, default=_NO_CHUNKS):
        for piece in chunk:
            before = held.get(piece.vnode, ShareFacts(piece.vnode, 0))
            get = piece.resources.get
            held[piece.vnode] = replace(
                before,
                cpus=bounded(before.cpus + parse_count(get("ncpus")), CORES_END),
                mem=bounded(before.mem + parse_or(kib, get("mem"), default=0), AMOUNT_END),
                gpus=bounded(before.gpus + parse_count(get("ngpus")), CORES_END),
            )
    return tuple(held.values())


def is_over(values: Values) -> bool:
    """Return whether a listed job has ended or was moved away."""
    return values.get("job_state") in _OVER


def ending(values: Values) -> Ending:
    """Return the end of a job in state F, X or M, from the server's history.

    The `obittime` of a job that was deleted in its queue is the end of an earlier run. The queue of a moved
    job is its destination, with the server.
    """
    held = shares(values.get("exec_vnode", ""))
    return Ending(
        exit_status=parse_number(values.get("Exit_status")),
        completed=parse_time(values.get("obittime" if held else "history_timestamp")),
        started=parse_time(values.get("stime")) if held else None,
        starts=max(0, parse_number(values.get("run_count")) or 0),
        shares=held,
        moved_to=values.get("queue", "") if values.get("job_state") == _MOVED else "",
    )


def writing(values: Values) -> WrittenAttributes:
    """Return the attributes written on a job. An estimate of 0 means no estimate."""
    comment = values.get("comment", "")
    start = parse_time(values.get("estimated.start_time")) or None
    length = wrote_length(values)
    nodes = ",".join(share.node for share in shares(values.get("estimated.exec_vnode", "")))
    if not comment and start is None and not nodes and not length:
        return NOTHING_WRITTEN
    return WrittenAttributes(comment, None, start, nodes, length)


def wrote_length(values: Values) -> bool:
    """Return whether the adapter wrote the job's `soft_walltime`: it is then also among the estimates."""
    length = values.get(_RESOURCE + SOFT_WALLTIME)
    return length is not None and length == values.get(f"estimated.{SOFT_WALLTIME}")


def node_facts(
    name: str, values: Values, before: NodeFacts | None = None, types: ResourceTypes = NO_TYPES
) -> NodeFacts:
    """Return a vnode's facts; host, strings, booleans, queue and `sharing` become properties."""
    del before
    amounts: dict[str, int] = {}
    unusable: dict[str, int] = {}
    properties: list[str] = []
    for key, text in values.items():
        if key.startswith(UNUSABLE):
            resource = key[len(UNUSABLE) :]
            if count := parse_amount(resource, text, types):
                unusable[_PLAN_NAMES.get(resource) or types.spelled(resource)] = count
            continue
        if not key.startswith(AVAILABLE):
            continue
        resource = key[len(AVAILABLE) :]
        if resource == "host":
            properties += dict.fromkeys((text, text.lower()))
        elif resource == "vnode":  # several for a host that is planned as one node
            properties += [vnode for vnode in text.split(",") if vnode != name]
        elif resource not in _NOT_AMOUNTS:
            count = parse_amount(resource, text, types)
            if types.is_level(resource):
                properties += levels(resource, text, types)
            elif count is not None:
                amounts[types.spelled(resource)] = count
            elif not types.is_amount(resource):
                properties += tags(resource, text, types)
    properties += [f"{RESERVATION}={one.partition('.')[0]}" for one in reservations_of(values)]
    get = values.get
    if (sharing := get("sharing", SHARED)) != SHARED:
        properties.append(f"sharing={sharing}")
    if queue := get("queue"):
        properties += [f"{OF_QUEUE}={queue}", f"{OF_QUEUE}=True"]
    if priority := vnode_priority(values):
        properties.append(f"{SORT_PRIORITY}={priority}")
    return NodeFacts(
        name=name,
        cpus=parse_count(get(AVAILABLE + "ncpus")),
        state=vnode_state(values),
        mem=parse_or(kib, get(AVAILABLE + "mem"), default=0),
        vmem=parse_or(kib, get(AVAILABLE + "vmem"), default=0),
        gpus=parse_count(get(AVAILABLE + "ngpus")),
        resources=amounts,
        properties=tuple(properties),
        unusable=unusable,
    )


def vnode_priority(values: Values) -> int:
    """Return the Priority of a vnode for the order of nodes; 0: it has none."""
    text = values.get("Priority", "").strip()
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else 0


def reservations_of(values: Values) -> list[str]:
    """Return the names of the reservations of a vnode."""
    return [one.strip() for one in values.get("resv", "").split(",") if one.strip()]


def tags(resource: str, text: str, types: ResourceTypes) -> list[str]:
    """Return the properties for a string or boolean resource of a vnode, one for each element."""
    is_true = boolean(resource, text, types)
    values = text.split(",") if is_true is None else [str(is_true)]
    return [f"{resource.lower()}={value.strip()}" for value in values]


def levels(resource: str, text: str, types: ResourceTypes) -> list[str]:
    """Return a vnode's properties for a number that jobs do not consume; for a host, all vnodes'."""
    counts = [parse_amount(resource, one.strip(), types) for one in text.split(",")]
    return [f"{resource.lower()}={count}" for count in counts if count is not None]


@dataclass(frozen=True, slots=True)
class VnodeUse:
    """Resources of a vnode held by jobs; `mem` in KiB; `exclusive`: one job holds the whole vnode."""

    cpus: int
    mem: int
    exclusive: bool


def vnode_use(values: Values) -> VnodeUse:
    """Return the resources of a vnode held by jobs, by the server's count."""
    return VnodeUse(
        cpus=parse_count(values.get(ASSIGNED + "ncpus")),
        mem=parse_or(kib, values.get(ASSIGNED + "mem"), default=0),
        exclusive=is_exclusive(values),
    )


def is_exclusive(values: Values) -> bool:
    """Return whether one job has the whole vnode, by its request or the vnode's `sharing`."""
    return "job-exclusive" in {state.strip() for state in values.get("state", "").split(",")}


def queue_facts(name: str, values: Values, types: ResourceTypes = NO_TYPES) -> QueueFacts:
    """Return the facts of a queue. A routing queue executes no jobs: it counts as stopped, and has routes."""
    routes = [route.strip() for route in values.get("route_destinations", "").split(",")]
    executes = values.get("queue_type", "E").lower().startswith("e")
    return QueueFacts(
        name=name,
        started=executes and values.get("started", "").lower() == "true",
        enabled=values.get("enabled", "").lower() == "true",
        priority=parse_number(values.get("Priority")) or 0,
        defaults=_group(values, _DEFAULT, types),
        limits=_limits(values),
        routes=() if executes else tuple([route for route in routes if route]),
        attributes=submission_attributes(values),
    )


def server_facts(values: Values, types: ResourceTypes = NO_TYPES) -> ServerFacts:
    return ServerFacts(
        scheduling=values.get("scheduling", "").lower() == "true",
        open=values.get("query_other_jobs", "").lower() == "true",
        version=values.get("pbs_version", ""),
        family=FAMILY,
        defaults=_group(values, _DEFAULT, types),
        limits=_limits(values),
        resources=dict(types.reported),
        attributes={**submission_attributes(values), **scheduling_attributes(values)},
    )


_FOLLOWED: Final = (
    "job_sort_formula",
    "job_sort_formula_threshold",
    "restrict_res_to_release_on_suspend",
)


def scheduling_attributes(values: Values) -> dict[str, str]:
    """The attributes, of the server or a scheduler, that the daemon follows."""
    return {name: values[name] for name in _FOLLOWED if values.get(name, "").strip()}


def parse_resource_types(resources: Iterable[DescribedObject]) -> ResourceTypes:
    """Return the resource types that a server describes (status request 82)."""
    return ResourceTypes(
        {
            one.name: ResourceFacts(one.values["type"], one.values.get("flag", ""))
            for one in resources
            if one.values.get("type")
        }
    )


def make_fact_parsers(types: ResourceTypes) -> FactParsers:
    """Return the parsers for objects with resources of these types."""
    return FactParsers(
        job=partial(job_facts, types=types),
        is_over=is_over,
        ending=ending,
        writing=writing,
        node=partial(node_facts, types=types),
        queue=partial(queue_facts, types=types),
        server=partial(server_facts, types=types),
    )


def _inside_reservation(schedselect: str, reservation: str) -> str:
    return "+".join(f"{chunk}:{RESERVATION}={reservation}" for chunk in split_chunks(schedselect))


def unknown_vnode_states(values: Values) -> set[str]:
    """Return the words of a vnode's state that this version does not know."""
    return {state.strip() for state in values.get("state", "").split(",")} - _KNOWN_STATES - {""}


def is_known_job_state(letter: str) -> bool:
    """Return whether this version knows the state of a job."""
    return letter in _STATES or letter in _OVER or letter == "B"


def vnode_state(values: Values) -> NodeStateName:
    """Return the state of a vnode: up, drain or down. A vnode in an unknown state gets no new jobs."""
    states = {state.strip() for state in values.get("state", "").split(",") if state.strip()}
    if not states or states & _DOWN:
        return "down"
    return "drain" if states & _DRAIN or states - _KNOWN_STATES else "up"


def requested_resources(values: Values) -> Iterator[str]:
    """Yield the names of the resources that a job requests, for itself or in its chunks."""
    for key in values:
        if key.startswith(_RESOURCE):
            yield key[len(_RESOURCE) :]
    with suppress(ValueError):
        for _, resources in select(values.get("schedselect", "")):
            yield from resources


def _group(values: Values, prefix: str, types: ResourceTypes) -> dict[str, str]:
    return {
        types.spelled(key[len(prefix) :]): value for key, value in values.items() if key.startswith(prefix)
    }


def _limits(values: Values) -> dict[str, str]:
    return {key: value for key, value in values.items() if key.startswith(_LIMITS)}
