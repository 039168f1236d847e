"""The costly checks of ``validate``: the design's invariants, recomputed from records and placements."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from schedd.dialect.deadline import read_deadline
from schedd.engine.component.cluster_hooks import component_slots
from schedd.engine.component.registry import NOTHING_IDLE, components, find_idle_hooks
from schedd.engine.facts.displayed_start import are_outdated
from schedd.engine.facts.job_requests import slot_limited
from schedd.engine.facts.phases import find_fault
from schedd.engine.facts.pools import PLENTY
from schedd.engine.facts.records import JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.run.job_attributes import (
    find_next_update,
    find_start_ahead,
    first_start_ahead,
    next_update_time,
)
from schedd.model import FOREVER
from schedd.plan.columns import CPUS, FIXED, MEM, PLANNED, SHARE, UNPLACED, VACANT
from schedd.policy.recurrence import Recurrence, occurrences

_HeldEntries = list[tuple[int, int, Sequence[int], int]]  # start, end, amounts, slot
_Held = dict[int, _HeldEntries]


def check(state: EngineState) -> None:
    """Raise AssertionError where an invariant does not hold.

    What runs may over-commit a node (reality may); what we plan may not add to that.
    """
    planned = state.plan.jobs.states == PLANNED
    planned[_pending(state)] = False
    for row, entries in _held(state).items():
        _check_row(state, row, entries, planned)
    slots: set[int] = set()
    if state.publishes_starts and state.policy is None:
        _check_published_starts(state)
    for record in state.records.values():
        _check_record(state, record)
        if record.slot >= 0:
            slots.add(record.slot)
    slots.update(component_slots(state))
    used = np.flatnonzero(state.plan.jobs.states != VACANT)
    assert set(used.tolist()) == slots, f"slots in use {set(used.tolist()) ^ slots} belong to nobody"
    vacant = np.flatnonzero(state.plan.jobs.states == VACANT)
    assert state.has_initial_values(vacant), "a vacant slot has values of its last job"
    assert state.policy is not None or not state.queue
    assert state.assumed <= slots, "a slot of a job that is gone counts as assumed"
    for job_id in state.records:
        assert job_id in state.numbers.near(job_id), f"job {job_id} is not found by its number"
    assert state.numbers.count == len(state.records), "a job that is gone is found by its number"
    assert first_start_ahead(state)[0] == find_start_ahead(state)[0], "another published start passes first"
    idle = state.idle_hooks or NOTHING_IDLE
    assert idle <= find_idle_hooks(state), f"idle hooks have work: {idle - find_idle_hooks(state)}"
    for one in components():
        if one.next_wake is not None and one.work_fields:
            part = state.part(one.state)
            works = any(getattr(part, name) for name in one.work_fields)
            assert works or one.next_wake(state) == FOREVER, f"{one.name} has work, but its fields are empty"
    second = state.now + 1
    assert max(second, next_update_time(state)) == max(second, find_next_update(state)[0]), (
        "another attribute is written next"
    )
    assert state.plan.searched_from <= state.now, "a search took a time to come for the present one"
    assert set(state.without_place) <= set(state.records), "a job that is gone waits for a node"


def _held(state: EngineState) -> _Held:
    plan = state.plan
    held: _Held = {}
    slots = np.flatnonzero((plan.jobs.states == PLANNED) | (plan.jobs.states == FIXED))
    for owner, entry in plan.held(slots):
        slot = int(slots[owner])
        assert entry.chunk >= -1
        held.setdefault(entry.row, []).append((plan.start(slot), plan.end(slot), entry.amounts, slot))
    return held


def _check_row(state: EngineState, row: int, entries: _HeldEntries, planned: npt.NDArray[np.bool_]) -> None:
    """No planned job lies where a row is over-committed, and the timeline says what the placements say."""
    timeline = state.plan.timeline(row)
    edges = {max(start, state.now) for start, end, _, _ in entries if end > state.now}
    edges |= {end for _, end, _, _ in entries if end > state.now}
    limit = next((one for pool, one in state.limits.pools.items() if state.plan.pools.get(pool) == row), None)
    opened = state.limits.opened.get(limit.pool, 0) if limit is not None else 0
    windows: tuple[tuple[int, int], ...] = ()
    if limit is not None and limit.during and edges:
        until = min(max(edges) + 1, opened)
        windows = occurrences(Recurrence.parse(limit.during), state.now, until)
        edges |= {max(start, state.now) for start, _ in windows if start < until}
    if not edges:
        return
    starts, ends, slots = (np.array([entry[i] for entry in entries], np.int64) for i in (0, 1, 3))
    takes = np.array([take for _, _, take, _ in entries], np.int64)
    moments = np.array(sorted(edges), np.int64)
    here = (starts <= moments[:, None]) & (moments[:, None] < ends)
    total = here.astype(np.int64) @ takes
    if row in state.plan.node_names:
        unseen = ((total[:, CPUS] != 0) | (total[:, MEM] != 0)) & (total[:, SHARE] == 0)
        assert not unseen.any(), f"row {row} at {moments[unseen]}: a whole-node job does not see what is held"
    free = timeline.free[:, np.maximum(np.searchsorted(timeline.times, moments, side="right") - 1, 0)].T
    cap = np.tile(timeline.capacity, (moments.size, 1))
    for k, t in enumerate(moments.tolist() if opened > state.now else ()):
        if t < opened and not any(start <= t < end for start, end in windows):
            cap[k, 0] += PLENTY
    if (wrong := free != cap - total).any():
        k = int(np.flatnonzero(wrong.any(axis=1))[0])
        raise AssertionError(f"row {row} at {moments[k]}: timeline {free[k]}, held {total[k]}")
    if not (too_much := total > cap).any():
        return
    for k in np.flatnonzero(too_much.any(axis=1)).tolist():
        over = total[k] > cap[k]
        guilty = slots[here[k] & planned[slots] & (takes[:, over] > 0).any(axis=1)]
        assert not guilty.size, (
            f"row {row} over-committed at {moments[k]} by slot {guilty[0]}: {total[k]} of {cap[k]}"
        )


def _pending(state: EngineState) -> list[int]:
    """Return the slots of jobs that wait for re-evaluation."""
    found = [state.records[job].slot for job in state.to_reevaluate if job in state.records]
    return [slot for slot in found if slot >= 0]


def _check_published_starts(state: EngineState) -> None:
    """The published start of each waiting job is its planned start, or an update of it is due."""
    waiting = [
        record.slot
        for record in state.records.values()
        if record.slot >= 0 and record.phase not in (Phase.RUNNING, Phase.DISPATCHED)
    ]
    slots = np.array([slot for slot in waiting if not state.update_due[slot]], np.int64)
    published_starts, starts = state.published_start[slots], state.plan.starts(slots)
    for slot in slots[are_outdated(published_starts, starts, state.settings.publish_threshold)].tolist():
        raise AssertionError(f"{state.by_slot[slot].id}: published another start, for good")


def _check_record(state: EngineState, record: JobRecord) -> None:
    slot, phase, now = record.slot, record.phase, state.now
    assert not find_fault(record), f"{record.id}: {find_fault(record)}"
    assert state.records[record.id] is record
    assert (record.id in state.slotless) == (slot < 0), f"{record.id}: slotless or not"
    if slot < 0:
        assert phase is Phase.BLOCKED, f"{record.id}: {phase} without a slot"
        assert record.answer is not None
        return
    assert state.by_slot[slot] is record, f"{record.id}: its slot has another record"
    stand, start = state.plan.state(slot), state.plan.start(slot)
    assert state.update_due[slot] in (0, 1)
    assert state.updates_marked or not state.update_due[slot], f"{record.id}: its update is not found"
    deadline = read_deadline(record.facts.resources, record.facts.submitted)
    assert state.due_by[slot] == (FOREVER if deadline is None else deadline), f"{record.id}: its deadline"
    user = record.facts.owner.partition("@")[0]
    assert state.owner_number[slot] == state.owners[user], f"{record.id}: its owner"
    if phase in (Phase.RUNNING, Phase.DISPATCHED):
        assert stand == FIXED, f"{record.id}: {phase} but not fixed"
        assert record.answer is None
        assert (record.id in state.dispatched) == (phase is Phase.DISPATCHED)
        return
    assert record.id not in state.dispatched
    if phase is Phase.BLOCKED:
        assert stand == UNPLACED, f"{record.id}: blocked but placed"
        assert record.answer is not None, f"{record.id}: blocked without an answer"
        return
    assert (record.id in state.without_place) == (state.policy is None and stand == UNPLACED)
    if state.policy is not None:
        assert slot in state.queue
        return
    # One of three answers: a start, a waiting reason, or never (blocked).
    assert (stand == PLANNED) == (record.answer is None), f"{record.id}: {stand}, answer {record.answer}"
    promised = int(state.promise[slot])
    held = record.facts.state in ("H", "W") and not slot_limited(record.facts)
    assert not (held and promised < FOREVER), f"{record.id}: the server holds it, and it has a promise"
    at_risk = promised < FOREVER and (stand != PLANNED or start > promised)
    assert at_risk == (record.risk is not None), (
        f"{record.id}: at {start}, promised {promised}: {record.risk}"
    )
    if stand == PLANNED:
        bound = int(state.bound[slot])
        assert start <= bound, f"{record.id}: planned at {start}, bound {bound}, promised {promised}"
        # The reverse does not hold: a queue may promise nothing, or have promised nothing before a reload.
        assert record.eligible_since >= 0 or promised == FOREVER, f"{record.id}: promise {promised}"
        due = max(start, state.plan.ready(slot))
        left = state.skipped_steps.get("late starts", (0, 0))[0]  # nothing moves late jobs on meanwhile
        late = state.lateness if now > left + state.lateness else FOREVER
        assert due >= now - late, f"{record.id}: planned start {start} is long gone"
        asked, wanted = state.plan.request(slot), record.understood.request
        assert wanted is not None
        wanted = state.planned_request(record.facts, wanted)
        assert (asked.chunks, asked.place, asked.exclusive) == (wanted.chunks, wanted.place, wanted.exclusive)
