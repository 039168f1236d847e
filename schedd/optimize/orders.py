"""Orders in which waiting jobs may be placed anew, all or many: rules of priority, deadlines, and chance."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.plan.columns import Floats, Ints

__all__ = ["JobFacts", "Keys", "first", "foremost", "orders", "rescue", "sooner"]

Keys = Floats | Ints

_POWERS: Final = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.5, 1.0))
"""Of cpus and of seconds, by which the slope of a job is divided."""

_CHANCES: Final = 20
"""So many orders are drawn."""

_LEAST: Final = 1e-15
"""A slope below this counts as this: logarithms are taken."""

_ROOM: Final = 3
"""Who makes way holds so many times the cpu-seconds of those for whom it does: not all of it is of use."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What orders are made from; all (n,), by job.

    ``start``: the planned one, ``latest``: the last one allowed; ``duration`` in seconds, ``cpus`` at least
    1, ``waited`` up to now in seconds, ``due`` in seconds since the epoch (FOREVER: whenever), ``slope``: how
    much the cost grows for each second that it starts later.
    """

    start: Ints
    latest: Ints
    duration: Floats
    cpus: Floats
    waited: Floats
    due: Ints
    slope: Floats


def orders(jobs: JobFacts, seed: int) -> Iterator[Keys]:
    """Orders of all jobs, as keys of which the least comes first: the shortest, the smallest, the largest
    expansion factor, the earliest deadline first; then by the slope for what the job takes, which is Smith's
    rule where one job after another is placed, with several powers of what it takes; then the same with
    powers and noise that are drawn.

    W. E. Smith, Various optimizers for single-stage production (1956): least weighted sum of ends on one
    machine when jobs go by weight for each second.
    """
    yield jobs.duration
    yield jobs.duration * jobs.cpus
    yield -jobs.waited / jobs.duration
    if np.unique(jobs.due).shape[0] > 1:
        yield jobs.due
    slope = -np.log(np.maximum(jobs.slope, _LEAST))
    cpus, duration = np.log(jobs.cpus), np.log(jobs.duration)
    for wide, long in _POWERS:
        yield slope + wide * cpus + long * duration
    random = np.random.default_rng(seed & ((1 << 64) - 1))
    for _ in range(_CHANCES):
        wide, long, noise = random.uniform(0.0, (1.0, 1.2, 1.0))
        keys = slope + wide * cpus + long * duration
        yield keys + random.normal(0.0, noise, keys.shape[0])


def rescue(
    jobs: JobFacts, now: int, size: int, most: int, random: np.random.Generator | None
) -> tuple[Ints, Ints]:
    """Up to ``size`` jobs that would miss a deadline which they can still keep, and those that make way for
    them, as indices, at most ``most`` in all. Both go by deadline, as in EDF.

    The most urgent are taken, or some that ``random`` draws. Those make way who are planned before the last
    moment at which these could start, and may start latest after their planned start, with their own deadline
    kept; of those who may go to the end of the plan who costs least for each cpu-second.
    """
    end = jobs.start + jobs.duration
    late = np.flatnonzero((end > jobs.due) & (now + jobs.duration <= jobs.due))
    if random is not None and late.shape[0] > size:
        late = random.choice(late, size, replace=False)
    urgent = late[first(jobs.due[late], size)]
    if not urgent.shape[0]:
        return urgent, urgent
    until = (jobs.due[urgent] - jobs.duration[urgent]).max()
    latest = np.minimum(jobs.latest, jobs.due - jobs.duration)
    giving = np.flatnonzero((jobs.start < until) & (jobs.start < latest))
    left = np.where(latest >= end.max(), np.inf, latest - jobs.start)[giving]
    area = jobs.cpus * jobs.duration
    dear = np.maximum(jobs.slope, _LEAST) / area
    giving = giving[np.lexsort((dear[giving], -left))]
    enough = int(np.searchsorted(np.cumsum(area[giving]), _ROOM * area[urgent].sum())) + 1
    giving = giving[: min(enough, most - urgent.shape[0])]
    return urgent, giving[np.lexsort((-dear[giving], jobs.due[giving]))]


def foremost(order: Keys, planned: Keys, most: int) -> Ints:
    """The ``most`` jobs that stand in front in an order or in the plan, half of each, as the order has them.

    ``planned``: the planned starts; both (n,) by job. In less time than it takes to sort all of many.
    """
    by_order = first(order, most)
    if order.shape[0] <= most:
        return by_order
    in_turn = np.stack((by_order, first(planned, most)), axis=1).ravel()
    _, places = np.unique(in_turn, return_index=True)
    kept = np.sort(in_turn[np.sort(places)[:most]])
    return kept[_by(order[kept])]


def first(keys: Keys, n: int) -> Ints:
    """The indices of the ``n`` least keys, the least first; of those alike the first."""
    if keys.shape[0] <= n:
        return _by(keys)
    bound = np.partition(keys, n - 1)[n - 1]
    below = np.flatnonzero(keys < bound)
    found = np.concatenate((below, np.flatnonzero(keys == bound)[: n - below.shape[0]]))
    return found[_by(keys[found])]


def sooner(order: Ints, late: int) -> Ints:
    """The same order with the job at index ``late`` half as far from the front."""
    half = late // 2
    return np.concatenate((order[:half], order[late : late + 1], order[half:late], order[late + 1 :]))


def _by(keys: Keys) -> Ints:
    return np.argsort(keys, kind="stable")
