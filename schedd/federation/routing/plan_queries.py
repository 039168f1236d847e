"""Selection of the clusters to query first for a new job, by the best possible end."""

from collections.abc import Mapping, Sequence
from typing import Final

from schedd.federation.routing.candidates import ClusterLoads, optimistic_candidate
from schedd.federation.routing.cluster_status import ClusterStatus, RoutingRules
from schedd.federation.routing.jobs import FederationJob
from schedd.federation.routing.plan_offers import PlanOffers
from schedd.federation.routing.policies import RoutingCandidate

FIRST_QUERY_BATCH: Final = 8
"""Clusters queried at once. The next batch follows when at most half of the answers are outstanding."""


def clusters_to_query(
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
    """Return the clusters in ``names`` that should be queried about the job.

    These are the clusters that have answered, have an open question, or have no start bound; and the best
    others by their optimistic end, if few answers are outstanding or ``more`` is set. ``users`` maps clusters
    to the owner's user names. All names are returned if the policy does not use plans.
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
