"""Start outages: run requests that the server refuses one after another, whatever the job.

Four kinds count: refusals that do not concern the job (``RunRefused.outage``), the same error code of the
server for several jobs, refusals by the server's hook for many jobs over some time (a hook may refuse a few
jobs for their own properties), and refusals by nodes, until several or all refuse: these may be closed
meanwhile, which has alerts of its own. Any accepted run ends the outage.

While the server answers, but refuses all starts, one run is requested at a time, and seldom: each request
costs the server and the planner as much as a start. A job that was not refused yet goes first: perhaps only
the others are at fault.
"""

from dataclasses import replace
from typing import Final

from schedd.dialect import Dialect
from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import ready_time
from schedd.model import FOREVER, NodeState
from schedd.plan.columns import PLANNED
from schedd.wire import RunRefused

_OUTAGE_CODE: Final = -1  # refusals that do not concern the job, whatever their text
_NODES_CODE: Final = -2  # refusals by nodes, whatever their code
_ALERT_AFTER_S: Final = 30
_ALERT_AFTER_JOBS: Final = 5
_ALERT_AFTER_NODES: Final = 3  # by refusals of nodes
_HOOK_ALERT_AFTER_S: Final = 60
_HOOK_ALERT_AFTER_JOBS: Final = 20  # the same for refusals by the server's hook
_LONGEST_RETRY_WAIT_S: Final = 60


def note_refused_run(state: EngineState, event: RunRefused, dialect: Dialect, answer: str) -> None:
    """Record a refusal. Open the alert once consecutive refusals are not the fault of single jobs."""
    code = _OUTAGE_CODE if event.outage else event.code
    hook = not event.outage and dialect.is_refused_by_hook(code)
    by_node = not event.outage and dialect.is_refused_by_node(code)
    if by_node:
        code = _NODES_CODE
    if not (event.outage or hook or by_node) and (code == 0 or dialect.is_job_specific(code)):
        state.refused_jobs.pop(event.job_id, None)  # its backoff does not end with the outage
        return
    if code != state.refused_code or state.refused_since < 0:
        state.refused_code, state.refused_since, state.refused_jobs = code, state.now, {}
    state.refused_jobs[event.job_id] = None
    number, length = len(state.refused_jobs), state.now - state.refused_since
    if by_node:
        return  # perhaps this node alone: see `note_refusing_nodes`
    if hook:
        certain = number >= _HOOK_ALERT_AFTER_JOBS and length >= _HOOK_ALERT_AFTER_S
    else:
        certain = number >= _ALERT_AFTER_JOBS or (event.outage and length >= _ALERT_AFTER_S)
    if certain:
        _raise_outage(state, event, answer)


def note_refusing_nodes(state: EngineState, event: RunRefused, answer: str) -> None:
    """Open the alert if several nodes refuse jobs, or refusals have closed all: nothing would start then."""
    if state.refused_code != _NODES_CODE or event.job_id not in state.refused_jobs:
        return
    refusing = [
        name
        for name, failures in state.failures.items()
        if any(moment >= state.refused_since for _, _, moment in failures)
    ]
    others = any(
        node.state is NodeState.UP and name not in state.black_holes
        for name, node in state.plan.nodes.items()
    )
    several = len(refusing) >= _ALERT_AFTER_NODES and len(state.refused_jobs) >= _ALERT_AFTER_JOBS
    if several or (state.black_holes and not others):
        _raise_outage(state, event, answer)


def _raise_outage(state: EngineState, event: RunRefused, answer: str) -> None:
    if state.starts_refused:
        return
    number = len(state.refused_jobs)
    jobs = f"{number} {'job was' if number == 1 else 'jobs were'}"
    since = format_moment(state.refused_since)
    state.starts_refused = f"no start has succeeded since {since}: {jobs} refused, the last by {answer}"
    state.alert(event.id, "starts_refused", state.starts_refused, since=state.refused_since)


def outage_retry_wait(state: EngineState) -> int:
    """Return the seconds until the next attempt after a refusal by an outage: half the outage's length so
    far, from ``check_wait`` to one minute.
    """
    length = state.now - state.refused_since
    return max(state.settings.check_wait, min(_LONGEST_RETRY_WAIT_S, length // 2))


def is_refused_by_server(state: EngineState) -> bool:
    """Return whether the server answers, but refuses all starts."""
    return bool(state.starts_refused) and state.refused_code not in (_OUTAGE_CODE, _NODES_CODE)


def next_start_attempt(state: EngineState) -> int:
    """Return when a run may be requested again while the server refuses all; otherwise now. FOREVER: when the
    outcome of the pending request is known.
    """
    if not is_refused_by_server(state):
        return state.now
    if state.dispatched:
        return FOREVER
    refused = (state.records.get(job_id) for job_id in state.refused_jobs)
    last = max((record.attempt.decided for record in refused if record is not None), default=-1)
    return last + outage_retry_wait(state)


def end_start_outage(state: EngineState) -> None:
    """A run was accepted: jobs that wait for the end of an outage may start at once."""
    retry_refused_jobs(state)
    state.refused_code, state.refused_since, state.refused_jobs = 0, -1, {}
    state.starts_refused = ""


def forget_start_outage(state: EngineState) -> None:
    """End an outage if none of its refused jobs is left in the queue: nothing would show its end, and a later
    refusal would count the time until then. Not while the plan is rebuilt, when no job is known.
    """
    if state.refused_since < 0 or state.stale or state.arriving:
        return
    if not any(
        job_id in state.records and state.records[job_id].phase in (Phase.WAITING, Phase.DISPATCHED)
        for job_id in state.refused_jobs
    ):
        end_start_outage(state)


def retry_refused_jobs(state: EngineState) -> None:
    """Let the jobs that an outage kept from starting be tried at once, but do not end the outage."""
    if state.refused_code != _OUTAGE_CODE:
        return
    for job_id in state.refused_jobs:
        record = state.records.get(job_id)
        if record is None or record.phase is not Phase.WAITING or record.back_off.until <= state.now:
            continue
        earlier = state.unresolved.get(job_id)
        if earlier is not None and earlier.until >= state.now:  # it may still be carried out
            continue
        record = apply_step(record, Step.PUT_OFF, back_off=replace(record.back_off, until=state.now))
        state.store_record(record)
        if record.slot >= 0 and state.plan.state(record.slot) == PLANNED:
            state.plan.set_ready(record.slot, ready_time(state, record))
            state.next_due = None
