"""Arrivals and alterations of hypothetical jobs on a copy of the engine, which handles them as real ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from schedd.engine import (
    Cause,
    Engine,
    JobRecord,
    Outcome,
    Phase,
    arrival_note,
    planned_facts,
    planned_shares,
)
from schedd.model import FOREVER, Answer, Placement, Share, StartKnown
from schedd.plan.work_limits import WorkSpent
from schedd.service.questions.open_questions import limit_engine_work
from schedd.wire import JobAltered, JobFacts, JobQueued

_DISPLACED: Final = {
    Cause.PRIORITY: "jobs of lower priority would move behind it, and keep their promises",
    Cause.CLASS: "jobs of lower priority would move behind it, even beyond their promises",
}
"""Remarks, by the cause of other jobs' moves."""
_EVENT: Final = "what-if"
_MAX_CALLS: Final = 8  # calls of the engine, while it continues with repairs and rankings at once


@dataclass(frozen=True, slots=True)
class Arrival:
    """The engine's plan for a job right after its arrival or alteration.

    ``facts`` has the chosen form of its request. ``answer`` is None if the policy plans no starts;
    ``promise`` is the latest start that is promised then (FOREVER: none).
    """

    facts: JobFacts
    record: JobRecord
    answer: Answer | None
    promise: int
    remark: str


def handle_arrival(
    engine: Engine, facts: JobFacts, now: int, *, altered: bool = False, free: Sequence[int] = ()
) -> Arrival:
    """Let a copy of the engine handle the arrival of a job, or its alteration to ``facts``.

    The slots ``free`` are removed from the plan first. Raises WorkSpent beyond the work of a question.
    """
    copy = engine.fork()
    go_on = limit_engine_work(copy)
    state = copy.state
    for slot in free:
        state.plan.remove(slot, now)
    events = [(JobAltered if altered else JobQueued)(id=_EVENT, time=now, job=facts)]
    remark = ""
    for _ in range(_MAX_CALLS):
        outcome = copy.handle(events, now)
        go_on()
        remark = remark or _describe_effect(copy, state.records[facts.id], outcome)
        wake, events = copy.next_wake, []
        if wake is None or wake > now:
            break
    record = state.records[facts.id]
    if record.quarantine:
        raise WorkSpent(record.quarantine)
    promise = int(state.promise[record.slot]) if record.slot >= 0 else FOREVER
    answer = _find_answer(copy, record)
    return Arrival(planned_facts(state, record.facts), record, answer, promise, remark)


def _find_answer(engine: Engine, record: JobRecord) -> Answer | None:
    if record.answer is not None or engine.state.policy is not None:
        return record.answer
    plan, slot = engine.state.plan, record.slot
    start = plan.start(slot) if slot >= 0 else -1
    if start < 0 or record.phase is Phase.BLOCKED:
        return None
    shares = tuple(Share(s.node, s.cpus, s.mem, s.gpus) for s in planned_shares(plan, slot))
    return StartKnown(Placement(start, start + record.understood.walltime, shares))


def _describe_effect(engine: Engine, record: JobRecord, outcome: Outcome) -> str:
    """Return what the job does to others; empty: nothing."""
    remark = arrival_note(engine.state, record)
    if remark:
        return remark
    for changes in outcome.moves:
        theirs = changes.slots != record.slot
        if changes.event == _EVENT and changes.cause in _DISPLACED and theirs.any():
            return _DISPLACED[changes.cause]
    return ""
