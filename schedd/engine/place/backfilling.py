"""Shortest-expected-job-first backfilling in the engine, if the site selects it: see ``plan.backfill``."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from schedd.engine.component.hook_values import RunTimeSource
from schedd.engine.component.job_hooks import run_time_predictions
from schedd.engine.component.placement_hooks import unmovable_jobs
from schedd.engine.facts.records import Cause, JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.place.dependencies import last_starts
from schedd.engine.place.start_holds import last_starts_on_hold
from schedd.engine.rank.promises import record_plan_moves
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


def is_backfilling(state: EngineState) -> bool:
    """Return whether backfilling is active; it pauses while a large intake is not planned yet."""
    selected = state.settings.backfill == "shortest"  # each batch asks
    return selected and _is_enabled(state) and not (state.arriving or state.to_reevaluate)


def _is_enabled(state: EngineState) -> bool:
    """Return whether the site selects backfilling and jobs are started at all. Where jobs wait for faster
    nodes, only repair moves them.
    """
    return state.settings.backfill == "shortest" and not (state.halted or state.keeps_speed)


def next_backfill(state: EngineState) -> int:
    """Return when the next backfilling round is due without an event; FOREVER: none."""
    return state.backfill_due if is_backfilling(state) else FOREVER


def run_backfill(state: EngineState, event: str) -> None:
    """Start waiting jobs in free capacity, without breaking promises or deadlines that are still met."""
    plan, now = state.plan, state.now
    changed = plan.freed or state.change_number != state.backfilled or state.backfill_due <= now
    if not changed and state.next_due_start() > now:
        return
    if state.last_backfill == now:  # at most once per second: repair uses the freed capacity
        if not event.startswith("clock:"):
            state.backfill_due = now + 1
        return
    state.last_backfill, state.backfill_due = now, FOREVER
    slots = next_to_start(plan, _movable(state), now)
    moves = backfill(plan, _waiting(state, slots), now, state.settings.search_patience)
    record_plan_moves(state, event, Cause.IMPROVED, "jobs with a shorter expected run time go first", moves)
    if len(moves):
        state.next_due = None
    state.backfilled = state.change_number


def backfill_rule(state: EngineState) -> BackfillRule | None:
    """Return the rule of backfilling on forks of the plan; None: only repair fills free capacity."""
    rule = backfill_rule_outline(state)
    return (
        with_expected_run_times(rule, state.by_slot, run_time_predictions(state))
        if rule is not None
        else None
    )


def backfill_rule_outline(state: EngineState) -> BackfillRule | None:
    """Return the same rule without predictions; looking these up for each job takes most of the time."""
    if not _is_enabled(state):
        return None
    return BackfillRule(
        state.waits_since.copy(),
        state.plan.jobs.durations.copy(),
        _latest(state, np.arange(state.rank.shape[0]), on_hold=False),  # holds end before the forks' starts
        state.rank.copy(),
        _movable(state),
        state.settings.search_patience,
    )


def with_expected_run_times(
    rule: BackfillRule, by_slot: Sequence[JobRecord | None], predicted: RunTimeSource | None
) -> BackfillRule:
    """Return the rule with the predicted run time of each movable job."""
    may, expected = np.flatnonzero(rule.may), rule.expected.copy()
    expected[may] = _expected(by_slot, may, expected[may], predicted)
    return replace(rule, expected=expected)


def _movable(state: EngineState) -> Bools:
    """Return by slot whether a planned job may move.

    Jobs on a node that is down leave it after its grace. Jobs with a cost limit and those
    that components keep in place stay.
    """
    plan = state.plan
    may: Bools = plan.jobs.states == PLANNED
    for job in (*state.capped, *unmovable_jobs(state)):
        record = state.records.get(job)
        if record is not None and record.slot >= 0:
            may[record.slot] = False
    down = [name for name in state.down_since if name in plan.node_rows]
    if down:
        may[plan.jobs_on_nodes(down)] = False
    return may


def _waiting(state: EngineState, slots: Ints) -> BackfillQueue:
    durations = state.plan.jobs.durations[slots]
    expected = _expected(state.by_slot, slots, durations, run_time_predictions(state))
    return BackfillQueue(
        slots, state.waits_since[slots], expected, _latest(state, slots, on_hold=True), state.rank[slots]
    )


def _latest(state: EngineState, slots: Ints, *, on_hold: bool) -> Ints:
    """Return the last start of each job: by its promise, dependents, and a deadline still met."""
    starts, in_time = state.plan.starts(slots), state.due_by[slots] - state.plan.jobs.durations[slots]
    latest = last_starts_on_hold(state)[slots] if on_hold else last_starts(state)[slots]
    found: Ints = np.where(starts <= in_time, np.minimum(latest, in_time), latest)
    return found


def _expected(
    by_slot: Sequence[JobRecord | None], slots: Ints, durations: Ints, predicted: RunTimeSource | None
) -> Ints:
    """Return the expected run times in seconds; without a prediction, the planned duration."""
    expected = durations.copy()
    for i, slot in enumerate(slots.tolist()):
        record = by_slot[slot]
        prediction = predicted(record.id) if record is not None and predicted is not None else None
        if prediction is not None:
            expected[i] = prediction.quantiles[EXPECTED_QUANTILE]
    least: Ints = np.minimum(expected, durations)
    return least
