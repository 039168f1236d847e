"""Job events: arrival, alteration, hold, release, start, end, and return to the queue."""

from dataclasses import replace

from schedd.dialect import find_dialect
from schedd.dialect.shared import shared_amounts
from schedd.engine.component.job_hooks import (
    is_requeued_on_purpose,
    leave_components,
    report_about_job,
)
from schedd.engine.facts.bookkeeping import Bookkeeping, note_failed_bookkeeping
from schedd.engine.facts.carried_jobs import CarriedJob, request_size
from schedd.engine.facts.explanations import early_return_text
from schedd.engine.facts.job_requests import (
    held_by_limit,
    holds_resources,
    is_eligible,
    slot_limited,
)
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import BackOff, Cause, JobRecord, Phase, StartAttempt
from schedd.engine.facts.state import EngineState
from schedd.engine.facts.texts import NOT_ANNOUNCED
from schedd.engine.machine.failing_nodes import note_failure, note_run_end
from schedd.engine.machine.nodes import unblock_nodes
from schedd.engine.place.avoided_nodes import failed_on
from schedd.engine.place.placement import (
    plan_job,
    release_in_place,
    replan,
)
from schedd.engine.place.slot_requests import slot_for
from schedd.engine.rank.promises import end_promise, judge_restored
from schedd.engine.run.altered_jobs import apply_facts, replan_with_facts
from schedd.engine.run.restart_requeues import note_requeue_by_restart
from schedd.engine.run.running import (
    AHEAD,
    check_for_foreign_start,
    restore_suspensions,
    start_running,
)
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED
from schedd.wire import (
    JobAltered,
    JobDeleted,
    JobEnded,
    JobFacts,
    JobHeld,
    JobQueued,
    JobReleased,
    JobStarted,
)


def on_job_queued(state: EngineState, event: JobQueued) -> None:
    """Handle the arrival of a job, or its return to the queue."""
    facts = event.job
    known = state.records.get(facts.id)
    if facts.state == "C":
        _remove_job(state, event.id, facts.id, "is complete", event.time)
    elif known is None:
        _enter(state, event.id, facts)
    elif known.phase not in (Phase.RUNNING, Phase.DISPATCHED) or holds_resources(facts):
        apply_facts(state, event.id, known, facts)
    elif known.phase is Phase.RUNNING:
        if event.time >= known.run.started:  # else the message is old: the job has started since
            _return_to_queue(state, event.id, known, facts)
    elif facts.starts > known.facts.starts or (
        known.attempt.accepted and event.time >= known.attempt.decided
    ):
        _return_to_queue(state, event.id, known, facts)
    else:
        # The outcome of its run decision is still to come.
        state.store_record(apply_step(known, Step.DESCRIBED, facts=facts))


def _enter(state: EngineState, event: str, facts: JobFacts) -> None:
    understood = state.read_request(facts)
    slot = -1
    if understood.request is not None:
        slot = slot_for(state, understood, *state.request_and_pools(facts, understood, understood.request))
    record = JobRecord(facts, understood, slot, Phase.WAITING)
    kept = state.carried_jobs.pop(facts.id, None)
    if kept is not None and kept.is_same_job(facts.owner, facts.submitted):
        record = _restored(state, event, record, kept)
    state.store_record(record)
    if holds_resources(facts):
        started = facts.started if facts.started is not None else state.now
        # a start far in the future comes from a wrong clock and is unusable
        if state.now + AHEAD >= started > state.first_snapshot >= 0:
            check_for_foreign_start(state, event, record, started, facts.by)
        start_running(state, event, record, started, facts.shares)
        if kept is not None and kept.started == state.records[facts.id].run.started:
            restore_suspensions(state, event, facts.id, kept.suspended_since, kept.suspended_s)
        if kept is not None and kept.started >= 0:  # its promise was judged when it started
            record = state.records[facts.id]
            if record.run.started == kept.started and record.slot >= 0:
                state.promise[record.slot] = state.bound[record.slot] = kept.promised
    else:
        plan_job(state, record, event, Cause.ARRIVED, "it arrived", unranked=True)
        if kept is not None:
            judge_restored(state, state.records[facts.id], event)


