"""Candidate orders for placing many waiting jobs: priority rules, deadlines and randomised rules."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.plan.columns import Floats, Ints

SortKeys = Floats | Ints

_EXPONENTS: Final = ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.5, 1.0))
"""Pairs (a, b): sort by slope / (cpus**a * duration**b), largest first."""

_RANDOM_ORDERS: Final = 20  # number of randomised orders

_MIN_SLOPE: Final = 1e-15  # lower bound of a slope before its logarithm is taken

_DISPLACED_AREA_FACTOR: Final = 3
"""Displaced cpu-seconds per rescued cpu-second: not all freed capacity is usable."""


@dataclass(frozen=True, slots=True)
class OrderingColumns:
    """Job columns for generating orders; all of shape (n,).

    ``start``: planned start; ``latest``: latest start allowed; ``duration`` in seconds; ``cpus`` >= 1;
    ``waited`` in seconds up to now; ``due``: deadline, seconds since the epoch (FOREVER: none); ``slope``:
    growth of the cost per second of delay; ``rank``: by priority, higher first.
    """

    start: Ints
    latest: Ints
    duration: Floats
    cpus: Floats
    waited: Floats
    due: Ints
    slope: Floats
    rank: Ints


def generate_orders(jobs: OrderingColumns, seed: int) -> Iterator[SortKeys]:
    """Generate orders of all jobs as sort keys, smallest first. Higher ranks come first in each order.

    The orders: shortest duration, smallest cpu-seconds, largest expansion factor, earliest deadline, Smith's
    rule with the exponents of ``_EXPONENTS``, and ``_RANDOM_ORDERS`` variants of Smith's rule with random
    exponents and noise.

    Source: W. E. Smith, Various optimizers for single-stage production (1956).
    """
    if np.unique(jobs.rank).shape[0] == 1:
        yield from _generate_keys(jobs, seed)
        return
    made: Ints | None = None
    for keys in _generate_keys(jobs, seed):
        order = np.lexsort((keys, -jobs.rank))
        if made is not None and np.array_equal(order, made):
            continue  # where all ranks differ, all orders are the same
        made = order
        places = np.empty(order.shape[0], np.int64)
        places[order] = np.arange(order.shape[0])
        yield places


def _generate_keys(jobs: OrderingColumns, seed: int) -> Iterator[SortKeys]:
    yield jobs.duration
    yield jobs.duration * jobs.cpus
    yield -jobs.waited / jobs.duration
    if np.unique(jobs.due).shape[0] > 1:
        yield jobs.due
    slope = -np.log(np.maximum(jobs.slope, _MIN_SLOPE))
    cpus, duration = np.log(jobs.cpus), np.log(jobs.duration)
    for wide, long in _EXPONENTS:
        yield slope + wide * cpus + long * duration
    random = np.random.default_rng(seed & ((1 << 64) - 1))
    for _ in range(_RANDOM_ORDERS):
        wide, long, noise = random.uniform(0.0, (1.0, 1.2, 1.0))
        keys = slope + wide * cpus + long * duration
        yield keys + random.normal(0.0, noise, keys.shape[0])


def select_rescue(
    jobs: OrderingColumns, now: int, size: int, most: int, random: np.random.Generator | None
) -> tuple[Ints, Ints]:
    """Return the jobs to rescue and the jobs displaced for them, as indices, both by earliest deadline first
    (EDF).

    Rescued are up to ``size`` jobs that would miss a deadline they can still meet: the most urgent ones, or a
    sample drawn by ``random``. Displaced are jobs planned before the last feasible start of the rescued ones:
    those with the most slack first, among jobs without a bound those with the lowest cost per cpu-second. At
    most ``most`` jobs in all.
    """
    end = jobs.start + jobs.duration
    late = np.flatnonzero((end > jobs.due) & (now + jobs.duration <= jobs.due))
    if random is not None and late.shape[0] > size:
        late = random.choice(late, size, replace=False)
    urgent = late[smallest_keys(jobs.due[late], size)]
    if not urgent.shape[0]:
        return urgent, urgent
    until = (jobs.due[urgent] - jobs.duration[urgent]).max()
    latest = np.minimum(jobs.latest, jobs.due - jobs.duration)
    giving = np.flatnonzero((jobs.start < until) & (jobs.start < latest))
    left = np.where(latest >= end.max(), np.inf, latest - jobs.start)[giving]
    area = jobs.cpus * jobs.duration
    dear = np.maximum(jobs.slope, _MIN_SLOPE) / area
    giving = giving[np.lexsort((dear[giving], -left))]
    enough = int(np.searchsorted(np.cumsum(area[giving]), _DISPLACED_AREA_FACTOR * area[urgent].sum())) + 1
    giving = giving[: min(enough, most - urgent.shape[0])]
    return urgent, giving[np.lexsort((-dear[giving], jobs.due[giving]))]


def leading_jobs(order: SortKeys, planned: SortKeys, most: int) -> Ints:
    """Return the first ``most`` jobs, half of them by ``order`` and half by planned start, sorted by
    ``order``.

    Both arguments have shape (n,). Does not sort all n jobs.
    """
    by_order = smallest_keys(order, most)
    if order.shape[0] <= most:
        return by_order
    in_turn = np.stack((by_order, smallest_keys(planned, most)), axis=1).ravel()
    _, places = np.unique(in_turn, return_index=True)
    kept = np.sort(in_turn[np.sort(places)[:most]])
    return kept[_stable_argsort(order[kept])]


def smallest_keys(keys: SortKeys, n: int) -> Ints:
    """Return the indices of the ``n`` smallest keys in ascending order; ties by index."""
    if keys.shape[0] <= n:
        return _stable_argsort(keys)
    if n < 1:
        return np.empty(0, np.int64)
    bound = np.partition(keys, n - 1)[n - 1]
    below = np.flatnonzero(keys < bound)
    found = np.concatenate((below, np.flatnonzero(keys == bound)[: n - below.shape[0]]))
    return found[_stable_argsort(keys[found])]


def advance_job(order: Ints, late: int) -> Ints:
    """Return the order with the job at index ``late`` moved to index ``late // 2``."""
    half = late // 2
    return np.concatenate((order[:half], order[late : late + 1], order[half:late], order[late + 1 :]))


def _stable_argsort(keys: SortKeys) -> Ints:
    return np.argsort(keys, kind="stable")
