"""Projection of a fork into the future: jobs end at sampled times, and waiting jobs start as soon as they
can.

The plan uses walltimes, as in reality: the benefit of an early end for other jobs shows at that end.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.plan.backfill import BackfillRule
from schedd.plan.job_order import NO_ORDER, ArrayEnds, by_age
from schedd.plan.kernels import layout as at
from schedd.plan.kernels import projection as on
from schedd.plan.kernels.layout import Ints
from schedd.plan.plan import Plan

_RULE_WORK: Final = 20_000  # cost of applying the backfilling rule after an event, in visited segments


@dataclass(frozen=True, slots=True)
class Projection:
    """Result of a projection."""

    started: Ints  # start by slot; -1: not started
    now: int  # the time that the projection has reached


def project_plan(
    fork: Plan,
    run_s: Ints,
    now: int,
    work: int,
    until: Collection[int] = (),
    arrays: ArrayEnds | None = None,
    rule: BackfillRule | None = None,
    arrivals: Ints = NO_ORDER,
) -> Projection:
    """Run the plan's jobs for ``run_s`` seconds each (by slot), at most as long as planned.

    Each end is followed by the engine's actions: jobs that can start start, oldest first; then all jobs move
    to their earliest placements. With a ``rule``, it backfills first. Unplaced jobs, ``arrivals`` by their
    earliest start, come at that time and get their earliest gaps, behind all others. The projection ends when
    all jobs of ``until`` have started (empty: all planned jobs), or after ``work`` visited segments, which
    depend only on the plan. The fork is left at the time reached.
    """
    slabs, repairs = fork.slabs, fork.repairs
    slabs.fit_log()
    jobs = slabs.tb.jobs
    slots = jobs.shape[1]
    state = np.zeros(on.STATE_FIELDS, np.int64)
    state[on.NOW], state[on.WORK_LIMIT] = now, fork.work + work
    state[on.ENTRIES] = repairs.entries_needed(on.MOST_NOW)
    state[on.ALWAYS_BY_CALLER] = rule is not None
    waiting = by_age(jobs, np.flatnonzero(jobs[at.STATE] == at.PLANNED), repairs.ranks)
    state[on.N_WAITING] = waiting.shape[0]
    state[on.RANKED] = bool(repairs.ranks.shape[0])
    waiting = np.concatenate((waiting, arrivals))
    started = np.full(slots, -1, np.int64)
    # overdue jobs end in one second
    drawn = np.maximum(jobs[at.START] + run_s, now + 1)
    early = (jobs[at.STATE] == at.FIXED) & (drawn < jobs[at.START] + jobs[at.DUR])
    ends = np.where(early, drawn, at.FAR)
    wanted = np.fromiter(until, np.int64)
    longest, order = np.empty(slabs.freed.length.shape[0], np.int64), np.empty(slots, np.int64)
    moves = np.empty((slots, 3), np.int64)
    by_caller = fork.freed or rule is not None  # a repair in progress is continued
    while True:
        tb = slabs.tb
        state[on.NEXT_UNTRIED] = repairs.next_untried
        how = on.project_events(
            tb,
            slabs.freed,
            waiting,
            arrivals,
            run_s,
            wanted,
            by_caller,
            state,
            ends,
            started,
            longest,
            order,
            moves,
        )
        repairs.next_untried = int(state[on.NEXT_UNTRIED])
        moment = int(state[on.NOW])
        if how == on.ENDED:
            return Projection(started, moment)
        if how == on.NEEDS_ROOM:
            if slabs.needs_growth:
                slabs.grow()
            slabs.tidy(int(state[on.ENTRIES]))
            continue
        if how == on.BY_CALLER:
            if rule is not None:
                rule.apply(fork, moment)
                state[on.WORK_LIMIT] -= _RULE_WORK
            fork.repair_now(moment, arrays)
            on.start_due_jobs(tb, waiting, run_s, state, ends, started)
        elif state[on.BEGAN_AT] >= 0:
            cursor, began_at = int(state[on.CURSOR]), int(state[on.BEGAN_AT])
            repairs.resume_from(waiting[: state[on.N_WAITING]].copy(), cursor, began_at)
        while not fork.repair(moment, arrays=arrays)[1] and not fork.stopped:
            pass
        state[on.REPAIRED] = 1
        by_caller = arrays is not None or rule is not None
