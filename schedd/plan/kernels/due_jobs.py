"""Due jobs: kernels over all slots, called after each batch of events.

With NumPy each would be several calls, each as expensive as one kernel: a seventh of a replay, by a sampling
profile. They get one array, since unpacking all tables takes longer than these loops.
"""

import numpy as np

from schedd.plan.kernels.jit import kernel, lean
from schedd.plan.kernels.layout import FAR, PLANNED, READY, START, STATE, UNPLACED, Ints, Table


@lean
def next_start(jobs: Table) -> int:
    """Return when the first planned job is due, its earliest allowed start included; FAR: none is planned."""
    # The first comparison fails for most slots: much faster than a plain minimum over three rows.
    starts, states, ready = jobs[START], jobs[STATE], jobs[READY]
    first = FAR
    for slot in range(starts.shape[0]):
        if starts[slot] < first and states[slot] == PLANNED and ready[slot] < first:
            first = max(starts[slot], ready[slot])
    return first


@kernel
def due_jobs(jobs: Table, until: int) -> Ints:
    """Return the slots of planned jobs due by ``until``, earliest allowed starts included, in slot order."""
    starts, states, ready = jobs[START], jobs[STATE], jobs[READY]
    found = np.empty(starts.shape[0], np.int64)
    n = 0
    for slot in range(starts.shape[0]):
        if starts[slot] <= until and states[slot] == PLANNED and ready[slot] <= until:
            found[n] = slot
            n += 1
    return found[:n]


@kernel
def waiting_before(jobs: Table, moments: Ints, until: int) -> Ints:
    """Return the slots of waiting jobs, planned or not, with a moment before ``until``, in slot order."""
    states = jobs[STATE]
    found = np.empty(states.shape[0], np.int64)
    n = 0
    for slot in range(states.shape[0]):
        if moments[slot] < until and (states[slot] == PLANNED or states[slot] == UNPLACED):
            found[n] = slot
            n += 1
    return found[:n]
