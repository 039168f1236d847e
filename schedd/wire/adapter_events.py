"""Events that an adapter reports about its server."""

from dataclasses import dataclass
from typing import Final, Literal

from schedd.wire.facts import (
    JobFacts,
    Mode,
    NodeFacts,
    PlaceFacts,
    QueueFacts,
    ServerFacts,
    ShareFacts,
    TransferStep,
)
from schedd.wire.quick_init import quick_init


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobQueued:
    """A job arrived, or was requeued."""

    id: str
    time: int
    job: JobFacts
    type: Literal["job_queued"] = "job_queued"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAltered:
    """The request, queue, priority or name of a queued or running job changed."""

    id: str
    time: int
    job: JobFacts
    type: Literal["job_altered"] = "job_altered"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeld:
    """A hold was set; ``holds`` are all current letters of Hold_Types."""

    id: str
    time: int
    job_id: str
    holds: str
    type: Literal["job_held"] = "job_held"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased:
    """The last hold was removed, or a wait (``-a``, a dependency) is over."""

    id: str
    time: int
    job_id: str
    type: Literal["job_released"] = "job_released"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeleted:
    """A job is gone without having run to its end here; its resources are free. ``moved_to`` is the
    destination (``queue@server``) of a job that was moved to another server; empty: it was deleted.
    """

    id: str
    time: int
    job_id: str
    moved_to: str = ""
    type: Literal["job_deleted"] = "job_deleted"


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted:
    """A job runs on these shares since ``time``; ``by``: who started it by ``qrun``, if known."""

    id: str
    time: int
    job_id: str
    shares: tuple[ShareFacts, ...]
    by: str = ""
    type: Literal["job_started"] = "job_started"


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """A running job ended, and its resources are free. ``exit_status`` is the server's, None if not known.

    ``used`` is the run time in seconds as counted by the server, if known.
    """

    id: str
    time: int
    job_id: str
    exit_status: int | None = 0
    used: int | None = None
    type: Literal["job_ended"] = "job_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAccepted:
    """The server accepted the run decision ``decision_id``."""

    id: str
    time: int
    decision_id: str
    job_id: str
    type: Literal["run_accepted"] = "run_accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRefused:
    """The run decision was rejected, by the server (``code`` is its error) or by the adapter's check (0).

    ``outage``: no job could be started at that moment, since the server did not answer, the adapter may not
    start jobs, or the decision came to it or to the server too late. ``fragmented``: its nodes have the
    amounts free, but divided over vnodes, on none of which it fits; it may after a job there has ended.
    """

    id: str
    time: int
    decision_id: str
    job_id: str
    code: int
    text: str
    outage: bool = False
    fragmented: bool = False
    type: Literal["run_refused"] = "run_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanged:
    """A node is new, or its state, properties or capacities changed."""

    id: str
    time: int
    node: NodeFacts
    type: Literal["node_changed"] = "node_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChanged:
    """A queue is new, or its attributes changed."""

    id: str
    time: int
    queue: QueueFacts
    type: Literal["queue_changed"] = "queue_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChanged:
    """The server's attributes changed."""

    id: str
    time: int
    server: ServerFacts
    type: Literal["server_changed"] = "server_changed"


