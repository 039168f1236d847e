"""What-if: when would this job start, without submitting it?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fastapi import Request, Response

from schedd.api.access import Cluster, User, Visibility
from schedd.api.jobs import find_job
from schedd.api.planner_calls import get_plan_fork
from schedd.api.problems import READ_PROBLEMS, Fault, ProblemError, invalid_problem
from schedd.api.question_runner import run_question
from schedd.api.replies import reply
from schedd.api.request_bodies import WhatIfRequest, WhatIfVariant
from schedd.api.result_views import ArrayEnd, DestinationView, WhatIfResult, WhatIfVariantResult
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.dialect.advres import read_advres
from schedd.dialect.array_request import ArrayRequest
from schedd.dialect.cost_limit import read_cost_limit
from schedd.dialect.deadline import deadline_fault, read_deadline
from schedd.dialect.units import without_units
from schedd.engine import (
    JobRecord,
    Phase,
    PlanSnapshot,
    job_details,
    render_job,
    what_if_details,
)
from schedd.engine.component.what_if_hooks import slots_named
from schedd.engine.facts.job_requests import queue_stop_reason
from schedd.model import FOREVER, Never, StartKnown, WaitingFor
from schedd.service.access.roles import Bearer
from schedd.service.questions.admission import Admission, RouteDestination, admit, exceeded_limits
from schedd.service.questions.dependency_times import DependencyTime, find_dependency_time
from schedd.service.questions.expectations import (
    UNKNOWN,
    Expectation,
    StartForecast,
    hypothetical_promise,
)
from schedd.service.questions.objectives import placement_cost
from schedd.service.questions.plan_fork import NotUnderstood, PlanFork, WhatIfAnswer
from schedd.service.questions.smaller_requests import SmallerRequest
from schedd.service.questions.submission_checks import QueuedJobs, Submission
from schedd.service.questions.tighter_walltimes import current_start
from schedd.service.read.arrays import choose_array
from schedd.service.read.job_visibility import JobVisibility
from schedd.service.read.plan_lists import find_record
from schedd.start_sentence import StartFacts, describe_start, format_utc
from schedd.wire import JobFacts, ResourceTypes, ShareFacts

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["questions"], route_class=UnicodeRoute)
_MAX_QUEUES_NAMED: Final = 3
_MAX_DESTINATIONS: Final = 20  # maximum number of a routing queue's destinations with a computed start
_NO_DEPENDENCY: Final = DependencyTime()
_NO_START: Final[Mapping[str, Any]] = {
    "windows": (),
    "changes": (),
    "sooner_changes": (),
    "cheapest": None,
    "many": (),
}
"""Parts of an answer about possible starts, for a job that has none."""


@router.post(
    "/what-if",
    *READ_PROBLEMS,
    "not-allowed",
    "unknown-job",
    "invalid",
    "too-hard",
    "bad-request",
    "too-large",
    answer=WhatIfResult,
)
async def post_what_if(
    request: Request, cluster: Cluster, question: WhatIfRequest, visibility: Visibility, caller: User
) -> Response:
    """When and where would a job start if it were submitted now? Nothing is submitted, the plan stays.

    With `job`, the question is about a queued job: its start if it was altered. `variants` are answered along
    with it. `windows` are all intervals of possible starts, the first of which is the answer otherwise;
    `changes` are for each kind of change (a shorter walltime, fewer cpus, less memory, fewer nodes, a feature
    left out) the smallest that lets the job start at once, or by `start_by`; `sooner_changes` are those for a
    start before the planned one.

    A request that `qsub` would refuse gets `never` and all `refusals`: limits of queue and server, limits on
    queued jobs, access lists, array sizes. `destinations` are those of a routing queue.

    The question is answered on a fork of the plan that all callers of one generation share. While the planner
    is busy for long, an older fork is used; `generation` and `as_of` say which.
    """
    if question.owner and not (caller.may("see all") or caller.owns(question.owner)):
        what = f"{caller.name} may not ask for {question.owner}"
        raise ProblemError("not-allowed", what, hint="leave owner out")
    copy = await get_plan_fork(cluster)
    without_slots = _booking_slots(copy, question.bookings, caller)
    job = None
    if question.job is not None:
        job = find_job(cluster.name, copy.published, visibility, question.job)
        if job.phase in (Phase.RUNNING, Phase.DISPATCHED):
            what = f"job {job.id} runs already"
            raise invalid_problem("body.job", what)
    submitter = question.owner or (caller.name if caller.role == "user" else "")
    expecting = request.app.state.clusters.forecast(cluster.name) if question.expected else None
    now = cluster.now()

    def answer() -> WhatIfResult:
        dependency = _NO_DEPENDENCY
        if question.depend:
            known = _VisibleJobs(copy.published, visibility)
            dependency = find_dependency_time(copy.published, question.depend, now, known.find)
        return answer_what_if(
            copy, expecting, question, job, now, caller.name, without_slots, submitter, dependency
        )

    return reply(request, await run_question(request, answer))


class _VisibleJobs:
    """Finds jobs and arrays that the caller may see; the jobs of all arrays are collected once."""

    def __init__(self, published: PlanSnapshot, visibility: JobVisibility) -> None:
        self._published = published
        self._visibility = visibility
        self._arrays: dict[str, list[JobRecord]] | None = None

    def find(self, name: str) -> list[JobRecord]:
        """Return the job of this id, or the jobs of an array."""
        record = find_record(self._published, name)
        if record is not None:
            return [record] if self._visibility.shows(record) else []
        if "[]" not in name:
            return []
        if self._arrays is None:
            self._arrays = {}
            for one in _all_jobs(self._published):
                if one.facts.array and self._visibility.shows(one):
                    self._arrays.setdefault(one.facts.array, []).append(one)
        return self._arrays.get(choose_array(self._arrays, name), [])


def _booking_slots(copy: PlanFork, names: tuple[str, ...], caller: Bearer) -> tuple[int, ...]:
    """The slots of these bookings. Raises ProblemError for an unknown one, or another user's."""
    slots: list[int] = []
    for name in names:
        found = slots_named(copy.published, name, caller.name)
        if found is None:
            what = f"{caller.name} has no booking {name}"
            raise invalid_problem("body.bookings", what)
        slots += found
    return tuple(slots)


