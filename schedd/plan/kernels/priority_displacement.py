"""Displacement of planned jobs of lower rank, so that a job starts earlier.

Jobs are scanned by slot; only the few selected ones are sorted. For a job of one unit the jobs that may be
displaced are not listed: most of them are on other rows.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels.displace import PREFER_OLD_PLACE, PREFER_OLD_PLACE_AND_POOLS, TOO_LATE, displace
from schedd.plan.kernels.freed import set_now
from schedd.plan.kernels.futility import is_futile, make_touched_rows
from schedd.plan.kernels.jit import inner, kernel, maker
from schedd.plan.kernels.layout import (
    A_CHUNK,
    A_ROW,
    ALLOC,
    ALLOCS,
    CHUNK,
    CHUNKS,
    COUNT,
    DONE,
    DUR,
    FAR,
    FULL,
    HELD,
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
from schedd.plan.kernels.place import entries_fit, held_bits, holds_row, most_entries
from schedd.plan.kernels.rows import fit
from schedd.plan.kernels.undo import OLD_FIELDS, commit, make_undo_log

_ROWS_REMEMBERED: Final = 512
_BLOCK: Final = 256  # number of jobs that are scanned together first
_BLOCK_OF_ROW: Final = 64  # the same where many may be on one row


class DisplacementBuffers(NamedTuple):
    """Buffers for one job that displaces at most n others; N rows."""

    useful: npt.NDArray[np.bool_]
    """(N,) rows where room would help."""
    selected: Ints
    """(n,) selected jobs, by start."""
    jobs: Ints
    """(n + 1,) the job itself and the jobs to displace."""
    order: Ints
    """(n + 1,) order of placement, the job itself first, as indices in ``jobs``."""
    latest: Ints
    """(n + 1,) their latest starts."""


@maker
def _make_buffers(tb: Tables, most: int) -> DisplacementBuffers:
    return DisplacementBuffers(
        np.zeros(tb.rows.shape[0], np.bool_),
        np.empty(most, np.int64),
        np.empty(most + 1, np.int64),
        np.zeros(most + 1, np.int64),
        np.empty(most + 1, np.int64),
    )


@inner
def _flag_useful_rows(tb: Tables, slot: int, earliest: int, useful: npt.NDArray[np.bool_]) -> bool:
    """Flag the rows where room for a planned ``slot`` would help: its candidate nodes, and those of its
    pools that leave it no room from ``earliest`` up to its start. Return whether there are such pools.
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


@inner
def _has_candidates(
    tb: Tables, begin: int, until: int, before: int, slot: int, rank: Ints, promise: Ints, breaks: bool
) -> bool:
    """Return whether ``slot`` may displace a job that has one of these slots and a start before ``before``.

    The conditions are evaluated without branches, so that they are vectorised.
    """
    own = rank[slot]
    starts = tb.jobs[START]
    states = tb.jobs[STATE]
    least = -FAR if breaks else 0
    n = 0
    for s in range(begin, until):
        n += (
            int(promise[s] - starts[s] > least)
            & int(rank[s] < own)
            & int(states[s] == PLANNED)
            & int(starts[s] < before)
        )
    return n > 0


@inner
def _find_candidates(tb: Tables, candidates: Ints, slot: int, rank: Ints, promise: Ints, breaks: bool) -> int:
    """Collect the jobs that a planned ``slot`` may displace, by slot: planned jobs of lower rank that may
    start later and hold something before its end. Return their number.
    """
    own = rank[slot]
    end = tb.jobs[START, slot] + tb.jobs[DUR, slot]
    starts = tb.jobs[START]
    states = tb.jobs[STATE]
    least = -FAR if breaks else 0
    n = 0
    for begin in range(0, starts.shape[0], _BLOCK):
        until = min(begin + _BLOCK, starts.shape[0])
        if not _has_candidates(tb, begin, until, end, slot, rank, promise, breaks):
            continue
        for s in range(begin, until):
            start = starts[s]
            candidates[n] = s
            n += (
                int(promise[s] - start > least)
                & int(rank[s] < own)
                & int(states[s] == PLANNED)
                & int(start < end)
            )
    return n


