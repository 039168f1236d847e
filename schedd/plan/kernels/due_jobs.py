"""Whose moment has come: kernels over all slots, asked for after each batch of events.

With numpy each was several calls of about the price of one kernel: a seventh of a replay, by a sampling
profile.
"""

import numpy as np

from schedd.plan.kernels.jit import kernel, lean
from schedd.plan.kernels.layout import FAR, PLANNED, READY, START, STATE, UNPLACED, Ints, Tables

__all__ = ["due_jobs", "next_start", "waiting_before"]


@lean
def next_start(tb: Tables) -> int:
    """When the first planned job is due, its wait included; FAR when none is planned."""
    first = FAR
    for slot in range(tb.jobs.shape[1]):
        if tb.jobs[STATE, slot] == PLANNED:
            first = min(first, max(tb.jobs[START, slot], tb.jobs[READY, slot]))
    return first


@kernel
def due_jobs(tb: Tables, until: int) -> Ints:
    """The slots of planned jobs that were due by ``until``, waits included, in their order."""
    found = np.empty(tb.jobs.shape[1], np.int64)
    n = 0
    for slot in range(tb.jobs.shape[1]):
        if tb.jobs[STATE, slot] == PLANNED and max(tb.jobs[START, slot], tb.jobs[READY, slot]) <= until:
            found[n] = slot
            n += 1
    return found[:n]


@kernel
def waiting_before(tb: Tables, moments: Ints, until: int) -> Ints:
    """The slots of jobs that wait, planned or not, whose moment is before ``until``, in their order."""
    found = np.empty(tb.jobs.shape[1], np.int64)
    n = 0
    for slot in range(tb.jobs.shape[1]):
        if moments[slot] < until and (tb.jobs[STATE, slot] == PLANNED or tb.jobs[STATE, slot] == UNPLACED):
            found[n] = slot
            n += 1
    return found[:n]
