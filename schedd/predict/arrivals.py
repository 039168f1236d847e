"""Jobs that are expected to arrive later, like the latest arrivals of the cluster.

No plan knows them. They take gaps that waiting jobs would have moved into, so a forecast without them is too
early: on a simulated cluster of 100 nodes 27 % of the waits of six hours and more were over by P50, with them
41 %, and the median error fell from 3.6 to 2.5 hours (decision 218).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

import numpy as np

from schedd.model import FOREVER, Request
from schedd.plan.backfill import EXPECTED_QUANTILE, BackfillRule
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan
from schedd.plan.requests import load_request, save_request
from schedd.predict.predictions import LEVELS
from schedd.predict.sampling import draw_numbers

_KEPT: Final = 500  # latest arrivals that are remembered
_DAY_S: Final = 86_400
_FEWEST_DAYS: Final = 2  # known days from which on jobs come again at their hour of the day
_MOST: Final = 1_000  # jobs that are foreseen at most
_FOUND_S: Final = 60
"""Jobs of the first minute were found waiting. They are large ones, for small ones do not wait for long, and
say nothing of the rate of arrivals.
"""
_ENOUGH: Final = 20  # with so many seen arrivals, only these are taken as examples
_PRIOR_JOBS: Final = 5
"""At first jobs are expected to come as fast as the machine runs them; this counts as so many seen ones."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that arrived ``at`` a time, as the plan knows it.

    ``walltime`` is its planned duration in seconds, ``run_s`` how long it ran (-1: not ended), ``pools`` the
    amounts of pools that it holds.
    """

    at: int
    request: Request
    walltime: int
    pools: tuple[tuple[str, int], ...] = ()
    run_s: int = -1


class RecentArrivals:
    """The latest arrivals of one cluster, oldest first; not thread-safe."""

    def __init__(self, arrivals: Mapping[str, Arrival] | None = None, since: int = -1) -> None:
        """All arrivals after ``since`` are known (-1: there was none)."""
        self._arrivals = dict(arrivals or {})
        self.since = since

    def __len__(self) -> int:
        return len(self._arrivals)

    def items(self) -> Iterator[tuple[str, Arrival]]:
        """Iterate over jobs and their arrivals."""
        return iter(self._arrivals.items())

    def record(self, job: str, submitted: int, now: int, plan: Plan, slot: int) -> None:
        """Record the new job in this slot of the plan; it may have been submitted before the daemon began."""
        if self.since < 0:
            self.since = now
        at = min(max(submitted, self.since), now)
        pools = tuple(sorted(plan.pool_amounts(slot).items()))
        walltime = int(plan.jobs.durations[slot])
        self._arrivals.pop(job, None)
        self._arrivals[job] = Arrival(at, plan.request(slot), walltime, pools)
        if len(self._arrivals) > _KEPT:
            oldest = next(iter(self._arrivals))
            self.since = max(self.since, self._arrivals.pop(oldest).at)

    def record_end(self, job: str, run_s: int) -> None:
        """Record how long a job ran."""
        one = self._arrivals.get(job)
        if one is not None:
            self._arrivals[job] = replace(one, run_s=max(run_s, 1))

    def forget(self, job: str) -> None:
        """Forget a job that was deleted before its start: it held nothing."""
        self._arrivals.pop(job, None)

    def copy(self) -> "RecentArrivals":
        """Return an independent copy."""
        return RecentArrivals(self._arrivals, self.since)

    def save(self) -> list[Any]:
        """Return the state as JSON values; each request once."""
        requests: dict[Request, int] = {}
        rows = [
            [job, one.at, requests.setdefault(one.request, len(requests)), one.walltime, one.run_s, one.pools]
            for job, one in self._arrivals.items()
        ]
        return [self.since, [save_request(one) for one in requests], rows]

    @classmethod
    def load(cls, plain: Sequence[Any]) -> "RecentArrivals":
        """Restore from the result of ``save``. Raises TypeError, ValueError or IndexError for other input."""
        since, saved, rows = plain
        requests = [load_request(one) for one in saved]
        arrivals = {
            job: Arrival(at, requests[which], walltime, tuple((name, n) for name, n in pools), run_s)
            for job, at, which, walltime, run_s, pools in rows
        }
        return cls(arrivals, since)


@dataclass(frozen=True, slots=True, eq=False)
class FutureArrivals:
    """Jobs that are expected to come, and in each draw when (``times``, seconds since the epoch) and how long
    they run (``run_s``), both (draws, jobs).
    """

    jobs: tuple[Arrival, ...]
    times: Ints
    run_s: Ints

    def until(self, moment: int) -> "FutureArrivals | None":
        """Return those that come before a moment in any draw; None: there are none."""
        which = np.flatnonzero((self.times < moment).any(axis=0))
        if not which.shape[0]:
            return None
        jobs = tuple(self.jobs[i] for i in which.tolist())
        return FutureArrivals(jobs, self.times[:, which], self.run_s[:, which])


def foresee_arrivals(
    recent: RecentArrivals, now: int, until: int, run_s: Ints, capacity: int
) -> FutureArrivals | None:
    """Return jobs like the ``recent`` ones that come by ``until``; None: none are expected.

    ``run_s``, (draws, recent jobs): how long each runs; ``capacity``: cpus of the machine. With two known
    days or more, a job comes at its hour of the day, in each draw another number of days later; else the jobs
    come equally far apart, in each draw in another order.
    """
    if until <= now:
        return None
    names, jobs = zip(*recent.items(), strict=True)
    at = np.array([one.at for one in jobs], np.int64)
    cpus = np.array([one.request.cpus for one in jobs], np.int64)
    begin = recent.since + _FOUND_S
    seen, known_s = np.flatnonzero(at > begin), max(0, now - begin)
    days, enough = known_s // _DAY_S, seen.shape[0] >= _ENOUGH
    if days >= _FEWEST_DAYS and enough:
        which, times = _come_by_hour_of_day(at, seen, days, now, until, run_s.shape[0])
    else:
        which = seen if enough else np.arange(at.shape[0])
        fitting = capacity / max(1.0, float((run_s.mean(axis=0) * cpus)[which].mean()))  # jobs per second
        rate = min((seen.shape[0] + _PRIOR_JOBS) / (known_s + _PRIOR_JOBS / fitting), fitting)
        which, times = _come_at_rate(names, which, rate, now, until, run_s.shape[0])
    if not which.shape[0]:
        return None
    return FutureArrivals(tuple(jobs[i] for i in which.tolist()), times, run_s[:, which])


def _come_by_hour_of_day(
    at: Ints, seen: Ints, days: int, now: int, until: int, draws: int
) -> tuple[Ints, Ints]:
    """Return which jobs come by ``until``, and when in each draw: the last ``days`` come again, in each draw
    from another day on.
    """
    again = np.repeat(np.arange(1 + (until - now) // (days * _DAY_S)), seen.shape[0])
    which = np.resize(seen, again.shape[0])
    back = (1 + np.arange(draws, dtype=np.int64).reshape(-1, 1) % days) * _DAY_S
    later = np.where(at[which] >= now - back, 0, days) + again * days
    times = np.maximum(at[which] + back + later * _DAY_S, now + 1)
    first = times.min(axis=0)
    chosen = np.argsort(first, kind="stable")[: min(_MOST, int((first <= until).sum()))]
    return which[chosen], times[:, chosen]


def _come_at_rate(
    names: Sequence[str], which: Ints, rate: float, now: int, until: int, draws: int
) -> tuple[Ints, Ints]:
    """Return which jobs come by ``until``, the latest ones first, and when in each draw; ``rate``: jobs per
    second.
    """
    again = np.arange(min(_MOST, ceil((until - now) * rate))) // which.shape[0]
    which = np.resize(which[::-1], again.shape[0])
    copies = zip(which.tolist(), again.tolist(), strict=True)
    numbers = draw_numbers([f"{names[i]} {k}" for i, k in copies], draws)
    turns = np.argsort(np.argsort(numbers, axis=0, kind="stable"), axis=0, kind="stable")
    times: Ints = now + 1 + np.rint((turns + (np.arange(draws) + 0.5) / draws) / rate).astype(np.int64).T
    return which, times


@dataclass(frozen=True, slots=True, eq=False)
class PlanWithArrivals:
    """A plan with the jobs that are expected to come, unplaced, in ``slots``; ``rule`` with these jobs."""

    plan: Plan
    slots: Ints
    future: FutureArrivals | None = None
    rule: BackfillRule | None = None

    @classmethod
    def of(cls, plan: Plan, future: FutureArrivals | None, rule: BackfillRule | None) -> "PlanWithArrivals":
        """Return a fork of ``plan`` with these jobs; without any, the plan itself."""
        if future is None:
            return cls(plan, np.zeros(0, np.int64), None, rule)
        fork, pools = plan.fork(), plan.pools
        added = []
        for one in future.jobs:
            held = {name: amount for name, amount in one.pools if name in pools}
            added.append(fork.add_job(one.request, one.walltime, 0, held))
        slots = np.array(added, np.int64)
        size, ranks = fork.jobs.starts.shape[0], fork.repairs.ranks
        if ranks.shape[0]:
            last = int(ranks.min())
            ranks = np.concatenate((ranks, np.full(max(0, size - ranks.shape[0]), last, np.int64)))
            ranks[slots] = last
            fork.order_repairs(ranks)
        if rule is not None:
            expected = np.quantile(future.run_s, float(LEVELS[EXPECTED_QUANTILE]), axis=0).astype(np.int64)
            rank = int(rule.rank[rule.may].min()) if rule.may.any() else 0
            since = future.times.mean(axis=0).astype(np.int64)
            rule = rule.with_jobs(size, slots, since, expected, np.full(slots.shape[0], FOREVER), rank)
        return cls(fork, slots, future, rule)

    def begin(self, fork: Plan, draw: int) -> Ints:
        """Let the jobs of ``fork``, a fork of this plan, come as in this draw. Return their slots by time."""
        if self.future is None:
            return self.slots
        times = self.future.times[draw]
        fork.set_ready_times(self.slots, times)
        return self.slots[np.argsort(times, kind="stable")]

    def run_times(self, draw: int, run_s: Ints) -> Ints:
        """Return ``run_s``, by slot, with the run times of these jobs in this draw."""
        if self.future is None:
            return run_s
        found = np.zeros(self.plan.jobs.starts.shape[0], np.int64)
        found[: run_s.shape[0]] = run_s
        found[self.slots] = self.future.run_s[draw]
        return found
