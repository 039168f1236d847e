"""Starting jobs: whose moment has come, and what happens to those whose moment went by."""

import heapq
from dataclasses import replace

import numpy as np

from schedd.engine.facts.booking import Booking
from schedd.engine.facts.intake import slot_limited
from schedd.engine.facts.phases import Step, after
from schedd.engine.facts.records import Cause, JobRecord, Phase, StartAttempt
from schedd.engine.facts.shares import shares_of
from schedd.engine.facts.state import EngineState
from schedd.engine.place.bound import booking_of, strays, waits_for_booking
from schedd.engine.place.costs import over_limit
from schedd.engine.place.kept_places import is_kept
from schedd.engine.place.places import displace, make_way, replan, rivals, seat, stand
from schedd.engine.place.suited import to_suited
from schedd.engine.rank.promises import note
from schedd.engine.rank.quarantine import Concerning
from schedd.engine.run.queueing import start_by_policy
from schedd.engine.run.rereading import look_again
from schedd.engine.run.running import hold
from schedd.plan.columns import PLANNED, Ints
from schedd.wire import Run

__all__ = ["catch_up", "dispatch_due", "due_by_policy"]

_AGAIN = 30
"""Seconds after which a job is looked at again that is due but that the server has not released."""
_RELEASED_WITHIN = 60
"""Seconds for which a job keeps its place that is due but that the server has not released yet, from its
dependency or from a hold for whose time its place is kept."""
_LIMITED_WITHIN = 10
"""Seconds for which a job keeps its place that is due but that the server holds for its slot limit."""
_ROUNDS = 4


def due_by_policy(state: EngineState, event: str) -> None:
    """Under a queue policy: start whom the policy lets start now."""
    if not state.halted:
        for slot in start_by_policy(state, event):
            _dispatch(state, slot, event)


def dispatch_due(state: EngineState, event: str) -> None:
    """Start every job whose planned moment has come, earliest planned first."""
    if state.halted:
        return
    for _ in range(_ROUNDS):
        if state.soonest() > state.now:
            return
        state.due = None
        for slot in state.plan.due(state.now).tolist():
            if _too_many(state):
                return
            if state.plan.state(slot) == PLANNED and state.plan.start(slot) <= state.now:
                _dispatch(state, slot, event)


def _too_many(state: EngineState) -> bool:
    """Whether no more jobs may be started in this second."""
    if state.now != state.started_at:
        state.started_at, state.started_then, state.started_on = state.now, 0, {}
    return 0 < state.settings.start_rate <= state.started_then


def _dispatch(state: EngineState, slot: int, event: str) -> None:
    record = state.by_slot[slot]
    if record is None:
        return
    with Concerning(state, record.id, event):
        _try(state, record, event)


def _try(state: EngineState, record: JobRecord, event: str) -> None:
    slot = record.slot
    if record.id in state.rereading and look_again(state, [record.id]):
        state.due = None
        return
    if slot_limited(record.facts):
        _let_another_go(state, record, event)
        return
    conditional = record.behind or is_kept(state, record)
    if conditional and state.now < state.plan.start(slot) + _RELEASED_WITHIN:
        # The server releases it when it has seen the end.
        state.plan.set_ready(slot, min(state.now + 5, state.plan.start(slot) + _RELEASED_WITHIN))
        return
    if record.facts.state != "Q":
        record = _put_off(state, record)
        replan(state, record, event, Cause.ALTERED, "the server has not released it yet")
        return
    if over_limit(state, record):
        replan(state, record, event, Cause.ADMIN, "it would cost more than its limit")
        return
    booking = booking_of(state, record)
    if booking is None and waits_for_booking(state, record, booking) is not None:
        replan(state, record, event, Cause.RESERVATION, "its group does not start here")
        return
    if booking is not None and strays(state, record, booking):
        replan(state, record, event, Cause.RESERVATION, f"it runs in reservation {booking.name} alone")
        return
    if booking is not None and _too_late(state, record, booking):
        words = f"its reservation {booking.name} would end before its walltime is over"
        replan(state, record, event, Cause.OUTAGE, words)
        return
    if state.policy is None and not state.keeps_speed and booking is None:
        to_suited(state, record, placed_now=False)
    names = {state.plan.name_of[take.row] for take in state.plan.takes(slot)}
    down = [state.down_since.get(name, state.now) for name in names if state.node_facts[name].state != "up"]
    if down:
        # Jobs leave a node that is down after the grace, not before; until then it may return.
        state.plan.set_ready(slot, max(state.now + 1, max(down) + state.settings.node_grace))
        return
    most = state.settings.start_rate_node
    if most and any(state.started_on.get(name, 0) >= most for name in names):
        state.plan.set_ready(slot, state.now + 1)
        return
    expires = state.now + state.settings.decision_expiry
    if booking is not None and booking.event.handover and booking.event.late:
        expires = min(expires, booking.start + booking.event.late)
    decision = Run(
        id=state.next_decision(),
        cause=event,
        time=state.now,
        job_id=record.id,
        shares=shares_of(state.plan, slot),
        version=record.facts.version,
        expires=expires,
    )
    state.decisions.append(decision)
    state.out[record.id] = None
    state.started_then += 1
    if most:
        state.started_on |= {name: state.started_on.get(name, 0) + 1 for name in names}
    state.tell_due[slot] = 0
    record = state.put(
        after(record, Step.DISPATCHED, attempt=StartAttempt(decision.id, state.now, expires)),
    )
    # It holds its place; where it is a little late it takes that from its allowance, at its end.
    end, needed = state.plan.end(slot), _needed(state, record)
    hold(state, record, needed)
    # And keeps it beyond its end as long as nobody knows what became of it.
    heapq.heappush(state.ends, (state.plan.end(slot), slot, record.id))
    if needed > end:
        make_way(state, [slot], event, Cause.OUTAGE, f"job {record.id} starts later than planned")


