"""Free room goes to the shortest by what is expected, where the site wants that: see ``plan.backfill``."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from schedd.engine.facts.records import Cause, JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.place.dependencies import last_starts
from schedd.engine.rank.promises import note_moves
from schedd.model import FOREVER
from schedd.plan.backfill import (
    EXPECTED_QUANTILE,
    BackfillQueue,
    BackfillRule,
    Bools,
    backfill,
    next_to_start,
)
from schedd.plan.columns import PLANNED, Ints
from schedd.predict import Prediction

__all__ = [
    "backfill_rule",
    "backfill_rule_outline",
    "is_backfilling",
    "next_backfill",
    "run_backfill",
    "with_expected_run_times",
]

Predicted = Callable[[str], Prediction | None]
"""What was predicted of a job at its submission."""


def is_backfilling(state: EngineState) -> bool:
    """Whether that is done now: not while much is taken in, of which the plan does not know yet."""
    return _is_enabled(state) and not (state.arriving or state.rereading)


def _is_enabled(state: EngineState) -> bool:
    """Whether the site wants that, and jobs are started at all. Where jobs are kept on faster nodes that are
    worth waiting for, repair alone knows how.
    """
    return state.settings.backfill == "shortest" and not (state.halted or state.keeps_speed)


def next_backfill(state: EngineState) -> int:
    """When it is to be done though nothing happens; FOREVER: not before something does."""
    return state.backfill_due if is_backfilling(state) else FOREVER


def run_backfill(state: EngineState, event: str) -> None:
    """Let those start now whose turn it is. No promise is broken by it, and no deadline missed that holds."""
    plan, now = state.plan, state.now
    changed = plan.freed or state.change_number != state.backfilled or state.backfill_due <= now
    if not changed and state.soonest() > now:
        return
    if state.last_backfill == now:  # once a second: what it frees is repaired, and that is no news
        if not event.startswith("clock:"):
            state.backfill_due = now + 1
        return
    state.last_backfill, state.backfill_due = now, FOREVER
    slots = next_to_start(plan, _movable(state), now)
    moves = backfill(plan, _waiting(state, slots), now, state.settings.search_patience)
    if len(moves):
        note_moves(state, event, Cause.IMPROVED, "who is expected to be shorter goes first", moves)
        state.due = None
    state.backfilled = state.change_number


def backfill_rule(state: EngineState) -> BackfillRule | None:
    """What free room is given by, for copies of the plan. None: repair alone gives it."""
    rule = backfill_rule_outline(state)
    return with_expected_run_times(rule, state.by_slot, _predicted(state)) if rule is not None else None


def backfill_rule_outline(state: EngineState) -> BackfillRule | None:
    """The same as if nothing were predicted: to look up each job's prediction takes longer than all else."""
    if not _is_enabled(state):
        return None
    return BackfillRule(
        state.waits_since.copy(),
        state.plan.jobs.durations.copy(),
        _latest(state, np.arange(state.rank.shape[0])),
        state.rank.copy(),
        _movable(state),
        state.settings.search_patience,
    )


def with_expected_run_times(
    rule: BackfillRule, by_slot: Sequence[JobRecord | None], predicted: Predicted
) -> BackfillRule:
    """An outline with what is expected of each job that may be moved, as predicted at its submission."""
    may, expected = np.flatnonzero(rule.may), rule.expected.copy()
    expected[may] = _expected(by_slot, may, expected[may], predicted)
    return replace(rule, expected=expected)


def _movable(state: EngineState) -> Bools:
    """By slot, whether a planned job may go elsewhere.

    Jobs leave a node that is down in their own time. Places that are kept or booked, and those that a job can
    pay for, are not to be had elsewhere.
    """
    plan = state.plan
    may: Bools = plan.jobs.states == PLANNED
    booked = (job for booking in state.bookings.values() for job in booking.jobs)
    for job in (*state.kept_places, *state.capped, *booked):
        record = state.records.get(job)
        if record is not None and record.slot >= 0:
            may[record.slot] = False
    down = [name for name in state.down_since if name in plan.node_rows]
    if down:
        may[plan.jobs_on_nodes(down)] = False
    return may


def _waiting(state: EngineState, slots: Ints) -> BackfillQueue:
    durations = state.plan.jobs.durations[slots]
    expected = _expected(state.by_slot, slots, durations, _predicted(state))
    return BackfillQueue(slots, state.waits_since[slots], expected, _latest(state, slots), state.rank[slots])


def _latest(state: EngineState, slots: Ints) -> Ints:
    """The last start of each of these by promise, by those that wait for it, and by a deadline that holds."""
    starts, in_time = state.plan.starts(slots), state.due_by[slots] - state.plan.jobs.durations[slots]
    latest = last_starts(state)[slots]
    found: Ints = np.where(starts <= in_time, np.minimum(latest, in_time), latest)
    return found


def _predicted(state: EngineState) -> Predicted:
    return state.outlook.learner.find_prediction if state.outlook is not None else lambda _: None


def _expected(
    by_slot: Sequence[JobRecord | None], slots: Ints, durations: Ints, predicted: Predicted
) -> Ints:
    """How long these jobs are expected to run; as long as planned where nothing is predicted."""
    expected = durations.copy()
    for i, slot in enumerate(slots.tolist()):
        record = by_slot[slot]
        prediction = predicted(record.id) if record is not None else None
        if prediction is not None:
            expected[i] = prediction.quantiles[EXPECTED_QUANTILE]
    least: Ints = np.minimum(expected, durations)
    return least
