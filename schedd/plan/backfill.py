"""Who gets room that is free: the shortest by what is expected, guarded by age and by promises.

Planned starts come from walltimes, two to ten times too long: where they alone say who is next, a job of ten
minutes waits behind one that asks for days. So waiting jobs are tried for a start at once, the shortest by
expected run time first. Who has waited for the patience of the site goes before all these, and the first of
them that cannot start keeps the earliest room that walltimes leave for it, as EASY keeps it for the head of
its queue. Patience is shorter for wide jobs, for which the machine is drained, and for short ones.

That room is kept in the plan itself, and those who wait on are planned again by age. Both are needed: a
newcomer is promised the first gap that the plan has, and where older jobs stand late in it, many small
promises take the room that these need (docs/developers/decisions/062-backfill-shortest.md).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels.layout import PLANNED, Ints
from schedd.plan.plan import Plan
from schedd.plan.records import Moves, no_moves
from schedd.plan.trials import requested_and_free_cpus

__all__ = ["EXPECTED_QUANTILE", "FRONT", "BackfillQueue", "BackfillRule", "backfill", "next_to_start"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

FRONT: Final = 200
"""So many jobs at most are given in one call: those to start next."""
_WORK: Final = 100_000
"""After visiting so many segments in one call no further order of others is tried, some ten milliseconds. The
one that is under way is gone through, and one more at the end. What is not tried then is tried when something
changes again."""

EXPECTED_QUANTILE: Final = 7
"""Of what is predicted (``predict.LEVELS``): 60 % of such jobs run no longer."""
_LEAST_S: Final = 30
"""Shorter jobs count as this long."""
_CPUS_EXPONENT: Final = 0.08
_WALLTIME_EXPONENT: Final = 0.24
_AGE_RATE_PER_DAY: Final = 2.7
"""Exponents: a job counts as its expected run time, times so much for its cpus and its walltime, and e to so
much less for each day that it has waited."""

_WIDE_REDUCTION: Final = 0.79
"""For a job that takes the whole machine patience is so much less, for half of it a quarter of that."""
_DAY: Final = 86_400
_SHORT_EXPONENT: Final = 0.26
"""And one of less than a day for this power of its share of a day."""
_AGED_FRACTION: Final = 0.64
"""Of those who have waited long enough, they go by their arrival and so much of what they had to wait."""


@dataclass(frozen=True, slots=True, eq=False)
class BackfillQueue:
    """Planned jobs by slot, as arrays alike, (n,): ``since`` when each waits and its ``latest`` start (both
    seconds since the epoch), how long it is ``expected`` to run (seconds), its ``rank``.
    """

    slots: Ints
    since: Ints
    expected: Ints
    latest: Ints
    rank: Ints


@dataclass(frozen=True, slots=True, eq=False)
class BackfillRule:
    """The same by slot, (slots,); whether a job ``may`` be moved at all; the ``patience``, in seconds."""

    since: Ints
    expected: Ints
    latest: Ints
    rank: Ints
    may: Bools
    patience: int

    def with_job(self, slots: int, slot: int, since: int, expected: int, latest: int) -> "BackfillRule":
        """For a plan of so many ``slots`` that has one job more, of middling rank: its own is not known."""
        ranks = np.sort(self.rank[np.flatnonzero(self.may)])
        rank = int(ranks[ranks.shape[0] // 2]) if ranks.shape[0] else 0

        def wider(by: Ints, its: int) -> Ints:
            found = np.zeros(slots, np.int64)
            found[: by.shape[0]] = by
            found[slot] = its
            return found

        return BackfillRule(
            wider(self.since, since),
            wider(self.expected, expected),
            wider(self.latest, latest),
            wider(self.rank, rank),
            wider(self.may.astype(np.int64), 1) > 0,
            self.patience,
        )

    def apply(self, plan: Plan, now: int) -> None:
        """Give free room in a copy of the plan, as it is given in the plan itself."""
        slots = next_to_start(plan, self.may, now)
        of = (by[slots] for by in (self.since, self.expected, self.latest, self.rank))
        backfill(plan, BackfillQueue(slots, *of), now, self.patience)


def next_to_start(plan: Plan, may: Bools, now: int) -> Ints:
    """The slots of those that are planned to start next, of jobs that ``may`` be moved (by slot).

    Who is due and waits for the server's release or for a node keeps its place until dispatch gives it up:
    moved on each time, it would never be given up.
    """
    starts, ready = plan.jobs.starts, plan.jobs.ready
    slots = np.flatnonzero(may & (plan.jobs.states == PLANNED) & ((starts > now) | (ready <= now)))
    return np.sort(slots[np.argsort(starts[slots], kind="stable")[:FRONT]])


def backfill(plan: Plan, waiting: BackfillQueue, now: int, patience: int) -> Moves:
    """Let those start at ``now`` whose turn it is, and plan the others anew where that makes room for them.

    Nobody is put past its ``latest`` start, or its present one where that is later. A higher rank goes first.
    Returns who moved; who starts now is planned for ``now`` or before.
    """
    slots, before = waiting.slots, plan.starts(waiting.slots)
    asked, free = requested_and_free_cpus(plan, slots, now)
    ready = plan.jobs.ready[slots] <= now
    free += int(asked[ready & (before <= now)].sum())  # and of jobs that are due
    if not free or not (ready & (asked <= free)).any():
        return no_moves()
    _BackfillRound(plan, waiting, asked, ready, now, patience).run(free)
    after = plan.starts(slots)
    moved = np.flatnonzero(after != before)
    return Moves(slots[moved], before[moved], after[moved])


class _BackfillRound:
    """One look at the jobs ``of`` a plan: how many cpus each has ``asked`` for, whether it is ``ready``."""

    def __init__(
        self, plan: Plan, of: BackfillQueue, asked: Ints, ready: Bools, now: int, patience: int
    ) -> None:
        self._plan, self._queue, self._now = plan, of, now
        self._asked, self._ready = asked, ready
        self._latest = np.maximum(of.latest, plan.starts(of.slots))
        walltime = plan.jobs.durations[of.slots]
        waited = now - of.since
        enough = _required_wait(self._asked / _cpus(plan), walltime, patience)
        self._aged = waited >= enough
        key = (
            np.log(np.maximum(of.expected, _LEAST_S))
            + _CPUS_EXPONENT * np.log(np.maximum(self._asked, 1))
            + _WALLTIME_EXPONENT * np.log(walltime)
            - _AGE_RATE_PER_DAY * waited / _DAY
        )
        turn = np.where(self._aged, of.since + _AGED_FRACTION * enough, key)
        self._sequence = np.lexsort((of.slots, turn, ~self._aged, -of.rank))  # the last key goes first
        self._by_latest = np.lexsort((of.slots, self._latest))
        self._by_age = np.lexsort((of.slots, of.since, -of.rank))
        self._settled = np.zeros(of.slots.shape[0], np.bool_)
        self._end = plan.work + _WORK

    def run(self, free: int) -> None:
        """Try them in turn while ``free`` cpus are left."""
        plan, now = self._plan, self._now
        tried = anew = False
        for i in self._sequence.tolist():
            if free <= 0:
                break
            fits = bool(self._ready[i]) and int(self._asked[i]) <= free
            if fits and (plan.start(int(self._queue.slots[i])) <= now or self._start_alone(i)):
                self._settled[i] = True
                free -= int(self._asked[i])
            elif fits and self._start_before(i, now):
                self._settled[i] = anew = True
                free -= int(self._asked[i])
            elif self._aged[i] and self._ready[i] and not tried:  # not yet ready: it needs no room kept yet
                tried = True
                anew |= self._start_before(i, plan.start(int(self._queue.slots[i])))
                self._settled[i] = True
        if anew:
            self._displace(self._by_age[~self._settled[self._by_age]])

    def _start_alone(self, i: int) -> bool:
        """Let a job start now with all others where they are."""
        return self._displace(np.array([i]), self._now)

    def _start_before(self, i: int, by: int) -> bool:
        """Let a job start ``by`` a moment, and plan all behind it that are not settled: by age, or as they
        stand, or by promise: the first of these orders that breaks none. Nobody of higher rank starts later.
        """
        starts, rank = self._plan.starts(self._queue.slots), self._queue.rank
        latest = np.where(rank > rank[i], np.minimum(self._latest, starts), self._latest)
        for order in (self._by_age, None, self._by_latest):
            if self._plan.work >= self._end:
                return False
            if order is None:
                order = np.lexsort((self._queue.slots, starts))
            rest = order[~self._settled[order]]
            if self._displace(np.concatenate(([i], rest[rest != i])), by, latest):
                return True
        return False

    def _displace(self, turn: Ints, first_by: int | None = None, latest: Ints | None = None) -> bool:
        """Plan these anew in this order, the first of them to start by a moment, nobody past its ``latest``
        start (by index of all); or leave all as it is.
        """
        if not turn.shape[0]:
            return True
        latest = (self._latest if latest is None else latest)[turn]
        if first_by is not None:
            latest[0] = min(int(latest[0]), first_by)
        return self._plan.displace(self._queue.slots[turn], latest, self._now) is not None


def _required_wait(share: Floats, walltime: Ints, patience: int) -> Floats:
    """How long a job waits until it goes before all shorter ones, in seconds: ``patience``, less for one that
    takes a large ``share`` of the machine, and for one with a ``walltime`` of less than a day.
    """
    return (
        patience
        * (1 - _WIDE_REDUCTION * np.minimum(share, 1.0) ** 2)
        * np.minimum(walltime / _DAY, 1.0) ** _SHORT_EXPONENT
    )


def _cpus(plan: Plan) -> int:
    """Of all nodes."""
    return max(1, sum(node.cpus for node in plan.nodes.values()))