def _restored(state: EngineState, event: str, record: JobRecord, kept: CarriedJob) -> JobRecord:
    """Return the record of a job known before a rebuild of the plan, with its promise; not stored."""
    slot, facts = record.slot, record.facts
    attempt, back_off = StartAttempt(), BackOff(returns=kept.returns, refusal=kept.refusal)
    if kept.open_until >= state.now:  # the outcome of its run decision is still unknown
        attempt = StartAttempt(decided=state.now, expires=kept.open_until)
        back_off = replace(back_off, until=kept.open_until + state.settings.answer_grace + 1)
    runs = holds_resources(facts)
    record = replace(
        record,
        eligible_since=kept.eligible_since,
        weak=kept.weak,
        attempt=attempt,
        back_off=BackOff(returns=kept.returns) if runs else back_off,
        breaches=kept.breaches,
        quarantine="" if runs else kept.quarantine,
    )
    promised = slot >= 0 and kept.promised < FOREVER and kept.started < 0
    if slot >= 0:
        state.published_start[slot] = kept.published_start
        state.published_at[slot] = state.written_at[slot] = kept.published_at
        state.update_due[slot], state.updates_marked = 1, True
        state.first_start_ahead = None
    if promised:
        state.promise[slot] = state.bound[slot] = kept.promised
    understood = record.understood
    # These also end the waiting time of a job without a promise.
    size = request_size(understood.request, understood.walltime)
    shared = shared_amounts(facts.resources, [name for name, _ in kept.shared], state.limits.types)
    if kept.started < 0 and not kept.fits(facts.queue, size, shared):
        return end_promise(state, record, event, "it asks for more, or is in another queue, than before")
    if not runs and not is_eligible(facts, state.now):
        return end_promise(state, record, event, "it may not start now")
    return apply_step(record, Step.RISKED, lost=Cause.OUTAGE, risk=kept.risk) if promised else record


def _return_to_queue(state: EngineState, event: str, record: JobRecord, facts: JobFacts) -> None:
    """Requeue a job that ran, or was accepted to run: its promise ends and it gets a new one.

    A job that returns shortly after its start is *returned*: it backs off, and is quarantined when this
    repeats too often. Not so if it was requeued on request, as its exit status says.
    """
    settings = state.settings
    ran = state.now - record.run.started if record.phase is Phase.RUNNING else 0
    nodes = job_nodes(state, record)
    on_request = is_requeued_on_purpose(state, record) or _was_rerun_on_request(record, facts)
    by_restart = note_requeue_by_restart(state, record)
    failed = ran < settings.returns_within and not on_request and not by_restart
    if record.phase is Phase.RUNNING:
        with Bookkeeping(state, record.id, "what its end says about its nodes"):
            note_run_end(state, record, event, failed=failed)
    elif not on_request:  # a node refused what the server had accepted
        with Bookkeeping(state, record.id, "that its nodes refused it"):
            note_failure(state, record, nodes, event)
    not_before = _open_until(state, record)
    if not_before:
        state.hold_unresolved_start(record, not_before)
    back_off = BackOff(not_before, record.back_off.refusals)
    if failed:
        returns = record.back_off.returns + 1
        wait = min(settings.refusal_most, settings.refusal_wait << min(returns - 1, 16))
        back_off = replace(
            back_off,
            until=max(not_before, state.now + wait),
            refusal=early_return_text(ran),
            returns=returns,
            failed_on=failed_on(record.back_off.failed_on, nodes),
        )
    # From here on it waits: if replanning fails, it holds nothing.
    record = state.store_record(_ended_run(state, event, record, back_off, "it came back to its queue"))
    replan_with_facts(state, event, record, facts, Cause.REFUSED, "it came back to its queue")


