"""Which clusters are asked first what they offer for a job: those that can be the best for it."""

from collections.abc import Mapping, Sequence
from typing import Final

from schedd.federation.routing.choosing import Load, hoped_for
from schedd.federation.routing.jobs import Job
from schedd.federation.routing.policies import Candidate
from schedd.federation.routing.quotes import Quotes
from schedd.federation.routing.seen import ClusterSeen, Rules

__all__ = ["ASKED_FIRST", "most_promising"]

ASKED_FIRST: Final = 8
"""So many are asked at once; the next when no more than half as many are still to answer."""


def most_promising(
    job: Job,
    users: Mapping[str, str],
    names: Sequence[str],
    quotes: Mapping[str, Quotes],
    seen: Mapping[str, ClusterSeen],
    rules: Rules,
    load: Load,
    now: int,
    *,
    more: bool = False,
) -> list[str]:
    """Of the clusters in ``names`` those that have answered or are asked, those of which nothing can be said,
    and, where few are to answer yet or there are to be ``more``, the next of the others, by what they said of
    smaller jobs.

    ``users``: whom its owner is where. All where the policy does not go by the plans.
    """
    if not rules.policy.by_plan:
        return list(names)
    chosen: list[str] = []
    hoped: list[Candidate] = []
    under_way = 0
    for name in names:
        question = job.question(name, users[name])
        if question in quotes[name].offers:
            chosen.append(name)
            continue
        bound = quotes[name].bound(question, now)
        if bound is None or seen[name].away or quotes[name].asked(question):
            chosen.append(name)
            under_way += not seen[name].away
        else:
            hoped.append(hoped_for(job, name, seen[name], users[name], rules, load, now, bound))
    if more or under_way <= ASKED_FIRST // 2:
        hoped.sort(key=rules.policy.key)
        chosen += [one.cluster for one in hoped[:ASKED_FIRST]]
    return chosen
