"""Queue policies as three hooks of one loop: order, may-start-now, reserve.

They decide at the last moment and plan nothing but what they reserve; the planning policy (conservative gap
filling with repair) is the engine itself. Sources: planning.md §3.1 (FCFS), §3.3 (SJF), §3.4 (EASY), §3.6
(aggressive backfilling without reservations).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["QUEUE_POLICIES", "QueuePolicy"]

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """One queue policy.

    ``order`` gets waiting slots in order of arrival and their durations, and returns them in the order in
    which they are tried. ``may_start`` says whether a job may start when this many before it could not.
    ``reserves`` says whether a job that cannot start gets a reservation, likewise.
    """

    name: str
    order: Callable[[_Ints, _Ints], _Ints]
    may_start: Callable[[int], bool]
    reserves: Callable[[int], bool]


def _by_arrival(slots: _Ints, _durations: _Ints) -> _Ints:
    return slots


def _shortest_first(slots: _Ints, durations: _Ints) -> _Ints:
    return slots[np.argsort(durations, kind="stable")]


def _nobody_blocked(blocked: int) -> bool:
    return blocked == 0


def _always(_blocked: int) -> bool:
    return True


def _never(_blocked: int) -> bool:
    return False


QUEUE_POLICIES: dict[str, QueuePolicy] = {
    policy.name: policy
    for policy in (
        QueuePolicy("fcfs", _by_arrival, _nobody_blocked, _never),
        QueuePolicy("sjf", _shortest_first, _nobody_blocked, _never),
        QueuePolicy("easy", _by_arrival, _always, _nobody_blocked),
        QueuePolicy("aggressive", _by_arrival, _always, _never),
    )
}
