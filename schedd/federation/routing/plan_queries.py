"""Which clusters are asked first what they offer for a job: those that can be the best for it."""

from collections.abc import Mapping, Sequence
from typing import Final

from schedd.federation.routing.candidates import ClusterLoads, optimistic_candidate
from schedd.federation.routing.cluster_status import ClusterStatus, RoutingRules
from schedd.federation.routing.jobs import FederationJob
from schedd.federation.routing.plan_offers import PlanOffers
from schedd.federation.routing.policies import RoutingCandidate

__all__ = ["FIRST_QUERY_BATCH", "clusters_to_ask"]

FIRST_QUERY_BATCH: Final = 8
"""So many are asked at once; the next when no more than half as many are still to answer."""


def clusters_to_ask(
    job: FederationJob,
    users: Mapping[str, str],
    names: Sequence[str],
    plan_offers: Mapping[str, PlanOffers],
    seen: Mapping[str, ClusterStatus],
    rules: RoutingRules,
    load: ClusterLoads,
    now: int,
    *,
    more: bool = False,
) -> list[str]:
    """Of the clusters in ``names`` those that have answered or are asked, those of which nothing can be said,
    and, where few are to answer yet or there are to be ``more``, the next of the others, by what they said of
    smaller jobs.

    ``users``: whom its owner is where. All where the policy does not go by the plans.
    """
    if not rules.policy.uses_plans:
        return list(names)
    chosen: list[str] = []
    hoped: list[RoutingCandidate] = []
    under_way = 0
    for name in names:
        question = job.question(name, users[name])
        if question in plan_offers[name].offers:
            chosen.append(name)
            continue
        bound = plan_offers[name].start_bound(question, now)
        if bound is None or seen[name].away or plan_offers[name].is_pending(question):
            chosen.append(name)
            under_way += not seen[name].away
        else:
            hoped.append(optimistic_candidate(job, name, seen[name], users[name], rules, load, now, bound))
    if more or under_way <= FIRST_QUERY_BATCH // 2:
        hoped.sort(key=rules.policy.key)
        chosen += [one.cluster for one in hoped[:FIRST_QUERY_BATCH]]
    return chosen
