"""Guards against starvation: how late each job may be put, and how much the longest wait counts."""

from dataclasses import replace
from typing import Final

import numpy as np

from schedd.model import FOREVER
from schedd.plan.evaluate import Criterion, CriterionValues, ScoringColumns
from schedd.plan.kernels.layout import START, Ints
from schedd.plan.plan import Plan

__all__ = ["PATIENCE", "latest_starts", "reference_values", "scale_to_expected"]

PATIENCE: Final = 24 * 3600
"""After so many seconds of waiting no search moves a job back, unless the site sets another number."""

_STEPS: Final = 12
"""In so many parts the patience is cut, beyond it as well: see ``latest_starts``."""


def latest_starts(
    plan: Plan,
    promised: Ints,
    columns: ScoringColumns,
    now: int,
    patience: int = PATIENCE,
    use: float = 1.0,
) -> Ints:
    """The last start that a search may give to each job, by slot, in seconds since the epoch.

    No job may pass its ``promised`` start (by slot; FOREVER: none). Who has waited for ``patience`` seconds
    by ``now`` is moved back no more, but within the twelfth of that, counted from its release, in which it
    would start; nobody else is made to wait for more than twice as long, or than the job that waits longest
    in this plan, whichever is more.

    Why both: means may be improved for ever by moving one job back again and again. The longest planned wait
    alone forbids most moves where all waits are short, and next to none where users ask for far more time
    than they need, since the waits that are planned then are far longer than those that will be. Where many
    have waited long and none of them gave way for ten seconds, a job of ten seconds would wait for hours.
    The twelfths of a job without a promise stand where they are, whatever is expected, so that who gives
    way again and again comes to the end of one and no further. Who has a promise comes to that, and its
    twelfths are counted from its release as it is expected: where walltimes are longer than needed these
    move on with the clock, and more can be gained.
    """
    slots = plan.planned()
    latest: Ints = promised.copy()
    if slots.shape[0]:
        expected, patient = scale_to_expected(columns, now, patience, use)
        starts = plan.tables.jobs[START, slots]
        release = expected.release[slots]
        longest = max(2 * patient, int((starts - release).max()))
        held = _step_end(starts, columns.release[slots], patience)
        told = _step_end(starts, release, patient)
        kept = np.where(promised[slots] == FOREVER, held, told)
        bound = np.where(now - columns.release[slots] >= patience, kept, release + longest)
        latest[slots] = np.maximum(starts, np.minimum(promised[slots], bound))
    return latest


def _step_end(starts: Ints, release: Ints, patience: int) -> Ints:
    """The end of the part of the patience, counted from the release, in which each job starts."""
    step = max(1, patience // _STEPS)
    return release - (release - starts) // step * step


def scale_to_expected(
    columns: ScoringColumns, now: int, patience: int, use: float
) -> tuple[ScoringColumns, int]:
    """The same jobs and the same patience where time that is still planned counts ``use`` of time that has
    passed.

    Jobs use that share of their walltimes, so what a job is still to wait by the plan will be about that
    share of it. Instead of what is planned, what has passed is changed: it is divided by ``use``, and so is
    the patience; waits, slowdowns and the guards have the same proportions then as if all that is planned
    were multiplied by it.
    """
    if use == 1.0:
        return columns, patience
    release = np.rint(now - (now - columns.release) / use).astype(np.int64)
    return replace(columns, release=release), round(patience / use)


def reference_values(before: CriterionValues, patience: int = PATIENCE) -> CriterionValues:
    """What the values of a changed plan are divided by, see ``CriterionWeights``: those before the change,
    but a longest wait of at least ``patience``.

    So the longest wait counts in full where a job waits as long as that, and hardly at all in a queue of an
    hour: there it would only make short jobs wait for the last one, whom nothing threatens.
    """
    return before.at_least(Criterion.WAIT_MAX, float(patience))