def _was_rerun_on_request(record: JobRecord, facts: JobFacts) -> bool:
    """Return whether the exit status of a returned job says that its nodes did not fail. Some servers keep
    the one of an earlier run, which says nothing of this one.
    """
    status = facts.exit_status
    if status is None or status == record.facts.exit_status:
        return False
    return not find_dialect(facts.family).speaks_against_node(status)


def job_nodes(state: EngineState, record: JobRecord) -> tuple[str, ...]:
    """Return the nodes of a running or starting job."""
    if record.facts.shares:
        return tuple(share.node for share in record.facts.shares)
    if record.slot < 0:
        return ()
    return tuple(state.plan.node_names[take.row] for take in state.plan.takes(record.slot))


def _ended_run(state: EngineState, event: str, record: JobRecord, back_off: BackOff, words: str) -> JobRecord:
    """Return the record after a run that ended while the job lives: as if just queued, its promise ended."""
    state.dispatched.pop(record.id, None)
    with Bookkeeping(state, record.id, "that it blocks no node any more"):
        unblock_nodes(state, record.id, event)
    _note_run(state, record, state.now)
    return apply_step(end_promise(state, record, event, words), Step.CAME_BACK, back_off=back_off)


def _open_until(state: EngineState, record: JobRecord) -> int:
    """Return from when a pending run decision can no longer be carried out; 0: none is pending.

    The reported start may be an older one, reported late: then the decision is still pending.
    """
    attempt, expires = record.attempt, record.attempt.expires
    answered = attempt.accepted or record.run.started >= expires - state.settings.decision_expiry
    if not attempt.decision or answered or state.now > expires:
        return 0
    return expires + 1


def on_job_altered(state: EngineState, event: JobAltered) -> None:
    """Handle a change of a job's request, queue, priority or name."""
    known = state.records.get(event.job.id)
    if event.job.state == "C":
        _remove_job(state, event.id, event.job.id, "is complete", event.time)
    elif known is None:
        _enter(state, event.id, event.job)
    else:
        apply_facts(state, event.id, known, event.job)


# ---- holds --------------------------------------------------------------------------------------


def on_job_held(state: EngineState, event: JobHeld) -> None:
    """Handle a hold. A running or dispatched job keeps its resources."""
    record = state.records.get(event.job_id)
    if record is None:
        return
    if record.phase is Phase.RUNNING:
        state.store_record(apply_step(record, Step.DESCRIBED, facts=replace(record.facts, holds=event.holds)))
        return
    eligible = record.facts.eligible if held_by_limit(event.holds) else None
    facts = replace(record.facts, holds=event.holds, state="H", eligible=eligible)
    if record.phase is Phase.DISPATCHED or slot_limited(facts):
        state.store_record(apply_step(record, Step.DESCRIBED, facts=facts))
        return
    record = end_promise(state, record, event.id, "it was held")
    record = apply_step(record, Step.DESCRIBED, facts=facts)
    replan(state, record, event.id, Cause.ALTERED, "it was held")
    state.note_freed(event.id, f"job {event.job_id} was held")


def on_job_released(state: EngineState, event: JobReleased) -> None:
    """Handle the end of the last hold or wait; this also ends a quarantine and a backoff."""
    record = state.records.get(event.job_id)
    if record is None:
        return
    eligible = record.facts.eligible if held_by_limit(record.facts.holds) else event.time
    facts = replace(record.facts, holds="", eligible=eligible)
    if record.phase is Phase.RUNNING:
        state.store_record(apply_step(record, Step.DESCRIBED, facts=facts))
        return
    facts = replace(facts, state="Q")
    if record.phase is Phase.DISPATCHED:
        state.store_record(apply_step(record, Step.DESCRIBED, facts=facts))
        return
    record = apply_step(apply_step(record, Step.DESCRIBED, facts=facts), Step.FORGIVEN)
    if record.slot >= 0 and state.plan.state(record.slot) == PLANNED and not _is_constrained(state, record):
        release_in_place(state, record)
        return
    replan(state, record, event.id, Cause.RELEASED, "it was released")


