"""The planner run on into the future, on a fork: jobs end when they are drawn to, and who can starts earlier.

The plan goes by walltimes, as it does in truth: what an early end is worth to others shows when it comes, not
before.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.plan.backfill import Rule
from schedd.plan.kernels import layout as at
from schedd.plan.kernels import onward as on
from schedd.plan.kernels.layout import Ints
from schedd.plan.plan import Plan
from schedd.plan.turns import Wholes, by_age

__all__ = ["Ahead", "run_on"]


_RULE_WORK: Final = 20_000
"""What it costs to follow a rule after an event, in segments visited."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """How far a fork was run on."""

    started: Ints
    """By slot; -1: not yet."""
    now: int
    """The moment that it has come to."""


def run_on(
    fork: Plan,
    lasts: Ints,
    now: int,
    work: int,
    until: Collection[int] = (),
    arrays: Wholes | None = None,
    rule: Rule | None = None,
) -> Ahead:
    """Let the plan's jobs run for ``lasts`` seconds (by slot) in all, at most as long as planned.

    Each end is followed by what the engine does after one: who can start at once starts, who waits longest
    first; then everybody moves to the earliest place. With a ``rule``, free room is given by that before, at
    each event. This ends when all jobs of ``until`` have started (where that is empty: all that are planned),
    or when ``work`` segments of the plan were visited, which depends on the plan alone. The fork is left at
    the moment reached.
    """
    slabs, repairs = fork.slabs, fork.repairs
    slabs.fit_log()
    jobs = slabs.tb.jobs
    slots = jobs.shape[1]
    state = np.zeros(on.STATE_FIELDS, np.int64)
    state[on.NOW], state[on.WORK_LIMIT] = now, fork.work + work
    state[on.ENTRIES] = repairs.entries_for(on.MOST_NOW)
    state[on.EVERY] = rule is not None
    turns = by_age(jobs, np.flatnonzero(jobs[at.STATE] == at.PLANNED))
    state[on.TURNS] = turns.shape[0]
    started = np.full(slots, -1, np.int64)
    # Who should have ended already ends in a second.
    drawn = np.maximum(jobs[at.START] + lasts, now + 1)
    early = (jobs[at.STATE] == at.FIXED) & (drawn < jobs[at.START] + jobs[at.DUR])
    ends = np.where(early, drawn, at.FAR)
    wanted = np.fromiter(until, np.int64)
    longest, order = np.empty(slabs.freed.length.shape[0], np.int64), np.empty(slots, np.int64)
    moves = np.empty((slots, 3), np.int64)
    by_hand = fork.freed or rule is not None  # what the plan has begun already is gone on with
    while True:
        tb = slabs.tb
        state[on.LOOKED] = repairs.looked
        how = on.run_on(
            tb, slabs.freed, turns, lasts, wanted, by_hand, state, ends, started, longest, order, moves
        )
        repairs.looked = int(state[on.LOOKED])
        moment = int(state[on.NOW])
        if how == on.ENDED:
            return Ahead(started, moment)
        if how == on.ROOM:
            if slabs.wanted:
                slabs.grow()
            slabs.tidy(int(state[on.ENTRIES]))
            continue
        if how == on.BY_HAND:
            if rule is not None:
                rule.follow(fork, moment)
                state[on.WORK_LIMIT] -= _RULE_WORK
            fork.repair_now(moment, arrays)
            on.start_due(tb, turns, lasts, state, ends, started)
        elif state[on.BEGAN_AT] >= 0:
            cursor, began_at = int(state[on.CURSOR]), int(state[on.BEGAN_AT])
            repairs.go_on_from(turns[: state[on.TURNS]].copy(), cursor, began_at)
        while not fork.repair(moment, arrays=arrays)[1] and not fork.stopped:
            pass
        state[on.REPAIRED] = 1
        by_hand = arrays is not None or rule is not None
