"""What the log holds of groups. ``job`` is the group's number; numbers are those of jobs, too.

A group has *rounds*: each a moment, and a place for every part. A round is proposed, its places are booked
one after the other by the clusters' names, and it is committed when all are: that row of the log decides.
Each place has a *copy*: the part's job at that cluster, on hold. The group is let go once; then it begins, or
it is released: every copy is deleted.
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
    """A part at a cluster, as ``user`` there; ``copy`` is the number of its job. ``units``: of a part that is
    divided, so many; 0: it is not.
    """

    part: int
    cluster: str
    user: str
    copy: int
    units: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationSubmitted:
    """A group was handed to the federation; ``parts`` and ``options`` are as ``Component`` and
    ``CoAllocationOptions``. Of one that is divided there is one part, whatever its pieces.
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
    """These places are to be booked for ``start``, each for ``length`` seconds of its job; beside a round
    that is committed it is to take its place.
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
    """The cluster has it booked, until confirmed or its time is over. ``plan`` is the plan's version."""

    job: str
    time: int
    number: int
    part: int
    plan: int
    type: Literal["place_booked"] = "place_booked"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCommitted:
    """All is booked that must be: this round counts from now on, and the one before does not any more."""

    job: str
    time: int
    number: int
    type: Literal["round_committed"] = "round_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceConfirmed:
    """The cluster does not give the booking up by itself any more."""

    job: str
    time: int
    number: int
    part: int
    type: Literal["place_confirmed"] = "place_confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundDropped:
    """The round is nothing: what was booked is to be given back."""

    job: str
    time: int
    number: int
    why: str
    type: Literal["round_dropped"] = "round_dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundCleared:
    """All that was booked for a dropped round is given back."""

    job: str
    time: int
    number: int
    type: Literal["round_cleared"] = "round_cleared"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentHeld:
    """The cluster's server has the job, on hold."""

    job: str
    time: int
    copy: int
    server_job: str
    type: Literal["component_held"] = "component_held"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRefused:
    """The cluster does not take the job."""

    job: str
    time: int
    copy: int
    text: str
    type: Literal["component_refused"] = "component_refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationReleaseRequested:
    """All holds are to be released; no part starts before its booking is armed."""

    job: str
    time: int
    type: Literal["coallocation_release_requested"] = "coallocation_release_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationArmed:
    """All holds are released: the bookings are to be armed, without which no part starts."""

    job: str
    time: int
    type: Literal["coallocation_armed"] = "coallocation_armed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceArmed:
    """The cluster knows that its part may start."""

    job: str
    time: int
    number: int
    part: int
    type: Literal["place_armed"] = "place_armed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentStarted:
    """The job runs, or ran."""

    job: str
    time: int
    copy: int
    type: Literal["component_started"] = "component_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationStarted:
    """All parts run that must: they are to be kept."""

    job: str
    time: int
    type: Literal["coallocation_started"] = "coallocation_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationAborted:
    """A part did not start: all are to be deleted."""

    job: str
    time: int
    why: str
    type: Literal["coallocation_aborted"] = "coallocation_aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentWithdrawalRequested:
    """The job is not wanted any more."""

    job: str
    time: int
    copy: int
    why: str
    type: Literal["component_withdrawal_requested"] = "component_withdrawal_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentWithdrawn:
    """It is withdrawn, or deleted."""

    job: str
    time: int
    copy: int
    type: Literal["component_withdrawn"] = "component_withdrawn"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentEnded:
    """The job ended, or somebody deleted it."""

    job: str
    time: int
    copy: int
    how: Literal["ended", "deleted"]
    exit_status: int | None = None
    type: Literal["component_ended"] = "component_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationCancelled:
    """Its owner does not want it any more."""

    job: str
    time: int
    by: str
    type: Literal["coallocation_cancelled"] = "coallocation_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoAllocationEnded:
    """Nothing more is tried."""

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
