"""Events of bags in the federation's log. ``job`` is the number of the bag; jobs and bags share one sequence
of numbers.

The *shares* of a bag are jobs of the federation (JobSubmitted with ``bag``). Each share is an array for one
cluster and stays there. Tasks of a refused share are assigned again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["BagCancelled", "BagEvent", "BagFailed", "BagOffered", "BagSpecification", "BagSubmitted"]


@dataclass(frozen=True, slots=True)
class BagSpecification:
    """Request for a bag; ``resources`` and ``walltime`` (seconds) describe one task. ``clusters`` restricts
    it to these clusters.
    """

    resources: Mapping[str, str]
    walltime: int
    cpu_seconds: int
    tasks: int
    deadline: int
    clusters: tuple[str, ...] = ()
    queues: Mapping[str, str] = field(default_factory=dict)
    balance: str = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class BagOffered:
    """An offer was issued to ``owner``, who may accept it until ``expires``. ``job`` is the offer's name, not
    a number.

    ``shares`` is the number of tasks by cluster, or None without room. ``ends`` are the ends by cluster,
    ``end`` the last of them; ``met`` means by the deadline. ``plans`` are the plan versions behind the offer.
    """

    job: str
    time: int
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
class BagSubmitted:
    """``owner`` submitted a bag of ``tasks``. ``submission`` describes one task, as for a job.

    ``clusters`` restricts the bag to these clusters. ``offered_end`` is the end by the accepted offers.
    ``offer`` is the name of a previously issued offer, or empty.
    """

    job: str
    time: int
    owner: str
    submission: Mapping[str, Any]
    tasks: int
    deadline: int
    offered_end: int
    clusters: tuple[str, ...] = ()
    balance: str = "none"
    key: str = ""
    offer: str = ""
    type: Literal["bag_submitted"] = "bag_submitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BagCancelled:
    """The owner or an admin (``by``) cancelled the bag."""

    job: str
    time: int
    by: str
    type: Literal["bag_cancelled"] = "bag_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class BagFailed:
    """No cluster takes the unassigned tasks."""

    job: str
    time: int
    text: str
    type: Literal["bag_failed"] = "bag_failed"


BagEvent = BagSubmitted | BagCancelled | BagFailed
