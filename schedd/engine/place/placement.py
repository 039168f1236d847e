"""Placing, removing, moving, displacing and replanning jobs: the operations that all events share."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from schedd.engine.component.hook_values import Confinement
from schedd.engine.component.job_hooks import job_refusal, leave_components
from schedd.engine.component.placement_hooks import (
    component_confinement,
    component_wait,
    is_planned_on_hold,
)
from schedd.engine.component.promise_hooks import promise_ends, wait_causes
from schedd.engine.facts.job_requests import find_uncounted, first_waiting_reason, is_eligible
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, DependencyLink, JobRecord, Phase
from schedd.engine.facts.reevaluation_queue import are_many, queue_if_many, queue_reevaluation
from schedd.engine.facts.state import EngineState
from schedd.engine.place import dependencies
from schedd.engine.place.conflicts import (
    Removed,
    conflicting_jobs,
    delay_conflicting,
    jobs_on_same_rows,
    remove_followers,
    start_later,
)
from schedd.engine.place.costs import place_affordably
from schedd.engine.place.missing_starts import explain_missing_start
from schedd.engine.place.placement_policy import place_by_site_policy
from schedd.engine.place.request_forms import choose_form
from schedd.engine.rank.promises import end_promise, make_promise, record_move, record_new_places
from schedd.engine.rank.quarantine import JobErrorGuard, block_job, mark_for_update
from schedd.engine.rank.ranking import advance_job, correct_last_rank, set_rank
from schedd.model import FOREVER, Never, WaitingFor
from schedd.plan.columns import PLANNED, Ints


def plan_job(
    state: EngineState, record: JobRecord, event: str, cause: Cause, words: str, *, unranked: bool = False
) -> None:
    """Place an unplaced job in its earliest gap, or record why it has none. See ``place_job``."""
    place_job(state, record, event, ahead=True, unranked=unranked)
    _note(state, record.id, event, cause, words, -1)


def replan(state: EngineState, record: JobRecord, event: str, cause: Cause, words: str) -> None:
    """Remove a job and place it again."""
    old = remove(state, record)
    place_job(state, record, event, ahead=True)
    _note(state, record.id, event, cause, words, old)


def _note(state: EngineState, job_id: str, event: str, cause: Cause, words: str, old: int) -> None:
    slot = state.records[job_id].slot
    if slot >= 0:
        record_move(state, event, cause, words, slot, old, state.plan.start(slot))


def replan_displaced(
    state: EngineState, slots: Ints, old: Ints, event: str, cause: Cause, words: str
) -> None:
    """Place displaced jobs again, earliest ``old`` start first; their moves are recorded together."""
    slots, old, new = _place_in_order(state, slots, old, event)
    record_new_places(state, event, cause, words, slots, old, new)


def _place_in_order(state: EngineState, slots: Ints, old: Ints, event: str) -> tuple[Ints, Ints, Ints]:
    """Place displaced jobs again in the order of their previous starts. Return slots, ``old`` and new starts
    in this order.
    """
    order = np.argsort(old, kind="stable")
    slots, old = slots[order], old[order]
    for slot in slots.tolist():
        record = state.by_slot[slot]
        if record is not None:
            place_job(state, record, event)
    return slots, old, state.plan.starts(slots)


@dataclass(slots=True)
class DisplacedJobs:
    """Planned jobs in conflict with several jobs that move in one step, unplaced until all have moved: the
    start of each by slot, and the reason of its move.
    """

    starts: dict[int, int] = field(default_factory=dict)
    words: dict[int, str] = field(default_factory=dict)

    def add(self, slots: Ints, starts: Ints, words: str) -> None:
        """Add removed slots with their previous starts."""
        self.starts |= zip(slots.tolist(), starts.tolist(), strict=True)
        self.words |= dict.fromkeys(slots.tolist(), words)

    def place_again(self, state: EngineState, event: str, cause: Cause) -> None:
        """Place them again, in the order of their previous starts."""
        if not self.starts:
            return
        slots = np.fromiter(self.starts, np.int64, len(self.starts))
        slots, old, new = _place_in_order(state, slots, np.fromiter(self.starts.values(), np.int64), event)
        why = np.array([self.words[slot] for slot in slots.tolist()])
        for words in dict.fromkeys(self.words.values()):
            these = why == words
            record_new_places(state, event, cause, words, slots[these], old[these], new[these])


def remove(state: EngineState, record: JobRecord) -> int:
    """Remove a job from the plan. Return its previous start, or -1."""
    state.without_place.pop(record.id, None)
    if record.slot < 0:
        return -1
    old = state.plan.start(record.slot)
    state.plan.remove(record.slot, state.now)
    return old


# ---- placing ------------------------------------------------------------------------------------


def place_job(
    state: EngineState, record: JobRecord, event: str, *, ahead: bool = False, unranked: bool = False
) -> None:
    """Place an unplaced job, or record why it waits; its own move is not recorded.

    ``ahead``: it may displace jobs of lower priority where that breaks no promise. ``unranked``: it has no
    rank yet, and gets that of the form of its request that is chosen. A failure to plan the job
    quarantines it; other jobs are not affected.
    """
    with JobErrorGuard(state, record.id, event):
        _place_job(state, record, event, ahead=ahead, unranked=unranked)


def _place_job(state: EngineState, record: JobRecord, event: str, *, ahead: bool, unranked: bool) -> None:
    """Take the steps of each placement: dependencies, alternatives, obstacles, rank, time, place, promise."""
    state.without_place.pop(record.id, None)
    state.chained.pop(record.id, None)
    links = dependencies.find_dependencies(state, record)
    confined = component_confinement(state, record)
    record = _choose_form(state, _chain(state, record, links, confined), unranked=unranked)
    record, wait = _find_wait(state, record, event)
    if wait is not None:
        _block_until(state, record, wait, links)
        return
    correct_last_rank(state, record)
    eligible = _set_ready_time(state, record)
    if state.policy is not None:
        state.queue[record.slot] = None
        record = apply_step(record, Step.ELIGIBLE, eligible_since=eligible)
        state.store_record(apply_step(record, Step.PLANNED, choice=None))
    elif confined is not None:
        _place_confined(state, _eligible(record, eligible), confined)
    else:
        _place_in_gap(state, record, eligible, event, ahead=ahead)


def _choose_form(state: EngineState, record: JobRecord, *, unranked: bool) -> JobRecord:
    """Choose the form of a job's request. Its rank depends on that; in the light mode only on the first."""
    ranked_again = state.site.weights.mode == "full" or record.eligible_since < 0
    chosen = record
    try:
        chosen = choose_form(state, record)
    finally:
        if unranked or (ranked_again and chosen.understood != record.understood):
            set_rank(state, chosen)
    return chosen


