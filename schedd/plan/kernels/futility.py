"""Proof, without removing all jobs, that displacing them cannot help a job of one unit.

In a full plan most attempts to displace jobs fail, since one of them would find no place in time. This kernel
proves that from a part of the plan: it examines one row exactly, and of the other rows only the free capacity
at one time. An attempt that is not proved futile has to be made.
"""

from typing import Final, NamedTuple

import numpy as np

from schedd.plan.kernels.bounds import duration_step, fit_bounded, raise_bound
from schedd.plan.kernels.jit import inner, kernel, lean
from schedd.plan.kernels.layout import (
    A_CHUNK,
    A_ROW,
    A_TAKE,
    ALLOC,
    ALLOCS,
    CHUNK,
    CHUNKS,
    COUNT,
    CPUS,
    DUR,
    DURATIONS,
    EXCLUSIVE,
    GATES,
    GROW,
    LEAST_TIER,
    LEN,
    LEVEL,
    NEED,
    NONE,
    OFF,
    PER_NODE,
    POOL,
    POOLS,
    READY,
    SET,
    SET_LEN,
    SETS,
    SHAPE,
    SLACK,
    START,
    USABLE,
    VERSION,
    Ints,
    Table,
    Tables,
)
from schedd.plan.kernels.place import holds_row
from schedd.plan.kernels.rows import amend, change, fit, floor, locate, make_room, needed

_MOST_TOUCHED: Final = 256


class TouchedRows(NamedTuple):
    """Rows held by a job and its candidates for displacement; N rows, M of them touched."""

    mark: Ints
    """(N,) 1 + index of the row in ``rows``; 0: none of these jobs holds anything there."""
    rows: Ints
    """(M,)"""
    held: Table
    """(M, R) what the jobs hold there at one time."""
    need: Ints
    """(R,) what the job takes."""
    times: Ints
    """(L,) starts of the segments of the first row that is examined, as they were."""
    free: Table
    """(R, L) their free capacity."""


@kernel
def make_touched_rows(tb: Tables, row: int) -> TouchedRows:
    """Allocate the buffers of one check that examines ``row`` first."""
    resources = tb.F.shape[0]
    length = tb.rows[row, LEN]
    return TouchedRows(
        np.zeros(tb.rows.shape[0], np.int64),
        np.empty(_MOST_TOUCHED, np.int64),
        np.empty((_MOST_TOUCHED, resources), np.int64),
        np.empty(resources, np.int64),
        np.empty(length, np.int64),
        np.empty((resources, length), np.int64),
    )


@inner
def _collect_rows(tb: Tables, th: TouchedRows, jobs: Ints) -> int:
    """Collect the rows of these jobs. Return their number, or -1 if there are too many."""
    n = 0
    for k in range(jobs.shape[0]):
        first = tb.jobs[ALLOC, jobs[k]]
        for i in range(first, first + tb.jobs[ALLOCS, jobs[k]]):
            if tb.alloc[i, A_CHUNK] < 0:
                break  # the rest are pools
            row = tb.alloc[i, A_ROW]
            if th.mark[row] > 0:
                continue
            if n == th.rows.shape[0]:
                return -1
            th.rows[n] = row
            n += 1
            th.mark[row] = n
    return n


@inner
def _sum_held(tb: Tables, th: TouchedRows, n: int, jobs: Ints, moment: int) -> None:
    """Sum what these jobs hold at ``moment``, by row."""
    for m in range(n):
        for r in range(tb.F.shape[0]):
            th.held[m, r] = 0
    for k in range(jobs.shape[0]):
        slot = jobs[k]
        start = tb.jobs[START, slot]
        if start > moment or start + tb.jobs[DUR, slot] <= moment:
            continue
        first = tb.jobs[ALLOC, slot]
        for i in range(first, first + tb.jobs[ALLOCS, slot]):
            if tb.alloc[i, A_CHUNK] < 0:
                break
            m = th.mark[tb.alloc[i, A_ROW]] - 1
            for r in range(tb.F.shape[0]):
                th.held[m, r] += tb.alloc[i, A_TAKE + r]


@inner
def _count_units(
    tb: Tables, th: TouchedRows, m: int, need: Ints, cols: int, exclusive: int, most: int, moment: int
) -> int:
    """Return how many units, at most ``most``, fit at ``moment`` on the ``m``-th touched row without these
    jobs: an upper bound for any interval that contains it.
    """
    row = th.rows[m]
    off = tb.rows[row, OFF]
    k = locate(tb.T, off, off + tb.rows[row, LEN], moment)
    for c in range(need.shape[0]):
        if (cols >> c) & 1:
            most = _at_most(most, tb.F[c, k] + th.held[m, c], need[c], exclusive)
    return most


