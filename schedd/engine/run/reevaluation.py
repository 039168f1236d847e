"""Re-evaluation of jobs after a change that affects many: defaults, nodes, queues, limits, reservations, site
policy.

If many jobs are affected, the following calls of the engine examine a slice each, next planned start first,
while events continue. A due job is examined before its start, so no disallowed job starts; until then the
plan may exceed a lowered limit.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Final

import numpy as np

from schedd.engine.component.job_hooks import job_refusal
from schedd.engine.facts.arrivals import ARRIVALS_PER_CALL
from schedd.engine.facts.job_requests import first_waiting_reason
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.reevaluation_queue import WAITING_PHASES, queue_reevaluation
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import (
    displace_in_lowered_pools,
    plan_job,
    replan,
    replan_jobs_now,
    replan_overcommitted,
)
from schedd.engine.place.slot_requests import refresh_request
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.run.altered_jobs import replan_with_facts
from schedd.model import Never, WaitingFor
from schedd.plan.columns import PLANNED

_LIFTED: Final = ("limit", "deadline", "reservation")
"""Kinds of waiting that another policy or reservation may end."""
_LOOKS = 10 * ARRIVALS_PER_CALL  # maximum number of jobs examined per call, if few of them are replanned
_STEP = 40  # number of jobs between two checks of the work done
_WORK = 4_000_000
"""Maximum work per call in visited segments: about an eighth of a second; wide jobs take most of it."""


def reevaluate_waiting(state: EngineState, event: str, queue: str | None, words: str) -> None:
    """Re-evaluate waiting jobs (of ``queue``; None: all) after changed defaults or nodes.

    What running jobs hold stays as it is; only the remarks on their requests follow the change.
    """
    for record in list(state.records.values()):
        if record.phase is Phase.RUNNING and (queue is None or record.facts.queue == queue):
            with JobErrorGuard(state, record.id, event):
                _renew_notes(state, record)
    _reevaluate_soon(state, _waiting(state, queue), event, words)


def follow_queue(state: EngineState, event: str, queue: str, words: str) -> None:
    """Re-evaluate the waiting jobs of a queue that was started or stopped."""
    _reevaluate_soon(state, _waiting(state, queue), event, words)


def limits_changed(state: EngineState, event: str, words: str) -> None:
    """Apply changed limits to jobs."""
    if state.requests.set_shared(state.limits.shared):
        reevaluate_waiting(state, event, None, words)
    follow_limits(state, event, words)


def follow_limits(state: EngineState, event: str, words: str) -> None:
    """Recount jobs after a change of limits, and replan jobs beyond the new limits."""
    for record in state.records.values():
        if record.phase not in WAITING_PHASES:
            state.refit(record)
    _reevaluate_soon(state, _waiting(state, None), event, words)


def _waiting(state: EngineState, queue: str | None) -> Iterable[JobRecord]:
    return (
        record
        for record in state.records.values()
        if record.phase in WAITING_PHASES and (queue is None or record.facts.queue == queue)
    )


def _reevaluate_soon(state: EngineState, some: Iterable[JobRecord], event: str, words: str) -> None:
    """Queue jobs for re-evaluation; a few are examined at once."""
    queue_reevaluation(state, some, event, words)
    if len(state.to_reevaluate) <= ARRIVALS_PER_CALL:
        reevaluate_slice(state, event)


def reevaluate_slice(state: EngineState, event: str) -> None:
    """Examine the next queued jobs, and replan jobs with changed requests or disallowed placements."""
    looked = changed = 0
    enough = state.plan.work + _WORK
    while (
        state.to_reevaluate and looked < _LOOKS and changed < ARRIVALS_PER_CALL and state.plan.work < enough
    ):
        some = list(islice(state.to_reevaluate, min(_STEP, ARRIVALS_PER_CALL)))
        changed += reevaluate(state, some)
        looked += len(some)
    if not state.to_reevaluate:
        state.limits.forget(state.plan.drop_idle_pools())
    if state.limits.lowered:
        displace_in_lowered_pools(state, event, Cause.QUEUE, "a limit was lowered")


def reevaluate(state: EngineState, jobs: Iterable[str]) -> int:
    """Examine these queued jobs. Return the number of replanned jobs."""
    changed = 0
    stay: dict[tuple[str, Cause, str], list[int]] = {}
    for job_id in jobs:
        event, words, cause_name = state.to_reevaluate.pop(job_id)
        record = state.records.get(job_id)
        if record is not None:
            with JobErrorGuard(state, job_id, event):
                if _reevaluate_job(state, record, event, words, Cause(cause_name)):
                    changed += 1
                elif record.slot >= 0 and state.plan.state(record.slot) == PLANNED:
                    why = (event, *_no_room(state, record, words, Cause(cause_name)))
                    stay.setdefault(why, []).append(record.slot)
    for (event, cause, words), slots in stay.items():
        found = np.sort(np.array(slots, np.int64))
        found = found[np.argsort(state.plan.starts(found), kind="stable")]
        misplaced = state.plan.misplaced(found)
        if misplaced.shape[0]:  # some hold nodes they may no longer use, or nodes of several sets
            replan_jobs_now(state, misplaced, event, _node_cause(cause), words)
            changed += misplaced.shape[0]
        changed += replan_overcommitted(state, np.ascontiguousarray(found[::-1]), event, cause, words)
    return changed


def _no_room(state: EngineState, record: JobRecord, words: str, cause: Cause) -> tuple[Cause, str]:
    """Return the cause for a job without room in its limits: fewer licences, or the changed limit."""
    book = state.limits
    for pool in state.plan.pool_amounts(record.slot) if book.lowered else ():
        limit = book.pools.get(pool)
        if limit is None or pool not in book.lowered or limit.scope or limit.queue:
            continue
        if limit.shared and limit.who == "all":
            return Cause.LICENCE, f"{limit.what}: only {limit.amount} can be used at once"
    return cause, words


def _node_cause(cause: Cause) -> Cause:
    """Return the cause for a job that leaves nodes it may no longer use."""
    return Cause.ADMIN if cause is Cause.QUEUE else cause


def _place_cause(cause: Cause) -> Cause:
    """Return the cause for a job that gets a place: a changed reservation, or freed capacity."""
    return cause if cause is Cause.RESERVATION else Cause.FREED


def _reevaluate_job(state: EngineState, record: JobRecord, event: str, words: str, cause: Cause) -> bool:
    """Examine one job. Return whether it was replanned."""
    if record.phase in WAITING_PHASES and _reads_differently(state, record):
        replan_with_facts(state, event, record, record.facts, Cause.ADMIN, words)
        return True
    record = _renew_notes(state, record)
    refresh_request(state, record)
    state.refit(record)
    if record.phase not in WAITING_PHASES or record.slot < 0:
        return False
    answer = record.answer
    waits = answer.kind if isinstance(answer, WaitingFor) else ""
    if record.phase is Phase.BLOCKED and (waits in _LIFTED or isinstance(answer, Never)):
        plan_job(state, record, event, _place_cause(cause), words)
    elif record.phase is Phase.WAITING and state.limits.too_much(state.plan.pool_amounts(record.slot)):
        replan(state, record, event, *_no_room(state, record, words, cause))
    elif record.phase is Phase.WAITING and job_refusal(state, record.facts) is not None:
        replan(state, record, event, _node_cause(cause), words)
    elif _has_wrong_queue_state(state, record, waits):
        held = ("queue", record.facts.queue) in state.holds
        stopped = Cause.ADMIN if held else Cause.QUEUE
        cause = stopped if record.phase is Phase.WAITING else Cause.RELEASED
        replan(state, record, event, cause, words)
    elif record.id in state.without_place:
        plan_job(state, record, event, _place_cause(cause), words)
    elif _on_lost_node(state, record):
        replan(state, record, event, _node_cause(cause), words)
    else:
        return False
    return True


def _on_lost_node(state: EngineState, record: JobRecord) -> bool:
    """Return whether a planned job is on a node that takes no new jobs, or that was given up."""
    if state.plan.state(record.slot) != PLANNED:
        return False
    return any(name not in state.down_since for name in state.plan.unusable_nodes(record.slot))


def _reads_differently(state: EngineState, record: JobRecord) -> bool:
    facts = record.facts
    if facts.id in state.aside:
        return False
    return state.read_request(facts) != record.understood


def _renew_notes(state: EngineState, record: JobRecord) -> JobRecord:
    """Return the record with the present remarks on its request: equal requests may differ in these."""
    request = record.understood.request
    if request is None or record.id in state.aside or record.phase is Phase.DISPATCHED:
        return record
    found = state.read_request(record.facts).request
    if found is None or found.notes == request.notes:
        return record
    understood = replace(record.understood, request=replace(request, notes=found.notes))
    if record.phase is Phase.RUNNING:
        changed = apply_step(
            record, Step.RUN_AGAIN, facts=record.facts, understood=understood, run=record.run
        )
    else:
        changed = apply_step(record, Step.READ, facts=record.facts, understood=understood)
    return state.store_record(changed)


def _has_wrong_queue_state(state: EngineState, record: JobRecord, waits: str) -> bool:
    """Return whether a job has a start in a stopped queue, or none in a queue that runs again."""
    if record.phase is Phase.BLOCKED and waits != "queue":
        return False  # it waits for something else first
    wait = first_waiting_reason(
        record.facts, state.queue_stop_reason(record.facts.queue), chained=bool(record.behind)
    )
    if record.phase is Phase.WAITING:
        return wait is not None and wait[0] == "queue"
    return wait is None or WaitingFor(*wait) != record.answer
