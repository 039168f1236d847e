"""The plan as it would be were jobs as long as predicted, decoded anew on a fork."""

from contextlib import suppress

import numpy as np

from schedd.plan.columns import FIXED, PLANNED, UNPLACED, Ints
from schedd.plan.plan import Plan, WorkSpent

__all__ = ["decode", "running", "waiting"]


def running(plan: Plan) -> Ints:
    """The slots of jobs that run, or block nodes."""
    found: Ints = np.flatnonzero(plan.jobs.states == FIXED)
    return found


def waiting(plan: Plan, since: Ints) -> Ints:
    """The slots of jobs that wait, in the order in which they are expected to go.

    Those that are planned by their start, ties by age; then the others by age. ``since`` is by slot.
    """
    jobs = plan.jobs
    slots = np.flatnonzero((jobs.states == PLANNED) | (jobs.states == UNPLACED))
    unplaced = jobs.states[slots] == UNPLACED
    start = np.where(unplaced, 0, jobs.starts[slots])
    order: Ints = slots[np.lexsort((slots, since[slots], start, unplaced))]
    return order


def decode(fork: Plan, order: Ints, duration: Ints, now: int, first: int | None = None) -> Ints:
    """When each job of ``order`` would start, were all as long as ``duration`` (seconds, by slot).

    Jobs that run keep their nodes and end that long after their start, or in a second if that is over. Each
    of the others is moved into the earliest gap that those before it leave. -1 for one that has no start, or
    for which looking takes more work than the plan allows, and for all that come after the plan was stopped,
    or after the ``first`` so many, which depend on none of them.
    """
    for slot in order[fork.jobs.states[order] == PLANNED].tolist():
        fork.take_back(slot)
    held = running(fork)
    # Of those that ended by now nothing is in the way; with them it would be for a second.
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
