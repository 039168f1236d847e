"""Orders for examining planned jobs.

``jobs`` is the table of jobs, (fields, slots); given slots ascend.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.plan.kernels import layout as at
from schedd.plan.kernels.layout import Ints

NO_ORDER: Final = np.zeros(0, np.int64)
NO_RANKS: Final = np.zeros(0, np.int64)  # all jobs have the same rank


@dataclass(frozen=True, slots=True)
class ArrayEnds:
    """By slot: number of the array (0: none), and its end in other plans (0: unknown or none)."""

    number: Ints
    end: Ints


def by_start(jobs: Ints, ranks: Ints = NO_RANKS) -> Ints:
    """Return the slots of planned jobs by rank, highest first, then start, then slot."""
    return _highest_first(_by(at.START, jobs, np.flatnonzero(jobs[at.STATE] == at.PLANNED)), ranks)


def by_age(jobs: Ints, slots: Ints, ranks: Ints = NO_RANKS, former: Ints = NO_ORDER) -> Ints:
    """Return these slots by rank, highest first, then earliest allowed start, then slot.

    ``former`` is an earlier result for other slots and times, from which this one is found sooner: a sort of
    100,000 jobs takes 4 ms, and a tenth of it if most are in order.

    Not by planned start: a hole that a wide job leaves is what the next wide job needs. If jobs planned
    earlier went first, narrow ones would use up the hole, and the machine would be drained again for the wide
    one (docs/developers/decisions/009-repair-by-age.md).
    """
    if not former.shape[0] or _slot_ranks(slots, ranks).shape[0]:
        return _highest_first(_by(at.READY, jobs, slots), ranks)
    return _by(at.READY, jobs, _arrange(slots, former, jobs.shape[1]), is_arranged=True)


def _arrange(slots: Ints, former: Ints, size: int) -> Ints:
    """Return these slots, below ``size``: first those of ``former``, in its order, then the others."""
    others = np.zeros(size, np.bool_)
    others[slots] = True
    known = former[others[former]]
    others[known] = False
    return np.concatenate((known, slots[others[slots]]))


def _highest_first(slots: Ints, ranks: Ints) -> Ints:
    """Return these slots by rank, highest first; equal ranks keep their order."""
    rank = _slot_ranks(slots, ranks)
    if not rank.shape[0] or (rank == rank[0]).all():
        return slots
    by_rank: Ints = slots[np.argsort(-rank, kind="stable")]
    return by_rank


def _slot_ranks(slots: Ints, ranks: Ints) -> Ints:
    """Return the ranks of these slots: ``NO_RANKS`` without any, 0 for slots beyond the end of ``ranks``."""
    if not ranks.shape[0] or not slots.shape[0]:
        return NO_RANKS
    known = np.minimum(slots, ranks.shape[0] - 1)
    found: Ints = np.where(known == slots, ranks[known], 0)
    return found


def _by(field: int, jobs: Ints, slots: Ints, *, is_arranged: bool = False) -> Ints:
    """Return these slots by a time field of the job; ``is_arranged``: most are in this order."""
    if not slots.shape[0]:
        return slots
    # One number for moment and slot: sorting numbers is several times as quick as sorting by two keys.
    moments = jobs[field, slots]
    bits = int(slots.max()).bit_length()
    first = int(moments.min())
    if (int(moments.max()) - first).bit_length() + bits > 62:
        sorted_slots: Ints = slots[np.lexsort((slots, moments))]
        return sorted_slots
    keys: Ints = ((moments - first) << bits) | slots
    # The stable sort takes one pass over what is in order, and longer for the rest.
    keys.sort(kind="stable" if is_arranged else None)
    keys &= (1 << bits) - 1
    return keys


def by_completion(jobs: Ints, slots: Ints, arrays: ArrayEnds, ranks: Ints = NO_RANKS) -> Ints:
    """Return these slots by rank, highest first, then planned end, start and slot. A job of an array ends
    with the last placed or running job of the array, and no earlier than the array ends in other plans.
    """
    ends = np.where(jobs[at.START] >= 0, jobs[at.START] + jobs[at.DUR], 0)
    own = np.flatnonzero(arrays.number)
    if own.shape[0]:
        _, array = np.unique(arrays.number[own], return_inverse=True)
        last = np.zeros(int(array.max()) + 1, np.int64)
        np.maximum.at(last, array, np.maximum(ends[own], arrays.end[own]))
        ends[own] = last[array]
    keys: tuple[Ints, ...] = (slots, jobs[at.START, slots], ends[slots])
    rank = _slot_ranks(slots, ranks)
    if rank.shape[0]:
        keys = (*keys, -rank)
    found: Ints = slots[np.lexsort(keys)]
    return found
