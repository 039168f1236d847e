"""Displacement of planned jobs: some are removed, then placed again, each no later than allowed.

Either all find a place in time, or the plan is restored. The caller decides about the result: ``commit`` or
``revert`` (kernels/undo.py).
"""

from typing import Final

import numpy as np

from schedd.plan.kernels.freed import set_now
from schedd.plan.kernels.gaps import find_start
from schedd.plan.kernels.jit import inner, kernel, lean
from schedd.plan.kernels.layout import (
    A_CHUNK,
    A_ROW,
    A_TAKE,
    ALLOC,
    ALLOC_GARBAGE,
    ALLOCS,
    DONE,
    DUR,
    FULL,
    GROW,
    PLANNED,
    READY,
    SHAPE,
    START,
    STATE,
    STOP,
    Ints,
    Tables,
)
from schedd.plan.kernels.place import entries_fit, most_entries, occupy, place
from schedd.plan.kernels.rows import floor
from schedd.plan.kernels.undo import (
    OLD_ALLOC,
    OLD_ALLOCS,
    OLD_FIELDS,
    OLD_START,
    UndoLog,
    begin_attempt,
    commit,
    log_placed,
    make_undo_log,
    remove_logged,
    remove_rest,
    revert,
)

# Results of a displacement: DONE, FULL, or
TOO_LATE: Final = 2  # a job would start after its latest start
STOPPED: Final = 3  # the search was stopped. As after FULL, nothing was changed.

# Modes: which entries are removed, and which jobs may keep their places.
PLACE_ALL_AGAIN: Final = 0  # every job is removed from all its resources and placed again
PREFER_OLD_PLACE: Final = 1  # all jobs but the first keep their old places if these are still free
PREFER_OLD_PLACE_AND_POOLS: Final = 2
"""The same, and until they move they keep their pool entries: rows of pools may be long."""


@inner
def _fits(tb: Tables, first: int, n: int, start: int, end: int) -> bool:
    """Return whether everything that ``n`` allocations take is free over ``[start, end)``.

    Each allocation is checked by itself: several of a job on one row may pass although they do not fit
    together; ``_is_overcommitted`` detects that.
    """
    for i in range(first, first + n):
        for r in range(tb.F.shape[0]):
            take = tb.alloc[i, A_TAKE + r]
            if take > 0 and floor(tb, tb.alloc[i, A_ROW], r, start, end) < take:
                return False
    return True


@inner
def _is_overcommitted(tb: Tables, first: int, n: int, start: int, end: int) -> bool:
    """Return whether a row of these allocations is over-committed over ``[start, end)``."""
    for i in range(first, first + n):
        for r in range(tb.F.shape[0]):
            if tb.alloc[i, A_TAKE + r] > 0 and floor(tb, tb.alloc[i, A_ROW], r, start, end) < 0:
                return True
    return False


@inner
def _count_node_entries(tb: Tables, first: int, n: int) -> int:
    """Return how many of ``n`` allocations are of nodes, which precede those of pools."""
    nodes = 0
    while nodes < n and tb.alloc[first + nodes, A_CHUNK] >= 0:
        nodes += 1
    return nodes


@inner
def _restore(tb: Tables, un: UndoLog, i: int, slot: int, entries: int) -> int:
    """Restore the i-th job at its old place, which appears free, on this many of its allocations."""
    start = un.old[OLD_START, i]
    end = start + tb.jobs[DUR, slot]
    first = un.old[OLD_ALLOC, i]
    tb.jobs[ALLOC, slot] = first
    tb.jobs[ALLOCS, slot] = entries
    if not occupy(tb, slot, start, end, -1):
        tb.jobs[ALLOCS, slot] = 0
        return FULL
    tb.jobs[START, slot] = start
    tb.jobs[STATE, slot] = PLANNED
    tb.ctl[ALLOC_GARBAGE] -= entries
    log_placed(tb, un, slot)
    tb.jobs[ALLOCS, slot] = un.old[OLD_ALLOCS, i]
    return TOO_LATE if _is_overcommitted(tb, first, entries, start, end) else DONE


@inner
def _place_in_time(tb: Tables, un: UndoLog, slot: int, now: int, latest: int) -> int:
    """Place a removed job no later than ``latest``."""
    start = place(tb, slot, now, latest + 1)
    if start == GROW:
        return FULL
    if start < 0:
        return TOO_LATE
    log_placed(tb, un, slot)
    return DONE