@inner
def _at_most(most: int, free: int, need: int, exclusive: int) -> int:
    """Return how many of ``most`` units fit by one resource; exclusive units fit all or none."""
    if free < need:
        return 0
    return most if exclusive else min(most, free // need)


@inner
def _earliest_on_row(
    tb: Tables, jobs: Ints, row: int, need: Ints, cols: int, ready: int, dur: int, latest: int
) -> int:
    """Return the earliest start by ``latest`` on a touched row without these jobs; NONE; GROW: no space to
    check.
    """
    if not make_room(tb, row, 2 * _count_entries(tb, jobs, row)):
        return GROW
    version = tb.rows[row, VERSION]
    for slot in jobs:
        _change_row(tb, slot, row, 1)
    start, _ = fit(tb, row, need, cols, ready, dur, latest)
    _restore_row(tb, jobs, row, version)
    return start


@inner
def _is_used(tb: Tables, jobs: Ints, row: int, begin: int, end: int) -> bool:
    """Return whether one of these jobs holds something of the row between ``begin`` and ``end``."""
    for slot in jobs:
        start = tb.jobs[START, slot]
        if start < end and start + tb.jobs[DUR, slot] > begin and holds_row(tb, slot, row):
            return True
    return False


@inner
def _find_place(
    tb: Tables, th: TouchedRows, jobs: Ints, ready: int, latest: int, need: Ints, cols: int, likely: int
) -> tuple[int, int]:
    """Return the placement of ``jobs[0]``, of one unit, by ``latest`` without these jobs: (start, row).

    (NONE, -1): none. A row of -1 with a start: unknown, or not caused by these jobs. Row ``likely`` is
    examined first; the jobs are removed from it.
    """
    slot = jobs[0]
    chunk = tb.shapes[tb.jobs[SHAPE, slot], CHUNK]
    dur = tb.jobs[DUR, slot]
    level = tb.chunks[chunk, LEVEL]
    step = duration_step(dur)
    best, _ = fit(tb, likely, need, cols, ready, dur, latest)
    best_row = likely if best >= 0 else -1
    for i in range(tb.chunks[chunk, SET], tb.chunks[chunk, SET] + tb.chunks[chunk, SET_LEN]):
        row = tb.sets[i]
        if row == likely or tb.rows[row, USABLE] <= tb.ctl[LEAST_TIER]:
            continue
        by = best if best >= 0 else latest
        mine = th.mark[row] > 0 and _is_used(tb, jobs, row, ready, by + dur)
        if mine:
            start = _earliest_on_row(tb, jobs, row, need, cols, ready, dur, by)
        else:
            start, _ = fit_bounded(tb, row, need, cols, ready, dur, by, level, step)
        if start == GROW:
            return 0, -1
        if start < 0:
            continue
        # of equal starts, ``place`` would use the row with fewest cpus left: unknown here
        best_row = row if mine and start != best else -1
        best = start
        if best_row < 0:
            break
    return best, best_row


@inner
def _has_no_place(
    tb: Tables, th: TouchedRows, n: int, jobs: Ints, slot: int, row: int, latest: int, now: int
) -> bool:
    """Return whether ``slot`` surely finds no place by ``latest`` when all candidates are removed and the job
    is placed on ``row``, from which the others are removed.

    Wherever ``slot`` starts by then, it runs at ``latest`` unless it may end before; so it needs room at that
    time. A job of one unit finds no place if no row has an interval for it.
    """
    ready = max(now, tb.jobs[READY, slot])
    dur = tb.jobs[DUR, slot]
    if latest < ready:
        return True
    if latest - ready < dur and _has_no_room_at(tb, th, n, jobs, slot, row, latest, ready + dur):
        return True
    shape = tb.jobs[SHAPE, slot]
    if tb.shapes[shape, CHUNKS] > 1 or tb.chunks[tb.shapes[shape, CHUNK], COUNT] > 1:
        return False
    return bool(_has_no_interval(tb, th, jobs, slot, row, ready, latest))


@inner
def _has_no_interval(
    tb: Tables, th: TouchedRows, jobs: Ints, slot: int, row: int, ready: int, latest: int
) -> bool:
    """Return whether no row has an interval for ``slot``, of one unit, that begins by ``latest``, as
    ``_has_no_place``; False also where that cannot be examined.
    """
    shape = tb.jobs[SHAPE, slot]
    chunk = tb.shapes[shape, CHUNK]
    need = tb.chunks[chunk, NEED:]
    cols = needed(need, tb.shapes[shape, EXCLUSIVE])
    level = tb.chunks[chunk, LEVEL]
    dur = tb.jobs[DUR, slot]
    step = duration_step(dur)
    for i in range(tb.chunks[chunk, SET], tb.chunks[chunk, SET] + tb.chunks[chunk, SET_LEN]):
        other = tb.sets[i]
        if tb.rows[other, USABLE] <= tb.ctl[LEAST_TIER]:
            continue
        if other == row:
            start, _ = fit(tb, row, need, cols, ready, dur, latest)
        elif th.mark[other] > 0 and _is_used(tb, jobs, other, ready, latest + dur):
            start = _earliest_on_row(tb, jobs, other, need, cols, ready, dur, latest)
        else:
            start, _ = fit_bounded(tb, other, need, cols, ready, dur, latest, level, step)
        if start != NONE:
            return False
    return True


@inner
def _has_no_room_at(
    tb: Tables, th: TouchedRows, n: int, jobs: Ints, slot: int, row: int, latest: int, end: int
) -> bool:
    """Return whether ``slot`` surely has no room at ``latest``, as ``_has_no_place``. On ``row`` it needs
    room up to ``end``, the end of its earliest interval.
    """
    _sum_held(tb, th, n, jobs, latest)
    step = duration_step(tb.jobs[DUR, slot])
    shape = tb.jobs[SHAPE, slot]
    first = tb.shapes[shape, CHUNK]
    for c in range(first, first + tb.shapes[shape, CHUNKS]):
        need = tb.chunks[c, NEED:]
        exclusive = tb.shapes[shape, EXCLUSIVE]
        cols = needed(need, exclusive)
        level = tb.chunks[c, LEVEL]
        most = tb.chunks[c, PER_NODE]
        wanted = tb.chunks[c, COUNT]
        for i in range(tb.chunks[c, SET], tb.chunks[c, SET] + tb.chunks[c, SET_LEN]):
            if wanted <= 0:
                break
            other = tb.sets[i]
            if tb.rows[other, USABLE] <= tb.ctl[LEAST_TIER]:
                continue
            if other == row:
                units = most
                for r in range(need.shape[0]):
                    if (cols >> r) & 1:
                        units = _at_most(units, floor(tb, row, r, latest, end), need[r], exclusive)
                wanted -= units
            elif th.mark[other] > 0:
                wanted -= _count_units(tb, th, th.mark[other] - 1, need, cols, exclusive, most, latest)
            elif (
                tb.bounds[level * DURATIONS + step, other] <= latest
                and raise_bound(tb, other, level, step, latest) <= latest
            ):
                wanted -= most
        if wanted > 0:
            return True
    return False


@inner
def _next_entry(tb: Tables, slot: int, row: int, i: int) -> int:
    """Return the first allocation of a job from ``i`` on that is of the node ``row``; -1: none."""
    end = tb.jobs[ALLOC, slot] + tb.jobs[ALLOCS, slot]
    while i < end and tb.alloc[i, A_CHUNK] >= 0:  # from there on there are only pools
        if tb.alloc[i, A_ROW] == row:
            return i
        i += 1
    return -1


@inner
def _count_entries(tb: Tables, jobs: Ints, row: int) -> int:
    """Return how many allocations of these jobs are of ``row``."""
    n = 0
    for slot in jobs:
        i = _next_entry(tb, slot, row, tb.jobs[ALLOC, slot])
        while i >= 0:
            n += 1
            i = _next_entry(tb, slot, row, i + 1)
    return n


@inner
def _change_row(tb: Tables, slot: int, row: int, sign: int) -> None:
    """Give back (+1) or take (-1) what a job holds of one row."""
    start = tb.jobs[START, slot]
    end = start + tb.jobs[DUR, slot]
    i = _next_entry(tb, slot, row, tb.jobs[ALLOC, slot])
    while i >= 0:
        if sign > 0:
            amend(tb, row, start, end, tb.alloc[i, A_TAKE:], 1)
        else:
            change(tb, row, start, end, tb.alloc[i, A_TAKE:], -1)
        i = _next_entry(tb, slot, row, i + 1)


@inner
def _can_stay(tb: Tables, slot: int, row: int, now: int) -> bool:
    """Return whether a job, removed from ``row``, could be restored there as far as that row is concerned."""
    start = tb.jobs[START, slot]
    end = start + tb.jobs[DUR, slot]
    i = _next_entry(tb, slot, row, tb.jobs[ALLOC, slot])
    while i >= 0:
        for r in range(tb.F.shape[0]):
            take = tb.alloc[i, A_TAKE + r]
            if take > 0 and floor(tb, row, r, start, end) < take:
                return False
        i = _next_entry(tb, slot, row, i + 1)
    return bool(start >= now)


@inner
def _note_need(tb: Tables, th: TouchedRows, slot: int, row: int) -> None:
    """Set ``need`` to what a job of one unit takes of a row."""
    shape = tb.jobs[SHAPE, slot]
    for r in range(tb.F.shape[0]):
        if tb.shapes[shape, EXCLUSIVE] and (tb.ctl[GATES] >> r) & 1 == 0:
            th.need[r] = tb.cap[row, r]
        else:
            th.need[r] = tb.chunks[tb.shapes[shape, CHUNK], NEED + r]


@inner
def _restore_row(tb: Tables, jobs: Ints, row: int, version: int) -> None:
    """Restore what these jobs held on ``row``; everything remembered of its ``version`` stays valid."""
    for k in range(jobs.shape[0] - 1, -1, -1):
        _change_row(tb, jobs[k], row, -1)
    tb.rows[row, VERSION] = version


@inner
def _save_row(tb: Tables, th: TouchedRows, row: int) -> None:
    """Copy the segments of ``row`` to the buffers, which are as long."""
    off = tb.rows[row, OFF]
    for i in range(th.times.shape[0]):
        th.times[i] = tb.T[off + i]
    for r in range(tb.F.shape[0]):
        for i in range(th.times.shape[0]):
            th.free[r, i] = tb.F[r, off + i]


@inner
def _restore_saved(tb: Tables, th: TouchedRows, row: int, version: int) -> None:
    """Restore the segments of ``row`` that were saved; everything remembered of its ``version`` stays
    valid. A copy takes less time than to give back and take what jobs hold, one by one.
    """
    off = tb.rows[row, OFF]
    for i in range(th.times.shape[0]):
        tb.T[off + i] = th.times[i]
    for r in range(tb.F.shape[0]):
        for i in range(th.times.shape[0]):
            tb.F[r, off + i] = th.free[r, i]
    tb.rows[row, LEN] = th.times.shape[0]
    tb.rows[row, VERSION] = version


@inner
def _pools_allow(tb: Tables, slot: int, start: int) -> bool:
    """Return whether the pools of a job surely have room for it from ``start`` on."""
    pool = tb.jobs[POOL, slot]
    end = start + tb.jobs[DUR, slot]
    for i in range(pool, pool + tb.jobs[POOLS, slot]):
        row = tb.pools[i, 0]
        if not tb.rows[row, SLACK] and floor(tb, row, CPUS, start, end) < tb.pools[i, 1]:
            return False
    return True


@lean
def is_futile(tb: Tables, th: TouchedRows, jobs: Ints, latest: Ints, row: int, now: int) -> bool:
    """Return whether the others surely cannot be displaced so that ``jobs[0]``, of one unit, starts by its
    ``latest``: ``displace`` would then return TOO_LATE. All jobs hold ``row``. The plan is left unchanged.
    """
    slot = jobs[0]
    shape = tb.jobs[SHAPE, slot]
    if tb.shapes[shape, SETS] > 0 or tb.rows[row, USABLE] <= tb.ctl[LEAST_TIER]:
        return False
    n = _collect_rows(tb, th, jobs)
    if n < 0 or not make_room(tb, row, 2 * (_count_entries(tb, jobs, row) + 1)):
        return False
    likely = row
    version = tb.rows[likely, VERSION]
    _save_row(tb, th, likely)
    for k in range(jobs.shape[0]):
        _change_row(tb, jobs[k], likely, 1)
    futile = False
    need = tb.chunks[tb.shapes[shape, CHUNK], NEED:]
    cols = needed(need, tb.shapes[shape, EXCLUSIVE])
    ready = max(now, tb.jobs[READY, slot])
    start, row = _find_place(tb, th, jobs, ready, latest[0], need, cols, likely)
    if start < 0:
        futile = True
    elif row == likely and _pools_allow(tb, slot, start):
        futile = _is_any_stuck(tb, th, n, jobs, latest, likely, start, now)
    _restore_saved(tb, th, likely, version)
    if row < 0 or row == likely or not _pools_allow(tb, slot, start):
        return futile
    if not make_room(tb, row, 2 * (_count_entries(tb, jobs, row) + 1)):
        return False
    version = tb.rows[row, VERSION]
    for k in range(jobs.shape[0]):
        _change_row(tb, jobs[k], row, 1)
    futile = _is_any_stuck(tb, th, n, jobs, latest, row, start, now)
    _restore_row(tb, jobs, row, version)
    return futile


@inner
def _is_any_stuck(
    tb: Tables, th: TouchedRows, n: int, jobs: Ints, latest: Ints, row: int, start: int, now: int
) -> bool:
    """Return whether one of the others surely finds no place in time when ``jobs[0]`` is placed at ``start``
    on ``row``, from which all are removed. The row is left as it was.
    """
    end = start + tb.jobs[DUR, jobs[0]]
    _note_need(tb, th, jobs[0], row)
    amend(tb, row, start, end, th.need, -1)
    stuck = False
    for k in range(1, jobs.shape[0]):
        if not _can_stay(tb, jobs[k], row, now) and _has_no_place(
            tb, th, n, jobs, jobs[k], row, latest[k], now
        ):
            stuck = True
            break
    change(tb, row, start, end, th.need, 1)
    return stuck
