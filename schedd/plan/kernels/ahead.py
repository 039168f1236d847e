"""The kernel that lets a job go before planned jobs of lower rank, and who of them is asked to make way.

One pass over the jobs by slot finds who may make way at all: often nobody. Nothing is sorted but the few that
are asked.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels.advance import IN_VAIN, advance
from schedd.plan.kernels.jit import kernel, lean
from schedd.plan.kernels.layout import (
    A_CHUNK,
    A_ROW,
    ALLOC,
    ALLOCS,
    CHUNK,
    CHUNKS,
    COUNT,
    DUR,
    FAR,
    PLANNED,
    POOL,
    POOL_NEED,
    POOLS,
    READY,
    SET,
    SET_LEN,
    SHAPE,
    SLACK,
    START,
    STATE,
    Ints,
    Tables,
)
from schedd.plan.kernels.rows import fit
from schedd.plan.kernels.undo import OLD_FIELDS, undo_for

_ROWS_REMEMBERED: Final = 512
_PARTS: Final = 32
"""First this part of the time in which others may be in the way is looked through, then ever larger ones."""
_BLOCK: Final = 256
"""So many jobs are first looked at together."""


class Way(NamedTuple):
    """Room for one job's way, which at most n others clear; J slots, N rows, A allocations."""

    others: Ints
    """(J,) who may make way, by slot"""
    starts: Ints
    """(J,) and when they start."""
    useful: npt.NDArray[np.bool_]
    """(N,) rows on which room would help."""
    first: Ints
    """(N,) the start of the first that would make way there; FAR: nobody would."""
    who: Ints
    """(N,) its slot."""
    slots: Ints
    """(A,) who would make way and holds a useful row"""
    rows: Ints
    """(A,) and which."""
    asked: Ints
    """(n,) who is asked, by start."""
    jobs: Ints
    """(n + 1,) the job itself, and those who are asked at last."""
    order: Ints
    """(n,) in which they follow it, as indices in ``jobs``."""
    latest: Ints
    """(n + 1,) their latest starts."""


@kernel
def _way_for(tb: Tables, most: int) -> Way:
    return Way(
        np.empty(tb.jobs.shape[1], np.int64),
        np.empty(tb.jobs.shape[1], np.int64),
        np.zeros(tb.rows.shape[0], np.bool_),
        np.full(tb.rows.shape[0], FAR, np.int64),
        np.zeros(tb.rows.shape[0], np.int64),
        np.empty(tb.alloc.shape[0], np.int64),
        np.empty(tb.alloc.shape[0], np.int64),
        np.empty(most, np.int64),
        np.empty(most + 1, np.int64),
        np.empty(most, np.int64),
        np.empty(most + 1, np.int64),
    )


@lean
def _reach(tb: Tables, slot: int, earliest: int, useful: npt.NDArray[np.bool_]) -> bool:
    """Flag the rows on which room for a planned ``slot`` would help: its nodes; and those of its pools that
    leave it no room from ``earliest`` up to its start. Returns whether there are such pools.
    """
    shape = tb.jobs[SHAPE, slot]
    first = tb.shapes[shape, CHUNK]
    for c in range(first, first + tb.shapes[shape, CHUNKS]):
        for i in range(tb.chunks[c, SET], tb.chunks[c, SET] + tb.chunks[c, SET_LEN]):
            useful[tb.sets[i]] = True
    binding = False
    need = tb.scratch[POOL_NEED, :1]
    pool = tb.jobs[POOL, slot]
    for i in range(pool, pool + tb.jobs[POOLS, slot]):
        row = tb.pools[i, 0]
        if tb.rows[row, SLACK]:
            continue
        need[0] = tb.pools[i, 1]
        s, _ = fit(tb, row, need, 1, earliest, tb.jobs[DUR, slot], tb.jobs[START, slot] - 1)
        if s < 0:
            useful[row] = True
            binding = True
    return binding