# ---- starts and ends ----------------------------------------------------------------------------


def _is_constrained(state: EngineState, record: JobRecord) -> bool:
    """Return whether its start depends on other jobs or on its cost limit, not only on free capacity."""
    return bool(record.behind) or record.id in state.capped


def on_job_started(state: EngineState, event: JobStarted) -> None:
    """Handle the start of a job, possibly on other nodes than planned, or not by this scheduler."""
    record = state.records.get(event.job_id)
    if record is None:
        state.alert(event.id, "unknown_job", f"job {event.job_id} {NOT_ANNOUNCED}")
    else:
        check_for_foreign_start(state, event.id, record, event.time, event.by)
        start_running(state, event.id, record, event.time, event.shares, by=event.by)


def on_job_gone(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Handle the end or deletion of a job; an unknown job is ignored."""
    record = state.records.get(event.job_id)
    if not isinstance(event, JobEnded):
        how = f"was moved to {event.moved_to}" if event.moved_to else "was deleted"
        if record is not None:
            state.dependents.note_leaving(record, how)
        _remove_job(state, event.id, event.job_id, how, event.time)
    elif record is None or record.phase is not Phase.RUNNING or record.facts.run_lost:
        _remove_job(state, event.id, event.job_id, "ended", event.time)
    else:
        status = event.exit_status
        dialect = find_dialect(record.facts.family)
        failed = status is not None and dialect.speaks_against_node(status)
        _remove_job(state, event.id, event.job_id, "ended", event.time, by_itself=not failed)
        try:
            note_run_end(state, record, event.id, failed=failed)
        except Exception as error:
            if not note_failed_bookkeeping(state, record.id, "what its end says about its nodes", error):
                raise


def _remove_job(
    state: EngineState, event: str, job_id: str, how: str, at: int, *, by_itself: bool = False
) -> None:
    """Remove a job: first its resources are freed, then its end is recorded, each part independently."""
    known = state.records.get(job_id)
    early = known is not None and known.slot >= 0 and state.plan.end(known.slot) > at
    record = state.remove(job_id)
    if record is None:
        with Bookkeeping(state, job_id, "what is held for it"):
            leave_components(state, job_id)
        return
    state.frees += early
    state.note_freed(event, f"job {job_id} {how}")
    try:
        unblock_nodes(state, job_id, event)
    except Exception as error:
        if not note_failed_bookkeeping(state, job_id, "that it blocks no node any more", error):
            raise
    _note_run(state, record, at)
    try:
        leave_components(state, job_id)
    except Exception as error:
        if not note_failed_bookkeeping(state, job_id, "what is held for it", error):
            raise
    report_about_job(state, "job_removed", record.facts, "its end in the component", record, at, by_itself)


def _note_run(state: EngineState, record: JobRecord, at: int) -> None:
    """Record the use and the cost of a run that ended. A lost run has used nothing: its end is unknown."""
    if record.facts.run_lost:
        at = record.run.started
    if record.phase is Phase.RUNNING:
        try:
            _record_walltime_use(state, record, at)
        except Exception as error:
            if not note_failed_bookkeeping(state, record.id, "what it used", error):
                raise
        report_about_job(state, "run_ended", record.facts, "what its end means for", record, at)


def _record_walltime_use(state: EngineState, record: JobRecord, end: int) -> None:
    """Record the used share of the requested walltime. An assumed walltime was not requested."""
    if not record.understood.assumed and not record.facts.run_lost:
        cpus = sum([share.cpus for share in record.facts.shares])
        run = record.run.computed_s(end)
        state.walltime_use = state.walltime_use.after(cpus, record.understood.walltime, run)
