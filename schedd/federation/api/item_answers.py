"""Answers of a federation's HTTP interface about co-allocations, bags and bookings.

Times are seconds since the epoch. They are the types of the client's answers, too (schedd/client/answers.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from schedd.federation.bags.offers import ClusterOffer, TaskSplit
from schedd.federation.items import AttemptPhase, ItemOutcome

# ---- co-allocations -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentView:
    """A component of a co-allocation, with its job at the cluster."""

    component: int
    resources: Mapping[str, str]
    optional: bool
    cluster: str
    job: str = ""
    phase: str = ""
    state: str = ""
    started: int | None = None
    exit_status: int | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """A start with a place for each component. ``clusters``, ``units`` and ``plans`` are by component."""

    number: int
    start: int
    end: int
    clusters: Mapping[str, str]
    units: Mapping[str, int]
    phase: str
    since: int
    why: str
    plans: Mapping[str, int]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentEditView:
    """A requested change of a component. ``text`` is the reason of a refusal."""

    component: int
    act: Literal["add", "substitute", "delete"]
    by: str
    since: int
    later: bool
    phase: Literal["pending", "made", "refused"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationView:
    """A co-allocation. ``cores`` is the total of a divided one, otherwise null. ``displayed_start`` and
    ``published_end`` are those first published, or those of the latest edit.
    """

    id: str
    owner: str
    submitted: int
    state: str
    start: int | None
    end: int | None
    displayed_start: int | None
    published_end: int | None
    moves: int
    cores: int | None
    components: Sequence[ComponentView]
    rounds: Sequence[RoundView]
    edits: Sequence[ComponentEditView]
    over: ItemOutcome
    over_at: int | None
    cancelled: bool
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationsView:
    """Co-allocations that the caller may see."""

    coallocations: Sequence[CoAllocationView]


# ---- bags -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BagOfferView:
    """An offer for a bag until it ``expires``. ``deadline_state`` is ``accepted`` if the clusters would
    accept the deadline, else ``wished``. ``earliest_deadline``: for a wished one, the first that can be kept;
    null if the clusters accept no deadlines. ``why``: reasons for missing offers, by cluster.
    """

    id: str
    expires: int
    tasks: int
    deadline: int
    deadline_state: Literal["", "accepted", "wished"]
    earliest_deadline: int | None
    offers: Sequence[ClusterOffer]
    split: TaskSplit | None
    plans: Mapping[str, int]
    why: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BagShareView:
    """An array of a bag's tasks at one cluster. ``first_end`` is the actual or planned end of its first task;
    null if it is unknown or not disclosed.
    """

    job: str
    cluster: str
    server_job: str
    array: str
    tasks: int
    phase: str
    state: str
    planned_start: int | None
    published_end: int
    end: int | None
    first_end: int | None
    stretch_s: int | None
    waiting: int
    running: int
    ended: int
    failed: int
    deleted: int
    over: ItemOutcome
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BagView:
    """A bag of tasks.

    ``end`` is the expected or actual end of the last task, ``first_end`` the end of the first known one.
    ``stretch_s`` is the time between them, ``stretch`` its share of the response time. ``deadline_state``:
    the clusters promise to end each task by the deadline (``accepted``), or do not (``wished``: not judged
    yet, or refused, with the ``earliest_deadline`` that can be kept as planned now); an accepted one that
    they would miss now is ``at_risk``; at the end ``kept`` or ``missed``; empty for a cancelled bag.
    ``promised_end`` is the guaranteed end of an accepted one.
    """

    id: str
    owner: str
    name: str
    resources: Mapping[str, str]
    submitted: int
    tasks: int
    deadline: int
    published_end: int
    promised_end: int | None
    end: int | None
    first_end: int | None
    stretch_s: int | None
    stretch: float | None
    deadline_kept: bool | None
    deadline_state: Literal["", "accepted", "wished", "at_risk", "missed", "kept"]
    earliest_deadline: int | None
    without_cluster: int
    waiting: int
    running: int
    ended: int
    failed: int
    deleted: int
    state: str
    over: str
    over_at: int | None
    cancelled: bool
    text: str
    shares: Sequence[BagShareView]


@dataclass(frozen=True, slots=True, kw_only=True)
class BagsView:
    """Bags that the caller may see."""

    bags: Sequence[BagView]


# ---- bookings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedBookingMove:
    """A move of the planned start; ``before`` is null for the first one."""

    time: int
    before: int | None
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingAttemptView:
    """A booking at one cluster; ``name`` is its name there."""

    number: int
    cluster: str
    user: str
    name: str
    phase: AttemptPhase
    since: int
    ready: int
    deadline: int
    why: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterOfferView:
    """A counter-offer of one cluster; ``stretch`` is its distance from the window, in lengths."""

    option: int
    cluster: str
    start: int
    end: int
    stretch: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedBookingView:
    """A booking of the federation. ``away`` is the reason why its cluster does not answer. ``duration`` is
    that at its cluster; with ``by_speed``, before it has one, that at a cluster of speed 1.
    """

    id: str
    name: str
    owner: str
    state: str
    cluster: str
    away: str
    resources: Mapping[str, str]
    cpus: int | None
    duration: int
    by_speed: bool
    ready: int
    deadline: int
    start: int | None
    end: int | None
    spare: int | None
    freezes: int | None
    clusters: Sequence[str]
    submitted: int
    jobs: Sequence[str]
    moves: Sequence[FederatedBookingMove]
    attempts: Sequence[BookingAttemptView]
    options: Sequence[CounterOfferView]
    cancelled: bool
    over: ItemOutcome
    over_at: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FederatedBookingsView:
    """Bookings that the caller may see, by their start."""

    bookings: Sequence[FederatedBookingView]