@lean
def _others(tb: Tables, wy: Way, slot: int, rank: Ints, promise: Ints, breaks: bool, earliest: int) -> int:
    """Note who may make way for a planned ``slot``: planned jobs of lower rank that may start later than they
    do, and that hold something between ``earliest`` and its end. Returns how many.

    To tell takes no branch, so that several are looked at in one step where a block of jobs has none.
    """
    own = rank[slot]
    end = tb.jobs[START, slot] + tb.jobs[DUR, slot]
    starts = tb.jobs[START]
    states = tb.jobs[STATE]
    lengths = tb.jobs[DUR]
    least = -FAR if breaks else 0
    n = 0
    for begin in range(0, starts.shape[0], _BLOCK):
        until = min(begin + _BLOCK, starts.shape[0])
        movable = 0
        for s in range(begin, until):
            movable += int(promise[s] - starts[s] > least) & int(rank[s] < own) & int(states[s] == PLANNED)
        if movable == 0:
            continue
        for s in range(begin, until):
            start = starts[s]
            wy.others[n] = s
            wy.starts[n] = start
            n += (
                int(promise[s] - start > least)
                & int(rank[s] < own)
                & int(states[s] == PLANNED)
                & int(start < end)
                & int(start + lengths[s] > earliest)
            )
    return n


@lean
def _holders(tb: Tables, wy: Way, m: int, n: int, pools: bool, begin: int, end: int) -> int:
    """Note who of the first ``n`` of the others starts in ``[begin, end)``, once for each useful row that it
    holds; pools are looked at only if they matter.

    ``m`` were noted before; returns how many are now, by slot.
    """
    for k in range(n):
        start = wy.starts[k]
        if start < begin or start >= end:
            continue
        s = wy.others[k]
        first = tb.jobs[ALLOC, s]
        for i in range(first, first + tb.jobs[ALLOCS, s]):
            if not pools and tb.alloc[i, A_CHUNK] < 0:
                break  # from here on there are only pools
            row = tb.alloc[i, A_ROW]
            if not wy.useful[row]:
                continue
            wy.slots[m] = s
            wy.rows[m] = row
            m += 1
            if start < wy.first[row]:
                wy.first[row] = start
                wy.who[row] = s
    return m


@lean
def _best_row(wy: Way) -> int:
    """The row on which the first to make way starts first, or -1."""
    best = -1
    for row in range(wy.first.shape[0]):
        if wy.first[row] < FAR and (
            best < 0
            or wy.first[row] < wy.first[best]
            or (wy.first[row] == wy.first[best] and wy.who[row] < wy.who[best])
        ):
            best = row
    return best


@lean
def _ask(tb: Tables, wy: Way, n: int, slot: int) -> int:
    """Ask one more than the ``n`` who are asked; returns how many these are now."""
    start = tb.jobs[START, slot]
    i = n
    while i > 0 and start < tb.jobs[START, wy.asked[i - 1]]:
        wy.asked[i] = wy.asked[i - 1]
        i -= 1
    wy.asked[i] = slot
    return n + 1


@lean
def _first_of(tb: Tables, wy: Way, m: int, row: int) -> int:
    """Ask those who hold ``row``, the first to start; returns how many."""
    most = wy.asked.shape[0]
    n = 0
    before = -1
    for j in range(m):
        slot = wy.slots[j]
        if wy.rows[j] != row or slot == before:
            continue
        before = slot
        if n == most:
            if tb.jobs[START, slot] >= tb.jobs[START, wy.asked[n - 1]]:
                continue
            n -= 1
        n = _ask(tb, wy, n, slot)
    return n


@lean
def _last_of(tb: Tables, wy: Way, m: int) -> int:
    """Ask those who were noted, the last to start; returns how many."""
    most = wy.asked.shape[0]
    n = 0
    before = -1
    for j in range(m):
        slot = wy.slots[j]
        if slot == before:
            continue
        before = slot
        if n == most:
            if tb.jobs[START, slot] < tb.jobs[START, wy.asked[0]]:
                continue
            n -= 1
            for i in range(n):
                wy.asked[i] = wy.asked[i + 1]
        n = _ask(tb, wy, n, slot)
    return n


