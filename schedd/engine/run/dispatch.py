"""Dispatch: run decisions for due jobs, and new placements for jobs that missed their start.

A job is not dispatched only because of the plan: it must fit next to the running and dispatched jobs,
whatever their planned ends. A job that starts late holds its nodes from that time on, for its whole walltime;
planned jobs in conflict with it are displaced.
"""

import heapq
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from schedd.engine.component.cluster_hooks import component_slots, deferred_slots
from schedd.engine.component.hook_values import Confinement
from schedd.engine.component.job_hooks import note_dispatch
from schedd.engine.component.placement_hooks import (
    component_confinement,
    is_planned_on_hold,
    prepare_start,
    reason_to_replan,
    walltime_at_start,
)
from schedd.engine.facts.job_requests import slot_limited
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, JobRecord, Phase, StartAttempt
from schedd.engine.facts.shares import planned_shares, takes_for_shares
from schedd.engine.facts.state import EngineState
from schedd.engine.place.conflicts import delay_late_jobs
from schedd.engine.place.costs import over_limit
from schedd.engine.place.node_preferences import move_to_better_nodes
from schedd.engine.place.placement import (
    DisplacedJobs,
    move_later,
    place_job,
    replan,
    replan_displaced,
)
from schedd.engine.rank.promises import halt_cause, last_move_words, record_move, record_new_places
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.run.queueing import start_by_policy
from schedd.engine.run.reevaluation import reevaluate
from schedd.engine.run.running import fix_until
from schedd.engine.run.start_outages import is_refused_by_server, next_start_attempt
from schedd.plan.columns import PLANNED
from schedd.plan.records import Take
from schedd.wire import Run, ShareFacts
from schedd.wire.run_limits import run_limits_version

_AGAIN = 30  # first backoff in seconds of a due job that the server has not released
_RELEASED_WITHIN = 60
"""A due job that the server has not released, from its dependency or from a hold with a held placement, keeps
its placement for this many seconds.
"""
_LIMITED_WITHIN = 10
"""A due job that the server holds for its slot limit keeps its placement for this many seconds."""
_NO_ROOM_AGAIN = 5  # seconds after which a due job is tried again if its nodes are busy contrary to the plan
_LATE_PART = 10  # a job that is late by at most this part of its walltime keeps its planned end
_ROUNDS = 4
_REMEMBERED_S = 6 * 3600  # a start of an earlier decision may be in an event that comes this late


def dispatch_by_policy(state: EngineState, event: str) -> None:
    """Start the jobs that the queue policy selects; those not to be dispatched yet return."""
    if state.halted or next_start_attempt(state) > state.now:
        return
    for slot in start_by_policy(state, event):
        if _too_many(state) or (is_refused_by_server(state) and state.dispatched):
            state.plan.set_ready(slot, state.now + 1)
        else:
            _dispatch(state, slot, event, DisplacedJobs())
        if state.plan.state(slot) == PLANNED:
            state.plan.remove(slot, state.now)


def dispatch_jobs(state: EngineState, event: str) -> None:
    """Start every due job, earliest planned start first."""
    if state.halted or next_start_attempt(state) > state.now:
        return
    for _ in range(_ROUNDS):
        if state.next_due_start() > state.now:
            return
        state.next_due = None
        displaced = DisplacedJobs()
        enough = False
        for slot in _due_slots(state):
            enough = _too_many(state) or bool(is_refused_by_server(state) and state.dispatched)
            if enough:
                break
            if state.plan.state(slot) == PLANNED and state.plan.start(slot) <= state.now:
                _dispatch(state, slot, event, displaced)
        displaced.place_again(state, event, Cause.OUTAGE)
        if enough:
            return


def _due_slots(state: EngineState) -> list[int]:
    """The due jobs by planned start; while the server refuses all, those not refused yet go first."""
    slots: list[int] = state.plan.due_jobs(state.now).tolist()
    if is_refused_by_server(state):
        slots.sort(key=lambda slot: (one := state.by_slot[slot]) is not None and one.id in state.refused_jobs)
    return slots


def _too_many(state: EngineState) -> bool:
    """Return whether the start rate allows no further job in this second."""
    if state.now != state.start_second:
        state.start_second, state.starts_in_second, state.starts_by_node = state.now, 0, {}
    return 0 < state.settings.start_rate <= state.starts_in_second


def _dispatch(state: EngineState, slot: int, event: str, displaced: DisplacedJobs) -> None:
    record = state.by_slot[slot]
    if record is None:
        return
    with JobErrorGuard(state, record.id, event):
        _try(state, record, event, displaced)


