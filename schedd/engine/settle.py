"""End of a batch: settle the plan, dispatch due jobs, publish starts, and find the next wake-up time."""

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from schedd.engine.component.registry import select_calls
from schedd.engine.facts.records import Cause
from schedd.engine.facts.state import EngineState
from schedd.engine.machine.nodes import leave_lost_nodes, unexpectedly_down
from schedd.engine.place.backfilling import is_backfilling, next_backfill, run_backfill
from schedd.engine.place.budgets import apply_cost_limits
from schedd.engine.place.costs import next_cost_check
from schedd.engine.place.placement import displace_in_lowered_pools, follow_dependencies
from schedd.engine.rank.promises import break_overdue_promises, next_overdue_promise, record_plan_moves
from schedd.engine.rank.ranking import next_rerank, rank_all
from schedd.engine.run.dispatch import dispatch_by_policy, dispatch_jobs, move_late_jobs
from schedd.engine.run.fragmented_nodes import retry_after_ends
from schedd.engine.run.job_attributes import next_write, write_attributes
from schedd.engine.run.outcomes import void_after, void_unanswered
from schedd.engine.run.restart_requeues import restore_turns
from schedd.engine.run.running import extend_overruns
from schedd.engine.run.start_outages import next_start_attempt
from schedd.model import FOREVER
from schedd.plan.job_order import NO_RANKS
from schedd.wire import Event

_REPAIRED = 8  # while many jobs are re-evaluated, repair runs every `_REPAIRED` calls
ABSENCE_S = 1_800  # seconds from which on a time without calls is an outage of the daemon


def settle(state: EngineState, event: str) -> None:
    """Bring the plan to rest at ``state.now``; ``event`` is the id of the batch's cause."""
    _apply_effects_of_time(state, event)
    state.plan.protect_tiers(state.keeps_speed)
    if state.policy is not None:
        if state.starts_step("dispatch"):
            dispatch_by_policy(state, event)
        state.plan.discard_freed()  # no repair under a queue policy
        state.at_step = ""
        return
    _move_late_jobs(state, event)
    _fill_freed_capacity(state, event)
    _rank_and_dispatch(state, event)
    for name, call in select_calls("settle")(state.parts):
        if state.starts_step(name):
            call(state, event)
    if state.limits.lowered:
        _follow_lowered_limits(state, event)
    if state.settings.publish_starts and state.starts_step("published starts"):
        write_attributes(state, event)
    state.at_step = ""


def _apply_effects_of_time(state: EngineState, event: str) -> None:
    """Apply what time brings: edges, overruns, lost nodes, void decisions, starts after other jobs."""
    for name, call in select_calls("time_passed")(state.parts):
        if state.starts_step(name):
            call(state, event)
    if state.ends and state.starts_step("overruns"):
        extend_overruns(state, event)
    if state.down_since and state.starts_step("lost nodes"):
        leave_lost_nodes(state, event)
    if state.dispatched and state.starts_step("outcomes"):
        void_unanswered(state, event)
    if state.awaited_ends and state.starts_step("fragmented nodes"):
        retry_after_ends(state)
    if state.chained and state.starts_step("dependencies"):
        follow_dependencies(state, event)
    for name, call in select_calls("before_dispatch")(state.parts):
        if state.starts_step(name):
            call(state, event)
    if state.limits.lowered:
        _follow_lowered_limits(state, event)


def _move_late_jobs(state: EngineState, event: str) -> None:
    """Move jobs that cost too much now, that a restart requeued, or that missed their start; then end the
    promises that cannot be kept.
    """
    if state.capped and next_cost_check(state) <= state.now and state.starts_step("limits of cost"):
        apply_cost_limits(state, event)
    if state.requeued_by_restart and state.starts_step("requeued jobs"):
        restore_turns(state, event)
    due = state.next_due_start() <= state.now
    if due and state.next_due_start() < state.now - state.lateness and state.starts_step("late starts"):
        move_late_jobs(state, event)
        due = state.next_due_start() <= state.now
    if (due or state.risks) and state.starts_step("promises"):
        break_overdue_promises(state)


