"""Shortest-expected-job-first backfilling, bounded by job age and promises.

Planned starts come from walltimes, which are two to ten times too long: a job of ten minutes would wait
behind a job that requests days. So waiting jobs are tried for an immediate start, shortest expected run
time first. Jobs that have waited for the site's patience precede all of these, and the first of them that
cannot start keeps the earliest gap that walltimes leave for it, as EASY does for the head of its queue.
Patience is shorter for wide jobs, for which the machine is drained, and for short ones.

That gap is kept in the plan itself, and the other waiting jobs are replanned by age. Both are needed: a new
job is promised the first gap of the plan, and if older jobs are planned late, many small promises use up the
capacity that these need (docs/developers/decisions/062-backfill-shortest.md).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import PLANNED, Ints
from schedd.plan.plan import Plan
from schedd.plan.records import NO_MOVES, Moves
from schedd.plan.trials import requested_and_free_cpus

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

FRONT: Final = 200  # maximum number of jobs per call: those to start next
_WORK: Final = 100_000
"""After this many visited segments per call (about ten milliseconds) no further order is tried. The present
order is completed, and one more at the end. The rest is tried after the next change.
"""

EXPECTED_QUANTILE: Final = 7
"""Index in the predicted quantiles (``predict.LEVELS``): 60 % of such jobs run no longer."""
_LEAST_S: Final = 30  # minimum expected run time in seconds
_CPUS_EXPONENT: Final = 0.08
_WALLTIME_EXPONENT: Final = 0.24
_AGE_RATE_PER_DAY: Final = 2.7
"""sort key = expected_run_s * cpus**_CPUS_EXPONENT * walltime_s**_WALLTIME_EXPONENT * exp(-_AGE_RATE_PER_DAY
* days_waited)
"""

_WIDE_REDUCTION: Final = 0.79  # reduction of the patience: `1 - _WIDE_REDUCTION * share_of_cpus**2`
_DAY: Final = 86_400
_SHORT_EXPONENT: Final = 0.26  # reduction for walltimes of less than a day: `days**_SHORT_EXPONENT`
_AGED_FRACTION: Final = 0.64
"""Jobs beyond their patience are sorted by ``since + _AGED_FRACTION * required_wait``."""


@dataclass(frozen=True, slots=True, eq=False)
class BackfillQueue:
    """Planned jobs as parallel arrays, (n,): ``since`` when each waits and its ``latest`` start (seconds
    since the epoch), its ``expected`` run time (seconds), its ``rank``.
    """

    slots: Ints
    since: Ints
    expected: Ints
    latest: Ints
    rank: Ints


@dataclass(frozen=True, slots=True, eq=False)
class BackfillRule:
    """The same by slot, (slots,); whether a job ``may`` move at all; the ``patience``, in seconds."""

    since: Ints
    expected: Ints
    latest: Ints
    rank: Ints
    may: Bools
    patience: int

    def with_job(
        self, slots: int, slot: int, since: int, expected: int, latest: int, rank: int | None = None
    ) -> "BackfillRule":
        """Return the rule with one job more, of ``slots`` slots; of unknown ``rank`` it gets the median."""
        if rank is None:
            ranks = np.sort(self.rank[np.flatnonzero(self.may)])
            rank = int(ranks[ranks.shape[0] // 2]) if ranks.shape[0] else 0
        return self.with_jobs(slots, np.array([slot]), since, expected, latest, rank)

    def with_jobs(
        self,
        slots: int,
        added: Ints,
        since: int | Ints,
        expected: int | Ints,
        latest: int | Ints,
        rank: int,
    ) -> "BackfillRule":
        """Return the rule with the ``added`` jobs, of ``slots`` slots."""

        def wider(by: Ints, its: int | Ints) -> Ints:
            found = np.zeros(slots, np.int64)
            found[: by.shape[0]] = by
            found[added] = its
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
        """Backfill a fork of the plan as the engine does in the plan itself."""
        slots = next_to_start(plan, self.may, now)
        of = (by[slots] for by in (self.since, self.expected, self.latest, self.rank))
        backfill(plan, BackfillQueue(slots, *of), now, self.patience)


def next_to_start(plan: Plan, may: Bools, now: int) -> Ints:
    """Return the slots of the next jobs to start, of jobs that ``may`` move (by slot).

    A due job that waits for the server's release or for a node keeps its placement until dispatch gives it
    up; if each call moved it, dispatch would never give it up.
    """
    starts, ready = plan.jobs.starts, plan.jobs.ready
    slots = np.flatnonzero(may & (plan.jobs.states == PLANNED) & ((starts > now) | (ready <= now)))
    return np.sort(slots[np.argsort(starts[slots], kind="stable")[:FRONT]])


def backfill(plan: Plan, waiting: BackfillQueue, now: int, patience: int) -> Moves:
    """Start the next jobs at ``now``, and replan the other jobs where that makes room for them.

    No job passes its ``latest`` start, or its present one if that is later. Higher ranks go first. Return the
    moves; started jobs are planned for ``now`` or before.
    """
    slots, before = waiting.slots, plan.starts(waiting.slots)
    asked, free = requested_and_free_cpus(plan, slots, now)
    ready = plan.jobs.ready[slots] <= now
    free += int(asked[ready & (before <= now)].sum())  # and the cpus of due jobs
    if not free or not (ready & (asked <= free)).any():
        return NO_MOVES
    entries = plan.slabs.tb.jobs[at.ALLOC, slots]
    _BackfillRound(plan, waiting, asked, ready, now, patience).run(free)
    after = plan.starts(slots)
    moved = np.flatnonzero(after != before)
    again = plan.slabs.tb.jobs[at.ALLOC, slots] != entries
    return Moves(slots[moved], before[moved], after[moved], slots[again & (after == before)])


class _BackfillRound:
    """One round over these jobs: their requested cpus (``asked``), and whether each is ``ready``."""

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
        """Try the jobs in sequence while cpus are ``free``."""
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
            elif self._aged[i] and self._ready[i] and not tried:  # a job that is not ready needs no gap yet
                tried = True
                anew |= self._start_before(i, plan.start(int(self._queue.slots[i])))
                self._settled[i] = True
        if anew:
            self._displace(self._by_age[~self._settled[self._by_age]])

    def _start_alone(self, i: int) -> bool:
        """Start a job now without moving others."""
        return self._displace(np.array([i]), self._now)

    def _start_before(self, i: int, by: int) -> bool:
        """Start a job ``by`` a time, and replan all unsettled jobs behind it: by age, by planned start, or by
        latest start; the first order that breaks no promise counts. No job of higher rank starts later.
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
        """Replan jobs in order, the first by a time, none past its ``latest``; or change nothing."""
        if not turn.shape[0]:
            return True
        latest = (self._latest if latest is None else latest)[turn]
        if first_by is not None:
            latest[0] = min(int(latest[0]), first_by)
        return self._plan.displace(self._queue.slots[turn], latest, self._now) is not None


def _required_wait(share: Floats, walltime: Ints, patience: int) -> Floats:
    """Return the seconds that a job must wait to precede all shorter ones: ``patience``, reduced for a large
    ``share`` of the machine and for a ``walltime`` of less than a day.
    """
    return (
        patience
        * (1 - _WIDE_REDUCTION * np.minimum(share, 1.0) ** 2)
        * np.minimum(walltime / _DAY, 1.0) ** _SHORT_EXPONENT
    )


def _cpus(plan: Plan) -> int:
    return max(1, sum(node.cpus for node in plan.nodes.values()))
