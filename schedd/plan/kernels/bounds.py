"""Lower bounds of starts per row, so that a search skips intervals that earlier searches found full.

For a level of need (a whole node, or a number of cpus) and a duration step, ``bounds[level * DURATIONS +
step, row]`` is a time before which no interval of at least that duration has at least that capacity free.
Bounds stay valid when jobs are placed; freed capacity lowers them. Searches raise them where they found
nothing, so every segment is visited once per level and step, not once per search.
"""

from typing import Final

import numpy as np

from schedd.plan.kernels.jit import inlined, inner, lean
from schedd.plan.kernels.layout import (
    CPUS,
    DURATIONS,
    FAR,
    KIND,
    LEN,
    NODE,
    NOW,
    OFF,
    SHARE,
    VERSION,
    WHOLE,
    WORK,
    Ints,
    Tables,
)
from schedd.plan.kernels.rows import fit, locate

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR

STEPS = np.array(
    [0]
    + [minutes * _MINUTE for minutes in (1, 2, 5, 10, 15, 30, 45)]
    + [minutes * _MINUTE for minutes in (60, 90, 120, 180, 240, 360, 480, 600, 720, 960)]
    + [hours * _HOUR for hours in (24, 36, 48, 72, 96, 120)]
    + [days * _DAY for days in (7, 10, 14, 21, 30, 45, 60, 180)],
    np.int64,
)
"""Durations of the bounds, (DURATIONS,) seconds: those that users request.

Jobs of one walltime leave holes of that length. If the next shorter step is shorter than these holes and
longer than others, every search for such a job visits the others again.
"""
assert STEPS.shape == (DURATIONS,)


def levels_for(cpus: int) -> int:
    """Return the number of levels for rows of at most ``cpus`` cpus."""
    return int(need_level(cpus, 0)) + 1


@lean
def need_level(cpus: int, exclusive: int) -> int:
    """Return the level of a need: 0 for a whole node, 1 for no cpus, else the largest level with at most
    these cpus.

    Cpus of levels 2, 3, ...: 1, 2, 3, 4, 6, 8, 12, 16, ...
    """
    if exclusive:
        return 0
    if cpus < 3:
        return cpus + 1
    low = 2
    level = 3
    while low * 2 <= cpus:
        low *= 2
        level += 2
    if low + low // 2 <= cpus:
        level += 1
    return level


@lean
def level_cpus(level: int) -> int:
    """Return the cpus of a level (from 1 on)."""
    if level < 4:
        return level - 1
    low = 2 << ((level - 3) // 2)
    return low if level % 2 else low + low // 2


@inner
def duration_step(dur: int) -> int:
    """Return the last step that is no longer than ``dur``."""
    step = 0
    while step + 1 < DURATIONS and STEPS[step + 1] <= dur:
        step += 1
    return step


@inlined
def most_free(tb: Tables, row: int, lo: int, hi: int) -> tuple[int, int, int]:
    """Return the segment of ``row`` that contains ``lo``, and the maximum of free cpus and of free shares at
    one time of ``[lo, hi)``.
    """
    T = tb.T
    F = tb.F
    off = tb.rows[row, OFF]
    end = off + tb.rows[row, LEN]
    first = locate(T, off, end, lo)
    most = F[CPUS, first]
    shares = F[SHARE, first]
    k = first + 1
    while k < end and T[k] < hi:
        most = max(most, F[CPUS, k])
        shares = max(shares, F[SHARE, k])
        k += 1
    tb.ctl[WORK] += k - first
    return first, most, shares


@inner
def lower_bounds(tb: Tables, row: int, lo: int, hi: int) -> None:
    """Update the bounds after capacity was given back on ``row`` over ``[lo, hi)``.

    A new start has its interval in a run of free segments that overlaps the freed interval: bounds of longer
    durations, and of levels without such a run, stay valid. Pools have no bounds.
    """
    if tb.rows[row, KIND] != NODE:
        return
    T = tb.T
    F = tb.F
    now = tb.ctl[NOW]
    off = tb.rows[row, OFF]
    end = off + tb.rows[row, LEN]
    first, most, shares = most_free(tb, row, lo, hi)
    for level in range(tb.bounds.shape[0] // DURATIONS):
        column = SHARE if level < 2 else CPUS
        need = WHOLE if level == 0 else max(level_cpus(level), 1)
        if need > (shares if level < 2 else most):
            continue
        k = first
        while k > off and F[column, k] >= need and F[column, k - 1] >= need:
            k -= 1
        begin = k
        since = FAR
        longest = -1
        run = -1
        while k < end:
            nxt = T[k + 1] if k + 1 < end else FAR
            if F[column, k] >= need:
                if run < 0:
                    run = now if k == off else max(T[k], now)
                    since = min(since, run)
                longest = max(longest, nxt - run)
            else:
                run = -1
                if nxt >= hi:
                    break
            k += 1
        tb.ctl[WORK] += k - begin
        for b in range(DURATIONS):
            if STEPS[b] > longest:
                break
            q = level * DURATIONS + b
            tb.bounds[q, row] = min(tb.bounds[q, row], max(since, lo - STEPS[b]))


@inlined
def raise_bound(tb: Tables, row: int, level: int, step: int, latest: int) -> int:
    """Return the earliest start of this level and step on ``row``, or a time after ``latest`` before which
    there is none.
    """
    q = level * DURATIONS + step
    t = max(tb.bounds[q, row], tb.ctl[NOW])
    if t > latest or tb.exact[q, row] == tb.rows[row, VERSION]:
        return int(t)
    T = tb.T
    F = tb.F
    column = SHARE if level < 2 else CPUS
    need = WHOLE if level == 0 else max(level_cpus(level), 1)
    dur = STEPS[step]
    off = tb.rows[row, OFF]
    end = off + tb.rows[row, LEN]
    k = locate(T, off, end, t)
    first = k
    run = -1
    found = -1
    later = latest + 1
    while k < end:
        nxt = T[k + 1] if k + 1 < end else FAR
        if F[column, k] >= need:
            if run < 0:
                run = max(T[k], t)
                if run > latest:
                    later = run
                    break
            if nxt - run >= dur:
                found = run
                break
        else:
            run = -1
            if nxt > latest:
                later = nxt
                break
        k += 1
    tb.ctl[WORK] += k - first + 4
    if found < 0:
        tb.bounds[q, row] = later
        return int(later)
    tb.bounds[q, row] = found
    tb.exact[q, row] = tb.rows[row, VERSION]
    return found


@inlined
def fit_bounded(
    tb: Tables, row: int, need: Ints, cols: int, ready: int, dur: int, latest: int, level: int, step: int
) -> tuple[int, int]:
    """Return the result of ``fit``, searching from the bound of this level and step on."""
    bound = raise_bound(tb, row, level, step, latest)
    if bound > latest:
        return -1, 0
    return fit(tb, row, need, cols, max(ready, bound), dur, latest)