def _try(state: EngineState, record: JobRecord, event: str, displaced: DisplacedJobs) -> None:
    """Order the start of a due job, or plan it again with the reason why it cannot start."""
    slot = record.slot
    if record.id in state.to_reevaluate and reevaluate(state, [record.id]):
        state.next_due = None
        return
    record = state.records[record.id]
    if slot_limited(record.facts):
        _swap_with_sibling(state, record, event)
        return
    if _waits_for_release(state, record, event):
        return
    if over_limit(state, record):
        replan(state, record, event, Cause.ADMIN, "it would cost more than its limit")
        return
    reason = reason_to_replan(state, record)
    if reason is not None:
        replan(state, record, event, *reason)
        return
    confined = component_confinement(state, record)
    if state.policy is None and not state.keeps_speed and confined is None:
        move_to_better_nodes(state, record, placed_now=False)
    shares = planned_shares(state.plan, slot)
    wait = _wait_for_nodes(state, shares)
    if wait > state.now:
        state.plan.set_ready(slot, wait)
    elif _has_room(state, record, confined, event, displaced):
        _order_run(state, record.id, shares, confined, event)


def _waits_for_release(state: EngineState, record: JobRecord, event: str) -> bool:
    """Return whether a job is not released by the server yet. It keeps its placement or is replanned."""
    plan, slot = state.plan, record.slot
    conditional = record.behind or is_planned_on_hold(state, record)
    if conditional and state.now < plan.start(slot) + _RELEASED_WITHIN:
        # the server releases it when it sees the end
        plan.set_ready(slot, min(state.now + 5, plan.start(slot) + _RELEASED_WITHIN))
        return True
    if record.facts.state != "Q":
        record = _postpone(state, record)
        replan(state, record, event, Cause.ALTERED, "the server has not released it yet")
        return True
    return False


def _wait_for_nodes(state: EngineState, shares: Sequence[ShareFacts]) -> int:
    """Return until when a due job waits for its nodes: one is down, or has had its starts of this second. It
    does not wait if that is now.

    Jobs on a node that is down leave it after the grace; until then it may return.
    """
    names = {share.node for share in shares}
    down = [state.down_since.get(name, state.now) for name in names if state.node_facts[name].state != "up"]
    if down:
        return max(state.now + 1, max(down) + state.settings.node_grace)
    most = state.settings.start_rate_node
    crowded = most and any(state.starts_by_node.get(name, 0) >= most for name in names)
    return state.now + 1 if crowded else state.now


def _order_run(
    state: EngineState, job: str, shares: tuple[ShareFacts, ...], confined: Confinement | None, event: str
) -> None:
    """Decide the start of a due job that has room now, on its planned ``shares``."""
    before = state.records[job]  # a late start may have put its promise at risk
    record = prepare_start(state, before)
    slot = record.slot
    if record is not before:
        shares = planned_shares(state.plan, slot)
    names = sorted({share.node for share in shares})
    expires = state.now + state.settings.decision_expiry
    if confined is not None:
        expires = min(expires, confined.start_by)
    queue = state.queues.get(record.facts.queue)
    decision = Run(
        id=state.next_decision(),
        cause=event,
        time=state.now,
        job_id=record.id,
        shares=shares,
        version=record.facts.version,
        expires=expires,
        walltime=walltime_at_start(state, record),
        why=last_move_words(state, slot),
        limits=run_limits_version(state.server.limits, queue.limits if queue is not None else {}),
    )
    state.decisions.append(decision)
    state.dispatched[record.id] = None
    state.starts_in_second += 1
    if state.settings.start_rate_node:
        state.starts_by_node |= {name: state.starts_by_node.get(name, 0) + 1 for name in names}
    state.update_due[slot] = 0
    record = state.store_record(
        apply_step(record, Step.DISPATCHED, attempt=StartAttempt(decision.id, state.now, expires)),
    )
    fix_until(state, record, state.plan.end(slot))
    # it keeps its placement beyond its end until its outcome is known
    heapq.heappush(state.ends, (state.plan.end(slot), slot, record.id))
    note_dispatch(state, record, names, event)


def _has_room(
    state: EngineState, record: JobRecord, confined: Confinement | None, event: str, displaced: DisplacedJobs
) -> bool:
    """Return whether a due job has room now, for its whole walltime.

    A late job takes its nodes from now on: planned jobs in conflict with it are ``displaced``, and so is the
    job itself where a job that stays, or a reservation, conflicts with it. If it is only a little late, it
    keeps its planned end until that has passed. Where the nodes are busy contrary to the plan, the job keeps
    its placement and waits.
    """
    plan, slot, now = state.plan, record.slot, state.now
    planned = plan.start(slot)
    if planned < now and (confined is not None or not _may_keep_end(state, slot)):
        if confined is not None:
            plan.move(slot, now, now)
            confined.start_late(state)
        stays = confined is not None and confined.keeps_place
        displaces = f"job {record.id} starts later than planned"
        gone = move_later(state, slot, now, event, Cause.OUTAGE, displaces, itself=not stays)
        displaced.add(*gone, displaces)
        if plan.state(slot) != PLANNED:
            return False
        words = f"it was started {now - planned} s later than planned"
        record_move(state, event, Cause.OUTAGE, words, slot, planned, now)
    crowded = plan.overcommitted_now(slot, now, _timed_slots(state), _unresolved(state, record.id))
    if not crowded:
        return True
    plan.set_ready(slot, now + _NO_ROOM_AGAIN)
    state.next_due = None
    if f"no_room {crowded}" not in state.alerts:
        words = (
            f"job {record.id} is due, but others that run or may start hold more of {crowded} than planned"
        )
        state.alert(event, "no_room", words, crowded)
    return False


