"""Events in a federation's log. Its state is built only from these events.

A federation has four kinds of items: jobs, co-allocations, bags and bookings. All items share one sequence of
numbers; ``job`` of an event is the number of its item. An item has *attempts*: requests to one cluster each,
numbered from 1. The words of an attempt are those of the cluster's side: it is submitted held (or booked),
released (or confirmed), and withdrawn.

Invariants, also after any crash:

- At most one attempt of a job has its release requested and is not known to be withdrawn.
- At most one attempt of a booking is booked and not known to be withdrawn.
- A co-allocation commits in two phases: a *round* is a start with a place for every component. It is
  proposed, its places are booked in the order of the clusters' names, and RoundCommitted is the decision.
  Each place has an attempt, the component's job. Then the co-allocation starts, or it is aborted and every
  component job is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

EndReason = Literal["ended", "deleted", "cancelled", "lost", "refused", "failed"]
StartMove = tuple[int, int | None, int]  # (time, previous start or None, new start)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedEvent:
    """Any event in the log."""

    job: str
    time: int
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FederationEvent(LoggedEvent):
    """An event of the item with the number ``job``."""


# ---- submissions ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionEvent(FederationEvent):
    """``owner`` (``user@realm``) submitted an item. ``clusters`` restricts it to these clusters. ``key`` is
    the sender's idempotency key.
    """

    owner: str
    clusters: tuple[str, ...] = ()
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSubmitted(SubmissionEvent):
    """A job was submitted.

    ``submission`` has ``script``, ``resources``, ``attributes``, ``variables`` and ``queues`` (by cluster).
    ``priority`` is the job's priority among the federation's jobs.

    A share of a ``bag`` is an array of the bag's tasks (``array`` in ``submission``) for one cluster. It
    stays there; tasks of a refused share are assigned again. A job in a ``booking`` of the federation runs at
    the booking's cluster; ``booking`` in ``submission`` is its name there.
    """

    submission: Mapping[str, Any]
    deadline: int | None = None
    priority: int = 0
    bag: str = ""
    booking: str = ""
    type: Literal["job_submitted"] = "job_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationSubmitted(SubmissionEvent):
    """A co-allocation was submitted. ``components`` and ``options`` have the fields of ``Component`` and
    ``CoAllocationOptions``. A divided request has one entry in ``components``.
    """

    components: tuple[Mapping[str, Any], ...]
    options: Mapping[str, Any]
    type: Literal["coallocation_submitted"] = "coallocation_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BagSubmitted(SubmissionEvent):
    """A bag of ``tasks`` was submitted; ``submission`` describes one task, as for a job.

    ``offered_end`` is the end by the accepted offers. ``offer`` is the name of a previously issued offer, or
    empty.
    """

    submission: Mapping[str, Any]
    tasks: int
    deadline: int
    offered_end: int
    balance: str = "none"
    offer: str = ""
    type: Literal["bag_submitted"] = "bag_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingSubmitted(SubmissionEvent):
    """The owner requests ``resources`` for ``duration`` seconds between ``ready`` and ``deadline``, under
    this ``name``.

    The start may move within that window until ``freeze`` percent of the wait have passed. With ``by_speed``
    the duration is that at a cluster of speed 1. ``users`` are the user names by cluster from the owner's ID
    token.
    """

    name: str
    resources: Mapping[str, str]
    duration: int
    ready: int
    deadline: int
    freeze: int = 50
    account: str = ""
    by_speed: bool = False
    users: Mapping[str, str] | None = None
    type: Literal["booking_submitted"] = "booking_submitted"


# ---- items ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCancelled(FederationEvent):
    """The owner or an admin (``by``) cancelled the item; its attempts are to be withdrawn."""

    by: str
    type: Literal["item_cancelled"] = "item_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEnded(FederationEvent):
    """Nothing more is tried. For a bag: no cluster takes the unassigned tasks."""

    how: EndReason
    text: str
    type: Literal["item_ended"] = "item_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class BagDeadlineAccepted(FederationEvent):
    """The clusters promise to end all tasks of a bag by its deadline, the last one by ``end``."""

    end: int
    type: Literal["bag_deadline_accepted"] = "bag_deadline_accepted"


# ---- attempts -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEvent(FederationEvent):
    """An event of one attempt."""

    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChosen(AttemptEvent):
    """The item is to be submitted at ``cluster``, in the name of ``user``. A job with another attempt moves.

    ``start`` and ``end`` are the plan's offer; None if it had none. An unconfirmed booking expires at
    ``until``; ``duration`` is its length at the cluster, 0 as requested. The lengths of its alternatives are
    divided by ``speed``.
    """

    cluster: str
    user: str
    start: int | None
    end: int | None
    why: str
    until: int = 0
    duration: int = 0
    speed: float = 1.0
    type: Literal["cluster_chosen"] = "cluster_chosen"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHeld(AttemptEvent):
    """The cluster's server has the job, on hold."""

    server_job: str
    type: Literal["attempt_held"] = "attempt_held"


