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
    # The first comparison fails for most slots: much faster than a plain minimum over three rows.
    starts, states, ready = tb.jobs[START], tb.jobs[STATE], tb.jobs[READY]
    first = FAR
    for slot in range(starts.shape[0]):
        if starts[slot] < first and states[slot] == PLANNED and ready[slot] < first:
            first = max(starts[slot], ready[slot])
    return first


@kernel
def due_jobs(tb: Tables, until: int) -> Ints:
    """Return the slots of planned jobs due by ``until``, earliest allowed starts included, in slot order."""
    starts, states, ready = tb.jobs[START], tb.jobs[STATE], tb.jobs[READY]
    found = np.empty(starts.shape[0], np.int64)
    n = 0
    for slot in range(starts.shape[0]):
        if starts[slot] <= until and states[slot] == PLANNED and ready[slot] <= until:
            found[n] = slot
            n += 1
    return found[:n]


@kernel
def waiting_before(tb: Tables, moments: Ints, until: int) -> Ints:
    """Return the slots of waiting jobs, planned or not, with a moment before ``until``, in slot order."""
    states = tb.jobs[STATE]
    found = np.empty(states.shape[0], np.int64)
    n = 0
    for slot in range(states.shape[0]):
        if moments[slot] < until and (states[slot] == PLANNED or states[slot] == UNPLACED):
            found[n] = slot
            n += 1
    return found[:n]