def answer_what_if(
    copy: PlanFork,
    expecting: StartForecast | None,
    question: WhatIfRequest,
    job: JobRecord | None,
    now: int,
    who: str,
    without_slots: tuple[int, ...] = (),
    submitter: str = "",
    dependency: DependencyTime = _NO_DEPENDENCY,
) -> WhatIfResult:
    """Return all answers, on a fork of the plan and on the fork with predicted run times.

    Run times are predicted from similar jobs of the named owner, else of the user ``who``. Access lists and
    limits on queued jobs are checked for ``submitter``; empty: not for a user. Raises ProblemError.
    """
    array = question.array_request
    counts = sorted({*question.tasks, *([array.subjobs] if array is not None else [])})
    facts = job.facts if job is not None else None
    instead_of = job.id if job is not None else ""
    published = copy.published
    queued = QueuedJobs(lambda: _all_jobs(published), ResourceTypes(published.server.resources))

    def evaluate(
        where: str,
        variant: WhatIfVariant | None,
        *,
        windows: int = 0,
        changes: bool = False,
        cheapest_by: int | None = None,
        sooner: bool = False,
        tasks: Sequence[int] = (),
        queue: str | None = None,
    ) -> tuple[WhatIfAnswer, dict[str, Any], Admission]:
        request_facts = question.facts(now, facts, variant)
        if queue is not None:
            request_facts = replace(request_facts, queue=queue)
        if dependency.ready:
            ready = max(dependency.ready, request_facts.not_before or 0)
            request_facts = replace(request_facts, not_before=ready)
        if not request_facts.owner and read_advres(request_facts.resources):
            request_facts = replace(request_facts, owner=who)  # a booking is its owner's
        known = facts.resources if facts is not None else {}
        unaltered = job is not None and queue is None and _is_unaltered(copy, job, request_facts)
        try:
            if wrong := deadline_fault(request_facts.resources, request_facts.submitted):
                raise NotUnderstood(wrong)
            if queue is None:
                admission = _check_admission(
                    copy,
                    request_facts,
                    known,
                    instead_of,
                    array=array,
                    submitter=submitter,
                    queued=queued,
                )
            else:  # a destination that accepts it
                admission = Admission(request_facts)
            request_facts = admission.facts
            outcome = copy.what_if(
                request_facts,
                now,
                instead_of=instead_of,
                without_slots=without_slots,
                most_windows=windows,
                changes=changes,
                start_by=question.start_by,
                sooner=sooner,
                cheapest_by=cheapest_by,
                tasks=tasks,
            )
        except NotUnderstood as error:
            fault = Fault(where=where, what=str(error))
            raise ProblemError("invalid", f"{where}: {error}", errors=[fault]) from None
        if expecting is not None and (outcome.changes or outcome.sooner_changes):
            outcome = _with_risks(
                outcome, expecting, replace(request_facts, owner=request_facts.owner or who)
            )
        current = None
        if job is not None and unaltered and not without_slots:
            current = current_start(copy.published, job)
        promise = hypothetical_promise(copy, outcome, request_facts.queue)
        expected = UNKNOWN
        if current is not None:
            outcome = replace(outcome, answer=current)
        elif expecting is not None:
            expected = expecting.expect_start(
                replace(request_facts, owner=request_facts.owner or who),
                outcome,
                promise,
                instead_of=instead_of,
            )
        if dependency.wait is not None and isinstance(outcome.answer, StartKnown):
            outcome = replace(outcome, answer=dependency.wait, **_NO_START)
            expected, promise = UNKNOWN, FOREVER
        if admission.refusals:
            outcome = replace(outcome, answer=Never(admission.refusal), **_NO_START)
            expected, promise = UNKNOWN, FOREVER
        changed_resources = {
            name: text for name, text in request_facts.resources.items() if known.get(name) != text
        }
        notes = (
            *outcome.notes,
            *without_units(changed_resources),
            *admission.notes,
            *dependency.notes,
            *_stopped_queue_notes(copy.published, request_facts.queue, outcome),
        )
        outcome = replace(outcome, notes=notes)
        predicted = copy.published.settings.predicts(request_facts.queue)
        details = {**_WITHOUT_DETAILS, **_component_fields(copy, request_facts, outcome, promise, expected)}
        promise = details.pop("promised_start", promise)
        common = _common_fields(outcome, expected, promise, predicted=predicted)
        if current is not None and job is not None:
            common |= _published_fields(copy.published, job, now)
            details |= job_details(copy.published, job, current.placement.start)
        fields = {
            **common,
            **details,
            **_deadline_fields(outcome, read_deadline(request_facts.resources, request_facts.submitted)),
            **_cost_fields(copy, outcome, read_cost_limit(request_facts.resources)),
            **_wish_fields(outcome, question.start_by),
            "refusals": admission.refusals,
        }
        return outcome, fields, admission

    outcome, common, admission = evaluate(
        "body."
        + next(name for name in ("request", "resources", "job") if getattr(question, name) is not None),
        None,
        windows=question.windows,
        changes=question.changes,
        sooner=question.sooner,
        cheapest_by=question.cheapest_by,
        tasks=counts,
    )
    destinations = tuple(
        _destination_view(
            one,
            chosen=not admission.refusals and one.queue == admission.facts.queue,
            fields=evaluate("body.queue", None, queue=one.queue)[1]
            if not one.refusals and number < _MAX_DESTINATIONS
            else {},
        )
        for number, one in enumerate(admission.destinations)
    )
    variants = [evaluate(f"body.variants[{i}]", variant) for i, variant in enumerate(question.variants)]
    return WhatIfResult(
        **common,
        windows=outcome.windows,
        changes=outcome.changes,
        cheapest=outcome.cheapest,
        changes_by=outcome.changes_by,
        sooner_changes=outcome.sooner_changes,
        sooner_by=outcome.sooner_by,
        halted=copy.published.halted,
        tasks=tuple(one for one in outcome.many if one.tasks in question.tasks),
        array=ArrayEnd(
            subjobs=array.subjobs,
            slot_limit=array.slot_limit,
            planned_end=next((one.end for one in outcome.many if one.tasks == array.subjobs), None),
        )
        if array is not None
        else None,
        destinations=destinations,
        variants=tuple(WhatIfVariantResult(**one) for _, one, _ in variants),
        as_of=outcome.now,
        generation=outcome.generation,
    )


