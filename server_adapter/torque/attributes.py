"""Described objects to frozen values: what a job, node, queue or server says about itself.

Unknown attributes are kept as text in `other`; a known one that cannot be read counts as absent and is
named in `unreadable`, so that one odd value never hides an object (protocol document, section 6).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from server_adapter.torque import values as read

T = TypeVar("T")
Values = Mapping[str, str]

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

    `start_time` and `hosts` (node names with slots) of a job that does not run are a plan that somebody wrote
    there, never a run. `holds` are letters of `u o s l a`; a job in state H without any is held by its
    array's slot limit (4.2 gives that hold no letter).
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
class NodeStatus:
    """One node. Memory in KiB: `memory` physical, `total_memory` with swap; None until its mom reported."""

    name: str
    states: tuple[str, ...] = ()
    slots: int = 0
    properties: tuple[str, ...] = ()
    jobs: Mapping[str, int] = field(default_factory=dict)
    note: str = ""
    gpus: int = 0
    memory: int | None = None
    total_memory: int | None = None
    available_memory: int | None = None
    cores: int | None = None
    load: float | None = None
    reported: int | None = None
    mom_jobs: tuple[str, ...] = ()
    power: str = ""
    other: Values = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()

    @property
    def used(self) -> int:
        """Slots held by jobs."""
        return sum(self.jobs.values())

    @property
    def down(self) -> bool:
        """Whether the server has lost the node."""
        return "down" in self.states or "unknown" in self.states

    @property
    def offline(self) -> bool:
        """Whether an admin has taken the node out of service."""
        return "offline" in self.states


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


class Fields:
    """Takes attributes one by one out of a described object; remembers which could not be read."""

    def __init__(self, values: Values) -> None:
        self._left = dict(values)
        self._unreadable: list[str] = []

    def text(self, key: str) -> str:
        """The text, or an empty one."""
        return self._left.pop(key, "")

    def take(self, key: str, parse: Callable[[str], T], default: T) -> T:
        """The parsed value, or `default` where it is absent or cannot be read."""
        text = self._left.pop(key, None)
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError:
            self._unreadable.append(key)
            return default

    def number(self, key: str) -> int | None:
        """An integer, or None."""
        empty: int | None = None
        return self.take(key, int, empty)

    def group(self, name: str) -> dict[str, str]:
        """All `name.resource` values by resource."""
        prefix = name + "."
        keys = [key for key in self._left if key.startswith(prefix)]
        return {key[len(prefix) :]: self._left.pop(key) for key in keys}

    @property
    def other(self) -> Values:
        """What nobody took."""
        return self._left

    @property
    def unreadable(self) -> tuple[str, ...]:
        """The attributes whose values made no sense."""
        return tuple(self._unreadable)
