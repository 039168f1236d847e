"""What-if: when would this job start, without submitting it?"""

from collections.abc import Mapping, Sequence
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
from schedd.api.result_views import ArrayEnd, WhatIfResult, WhatIfVariantResult
from schedd.api.routes import RouteTable
from schedd.api.unicode_text import UnicodeRoute
from schedd.api.what_if_admission import VisibleJobs, all_jobs, check_admission, is_unaltered
from schedd.api.what_if_fields import destination_view, render_fields, stopped_queue_notes
from schedd.dialect.advres import read_advres
from schedd.dialect.deadline import deadline_fault
from schedd.dialect.units import without_units
from schedd.engine import (
    JobRecord,
    Phase,
    PlanSnapshot,
    slots_named,
)
from schedd.model import FOREVER, Never, StartKnown, WaitingFor
from schedd.plan.work_limits import WorkSpent
from schedd.service.access.roles import Bearer
from schedd.service.questions.admission import Admission
from schedd.service.questions.dependency_times import DependencyTime, find_dependency_time
from schedd.service.questions.expectations import (
    UNKNOWN,
    StartForecast,
    hypothetical_promise,
)
from schedd.service.questions.plan_fork import NotUnderstood, PlanFork, WhatIfAnswer
from schedd.service.questions.published_start import PublishedStart, current_start
from schedd.service.questions.smaller_requests import SmallerRequest, apply_change
from schedd.service.questions.submission_checks import QueuedJobs
from schedd.service.read.job_visibility import ALL_JOBS
from schedd.wire import JobFacts, ResourceTypes

router = RouteTable(prefix="/v1/clusters/{cluster}", tags=["questions"], route_class=UnicodeRoute)
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
            known = VisibleJobs(copy.published, visibility)
            dependency = find_dependency_time(copy.published, question.depend, now, known.find)
        return answer_what_if(
            copy, expecting, question, job, now, caller.name, without_slots, submitter, dependency
        )

    return reply(request, await run_question(request, answer))


def _own_dependency(published: PlanSnapshot, depend: str, now: int) -> DependencyTime:
    """Return when the dependency of a queued job is met. Jobs that the caller may not see are not named."""
    found = find_dependency_time(published, depend, now, VisibleJobs(published, ALL_JOBS).find)
    wait = WaitingFor("dependency", f"its dependency {depend}") if found.wait is not None else None
    return replace(found, wait=wait, notes=())


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
    if job is not None and job.facts.depend:
        dependency = _own_dependency(published, job.facts.depend, now)
    own = PublishedStart.from_job(published, job, now) if job is not None and not without_slots else None
    queued = QueuedJobs(lambda: all_jobs(published), ResourceTypes(published.server.resources))

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
        unaltered = job is not None and queue is None and is_unaltered(copy, job, request_facts)
        try:
            if wrong := deadline_fault(request_facts.resources, request_facts.submitted):
                raise NotUnderstood(wrong)
            if queue is None:
                admission = check_admission(
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
        keeps = own is not None and current is None and copy.keeps_promise(request_facts, own.record)
        if own is not None and keeps:
            promise = min(promise, own.promise)
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
        own_forecast = ""
        if own is not None and keeps:
            expected, own_forecast = own.bound(expected, outcome)
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
            *filter(None, (own_forecast,)),
            *without_units(changed_resources),
            *admission.notes,
            *dependency.notes,
            *stopped_queue_notes(copy.published, request_facts.queue, outcome),
        )
        outcome = replace(outcome, notes=notes)
        if expecting is not None and isinstance(outcome.answer, StartKnown):
            theirs = replace(request_facts, owner=request_facts.owner or who)
            kept = own if keeps else None
            outcome = _with_likely_starts(copy, expecting, theirs, outcome, instead_of, kept)
        fields = render_fields(
            copy,
            request_facts,
            outcome,
            promise,
            expected,
            current=(job, current) if job is not None and current is not None else None,
            start_by=question.start_by,
            now=now,
        )
        fields["refusals"] = admission.refusals
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
        destination_view(
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


def _with_likely_starts(
    copy: PlanFork,
    expecting: StartForecast,
    facts: JobFacts,
    outcome: WhatIfAnswer,
    instead_of: str,
    own: PublishedStart | None,
) -> WhatIfAnswer:
    """Return the answer with the likely start of each change, as far as the work of a question allows.

    ``own`` is the published start of the job in question, if it keeps its place without a change.
    """
    request = copy.understand(facts).request
    place = outcome.answer
    if request is None or not isinstance(place, StartKnown) or copy.published.starts_stopped:
        return outcome
    spent = False

    def with_start(one: SmallerRequest) -> SmallerRequest:
        nonlocal spent
        if spent:
            return one
        stated = outcome.walltime if outcome.scale is None else outcome.scale.stated
        smaller, walltime = apply_change(request, stated, one)
        if outcome.scale is not None:
            walltime = outcome.scale.planned(walltime)
        placed = replace(place.placement, start=one.planned_start, end=one.planned_start + walltime)
        asked = replace(outcome, answer=StartKnown(placed), walltime=walltime)
        promise = hypothetical_promise(copy, asked, facts.queue)
        if own is not None:
            promise = min(promise, own.promise)
        try:
            found = expecting.expect_start(
                facts, asked, promise, instead_of=instead_of, form=(smaller, walltime)
            )
        except WorkSpent:
            spent = True
            return one
        if own is not None:
            found, _ = own.bound(found, asked)
        if found.start < 0:
            return one
        return replace(one, expected_start=found.start, expected_by=found.by if found.by >= 0 else None)

    return replace(
        outcome,
        changes=tuple(map(with_start, outcome.changes)),
        sooner_changes=tuple(map(with_start, outcome.sooner_changes)),
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
        lasts = one.value if outcome.scale is None else outcome.scale.planned(one.value)
        return replace(one, risk=round(run_time.share_beyond(lasts), 4))

    return replace(
        outcome,
        changes=tuple(map(with_risk, outcome.changes)),
        sooner_changes=tuple(map(with_risk, outcome.sooner_changes)),
    )