def _chain(
    state: EngineState,
    record: JobRecord,
    links: tuple[DependencyLink, ...] | WaitingFor,
    confined: Confinement | None,
) -> JobRecord:
    """Note the jobs that a dependent job is planned behind.

    A confined job is placed only when it may start; until then it stays unplanned.
    """
    behind = links if isinstance(links, tuple) and state.policy is None and confined is None else ()
    return record if behind == record.behind else apply_step(record, Step.CHAINED, behind=behind)


def _find_wait(
    state: EngineState, record: JobRecord, event: str
) -> tuple[JobRecord, WaitingFor | Never | None]:
    """Return why a job cannot be planned now; some reasons end its promise."""
    wait = _find_obstacle(state, record)
    if wait is not None:
        leave_components(state, record.id)
        return record, wait
    wait = component_wait(state, record)
    if isinstance(wait, WaitingFor) and wait.kind in promise_ends():
        record = end_promise(state, record, event, f"it waits for {wait.what}")
    elif isinstance(wait, WaitingFor) and state.promise[record.slot] < FOREVER and record.lost is None:
        record = apply_step(record, Step.BLAMED, lost=wait_causes().get(wait.kind))
    return record, wait


def _block_until(
    state: EngineState,
    record: JobRecord,
    wait: WaitingFor | Never,
    links: tuple[DependencyLink, ...] | WaitingFor,
) -> None:
    if isinstance(wait, WaitingFor) and wait.kind == "dependency" and isinstance(links, WaitingFor):
        wait = links
        if dependencies.may_be_planned(record):
            state.chained[record.id] = None
    state.queue.pop(record.slot, None)
    block_job(state, apply_step(record, Step.CHAINED, behind=()), wait)


def ready_time(state: EngineState, record: JobRecord) -> int:
    """Return the earliest start that a job's own state allows, which may be past.

    It is not before the job became eligible, and that is not moved to now: repairs start the job first whose
    ``ready`` in the plan is lowest, so a job that waited longest would come last.
    """
    ready = max(record.eligible_since, record.facts.not_before or 0, record.back_off.until)
    return max(ready, dependencies.ready_after(state, record.behind)) if record.behind else ready


