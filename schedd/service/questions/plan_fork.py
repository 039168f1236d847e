"""Forks of the plan for questions: one per generation, shared by all callers."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import numpy as np

from schedd.dialect import request_words
from schedd.dialect.deadline import read_deadline
from schedd.dialect.moldable import with_walltime
from schedd.dialect.walltime_scale import SCALE, WalltimeScale
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
    RequestReader,
    as_planned_request,
    best_form,
    components,
    find_uncounted,
    first_waiting_reason,
    job_refusal,
    job_restriction,
    job_scopes,
    last_starts,
    latest_end,
    node_order,
    promise_end_reason,
    published_record,
    unusable_amounts,
    variants_in_what_if,
    walltimes_in_what_if,
)
from schedd.model import FOREVER, Answer, Never, Request, StartKnown, WaitingFor
from schedd.plan.columns import Ints
from schedd.plan.criteria import parse_criteria
from schedd.plan.evaluate import CriterionValues, CriterionWeights, Evaluation, ScoringColumns
from schedd.plan.plan import Plan
from schedd.plan.views import StartWindow, empty_plan, find_unmet_requirement
from schedd.policy.site import Placing
from schedd.service.questions.arrivals import Arrival, handle_arrival
from schedd.service.questions.cheapest_start import CheapestStart
from schedd.service.questions.open_questions import limit_plan_work, limit_searches
from schedd.service.questions.smaller_requests import SmallerRequest, smaller_requests
from schedd.service.questions.trial import DeadlineOrder, SubmissionTrial, TasksEnd, task_ends
from schedd.service.questions.vnode_requests import adapter_amounts, request_vnodes, with_requested_vnodes
from schedd.wire import JobFacts
from schedd.wire.quick_init import quick_replace

_T = TypeVar("_T")


class NotUnderstood(ValueError):
    """A what-if request cannot be parsed: the message has the place and the allowed values."""


RequestForm = tuple[Request, int]  # a changed request of a job, and its walltime
SOONER_S = 300  # a start is sooner than planned if it is at least this much earlier


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """Answer to a what-if: the start of the job if it arrived at ``now``, and its interpretation."""

    answer: Answer
    walltime: int
    walltime_assumed: bool
    notes: tuple[str, ...]
    now: int
    generation: int
    request: str  # the request in words
    windows: tuple[StartWindow, ...] = ()  # possible starts, from the earliest on
    changes: tuple[SmallerRequest, ...] = ()
    cheapest: CheapestStart | None = None  # the cheapest start that ends in time, if requested and found
    many: tuple[TasksEnd, ...] = ()
    changes_by: int | None = None  # the latest start that `changes` allow; None: no changes were requested
    sooner_changes: tuple[SmallerRequest, ...] = ()
    sooner_by: int | None = None  # the latest start that `sooner_changes` allow
    scale: WalltimeScale | None = None  # the scale of the walltime; None: it is as requested
    promise: int | None = None  # the latest start that would be promised, FOREVER: none; None: not known
    means: str = ""  # note about the jobs that would be moved or preempted for this start


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
        self._bare: Plan | None = None
        self._other: tuple[str, Plan] | None = None
        self._obeyed = published.settings.site.obeyed
        self._intake = RequestReader(published.settings)
        self._uncounted = frozenset(uncounted)
        self._intake.set_nodes(plan.nodes, self._uncounted)
        self._intake.set_shared(limits.shared)
        self._intake.set_types(limits.types)
        self._adapter_amounts = adapter_amounts(published.nodes)
        self._hosts = sum(facts.cpus > 0 for facts in published.nodes.values())
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
        of each
        number of equal jobs in ``tasks`` (ascending; impossible or too expensive ones are left out). Raises
        NotUnderstood, and WorkSpent beyond QUESTION_WORK.

        A copy of the engine handles the arrival or alteration. Walltimes in ``changes`` are those to request.
        """
        variants, walltimes = self._variants(facts), walltimes_in_what_if(self.published, facts)
        moment = max(now, self.as_of)
        with self._lock, ExitStack() as stack:
            arrival = self._handle_arrival(facts, moment, instead_of, without_slots)
            if arrival is not None:
                facts = arrival.facts
            request, understood = self._read(facts)
            other = instead_of or without_slots
            plan = self._plan_without(instead_of, moment, without_slots) if other else self._plan
            stack.enter_context(limit_searches(plan))
            placing = self.published.settings.site.placement
            best = placing is not Placing.FIRST_GAP
            asking = self._trial(plan, facts, understood, moment, best=best)
            ahead = placing is Placing.BEST_GAP_EDF and read_deadline(facts.resources, facts.submitted)
            answer = arrival.answer if arrival is not None else self._gap(asking, facts, request, understood)
            if answer is None:
                only = len(variants) == 1
                policy = self._queue_policy_answer(asking, request, understood.walltime, only=only)
                answer = policy or self._no_start(facts, request)
            at_once = later = False
            if isinstance(answer, StartKnown):
                at_once = answer.placement.start == asking.ready
                later = not at_once
            elif self.published.settings.policy == "conservative":
                later = isinstance(answer, Never) or answer.kind in ("node", "limit")
            waits = isinstance(answer, WaitingFor) and bool(
                self._component_wait(facts, understood, instead_of)
            )
            open_to_it = (at_once or later) and not waits
            seen = asking.windows(request, understood.walltime, most_windows) if open_to_it else ()
            forms = [one for facts in variants for one in _with_walltimes(facts, walltimes)]
            several = len(forms) > 1 and bool(changes or sooner or tasks)
            trials = self._trials(plan, forms, moment, best=best) if several else [asking]
            scale = understood.scale
            others = [asking] if scale is not None else trials  # its walltime is for nodes of one speed

            def changes_for(by: int | None) -> tuple[SmallerRequest, ...]:
                in_time = isinstance(answer, StartKnown) and by is not None and answer.placement.start <= by
                if by is None or not later or in_time:
                    return ()

                def earliest_start(smaller: Request, lasts: int) -> int:
                    seconds = lasts if scale is None else scale.planned(lasts)
                    form = replace(understood, request=smaller, walltime=seconds)
                    if waits and self._component_wait(facts, form, instead_of) is not None:
                        return -1
                    starts = (one.start_in_time(smaller, seconds, by) for one in others)
                    return min((start for start in starts if start >= 0), default=-1)

                stated = understood.walltime if scale is None else scale.stated
                return smaller_requests(request, stated, earliest_start)

            by = max(asking.ready, start_by if start_by is not None else 0) if changes else None
            sooner_by = None
            if sooner and isinstance(answer, StartKnown):
                sooner_by = max(asking.ready, answer.placement.start - SOONER_S)
            found = changes_for(by)
            found_sooner = found if sooner_by == by else changes_for(sooner_by)
            least = None
            if cheapest_by is not None and isinstance(answer, StartKnown):
                least = asking.cheapest(request, understood.walltime, cheapest_by, self.published)
            known = isinstance(answer, StartKnown)
            many: tuple[TasksEnd, ...] = ()
            if known and tasks:
                first = self._in_deadline_order(asking) if ahead else asking
                tried = [
                    (replace(one, plan=first.plan, order=first.order), one.understood.request or request)
                    for one in trials
                ]
                many = tuple(task_ends(tried, tasks))
        remarks = (
            arrival.remark if arrival is not None else "",
            scale.describe() if scale is not None else "",
        )
        return WhatIfAnswer(
            answer,
            understood.walltime,
            understood.assumed,
            (*request.notes, *filter(None, remarks)),
            moment,
            self.generation,
            request_words(
                replace(request, walltime=scale.stated if scale is not None else understood.walltime)
            ),
            seen,
            found,
            least,
            many,
            by,
            found_sooner,
            sooner_by,
            scale,
            arrival.promise if arrival is not None else None,
            remarks[0],
        )

    def _handle_arrival(
        self, facts: JobFacts, moment: int, instead_of: str, without_slots: tuple[int, ...]
    ) -> Arrival | None:
        """Return the engine's plan after the arrival of the job, or its alteration; None for a booking."""
        if facts.id.startswith(BOOKING):
            return None
        if self._engine is None:
            raise TypeError("a fork whose plan is not the engine's cannot answer a what-if")
        known = self._engine.state.records
        facts = self._with_vnodes(self._with_defaults(facts))
        altered = instead_of in known
        if altered or facts.id in known:
            facts = replace(facts, id=instead_of if altered else HYPOTHETICAL)
        return handle_arrival(self._engine, facts, moment, altered=altered, free=without_slots)

    def _gap(
        self, asking: SubmissionTrial, facts: JobFacts, request: Request, understood: ParsedRequest
    ) -> Answer:
        """Return the first gap for a booking, which displaces no job."""
        return (
            self._immediate_answer(facts, request, understood)
            or asking.start(request, understood.walltime)
            or self._no_start(facts, request)
        )

    def _in_deadline_order(self, asking: SubmissionTrial) -> SubmissionTrial:
        """Return the trial on a plan of its own, in which jobs with later deadlines may be displaced."""
        patience, use = self.published.settings.search_patience, self.walltime_use
        order = DeadlineOrder(self.columns, self._bounds, self.ranks, patience, use)
        plan = asking.plan.fork()
        limit_plan_work(plan)
        return replace(asking, plan=plan, order=order)

    @property
    def _plan(self) -> Plan:
        """The plan for searches; the caller holds the lock."""
        if self._searched_plan is None:
            self._searched_plan = self._first_plan.fork()
        return self._searched_plan

    def _variants(self, facts: JobFacts) -> Sequence[JobFacts]:
        """Return the alternatives of a job, as the server would accept it."""
        return variants_in_what_if(self.published, self._with_defaults(facts))

    def _with_defaults(self, facts: JobFacts) -> JobFacts:
        """Return a job with the defaults of its queue and of the server for the resources that features obey:
        the server adds them to each job that is submitted.
        """
        if self._obeyed:
            queue = self.published.queues.get(facts.queue)
            defaults = {**self.published.server.defaults, **(queue.defaults if queue is not None else {})}
            named = {name.lower() for name in facts.resources}
            added = {k: text for k, text in defaults.items() if k.lower() in self._obeyed - named}
            if added:
                facts = replace(facts, resources={**facts.resources, **added})
        return facts

    def _planned_form(
        self, facts: JobFacts, moment: int, instead_of: str, without_slots: tuple[int, ...] = ()
    ) -> JobFacts:
        """Return the form of a job that would be planned: the engine's choice, by the engine's function. The
        first one if none can be read.
        """
        variants, walltimes = self._variants(facts), walltimes_in_what_if(self.published, facts)
        if len(variants) == 1 and walltimes is None:
            return variants[0]
        with self._lock:
            other = instead_of or without_slots
            plan = self._plan_without(instead_of, moment, without_slots) if other else self._plan
            known: dict[int | None, list[FormCandidate | None]] = {}

            def read_forms(walltime: int | None) -> list[FormCandidate | None]:
                if walltime not in known:
                    forms = [_with_walltime(one, walltime) for one in variants]
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
        return _with_walltime(variants[max(best, 0)], walltime)

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
            return self._component_wait(facts, understood, instead_of) is not None

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
            *others, last = self._variants(facts)
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
                return any(self._read(one)[1] == known for one in self._variants(facts))
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
                may = self._plans_starts and self._immediate_answer(facts, request, understood) is None
                asking = self._trial(plan, facts, understood, moment, best=False) if may else None
                yield asking, request, understood.walltime

    def with_plan(self, plan: Plan) -> "PlanFork":
        """Return this fork with another plan, which must not be used elsewhere then."""
        return PlanFork(
            plan, self.published, self._limits, self.columns, self.walltime_use, self.ranks, self._uncounted,
            self._bounds,
        )  # fmt: skip

    def _read(self, facts: JobFacts) -> tuple[Request, ParsedRequest]:
        queue = self.published.queues.get(facts.queue)
        understood = self._intake.read(facts, queue, self.published.server.defaults)
        if understood.request is None:
            raise NotUnderstood(understood.problem)
        if self._adapter_amounts:
            place = facts.resources.get("place", "")
            found = request_vnodes(
                understood.request, place, self._adapter_amounts, self._plan.count_candidates, self._hosts
            )
            return found, replace(understood, request=found)
        return understood.request, understood

    def _with_vnodes(self, facts: JobFacts) -> JobFacts:
        """Return a job as the adapter would report it."""
        if not self._adapter_amounts:
            return facts
        queue = self.published.queues.get(facts.queue)
        request = self._intake.read(facts, queue, self.published.server.defaults).request
        if request is None:
            return facts
        place = facts.resources.get("place", "")
        count = self._plan.count_candidates
        found = request_vnodes(request, place, self._adapter_amounts, count, self._hosts)
        return with_requested_vnodes(facts, request, found)

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

    def _immediate_answer(
        self, facts: JobFacts, request: Request, understood: ParsedRequest
    ) -> Answer | None:
        """Return the answer for a job that never fits or may not be planned; None otherwise."""
        never = (
            job_refusal(self.published, facts)
            or find_uncounted(request, self._uncounted)
            or self._find_unmet_requirement(request)
        )
        if never is not None:
            return never
        wait = first_waiting_reason(facts, self.published.queue_stop_reason(facts.queue))
        if wait is not None:
            return WaitingFor(*wait)
        for one in components():
            if one.must_wait_if_named is None:
                continue
            named = one.must_wait_if_named(self.published, facts, understood)
            if named is not None:
                return named
        return None

    @property
    def _plans_starts(self) -> bool:
        return self.published.settings.policy == "conservative"

    def _queue_policy_answer(
        self, asking: SubmissionTrial, request: Request, walltime: int, *, only: bool
    ) -> Answer | None:
        """Return the answer under a queue policy; None: there is a plan. ``only``: there is one variant."""
        if self._plans_starts:
            return None
        if only and not asking.fits_on_empty_nodes(request, walltime):
            never = self._no_start(asking.facts, request)
            if isinstance(never, Never):
                return never
        policy = self.published.settings.policy
        return WaitingFor("policy", f"the policy {policy}, which plans no starts")

    def _find_unmet_requirement(self, request: Request) -> Never | None:
        """The first requirement that no node can meet, also with all its parts up; None: all can be met."""
        units = self._limits.types.units
        never = self._plan.find_unmet_requirement(request, units)
        if never is not None and unusable_amounts(self.published.nodes):
            never = self._empty_plan().find_unmet_requirement(request, units)
        return never

    def _empty_plan(self) -> Plan:
        if self._bare is None:
            self._bare = empty_plan(self._plan, unusable_amounts(self.published.nodes))
        return self._bare

    def _component_wait(
        self, facts: JobFacts, understood: ParsedRequest, instead_of: str
    ) -> WaitingFor | None:
        """Return what a component makes the job wait for, when it replaces another job; None: nothing."""
        for one in components():
            if one.must_wait_in_what_if is not None:
                wait = one.must_wait_in_what_if(self.published, facts, understood, instead_of)
                if wait is not None:
                    return wait
        return None

    def _no_start(self, facts: JobFacts, request: Request) -> Answer:
        restriction = job_restriction(self.published, facts)
        if restriction is not None:
            gates, sets = self.published.gates, self.published.node_sets
            request = as_planned_request(request, facts, gates, sets, restriction.nodes)
        empty = self._empty_plan()
        with limit_searches(empty):
            never = find_unmet_requirement(empty, request, self._limits.types.units)
        if restriction is None:
            return never or WaitingFor("node", "nodes that can take it: all are down, offline or reserved")
        if never is not None:
            return Never(
                f"the nodes of {restriction.place} cannot hold it: request less, or {restriction.remedy}"
            )
        return WaitingFor("reservation" if restriction.pool else "node", f"room in {restriction.place}")

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


def _with_walltime(facts: JobFacts, walltime: int | None) -> JobFacts:
    if walltime is None:
        return facts
    return quick_replace(facts, resources=with_walltime(facts.resources, walltime))


def _with_walltimes(facts: JobFacts, walltimes: tuple[int, int] | None) -> list[JobFacts]:
    """Return the job with five walltimes of its range, the longest first; without a range, itself."""
    if walltimes is None:
        return [facts]
    least, most = walltimes
    tried = dict.fromkeys([most - (most - least) * quarter // 4 for quarter in range(5)])
    return [_with_walltime(facts, walltime) for walltime in tried]


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