def _needed(state: EngineState, record: JobRecord) -> int:
    """Until when a job that starts now is to hold its place."""
    end = state.plan.end(record.slot)
    if state.now > state.plan.start(record.slot) + state.settings.end_allowance:
        return max(end, state.now + record.understood.walltime)
    return end


def _too_late(state: EngineState, record: JobRecord, booking: Booking) -> bool:
    """Whether a job that starts now would hold cores of its booking beyond the booking's end: from then on
    others may have them. Parts of a group are kept, however late they are.
    """
    return _needed(state, record) > booking.end and not booking.event.handover


def _let_another_go(state: EngineState, record: JobRecord, event: str) -> None:
    """A job is due that its array's slot limit holds on the server: one of the array goes that is not held.

    Where none is, the server releases this one when it sees that another has ended: any moment now. If it
    does not, its place is not to stand empty.
    """
    plan, slot, now = state.plan, record.slot, state.now
    other = _released(state, record)
    if other is not None:
        words = f"the server holds job {record.id}, not job {other.id} of the same array"
        slots = np.array([other.slot, slot], np.int64)
        old = plan.starts(slots)
        for one in slots.tolist():
            plan.lift(one, now)
        for one in (other, record):  # who may start goes first
            seat(state, one, event)
        new = plan.starts(slots)
        moved = new != old
        note(state, event, Cause.QUEUE, words, slots[moved], old[moved], new[moved])
        state.due = None
        # The other may have no room now; the one that is held would be due again at once, and for ever.
        if plan.state(slot) == PLANNED and plan.start(slot) <= now:
            _later(state, state.records[record.id], event)
    elif now < plan.start(slot) + _LIMITED_WITHIN:
        plan.set_ready(slot, now + 1)
    else:
        _later(state, record, event)


def _later(state: EngineState, record: JobRecord, event: str) -> None:
    record = _put_off(state, record)
    replan(state, record, event, Cause.QUEUE, "the server holds it for its array's slot limit")


def _put_off(state: EngineState, record: JobRecord) -> JobRecord:
    return after(record, Step.PUT_OFF, back_off=replace(record.back_off, until=state.now + _AGAIN))


def _released(state: EngineState, held: JobRecord) -> JobRecord | None:
    """Of the same array, the first planned job later than now that could start if it were its turn."""
    for pool in state.plan.pools_of(held.slot):
        if state.limits.pools[pool].who != "array":
            continue
        for slot in state.plan.in_pool(pool).tolist():
            one: JobRecord | None = state.by_slot[slot]
            if one is None or one.phase is not Phase.WAITING or state.plan.start(slot) <= state.now:
                continue
            waits = max(one.back_off.until, one.facts.not_before or 0) > state.now
            if one.facts.state == "Q" and not one.behind and not waits:
                return one
    return None


def catch_up(state: EngineState, event: str) -> None:
    """Move on the places of due jobs that could not be started for long; all keep their order.

    Each late job in turn takes its nodes from now on. Planned jobs in its way, and itself where another that
    stays is in the way, are planned anew afterwards, in the order of their old starts.
    """
    plan, now = state.plan, state.now
    if state.soonest() >= now - state.lateness:
        return
    state.due = None
    late = plan.due(now - state.lateness - 1)
    old = plan.jobs.starts.copy()
    kept: list[int] = []
    gone: list[Ints] = []
    for slot in late.tolist():
        if plan.state(slot) != PLANNED:
            continue
        stand(state, slot, now)
        kept.append(slot)
        others = rivals(state, [slot])
        others = others[~np.isin(others, kept)]
        gone.append(plan.evict(np.append(others, slot)))
        if plan.state(slot) != PLANNED:
            kept.pop()
    slots = np.array(kept, np.int64)
    words = f"it was not started in time: {state.halted or 'the scheduler was not there'}"
    note(state, event, Cause.OUTAGE, words, slots, old[slots], np.full(slots.shape[0], now))
    lost = np.concatenate(gone)
    displace(state, lost, old[lost], event, Cause.OUTAGE, words)