def _set_ready_time(state: EngineState, record: JobRecord) -> int:
    """Set the earliest start of a job in the plan. Return since when it is eligible; -1: it is not."""
    eligible = record.eligible_since
    if eligible < 0 and is_eligible(record.facts, state.now):
        eligible = state.now
    if record.behind:
        state.chained[record.id] = None
    state.plan.set_ready(record.slot, max(eligible, ready_time(state, record)))
    return eligible


def release_in_place(state: EngineState, record: JobRecord) -> None:
    """Store the record of a planned job that may start now. It keeps its placement, and repair may move it
    earlier. If it was planned while on hold, it gets its promise now.
    """
    eligible = _eligible(record, _set_ready_time(state, record))
    make_promise(state, state.store_record(eligible), state.plan.start(record.slot))


def _eligible(record: JobRecord, since: int) -> JobRecord:
    if since == record.eligible_since:
        return record
    return apply_step(record, Step.ELIGIBLE, eligible_since=since)


def _place_confined(state: EngineState, record: JobRecord, confined: Confinement) -> None:
    if confined.place(state, record):
        planned = state.store_record(apply_step(record, Step.PLANNED, choice=None))
        make_promise(state, planned, state.plan.start(record.slot))
    else:
        block_job(state, record, WaitingFor("reservation", confined.missing_room))


def _place_in_gap(state: EngineState, record: JobRecord, since: int, event: str, *, ahead: bool) -> None:
    slot, eligible = record.slot, _eligible(record, since)
    start, choice = place_by_site_policy(state, eligible, event, ahead=ahead)
    if start < 0:
        words = explain_missing_start(state, record)
        if isinstance(words, Never):
            block_job(state, record, words)
        else:
            state.without_place[record.id] = None
            mark_for_update(state, record, words)
            state.store_record(apply_step(eligible, Step.NO_PLACE, answer=words))
        return
    dear = place_affordably(state, eligible, event)
    if dear is not None:
        leave_components(state, record.id)
        block_job(state, eligible, dear)
        return
    if ahead and state.ranking.has_effect and record.id not in state.capped:
        advance_job(state, slot, event)
    if (eligible.phase, eligible.answer, eligible.choice) != (Phase.WAITING, None, choice):
        eligible = apply_step(eligible, Step.PLANNED, choice=choice)
    make_promise(state, state.store_record(eligible), state.plan.start(slot))


def _find_obstacle(state: EngineState, record: JobRecord) -> WaitingFor | Never | None:
    if record.quarantine:
        return WaitingFor("quarantine", f"an administrator: planning it failed ({record.quarantine})")
    if record.understood.request is None:
        return Never(record.understood.problem)
    if record.back_off.returns >= state.settings.returns_most:
        last = record.back_off.refusal or "a start that failed"
        return WaitingFor(
            "returned",
            f"an administrator: it came back to its queue {record.back_off.returns} times ({last})",
        )
    request = record.understood.request
    never = job_refusal(state, record.facts)
    if never is not None:
        return never
    never = find_uncounted(request, state.uncounted)
    # The request of its slot has further restrictions.
    if never is None and not (state.has_present_request(record) and state.plan.fits_in_slot(record.slot)):
        never = state.find_unmet_requirement(request)
    if never is not None:
        return never
    too_much = state.limits.too_much(state.plan.pool_amounts(record.slot))
    if too_much is not None:
        return too_much
    if is_planned_on_hold(state, record):
        return None
    wait = first_waiting_reason(
        record.facts, state.queue_stop_reason(record.facts.queue), chained=bool(record.behind)
    )
    return WaitingFor(*wait) if wait is not None else None


def follow_dependencies(state: EngineState, event: str) -> None:
    """Move dependent jobs with the jobs they wait for; plan them as soon as these have a start."""
    index = state.dependents
    index.replace_jobs(state.records[job_id] for job_id in state.chained)
    index.note_plan(state.plan, state.by_slot)
    for job_id in index.jobs_to_examine(state.now, list(state.chained)):
        with JobErrorGuard(state, job_id, event):
            if _follow_dependency(state, state.records[job_id], event):
                index.note_plan(state.plan, state.by_slot)
    index.forget_leaving()