def _with_risks(outcome: WhatIfAnswer, expecting: StartForecast, facts: JobFacts) -> WhatIfAnswer:
    """Return the answer with the risk of each shorter walltime."""
    shorter = any(one.change == "walltime" for one in (*outcome.changes, *outcome.sooner_changes))
    if not (shorter and isinstance(outcome.answer, StartKnown)):
        return outcome
    run_time = expecting.predict_run_time(facts, outcome.answer)
    if run_time is None:
        return outcome

    def with_risk(one: SmallerRequest) -> SmallerRequest:
        if one.change != "walltime" or one.value is None:
            return one
        return replace(one, risk=round(run_time.share_beyond(one.value), 4))

    return replace(
        outcome,
        changes=tuple(map(with_risk, outcome.changes)),
        sooner_changes=tuple(map(with_risk, outcome.sooner_changes)),
    )


def stopped_queues(published: PlanSnapshot) -> dict[str, str]:
    """By name the queues that start nothing: `which is stopped`, `which is held: new disks`."""
    held = {one.name: one for one in published.holds if one.kind == "queue"}
    names = sorted(published.queues.keys() | held.keys())
    return {
        name: why for name in names if (why := queue_stop_reason(published.queues.get(name), held.get(name)))
    }


def _check_admission(
    copy: PlanFork,
    facts: JobFacts,
    known: Mapping[str, str],
    instead_of: str,
    *,
    array: ArrayRequest | None,
    submitter: str,
    queued: QueuedJobs,
) -> Admission:
    """How the server treats the job; of a queued one the altered parts. Raises NotUnderstood."""
    published = copy.published
    if ":" in facts.queue:  # an adapter asks for a reservation, which no queue's limits concern
        return Admission(facts)
    understood = copy.understand(facts)
    if not instead_of:
        submission = Submission(
            facts=replace(facts, owner=submitter),
            understood=understood,
            group=_known_group(published, submitter),
            array=array if array is not None else ArrayRequest(1),
            is_array=array is not None,
            queued=queued,
        )
        found = admit(submission, published.queues, published.server)
        return replace(found, facts=replace(found.facts, owner=facts.owner))
    request = understood.request
    altered = {name: text for name, text in facts.resources.items() if known.get(name) != text}
    queue = published.queues.get(facts.queue)
    over = exceeded_limits(altered, request if altered else None, queue, published.server)
    return Admission(facts, tuple(over), command="qalter")