_SIZES: Final = ((1 << 20, "GiB"), (1 << 10, "MiB"), (1, "KiB"))
SERVER_RESERVATION: Final = "the server's own reservation"
"""Reason of the reservations that a snapshot lists: one that is missing there is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Nodes are reserved for planned jobs over ``[start, end)``; ``end`` None means until removed.

    The nodes are the named ones, those with all of ``features``, or all nodes with ``everywhere``; nodes that
    are added later are included. Jobs of these ``users``, ``groups``, ``accounts`` and ``queues`` may use
    them, and jobs with a walltime of at most ``shorter`` seconds.

    With ``cores``, ``gpus`` or ``mem`` (KiB), only so much of each node is reserved, or with ``total``, so
    much of all nodes together: other jobs may use the rest. With ``shares`` only these parts of the nodes
    are reserved.
    """

    id: str
    time: int
    name: str
    nodes: tuple[str, ...] = ()
    start: int
    end: int | None = None
    reason: str = ""
    features: tuple[str, ...] = ()
    everywhere: bool = False
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    shorter: int = 0
    cores: int = 0
    gpus: int = 0
    mem: int = 0
    total: bool = False
    shares: tuple[ShareFacts, ...] = ()
    type: Literal["reserve"] = "reserve"

    @property
    def amounts(self) -> str:
        """Reserved amounts in words: ``2 cores and 4 GiB of memory of each node``; empty for whole nodes."""
        cores = self.cores or sum(one.cpus for one in self.shares)
        gpus = self.gpus or sum(one.gpus for one in self.shares)
        counted = ((cores, "core"), (gpus, "gpu"))
        parts = [f"{n} {unit}{'s' if n > 1 else ''}" for n, unit in counted if n]
        if mem := self.mem or sum(one.mem for one in self.shares):
            size, unit = next(one for one in _SIZES if not mem % one[0])
            parts.append(f"{mem // size} {unit} of memory")
        words = " and ".join(parts)
        return f"{words} {'in total' if self.total or self.shares else 'of each node'}" if words else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreserve:
    """A reservation is removed."""

    id: str
    time: int
    name: str
    type: Literal["unreserve"] = "unreserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Complete state of the server at ``time``; if credible, it overrides the earlier state.

    ``complete`` is False if a reply was truncated. ``server_age`` is the server's uptime in seconds, if
    known: shortly after its start, nodes may not have reported yet. ``mode`` is the sender's treatment of
    decisions. ``reservations`` are all reservations of the server; None: the sender does not list them.
    """

    id: str
    time: int
    jobs: tuple[JobFacts, ...]
    nodes: tuple[NodeFacts, ...]
    queues: tuple[QueueFacts, ...] = ()
    server: ServerFacts = ServerFacts()
    complete: bool = True
    server_age: int | None = None
    mode: Mode = "scheduler"
    reservations: tuple[Reserve, ...] | None = None
    type: Literal["snapshot"] = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceCounted:
    """Amount of a cluster-wide resource, such as a floating licence.

    ``amount`` is the total, or with ``free`` the amount not held by running jobs. A ``number`` above 0 is the
    number of a federation's grant; grants with a number not above the last one are outdated.
    """

    id: str
    time: int
    name: str
    amount: int
    free: bool = False
    number: int = 0
    type: Literal["resource_counted"] = "resource_counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanImproved:
    """A search found better places for these jobs, on a fork of the plan. The engine applies them if the plan
    still improves and promises hold.
    """

    id: str
    time: int
    places: tuple[PlaceFacts, ...]
    type: Literal["plan_improved"] = "plan_improved"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferStepDone:
    """Outcome of one step of a transfer. ``code`` is the server's error, or 0 for a refusal by the adapter.

    ``server_job`` is the job's id at the server, if it has one.
    """

    id: str
    time: int
    decision_id: str
    transfer: str
    step: TransferStep
    done: bool
    server_job: str = ""
    code: int = 0
    text: str = ""
    type: Literal["transfer_step_done"] = "transfer_step_done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """Outcome of a ``Switch``: ``done``, the command's exit status in ``code`` (-1 without one), and its
    output or the reason for not running it in ``text``.
    """

    id: str
    time: int
    decision_id: str
    node: str
    on: bool
    done: bool
    code: int = 0
    text: str = ""
    type: Literal["switched"] = "switched"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionDone:
    """Outcome of a ``Preempt`` or a ``Resume``: ``done`` if the run is over, ends now, or is suspended; or
    if it goes on. ``code`` is the server's error, or 0 for a refusal by the adapter, with the reason in
    ``text``. ``outage``: no job could be preempted or resumed at that moment.
    """

    id: str
    time: int
    decision_id: str
    job_id: str
    done: bool
    code: int = 0
    text: str = ""
    outage: bool = False
    type: Literal["preemption_done"] = "preemption_done"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionDone:
    """Outcome of an ``ExtendRun``: ``done`` if the server has the longer walltime. ``code`` is the server's
    error, or 0 for a refusal by the adapter, with the reason in ``text``. ``outage``: no run could be
    extended at that moment.
    """

    id: str
    time: int
    decision_id: str
    job_id: str
    done: bool
    code: int = 0
    text: str = ""
    outage: bool = False
    type: Literal["extension_done"] = "extension_done"


DecisionOutcome = RunAccepted | RunRefused | TransferStepDone | Switched | PreemptionDone | ExtensionDone
"""Events that report the outcome of a decision."""

AdapterEvent = (
    JobQueued
    | JobAltered
    | JobHeld
    | JobReleased
    | JobDeleted
    | JobStarted
    | JobEnded
    | DecisionOutcome
    | NodeChanged
    | QueueChanged
    | ServerChanged
    | Reserve
    | Unreserve
    | ResourceCounted
    | Snapshot
    | PlanImproved
)
"""Events that an adapter may report."""
