"""Answers for hypothetical jobs that the plan has no start for."""

from collections.abc import Collection

from schedd.engine import (
    LimitBook,
    ParsedRequest,
    PlanSnapshot,
    as_planned_request,
    components,
    find_uncounted,
    first_waiting_reason,
    job_refusal,
    job_restriction,
    unusable_amounts,
)
from schedd.model import Answer, Never, Request, WaitingFor
from schedd.plan.plan import Plan
from schedd.plan.views import empty_plan, find_unmet_requirement
from schedd.service.questions.open_questions import limit_searches
from schedd.service.questions.trial import SubmissionTrial
from schedd.wire import JobFacts


class UnplannedAnswers:
    """Reasons why a hypothetical job gets no start. ``plan`` is always the plan that it would come into."""

    def __init__(self, published: PlanSnapshot, limits: LimitBook, uncounted: Collection[str]) -> None:
        self._published = published
        self._limits = limits
        self._uncounted = uncounted
        self._plan_with_all: Plan | None = None

    @property
    def plans_starts(self) -> bool:
        """Whether the site's policy plans starts."""
        return self._published.settings.policy == "conservative"

    def before_search(
        self, plan: Plan, facts: JobFacts, request: Request, understood: ParsedRequest
    ) -> Answer | None:
        """Return the answer for a job that never fits or may not be planned; None: search one."""
        never = (
            job_refusal(self._published, facts)
            or find_uncounted(request, self._uncounted)
            or self._find_unmet_requirement(plan, request)
        )
        if never is not None:
            return never
        wait = first_waiting_reason(facts, self._published.queue_stop_reason(facts.queue))
        if wait is not None:
            return WaitingFor(*wait)
        for one in components():
            if one.must_wait_if_named is None:
                continue
            named = one.must_wait_if_named(self._published, facts, understood)
            if named is not None:
                return named
        return None

    def of_queue_policy(
        self, plan: Plan, trial: SubmissionTrial, request: Request, walltime: int, *, only: bool
    ) -> Answer | None:
        """Return the answer under a policy that plans no starts; None: this policy plans them.

        ``only``: the job has no other alternative, so it can never run if it fits on no nodes.
        """
        if self.plans_starts:
            return None
        if only and not trial.fits_on_empty_nodes(request, walltime):
            never = self.without_gap(plan, trial.facts, request)
            if isinstance(never, Never):
                return never
        policy = self._published.settings.policy
        return WaitingFor("policy", f"the policy {policy}, which plans no starts")

    def wait_of_component(
        self, facts: JobFacts, understood: ParsedRequest, instead_of: str
    ) -> WaitingFor | None:
        """Return what a component makes the job wait for, when it replaces another job; None: nothing."""
        for one in components():
            if one.must_wait_in_what_if is not None:
                wait = one.must_wait_in_what_if(self._published, facts, understood, instead_of)
                if wait is not None:
                    return wait
        return None

    def without_gap(self, plan: Plan, facts: JobFacts, request: Request) -> Answer:
        """Return why no gap was found for the job, within the nodes that it is restricted to."""
        published = self._published
        restriction = job_restriction(published, facts)
        if restriction is not None:
            request = as_planned_request(
                request, facts, published.gates, published.node_sets, restriction.nodes
            )
        empty = self._with_all_amounts(plan)
        with limit_searches(empty):
            never = find_unmet_requirement(empty, request, self._limits.types.units)
        if restriction is None:
            return never or WaitingFor("node", "nodes that can take it: all are down, offline or reserved")
        if never is not None:
            return Never(
                f"the nodes of {restriction.place} cannot hold it: request less, or {restriction.remedy}"
            )
        return WaitingFor("reservation" if restriction.pool else "node", f"room in {restriction.place}")

    def _find_unmet_requirement(self, plan: Plan, request: Request) -> Never | None:
        """The first requirement that no node can meet, also with all its parts up; None: all can be met."""
        units = self._limits.types.units
        never = plan.find_unmet_requirement(request, units)
        if never is not None and unusable_amounts(self._published.nodes):
            never = self._with_all_amounts(plan).find_unmet_requirement(request, units)
        return never

    def _with_all_amounts(self, plan: Plan) -> Plan:
        """Return the plan without jobs, with all parts of the nodes up."""
        if self._plan_with_all is None:
            self._plan_with_all = empty_plan(plan, unusable_amounts(self._published.nodes))
        return self._plan_with_all
