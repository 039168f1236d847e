"""How late each job may be put: its promise, and the guard against starvation."""

import numpy as np

from schedd.plan.evaluate import JobColumns
from schedd.plan.kernels.layout import START, Ints
from schedd.plan.plan import Plan

__all__ = ["latest_starts"]


def latest_starts(plan: Plan, promised: Ints, columns: JobColumns) -> Ints:
    """The last start that a search may give to each job, by slot, in seconds since the epoch.

    No job may pass its ``promised`` start (by slot; FOREVER: none), nor wait longer than the job that waits
    longest in this plan; one that does so already may stay where it is. What the second bound adds: means may
    be improved for ever by moving one job back again and again, and the longest wait alone says nothing of it
    while another waits longer still.
    """
    slots = plan.planned()
    latest: Ints = promised.copy()
    if slots.shape[0]:
        starts = plan.tables.jobs[START, slots]
        release = columns.release[slots]
        longest = int((starts - release).max())
        latest[slots] = np.maximum(starts, np.minimum(promised[slots], release + longest))
    return latest
