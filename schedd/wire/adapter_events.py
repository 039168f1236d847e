"""What an adapter tells of its server, one message for each thing that happens there."""

from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobQueued:
    """A job arrived, or came back to its queue (requeued)."""

    id: str
    time: int
    job: JobFacts
    type: Literal["job_queued"] = "job_queued"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobAltered:
    """A queued or running job's request, queue, priority or name changed."""

    id: str
    time: int
    job: JobFacts
    type: Literal["job_altered"] = "job_altered"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobHeld:
    """A hold was set; ``holds`` are all letters of Hold_Types now."""

    id: str
    time: int
    job_id: str
    holds: str
    type: Literal["job_held"] = "job_held"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReleased:
    """The last hold was lifted, or the wait (``-a``, a dependency) is over."""

    id: str
    time: int
    job_id: str
    type: Literal["job_released"] = "job_released"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDeleted:
    """A job is gone without having run to its end here; its resources are free."""

    id: str
    time: int
    job_id: str
    type: Literal["job_deleted"] = "job_deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted:
    """A job runs on these shares since ``time``.

    ``by`` is who had it run by hand (``qrun``), where that is known.
    """

    id: str
    time: int
    job_id: str
    shares: tuple[ShareFacts, ...]
    by: str = ""
    type: Literal["job_started"] = "job_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnded:
    """A running job ended and its resources are free; ``exit_status`` as the server reports it.

    ``used`` are the seconds for which it ran, as the server counts them, where that is known.
    """

    id: str
    time: int
    job_id: str
    exit_status: int = 0
    used: int | None = None
    type: Literal["job_ended"] = "job_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunAccepted:
    """The server took the run decision ``decision_id``."""

    id: str
    time: int
    decision_id: str
    job_id: str
    type: Literal["run_accepted"] = "run_accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRefused:
    """The run decision was refused, by the server (``code``: its error) or by the adapter's check (0)."""

    id: str
    time: int
    decision_id: str
    job_id: str
    code: int
    text: str
    type: Literal["run_refused"] = "run_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanged:
    """A node is new, up, down, offline, or has other properties or capacities than before."""

    id: str
    time: int
    node: NodeFacts
    type: Literal["node_changed"] = "node_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueChanged:
    """A queue is new or has other attributes than before."""

    id: str
    time: int
    queue: QueueFacts
    type: Literal["queue_changed"] = "queue_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerChanged:
    """The server's own attributes changed."""

    id: str
    time: int
    server: ServerFacts
    type: Literal["server_changed"] = "server_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Nodes are blocked for planned jobs over ``[start, end)``; ``end`` None means until lifted.

    The nodes are those named, those that have all of ``features``, or, with ``everywhere``, all there are;
    nodes that come later are taken in. Jobs of these ``users``, ``groups``, ``accounts`` and ``queues`` may
    use them as if they were not reserved, and those whose walltime is ``shorter`` (seconds) or equal.
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
    type: Literal["reserve"] = "reserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreserve:
    """A reservation is lifted."""

    id: str
    time: int
    name: str
    type: Literal["unreserve"] = "unreserve"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceCounted:
    """Somebody counted how much there is of a resource of the whole cluster, such as a floating licence.

    ``amount`` is all there is or, with ``free``, what is left beside what running jobs hold. With a
    ``number`` above 0 it was lent by a federation: one that is not above the last of them comes too late.
    """

    id: str
    time: int
    name: str
    amount: int
    free: bool = False
    number: int = 0
    type: Literal["resource_counted"] = "resource_counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole state of the server at ``time``; where credible it wins over what was believed.

    ``complete`` is False when a reply was cut short; ``server_age`` is for how many seconds the server has
    been up, where known: nodes that are down may still have to report to it. ``mode`` is what the sender does
    with decisions.
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
    type: Literal["snapshot"] = "snapshot"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanImproved:
    """A search found better places for these jobs, on a copy of the plan. The engine takes them over as far
    as the plan is still better for it and keeps its promises.
    """

    id: str
    time: int
    places: tuple[PlaceFacts, ...]
    type: Literal["plan_improved"] = "plan_improved"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferStepDone:
    """What became of one step of a transfer. ``code`` of a refusal is the server's, 0 for the adapter's own.

    ``server_job`` is the job's id at the server, where there is one by now.
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
    """What became of a ``Switch``: whether the command was ``done``, its exit status in ``code`` (-1: it did
    not come to one), and in ``text`` what it printed, or why it was not run.
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


AdapterEvent = (
    JobQueued
    | JobAltered
    | JobHeld
    | JobReleased
    | JobDeleted
    | JobStarted
    | JobEnded
    | RunAccepted
    | RunRefused
    | NodeChanged
    | QueueChanged
    | ServerChanged
    | Reserve
    | Unreserve
    | ResourceCounted
    | Snapshot
    | PlanImproved
    | TransferStepDone
    | Switched
)
"""What an adapter may tell."""
