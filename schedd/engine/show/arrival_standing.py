"""Standing of a hypothetical job among the planned jobs: its rank at its arrival."""

from dataclasses import dataclass

from schedd.engine.component.ranking_hooks import label_points
from schedd.engine.component.what_if_hooks import goes_last_in_what_if, rank_in_what_if
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.pools import LimitBook
from schedd.engine.facts.state import EngineState
from schedd.engine.rank.priorities import applicant_from
from schedd.engine.rank.ranking import HIGHEST_RANK
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.policy.demand import Demand
from schedd.policy.priority import total_priority
from schedd.wire import JobFacts


@dataclass(frozen=True, slots=True)
class ArrivalStanding:
    """Rank of a job at its arrival, and whether it may delay others beyond their promises."""

    rank: int
    breaks_promises: bool


@dataclass(frozen=True, slots=True)
class RankingBasis:
    """What ranks of arriving jobs depend on at a batch boundary: see ``RankingProgress``."""

    has_effect: bool = False
    demand: Demand = Demand()

    @classmethod
    def from_state(cls, state: EngineState) -> "RankingBasis":
        return cls(state.ranking.has_effect, state.ranking.demand)


def arrival_standing(
    published: PlanSnapshot,
    basis: RankingBasis,
    limits: LimitBook,
    facts: JobFacts,
    understood: ParsedRequest,
    instead_of: str,
) -> ArrivalStanding | None:
    """Return the standing of a job that arrives now, perhaps instead of another; None: ranks have no effect.

    The same as ``set_rank`` for a job of the engine.
    """
    weights, queue = published.settings.site.weights, published.queues.get(facts.queue)
    last = goes_last_in_what_if(published, facts, understood, instead_of)
    points = label_points(published, facts)
    has_effect = basis.has_effect or last or weights.active or (queue is not None and queue.priority != 0)
    rank = -HIGHEST_RANK if last else rank_in_what_if(published, facts, understood)
    if rank is None and not (has_effect or (weights.qos and points != 0)):
        return None
    amounts = limits.claim(facts, understood).amounts
    applicant = applicant_from(facts, understood, queue, limits.shared, amounts, points)
    if rank is None:
        demand = basis.demand.beside(understood.walltime) if weights.short else basis.demand
        total = int(total_priority(applicant, published.as_of, demand, weights))
        rank = max(-HIGHEST_RANK, min(total, HIGHEST_RANK))
    breaks = any(one.breaks_promises for one in weights.classes.values())
    return ArrivalStanding(rank, breaks and weights.breaks_promises(applicant))
