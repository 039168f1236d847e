"""Guards against starvation: the latest start allowed for each job, and the weight of the longest wait."""

from dataclasses import replace
from typing import Final

import numpy as np

from schedd.model import FOREVER
from schedd.plan.criteria import PATIENCE, Criterion
from schedd.plan.evaluate import CriterionValues, ScoringColumns
from schedd.plan.kernels.layout import START, Ints
from schedd.plan.plan import Plan

_STEPS: Final = 12  # number of steps into which the patience is divided: see `latest_starts`


def latest_starts(
    plan: Plan,
    promised: Ints,
    columns: ScoringColumns,
    now: int,
    patience: int = PATIENCE,
    use: float = 1.0,
) -> Ints:
    """Return the last start that a search may give to each job, by slot, in seconds since the epoch.

    No job passes its ``promised`` start (by slot; FOREVER: none). A job that has waited for ``patience``
    seconds by ``now`` may only move within its present step of ``patience / 12``, counted from its release.
    Any other job may wait for ``max(2 * patience, longest planned wait)``.

    Both bounds are needed. Means can be improved again and again by delaying a single job. The longest
    planned wait by itself forbids most moves where all waits are short, and almost none where walltimes are
    far too long, since the planned waits are then far longer than the real ones. And if many jobs have waited
    long and none could be delayed by ten seconds, a job of ten seconds would wait for hours. Steps of a job
    without a promise are fixed, so that a job that is delayed again and again stops at the end of its step. A
    job with a promise can be delayed up to that; its steps are counted from its expected release, which moves
    with the clock where walltimes are too long, so that more can be gained.
    """
    slots = plan.planned()
    latest: Ints = promised.copy()
    if slots.shape[0]:
        expected, patient = scale_to_expected(columns, now, patience, use)
        starts = plan.tables.jobs[START, slots]
        release = expected.release[slots]
        longest = max(2 * patient, int((starts - release).max()))
        held = _step_end(starts, columns.release[slots], patience)
        stepped = _step_end(starts, release, patient)
        kept = np.where(promised[slots] == FOREVER, held, stepped)
        bound = np.where(now - columns.release[slots] >= patience, kept, release + longest)
        latest[slots] = np.maximum(starts, np.minimum(promised[slots], bound))
    return latest


def _step_end(starts: Ints, release: Ints, patience: int) -> Ints:
    """Return the end of the step of the patience, counted from the release, in which each job starts."""
    step = max(1, patience // _STEPS)
    return release - (release - starts) // step * step


def scale_to_expected(
    columns: ScoringColumns, now: int, patience: int, use: float
) -> tuple[ScoringColumns, int]:
    """Return the jobs and the patience scaled so that planned time counts ``use`` of elapsed time.

    Jobs use that share of their walltimes, so the remaining wait of a job will be about that share of its
    planned wait. Instead of the planned time, the elapsed time and the patience are divided by ``use``;
    waits, slowdowns and guards then have the same proportions.
    """
    if use == 1.0:
        return columns, patience
    release = np.rint(now - (now - columns.release) / use).astype(np.int64)
    return replace(columns, release=release, history=columns.history / use), round(patience / use)


def reference_values(before: CriterionValues, patience: int = PATIENCE) -> CriterionValues:
    """Return the divisors of a changed plan's values (see ``CriterionWeights``): the values before the
    change, with a longest wait of at least ``patience``.

    So the longest wait counts fully where a job waits that long, and hardly in a queue of an hour, where it
    would only delay short jobs for the sake of the last one.
    """
    return before.at_least(Criterion.WAIT_MAX, float(patience))