@inner
def _is_candidate(tb: Tables, s: int, slot: int, rank: Ints, promise: Ints, breaks: bool) -> bool:
    """Return whether ``_find_candidates`` collects ``s`` for ``slot``."""
    start = tb.jobs[START, s]
    return bool(
        tb.jobs[STATE, s] == PLANNED
        and start < tb.jobs[START, slot] + tb.jobs[DUR, slot]
        and rank[s] < rank[slot]
        and promise[s] - start > (-FAR if breaks else 0)
    )


@inner
def _most_entries_of_a_set(tb: Tables, candidates: Ints, slot: int, most_selected: int) -> int:
    """Return the maximum number of entries that ``slot`` and a set of the candidates take."""
    most = 0
    for candidate in candidates:
        most = max(most, most_entries(tb, candidate))
    return int(most_entries(tb, slot) + min(candidates.shape[0], most_selected) * most)


@inner
def _useful_row(tb: Tables, bf: DisplacementBuffers, slot: int, pools: bool) -> int:
    """Return the first useful row that a placed job holds, or -1; pools only if they matter."""
    first = tb.jobs[ALLOC, slot]
    found = -1
    for i in range(first, first + tb.jobs[ALLOCS, slot]):
        if not pools and tb.alloc[i, A_CHUNK] < 0:
            break  # the rest are pools
        row = tb.alloc[i, A_ROW]
        if bf.useful[row] and (found < 0 or row < found):
            found = row
    return int(found)


@inner
def _best_row(
    tb: Tables, bf: DisplacementBuffers, slot: int, rank: Ints, promise: Ints, breaks: bool, earliest: int
) -> int:
    """Return the row where the first of the candidates starts first, or -1.

    Few jobs start before all earlier slots, so that comes first.
    """
    best = -1
    first = tb.jobs[START, slot] + tb.jobs[DUR, slot]  # candidates start before
    starts = tb.jobs[START]
    for begin in range(0, starts.shape[0], _BLOCK):
        until = min(begin + _BLOCK, starts.shape[0])
        earlier = 0
        for s in range(begin, until):
            earlier += int(starts[s] < first)
        if earlier == 0 or not _has_candidates(tb, begin, until, first, slot, rank, promise, breaks):
            continue
        for s in range(begin, until):
            if (
                starts[s] < first
                and _is_candidate(tb, s, slot, rank, promise, breaks)
                and starts[s] + tb.jobs[DUR, s] > earliest
            ):
                row = _useful_row(tb, bf, s, False)
                if row >= 0:
                    best = row
                    first = starts[s]
    return best


@inner
def _insert_by_start(tb: Tables, bf: DisplacementBuffers, n: int, slot: int) -> int:
    """Insert a job into the ``n`` selected ones. Return their new number."""
    start = tb.jobs[START, slot]
    i = n
    while i > 0 and start < tb.jobs[START, bf.selected[i - 1]]:
        bf.selected[i] = bf.selected[i - 1]
        i -= 1
    bf.selected[i] = slot
    return n + 1


@inner
def _select_first(
    tb: Tables,
    bf: DisplacementBuffers,
    slot: int,
    rank: Ints,
    promise: Ints,
    breaks: bool,
    row: int,
    earliest: int,
) -> int:
    """Select the candidates on ``row`` from ``earliest`` on, first to start. Return their number."""
    most = bf.selected.shape[0]
    n = 0
    held = tb.jobs[HELD]
    starts = tb.jobs[START]
    bits = held_bits(row)
    before = tb.jobs[START, slot] + tb.jobs[DUR, slot]  # once all are selected: the last one's start
    for begin in range(0, held.shape[0], _BLOCK_OF_ROW):
        until = min(begin + _BLOCK_OF_ROW, held.shape[0])
        likely = 0
        for s in range(begin, until):
            likely += int(held[s] & bits == bits) & int(starts[s] < before)
        if likely == 0:
            continue
        for s in range(begin, until):
            if (
                held[s] & bits == bits
                and starts[s] < before
                and _is_candidate(tb, s, slot, rank, promise, breaks)
                and holds_row(tb, s, row)
                and starts[s] + tb.jobs[DUR, s] > earliest
            ):
                n = _insert_by_start(tb, bf, min(n, most - 1), s)
                if n == most:
                    before = tb.jobs[START, bf.selected[n - 1]]
    return n


