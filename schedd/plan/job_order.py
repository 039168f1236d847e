"""Whose turn it is: the orders in which planned jobs are looked at.

``jobs`` is the table of jobs, (fields, slots), everywhere; slots that are given ascend.
"""

from dataclasses import dataclass

import numpy as np

from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints

__all__ = ["ArrayEnds", "by_age", "by_completion", "by_start"]


@dataclass(frozen=True, slots=True)
class ArrayEnds:
    """By slot: the number of each job's array, 0 where it is of none, and when the array ends with what other
    plans have of it; 0: that is not known, or there is none.
    """

    number: Ints
    end: Ints


def by_start(jobs: Ints) -> Ints:
    """The slots of planned jobs by start, ties by slot."""
    return _by(at.START, jobs, np.flatnonzero(jobs[at.STATE] == at.PLANNED))


def by_age(jobs: Ints, slots: Ints) -> Ints:
    """These slots, which ascend, by the moment since when the job may start, ties by slot.

    Not by start: a hole that a wide job leaves early is what the next wide job needs. Where those planned
    before it went first, narrow ones ate up the hole, and the machine was drained once more for the wide one
    (docs/developers/decisions/009-repair-by-age.md).
    """
    return _by(at.READY, jobs, slots)


def _by(field: int, jobs: Ints, slots: Ints) -> Ints:
    """These slots, which ascend, by a field of the job, which is a moment."""
    if not slots.shape[0]:
        return slots
    # One number for moment and slot: sorting numbers is several times as quick as sorting by two keys.
    moments = jobs[field, slots]
    bits = int(slots[-1]).bit_length()
    first = int(moments.min())
    if (int(moments.max()) - first).bit_length() + bits > 62:
        sorted_slots: Ints = slots[np.argsort(moments, kind="stable")]
        return sorted_slots
    keys: Ints = ((moments - first) << bits) | slots
    keys.sort()
    keys &= (1 << bits) - 1
    return keys


def by_completion(jobs: Ints, slots: Ints, arrays: ArrayEnds) -> Ints:
    """These slots by planned end, ties by start, then slot; a job of an array ends when the last one does of
    those that have a start, whether it runs already or not, and no sooner than what other plans have of it.
    """
    ends = np.where(jobs[at.START] >= 0, jobs[at.START] + jobs[at.DUR], 0)
    own = np.flatnonzero(arrays.number)
    if own.shape[0]:
        _, array = np.unique(arrays.number[own], return_inverse=True)
        last = np.zeros(int(array.max()) + 1, np.int64)
        np.maximum.at(last, array, np.maximum(ends[own], arrays.end[own]))
        ends[own] = last[array]
    found: Ints = slots[np.lexsort((slots, jobs[at.START, slots], ends[slots]))]
    return found
