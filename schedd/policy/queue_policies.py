"""Queue policies as three hooks of one loop: order, may-start-now, reserve.

They decide at the last moment and plan only reservations; the planning policy (conservative gap filling with
repair) is the engine itself. Sources: planning.md §3.1 (FCFS), §3.2 (EDF), §3.3 (SJF), §3.4 (EASY), §3.6
(aggressive backfilling without reservations), §3.7 (multi-queue order by time used), §3.8 (flexible
backfilling).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]

AGE_CAPS_H: Final = (12, 24, 48)
"""A job goes before all younger ones after this many hours of waiting, regardless of the order."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The queue in order of arrival, as columns of equal length.

    ``now`` and ``since`` (begin of the wait) are seconds since the epoch, ``duration`` is the walltime in
    seconds, above 0. ``due`` is the deadline, or a very late time. Few orders use the columns that are
    computed on demand: ``cpus`` (requested), ``queue_priority``, and ``time_used`` (cpu-seconds that the
    job's user has used).
    """

    now: int
    since: _Ints
    duration: _Ints
    due: _Ints
    cpus: Callable[[], _Ints]
    queue_priority: Callable[[], _Floats]
    time_used: Callable[[], _Floats]


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """One queue policy. ``order`` returns the positions of the waiting jobs in trial order.

    ``may_start`` returns whether a job may start after this many jobs could not. ``reserves`` returns whether
    a job that cannot start gets a reservation, likewise.
    """

    name: str
    order: Callable[[Waiting], _Ints]
    may_start: Callable[[int], bool]
    reserves: Callable[[int], bool]


# ---- orders -------------------------------------------------------------------------------------


def _by_arrival(queue: Waiting) -> _Ints:
    return np.arange(queue.since.shape[0])


def _first(key: Callable[[Waiting], _Ints | _Floats]) -> Callable[[Waiting], _Ints]:
    """Order by ascending key; ties by arrival."""

    def order(queue: Waiting) -> _Ints:
        return np.argsort(key(queue), kind="stable")

    return order


def _capped(key: Callable[[Waiting], _Ints | _Floats], cap: int) -> Callable[[Waiting], _Ints]:
    """As ``_first`` for waits below ``cap`` seconds; older jobs precede them by arrival."""

    def order(queue: Waiting) -> _Ints:
        young = queue.now - queue.since < cap
        return np.lexsort((np.where(young, key(queue), 0), young))

    return order


def _duration(queue: Waiting) -> _Ints:
    return queue.duration


def _area(queue: Waiting) -> _Ints:
    area: _Ints = queue.duration * queue.cpus()
    return area


def _expansion(queue: Waiting) -> _Floats:
    """The expansion factor (wait + estimate) / estimate, descending."""
    factor: _Floats = (queue.now - queue.since + queue.duration) / queue.duration
    return -factor


def _deadline(queue: Waiting) -> _Ints:
    return queue.due


def _by_queue_and_use(queue: Waiting) -> _Ints:
    """Queues by priority, highest first; in each, jobs of the least active user first; ties by arrival."""
    order: _Ints = np.lexsort((queue.time_used(), -queue.queue_priority()))
    return order


_AGING: Final = 0.01  # priority for each second of waiting
_LEAD: Final = 2.0  # deadline pressure begins this many job lengths before the latest start
_LEAST, _MOST = 0.1, 20.0
_BOOST: Final = 2.0  # priority of the shortest job; less for longer ones


def _flexible(queue: Waiting) -> _Floats:
    """Sum of aging, deadline and shortness, descending; a deadline that cannot be met adds no pressure."""
    length = queue.duration
    lead = _LEAD * length
    laxity = queue.due - length - queue.now
    pressed = (laxity >= 0) & (laxity < lead)
    deadline = np.where(pressed, _LEAST + (_MOST - _LEAST) * (lead - laxity) / lead, _LEAST)
    aging = _AGING * (queue.now - queue.since)
    value: _Floats = aging + deadline + _BOOST * length.min() / length
    # Sums that differ only in the last bits are ties, ordered by arrival.
    return -value.round(9)


# ---- the policies -------------------------------------------------------------------------------


def _nobody_blocked(blocked: int) -> bool:
    return blocked == 0


def _always(_blocked: int) -> bool:
    return True


def _never(_blocked: int) -> bool:
    return False


def _strict(name: str, order: Callable[[Waiting], _Ints]) -> QueuePolicy:
    """No job passes a job that cannot start."""
    return QueuePolicy(name, order, _nobody_blocked, _never)


def _easy(name: str, order: Callable[[Waiting], _Ints]) -> QueuePolicy:
    """The first job that cannot start gets a reservation; others start if they do not delay it."""
    return QueuePolicy(name, order, _always, _nobody_blocked)


_KEYS: Final[Mapping[str, Callable[[Waiting], _Ints | _Floats]]] = {
    "sjf": _duration,
    "area": _area,
    "xf": _expansion,
}

QUEUE_POLICIES: Final[Mapping[str, QueuePolicy]] = {
    policy.name: policy
    for policy in (
        _strict("fcfs", _by_arrival),
        _strict("sjf", _first(_duration)),
        _strict("edf", _first(_deadline)),
        _easy("easy", _by_arrival),
        QueuePolicy("aggressive", _by_arrival, _always, _never),
        QueuePolicy("multi-queue", _by_queue_and_use, _always, _never),
        _easy("flexible", _first(_flexible)),
        *(
            _easy(f"easy-{name}-{hours}h", _capped(key, hours * 3600))
            for name, key in _KEYS.items()
            for hours in AGE_CAPS_H
        ),
    )
}
"""Policies by name; ``easy-KEY-CAP``: EASY by shortest, area, or expansion factor first."""
