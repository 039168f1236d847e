"""Events from users, admins, federations and the daemon itself, which no adapter reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from schedd.wire.facts import (
    DeadlineForecastFacts,
    ExpectedFacts,
    PlaceFacts,
    RunFacts,
    SubmissionFacts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanged:
    """The site's policy changed. ``site`` has its plain values.

    ``version`` counts the changes; with 0 the policy of the configuration is in force again and ``site`` is
    ignored. ``by`` is the admin.
    """

    id: str
    time: int
    version: int
    site: Mapping[str, Any] = field(default_factory=dict)
    by: str = ""
    type: Literal["policy_changed"] = "policy_changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningHeld:
    """An admin stopped planning on a node, where running jobs continue, or for a queue.

    ``by`` is the admin. A repeated event replaces the ``reason``.
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
    """Planning continues on a node or for a queue."""

    id: str
    time: int
    kind: Literal["node", "queue"]
    name: str
    type: Literal["planning_released"] = "planning_released"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSkipped:
    """The planner failed or hung on the batch of this number and skips it.

    ``why`` is the error. ``jobs`` and ``steps`` are the work in progress, if known: the jobs are quarantined,
    the steps are omitted for a while. ``out`` maps jobs with open run decisions to the
    expiry. ``decided`` is the number of the last decision. With ``anew`` true, the state is rebuilt from user
    settings and a snapshot.
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
    """Expected starts of these jobs, computed on a fork of the plan at ``time``. Only jobs whose estimate
    changed by more than its uncertainty are included.

    ``until``: the round was about jobs expected no later than then; None: about all jobs.
    """

    id: str
    time: int
    jobs: tuple[ExpectedFacts, ...]
    until: int | None = None
    type: Literal["starts_expected"] = "starts_expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlinesForecast:
    """Forecasts for deadlines, computed on a fork of the plan at ``time``: those that changed."""

    id: str
    time: int
    jobs: tuple[DeadlineForecastFacts, ...]
    type: Literal["deadlines_forecast"] = "deadlines_forecast"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferRequest:
    """A federation requests a job to be submitted to the server in the name of ``user``, on hold.

    ``transfer`` is the unique name of the transfer, chosen by the sender. Until ``keep_until`` (seconds since
    the epoch) the held job has a place in the plan. A ``booked`` job starts only in the booking made for it;
    with a ``booking`` it runs in that booking of its user.
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
    """The hold of a transferred job is to be released, so that it may start."""

    id: str
    time: int
    transfer: str
    type: Literal["transfer_release"] = "transfer_release"


@dataclass(frozen=True, slots=True, kw_only=True)
class BagEndReported:
    """The array's bag has shares at other clusters and ends at ``end`` by all plans."""

    id: str
    time: int
    array: str
    end: int
    type: Literal["bag_end_reported"] = "bag_end_reported"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferWithdrawal:
    """The transferred job is to be deleted unless it runs; with ``forced`` also if it runs. A transfer that
    has not arrived yet is refused later.
    """

    id: str
    time: int
    transfer: str
    by: str = ""
    forced: bool = False
    type: Literal["transfer_withdrawal"] = "transfer_withdrawal"


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerRequested:
    """An admin wants a node to be ``on``, ``off``, unchanged (``hold``), or controlled by the plan again
    (``auto``). ``by`` is the admin.
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
    """Power readings at ``time``: ``watts`` of ``nodes``, in the same order."""

    id: str
    time: int
    nodes: tuple[str, ...]
    watts: tuple[float, ...]
    type: Literal["watts_read"] = "watts_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChosen:
    """An admin (``by``) chose another plan: these jobs move, all or none; promises are kept."""

    id: str
    time: int
    places: tuple[PlaceFacts, ...]
    by: str = ""
    type: Literal["plan_chosen"] = "plan_chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSet:
    """An admin creates or changes an account. Amounts are in the smallest units: core-seconds, or millionths
    of the currency. ``by`` is the admin.
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
    """An amount is transferred; no ``source`` or ``target``: from or to the outside."""

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
    """The database has stored the ledger entries up to this number."""

    id: str
    time: int
    number: int
    type: Literal["ledger_stored"] = "ledger_stored"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsRead:
    """The server's accounting logs were read up to ``until``; these runs are not charged correctly yet."""

    id: str
    time: int
    runs: tuple[RunFacts, ...]
    until: int
    type: Literal["runs_read"] = "runs_read"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLost:
    """A part of the log is missing or corrupt; ``why`` has the details.

    ``decided`` is the number of the last known decision, which the log may lack. ``state_only`` means that
    the log is complete but the planner's state had to be rebuilt.
    """

    id: str
    time: int
    why: str
    decided: int = 0
    state_only: bool = False
    type: Literal["log_lost"] = "log_lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSet:
    """The daemon's clock was set back to ``time``, behind the engine's, by more than a tolerable wait.

    The state is taken from a snapshot, except user settings and promises.
    """

    id: str
    time: int
    type: Literal["clock_set"] = "clock_set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContactChanged:
    """The adapter, or its server, has become ``silent``, or is heard again: see `adapter_silence`.

    Jobs go on and end meanwhile.
    """

    id: str
    time: int
    silent: bool
    type: Literal["contact_changed"] = "contact_changed"