@inner
def _select_last(tb: Tables, bf: DisplacementBuffers, candidates: Ints, pools: bool, earliest: int) -> int:
    """Select the candidates on a useful row from ``earliest`` on, last to start. Return their number."""
    most = bf.selected.shape[0]
    n = 0
    for slot in candidates:
        start = tb.jobs[START, slot]
        if start + tb.jobs[DUR, slot] <= earliest or (n == most and start < tb.jobs[START, bf.selected[0]]):
            continue
        if _useful_row(tb, bf, slot, pools) < 0:
            continue
        if n == most:
            n -= 1
            for i in range(n):
                bf.selected[i] = bf.selected[i + 1]
        n = _insert_by_start(tb, bf, n, slot)
    return n


@inner
def _order_jobs(
    tb: Tables,
    bf: DisplacementBuffers,
    slot: int,
    skip: int,
    size: int,
    rank: Ints,
    promise: Ints,
    breaks: bool,
    until: int,
) -> None:
    """Set the order in which the selected jobs follow ``slot``, and their latest starts."""
    bf.jobs[0] = slot
    bf.latest[0] = tb.jobs[START, slot] - 1
    for i in range(size):
        other = bf.selected[skip + i]
        bf.jobs[i + 1] = other
        bf.latest[i + 1] = until if breaks else min(until, promise[other])
        # highest rank first, then first to start
        j = i + 1
        while j > 1 and rank[other] > rank[bf.jobs[bf.order[j - 1]]]:
            bf.order[j] = bf.order[j - 1]
            j -= 1
        bf.order[j] = i + 1


@kernel
def displace_lower_ranked(
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
    """Move a planned ``slot`` to an earlier start, before jobs of lower rank; none of them starts later than
    its promise (unless it ``breaks`` promises), nor than ``until``.

    Up to ``sets`` sets of at most ``most`` jobs are tried. For a job of one unit without a binding pool: the
    jobs on one row, first to start, beginning with the row where room can be made first. Otherwise the
    last to start of all conflicting jobs, then fewer of them.

    Return (DONE, TOO_LATE, STOPPED or FULL; the job and the displaced jobs; ``UndoLog.old``, their old
    places).
    """
    bf = _make_buffers(tb, most)
    set_now(tb, now)
    earliest = max(now, tb.jobs[READY, slot])
    pools = _flag_useful_rows(tb, slot, earliest, bf.useful)
    shape = tb.jobs[SHAPE, slot]
    one = tb.shapes[shape, CHUNKS] == 1 and tb.chunks[tb.shapes[shape, CHUNK], COUNT] == 1 and not pools
    n = 0
    if not one or sets > 1:
        candidates = np.empty(tb.jobs.shape[1], np.int64)
        candidates = candidates[: _find_candidates(tb, candidates, slot, rank, promise, breaks)]
        # Before any set is tried: an attempt that is reverted would leave other versions of rows. The first
        # attempt asks itself.
        if sets > 1 and candidates.shape[0] > 0:
            if not entries_fit(tb, _most_entries_of_a_set(tb, candidates, slot, most)):
                return FULL, bf.jobs[:0], np.empty((OLD_FIELDS, 0), np.int64)
        if not one:
            n = _select_last(tb, bf, candidates, pools, earliest)
    for k in range(sets):
        skip = 0
        row = -1
        if one:
            row = _best_row(tb, bf, slot, rank, promise, breaks, earliest)
            if row < 0:
                break
            n = _select_first(tb, bf, slot, rank, promise, breaks, row, earliest)
            bf.useful[row] = False
        else:
            skip = n - n * (sets - k) // sets
        size = n - skip
        if size == 0:
            break
        _order_jobs(tb, bf, slot, skip, size, rank, promise, breaks, until)
        jobs = bf.jobs[: size + 1]
        latest = bf.latest[: size + 1]
        if one and is_futile(tb, make_touched_rows(tb, row), jobs, latest, row, now):
            continue
        un = make_undo_log(tb, most + 1, _ROWS_REMEMBERED)
        how, _ = displace(
            tb,
            un,
            jobs,
            bf.order[: size + 1],
            latest,
            now,
            PREFER_OLD_PLACE if pools else PREFER_OLD_PLACE_AND_POOLS,
        )
        if how == DONE:
            commit(tb, un)
        if how != TOO_LATE:
            return how, jobs, un.old[:, : size + 1]
    return TOO_LATE, bf.jobs[:0], np.empty((OLD_FIELDS, 0), np.int64)
