"""Events that no adapter tells: what people and federations order, and what the daemon itself found out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schedd.wire.facts import (
    ExpectedFacts,
    PlaceFacts,
    RunFacts,
    SubmissionFacts,
)


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
class BatchSkipped:
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
    type: Literal["batch_skipped"] = "batch_skipped"


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
class TransferRequest:
    """Somebody who may do so wants a job to be submitted to the server in the name of ``user``, on hold.

    ``transfer`` is the name by which it can be asked after, chosen by who hands it over and used once. Until
    ``keep_until`` (seconds since the epoch) it has a place in the plan although it is on hold. A
    ``booked`` one starts in the booking that was made for it, and nowhere else; one with a ``booking`` runs
    in that one of its user's, as if he had named it.
    """

    id: str
    time: int
    transfer: str
    submission: SubmissionFacts
    by: str = ""
    keep_until: int = 0
    booked: bool = False
    booking: str = ""
    type: Literal["transfer_request"] = "transfer_request"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRelease:
    """The job that was handed over is to lose its hold: from now on it may start."""

    id: str
    time: int
    transfer: str
    type: Literal["transfer_release"] = "transfer_release"


@dataclass(frozen=True, slots=True, kw_only=True)
class BagEndReported:
    """The array is a share of something larger, of which other clusters have the rest: all of that ends at
    ``end`` by their plans and this one.
    """

    id: str
    time: int
    array: str
    end: int
    type: Literal["bag_end_reported"] = "bag_end_reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferWithdrawal:
    """The job that was handed over is to be deleted, unless it runs, or then, too, where that is ``forced``;
    one that never came must not come.
    """

    id: str
    time: int
    transfer: str
    by: str = ""
    forced: bool = False
    type: Literal["transfer_withdrawal"] = "transfer_withdrawal"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRequested:
    """An admin wants a node to be ``on`` and stay so, to be ``off``, to be left as it is (``hold``), or to be
    switched as the plan needs it again (``auto``). ``by`` is who wants it.
    """

    id: str
    time: int
    node: str
    wish: Literal["on", "off", "hold", "auto"]
    reason: str = ""
    by: str = ""
    type: Literal["power_requested"] = "power_requested"


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
class LedgerStored:
    """The database has the entries of the ledger up to this number."""

    id: str
    time: int
    number: int
    type: Literal["ledger_stored"] = "ledger_stored"


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
    ``state_only``: nothing of the log is missing, but the state of the planner had to be rebuilt.
    """

    id: str
    time: int
    why: str
    decided: int = 0
    state_only: bool = False
    type: Literal["log_lost"] = "log_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSet:
    """The daemon's clock was set back to ``time``, behind the engine's, by more than can be waited for.

    All but what people have set, and what was promised, is taken from a snapshot.
    """

    id: str
    time: int
    type: Literal["clock_set"] = "clock_set"