@lean
def _ask_on_row(tb: Tables, wy: Way, slot: int, others: int, earliest: int, sets: int) -> int:
    """Note who of so many ``others`` holds rows; of several ``sets`` all, else only until as many as are
    asked hold the best row.

    Returns how many were noted.
    """
    end = tb.jobs[START, slot] + tb.jobs[DUR, slot]
    width = end - earliest if sets > 1 else (end - earliest) // _PARTS + 1
    begin = 0
    until = min(earliest + width, end)
    m = _holders(tb, wy, 0, others, False, begin, until)
    while until < end:
        row = _best_row(wy)
        if row >= 0 and _first_of(tb, wy, m, row) == wy.asked.shape[0]:
            break
        begin = until
        width *= 2
        until = min(until + width, end)
        m = _holders(tb, wy, m, others, False, begin, until)
    return m


@lean
def _ask_last(tb: Tables, wy: Way, slot: int, others: int, pools: bool, earliest: int) -> int:
    """Ask the last to start of all ``others`` who are in the way; returns how many."""
    end = tb.jobs[START, slot] + tb.jobs[DUR, slot]
    width = (end - earliest) // _PARTS + 1
    begin = end
    m = n = 0
    while begin > 0 and n < wy.asked.shape[0]:
        until = begin
        begin = until - width if until - width > earliest else 0
        width *= 2
        m = _holders(tb, wy, m, others, pools, begin, until)
        n = _last_of(tb, wy, m)
    return n


@kernel
def go_before(
    tb: Tables,
    slot: int,
    rank: Ints,
    promise: Ints,
    breaks: bool,
    now: int,
    until: int,
    most: int,
    sets: int,
) -> tuple[int, Ints, Ints]:
    """Let a planned ``slot`` start earlier, before jobs of lower rank; none of them starts later than what
    was promised to it (unless it ``breaks`` promises), nor than ``until``.

    So many ``sets`` of at most ``most`` jobs are tried. For a job of one unit that no pool holds back, those
    on one row, the first to start: the rows first on which room could be made soonest. Else the last to start
    of all who are in the way, then fewer of them.

    Returns (DONE, IN_VAIN or FULL; the job and those who made way; ``Undo.old``, where they were).
    """
    wy = _way_for(tb, most)
    start = tb.jobs[START, slot]
    earliest = max(now, tb.jobs[READY, slot])
    pools = _reach(tb, slot, earliest, wy.useful)
    others = _others(tb, wy, slot, rank, promise, breaks, earliest)
    if others == 0:
        return IN_VAIN, wy.jobs[:0], np.empty((OLD_FIELDS, 0), np.int64)
    un = undo_for(tb, most + 1, _ROWS_REMEMBERED)
    shape = tb.jobs[SHAPE, slot]
    one = tb.shapes[shape, CHUNKS] == 1 and tb.chunks[tb.shapes[shape, CHUNK], COUNT] == 1 and not pools
    m = n = 0
    if one:
        m = _ask_on_row(tb, wy, slot, others, earliest, sets)
    else:
        n = _ask_last(tb, wy, slot, others, pools, earliest)
    for k in range(sets):
        skip = 0
        if one:
            row = _best_row(wy)
            if row < 0:
                break
            n = _first_of(tb, wy, m, row)
            wy.first[row] = FAR
        else:
            skip = n - n * (sets - k) // sets
        size = n - skip
        if size == 0:
            break
        wy.jobs[0] = slot
        wy.latest[0] = start - 1
        for i in range(size):
            other = wy.asked[skip + i]
            wy.jobs[i + 1] = other
            wy.latest[i + 1] = until if breaks else min(until, promise[other])
            # The highest rank first, of equals the first to start.
            j = i
            while j > 0 and rank[other] > rank[wy.jobs[wy.order[j - 1]]]:
                wy.order[j] = wy.order[j - 1]
                j -= 1
            wy.order[j] = i + 1
        how = advance(tb, un, wy.jobs[: size + 1], wy.order[:size], wy.latest[: size + 1], now, pools)
        if how != IN_VAIN:
            return how, wy.jobs[: size + 1], un.old[:, : size + 1]
    return IN_VAIN, wy.jobs[:0], un.old[:, :0]
