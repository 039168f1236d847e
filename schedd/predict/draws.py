"""Run times drawn from predictions: the same numbers for the same job, whenever they are drawn."""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

import numpy as np

from schedd.plan.columns import Ints
from schedd.predict.layout import LEVELS, Floats, Prediction

__all__ = ["MEDIAN", "drawn", "lasting"]

MEDIAN: Final[Floats] = np.array([[0.5]])
"""For ``lasting``: half of such jobs run no longer."""

_CHANCES: Final[Floats] = np.concatenate(((0.0,), LEVELS, (1.0,)))
_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def drawn(jobs: Sequence[str], n: int) -> Floats:
    """Probabilities for ``n`` draws of each job, by its id; (jobs, n).

    Each job gets the middles of n equal parts of [0, 1] in an order of its own (a Latin hypercube), so that
    few draws spread over all that a run time may be. What a job gets depends on its id and n alone: from one
    round to the next only what is known of the jobs differs.
    """
    seeds = np.array([crc32(job.encode()) for job in jobs], np.uint64).reshape(-1, 1)
    mixed = (seeds << np.uint64(16)) + np.arange(1, n + 1, dtype=np.uint64) * _ODD  # splitmix64 (Steele 2014)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    found: Floats = (np.argsort(mixed, axis=1, kind="stable") + 0.5) / n
    return found


def lasting(predictions: Sequence[Prediction], elapsed: Ints, levels: Floats) -> Ints:
    """How long jobs run in all that have run for ``elapsed`` seconds; (jobs, draws).

    ``levels``, (jobs, draws) or (1, draws), are quantiles of what is left to each: of those that run longer
    than it did. Every value is more than the job has run, and no more than its walltime unless that has
    passed already.
    """
    if not predictions:
        return np.zeros((0, levels.shape[1]), np.int64)
    n = len(predictions)
    seconds = np.empty((n, _CHANCES.shape[0]))
    seconds[:, 0] = [one.ran for one in predictions]
    seconds[:, 1:-1] = [one.told for one in predictions]
    seconds[:, -1] = [one.walltime for one in predictions]
    np.maximum.accumulate(seconds, axis=1, out=seconds)  # it may have run for longer than its walltime
    ran = np.maximum(elapsed, 0)
    further = ran > seconds[:, 0]
    # Where several levels have the same value, all of them are over once it has passed.
    last = np.where(further, (seconds <= ran[:, None]).sum(axis=1) - 1, 0)
    following = np.minimum(last + 1, _CHANCES.shape[0] - 1)
    rows = np.arange(n)
    width = seconds[rows, following] - seconds[rows, last]
    part = np.where(width > 0, (ran - seconds[rows, last]) / np.where(width > 0, width, 1.0), 0.0)
    past = _CHANCES[last] + np.where(further, part, 0.0) * (_CHANCES[following] - _CHANCES[last])
    sought = past[:, None] + levels * (1.0 - past[:, None])
    after = np.clip(np.searchsorted(_CHANCES, sought, "right"), 1, _CHANCES.shape[0] - 1)
    low, high = _CHANCES[after - 1], _CHANCES[after]
    below = np.take_along_axis(seconds, after - 1, axis=1)
    above = np.take_along_axis(seconds, after, axis=1)
    total = below + (above - below) * (sought - low) / (high - low)
    found: Ints = np.maximum(ran[:, None] + 1, np.rint(total).astype(np.int64))
    return found