def _follow_dependency(state: EngineState, record: JobRecord, event: str) -> bool:
    slot = record.slot
    if record.phase not in (Phase.WAITING, Phase.BLOCKED):
        return False  # it is about to start: its outcome comes first
    state.dependents.examined(
        record.id, planned=bool(record.behind), again_at=dependencies.again_at(state, record.behind)
    )
    if not record.behind:
        found = dependencies.find_dependencies(state, record)
        if not isinstance(found, WaitingFor):
            name = dependencies.last_prerequisite(state, found)
            replan(state, record, event, Cause.CHAIN, f"{name} has a planned start")
            return True
        if found != record.answer:
            mark_for_update(state, record, found)
            state.store_record(apply_step(record, Step.ANSWERED, answer=found))
        return False
    if state.plan.state(slot) != PLANNED:
        return False
    if left := dependencies.find_left_prerequisite(state, record.behind):
        replan(state, record, event, Cause.CHAIN, left)
        return True
    if dependencies.without_start(state, record.behind):
        name = dependencies.last_prerequisite(state, record.behind)
        replan(state, record, event, Cause.CHAIN, f"{name} has no planned start any more")
        return True
    ready = dependencies.ready_after(state, record.behind)
    ready = max(ready, record.facts.not_before or 0, record.back_off.until, state.now)
    if ready > state.plan.start(slot) and ready > state.now:
        name = dependencies.last_prerequisite(state, record.behind)
        replan(state, record, event, Cause.CHAIN, f"{name} is later than planned before")
        return True
    if ready < state.plan.ready(slot) and state.now < state.plan.start(slot):
        if record.id in state.capped:
            state.dependents.examined(record.id, planned=True, again_at=state.now + 1)
        else:
            state.plan.set_ready(slot, ready)
    return False


# ---- freed capacity and displaced jobs ----------------------------------------------------------


def move_later(
    state: EngineState, slot: int, start: int, event: str, cause: Cause, words: str, *, itself: bool = True
) -> Removed:
    """Move a placed job to a later ``start`` on its present nodes, and delay the planned jobs in conflict
    with it and those behind: see `delay_conflicting`.

    If that cannot be done, or the job has to keep its place (``itself`` False), the jobs in conflict and
    those behind them are removed instead. If a fixed job or a reservation is in conflict, the job itself is
    removed, unless it keeps its place. Return the removed slots and their previous starts; place them again
    with `replan_displaced`.
    """
    gone = start_later(state, slot, start, event, cause, words) if itself else None
    return gone if gone is not None else _move_and_displace(state, slot, start, itself)


def _move_and_displace(state: EngineState, slot: int, start: int, itself: bool) -> Removed:
    before = state.plan.starts(np.array([slot], np.int64))
    state.plan.move(slot, start, state.now)
    others = jobs_on_same_rows(state, [slot])
    starts = state.plan.jobs.starts.copy()
    starts[slot] = before[0]
    gone = state.plan.remove_overcommitted(np.append(others, slot) if itself else others)
    if gone.shape[0]:
        behind = remove_followers(state, others[::-1], int(starts[gone].min()), starts)
        gone = np.concatenate([gone, behind])
    return gone, starts[gone]


def displace_for(state: EngineState, stay: Sequence[int], event: str, cause: Cause, words: str) -> None:
    """Displace planned jobs that over-commit a node of the slots ``stay``, which stay.

    If the conflict lasts for at most an hour, these jobs and the jobs behind them are delayed on their nodes.
    Else the latest to start is removed first, and the jobs planned behind it on these nodes are replanned
    after it, so that it need not go behind all of them. Many conflicting jobs are processed in slices, next
    start first.
    """
    plan = state.plan
    slots = jobs_on_same_rows(state, stay)
    crowd = conflicting_jobs(state, stay, slots) if slots.shape[0] else slots
    lost = delay_conflicting(state, stay, crowd, event, cause, words) if crowd.shape[0] else None
    if lost is not None:
        replan_displaced(state, *lost, event, cause, words)
        return
    if queue_if_many(state, crowd, event, words, cause):
        return
    old = plan.jobs.starts.copy()
    gone = plan.remove_overcommitted(slots) if slots.shape[0] else slots
    if not gone.shape[0]:
        return
    behind = remove_followers(state, slots[::-1], int(old[gone].min()), old)
    moved = np.concatenate([gone, behind])
    replan_displaced(state, moved, old[moved], event, cause, words)