def _timed_slots(state: EngineState) -> list[int]:
    """Return the slots of reservations and other components, and of suspended jobs that go on later. They
    hold resources only from their start to their end.
    """
    return component_slots(state) + deferred_slots(state)


def _may_keep_end(state: EngineState, slot: int) -> bool:
    """Return whether a late job may keep its planned end, so that no job behind it moves at its dispatch.

    Most jobs end before their walltime. A job that does not is extended at its planned end, before another
    starts there: see ``extend_overruns``. Neither a reservation nor a window of a limit may begin in the
    seconds after that end, because these do not move.
    """
    plan = state.plan
    duration, end = int(plan.jobs.durations[slot]), plan.end(slot)
    late = state.now - plan.start(slot)
    if late > min(state.settings.end_allowance, duration // _LATE_PART):
        return False
    limits = map(state.limits.pools.get, plan.pool_amounts(slot))
    if any(limit is not None and limit.during for limit in limits):
        return False
    near = [one for one in _timed_slots(state) if end - duration < plan.start(one) < end + late]
    return not near or not np.isin(plan.held(np.array(near)).rows, plan.held(np.array([slot])).rows).any()


def _unresolved(state: EngineState, job: str) -> list[Take]:
    """Return what run decisions hold that are no longer tracked but may still be carried out."""
    found: list[Take] = []
    for other, one in list(state.unresolved.items()):
        record = state.records.get(other)
        if one.until + _REMEMBERED_S < state.now or (record is not None and record.phase is Phase.RUNNING):
            del state.unresolved[other]
        elif (
            one.until >= state.now
            and other != job
            and (record is None or record.phase is not Phase.DISPATCHED)
        ):
            request = record.understood.request if record is not None else None
            passes = state.open_gates(record.facts) if record is not None else frozenset()
            found += takes_for_shares(state.plan, request, one.shares, passes)
    return found


def _swap_with_sibling(state: EngineState, record: JobRecord, event: str) -> None:
    """Start another job of the array instead of a due job that the server holds for the array's slot limit.

    If there is none, the server releases this job when it sees that another one has ended, at any moment; if
    it does not, the job gives up its placement.
    """
    plan, slot, now = state.plan, record.slot, state.now
    other = _find_startable_sibling(state, record)
    if other is not None:
        words = f"the server holds job {record.id}, not job {other.id} of the same array"
        slots = np.array([other.slot, slot], np.int64)
        old = plan.starts(slots)
        for one in slots.tolist():
            plan.remove(one, now)
        for one in (other, record):  # the job that may start goes first
            place_job(state, one, event)
        new = plan.starts(slots)
        record_new_places(state, event, Cause.QUEUE, words, slots, old, new)
        state.next_due = None
        # If the other has no room now, the held one would be due again at once, forever.
        if plan.state(slot) == PLANNED and plan.start(slot) <= now:
            _replan_limited(state, state.records[record.id], event)
    elif now < plan.start(slot) + _LIMITED_WITHIN:
        plan.set_ready(slot, now + 1)
    else:
        _replan_limited(state, record, event)


def _replan_limited(state: EngineState, record: JobRecord, event: str) -> None:
    """Plan a job later, each time twice as late as before: if the server never releases it, its nodes must
    not wait for it. Its release ends the backoff.
    """
    before = record.back_off
    wait = min(state.settings.refusal_most, _AGAIN << min(before.refusals, 16))
    back_off = replace(before, until=state.now + wait, refusals=before.refusals + 1)
    record = apply_step(record, Step.PUT_OFF, back_off=back_off)
    replan(state, record, event, Cause.QUEUE, "the server holds it for its array's slot limit")


def _postpone(state: EngineState, record: JobRecord) -> JobRecord:
    return apply_step(record, Step.PUT_OFF, back_off=replace(record.back_off, until=state.now + _AGAIN))


def _find_startable_sibling(state: EngineState, held: JobRecord) -> JobRecord | None:
    """Return the array's first later planned job that could start in place of a held one."""
    for pool in state.plan.pool_amounts(held.slot):
        limit = state.limits.pools.get(pool)
        if limit is None or limit.who != "array":
            continue
        for slot in state.plan.jobs_in_pool(pool).tolist():
            one: JobRecord | None = state.by_slot[slot]
            if one is None or one.phase is not Phase.WAITING or state.plan.start(slot) <= state.now:
                continue
            waits = max(one.back_off.until, one.facts.not_before or 0) > state.now
            if one.facts.state == "Q" and not one.behind and not waits:
                return one
    return None


def move_late_jobs(state: EngineState, event: str) -> None:
    """Move due jobs that could not be started for long to now, and delay those behind them.

    If one job is that late, all late jobs move: others would overtake it.
    """
    state.next_due = None
    words = f"it was not started in time: {state.halted or 'the daemon was down or busy'}"
    cause = halt_cause(state)
    gone = delay_late_jobs(state, state.plan.due_jobs(state.now - 1), event, cause, words)
    replan_displaced(state, *gone, event, cause, words)