@inner
def _is_futile(tb: Tables, un: UndoLog, order: Ints, jobs: Ints, latest: Ints, now: int, pools: bool) -> bool:
    """Return whether one of the jobs behind the first, all removed, finds no place in time even before the
    rest is restored.

    Detecting that at once is what most attempts come to.
    """
    for k in range(1, order.shape[0]):
        i = order[k]
        slot = jobs[i]
        start = un.old[OLD_START, i]
        dur = tb.jobs[DUR, slot]
        first = un.old[OLD_ALLOC, i]
        n = un.old[OLD_ALLOCS, i]
        if start >= now and _fits(
            tb, first, n if pools else _count_node_entries(tb, first, n), start, start + dur
        ):
            continue
        # without its pools, which it may still hold
        ready = max(now, tb.jobs[READY, slot])
        sooner, _ = find_start(tb, tb.jobs[SHAPE, slot], 0, 0, ready, dur, latest[i] + 1)
        if sooner < 0:
            return True
    return False


@inner
def _remove_all(tb: Tables, un: UndoLog, jobs: Ints, mode: int) -> int:
    """Remove these jobs. Return DONE, STOPPED or FULL."""
    for i in range(jobs.shape[0]):
        if tb.ctl[STOP] != 0:
            return STOPPED
        entries = tb.jobs[ALLOCS, jobs[i]]
        if i > 0 and mode == PREFER_OLD_PLACE_AND_POOLS:
            entries = _count_node_entries(tb, tb.jobs[ALLOC, jobs[i]], entries)
        if not remove_logged(tb, un, jobs[i], entries):
            return FULL
    return DONE


@inner
def _restore_or_place(tb: Tables, un: UndoLog, i: int, slot: int, now: int, latest: int, pools: bool) -> int:
    """Restore the i-th job at its old place if that is free, else place it no later than ``latest``."""
    start = un.old[OLD_START, i]
    first = un.old[OLD_ALLOC, i]
    held = un.old[OLD_ALLOCS, i]
    entries = held if pools else _count_node_entries(tb, first, held)
    if start >= now and _fits(tb, first, entries, start, start + tb.jobs[DUR, slot]):
        return int(_restore(tb, un, i, slot, entries))
    if entries < held and not remove_rest(tb, un, i, entries):
        return FULL
    return int(_place_in_time(tb, un, slot, now, latest))


@lean
def displace(
    tb: Tables, un: UndoLog, jobs: Ints, order: Ints, latest: Ints, now: int, mode: int
) -> tuple[int, int]:
    """Remove these planned jobs and place them again, in this ``order`` of their indices, each no later than
    its own ``latest`` (by index); see ``PLACE_ALL_AGAIN`` and the others for the ``mode``. If jobs may keep
    their places, the first of the order is ``jobs[0]``.

    Return (DONE, TOO_LATE, STOPPED or FULL; the number of jobs that found a place). After DONE, ``un.old``
    has the old places, and ``commit`` or ``revert`` must follow; else nothing was changed.
    """
    entries = 0
    for slot in jobs:
        entries += most_entries(tb, slot)
    if not entries_fit(tb, entries):  # an attempt that is reverted would leave other versions of rows
        return FULL, 0
    set_now(tb, now)  # before bounds are saved: they become invalid if now goes back
    begin_attempt(tb, un, jobs)
    pools = mode != PREFER_OLD_PLACE_AND_POOLS
    how = _remove_all(tb, un, jobs, mode)
    placed = 0
    while placed < order.shape[0] and how == DONE:
        i = order[placed]
        if tb.ctl[STOP] != 0:
            how = STOPPED
        elif placed == 0 or mode == PLACE_ALL_AGAIN:
            how = _place_in_time(tb, un, jobs[i], now, latest[i])
            if (
                how == DONE
                and mode != PLACE_ALL_AGAIN
                and _is_futile(tb, un, order, jobs, latest, now, pools)
            ):
                how = TOO_LATE
        else:
            how = _restore_or_place(tb, un, i, jobs[i], now, latest[i], pools)
        if how == DONE:
            placed += 1
    if how != DONE:
        revert(tb, un)
    return how, placed


@kernel
def displace_and_commit(tb: Tables, jobs: Ints, latest: Ints, now: int) -> tuple[int, Ints, Ints]:
    """Displace these jobs, each placed again in this order, and keep the result.

    Return (result of ``displace``; the jobs; ``UndoLog.old``, their old places).
    """
    un = make_undo_log(tb, jobs.shape[0], tb.rows.shape[0])
    how, _ = displace(tb, un, jobs, np.arange(jobs.shape[0]), latest, now, PLACE_ALL_AGAIN)
    if how == DONE:
        commit(tb, un)
        return how, jobs, un.old
    return how, jobs, np.empty((OLD_FIELDS, 0), np.int64)
