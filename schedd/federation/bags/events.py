"""What the log holds of bags. ``job`` is the bag's number; numbers are those of jobs, too.

A bag's *shares* are jobs of the federation (``JobSubmitted`` with ``bag``), each an array that goes to one
cluster and stays there. What no share has, since a cluster refused it, is shared out again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["BagCancelled", "BagEvent", "BagFailed", "BagOffered", "BagSpecification", "BagSubmitted"]


@dataclass(frozen=True, slots=True)
class BagSpecification:
    """A bag as it is asked for. ``resources`` and ``walltime`` (seconds) are one task's; with ``clusters``
    it may go to these alone.
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
    """An offer was told to ``owner``, who may take it until it ``expires``; ``job`` is its name, no number.

    ``shares``: by cluster, how many tasks; None: there is no room. ``ends``: when each has ended, ``end`` the
    last of them; ``met``: by the deadline. ``plans`` are the versions of the plans that said so.
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
    """A bag of ``tasks`` was handed to the federation by ``owner``; ``submission`` is one task's, as of a
    job.

    With ``clusters`` it may go to these alone. ``told``: when all were to have ended, by the offers taken.
    ``offer``: the name of that which was told before, if one was.
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
    """Its owner does not want it any more."""

    job: str
    time: int
    by: str
    type: Literal["bag_cancelled"] = "bag_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class BagFailed:
    """No cluster takes the tasks that have no share."""

    job: str
    time: int
    text: str
    type: Literal["bag_failed"] = "bag_failed"


BagEvent = BagSubmitted | BagCancelled | BagFailed
