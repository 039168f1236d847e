"""Recovery from calls that failed or hung.

The shell skips such a batch: it rebuilds the engine without it and reports ``BatchSkipped``. The work in
progress, ``at_job`` and ``at_step`` of the state, is suspended: the job is quarantined, or the step skipped
for a while.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Final

from schedd.engine.component.cluster_hooks import rebuild_components
from schedd.engine.component.parts import rebuilt_part
from schedd.engine.component.registry import components
from schedd.engine.facts.carried_jobs import CarriedJob
from schedd.engine.facts.carry_over import carry_jobs
from schedd.engine.facts.job_requests import ParsedRequest, holds_resources
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.machine.nodes import block_nodes
from schedd.engine.place.placement import displace_for, ready_time
from schedd.engine.rank.quarantine import quarantine
from schedd.engine.run.running import fix_shares
from schedd.plan.columns import FIXED
from schedd.wire import BatchSkipped, Event, JobAltered, JobFacts, JobQueued, JobReleased, JobStarted

_AGAIN = 3600  # minimum time in seconds before a job that hung the planner is examined again
_LEAVE_OUT = 60  # initial skip of a failed step in seconds
_LEAVE_OUT_MOST: Final = 3600
"""Each time that it fails again soon it is left out for twice as long, up to this."""
_STARTS: Final = "dispatch"  # while this step is skipped nothing is started, so its pause is not extended
_WHY = "the planner did not come back from it"
CARRIED: Final = frozenset(
    {
        *("settings", "now", "policy", "site", "configured", "policy_version", "paused", "foreign"),
        *("paused_since", "unscheduled_since"),
        *("adapter_mode", "aside", "skipped_steps", "generation", "decisions", "moves", "jobs_moved_by"),
        "ended_promises",
        *("decision_number", "change_number", "breaches", "owners", "holds", "walltime_use", "lost"),
        *("diverged", "unsure_until", "unexplained_starts", "unresolved"),
        "unread_until",
        *("refused_since", "refused_code", "refused_jobs", "starts_refused"),
        *("lives", "black_holes", "failures", "excused_at", "alerts", "frees"),
        *("at_event", "at_job", "at_step", "absent_since"),
        *("write_second", "writes_in_second", "start_second", "starts_in_second", "starts_by_node"),
    }
)
"""Fields of the state that stay when the plan is rebuilt: what people have set, and what counts on. A test
lists those kept in part, and the others, which the next snapshot provides.
"""


def apply_skipped_batches(state: EngineState, events: Iterable[Event]) -> None:
    """Set aside what made calls fail, as the ``BatchSkipped`` among ``events`` say."""
    for event in events:
        if isinstance(event, BatchSkipped):
            _apply_skipped_batch(state, event)


def _apply_skipped_batch(state: EngineState, event: BatchSkipped) -> None:
    state.decision_number = max(state.decision_number, event.decided)
    state.lose_track()
    sentences = [f"the planner could not handle batch {event.batch} of events and skipped it ({event.why})"]
    for step in event.steps:
        until, before = state.skipped_steps.get(step, (0, 0))
        most = _LEAVE_OUT if step == _STARTS else _LEAVE_OUT_MOST
        wait = min(2 * before, most) if before and state.now < until + before else _LEAVE_OUT
        state.skipped_steps[step] = (state.now + wait, wait)
        sentences.append(f'the step "{step}" is skipped for {wait} s')
    if event.anew:
        out = open_runs(state)
        for job, until in event.out.items():
            out[job] = max(until, out.get(job, -1))
        rebuild_state(state, out)
        sentences.append("the plan is rebuilt from a snapshot")
    for job_id in event.jobs:
        state.aside[job_id] = state.now
        sentences.append(f"job {job_id} is set aside and not planned")
        _quarantine_job(state, job_id, event.id)
    for job_id, until in event.out.items():
        record = state.records.get(job_id)
        if record is None:  # its arrival may be in the batch that was lost, too
            known = state.carried_jobs.get(job_id, CarriedJob())
            state.carried_jobs[job_id] = replace(known, open_until=max(until, known.open_until))
        elif record.phase in (Phase.WAITING, Phase.BLOCKED):
            # The decision is of a batch that was lost: it may still be carried out.
            until = max(record.back_off.until, until + state.settings.answer_grace + 1)
            record = state.store_record(
                apply_step(record, Step.PUT_OFF, back_off=replace(record.back_off, until=until))
            )
            if record.slot >= 0:
                state.plan.set_ready(record.slot, ready_time(state, record))
            state.hold_unresolved_start(record, event.out[job_id])
    state.alert(event.id, "batch_skipped", "; ".join(sentences))
    state.request_snapshot(event.id, "the planner skipped a batch of events")


def _quarantine_job(state: EngineState, job_id: str, event: str) -> None:
    record = state.records.get(job_id)
    if record is None:
        return
    if record.phase is Phase.DISPATCHED:
        state.hold_unresolved_start(record, record.attempt.expires)
        state.dispatched.pop(job_id, None)
        record = apply_step(record, Step.VOID)
    quarantine(state, record, event, _WHY)


def open_runs(state: EngineState) -> dict[str, int]:
    """By job: until when a run decision may still be carried out.

    Its job is dispatched; or it waits, as the decision is followed no longer; or no snapshot has listed it
    since the last rebuild.
    """
    found = {job: one.until for job, one in state.unresolved.items()}
    for job, kept in state.carried_jobs.items():
        found[job] = max(kept.open_until, found.get(job, -1))
    for job in state.dispatched:
        if job in state.records:
            found[job] = max(state.records[job].attempt.expires, found.get(job, -1))
    return {job: until for job, until in found.items() if until >= state.now}


def rebuild_state(state: EngineState, out: Mapping[str, int]) -> None:
    """Rebuild the state from user data and persistent counters; the next credible snapshot provides the rest.

    ``out``: end of validity of the run decisions that may still be carried out, by job.
    """
    kept = {
        job: replace(one, open_until=out.get(job, -1), eligible_since=min(one.eligible_since, state.now))
        for job, one in carry_jobs(state).items()
    }
    kept |= {job: CarriedJob(open_until=until) for job, until in out.items() if job not in kept}
    for job, until in out.items():
        if job in state.records and (job in state.dispatched or job not in state.unresolved):
            state.hold_unresolved_start(state.records[job], until)
    new = EngineState.empty(state.settings, state.now)
    new.carried_jobs = state.carried_jobs
    new.parts = {one.state: rebuilt_part(one, state.part(one.state)) for one in components()}
    new.gather_limits()
    new.update_request_reader()
    for field in fields(state):
        if field.name not in CARRIED:
            setattr(state, field.name, getattr(new, field.name))
    state.carried_jobs = kept
    state.stale = "the plan is made anew"
    rebuild_components(state)


# ---- jobs that are set aside ----------------------------------------------------------------------


def stays_quarantined(state: EngineState, event: Event, job_id: str) -> bool:
    """Return whether an event of a quarantined job is only recorded, not handled.

    The quarantine ends with the job, or when it is altered or released after an hour.
    """
    again = isinstance(event, JobAltered | JobReleased) and state.now >= state.aside[job_id] + _AGAIN
    facts = _facts(state, event, job_id)
    if again or facts is None or facts.state == "C":
        del state.aside[job_id]
        return False
    record = state.records.get(job_id)
    if record is None:
        nothing = ParsedRequest(None, state.settings.default_walltime, True, _WHY)
        record = JobRecord(facts, nothing, -1, Phase.BLOCKED)
        quarantine(state, record, event.id, _WHY)
        record = state.records[job_id]
    record = state.store_record(apply_step(record, Step.DESCRIBED, facts=facts))
    if holds_resources(facts) and record.phase is not Phase.RUNNING:
        block_nodes(state, record, event.id, f"job {job_id} runs there, which was set aside")
    return True


def retain_cores(state: EngineState, event: Event, job_id: str) -> None:
    """Keep the cores of a job that runs by an event that could not be handled. It holds them where it got as
    far as that; else its nodes are blocked.
    """
    facts, record = _facts(state, event, job_id), state.records.get(job_id)
    if facts is None or record is None or not holds_resources(facts):
        return
    if record.phase is Phase.RUNNING:
        if state.plan.state(record.slot) != FIXED:
            fix_shares(state, record)
            displace_for(state, [record.slot], event.id, Cause.ADMIN, f"job {job_id} was started there")
        return
    record = state.store_record(apply_step(record, Step.DESCRIBED, facts=facts))
    block_nodes(state, record, event.id, f"job {job_id} runs there, and its start could not be handled")


def _facts(state: EngineState, event: Event, job_id: str) -> JobFacts | None:
    """What an event says of a job that is there; None: it is over."""
    if isinstance(event, JobQueued | JobAltered):
        return event.job
    record = state.records.get(job_id)
    if record is None:
        return None
    if isinstance(event, JobStarted):
        return replace(record.facts, state="R", shares=event.shares, started=event.time)
    return None if event.type in ("job_ended", "job_deleted") else record.facts
