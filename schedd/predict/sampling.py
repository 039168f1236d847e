"""Sampling of run times from predictions. A job gets the same random levels in every round."""

from collections.abc import Sequence
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from schedd.plan.columns import Ints
from schedd.predict.predictions import LEVELS, Floats, Prediction

MEDIAN: Final[Floats] = np.array([[0.5]])  # level of the median, for `sample_run_times`

_CHANCES: Final[Floats] = np.concatenate(((0.0,), LEVELS, (1.0,)))
_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def draw_levels(jobs: Sequence[str], n: int) -> Floats:
    """Return probability levels for ``n`` samples of each job, shape (jobs, n).

    Latin hypercube: each job gets the centres of n equal parts of [0, 1] in its own order, so few samples
    cover the whole distribution. The levels depend only on the job's id and n, so differences between rounds
    come only from the predictions.
    """
    found: Floats = (np.argsort(draw_numbers(jobs, n), axis=1, kind="stable") + 0.5) / n
    return found


def draw_numbers(jobs: Sequence[str], n: int) -> npt.NDArray[np.uint64]:
    """Return ``n`` random numbers for each job, shape (jobs, n), which depend only on its id."""
    seeds = np.array([crc32(job.encode()) for job in jobs], np.uint64).reshape(-1, 1)
    mixed = (seeds << np.uint64(16)) + np.arange(1, n + 1, dtype=np.uint64) * _ODD  # splitmix64 (Steele 2014)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    found: npt.NDArray[np.uint64] = mixed
    return found


def sample_run_times(predictions: Sequence[Prediction], elapsed: Ints, levels: Floats) -> Ints:
    """Return total run times in seconds of jobs that have already run for ``elapsed`` seconds, shape (jobs,
    samples).

    ``levels``, shape (jobs, samples) or (1, samples), are quantiles of the run time given that it exceeds
    ``elapsed``. Each value exceeds ``elapsed`` and is at most the walltime, unless ``elapsed`` exceeds the
    walltime.
    """
    if not predictions:
        return np.zeros((0, levels.shape[1]), np.int64)
    n = len(predictions)
    seconds = np.empty((n, _CHANCES.shape[0]))
    seconds[:, 0] = [one.elapsed for one in predictions]
    seconds[:, 1:-1] = [one.quantiles for one in predictions]
    seconds[:, -1] = [one.walltime for one in predictions]
    np.maximum.accumulate(seconds, axis=1, out=seconds)  # elapsed may exceed the walltime
    ran = np.maximum(elapsed, 0)
    further = ran > seconds[:, 0]
    # Levels with equal values are passed together.
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
