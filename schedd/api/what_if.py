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
from schedd.api.what_if_admission import (
    VisibleJobs,
    all_jobs,
    charge_notes,
    check_admission,
    group_notes,
    is_unaltered,
    known_group,
)
from schedd.api.what_if_fields import destination_view, render_fields, stopped_queue_notes
from schedd.dialect.advres import read_advres
from schedd.dialect.deadline import deadline_fault
from schedd.dialect.units import without_units
from schedd.engine import (
    JobRecord,
    Phase,
    PlanSnapshot,
    job_refusal,
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
from schedd.service.questions.plan_fork import PlanFork
from schedd.service.questions.published_start import PublishedStart, current_start
from schedd.service.questions.smaller_requests import SmallerRequest, apply_change
from schedd.service.questions.submission_checks import QueuedJobs
from schedd.service.questions.submitted_requests import NotUnderstood
from schedd.service.questions.what_if import WhatIfAnswer
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
    asked = find_job(cluster.name, cluster.published, visibility, question.job).id if question.job else ""
    copy = await get_plan_fork(cluster, asked)
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
    evaluator = _RequestEvaluator(
        copy, expecting, question, job, now, who, without_slots, submitter, dependency
    )
    form = next(name for name in ("request", "resources", "job") if getattr(question, name) is not None)
    outcome, common, admission = evaluator.evaluate(f"body.{form}", tasks=counts, is_main=True)
    destinations = tuple(
        destination_view(
            one,
            chosen=not admission.refusals and one.queue == admission.facts.queue,
            fields=evaluator.evaluate("body.queue", queue=one.queue)[1]
            if not one.refusals and number < _MAX_DESTINATIONS
            else {},
        )
        for number, one in enumerate(admission.destinations)
    )
    variants = [
        evaluator.evaluate(f"body.variants[{i}]", variant) for i, variant in enumerate(question.variants)
    ]
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


class _RequestEvaluator:
    """Answers of a question for its request and each of its variants; see ``answer_what_if``."""

    def __init__(
        self,
        copy: PlanFork,
        expecting: StartForecast | None,
        question: WhatIfRequest,
        job: JobRecord | None,
        now: int,
        who: str,
        without_slots: tuple[int, ...],
        submitter: str,
        dependency: DependencyTime,
    ) -> None:
        self._copy = copy
        self._expecting = expecting
        self._question = question
        self._job = job
        self._now = now
        self._who = who
        self._without_slots = without_slots
        self._submitter = submitter
        self._instead_of = job.id if job is not None else ""
        self._known = job.facts.resources if job is not None else {}
        published = copy.published
        if job is not None and job.facts.depend:
            dependency = _own_dependency(published, job.facts.depend, now)
        self._dependency = dependency
        replaces = job is not None and not without_slots
        self._own = PublishedStart.from_job(published, job, now) if job is not None and replaces else None
        self._group: str | None = None  # of the owner's jobs
        self._queued = QueuedJobs(lambda: all_jobs(published), ResourceTypes(published.server.resources))

    def evaluate(
        self,
        where: str,
        variant: WhatIfVariant | None = None,
        *,
        queue: str | None = None,
        tasks: Sequence[int] = (),
        is_main: bool = False,
    ) -> tuple[WhatIfAnswer, dict[str, Any], Admission]:
        """Return the answer, its fields in the result, and the admission by queue and server.

        ``queue``: a destination of a routing queue, which accepts the job. ``is_main``: it is the question's
        request, for which also windows and changes are searched. Raises ProblemError at ``where``.
        """
        copy, job = self._copy, self._job
        facts = self._request_facts(variant, queue)
        current = None
        if job is not None and queue is None and is_unaltered(copy, job, facts) and not self._without_slots:
            current = current_start(copy.published, job)
        try:
            if wrong := deadline_fault(facts.resources, facts.submitted):
                raise NotUnderstood(wrong)
            admission = Admission(facts) if queue is not None else self._check_admission(facts)
            facts = admission.facts
            outcome = self._search_starts(facts, tasks, is_main=is_main)
        except NotUnderstood as error:
            fault = Fault(where=where, what=str(error))
            raise ProblemError("invalid", f"{where}: {error}", errors=[fault]) from None
        outcome, fields = self._complete(facts, outcome, admission, current)
        fields["refusals"] = admission.refusals
        return outcome, fields, admission

    def _request_facts(self, variant: WhatIfVariant | None, queue: str | None) -> JobFacts:
        facts = self._question.facts(self._now, self._job.facts if self._job is not None else None, variant)
        if queue is not None:
            facts = replace(facts, queue=queue)
        if self._dependency.ready:
            facts = replace(facts, not_before=max(self._dependency.ready, facts.not_before or 0))
        if not facts.owner and (self._submitter or read_advres(facts.resources)):
            facts = replace(facts, owner=self._submitter or self._who)  # a booking is its owner's
        if self._job is None and facts.owner and not facts.group:
            if self._group is None:
                self._group = known_group(self._copy.published, facts.owner)
            facts = replace(facts, group=self._group)
        return facts

    def _check_admission(self, facts: JobFacts) -> Admission:
        return check_admission(
            self._copy,
            facts,
            self._known,
            self._instead_of,
            array=self._question.array_request,
            submitter=self._submitter,
            queued=self._queued,
        )

    def _search_starts(self, facts: JobFacts, tasks: Sequence[int], *, is_main: bool) -> WhatIfAnswer:
        question = self._question
        outcome = self._copy.what_if(
            facts,
            self._now,
            instead_of=self._instead_of,
            without_slots=self._without_slots,
            most_windows=question.windows if is_main else 0,
            changes=question.changes and is_main,
            start_by=question.start_by,
            sooner=question.sooner and is_main,
            cheapest_by=question.cheapest_by if is_main else None,
            tasks=tasks,
        )
        if self._expecting is not None and (outcome.changes or outcome.sooner_changes):
            outcome = _with_risks(outcome, self._expecting, self._owned(facts))
        return outcome

    def _owned(self, facts: JobFacts) -> JobFacts:
        """Return the facts of a job with an owner, by whose jobs run times are predicted."""
        return replace(facts, owner=facts.owner or self._who)

    def _complete(
        self, facts: JobFacts, outcome: WhatIfAnswer, admission: Admission, current: StartKnown | None
    ) -> tuple[WhatIfAnswer, dict[str, Any]]:
        """Return the answer with promise, expected start, refusals and notes; and its fields.

        ``current`` is the present start of the job in question, if the request does not alter it.
        """
        copy, own, expecting = self._copy, self._own, self._expecting
        promise = hypothetical_promise(copy, outcome, facts)
        kept = own if own is not None and current is None and copy.keeps_promise(facts, own.record) else None
        if kept is not None:
            promise = min(promise, kept.promise)
        expected, own_forecast = UNKNOWN, ""
        if current is not None:
            outcome = replace(outcome, answer=current)
        elif expecting is not None:
            expected = expecting.expect_start(
                self._owned(facts), outcome, promise, instead_of=self._instead_of
            )
        if kept is not None:
            expected, own_forecast = kept.bound(expected, outcome)
        wait = self._dependency.wait
        if wait is not None and isinstance(outcome.answer, StartKnown):
            outcome = replace(outcome, answer=wait, **_NO_START)
            expected, promise = UNKNOWN, FOREVER
        if admission.refusals:
            outcome = replace(outcome, answer=Never(admission.refusal), **_NO_START)
            expected, promise = UNKNOWN, FOREVER
        elif isinstance(outcome.answer, Never) and job_refusal(copy.published, facts) is not None:
            outcome = replace(outcome, **_NO_START)  # no smaller request makes a rule admit the job
        outcome = replace(outcome, notes=self._notes(facts, outcome, admission, own_forecast))
        if expecting is not None and isinstance(outcome.answer, StartKnown):
            outcome = _with_likely_starts(
                copy,
                expecting,
                self._owned(facts),
                outcome,
                self._instead_of,
                own if current is not None else kept,
            )
        fields = render_fields(
            copy,
            facts,
            outcome,
            promise,
            expected,
            current=(self._job, current) if self._job is not None and current is not None else None,
            start_by=self._question.start_by,
            now=self._now,
        )
        return outcome, fields

    def _notes(
        self, facts: JobFacts, outcome: WhatIfAnswer, admission: Admission, own_forecast: str
    ) -> tuple[str, ...]:
        changed = {name: text for name, text in facts.resources.items() if self._known.get(name) != text}
        starts = isinstance(outcome.answer, StartKnown)
        return (
            *(note for note in outcome.notes if starts or note != outcome.means),
            *filter(None, (own_forecast,)),
            *without_units(changed),
            *admission.notes,
            *self._dependency.notes,
            *(group_notes(self._copy.published, facts) if self._job is None else ()),
            *stopped_queue_notes(self._copy.published, facts.queue, outcome),
            *(charge_notes(self._copy.published, facts) if starts else ()),
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

    ``own`` is the published start of the job in question, if its request as asked could keep its place.
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
        asked = replace(outcome, answer=StartKnown(placed), walltime=walltime, promise=None)
        promise = hypothetical_promise(copy, asked, facts)
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
        return replace(
            one, expected_start=found.start, expected_by=found.by if 0 <= found.by < promise else None
        )

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
