"""Jobs as the terms of priorities see them, and what all of them come to together."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from schedd.dialect.deadline import read_deadline
from schedd.engine.component.ranking_hooks import component_breakdown, label_points
from schedd.engine.facts.job_requests import ParsedRequest, is_eligible
from schedd.engine.facts.records import JobRecord, Phase
from schedd.model import FOREVER
from schedd.policy.demand import Demand, demand
from schedd.policy.priority import SiteWeights, priority
from schedd.policy.protocol import Applicant, Breakdown, OwnerShares
from schedd.wire import JobFacts, QueueFacts

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState


def make_applicant(state: "EngineState", record: JobRecord) -> Applicant:
    """A job as the terms of its priority see it; worked out again when anything that it hangs on is other."""
    facts, understood = record.facts, record.understood
    queue, shared = state.queues.get(facts.queue), state.limits.shared
    types = state.limits.types
    hangs_on = (facts, understood, queue, shared, types, state.site)
    known = state.applicants.get(facts.id)
    if known is None or any(one is not other for one, other in zip(known[0], hangs_on, strict=True)):
        known = state.applicants[facts.id] = (
            hangs_on,
            applicant_from(
                facts,
                understood,
                queue,
                shared,
                state.limits.claim(facts, understood).amounts,
                label_points(state, facts),
            ),
        )
    return known[1]


def applicant_from(
    facts: JobFacts,
    understood: ParsedRequest,
    queue: QueueFacts | None,
    shared: frozenset[str],
    amounts: Mapping[str, int],
    points: float,
) -> Applicant:
    """Return a job as the terms of its priority see it, from its ``amounts`` by resource and the ``points``
    of its labels.
    """
    since = max(facts.eligible if facts.eligible is not None else facts.submitted, facts.not_before or 0)
    return Applicant(
        id=facts.id,
        owner=facts.owner,
        queue=facts.queue,
        submitted=facts.submitted,
        group=facts.group,
        account=facts.account,
        project=facts.project,
        eligible=since if is_eligible(facts, FOREVER) else None,
        priority=facts.priority,
        label_points=points,
        queue_priority=queue.priority if queue is not None else 0,
        cpus=amounts.get("cpus", 0),
        nodes=amounts.get("nodes", 0),
        mem=amounts.get("mem", 0),
        walltime=understood.walltime,
        deadline=read_deadline(facts.resources, facts.submitted),
        licences=tuple((name, amounts[name]) for name in sorted(shared) if amounts.get(name)),
    )


def current_demand(state: "EngineState", shares: OwnerShares | None) -> Demand:
    """Return the demand of all jobs that the site's weights depend on, with these fair shares."""
    weights = state.site.weights
    if not depends_on_demand(weights):
        return Demand()
    return demand(
        [make_applicant(state, record) for record in _in(state, Phase.WAITING)],
        [make_applicant(state, record) for record in _in(state, Phase.RUNNING, Phase.DISPATCHED)],
        copies=state.limits.copies,
        shares=shares if weights.fair_share else None,
    )


def depends_on_demand(weights: SiteWeights) -> bool:
    """Return whether priorities depend on the demand of other jobs."""
    return bool(weights.licences or weights.short or weights.fair_share)


def priority_breakdown(state: "EngineState", record: JobRecord, shares: Demand) -> Breakdown:
    """Return the present priority of a job and its terms."""
    return component_breakdown(state, record) or priority(
        make_applicant(state, record), state.now, shares, state.site.weights
    )


def _in(state: "EngineState", *phases: Phase) -> Iterable[JobRecord]:
    return (record for record in state.records.values() if record.phase in phases)
