"""Kernels that evaluate a plan incrementally, by one number per job and part of a criterion.

Every planned job has one number per part (its wait, its slowdown, ...). Sums and maxima over the jobs are
maintained; when a few jobs move, their parts are replaced and the sums corrected. A maximum is recomputed
only when its job has shrunk.
"""

from typing import Annotated, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from schedd.plan.kernels.jit import inner, kernel
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
    FIXED,
    NEED,
    PLANNED,
    SHAPE,
    START,
    STATE,
    Ints,
    Tables,
)

Floats = npt.NDArray[np.float64]
FloatTable = Annotated[Floats, 2]

# part[:, slot]
WAIT: Final = 0
RESPONSE: Final = 1
SLOWDOWN: Final = 2
BOUNDED: Final = 3
LATE: Final = 4
TARDINESS: Final = 5
AREA: Final = 6  # cpu-seconds
WEIGHTED: Final = 7  # cpu-seconds times the speed of the node
END: Final = 8  # seconds after now
REQUESTED: Final = 9  # cpu-seconds that the job asks for, wherever it is placed
WAIT_SQUARE: Final = 10
PARTS: Final = 11

# base[:]: what searches do not change
NOW: Final = 0
THRESHOLD: Final = 1  # of the bounded slowdown, seconds
FIXED_END: Final = 2  # the last end of jobs that run, seconds after now
FIXED_AREA: Final = 3  # what they still hold after now
FIXED_WEIGHTED: Final = 4
CAPACITY: Final = 5  # cpus of all usable nodes
WEIGHTED_CAPACITY: Final = 6
BASE_FIELDS: Final = 7

# values[:], one per criterion
MAKESPAN: Final = 0
UTILISATION: Final = 1
WEIGHTED_UTILISATION: Final = 2
WAIT_MEAN: Final = 3
WAIT_RMS: Final = 4
WAIT_MAX: Final = 5
RESPONSE_MEAN: Final = 6
RESPONSE_MAX: Final = 7
SLOWDOWN_MEAN: Final = 8
SLOWDOWN_MAX: Final = 9
BOUNDED_MEAN: Final = 10
BOUNDED_MAX: Final = 11
LATE_JOBS: Final = 12
TARDINESS_MEAN: Final = 13
TARDINESS_MAX: Final = 14
NUWT_MEAN: Final = 15
NUWT_MAX: Final = 16
UNFAIRNESS: Final = 17
CRITERIA: Final = 18

ZERO: Final = 1e-12  # values up to this count as 0: rounding errors of sums


class Scores(NamedTuple):
    """Arrays of one evaluation; J slots, N rows, U users."""

    release: Ints
    """(J,) start of the wait."""
    due: Ints
    """(J,) deadline; FAR: none."""
    owner: Ints
    """(J,) number of its user; below 0: a reservation, which is no work."""
    rank: Ints
    """(J,) by priority, higher first."""
    speed: Floats
    """(N,) of each node; 0 for pools."""
    part: FloatTable
    """(PARTS, J)."""
    counted: Ints
    """(J,) 1 if the job's parts are in the sums."""
    sums: Floats
    """(PARTS,) over the counted jobs."""
    most: Floats
    """(PARTS,) the largest part; 0 without jobs."""
    holder: Ints
    """(PARTS,) a job that has the largest part; -1: none."""
    jobs: Ints
    """(1,) number of counted jobs."""
    waited: Floats
    """(U,) seconds that each user's jobs wait in this plan, after those of earlier jobs."""
    used: Floats
    """(U,) cpu-seconds of the same jobs."""
    base: Floats
    """(BASE_FIELDS,)."""


@inner
def requested_cpus(tb: Tables, slot: int) -> int:
    """Return the cpus that a job requests, at least 1."""
    shape = tb.jobs[SHAPE, slot]
    chunk0 = tb.shapes[shape, CHUNK]
    cpus = 0
    for c in range(chunk0, chunk0 + tb.shapes[shape, CHUNKS]):
        cpus += tb.chunks[c, COUNT] * tb.chunks[c, NEED + CPUS]
    return max(cpus, 1)


