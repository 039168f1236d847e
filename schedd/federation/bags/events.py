"""What the log holds of bags. ``job`` is the bag's number; numbers are those of jobs, too.

A bag's *shares* are jobs of the federation (``Submitted`` with ``bag``), each an array that goes to one
cluster and stays there. What no share has, since a cluster refused it, is shared out again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["BagCancelled", "BagEvent", "BagFailed", "BagSubmitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BagSubmitted:
    """A bag of ``tasks`` was handed to the federation by ``owner``; ``submission`` is one task's, as of a
    job.

    With ``clusters`` it may go to these alone. ``told``: when all were to have ended, by the offers taken.
    """

    job: str
    time: int
    owner: str
    submission: Mapping[str, Any]
    tasks: int
    deadline: int
    told: int
    clusters: tuple[str, ...] = ()
    balance: str = "none"
    key: str = ""
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
