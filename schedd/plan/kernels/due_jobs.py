"""Due jobs: kernels over all slots, called after each batch of events.

With NumPy each would be several calls, each as expensive as one kernel: a seventh of a replay, by a sampling
profile.
"""

import numpy as np

from schedd.plan.kernels.jit import kernel, lean
from schedd.plan.kernels.layout import FAR, PLANNED, READY, START, STATE, UNPLACED, Ints, Tables

__all__ = ["due_jobs", "next_start", "waiting_before"]


@lean
def next_start(tb: Tables) -> int:
    """Return when the first planned job is due, its earliest allowed start included; FAR: none is planned."""
    first = FAR
    for slot in range(tb.jobs.shape[1]):
        if tb.jobs[STATE, slot] == PLANNED:
            first = min(first, max(tb.jobs[START, slot], tb.jobs[READY, slot]))
    return first


@kernel
def due_jobs(tb: Tables, until: int) -> Ints:
    """Return the slots of planned jobs due by ``until``, earliest allowed starts included, in slot order."""
    found = np.empty(tb.jobs.shape[1], np.int64)
    n = 0
    for slot in range(tb.jobs.shape[1]):
        if tb.jobs[STATE, slot] == PLANNED and max(tb.jobs[START, slot], tb.jobs[READY, slot]) <= until:
            found[n] = slot
            n += 1
    return found[:n]


@kernel
def waiting_before(tb: Tables, moments: Ints, until: int) -> Ints:
    """Return the slots of waiting jobs, planned or not, with a moment before ``until``, in slot order."""
    found = np.empty(tb.jobs.shape[1], np.int64)
    n = 0
    for slot in range(tb.jobs.shape[1]):
        if moments[slot] < until and (tb.jobs[STATE, slot] == PLANNED or tb.jobs[STATE, slot] == UNPLACED):
            found[n] = slot
            n += 1
    return found[:n]