def replan_overcommitted(state: EngineState, slots: Ints, event: str, cause: Cause, words: str) -> int:
    """Replan jobs of ``slots`` on over-committed nodes or pools, in this order. Return their number."""
    starts = state.plan.jobs.starts.copy()
    gone = state.plan.remove_overcommitted(slots)
    if gone.shape[0]:
        gone = gone[::-1]  # the job removed last is placed first
        replan_displaced(state, gone, starts[gone], event, cause, words)
    return int(gone.shape[0])


def replan_jobs(state: EngineState, slots: Ints, event: str, cause: Cause, words: str) -> None:
    """Replan these planned jobs, which may not stay; many of them in slices."""
    if slots.shape[0] and not queue_if_many(state, slots, event, words, cause):
        replan_jobs_now(state, slots, event, cause, words)


def replan_jobs_now(state: EngineState, slots: Ints, event: str, cause: Cause, words: str) -> None:
    """Replan these planned jobs at once."""
    old = state.plan.starts(slots)
    for slot in slots.tolist():
        state.plan.remove(slot, state.now)
    replan_displaced(state, slots, old, event, cause, words)


def place_unplaced(state: EngineState, event: str, words: str) -> None:
    """Retry the jobs without an available node."""
    _plan_again(state, [state.records[job_id] for job_id in state.without_place], event, words)


def recheck_impossible(state: EngineState, event: str, words: str) -> None:
    """Check again, after a change of nodes, the jobs that could never run."""
    _plan_again(state, [r for r in state.records.values() if isinstance(r.answer, Never)], event, words)


def displace_in_lowered_pools(state: EngineState, event: str, cause: Cause, words: str) -> None:
    """Replan jobs in pools of lowered capacity, latest start first, and jobs that need more than the new
    capacity.

    While a change of limits is being processed, only limits of arrays are handled here: the re-evaluation
    handles the other jobs.
    """
    book, plan = state.limits, state.plan
    known = book.lowered & book.pools.keys() & plan.pools.keys()
    lowered = sorted(pool for pool in known if not state.to_reevaluate or book.pools[pool].who == "array")
    book.lowered = known.difference(lowered)
    for pool in lowered:
        slots = plan.jobs_in_pool(pool)
        waits = [slot for slot in slots.tolist() if book.too_much(plan.pool_amounts(slot))]
        replan_jobs(state, np.array(waits, np.int64), event, cause, words)
        replan_overcommitted(state, np.ascontiguousarray(plan.jobs_in_pool(pool)[::-1]), event, cause, words)


def remove_dependents(state: EngineState, job_id: str) -> tuple[Ints, Ints]:
    """Remove the planned jobs that depend on this one, directly or not, so that they do not block it.

    Return their slots and previous starts: see ``replan_displaced``.
    """
    state.dependents.replace_jobs(state.records[name] for name in state.chained)
    found: dict[int, None] = {}
    heads = _names_in_dependencies([state.records[job_id]])
    order: dict[str, int] = {}
    while heads:
        names = {name for head in heads for name in state.dependents.waiting_for(head)}
        if names and not order:
            order = {name: i for i, name in enumerate(state.chained)}
        waiting = [state.records[name] for name in sorted(names, key=lambda name: order[name])]
        waiting = [one for one in waiting if one.slot not in found]
        waiting = [one for one in waiting if any(link.job in heads for link in one.behind)]
        found |= dict.fromkeys(one.slot for one in waiting)
        heads = _names_in_dependencies(waiting)
    slots = np.array([slot for slot in found if state.plan.state(slot) == PLANNED], np.int64)
    old = state.plan.starts(slots)
    for slot in slots.tolist():
        state.plan.remove(slot, state.now)
    return slots, old


def _names_in_dependencies(records: Iterable[JobRecord]) -> set[str]:
    """Return the names by which others may depend on these jobs: their own, and those of their arrays."""
    return {name for one in records for name in (one.id, one.facts.array) if name}


def _plan_again(state: EngineState, records: Iterable[JobRecord], event: str, words: str) -> None:
    found = [record for record in records if record.slot >= 0]
    if are_many(found):
        queue_reevaluation(state, found, event, words, Cause.FREED)
    else:
        for record in found:
            plan_job(state, record, event, Cause.FREED, words)
