"""Events: what happened on the server, told by the adapter (or by a log, or by an admin).

Every event carries ``id``, which the sender chose and which is kept over re-deliveries: for an adapter
``EPOCH:SEQUENCE``. ``time`` is when it happened by the server host's clock, in seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schedd.wire.bookings import Book, BookingStep
from schedd.wire.facts import (
    ExpectedFacts,
    HandoverStep,
    JobFacts,
    Mode,
    NodeFacts,
    PlaceFacts,
    QueueFacts,
    RunFacts,
    ServerFacts,
    ShareFacts,
    SubmissionFacts,
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
class Counted:
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
    type: Literal["counted"] = "counted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """The site's policy is another from now on, as plain values: what else stands in the configuration.

    ``version`` counts the changes; with 0 the configuration's own policy is in force again, and ``site`` is
    not looked at. ``by`` is who changed it.
    """

    id: str
    time: int
    version: int
    site: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""
    type: Literal["policy_changed"] = "policy_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningHeld:
    """An admin wants nothing new to be planned: on a node, where running jobs go on; or of a queue.

    ``by`` is who wants it; one that is held already is held for another ``reason`` from now on.
    """

    id: str
    time: int
    kind: Literal["node", "queue"]
    name: str
    reason: str
    by: str = ""
    type: Literal["planning_held"] = "planning_held"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningReleased:
    """A node or queue whose planning was held is planned for again."""

    id: str
    time: int
    kind: Literal["node", "queue"]
    name: str
    type: Literal["planning_released"] = "planning_released"


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """The planner failed over the batch of this number, or did not return from it, and passes it over.

    ``why`` is the error. ``jobs`` and ``steps`` are what it was at then, where that is known: these jobs are
    set aside, these steps are left out for a while. ``out`` are jobs whose run decisions may still be
    carried out, each until when; ``decided`` is the number of the last decision. ``anew``: begin from
    nothing but what people have set, and take the rest from a snapshot.
    """

    id: str
    time: int
    batch: int
    why: str
    jobs: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    out: Mapping[str, int] = field(default_factory=dict)
    decided: int = 0
    anew: bool = False
    type: Literal["passed_over"] = "passed_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The whole state of the server at ``time``; where credible it wins over what was believed.

    ``complete`` is False when a reply was cut short; ``server_age`` is for how many seconds the server
    has been up, where known (its start-up grace). ``mode`` is what the sender does with decisions.
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
class Improved:
    """A search found better places for these jobs, on a copy of the plan. The engine takes them over as far
    as the plan is still better for it and keeps its promises.
    """

    id: str
    time: int
    places: tuple[PlaceFacts, ...]
    type: Literal["improved"] = "improved"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsExpected:
    """When these jobs are expected to start, worked out on a copy of the plan as it was at ``time``: what is
    told of them from now on. Told of those alone whose number changed by more than its uncertainty.
    """

    id: str
    time: int
    jobs: tuple[ExpectedFacts, ...]
    type: Literal["starts_expected"] = "starts_expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Somebody who may do so wants a job to be submitted to the server in the name of ``user``, on hold.

    ``handover`` is the name by which it can be asked after, chosen by who hands it over and used once. Until
    ``keep_until`` (seconds since the epoch) it has a place in the plan although it is on hold. A
    ``booked`` one starts in the booking that was made for it, and nowhere else.
    """

    id: str
    time: int
    handover: str
    submission: SubmissionFacts
    by: str = ""
    keep_until: int = 0
    booked: bool = False
    type: Literal["hand_over"] = "hand_over"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetRun:
    """The job that was handed over is to lose its hold: from now on it may start."""

    id: str
    time: int
    handover: str
    type: Literal["let_run"] = "let_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeBack:
    """The job that was handed over is to be deleted, unless it runs, or then, too, where that is ``forced``;
    one that never came must not come.
    """

    id: str
    time: int
    handover: str
    by: str = ""
    forced: bool = False
    type: Literal["take_back"] = "take_back"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandoverDone:
    """What became of one step of a handover. ``code`` of a refusal is the server's, 0 for the adapter's own.

    ``server_job`` is the job's id at the server, where there is one by now.
    """

    id: str
    time: int
    decision_id: str
    handover: str
    step: HandoverStep
    done: bool
    server_job: str = ""
    code: int = 0
    text: str = ""
    type: Literal["handover_done"] = "handover_done"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerWish:
    """An admin wants a node to be ``on`` and stay so, to be ``off``, to be left as it is (``hold``), or to be
    switched as the plan needs it again (``auto``). ``by`` is who wants it.
    """

    id: str
    time: int
    node: str
    wish: Literal["on", "off", "hold", "auto"]
    reason: str = ""
    by: str = ""
    type: Literal["power_wish"] = "power_wish"


