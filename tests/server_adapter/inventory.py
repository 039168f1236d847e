"""State of a server as values, read over the wire; tests use it to inspect a server."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ProtocolError, ServerRefusedError
from server_adapter.batch.status_objects import DescribedObject
from server_adapter.torque import notation as read
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.errors import TorqueErrorCode
from tests.server_adapter import admin_requests
from tests.server_adapter.node_status import AttributeFields, NodeStatus, Values, parse_node

JOB_ATTRIBUTES = frozenset(
    [
        "Job_Name",
        "Job_Owner",
        "job_state",
        "queue",
        "euser",
        "egroup",
        "Account_Name",
        "ctime",
        "mtime",
        "qtime",
        "etime",
        "Priority",
        "Hold_Types",
        "Execution_Time",
        "depend",
        "exec_host",
        "Resource_List",
        "resources_used",
        "start_time",
        "start_count",
        "substate",
        "exit_status",
        "comp_time",
        "comment",
        "job_array_id",
        "array_slot_limit",
        "queue_rank",
        "Rerunable",
        "x",
        "Walltime",
        "interactive",
        "planned_start",
        "planned_nodes",
    ]
)
"""The job attributes that `parse_job` reads: ask the server for these, and for no Variable_List."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStatus:
    """One job. Times are epoch seconds, durations seconds; `resources` is the Resource_List as text.

    For a job that does not run, `start_time` and `hosts` (node names with slots) are a written plan, never a
    start. `holds` are letters of `u o s l a`; a job in state H without a letter is held by its array's slot
    limit (4.2).
    """

    id: str
    state: str = ""
    substate: int | None = None
    name: str = ""
    owner: str = ""
    user: str = ""
    group: str = ""
    account: str = ""
    queue: str = ""
    priority: int = 0
    holds: str = ""
    resources: Values = field(default_factory=dict)
    used: Values = field(default_factory=dict)
    created: int | None = None
    queued: int | None = None
    eligible: int | None = None
    modified: int | None = None
    not_before: int | None = None
    start_time: int | None = None
    start_count: int = 0
    completed: int | None = None
    exit_status: int | None = None
    hosts: tuple[tuple[str, int], ...] = ()
    depend: str = ""
    comment: str = ""
    array_index: int | None = None
    slot_limit: int | None = None
    rank: int | None = None
    rerunnable: bool = True
    planned_start: int | None = None
    planned_nodes: str = ""
    extra: str = ""
    other: Values = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    @property
    def walltime(self) -> int | None:
        """The requested wall time in seconds; None when nothing gives one."""
        text = self.resources.get("walltime")
        try:
            return None if text is None else read.seconds(text)
        except ValueError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """One queue; `defaults`, `minimum` and `maximum` are resource texts."""

    name: str
    execution: bool = True
    enabled: bool = False
    started: bool = False
    priority: int = 0
    total_jobs: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    defaults: Values = field(default_factory=dict)
    minimum: Values = field(default_factory=dict)
    maximum: Values = field(default_factory=dict)
    max_running: int | None = None
    max_user_running: int | None = None
    other: Values = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The server itself; `scheduler_iteration` and `keep_completed` in seconds."""

    name: str
    state: str = ""
    version: str = ""
    scheduling: bool = False
    scheduler_iteration: int | None = None
    keep_completed: int | None = None
    default_queue: str = ""
    total_jobs: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    defaults: Values = field(default_factory=dict)
    max_running: int | None = None
    query_other_jobs: bool = False
    other: Values = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()


def parse_job(name: str, values: Values) -> JobStatus:
    """A job from its attributes by `name` or `name.resource`."""
    fields = AttributeFields(values)
    owner = fields.text("Job_Owner")
    letters = fields.text("Hold_Types")
    fields.group("Walltime")  # remaining time: start_time and walltime say it better
    return JobStatus(
        id=name,
        state=fields.text("job_state"),
        substate=fields.number("substate"),
        name=fields.text("Job_Name"),
        owner=owner,
        user=fields.text("euser") or owner.partition("@")[0],
        group=fields.text("egroup"),
        account=fields.text("Account_Name"),
        queue=fields.text("queue"),
        priority=fields.number("Priority") or 0,
        holds="".join(letter for letter in letters if letter in "uosla"),
        resources=fields.group("Resource_List"),
        used=fields.group("resources_used"),
        created=fields.number("ctime"),
        queued=fields.number("qtime"),
        eligible=fields.number("etime"),
        modified=fields.number("mtime"),
        not_before=fields.number("Execution_Time"),
        start_time=fields.number("start_time"),
        start_count=fields.number("start_count") or 0,
        completed=fields.number("comp_time"),
        exit_status=fields.number("exit_status"),
        hosts=fields.parse("exec_host", read.exec_host, ()),
        depend=fields.text("depend"),
        comment=fields.text("comment"),
        array_index=fields.number("job_array_id"),
        slot_limit=fields.number("array_slot_limit"),
        rank=fields.number("queue_rank"),
        rerunnable=fields.parse("Rerunable", read.flag, default=True),
        planned_start=fields.number("planned_start"),
        planned_nodes=fields.text("planned_nodes"),
        extra=fields.text("x"),
        other=fields.other,
        unreadable=fields.unreadable,
    )


def _state_count(text: str) -> dict[str, int]:
    """`Transit:0 Queued:3 ...` as numbers by state."""
    pairs = (item.partition(":") for item in text.split())
    return {name: int(number) for name, _, number in pairs}


def parse_queue(name: str, values: Values) -> QueueStatus:
    """A queue from its attributes."""
    fields = AttributeFields(values)
    return QueueStatus(
        name=name,
        execution=fields.text("queue_type").lower().startswith("e"),
        enabled=fields.parse("enabled", read.flag, default=False),
        started=fields.parse("started", read.flag, default=False),
        priority=fields.number("Priority") or 0,
        total_jobs=fields.number("total_jobs") or 0,
        counts=fields.parse("state_count", _state_count, {}),
        defaults=fields.group("resources_default"),
        minimum=fields.group("resources_min"),
        maximum=fields.group("resources_max"),
        max_running=fields.number("max_running"),
        max_user_running=fields.number("max_user_run"),
        other=fields.other,
        unreadable=fields.unreadable,
    )


def parse_server(name: str, values: Values) -> ServerStatus:
    """The server from its attributes."""
    fields = AttributeFields(values)
    return ServerStatus(
        name=name,
        state=fields.text("server_state"),
        version=fields.text("pbs_version"),
        scheduling=fields.parse("scheduling", read.flag, default=False),
        scheduler_iteration=fields.number("scheduler_iteration"),
        keep_completed=fields.number("keep_completed"),
        default_queue=fields.text("default_queue"),
        total_jobs=fields.number("total_jobs") or 0,
        counts=fields.parse("state_count", _state_count, {}),
        defaults=fields.group("resources_default"),
        max_running=fields.number("max_running"),
        query_other_jobs=fields.parse("query_other_jobs", read.flag, default=False),
        other=fields.other,
        unreadable=fields.unreadable,
    )


ASKED = JOB_ATTRIBUTES - {"array_slot_limit", "Walltime", "planned_start", "planned_nodes"}
"""The job attributes that every server since 2.5 may be asked for."""

_SLICE = 200  # objects parsed at a time: about 3 ms

Out = TypeVar("Out")


async def read_jobs(
    connection: TorqueConnection, attributes: Collection[str] = ASKED, queue: str = ""
) -> list[JobStatus]:
    """Return all jobs (of a queue) with these attributes, including finished jobs that the server still has.

    A server refuses unknown names (15002). Raises as `TorqueConnection.describe`.
    """
    ask = admin_requests.status_request(RequestCode.STATUS_JOB, queue, attributes)
    return await _parsed(await connection.describe(ask), parse_job)


async def read_job(
    connection: TorqueConnection, job: str, attributes: Collection[str] = ASKED
) -> JobStatus | None:
    """Return one current job; None for an unknown job."""
    try:
        found = await connection.describe(
            admin_requests.status_request(RequestCode.STATUS_JOB, job, attributes)
        )
    except ServerRefusedError as error:
        if error.code == TorqueErrorCode.UNKJOBID:
            return None
        raise
    return parse_job(found[0].name, found[0].values) if found else None


async def read_nodes(connection: TorqueConnection, name: str = "") -> list[NodeStatus]:
    """All nodes, or one."""
    return await _parsed(
        await connection.describe(admin_requests.status_request(RequestCode.STATUS_NODE, name)), parse_node
    )


async def read_queues(connection: TorqueConnection) -> list[QueueStatus]:
    """All queues."""
    return await _parsed(
        await connection.describe(admin_requests.status_request(RequestCode.STATUS_QUEUE)), parse_queue
    )


async def read_server(connection: TorqueConnection) -> ServerStatus:
    """The server itself."""
    found = await connection.describe(admin_requests.status_request(RequestCode.STATUS_SERVER))
    if not found:
        raise ProtocolError("pbs_server said nothing about itself")
    return parse_server(found[0].name, found[0].values)


async def _parsed(found: Sequence[DescribedObject], parse: Callable[[str, dict[str, str]], Out]) -> list[Out]:
    values: list[Out] = []
    for start in range(0, len(found), _SLICE):
        values += [parse(item.name, item.values) for item in found[start : start + _SLICE]]
        await asyncio.sleep(0)
    return values