@inner
def fill_parts(tb: Tables, sc: Scores, slot: int) -> None:
    """Compute the parts of a placed job."""
    now = int(sc.base[NOW])
    start = tb.jobs[START, slot]
    dur = tb.jobs[DUR, slot]
    end = start + dur
    release = sc.release[slot]
    wait = float(start - release)
    sc.part[WAIT, slot] = wait
    sc.part[WAIT_SQUARE, slot] = wait * wait
    sc.part[RESPONSE, slot] = end - release
    sc.part[SLOWDOWN, slot] = (end - release) / dur
    sc.part[BOUNDED, slot] = max(1.0, (end - release) / max(sc.base[THRESHOLD], dur))
    sc.part[LATE, slot] = 1.0 if end > sc.due[slot] else 0.0
    sc.part[TARDINESS, slot] = max(0, end - sc.due[slot])
    area = 0.0
    weighted = 0.0
    at = tb.jobs[ALLOC, slot]
    for i in range(at, at + tb.jobs[ALLOCS, slot]):
        if tb.alloc[i, A_CHUNK] >= 0:
            held = tb.alloc[i, A_TAKE + CPUS] * float(end - max(start, now))
            area += held
            weighted += held * sc.speed[tb.alloc[i, A_ROW]]
    sc.part[AREA, slot] = area
    sc.part[WEIGHTED, slot] = weighted
    sc.part[END, slot] = end - now
    sc.part[REQUESTED, slot] = requested_cpus(tb, slot) * float(dur)


@inner
def seek_most(sc: Scores, p: int) -> None:
    """Find the maximum of a part among the counted jobs."""
    best = 0.0
    holder = -1
    for slot in range(sc.counted.shape[0]):
        if sc.counted[slot] and (holder < 0 or sc.part[p, slot] > best):
            best = sc.part[p, slot]
            holder = slot
    sc.most[p] = best
    sc.holder[p] = holder


@kernel
def update_scores(tb: Tables, sc: Scores, slots: Ints, n: int) -> None:
    """Update the parts of ``slots[:n]`` to their present placements; a job that is no longer planned is
    dropped.
    """
    stale = np.zeros(PARTS, np.bool_)
    for i in range(n):
        slot = slots[i]
        owner = sc.owner[slot]
        if sc.counted[slot]:
            sc.waited[owner] -= sc.part[WAIT, slot]
            sc.used[owner] -= sc.part[REQUESTED, slot]
            for p in range(PARTS):
                sc.sums[p] -= sc.part[p, slot]
        planned = tb.jobs[STATE, slot] == PLANNED
        if planned:
            fill_parts(tb, sc, slot)
            sc.waited[owner] += sc.part[WAIT, slot]
            sc.used[owner] += sc.part[REQUESTED, slot]
            for p in range(PARTS):
                sc.sums[p] += sc.part[p, slot]
        sc.jobs[0] += (1 if planned else 0) - sc.counted[slot]
        sc.counted[slot] = 1 if planned else 0
        for p in range(PARTS):
            if planned and (sc.holder[p] < 0 or sc.part[p, slot] >= sc.most[p]):
                sc.most[p] = sc.part[p, slot]
                sc.holder[p] = slot
                stale[p] = False
            elif sc.holder[p] == slot:
                stale[p] = True  # another job may have the maximum now
    for p in range(PARTS):
        if stale[p]:
            seek_most(sc, p)


@kernel
def count_fixed(tb: Tables, sc: Scores) -> None:
    """Add the future use of running jobs."""
    now = int(sc.base[NOW])
    sc.base[FIXED_END] = 0.0
    sc.base[FIXED_AREA] = 0.0
    sc.base[FIXED_WEIGHTED] = 0.0
    for slot in range(tb.jobs.shape[1]):
        start = tb.jobs[START, slot]
        end = start + tb.jobs[DUR, slot]
        if tb.jobs[STATE, slot] != FIXED or end <= now or sc.owner[slot] < 0:
            continue
        sc.base[FIXED_END] = max(sc.base[FIXED_END], float(end - now))
        at = tb.jobs[ALLOC, slot]
        for i in range(at, at + tb.jobs[ALLOCS, slot]):
            if tb.alloc[i, A_CHUNK] >= 0:
                held = tb.alloc[i, A_TAKE + CPUS] * float(end - max(start, now))
                sc.base[FIXED_AREA] += held
                sc.base[FIXED_WEIGHTED] += held * sc.speed[tb.alloc[i, A_ROW]]


@inner
def fairness(sc: Scores) -> tuple[float, float, float]:
    """Return mean and maximum of the users' normalised waits, and the sum of squared differences from the
    mean.
    """
    n = 0
    total = 0.0
    most = 0.0
    for user in range(sc.used.shape[0]):
        if sc.used[user] > 0:
            nuwt = sc.waited[user] / sc.used[user]
            total += nuwt
            most = nuwt if n == 0 else max(most, nuwt)
            n += 1
    if n == 0:
        return 0.0, 0.0, 0.0
    mean = total / n
    spread = 0.0
    for user in range(sc.used.shape[0]):
        if sc.used[user] > 0:
            spread += (sc.waited[user] / sc.used[user] - mean) ** 2
    return mean, most, spread