@dataclass(frozen=True, slots=True, kw_only=True)
class WattsRead:
    """What the boards of nodes measured at ``time``: ``watts`` of ``nodes``, in the same order."""

    id: str
    time: int
    nodes: tuple[str, ...]
    watts: tuple[float, ...]
    type: Literal["watts_read"] = "watts_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChosen:
    """An admin chose another plan, which was found on a copy: these jobs go to these places, all of them or
    none. Promises are kept. ``by`` is who chose it.
    """

    id: str
    time: int
    places: tuple[PlaceFacts, ...]
    by: str = ""
    type: Literal["plan_chosen"] = "plan_chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSet:
    """An admin makes an account, or sets what it has. Amounts are in the smallest units: core-seconds, or
    millionths of the currency. ``by`` is who does so.
    """

    id: str
    time: int
    name: str
    unit: Literal["core_hours", "money"] = "core_hours"
    amount: int = 0
    overdraft: int = 0
    period: Literal["", "month", "quarter", "year"] = ""
    users: tuple[str, ...] = ()
    closed: bool = False
    by: str = ""
    reason: str = ""
    type: Literal["account_set"] = "account_set"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountMoved:
    """An amount goes from one account to another. Without a ``source`` it comes from outside, without a
    ``target`` it goes there.
    """

    id: str
    time: int
    source: str
    target: str
    amount: int
    by: str = ""
    reason: str = ""
    type: Literal["account_moved"] = "account_moved"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerKept:
    """The database has the entries of the ledger up to this number."""

    id: str
    time: int
    number: int
    type: Literal["ledger_kept"] = "ledger_kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsRead:
    """The server's accounting logs were read up to the moment ``until``; these runs are not charged, or not
    as they were.
    """

    id: str
    time: int
    runs: tuple[RunFacts, ...]
    until: int
    type: Literal["runs_read"] = "runs_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLost:
    """A part of the log is missing, or is not as it was written: what, says ``why``. ``decided`` is the
    number of the last decision that is known to have been made, which the log may not know of.
    """

    id: str
    time: int
    why: str
    decided: int = 0
    type: Literal["log_lost"] = "log_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSet:
    """The daemon's clock was set back to ``time``, behind the engine's, by more than can be waited for.

    All but what people have set, and what was promised, is taken from a snapshot.
    """

    id: str
    time: int
    type: Literal["clock_set"] = "clock_set"


Told = (
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
    | Counted
    | Snapshot
    | Improved
    | HandoverDone
    | Switched
)
"""What an adapter may tell."""

Event = (
    Told
    | PolicyChanged
    | PlanningHeld
    | PlanningReleased
    | LogLost
    | PassedOver
    | ClockSet
    | HandOver
    | LetRun
    | TakeBack
    | StartsExpected
    | PlanChosen
    | PowerWish
    | WattsRead
    | AccountSet
    | AccountMoved
    | LedgerKept
    | RunsRead
    | Book
    | BookingStep
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Events in the order in which they happened, as one HTTP body."""

    events: tuple[Event, ...]
