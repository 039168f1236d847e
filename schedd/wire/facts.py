"""What a PBS server says about its jobs, nodes, queues and itself, in plain values.

Facts are the server's words with their units made uniform: seconds since the epoch (UTC), seconds, KiB.
Their meaning as a request is the planner's business (``schedd.dialect``), so resources travel as text.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from schedd.wire.resources import ResourceFacts

__all__ = [
    "TRANSFER_ATTRIBUTES",
    "ExpectedFacts",
    "JobFacts",
    "JobLetter",
    "Mode",
    "NodeFacts",
    "NodeStateName",
    "PlaceFacts",
    "QueueFacts",
    "RunFacts",
    "ServerFacts",
    "ShareFacts",
    "SubmissionFacts",
    "TransferStep",
    "UnitsFacts",
]

Mode = Literal["shadow", "adviser", "scheduler"]
"""What is done with decisions: nothing, they are told, they are carried out."""
JobLetter = Literal["Q", "H", "W", "T", "R", "E", "S", "C"]
NodeStateName = Literal["up", "drain", "down"]
TransferStep = Literal["submit", "release", "withdraw", "delete"]
"""A handed-over job is submitted on hold; then its hold is released, or it is withdrawn, which a job that
runs is not: it may be deleted."""


@dataclass(frozen=True, slots=True)
class ShareFacts:
    """What a job holds, or is to hold, of one node; ``mem`` in KiB."""

    node: str
    cpus: int
    mem: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One job as the server describes it.

    ``resources`` is the Resource_List, defaults of queue and server included, as text. ``holds`` are the
    letters of Hold_Types (``u o s l``). ``depend`` is the attribute as printed. ``slot_limit`` is how many
    jobs of its ``array`` may run at once. ``started`` is the start
    of the present run; ``shares`` its nodes, empty unless the job holds resources. ``starts`` is the
    server's own count of starts. ``version`` changes whenever anything that a run decision relies on does.
    ``family`` names the dialect of its request and numbers; empty is the planner's first.
    ``by`` is who had the present run started by hand (``qrun``), where that is known.
    """

    id: str
    owner: str
    queue: str
    submitted: int
    state: JobLetter = "Q"
    family: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    group: str = ""
    account: str = ""
    project: str = ""
    priority: int = 0
    eligible: int | None = None
    not_before: int | None = None
    holds: str = ""
    depend: str = ""
    array: str = ""
    slot_limit: int | None = None
    exclusive: bool = False
    started: int | None = None
    shares: tuple[ShareFacts, ...] = ()
    starts: int = 0
    version: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node as the server describes it; ``mem`` (physical) and ``vmem`` (with swap) in KiB.

    ``resources`` are amounts: sizes in KiB, numbers of type float in ``FLOAT_PARTS``. ``properties`` include
    string and boolean resources as ``name=value``, the name in lower case.
    """

    name: str
    cpus: int
    state: NodeStateName = "up"
    mem: int = 0
    vmem: int = 0
    gpus: int = 0
    resources: Mapping[str, int] = field(default_factory=dict)
    properties: tuple[str, ...] = ()
    speed: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """One queue: a stopped or disabled one starts nothing; ``limits`` as the server prints them.

    ``routes`` are the destinations of a routing queue, in which no job ever starts.
    """

    name: str
    started: bool = True
    enabled: bool = True
    priority: int = 0
    defaults: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    routes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The server: whether scheduling is enabled, its defaults and limits, its version; ``open``: whether
    users may see each other's jobs. ``family`` is that of its dialect; an older adapter does not say.
    ``resources`` are those that the server defines, by name; empty where it did not tell them.
    """

    scheduling: bool = True
    open: bool = True
    version: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    family: str = ""
    resources: Mapping[str, ResourceFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnitsFacts:
    """So many units of a chunk of a request, chunks counted from 0, on one node."""

    node: str
    chunk: int
    units: int


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """Where a waiting job could be planned: its start (seconds since the epoch) and what goes where."""

    job_id: str
    start: int
    units: tuple[UnitsFacts, ...]


TRANSFER_ATTRIBUTES: Final = frozenset(
    {
        *("Job_Name", "Account_Name", "Priority", "Mail_Points", "Mail_Users", "Join_Path", "Keep_Files"),
        *("Output_Path", "Error_Path", "Rerunable", "Shell_Path_List", "stagein", "stageout", "umask"),
        *("Execution_Time", "group_list", "init_work_dir", "submit_args", "submit_host", "Checkpoint"),
    }
)
"""Plain attributes that a handed-over job may have. A manager's connection could set others, too, which its
owner could not: whom it runs as, where, its holds."""


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    """A job as qsub would send it, in the server's words; ``user`` is the one who is to own it there.

    ``attributes`` are plain ones such as ``Job_Name`` or ``stagein``; ``resources`` make up the
    ``Resource_List``; ``variables`` are the job's environment (``-v``). With an ``array``, its first and last
    index such as ``5-9``, it is a job array.
    """

    user: str
    script: str
    queue: str = ""
    resources: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    array: str = ""

    @property
    def tasks(self) -> int:
        """How many jobs it is; 0: one, and no array."""
        first, dash, last = self.array.partition("-")
        return int(last) - int(first) + 1 if dash else 0


@dataclass(frozen=True, slots=True)
class ExpectedFacts:
    """A waiting job is expected to start at ``start`` (as many such jobs start later as earlier), in nine of
    ten cases ``by`` a moment; the plan has it at ``planned``, nine of ten draws of run times by ``late`` (-1:
    not known). Seconds since the epoch.

    ``kind`` says how it is measured: told at its ``submission``; ``waiting`` for half of what was expected
    then, or found so; within an ``hour`` of its start; empty: told again in between.
    """

    job_id: str
    start: int
    by: int
    planned: int
    kind: Literal["submission", "waiting", "hour", ""] = ""
    late: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run that is over, as the server's accounting logs have it: what it held over ``[start, end)``."""

    id: str
    owner: str
    start: int
    end: int
    group: str = ""
    account: str = ""
    project: str = ""
    shares: tuple[ShareFacts, ...] = ()
