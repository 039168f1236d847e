"""How late each job may be put: its promise, and the guard against starvation."""

from typing import Final

import numpy as np

from schedd.plan.evaluate import JobColumns
from schedd.plan.kernels.layout import START, Ints
from schedd.plan.plan import Plan

__all__ = ["PATIENCE", "latest_starts"]

PATIENCE: Final = 48 * 3600
"""The wait, in seconds, that a search may give any job, unless the site sets another."""


def latest_starts(plan: Plan, promised: Ints, columns: JobColumns, patience: int = PATIENCE) -> Ints:
    """The last start that a search may give to each job, by slot, in seconds since the epoch.

    No job may pass its ``promised`` start (by slot; FOREVER: none), nor wait longer than ``patience`` seconds
    or than the job that waits longest in this plan, whichever is more; one that does so already may stay
    where it is. What the second bound adds: means may be improved for ever by moving one job back again and
    again. The longest wait of the plan alone, without ``patience``, would forbid most moves where all waits
    are short.
    """
    slots = plan.planned()
    latest: Ints = promised.copy()
    if slots.shape[0]:
        starts = plan.tables.jobs[START, slots]
        release = columns.release[slots]
        longest = max(patience, int((starts - release).max()))
        latest[slots] = np.maximum(starts, np.minimum(promised[slots], release + longest))
    return latest