def _all_jobs(published: PlanSnapshot) -> Iterator[JobRecord]:
    yield from (one for one in published.records if one is not None)
    yield from published.slotless.values()


def _known_group(published: PlanSnapshot, user: str) -> str:
    """The primary group of a user, from its jobs; empty: not known."""
    name = user.partition("@")[0]
    if not name:
        return ""
    groups = (one.facts.group for one in _all_jobs(published) if one.facts.owner.partition("@")[0] == name)
    return next(filter(None, groups), "")


def _destination_view(one: RouteDestination, *, chosen: bool, fields: Mapping[str, Any]) -> DestinationView:
    return DestinationView(
        queue=one.queue,
        chosen=chosen,
        refusals=one.refusals,
        planned_start=fields.get("planned_start"),
        expected_start=fields.get("expected_start"),
        expected_by=fields.get("expected_by"),
        headline=fields.get("headline", ""),
    )


def _wish_fields(outcome: WhatIfAnswer, start_by: int | None) -> dict[str, Any]:
    """The wished latest start, and by how much the planned one is later."""
    late = None
    if start_by is not None and isinstance(outcome.answer, StartKnown):
        late = max(0, outcome.answer.placement.start - start_by)
    return {"start_by": start_by, "start_late_by": late}


def _stopped_queue_notes(published: PlanSnapshot, queue: str, outcome: WhatIfAnswer) -> Iterator[str]:
    """For an estimate of a job without a queue: the queues to which it does not apply."""
    starts = isinstance(outcome.answer, StartKnown)
    stopped = stopped_queues(published) if starts and not queue else {}
    for name, why in list(stopped.items())[:_MAX_QUEUES_NAMED]:
        yield f"no queue is named: this does not hold for queue {name}, {why}"
    if len(stopped) > _MAX_QUEUES_NAMED:
        yield f"nor for {len(stopped) - _MAX_QUEUES_NAMED} more queues that start nothing"


def _common_fields(
    outcome: WhatIfAnswer, expected: Expectation, promise: int, *, predicted: bool
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
    known = StartFacts(
        state=answer,
        planned=start,
        expected=_known_or_none(expected.start),
        expected_by=_known_or_none(expected.by),
        expected_as_of=_known_or_none(expected.as_of),
        promised=promised,
        predicted=predicted,
    )
    headline = "" if answer == "never" else describe_start(known, outcome.now).text(format_utc)
    return {
        "request": outcome.request,
        "answer": answer,
        "planned_start": start,
        "planned_end": end,
        "planned_nodes": nodes,
        "expected_start": _known_or_none(expected.start),
        "expected_by": _known_or_none(expected.by),
        "expected_as_of": _known_or_none(expected.as_of),
        "predicted": predicted,
        "promised_start": promised,
        "headline": headline,
        "predicted_run_time": _known_or_none(expected.run_time),
        "waiting_for": waiting_for,
        "requirement": requirement,
        "why": why,
        "walltime": outcome.walltime,
        "walltime_assumed": outcome.walltime_assumed,
        "notes": outcome.notes,
    }


_WRITTEN_IN_MANY_WAYS: Final = frozenset({"walltime", "mem", "nodes", "select", "place"})


def _is_unaltered(copy: PlanFork, job: JobRecord, asked: JobFacts) -> bool:
    """Return whether the request of a queued job is unaltered, even if it is written differently."""
    old, new = job.facts.resources, asked.resources
    altered = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    return not altered or (altered <= _WRITTEN_IN_MANY_WAYS and copy.is_understood_as(asked, job.understood))


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


_WITHOUT_DETAILS: Final[Mapping[str, Any]] = {
    "deadline_state": "",
    "deadline_required": None,
    "deadline_probability": None,
    "earliest_deadline": None,
}
"""Fields that components fill."""


def _component_fields(
    copy: PlanFork, facts: JobFacts, outcome: WhatIfAnswer, promise: int, expected: Expectation
) -> Mapping[str, Any]:
    """Values of components for fields of the result."""
    start = outcome.answer.placement.start if isinstance(outcome.answer, StartKnown) else -1
    return what_if_details(copy.published, facts, copy.understand(facts), start, promise, expected.end)


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
