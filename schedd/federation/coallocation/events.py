"""Events of co-allocations in the federation's log. ``job`` is the number of the co-allocation; jobs and
co-allocations share one sequence of numbers.

A co-allocation has *rounds*: each is a start with a place for every component. A round is proposed, its
places are booked in the order of the clusters' names, and it is committed once all places are booked
(two-phase commit; the event RoundCommitted is the decision). Each place has a *component job* at its cluster,
on hold. The release is requested once. Then the co-allocation starts, or it is aborted and every component
job is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "CoAllocationAborted",
    "CoAllocationArmed",
    "CoAllocationCancelled",
    "CoAllocationEnded",
    "CoAllocationEvent",
    "CoAllocationReleaseRequested",
    "CoAllocationStarted",
    "CoAllocationSubmitted",
    "ComponentEnded",
    "ComponentHeld",
    "ComponentPlace",
    "ComponentRefused",
    "ComponentStarted",
    "ComponentWithdrawalRequested",
    "ComponentWithdrawn",
    "PlaceArmed",
    "PlaceBooked",
    "PlaceConfirmed",
    "RoundCleared",
    "RoundCommitted",
    "RoundDropped",
    "RoundProposed",
]


@dataclass(frozen=True, slots=True)
class ComponentPlace:
    """A component at a cluster, in the name of ``user``; ``copy`` is the number of its component job.

    ``units`` are the units of a divided request, otherwise 0.
    """

    part: int
    cluster: str
    user: str
    copy: int
    units: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationSubmitted:
    """A co-allocation was submitted. ``parts`` and ``options`` have the fields of ``Component`` and
    ``CoAllocationOptions``.

    A divided request has one entry in ``parts``.
    """

    job: str
    time: int
    owner: str
    parts: tuple[Mapping[str, Any], ...]
    options: Mapping[str, Any]
    key: str = ""
    type: Literal["coallocation_submitted"] = "coallocation_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundProposed:
    """These places are to be booked for ``start``, each for ``length`` seconds.

    If another round is committed, this one replaces it when it commits.
    """

    job: str
    time: int
    number: int
    start: int
    length: int
    places: tuple[ComponentPlace, ...]
    why: str
    type: Literal["round_proposed"] = "round_proposed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceBooked:
    """The cluster has booked the place until the booking is confirmed or expires. ``plan`` is the version of
    its plan.
    """

    job: str
    time: int
    number: int
    part: int
    plan: int
    type: Literal["place_booked"] = "place_booked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCommitted:
    """All required places are booked. This round is in force, and it replaces the previous one."""

    job: str
    time: int
    number: int
    type: Literal["round_committed"] = "round_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceConfirmed:
    """The booking of the place is confirmed and does not expire any more."""

    job: str
    time: int
    number: int
    part: int
    type: Literal["place_confirmed"] = "place_confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDropped:
    """The round is dropped. Its bookings are to be cancelled."""

    job: str
    time: int
    number: int
    why: str
    type: Literal["round_dropped"] = "round_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCleared:
    """All bookings of a dropped round are cancelled."""

    job: str
    time: int
    number: int
    type: Literal["round_cleared"] = "round_cleared"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentHeld:
    """The cluster's server has the component job, on hold."""

    job: str
    time: int
    copy: int
    server_job: str
    type: Literal["component_held"] = "component_held"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRefused:
    """The cluster refuses the component job."""

    job: str
    time: int
    copy: int
    text: str
    type: Literal["component_refused"] = "component_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationReleaseRequested:
    """All holds are to be released. A component starts only once its booking is armed."""

    job: str
    time: int
    type: Literal["coallocation_release_requested"] = "coallocation_release_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationArmed:
    """All holds are released, and the bookings are to be armed."""

    job: str
    time: int
    type: Literal["coallocation_armed"] = "coallocation_armed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceArmed:
    """The booking is armed: its component may start."""

    job: str
    time: int
    number: int
    part: int
    type: Literal["place_armed"] = "place_armed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentStarted:
    """The component job runs or has run."""

    job: str
    time: int
    copy: int
    type: Literal["component_started"] = "component_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationStarted:
    """All required components run, and they are to be kept."""

    job: str
    time: int
    type: Literal["coallocation_started"] = "coallocation_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationAborted:
    """A component did not start. All component jobs are to be deleted."""

    job: str
    time: int
    why: str
    type: Literal["coallocation_aborted"] = "coallocation_aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentWithdrawalRequested:
    """The component job is to be withdrawn."""

    job: str
    time: int
    copy: int
    why: str
    type: Literal["component_withdrawal_requested"] = "component_withdrawal_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentWithdrawn:
    """The component job is withdrawn or deleted."""

    job: str
    time: int
    copy: int
    type: Literal["component_withdrawn"] = "component_withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentEnded:
    """The component job ended or was deleted at the cluster."""

    job: str
    time: int
    copy: int
    how: Literal["ended", "deleted"]
    exit_status: int | None = None
    type: Literal["component_ended"] = "component_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationCancelled:
    """The owner or an admin (``by``) cancelled the co-allocation."""

    job: str
    time: int
    by: str
    type: Literal["coallocation_cancelled"] = "coallocation_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationEnded:
    """The co-allocation is over, and nothing more is tried."""

    job: str
    time: int
    how: Literal["ended", "cancelled", "failed", "refused"]
    text: str
    type: Literal["coallocation_ended"] = "coallocation_ended"


ComponentJobEvent = (
    ComponentHeld
    | ComponentRefused
    | ComponentStarted
    | ComponentWithdrawalRequested
    | ComponentWithdrawn
    | ComponentEnded
)
CoAllocationEvent = (
    CoAllocationSubmitted
    | RoundProposed
    | PlaceBooked
    | RoundCommitted
    | PlaceConfirmed
    | RoundDropped
    | RoundCleared
    | CoAllocationReleaseRequested
    | CoAllocationArmed
    | PlaceArmed
    | CoAllocationStarted
    | CoAllocationAborted
    | CoAllocationCancelled
    | CoAllocationEnded
    | ComponentJobEvent
)
