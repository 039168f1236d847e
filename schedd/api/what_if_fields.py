"""Fields of the answer to a what-if question."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from schedd.api.result_views import DestinationView
from schedd.dialect.cost_limit import read_cost_limit
from schedd.dialect.deadline import read_deadline
from schedd.engine import (
    JobRecord,
    PlanSnapshot,
    job_details,
    queue_stop_reason,
    render_job,
    what_if_details,
)
from schedd.model import FOREVER, Never, StartKnown, WaitingFor
from schedd.service.questions.admission import RouteDestination
from schedd.service.questions.expectations import (
    Expectation,
)
from schedd.service.questions.objectives import placement_cost
from schedd.service.questions.plan_fork import PlanFork
from schedd.service.questions.what_if import WhatIfAnswer
from schedd.start_sentence import StartFacts, describe_start, format_utc
from schedd.wire import JobFacts, ShareFacts

_MAX_QUEUES_NAMED: Final = 3
_WITHOUT_DETAILS: Final[Mapping[str, Any]] = {
    "deadline_state": "",
    "deadline_required": None,
    "deadline_probability": None,
    "earliest_deadline": None,
}
"""Fields that components fill."""


def render_fields(
    copy: PlanFork,
    facts: JobFacts,
    outcome: WhatIfAnswer,
    promise: int,
    expected: Expectation,
    *,
    current: tuple[JobRecord, StartKnown] | None,
    start_by: int | None,
    now: int,
) -> dict[str, Any]:
    """Return the fields about the request ``facts``.

    ``current``: the queued job and its place, if the request leaves it unaltered; its published start is then
    shown.
    """
    predicted = copy.published.settings.predicts(facts.queue)
    details = {**_WITHOUT_DETAILS, **_component_fields(copy, facts, outcome, promise, expected)}
    promise = details.pop("promised_start", promise)
    stopped = copy.published.starts_stopped
    common = _common_fields(outcome, expected, promise, predicted=predicted, stopped=stopped)
    if current is not None:
        job, start = current
        common |= _published_fields(copy.published, job, now)
        details |= job_details(copy.published, job, start.placement.start)
    return {
        **common,
        **details,
        **_deadline_fields(outcome, read_deadline(facts.resources, facts.submitted)),
        **_cost_fields(copy, outcome, read_cost_limit(facts.resources)),
        **_requested_start_fields(outcome, start_by),
    }


def destination_view(one: RouteDestination, *, chosen: bool, fields: Mapping[str, Any]) -> DestinationView:
    """Return a destination of a routing queue with the start of the job there."""
    return DestinationView(
        queue=one.queue,
        chosen=chosen,
        refusals=one.refusals,
        planned_start=fields.get("planned_start"),
        expected_start=fields.get("expected_start"),
        expected_by=fields.get("expected_by"),
        headline=fields.get("headline", ""),
    )


def stopped_queues(published: PlanSnapshot) -> dict[str, str]:
    """By name the queues that start nothing: `which is stopped`, `which is held: new disks`."""
    held = {one.name: one for one in published.holds if one.kind == "queue"}
    names = sorted(published.queues.keys() | held.keys())
    return {
        name: why for name in names if (why := queue_stop_reason(published.queues.get(name), held.get(name)))
    }


def stopped_queue_notes(published: PlanSnapshot, queue: str, outcome: WhatIfAnswer) -> Iterator[str]:
    """For an estimate of a job without a queue: the queues that it does not apply to."""
    starts = isinstance(outcome.answer, StartKnown)
    stopped = stopped_queues(published) if starts and not queue else {}
    for name, why in list(stopped.items())[:_MAX_QUEUES_NAMED]:
        yield f"no queue is named: this does not hold for queue {name}, {why}"
    if len(stopped) > _MAX_QUEUES_NAMED:
        yield f"nor for {len(stopped) - _MAX_QUEUES_NAMED} more queues that start nothing"


def _common_fields(
    outcome: WhatIfAnswer, expected: Expectation, promise: int, *, predicted: bool, stopped: bool
) -> dict[str, Any]:
    start = end = None
    nodes: tuple[ShareFacts, ...] = ()
    waiting_for = requirement = ""
    answer = "start_known"
    why = "the plan has room for it then"
    match outcome.answer:
        case StartKnown(placement):
            start, end = placement.start, placement.end
            nodes = tuple(ShareFacts(s.node, s.cpus, s.mem, s.gpus) for s in placement.shares)
        case WaitingFor(kind, what):
            answer, waiting_for, why = "waiting", kind, f"waiting for {what}"
        case Never(requirement):
            answer, why = "never", str(outcome.answer)
    promised = promise if promise < FOREVER else None
    expected_by = _known_or_none(expected.by) if expected.by < promise else None
    known = StartFacts(
        state=answer,
        planned=start,
        expected=_known_or_none(expected.start),
        expected_by=expected_by,
        expected_as_of=_known_or_none(expected.as_of),
        promised=promised,
        predicted=predicted,
        stopped=stopped,
        waits_for=why if start is None else "",
    )
    return {
        "request": outcome.request,
        "answer": answer,
        "planned_start": start,
        "planned_end": end,
        "planned_nodes": nodes,
        "expected_start": _known_or_none(expected.start),
        "expected_by": expected_by,
        "expected_as_of": _known_or_none(expected.as_of),
        "predicted": predicted,
        "starts_stopped": stopped,
        "promised_start": promised,
        "headline": describe_start(known, outcome.now).text(format_utc),
        "predicted_run_time": _known_or_none(expected.run_time),
        "waiting_for": waiting_for,
        "requirement": requirement,
        "why": why,
        "walltime": outcome.walltime,
        "walltime_assumed": outcome.walltime_assumed,
        "notes": outcome.notes,
    }


def _published_fields(published: PlanSnapshot, job: JobRecord, now: int) -> dict[str, Any]:
    """The published start of a planned job; its page shows the same."""
    view = render_job(published, job, frozenset({"headline"}), now)
    return {
        "expected_start": view.expected_start,
        "expected_by": view.expected_by,
        "expected_as_of": view.expected_as_of,
        "promised_start": view.promised_start,
        "headline": view.headline,
    }


def _deadline_fields(outcome: WhatIfAnswer, deadline: int | None) -> dict[str, Any]:
    """Until when it is to end, and by how much later it would."""
    late = None
    if deadline is not None and isinstance(outcome.answer, StartKnown):
        late = max(0, outcome.answer.placement.end - deadline)
    return {"deadline": deadline, "late_by": late}


def _requested_start_fields(outcome: WhatIfAnswer, start_by: int | None) -> dict[str, Any]:
    """The wished latest start, and by how much the planned one is later."""
    late = None
    if start_by is not None and isinstance(outcome.answer, StartKnown):
        late = max(0, outcome.answer.placement.start - start_by)
    return {"start_by": start_by, "start_late_by": late}


def _component_fields(
    copy: PlanFork, facts: JobFacts, outcome: WhatIfAnswer, promise: int, expected: Expectation
) -> Mapping[str, Any]:
    """Values of components for fields of the result."""
    start = outcome.answer.placement.start if isinstance(outcome.answer, StartKnown) else -1
    # The walltime of the chosen form counts, not the one of the first form.
    understood = replace(copy.understand(facts), walltime=outcome.walltime)
    return what_if_details(copy.published, facts, understood, start, promise, expected.end)


def _cost_fields(copy: PlanFork, outcome: WhatIfAnswer, limit: float | None) -> dict[str, Any]:
    """What a place costs."""
    found = None
    if isinstance(outcome.answer, StartKnown):
        found = placement_cost(copy.published, outcome.answer.placement)
    economy = copy.published.settings.site.economy
    return {
        "cost": found,
        "currency": economy.currency,
        "over": found is not None and limit is not None and found > limit,
    }


def _known_or_none(seconds: int) -> int | None:
    return seconds if seconds >= 0 else None
