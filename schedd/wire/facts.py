"""Facts about a PBS server's jobs, nodes, queues and the server itself, as plain values.

Facts are the server's values in uniform units: seconds since the epoch (UTC), seconds, KiB. Resources remain
text; ``schedd.dialect`` interprets them as requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from schedd.wire.quick_init import quick_init
from schedd.wire.resources import ResourceFacts

Mode = Literal["shadow", "adviser", "scheduler"]
"""Treatment of decisions: ignored, shown to users, or carried out."""
JobLetter = Literal["Q", "H", "W", "T", "R", "E", "S", "C"]
NodeStateName = Literal["up", "drain", "down"]
TransferStep = Literal["submit", "release", "withdraw", "delete"]
"""Steps of a transfer: submit on hold, release the hold, withdraw if not running, or delete."""
PreemptionMethod = Literal["suspend", "checkpoint", "requeue"]
"""How a running job is preempted: it is stopped and goes on later on the same nodes; it returns to its queue
with a checkpoint of its work; or it returns to its queue, and its work is lost."""


@quick_init
@dataclass(frozen=True, slots=True)
class ShareFacts:
    """Resources of one node held by a job; ``mem`` in KiB."""

    node: str
    cpus: int
    mem: int = 0
    gpus: int = 0


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """One job as the server describes it.

    ``resources`` is the Resource_List as text, including defaults of queue and server. ``holds`` are the
    letters of Hold_Types (``u o s l``). ``depend`` is the attribute as printed. ``slot_limit`` is the maximum
    of concurrently running jobs of its ``array``. ``started`` is the start of the present run; ``shares`` its
    nodes, empty unless the job holds resources. ``starts`` is the server's count of starts. ``version``
    changes with everything that a run decision relies on. ``family`` names the dialect of its request and
    numbers; empty is the planner's first. ``by`` is the user that started the present run by hand (``qrun``),
    if known. A job that is not ``rerunnable`` (``qsub -r n``) cannot be requeued while it runs.
    ``checkpoint`` is what ``qsub -c`` declared, as printed. ``exit_status`` is that of the last run of a job
    that came back to its queue, if the server reports it. A job is ``run_lost`` if the server lists it as
    running and none of its nodes has it; it holds no resources.
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
    rerunnable: bool = True
    checkpoint: str = ""
    run_lost: bool = False
    exit_status: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """One node as the server describes it; ``mem`` (physical) and ``vmem`` (with swap) in KiB.

    ``resources`` are amounts: sizes in KiB, float amounts in ``FLOAT_PARTS``. ``properties`` include string
    and boolean resources as ``name=value``, with the name in lower case.

    ``unusable`` are amounts of ``cpus``, ``mem``, ``gpus`` and resources of its parts that cannot be used now
    but may return, such as offline vnodes; they are not in the other fields.
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
    unusable: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """One queue: a stopped or disabled queue starts nothing; ``limits`` as the server prints them.

    ``routes`` are the destinations of a routing queue, where no job ever starts. ``attributes`` say, as
    printed, which jobs the queue accepts: access lists, ``from_route_only``, ``disallowed_types``.
    """

    name: str
    started: bool = True
    enabled: bool = True
    priority: int = 0
    defaults: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    routes: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """The server: scheduling flag, defaults, limits and version.

    ``open`` means that users may see each other's jobs. ``family`` is its dialect. ``resources`` are the
    server's resource definitions by name; empty if not reported. ``attributes`` are further attributes that a
    scheduler follows, as printed, with those of its scheduler object: ``job_sort_formula``,
    ``job_sort_formula_threshold``, ``restrict_res_to_release_on_suspend``; ``kill_delay`` if its requeued
    jobs end instead; and those that decide over submissions: ``default_queue`` and access lists.
    """

    scheduling: bool = True
    open: bool = True
    version: str = ""
    defaults: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    family: str = ""
    resources: Mapping[str, ResourceFacts] = field(default_factory=dict)
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnitsFacts:
    """Units of a request's chunk on one node; chunks count from 0."""

    node: str
    chunk: int
    units: int


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """Possible place of a waiting job: start (seconds since the epoch) and units by node."""

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
"""Plain attributes allowed for a transferred job. Through the manager's connection an owner could otherwise
set privileged ones, such as the execution user or holds.
"""


@dataclass(frozen=True, slots=True)
class SubmissionFacts:
    """A job as qsub would send it; ``user`` will own it at the server.

    ``attributes`` are plain ones such as ``Job_Name`` or ``stagein``; ``resources`` make up the
    ``Resource_List``; ``variables`` are the job's environment (``-v``). An ``array`` such as ``5-9`` gives
    first and last index of a job array.
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
        """Number of tasks of an array; 0 for a single job."""
        first, dash, last = self.array.partition("-")
        return int(last) - int(first) + 1 if dash else 0


@dataclass(frozen=True, slots=True)
class ExpectedFacts:
    """Start estimate of a waiting job: ``start`` is the P50, ``by`` the P90, ``planned`` the planned start,
    ``predicted`` and ``late`` P50 and P90 before calibration (-1: unknown). Seconds since the epoch.

    ``kind`` is the occasion: at ``submission``; ``waiting`` for half of the expected wait; within an ``hour``
    of the start; empty for updates in between.
    """

    job_id: str
    start: int
    by: int
    planned: int
    kind: Literal["submission", "waiting", "hour", ""] = ""
    late: int = -1
    predicted: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineForecastFacts:
    """Forecast for a deadline: ``probability`` that the job ends by it, ``raw`` before its correction.

    ``required`` is the probability that the request demands; 0: the deadline is not the job's own, and only
    tests the forecasts. ``earliest`` is the earliest deadline with the required probability. ``running``: the
    job ran already. ``counts``: the outcome is learned from. Times are seconds since the epoch.
    """

    job_id: str
    deadline: int
    raw: float
    probability: float
    required: float = 0.0
    earliest: int = 0
    running: bool = False
    counts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A finished run from the server's accounting logs, with its resources over ``[start, end)``.

    ``qos`` is the requested quality of service.
    """

    id: str
    owner: str
    start: int
    end: int
    group: str = ""
    account: str = ""
    project: str = ""
    queue: str = ""
    qos: str = ""
    shares: tuple[ShareFacts, ...] = ()
