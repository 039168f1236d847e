"""Dispatch of events to their handlers; an error about one job is confined to that job."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from schedd.engine import plan_improvements
from schedd.engine.component.job_hooks import report_end
from schedd.engine.component.registry import NOTHING_IDLE, component_handlers, components
from schedd.engine.facts.arrivals import defer_arrivals, pop_arrival
from schedd.engine.facts.job_requests import ParsedRequest, holds_resources, queue_stop_reason
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.reevaluation_queue import WAITING_PHASES
from schedd.engine.facts.state import EngineState
from schedd.engine.machine import nodes, reconcile
from schedd.engine.machine.resource_types import note_untyped
from schedd.engine.place.placement import displace_in_lowered_pools
from schedd.engine.place.slot_requests import refresh_request
from schedd.engine.rank.quarantine import quarantine
from schedd.engine.recovery import retain_cores, stays_quarantined
from schedd.engine.run import holds, jobs, outcomes
from schedd.engine.run.reevaluation import follow_queue, limits_changed, reevaluate_waiting
from schedd.engine.run.running import hold_new_node
from schedd.engine.run.start_outages import retry_refused_jobs
from schedd.error_text import describe_error
from schedd.model import FOREVER
from schedd.policy.site import site_policy
from schedd.wire import (
    BatchSkipped,
    ClockSet,
    ContactChanged,
    Event,
    JobAltered,
    JobDeleted,
    JobEnded,
    JobHeld,
    JobQueued,
    JobReleased,
    JobStarted,
    LogLost,
    NodeChanged,
    PlanChosen,
    PlanImproved,
    PolicyChanged,
    QueueChanged,
    QueueFacts,
    ResourceTypes,
    RunAccepted,
    RunRefused,
    ServerChanged,
    Snapshot,
)

_DIGITS: Final = re.compile(r"\d")


def apply_all(state: EngineState, events: Iterable[Event], *, of_snapshot: bool = False) -> None:
    """Take over what ``events`` say, in this order; adjacent changes of nodes are taken together, as are
    adjacent orders to hold the planning of nodes and queues.

    ``of_snapshot``: they are what a snapshot says.
    """
    together: list[Any] = []
    for event in events:
        if state.arriving and (first := pop_arrival(state, event)) is not None:
            _guarded(state, first, jobs.on_job_queued, first, True)
        handler = _JOB_EVENTS.get(type(event))
        if together and (handler is not None or not _are_batched(together[-1], event)):
            _apply_batched(state, together, of_snapshot)
            together = []
        if handler is not None:
            _guarded(state, event, handler, event, of_snapshot)
        elif _are_batched(event, event):
            together.append(event)
            continue
        else:  # it may give work to idle hooks, and plan jobs again
            state.idle_hooks = NOTHING_IDLE
            _guarded(state, event, _find_handler(event), event, of_snapshot)
            state.idle_hooks = None
        if state.limits.lowered and state.starts_step("limits"):
            displace_in_lowered_pools(state, event.id, Cause.QUEUE, "a slot limit was lowered")
    _apply_batched(state, together, of_snapshot)


def _find_handler(event: Event) -> Callable[[EngineState, Any], None]:
    kind = type(event)
    return _HANDLERS[kind] if kind in _HANDLERS else component_handlers().get(kind, _ignore_event)


def _ignore_event(state: EngineState, event: Event) -> None:
    """Open an alert: the event, perhaps of an older log, belongs to a feature that is not installed."""
    if f"feature {event.type}" not in state.alerts:  # the adapter may report the same facts again and again
        words = f"events of type {event.type} are ignored: the feature that handles them is not installed"
        state.alert(event.id, "feature", words, event.type)


def _are_batched(one: Event, other: Event) -> bool:
    """Whether two events that follow each other are taken together."""
    if isinstance(one, NodeChanged):
        return isinstance(other, NodeChanged)
    return isinstance(one, holds.Held) and isinstance(other, holds.Held)


def _apply_batched(state: EngineState, together: list[Any], of_snapshot: bool) -> None:
    if not together:
        return
    if isinstance(together[0], NodeChanged):
        _apply_nodes(state, together, of_snapshot)
    else:
        _guarded(state, together[-1], holds.held_or_released, together, of_snapshot)


def _apply_nodes(state: EngineState, together: list[NodeChanged], of_snapshot: bool) -> None:
    known = {event.node.name: state.node_facts.get(event.node.name) for event in together}
    if not _guarded(state, together[-1], _change_nodes, together, of_snapshot):
        for name, facts in known.items():
            if facts is not None:  # a difference from the next snapshot repeats the change
                state.node_facts[name] = facts


def _guarded(
    state: EngineState,
    event: Event,
    handler: Callable[[EngineState, Any], None],
    what: object,
    of_snapshot: bool,
) -> bool:
    """Call a handler; if it fails, its job is quarantined. Returns whether it succeeded.

    Work that concerns no single job may then be incomplete: a snapshot is requested, and the former facts of
    queues and server are restored, so that the snapshot differs from them.
    """
    facts = getattr(event, "job", None)
    job_id = facts.id if facts is not None else getattr(event, "job_id", "")
    if job_id in state.aside and stays_quarantined(state, event, job_id):
        return True
    queues, server = (None, None) if job_id else (dict(state.queues), state.server)
    state.at_job, state.at_event = job_id, event.id
    try:
        handler(state, what)
    except Exception as error:
        if state.settings.validate_ and isinstance(error, AssertionError):
            raise
        state.diverged[job_id] = None
        state.plan.mark_all_for_search()  # repair may have missed freed resources
        record = state.records.get(job_id)
        over = _is_over(event)
        runs = record is not None and record.phase is Phase.RUNNING
        if over or (runs and facts is not None and not holds_resources(facts)):
            state.remove(job_id)  # its resources are free, despite the failure
            record = None
        if record is None and facts is not None and not over:
            nothing = ParsedRequest(None, state.settings.default_walltime, True, describe_error(error))
            record = JobRecord(facts, nothing, -1, Phase.BLOCKED)
        if record is not None:
            quarantine(state, record, event.id, describe_error(error))
            retain_cores(state, event, job_id)
        else:
            about, why = job_id or "the cluster", describe_error(error)
            state.alert(event.id, "error", f"event {event.type} of {about} could not be handled: {why}")
            if queues is not None and server is not None:
                state.queues, state.server = queues, server
            if not of_snapshot:
                state.request_snapshot(event.id, f"{event.type} failed")
        state.at_job = ""
        return False
    state.at_job = ""
    return True


def _is_over(event: Event) -> bool:
    """Return whether the event reports the end or completion of a job."""
    facts = getattr(event, "job", None)
    return isinstance(event, JobEnded | JobDeleted) or (facts is not None and facts.state == "C")


def _change_nodes(state: EngineState, events: Sequence[NodeChanged]) -> None:
    before = {event.node.name: state.plan.nodes.get(event.node.name) for event in events}
    for one in components():
        if one.nodes_reported is not None:
            one.nodes_reported(state, events)
    if nodes.apply_node_changes(state, events):
        reevaluate_waiting(state, events[-1].id, None, "the cluster has other nodes or resources than before")
        note_untyped(state, events[-1].id)
    if state.note_power():
        limits_changed(state, events[-1].id, "the nodes that a power cap is about were changed")
    other = frozenset(
        name
        for name, node in before.items()
        if node is None or not node.differs_in_state_at_most(state.plan.nodes[name])
    )
    for one in components():
        if one.nodes_taken is not None:
            one.nodes_taken(state, events, other)
    if new := frozenset(name for name, node in before.items() if node is None):
        hold_new_node(state, events[-1].id, new)


def _change_queue(state: EngineState, event: QueueChanged) -> None:
    queue = event.queue
    before = state.queues.get(queue.name)
    state.queues[queue.name] = queue
    for one in components():
        if one.queue_changed is not None:
            one.queue_changed(state, before, queue, event.id)
    if before is None or before.defaults != queue.defaults:
        reevaluate_waiting(state, event.id, queue.name, f"the defaults of queue {queue.name} were changed")
    if queue.priority != (before.priority if before is not None else 0):
        state.ranking.next_at, state.ranking.has_effect, state.ranking.rerank_all = state.now, True, True
    was_stopped, stopped = queue_stop_reason(before, None), queue_stop_reason(queue, None)
    if stopped != was_stopped:
        how = "routes its jobs elsewhere" if queue.routes else f"was {'stopped' if stopped else 'started'}"
        follow_queue(state, event.id, queue.name, f"queue {queue.name} {how}")


def _change_server(state: EngineState, event: ServerChanged) -> None:
    before, state.server = state.server, event.server
    if event.server.scheduling:
        state.unscheduled_since = -1
    elif state.unscheduled_since < 0:
        state.unscheduled_since = state.now
    if before.resources != event.server.resources:
        state.limits.types = ResourceTypes(event.server.resources)
    for one in components():
        if one.server_changed is not None:
            one.server_changed(state, before, event.id)
    if state.requests.set_types(state.limits.types):
        state.nevers.clear()  # they say amounts in the units of their types
        reevaluate_waiting(state, event.id, None, "the types of the server's resources were changed")
    note_untyped(state, event.id)
    if before.defaults != event.server.defaults:
        reevaluate_waiting(state, event.id, None, "the server's defaults were changed")


def _change_policy(state: EngineState, event: PolicyChanged) -> None:
    """Plan under a new policy of the site; a policy that cannot be read has no effect."""
    back = state.configured if state.policy_version else state.site.plain
    plain = event.site if event.version else back
    try:
        site = site_policy(plain)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        words = (
            f"policy {event.version} cannot be read; the previous one stays in force: {describe_error(error)}"
        )
        state.alert(event.id, "policy", words)
        return
    if not state.policy_version:
        state.configured = state.site.plain
    state.set_site(site)
    state.policy_version = event.version
    apply_site_policy(state, event.id)


def apply_site_policy(state: EngineState, event: str, words: str = "the site's policy was changed") -> None:
    """Plan under the present policy of the site, after a change."""
    state.site_changed = False
    state.ranking.next_at, state.ranking.has_effect, state.ranking.rerank_all = state.now, True, True
    for one in components():
        if one.site_changed is not None:
            one.site_changed(state)
    state.gather_limits()
    state.plan.spare_scarce(state.site.spare_scarce)
    state.update_request_reader()
    state.note_power()
    nodes.refresh_all_nodes(state)
    for record in list(state.records.values()):
        if record.phase not in WAITING_PHASES:  # waiting jobs are re-evaluated in slices
            refresh_request(state, record)
    reevaluate_waiting(state, event, None, words)
    limits_changed(state, event, words)


def _apply_snapshot(state: EngineState, event: Snapshot) -> None:
    _note_adapter_mode(state, event)
    doubt = reconcile.find_doubt(state, event)
    if doubt:
        if _DIGITS.sub("", doubt) != _DIGITS.sub("", state.stale):  # the same, though numbers move
            state.alert(event.id, "snapshot", f"a snapshot of the server was rejected: {doubt}")
        state.stale = doubt
        return
    state.stale = state.lost = ""
    if state.first_snapshot < 0:
        state.first_snapshot = event.time
    if event.server_age is not None:  # a restarted server may list jobs that it had lost, and that we started
        state.server_restarted = event.time - event.server_age
        state.unsure_until = max(state.unsure_until, state.server_restarted)
    # What happened while no adapter was there is news to everybody, and no sign that one missed anything.
    began, state.adapter_run = state.adapter_run, event.id.partition(":")[0]
    arriving, state.arriving = state.arriving, {}
    found = reconcile.differences(state, event)
    words = (
        ""
        if began != state.adapter_run or _is_young(state, event)
        else reconcile.format_differences(
            [
                one
                for one in found
                if _queued_job(one) not in arriving and not reconcile.is_removal(one, event)
            ]
        )
    )
    apply_all(state, defer_arrivals(state, found), of_snapshot=True)
    gone = state.queues.keys() - {queue.name for queue in event.queues}
    if event.queues and gone:
        _remove_queues(state, gone, event)
    if event.server_age is not None:
        nodes.await_reports(state, event.time - event.server_age + state.settings.server_grace)
    if not state.arriving:
        state.forget_carried_jobs()
    retry_refused_jobs(state)  # the adapter has reached the server
    if words:
        state.alert(event.id, "snapshot", words, "differences")


def _remove_queues(state: EngineState, names: Iterable[str], event: Snapshot) -> None:
    """Remove queues that the server no longer has, with their limits and defaults."""
    for name in sorted(names):
        _change_queue(state, QueueChanged(id=event.id, time=event.time, queue=QueueFacts(name=name)))
        del state.queues[name]
    state.gather_limits()


def _is_young(state: EngineState, event: Snapshot) -> bool:
    """Whether the server was restarted a moment ago: what changed meanwhile was in no event before."""
    return event.server_age is not None and event.server_age < state.settings.server_grace


def _queued_job(event: Event) -> str:
    return event.job.id if isinstance(event, JobQueued) else ""


def _describe_job(state: EngineState, event: JobQueued | JobAltered) -> None:
    if isinstance(event, JobQueued):
        jobs.on_job_queued(state, event)
    else:
        jobs.on_job_altered(state, event)
    if event.job.state == "C":
        report_end(state, JobDeleted(id=event.id, time=event.time, job_id=event.job.id))


def _end_job(state: EngineState, event: JobDeleted | JobEnded) -> None:
    jobs.on_job_gone(state, event)  # before all else: its resources are free
    report_end(state, event)


def _note_lost_log(state: EngineState, event: LogLost) -> None:
    """A part of the log or the state is missing: no job is started before the next snapshot."""
    state.decision_number = max(state.decision_number, event.decided)
    state.lose_track()
    what = "the planner's state was rebuilt" if event.state_only else "a part of the log is lost"
    state.lost = state.stale = f"{what}: {event.why}"
    state.alert(event.id, "log", f"{state.lost}; jobs start only after a new snapshot of the server")
    state.request_snapshot(event.id, state.lost)


def _note_contact(state: EngineState, event: ContactChanged) -> None:
    """Note whether the server's state is known. What happened meanwhile comes soon after the contact."""
    state.unread_until = FOREVER if event.silent else state.now + state.settings.answer_grace


