"""Starts decoded from a job order with predicted run times, on a fork of the plan."""

from contextlib import suppress

import numpy as np

from schedd.plan.columns import FIXED, PLANNED, UNPLACED, Ints
from schedd.plan.plan import Plan
from schedd.plan.work_limits import WorkSpent


def running_slots(plan: Plan) -> Ints:
    """Return the slots of running jobs and of jobs that block nodes."""
    found: Ints = np.flatnonzero(plan.jobs.states == FIXED)
    return found


def waiting_slots(plan: Plan, since: Ints) -> Ints:
    """Return the slots of waiting jobs in their expected order of start.

    Planned jobs come first, by planned start and then by age; unplanned jobs follow by age. ``since`` holds
    the start of the wait by slot.
    """
    jobs = plan.jobs
    slots = np.flatnonzero((jobs.states == PLANNED) | (jobs.states == UNPLACED))
    unplaced = jobs.states[slots] == UNPLACED
    start = np.where(unplaced, 0, jobs.starts[slots])
    order: Ints = slots[np.lexsort((slots, since[slots], start, unplaced))]
    return order


def decode_starts(fork: Plan, order: Ints, duration: Ints, now: int, first: int | None = None) -> Ints:
    """Return the start of each job of ``order`` if run times were ``duration`` (seconds, by slot). Changes
    ``fork``.

    Running jobs keep their nodes and end ``duration`` after their start, at the earliest at ``now + 1``.
    Waiting jobs are placed in ``order``, each into the earliest gap. The start is -1 for a job without a
    start, for a job whose search exceeds the plan's work limit, for the jobs after a stop of the plan, and
    for the jobs after the ``first`` ones.
    """
    for slot in order[fork.jobs.states[order] == PLANNED].tolist():
        fork.undo_place(slot)
    held = running_slots(fork)
    # Jobs that should have ended before now hold nothing; extending them would block their nodes for a
    # second.
    for slot in held[fork.jobs.starts[held] + fork.jobs.durations[held] > now].tolist():
        left = max(fork.start(slot) + int(duration[slot]), now + 1)
        fork.set_duration(slot, left - fork.start(slot), now)
    starts = np.full(order.shape[0], -1, np.int64)
    fork.set_durations(order, duration[order])
    for i, slot in enumerate(order[:first].tolist()):
        if fork.stopped:
            break
        with suppress(WorkSpent):
            starts[i] = fork.place(slot, now)
    return starts