@kernel
def write_values(sc: Scores, values: Floats) -> None:
    """Compute one value per criterion."""
    values[:] = 0.0
    jobs = sc.jobs[0]
    makespan = max(sc.most[END], sc.base[FIXED_END])
    values[MAKESPAN] = makespan
    if makespan > 0:
        if sc.base[CAPACITY] > 0:
            values[UTILISATION] = (sc.sums[AREA] + sc.base[FIXED_AREA]) / (sc.base[CAPACITY] * makespan)
        if sc.base[WEIGHTED_CAPACITY] > 0:
            values[WEIGHTED_UTILISATION] = (sc.sums[WEIGHTED] + sc.base[FIXED_WEIGHTED]) / (
                sc.base[WEIGHTED_CAPACITY] * makespan
            )
    if jobs > 0:
        values[WAIT_MEAN] = sc.sums[WAIT] / jobs
        values[WAIT_RMS] = np.sqrt(max(0.0, sc.sums[WAIT_SQUARE] / jobs))
        values[WAIT_MAX] = sc.most[WAIT]
        values[RESPONSE_MEAN] = sc.sums[RESPONSE] / jobs
        values[RESPONSE_MAX] = sc.most[RESPONSE]
        values[SLOWDOWN_MEAN] = sc.sums[SLOWDOWN] / jobs
        values[SLOWDOWN_MAX] = sc.most[SLOWDOWN]
        values[BOUNDED_MEAN] = sc.sums[BOUNDED] / jobs
        values[BOUNDED_MAX] = sc.most[BOUNDED]
        values[LATE_JOBS] = sc.sums[LATE]
        values[TARDINESS_MEAN] = sc.sums[TARDINESS] / jobs
        values[TARDINESS_MAX] = sc.most[TARDINESS]
    values[NUWT_MEAN], values[NUWT_MAX], values[UNFAIRNESS] = fairness(sc)


@inner
def cost_slope(tb: Tables, sc: Scores, slot: int, weights: Floats, reference: Floats) -> float:
    """Return the growth of the cost per second that a planned job starts later, times the number of jobs.

    It is the derivative by its start, of the criteria that depend smoothly on it.
    """
    dur = tb.jobs[DUR, slot]
    slope = 0.0
    if weights[WAIT_MEAN] > 0 and reference[WAIT_MEAN] > ZERO:
        slope += weights[WAIT_MEAN] / reference[WAIT_MEAN]
    if weights[WAIT_RMS] > 0 and reference[WAIT_RMS] > ZERO:
        slope += weights[WAIT_RMS] * sc.part[WAIT, slot] / reference[WAIT_RMS] ** 2
    if weights[RESPONSE_MEAN] > 0 and reference[RESPONSE_MEAN] > ZERO:
        slope += weights[RESPONSE_MEAN] / reference[RESPONSE_MEAN]
    if weights[SLOWDOWN_MEAN] > 0 and reference[SLOWDOWN_MEAN] > ZERO:
        slope += weights[SLOWDOWN_MEAN] / (reference[SLOWDOWN_MEAN] * dur)
    if weights[BOUNDED_MEAN] > 0 and reference[BOUNDED_MEAN] > ZERO:
        slope += weights[BOUNDED_MEAN] / (reference[BOUNDED_MEAN] * max(sc.base[THRESHOLD], dur))
    if weights[TARDINESS_MEAN] > 0 and reference[TARDINESS_MEAN] > ZERO and sc.part[TARDINESS, slot] > 0:
        slope += weights[TARDINESS_MEAN] / reference[TARDINESS_MEAN]
    return slope


@kernel
def cost_slopes(tb: Tables, sc: Scores, slots: Ints, weights: Floats, reference: Floats) -> Floats:
    """Return ``cost_slope`` of each of these jobs."""
    found = np.empty(slots.shape[0])
    for i in range(slots.shape[0]):
        found[i] = cost_slope(tb, sc, slots[i], weights, reference)
    return found


@kernel
def weighted_cost(values: Floats, weights: Floats, reference: Floats) -> float:
    """Return the weighted sum of the values relative to ``reference``; maximised criteria have negative
    weights.

    If the reference is 0, any positive value costs infinity.
    """
    cost = 0.0
    for c in range(values.shape[0]):
        if weights[c] == 0:
            continue
        if reference[c] > ZERO:
            cost += weights[c] * values[c] / reference[c]
        elif values[c] > ZERO and weights[c] > 0:
            return np.inf
    return cost