def _note_adapter_mode(state: EngineState, event: Snapshot) -> None:
    """Take over what the adapter does with decisions; of the two modes the more careful one counts."""
    if event.mode == state.adapter_mode:
        return
    state.adapter_mode = event.mode
    if event.mode == "scheduler" != state.settings.mode:
        words = (
            f'the adapter is configured to start jobs, but this cluster has mode = "{state.settings.mode}"'
        )
        state.alert(event.id, "mode", f"{words}: no jobs are started")


_JOB_EVENTS: Final[Mapping[type, Callable[[EngineState, Any], None]]] = {
    JobQueued: _describe_job,
    JobAltered: _describe_job,
    JobHeld: jobs.on_job_held,
    JobReleased: jobs.on_job_released,
    JobDeleted: _end_job,
    JobEnded: _end_job,
    JobStarted: jobs.on_job_started,
    RunAccepted: outcomes.on_run_accepted,
    RunRefused: outcomes.on_run_refused,
}
_HANDLERS: dict[type, Callable[[EngineState, Any], None]] = {
    **_JOB_EVENTS,
    QueueChanged: _change_queue,
    ServerChanged: _change_server,
    PolicyChanged: _change_policy,
    Snapshot: _apply_snapshot,
    ContactChanged: _note_contact,
    PlanImproved: plan_improvements.on_plan_improved,
    PlanChosen: plan_improvements.on_plan_chosen,
    LogLost: _note_lost_log,
    ClockSet: lambda state, event: None,  # noqa: ARG005  (taken before all others)
    BatchSkipped: lambda state, event: None,  # noqa: ARG005  (taken before all others)
}