@dataclass(frozen=True, slots=True)
class AlternativeStart:
    """A period that a cluster offers in place of the requested one."""

    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRefused(AttemptEvent):
    """The cluster refuses the job or booking; ``options`` are alternatives to a booking."""

    text: str
    options: tuple[AlternativeStart, ...] = ()
    type: Literal["attempt_refused"] = "attempt_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptBooked(AttemptEvent):
    """The cluster has reserved the cores from ``start`` on, until the booking is confirmed or expires. This
    attempt is now in force. ``plan`` is the last known version of the cluster's plan. ``duration`` is the
    length of the alternative that the cluster chose; 0 as requested.
    """

    start: int
    cpus: int
    plan: int
    duration: int = 0
    type: Literal["attempt_booked"] = "attempt_booked"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptConfirmed(AttemptEvent):
    """The booking is confirmed and no longer expires."""

    type: Literal["attempt_confirmed"] = "attempt_confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReleaseRequested(AttemptEvent):
    """The federation releases this attempt: the job runs here."""

    type: Literal["attempt_release_requested"] = "attempt_release_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptReleased(AttemptEvent):
    """The hold of the attempt is released."""

    type: Literal["attempt_released"] = "attempt_released"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(AttemptEvent):
    """The component job runs or has run."""

    type: Literal["attempt_started"] = "attempt_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawalRequested(AttemptEvent):
    """The attempt is to be withdrawn."""

    why: str
    type: Literal["withdrawal_requested"] = "withdrawal_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptWithdrawn(AttemptEvent):
    """The attempt is withdrawn. A job has not run; a started component job is deleted."""

    type: Literal["attempt_withdrawn"] = "attempt_withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawalFailed(AttemptEvent):
    """The attempt cannot be withdrawn because it runs."""

    text: str
    type: Literal["withdrawal_failed"] = "withdrawal_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnded(AttemptEvent):
    """The attempt ended, was deleted or cancelled at its cluster, or is unknown there (``lost``)."""

    how: EndReason
    exit_status: int | None = None
    text: str = ""
    type: Literal["attempt_ended"] = "attempt_ended"


# ---- bookings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingUpdated(AttemptEvent):
    """The cluster reported a new ``phase``, ``start``, freeze time (``freezes``) or new ``moves``."""

    phase: Literal["flexible", "frozen", "open"]
    start: int
    freezes: int | None
    moves: tuple[StartMove, ...]
    type: Literal["booking_updated"] = "booking_updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingAccepted(FederationEvent):
    """The owner accepted an alternative: the booking starts at ``start`` at ``cluster``."""

    by: str
    cluster: str
    start: int
    type: Literal["booking_accepted"] = "booking_accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BookingFreezeRequested(FederationEvent):
    """The booking is to keep its planned start."""

    by: str
    type: Literal["booking_freeze_requested"] = "booking_freeze_requested"


