"""Kernels that propose moves, and the loop that tries them until one improves the plan.

Three kinds of proposals: random jobs in random order; a gap opened for one job at the place of another; and
the same with a tabu list and a choice by expected gain.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels.displace import STOPPED, TOO_LATE
from schedd.plan.kernels.evaluate import REQUESTED, Floats, Scores, cost_slope
from schedd.plan.kernels.jit import inner, kernel
from schedd.plan.kernels.layout import (
    A_ROW,
    ALLOC,
    ALLOCS,
    CHUNK,
    CHUNKS,
    COUNT,
    CPUS,
    DUR,
    FULL,
    KIND,
    NEED,
    NODE,
    SHAPE,
    START,
    STOP,
    USABLE,
    Ints,
    Tables,
)
from schedd.plan.kernels.moves import BETTER, NO_BETTER, Trial, attempt
from schedd.plan.kernels.rows import floor

RANDOM: Final = 0
GAP: Final = 1
TABU: Final = 2

TABU_LENGTH: Final = 10
_CANDIDATES: Final = 4
_MOST_VISITED: Final = 512  # maximum number of jobs examined between the place of the gap and the job

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xBF58476D1CE4E5B9)
_C = np.uint64(0x94D049BB133111EB)
_27 = np.uint64(27)
_30 = np.uint64(30)
_33 = np.uint64(33)


class ProposalState(NamedTuple):
    """State of the proposals; n movable jobs, N rows."""

    order: Ints
    """(n,) the jobs by start."""
    mixed: Ints
    """(n,) the same, shuffled incrementally."""
    tabu: Ints
    """(TABU_LENGTH,) jobs tried recently; -1: none."""
    counts: Ints
    """(2,) index of the next entry of ``tabu``; number of the last proposal, for ``mark``."""
    mark: Ints
    """(N,) rows of the place at which a gap is opened."""
    random: npt.NDArray[np.uint64]
    """(1,) state of the generator."""


@kernel
def requested_and_free_cpus(tb: Tables, slots: Ints, now: int) -> tuple[Ints, int]:
    """Return the cpus that each job requests, (n,), and the cpus free ``now`` on all usable rows."""
    free = 0
    for row in range(tb.rows.shape[0]):
        if tb.rows[row, KIND] == NODE and tb.rows[row, USABLE] != 0:
            free += max(0, floor(tb, row, CPUS, now, now + 1))
    asked = np.zeros(slots.shape[0], np.int64)
    for i in range(slots.shape[0]):
        shape = tb.jobs[SHAPE, slots[i]]
        first = tb.shapes[shape, CHUNK]
        for c in range(first, first + tb.shapes[shape, CHUNKS]):
            asked[i] += tb.chunks[c, COUNT] * tb.chunks[c, NEED + CPUS]
    return asked, free


@inner
def draw(random: npt.NDArray[np.uint64], below: int) -> int:
    """Return a number in ``[0, below)``, below < 2**31, from the generator splitmix64."""
    random[0] += _A
    z = random[0]
    z = (z ^ (z >> _30)) * _B
    z = (z ^ (z >> _27)) * _C
    return int(np.int64(z >> _33) % below)


@inner
def _size(ch: ProposalState, most: int) -> int:
    """Return a number of jobs to move: 2 to ``most``, small numbers more often."""
    levels = 1
    while (2 << levels) <= most:
        levels += 1
    size = 2 + draw(ch.random, (2 << draw(ch.random, levels)) - 1)
    return min(size, most)


@inner
def _is_tabu(ch: ProposalState, slot: int) -> bool:
    for i in range(TABU_LENGTH):
        if ch.tabu[i] == slot:
            return True
    return False


@inner
def _pick(
    tb: Tables, sc: Scores, ch: ProposalState, tabu: bool, weights: Floats, reference: Floats
) -> tuple[int, int]:
    """Return indices in ``order`` of a job to move earlier, never the first, and of an earlier one.

    Of some pairs, the one with the largest gain if the first starts when the second does now, and the second
    as much later as the first is long; tabu jobs are skipped.
    """
    n = ch.order.shape[0]
    best = behind = -1
    most = 0.0
    for _ in range(_CANDIDATES if tabu else 1):
        i = 1 + draw(ch.random, n - 1)
        levels = 1
        while (1 << levels) < i:
            levels += 1
        j = max(0, i - 1 - draw(ch.random, 1 << draw(ch.random, levels + 1)))
        if not tabu:
            return i, j
        slot = ch.order[i]
        if _is_tabu(ch, slot):
            continue
        other = ch.order[j]
        sooner = tb.jobs[START, slot] - tb.jobs[START, other]
        gain = cost_slope(tb, sc, slot, weights, reference) * sooner
        gain -= cost_slope(tb, sc, other, weights, reference) * tb.jobs[DUR, slot]
        if best < 0 or gain > most:
            best = i
            behind = j
            most = gain
    if best < 0:
        ch.tabu[:] = -1
        best = 1 + draw(ch.random, n - 1)
        behind = draw(ch.random, best)
    ch.tabu[ch.counts[0]] = ch.order[best]
    ch.counts[0] = (ch.counts[0] + 1) % TABU_LENGTH
    return best, behind


@inner
def _open_gap(
    tb: Tables,
    sc: Scores,
    ch: ProposalState,
    tr: Trial,
    most: int,
    tabu: bool,
    weights: Floats,
    reference: Floats,
) -> int:
    """Propose one job, then the jobs from some earlier place on, on rows of that place. Return their
    number.
    """
    i, j = _pick(tb, sc, ch, tabu, weights, reference)
    most = _size(ch, most)
    ch.counts[1] += 1
    _mark_rows(tb, ch, ch.order[j])
    k = _in_front(tb, ch, tr, i, j, most)
    if tabu:
        _maybe_sort(tb, sc, ch, tr, k)
    return k


@inner
def _mark_rows(tb: Tables, ch: ProposalState, slot: int) -> None:
    at = tb.jobs[ALLOC, slot]
    for e in range(at, at + tb.jobs[ALLOCS, slot]):
        ch.mark[tb.alloc[e, A_ROW]] = ch.counts[1]


@inner
def _in_front(tb: Tables, ch: ProposalState, tr: Trial, i: int, j: int, most: int) -> int:
    """Propose the job at index i, the one at j, and jobs between them on marked rows. Return their number, at
    most ``most``.
    """
    tr.slots[0] = ch.order[i]
    tr.slots[1] = ch.order[j]
    k = 2
    for m in range(j + 1, min(i, j + _MOST_VISITED)):
        if k == most:
            break
        slot = ch.order[m]
        at = tb.jobs[ALLOC, slot]
        for e in range(at, at + tb.jobs[ALLOCS, slot]):
            if ch.mark[tb.alloc[e, A_ROW]] == ch.counts[1]:
                tr.slots[k] = slot
                k += 1
                break
    return k


@inner
def _maybe_sort(tb: Tables, sc: Scores, ch: ProposalState, tr: Trial, k: int) -> None:
    """With probability 1/2 keep the order, else sort it: shortest or smallest first."""
    rule = draw(ch.random, 4)
    if rule < 2:
        return
    # Insertion sort: k is small, and ties keep their order.
    for i in range(1, k):
        slot = tr.slots[i]
        m = i
        while m > 0:
            other = tr.slots[m - 1]
            if rule == 2:
                after = tb.jobs[DUR, other] > tb.jobs[DUR, slot]
            else:
                after = sc.part[REQUESTED, other] > sc.part[REQUESTED, slot]
            if not after:
                break
            tr.slots[m] = other
            m -= 1
        tr.slots[m] = slot


@inner
def _at_random(ch: ProposalState, tr: Trial, most: int) -> int:
    """Propose random jobs in random order. Return their number."""
    n = ch.mixed.shape[0]
    k = int(min(_size(ch, most), n))
    for i in range(k):
        j = i + draw(ch.random, n - i)
        ch.mixed[i], ch.mixed[j] = ch.mixed[j], ch.mixed[i]
        tr.slots[i] = ch.mixed[i]
    return k


@kernel
def try_moves(
    tb: Tables,
    sc: Scores,
    tr: Trial,
    ch: ProposalState,
    kind: int,
    most: int,
    tries: int,
    again: int,
    latest: Ints,
    now: int,
    weights: Floats,
    reference: Floats,
    cost: float,
) -> tuple[int, int, int, int]:
    """Propose and try up to ``tries`` moves of up to ``most`` jobs, until one improves the plan.

    ``again``: number of jobs in ``tr.slots`` of a move that met a full slab and is tried first; 0: none.
    Return (BETTER | NO_BETTER | STOPPED | FULL, number of jobs of the last move, moves evaluated, moves among
    them rejected because a job would start too late).
    """
    decided = 0
    too_late = 0
    k = again
    while decided < tries:
        if tb.ctl[STOP] != 0:
            return STOPPED, 0, decided, too_late
        if again == 0:
            if kind == RANDOM:
                k = _at_random(ch, tr, most)
            else:
                k = _open_gap(tb, sc, ch, tr, most, kind == TABU, weights, reference)
        again = 0
        how, _ = attempt(tb, sc, tr, k, latest, now, weights, reference, cost)
        if how in (STOPPED, FULL):
            return how, k, decided, too_late
        decided += 1
        if how == TOO_LATE:
            too_late += 1
        if how == BETTER:
            return how, k, decided, too_late
    return NO_BETTER, k, decided, too_late


@kernel
def try_before(
    tb: Tables,
    sc: Scores,
    tr: Trial,
    ch: ProposalState,
    i: int,
    j: int,
    most: int,
    tries: int,
    latest: Ints,
    now: int,
    weights: Floats,
    reference: Floats,
    cost: float,
) -> tuple[int, int, int, int, int]:
    """Try the job at index ``i`` of the order before the jobs from index ``j`` on, then from 2j + 1 on, and
    so on, at most ``tries`` times, until that improves the plan.

    It goes before the first of them, and before others on its rows or on its own; at most ``most`` jobs with
    itself. Return (BETTER | NO_BETTER | STOPPED | FULL, number of jobs of the last move, its j, moves
    evaluated, moves among them rejected because a job would start too late).
    """
    decided = 0
    too_late = 0
    k = 0
    while j < i and decided < tries:
        ch.counts[1] += 1
        _mark_rows(tb, ch, ch.order[i])
        _mark_rows(tb, ch, ch.order[j])
        k = _in_front(tb, ch, tr, i, j, most)
        how, _ = attempt(tb, sc, tr, k, latest, now, weights, reference, cost)
        if how in (STOPPED, FULL):
            return how, k, j, decided, too_late
        decided += 1
        if how == TOO_LATE:
            too_late += 1
        if how == BETTER:
            return how, k, j, decided, too_late
        j = 2 * j + 1
    return NO_BETTER, k, j, decided, too_late