def _fill_freed_capacity(state: EngineState, event: str) -> None:
    """Start jobs on freed capacity, before anything slow; then do one slice of the repair."""
    settings = state.settings
    if settings.backfill == "shortest" and is_backfilling(state) and state.starts_step("backfill"):
        run_backfill(state, event)
    state.plan.order_repairs(state.rank if state.ranking.has_effect else NO_RANKS)
    if not state.plan.freed:
        state.freed_by = ("", "")
        return
    if (state.to_reevaluate and state.generation % _REPAIRED) or not state.starts_step("repair"):
        return
    trigger, words = state.freed_by if state.freed_by[0] else (event, "capacity was freed")
    moves = state.plan.repair_now(state.now, state.arrays)
    if len(moves):
        record_plan_moves(state, trigger, Cause.FREED, words, moves)
        state.next_due = None
    if state.next_due_start() <= state.now and state.starts_step("dispatch"):
        dispatch_jobs(state, event)
    state.at_step = "repair"
    moves, done = state.plan.repair(state.now, settings.repair_slice, state.arrays)
    if len(moves):
        record_plan_moves(state, trigger, Cause.FREED, words, moves)
        state.next_due = None
    state.freed_by = ("", "") if done else (trigger, words)


def _rank_and_dispatch(state: EngineState, event: str) -> None:
    """Rank the jobs, every few minutes, and dispatch those that are due."""
    if state.ranking.has_effect and next_rerank(state) <= state.now and state.starts_step("priorities"):
        rank_all(state, event)
    if state.next_due_start() <= state.now and state.starts_step("dispatch"):
        dispatch_jobs(state, event)


def _follow_lowered_limits(state: EngineState, event: str) -> None:
    """Displace jobs for a limit of an array that was lowered without an event: of its jobs, the one read last
    states the limit, and effects of time read jobs, too.
    """
    if state.starts_step("limits"):
        displace_in_lowered_pools(state, event, Cause.QUEUE, "a slot limit was lowered")


def next_wake(state: EngineState) -> int | None:
    """Return when the engine must be called again without an event; None: not before the next event."""
    now = state.now
    waits: set[str] = set()
    if state.skipped_steps:
        waits = {step for step, (until, _) in state.skipped_steps.items() if now < until}
    if state.arriving or (state.to_reevaluate and "requests that read differently" not in waits):
        return now
    if state.site_changed and "the site's policy" not in waits:
        return now
    if state.policy is None and state.plan.freed and "repair" not in waits:
        return now
    moments: list[int] = [state.skipped_steps[step][0] for step in waits] if waits else []
    for name, call in select_calls("next_wake")(state.parts):
        if name not in waits:
            moment = call(state)
            if moment <= now:
                return now
            moments.append(moment)
    if state.policy is None:
        rerank = next_rerank(state) if state.ranking.has_effect else FOREVER
        if rerank <= now and "priorities" not in waits:
            return now
        moments.append(rerank)
        moments += _next_moments_of_plan(state, waits)
    elif state.queue:
        moments += _next_moments_of_queue(state)
    if state.ends:
        moments.append(state.ends[0][0])
    if state.down_since:
        moments += [since + state.settings.node_grace for _, since in unexpectedly_down(state)]
    if state.dispatched:
        moments += [void_after(state, state.records[job]) + 1 for job in state.dispatched]
    soonest = min(moments, default=FOREVER)
    return max(soonest, now + 1) if soonest < FOREVER else None


def _next_moments_of_plan(state: EngineState, waits: Collection[str]) -> Iterator[int]:
    """Yield when planned jobs need the engine next; steps in ``waits`` were skipped and wait."""
    settings = state.settings
    due = state.next_due_start()
    if due < FOREVER:
        attempt = max(due, next_start_attempt(state))
        yield due + state.lateness + 1 if state.halted else attempt
    if settings.backfill == "shortest" and "backfill" not in waits:
        yield next_backfill(state)
    if "promises" not in waits:
        yield next_overdue_promise(state)
    if state.capped and "limits of cost" not in waits:
        yield next_cost_check(state)
    if settings.publish_starts:
        yield next_write(state)


def _next_moments_of_queue(state: EngineState) -> Iterator[int]:
    """Yield when queued jobs need the engine next under a queue policy."""
    attempt = next_start_attempt(state)
    if attempt > state.now:
        yield attempt
    ready = state.plan.jobs.ready[np.fromiter(state.queue, np.int64, len(state.queue))]
    ready = ready[ready > state.now]
    if ready.shape[0]:
        yield int(ready.min())


def find_absence(
    state: EngineState, events: Sequence[Event], now: int, find_wake: Callable[[], int | None]
) -> int:
    """Return the time of the last call if it is half an hour ago and another one was due; otherwise -1.

    ``state`` is that after the last call, ``find_wake`` returns its ``next_wake``. A missed wake-up shows it,
    or events older than any delay of reports. Shorter absences are usual on a busy machine: their delays are
    learned.
    """
    if now - state.now < ABSENCE_S:
        return -1
    wake = find_wake()
    missed = wake is not None and now - wake > state.lateness
    return state.now if missed or any(state.now < one.time < now - ABSENCE_S for one in events) else -1