# ---- co-allocations -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ComponentPlace:
    """A component at a cluster, in the name of ``user``; ``attempt`` is the number of its component job.

    ``units`` are the units of a divided request, otherwise 0.
    """

    component: int
    cluster: str
    user: str
    attempt: int
    units: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEvent(FederationEvent):
    """An event of the round ``number``."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProposed(RoundEvent):
    """These places are to be booked for ``start``, each for ``length`` seconds.

    If another round is committed, this one replaces it when it commits.
    """

    start: int
    length: int
    places: tuple[ComponentPlace, ...]
    why: str
    type: Literal["round_proposed"] = "round_proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceBooked(RoundEvent):
    """The cluster has booked the place until confirmed or expired; ``plan``: version of its plan."""

    component: int
    plan: int
    type: Literal["place_booked"] = "place_booked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCommitted(RoundEvent):
    """All required places are booked. This round is in force, and it replaces the previous one."""

    type: Literal["round_committed"] = "round_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceConfirmed(RoundEvent):
    """The booking of the place is confirmed and no longer expires."""

    component: int
    type: Literal["place_confirmed"] = "place_confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceArmed(RoundEvent):
    """The booking is armed: its component may start."""

    component: int
    type: Literal["place_armed"] = "place_armed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDropped(RoundEvent):
    """The round is dropped. Its bookings are to be cancelled."""

    why: str
    type: Literal["round_dropped"] = "round_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCleared(RoundEvent):
    """All bookings of a dropped round are cancelled."""

    type: Literal["round_cleared"] = "round_cleared"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentEditRequested(FederationEvent):
    """The owner or an admin (``by``) substitutes a component by ``request``, adds one (``component`` is the
    next index), or deletes one (``request`` is None).

    ``later``: the start may become later than the present one.
    """

    by: str
    component: int
    request: Mapping[str, Any] | None
    later: bool = False
    type: Literal["component_edit_requested"] = "component_edit_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentEditRefused(FederationEvent):
    """The requested change is not made; the co-allocation does not change."""

    why: str
    type: Literal["component_edit_refused"] = "component_edit_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationReleaseRequested(FederationEvent):
    """All holds are to be released. A component starts only once its booking is armed."""

    type: Literal["coallocation_release_requested"] = "coallocation_release_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationArmed(FederationEvent):
    """All holds are released, and the bookings are to be armed."""

    type: Literal["coallocation_armed"] = "coallocation_armed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationStarted(FederationEvent):
    """All required components run, and they are to be kept."""

    type: Literal["coallocation_started"] = "coallocation_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationAborted(FederationEvent):
    """A component did not start. All component jobs are to be deleted."""

    why: str
    type: Literal["coallocation_aborted"] = "coallocation_aborted"


# ---- events without an item -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BagSpecification:
    """Request for a bag: ``resources`` and ``walltime`` of one task; only these ``clusters``."""

    resources: Mapping[str, str]
    walltime: int
    cpu_seconds: int
    tasks: int
    deadline: int
    clusters: tuple[str, ...] = ()
    queues: Mapping[str, str] = field(default_factory=dict)
    balance: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class BagOffered(LoggedEvent):
    """An offer was issued to ``owner``, who may accept it until ``expires``. ``job`` is the offer's name, not
    a number.

    ``shares`` is the number of tasks by cluster, or None without room. ``ends`` are the ends by cluster,
    ``end`` the last of them; ``met`` means by the deadline. ``plans`` are the plan versions behind the offer.
    """

    owner: str
    asked: BagSpecification
    expires: int
    shares: Mapping[str, int] | None
    end: int
    met: bool
    ends: Mapping[str, int]
    plans: Mapping[str, int]
    type: Literal["bag_offered"] = "bag_offered"


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceLeased(LoggedEvent):
    """New bound of a cluster: it may use up to ``copies`` of a licence. ``job`` is empty."""

    licence: str
    cluster: str
    copies: int
    number: int
    type: Literal["licence_leased"] = "licence_leased"


_AnyEvent = (
    JobSubmitted
    | CoAllocationSubmitted
    | BagSubmitted
    | BookingSubmitted
    | ItemCancelled
    | ItemEnded
    | BagDeadlineAccepted
    | ClusterChosen
    | AttemptHeld
    | AttemptRefused
    | AttemptBooked
    | AttemptConfirmed
    | AttemptReleaseRequested
    | AttemptReleased
    | AttemptStarted
    | WithdrawalRequested
    | AttemptWithdrawn
    | WithdrawalFailed
    | AttemptEnded
    | BookingUpdated
    | BookingAccepted
    | BookingFreezeRequested
    | RoundProposed
    | PlaceBooked
    | RoundCommitted
    | PlaceConfirmed
    | PlaceArmed
    | RoundDropped
    | RoundCleared
    | ComponentEditRequested
    | ComponentEditRefused
    | CoAllocationReleaseRequested
    | CoAllocationArmed
    | CoAllocationStarted
    | CoAllocationAborted
    | BagOffered
    | LicenceLeased
)
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Annotated[_AnyEvent, Field(discriminator="type")])


def encode(event: LoggedEvent) -> str:
    """Return the event as JSON."""
    return _ADAPTER.dump_json(event).decode()


def decode(text: str) -> LoggedEvent:
    """Parse an event from JSON. Raises ValueError for an unknown event type."""
    found: LoggedEvent = _ADAPTER.validate_json(text)
    return found
