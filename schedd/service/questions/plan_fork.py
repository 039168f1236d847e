"""Forks of the plan for questions: one per generation, shared by all callers."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from typing import TypeVar

import numpy as np

from schedd.dialect.deadline import read_deadline
from schedd.dialect.walltime_scale import SCALE
from schedd.engine import (
    BOOKING,
    HYPOTHETICAL,
    Engine,
    EngineState,
    FormCandidate,
    JobRecord,
    LimitBook,
    ParsedRequest,
    PlanSnapshot,
    best_form,
    job_refusal,
    job_restriction,
    job_scopes,
    last_starts,
    latest_end,
    node_order,
    promise_end_reason,
    published_record,
    walltimes_in_what_if,
)
from schedd.model import FOREVER, Request, StartKnown
from schedd.plan.columns import Ints
from schedd.plan.criteria import parse_criteria
from schedd.plan.evaluate import CriterionValues, CriterionWeights, Evaluation, ScoringColumns
from schedd.plan.plan import Plan
from schedd.policy.site import Placing
from schedd.service.questions.arrivals import Arrival, handle_arrival
from schedd.service.questions.open_questions import limit_plan_work, limit_searches
from schedd.service.questions.submitted_requests import (
    NotUnderstood,
    SubmittedRequests,
    replace_walltime,
    with_walltimes_of_range,
)
from schedd.service.questions.trial import DeadlineOrder, SubmissionTrial
from schedd.service.questions.unplanned_answers import UnplannedAnswers
from schedd.service.questions.what_if import WhatIfAnswer, WhatIfOptions, WhatIfQuestion
from schedd.wire import JobFacts

_T = TypeVar("_T")

RequestForm = tuple[Request, int]  # a changed request of a job, and its walltime


class PlanFork:
    """The plan at a batch boundary. Any thread may ask questions; they are answered one at a time."""

    def __init__(
        self,
        plan: Plan,
        published: PlanSnapshot,
        limits: LimitBook,
        columns: ScoringColumns,
        walltime_use: float = 1.0,
        ranks: Ints | None = None,
        uncounted: Collection[str] = (),
        bounds: Ints | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.published = published
        self.ranks = ranks if ranks is not None else np.zeros(published.starts.shape[0], np.int64)
        self.columns = columns
        self.walltime_use = walltime_use
        self._bounds = bounds if bounds is not None else published.bound
        self._first_plan = plan
        self._searched_plan = plan if engine is None else None  # the engine's own stays as it is
        self._limits = limits
        self._engine = engine
        self._other: tuple[str, Plan] | None = None
        self._uncounted = frozenset(uncounted)
        self._requests = SubmittedRequests(published, limits, plan, self._uncounted)
        self._unplanned = UnplannedAnswers(published, limits, self._uncounted)
        self._lock = threading.Lock()
        self._evaluating = threading.Lock()
        self._criteria: CriterionValues | None = None

    @property
    def generation(self) -> int:
        return self.published.generation

    @property
    def as_of(self) -> int:
        return self.published.as_of

    def note_halt(self, present: PlanSnapshot) -> None:
        """Adopt from a later snapshot whether jobs are started: a pause, or a silent adapter, needs no new
        fork. Any thread may call it.
        """
        known = self.published
        if (known.stale, known.halted) != (present.stale, present.halted):
            self.published = replace(known, stale=present.stale, halted=present.halted)

    def copy(self) -> Plan:
        """Return a copy of the plan, limited to the work of one question."""
        with self._lock:
            plan = self._plan.fork()
        limit_plan_work(plan)
        return plan

    def evaluate(self) -> CriterionValues:
        """Return the value of each criterion; concurrent and later callers share one computation."""
        with self._evaluating:
            if self._criteria is None:
                self._criteria = Evaluation(self.copy(), self.columns, self.as_of).values()
            return self._criteria

    def what_if(
        self,
        facts: JobFacts,
        now: int,
        *,
        instead_of: str = "",
        without_slots: tuple[int, ...] = (),
        most_windows: int = 0,
        changes: bool = False,
        start_by: int | None = None,
        sooner: bool = False,
        cheapest_by: int | None = None,
        tasks: Sequence[int] = (),
    ) -> WhatIfAnswer:
        """Return where the plan would place this job if it arrived at ``now``; the plan stays unchanged.

        ``instead_of`` (a job of the plan) and ``without_slots`` are removed first.

        Optional parts of the answer: the first ``most_windows`` windows of starts; the smallest ``changes``
        for an immediate start (for a start by ``start_by``), and if ``sooner`` those for one at least
        ``SOONER_S`` before the planned one; the cheapest start with an end by ``cheapest_by``; the common end
        of each number of equal jobs in ``tasks`` (ascending; impossible or too expensive ones are left out).
        Raises NotUnderstood, and WorkSpent beyond QUESTION_WORK.

        A copy of the engine handles the arrival or alteration. Walltimes in ``changes`` are those to request.
        """
        options = WhatIfOptions(
            instead_of, without_slots, most_windows, changes, start_by, sooner, cheapest_by, tasks
        )
        variants, walltimes = self._requests.variants(facts), walltimes_in_what_if(self.published, facts)
        forms = [form for one in variants for form in with_walltimes_of_range(one, walltimes)]
        moment = max(now, self.as_of)
        with self._lock, ExitStack() as stack:
            arrival = self._handle_arrival(facts, moment, options)
            if arrival is not None:
                facts = arrival.facts
            request, understood = self._read(facts)
            other = instead_of or without_slots
            plan = self._plan_without(instead_of, moment, without_slots) if other else self._plan
            stack.enter_context(limit_searches(plan))
            best = self.published.settings.site.placement is not Placing.FIRST_GAP
            trial = self._trial(plan, facts, understood, moment, best=best)
            several = len(forms) > 1 and bool(changes or sooner or tasks or most_windows or cheapest_by)
            return WhatIfQuestion(
                self.published,
                self._unplanned,
                options,
                trial,
                request,
                arrival,
                only=len(variants) == 1,
                forms=self._trials(plan, forms, moment, best=best) if several else [trial],
                order=self._deadline_order(facts),
            ).find_answer()

    def _handle_arrival(self, facts: JobFacts, moment: int, options: WhatIfOptions) -> Arrival | None:
        """Return the engine's plan after the arrival of the job, or its alteration; None for a booking."""
        if facts.id.startswith(BOOKING):
            return None
        if self._engine is None:
            raise TypeError("a fork whose plan is not the engine's cannot answer a what-if")
        known = self._engine.state.records
        facts = self._requests.accepted(facts, self._plan)
        altered = options.instead_of in known
        if altered or facts.id in known:
            facts = replace(facts, id=options.instead_of if altered else HYPOTHETICAL)
        return handle_arrival(self._engine, facts, moment, altered=altered, free=options.without_slots)

    def _deadline_order(self, facts: JobFacts) -> DeadlineOrder | None:
        """Return how such jobs are placed before jobs with later deadlines; None: they displace none."""
        settings = self.published.settings
        if settings.site.placement is not Placing.BEST_GAP_EDF:
            return None
        if not read_deadline(facts.resources, facts.submitted):
            return None
        patience = settings.search_patience
        return DeadlineOrder(self.columns, self._bounds, self.ranks, patience, self.walltime_use)

    @property
    def _plan(self) -> Plan:
        """The plan for searches; the caller holds the lock."""
        if self._searched_plan is None:
            self._searched_plan = self._first_plan.fork()
        return self._searched_plan

    def _planned_form(self, facts: JobFacts, moment: int, instead_of: str) -> JobFacts:
        """Return the form of a job that would be planned: the engine's choice, by the engine's function. The
        first one if none can be read.
        """
        variants, walltimes = self._requests.variants(facts), walltimes_in_what_if(self.published, facts)
        if len(variants) == 1 and walltimes is None:
            return variants[0]
        with self._lock:
            plan = self._plan_without(instead_of, moment) if instead_of else self._plan
            known: dict[int | None, list[FormCandidate | None]] = {}

            def read_forms(walltime: int | None) -> list[FormCandidate | None]:
                if walltime not in known:
                    forms = [replace_walltime(one, walltime) for one in variants]
                    known[walltime] = [self._read_form(plan, one, moment, instead_of) for one in forms]
                return known[walltime]

            longest = walltimes[1] if walltimes is not None else None
            first = next((one.variant for one in read_forms(longest) if one is not None), None)
            if first is None:
                return variants[0]
            ready = max(moment, facts.not_before or 0)
            end_by = latest_end(self.published, facts) if walltimes is not None else FOREVER
            with limit_searches(plan):
                slot = plan.add_job(first.request, first.duration, ready, first.pools)
                try:
                    best, walltime = best_form(
                        plan, slot, read_forms, walltimes, moment, ready, end_by=end_by
                    )
                finally:
                    plan.drop_job(slot, moment)
        return replace_walltime(variants[max(best, 0)], walltime)

    def _read_form(self, plan: Plan, facts: JobFacts, moment: int, instead_of: str) -> FormCandidate | None:
        try:
            request, understood = self._read(facts)
        except NotUnderstood:
            return None
        variant = self._trial(plan, facts, understood, moment, best=False).variant(request)

        @cache
        def waits() -> bool:
            if self._limits.too_much(variant.pools) is not None:
                return True
            return self._unplanned.wait_of_component(facts, understood, instead_of) is not None

        return FormCandidate(variant, waits)

    def _trials(
        self, plan: Plan, variants: Sequence[JobFacts], moment: int, *, best: bool
    ) -> list[SubmissionTrial]:
        """Return a trial of each variant of a job that is not refused as it was submitted."""
        return [
            self._trial(plan, facts, self._read(facts)[1], moment, best=best)
            for facts in variants
            if job_refusal(self.published, facts) is None
        ]

    def understand(self, facts: JobFacts) -> ParsedRequest:
        """Return the interpretation of a job's request, or of its first alternative. Raises NotUnderstood."""
        with self._lock:
            *others, last = self._requests.variants(facts)
            try:
                return self._read(last if SCALE in last.resources else facts)[1]
            except NotUnderstood:
                if not others:
                    raise
                return self._read(others[0])[1]

    def keeps_promise(self, facts: JobFacts, job: JobRecord) -> bool:
        """Return whether a queued job would keep its promise, and so could keep its place, if it was altered
        to ``facts``; not if these cannot be parsed.
        """
        site = self.published.settings.site
        try:
            understood = self.understand(facts)
        except NotUnderstood:
            return False
        return not promise_end_reason(self.published, self._limits, site, job, facts, understood)

    def is_understood_as(self, facts: JobFacts, known: ParsedRequest) -> bool:
        """Return whether the request of a job, or one of its alternatives, means the same as another; not if
        it cannot be parsed.
        """
        try:
            with self._lock:
                return any(self._read(one)[1] == known for one in self._requests.variants(facts))
        except NotUnderstood:
            return False

    def earliest_start(
        self,
        facts: JobFacts,
        now: int,
        lasts: int,
        *,
        instead_of: str = "",
        form: RequestForm | None = None,
    ) -> int | None:
        """Return the first possible start if the job arrived at ``now`` and ran for ``lasts`` seconds, with
        another ``form`` of its request if that is given.

        None: there is none. Raises NotUnderstood, and WorkSpent.
        """
        with self._earliest(facts, now, instead_of, form) as (asking, request, _):
            found = asking.start(request, lasts) if asking is not None else None
        return found.placement.start if isinstance(found, StartKnown) else None

    def with_job(
        self,
        facts: JobFacts,
        now: int,
        ask: Callable[[Plan, int], _T],
        *,
        instead_of: str = "",
        form: RequestForm | None = None,
    ) -> _T | None:
        """Return ``ask(plan, slot)`` for the plan with this job in its earliest placement, as if it arrived
        at ``now``, in the form that the engine would choose.

        ``ask`` must not change the plan. None: there is no placement. Raises NotUnderstood, and WorkSpent.
        """
        with self._earliest(facts, now, instead_of, form) as (asking, request, walltime):
            return asking.tried(request, walltime, ask) if asking is not None else None

    @contextmanager
    def _earliest(
        self, facts: JobFacts, now: int, instead_of: str, form: RequestForm | None
    ) -> Iterator[tuple[SubmissionTrial | None, Request, int]]:
        """Yield a trial (None if the job may not be planned), the request, and the walltime, in the form that
        the engine would choose.
        """
        moment = max(now, self.as_of)
        facts = self._planned_form(facts, moment, instead_of)
        with self._lock:
            request, understood = self._read(facts)
            if form is not None:
                request, walltime = form
                understood = replace(understood, request=request, walltime=walltime)
            plan = self._plan_without(instead_of, moment) if instead_of else self._plan
            with limit_searches(plan):
                may = (
                    self._unplanned.plans_starts
                    and self._unplanned.before_search(plan, facts, request, understood) is None
                )
                asking = self._trial(plan, facts, understood, moment, best=False) if may else None
                yield asking, request, understood.walltime

    def with_plan(self, plan: Plan) -> "PlanFork":
        """Return this fork with another plan, which must not be used elsewhere then."""
        return PlanFork(
            plan, self.published, self._limits, self.columns, self.walltime_use, self.ranks, self._uncounted,
            self._bounds,
        )  # fmt: skip

    def _read(self, facts: JobFacts) -> tuple[Request, ParsedRequest]:
        return self._requests.read(facts, self._plan)

    def _trial(
        self, plan: Plan, facts: JobFacts, understood: ParsedRequest, moment: int, *, best: bool
    ) -> SubmissionTrial:
        gates, sets = self.published.gates, self.published.node_sets
        criteria = self.published.settings.criteria
        return SubmissionTrial(
            plan, self._limits, gates, sets, facts, understood, moment, max(moment, facts.not_before or 0),
            self.columns, CriterionWeights(parse_criteria(criteria)) if best else None,
            restriction=job_restriction(self.published, facts), scopes=job_scopes(self.published, facts),
            node_order=node_order(self.published, facts),
        )  # fmt: skip

    def _plan_without(self, job_id: str, now: int, slots: tuple[int, ...] = ()) -> Plan:
        """Return the plan without a job and these slots, cached for further questions about it."""
        key = " ".join((job_id, *map(str, slots)))
        if self._other is None or self._other[0] != key:
            plan = self._plan.fork()
            for slot in slots:
                plan.remove(slot, now)
            record = published_record(self.published, job_id)
            if record is not None and record.slot >= 0:
                plan.remove(record.slot, now)
            self._other = (key, plan)
        return self._other[1]


def fork_plan(engine: Engine, published: PlanSnapshot) -> PlanFork:
    """Fork the engine and its plan. Call it between batches, in the thread that owns the engine."""
    fork = engine.fork()
    return _fork_of_state(fork.state, published, fork.state.plan, fork)


def wrap_plan(state: EngineState, published: PlanSnapshot, plan: Plan) -> PlanFork:
    """Wrap ``plan``, a fork of the state's plan that ``published`` describes; it answers no what-if.

    Call it between batches, in the thread that owns the state.
    """
    return _fork_of_state(state, published, plan, None)


def _fork_of_state(
    state: EngineState, published: PlanSnapshot, plan: Plan, engine: Engine | None
) -> PlanFork:
    return PlanFork(
        plan,
        published,
        state.limits.copy(),
        state.columns.copy(),
        state.walltime_use.share,
        state.rank.copy(),
        state.uncounted,
        last_starts(state) if state.site.placement is Placing.BEST_GAP_EDF else None,
        engine,
    )
