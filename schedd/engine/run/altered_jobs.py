"""Altered jobs: the server's new facts of a known job, and their effects on its plan."""

from schedd.engine.facts.job_requests import holds_resources, is_eligible
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.avoided_nodes import with_avoided
from schedd.engine.place.placement import (
    place_job,
    remove,
    remove_dependents,
    replan_displaced,
)
from schedd.engine.place.slot_requests import slot_for
from schedd.engine.rank.promises import end_promise, record_move
from schedd.engine.rank.ranking import advance_job, set_rank
from schedd.engine.run.altered_requests import limit_keys, promise_end_reason
from schedd.engine.run.running import (
    check_for_foreign_start,
    on_running_job_altered,
    start_running,
)
from schedd.model import FOREVER, NodeState
from schedd.plan.columns import PLANNED
from schedd.plan.shapes import shape_key
from schedd.wire import (
    JobFacts,
)


def apply_facts(
    state: EngineState,
    event: str,
    known: JobRecord,
    facts: JobFacts,
    cause: Cause = Cause.ALTERED,
    words: str = "it was altered",
) -> None:
    """Apply the server's present description of a known job."""
    if holds_resources(facts) and known.phase is not Phase.RUNNING:
        started = facts.started if facts.started is not None else state.now
        check_for_foreign_start(state, event, known, started, facts.by)
        known = state.store_record(apply_step(known, Step.DESCRIBED, facts=facts))
        start_running(state, event, known, started, facts.shares)
    elif known.phase is Phase.RUNNING:
        on_running_job_altered(state, event, known, facts)
    elif known.phase is Phase.DISPATCHED:
        # It keeps its placement until the outcome of its run decision is known.
        if facts.queue != known.facts.queue:
            known = end_promise(state, known, event, f"it was moved to queue {facts.queue}")
        state.store_record(apply_step(known, Step.DESCRIBED, facts=facts))
    elif _bears_on_plan(state, known, facts):
        replan_with_facts(state, event, apply_step(known, Step.FORGIVEN), facts, cause, words)
    else:
        record = state.store_record(apply_step(known, Step.DESCRIBED, facts=facts))
        _apply_priority(state, event, record, known.facts.priority)


def _apply_priority(state: EngineState, event: str, record: JobRecord, before: int) -> None:
    """Rerank a job after a change of its own priority; a higher priority may displace other jobs."""
    slot = record.slot
    if slot < 0 or record.facts.priority == before:
        return
    set_rank(state, record)
    old = state.plan.start(slot)
    if state.plan.state(slot) == PLANNED and advance_job(state, slot, event):
        record_move(state, event, Cause.ALTERED, "its priority was raised", slot, old, state.plan.start(slot))


def _bears_on_plan(state: EngineState, known: JobRecord, facts: JobFacts) -> bool:
    """Return whether the new facts affect the job's plan."""
    old = known.facts
    understood = state.read_request(facts)
    return (
        understood != known.understood
        or (old.state, old.holds, old.queue, old.not_before)
        != (facts.state, facts.holds, facts.queue, facts.not_before)
        or (old.resources, old.depend) != (facts.resources, facts.depend)
        or limit_keys(old) != limit_keys(facts)
        or old.slot_limit != facts.slot_limit
    )


def replan_with_facts(
    state: EngineState, event: str, record: JobRecord, facts: JobFacts, cause: Cause, words: str
) -> None:
    """Replan a job that is not about to start, with the server's present facts.

    A larger request, a lower cost limit, another queue, another booking and ineligibility end its promise; a
    smaller request keeps it.
    """
    before = record.facts
    understood = state.read_request(facts)
    reason = promise_end_reason(state, state.limits, state.site, record, facts, understood)
    if not reason and not is_eligible(facts, state.now):
        reason = words
    if reason:
        record = end_promise(state, record, event, reason)
    if facts.slot_limit != before.slot_limit:
        cause, words = Cause.QUEUE, "the slot limit of its array was changed"
    if _on_lost_node(state, record):
        record = apply_step(record, Step.BLAMED, lost=Cause.NODE_LOST)
    old = remove(state, record)
    followers, before_them = remove_dependents(state, record.id) if state.chained else (None, None)
    record = _fit_slot(state, apply_step(record, Step.READ, facts=facts, understood=understood))
    if (
        record.slot >= 0
        and record.facts.array
        and state.limits.lowered & state.plan.pool_amounts(record.slot).keys()
    ):
        cause, words = Cause.QUEUE, "the slot limit of its array was changed"
    set_rank(state, record)
    state.note_freed(
        event, f"job {record.id} {words.removeprefix('it ')}" if words.startswith("it ") else words
    )
    place_job(state, record, event, ahead=True)
    slot = state.records[record.id].slot
    if slot >= 0:
        start = state.plan.start(slot)
        record_move(state, event, cause, words, slot, old, start)
        settled = state.records[record.id]
        if settled.lost is not None and start >= 0:
            state.store_record(apply_step(settled, Step.BLAMED, lost=None))
    if followers is not None and before_them is not None:
        replan_displaced(
            state, followers, before_them, event, Cause.CHAIN, f"job {record.id} was planned anew"
        )


def _on_lost_node(state: EngineState, record: JobRecord) -> bool:
    """Return whether a promised job is planned on an unusable node, so that it may start later elsewhere."""
    slot = record.slot
    if slot < 0 or state.plan.start(slot) < 0 or state.promise[slot] >= FOREVER:
        return False
    names = [state.plan.node_names[take.row] for take in state.plan.takes(slot)]
    return any(state.plan.nodes[name].state is not NodeState.UP for name in names)


def _fit_slot(state: EngineState, record: JobRecord) -> JobRecord:
    """Give an unplaced job a slot for its present request; its promise and its published start move along."""
    understood, slot = record.understood, record.slot
    request = understood.request
    wanted = state.planned_request(record.facts, request) if request is not None else None
    if wanted is not None:
        wanted = with_avoided(state, record, wanted)
    if slot >= 0 and wanted is not None and shape_key(state.plan.request(slot)) == shape_key(wanted):
        state.plan.set_duration(slot, understood.walltime, state.now)
        (state.assumed.add if understood.assumed else state.assumed.discard)(slot)
        state.refit(record)
        return record
    new = -1
    if wanted is not None:
        new = slot_for(state, understood, wanted, state.pools_for(record.facts, understood))
    if slot >= 0:
        if new >= 0:
            for column in (
                state.promise,
                state.bound,
                state.published_start,
                state.published_at,
                state.written_at,
            ):
                column[new] = column[slot]
            state.update_due[new] = (
                state.update_due[slot] or state.published_start[slot] >= 0
            )  # it has no start yet
            state.updates_marked = True
            state.first_start_ahead = None
        state.drop_slot(slot)
    return apply_step(record, Step.GIVEN_SLOT, slot=new)


def is_unchanged(state: EngineState, record: JobRecord) -> bool:
    """Return whether a job with a failed run decision may still start at its placement."""
    facts = record.facts
    understood = state.read_request(facts)
    return (
        understood == record.understood
        and is_eligible(facts, state.now)
        and not state.queue_stop_reason(facts.queue)
    )
