"""Queries to the clusters' plans for bag offers: how many tasks end by when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from schedd.client import Client, ClientError, Refused
from schedd.dialect.deadline import deadline_names
from schedd.federation.bags.offers import ClusterOffer, SharingRule, TaskSplit, split_tasks
from schedd.federation.cluster_failures import describe_failure
from schedd.federation.cluster_speed import scale_resources
from schedd.federation.events import BagSpecification
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.cluster_worker import ClientFactory, connect_cluster
from schedd.parallel_calls import call_in_parallel

OFFER_PERCENTAGES: Final = tuple(range(1, 101))
"""Sizes of the queried offers, in percent of a bag.

The thesis gives five as an example. A plan answers all of them in one pass. Up to 100 tasks, every
number is queried, so that no deadline is refused that some distribution keeps.
"""
_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class BagOffers:
    """Offers of the clusters, plan versions by cluster, and the reasons for missing offers.

    ``never`` are clusters that can never run a single task, ``wished`` those that accept no deadline of it.
    """

    offers: list[ClusterOffer] = field(default_factory=list)
    plans: dict[str, int] = field(default_factory=dict)
    whys: dict[str, str] = field(default_factory=dict)
    never: set[str] = field(default_factory=set)
    wished: set[str] = field(default_factory=set)


def offered_task_counts(tasks: int) -> tuple[int, ...]:
    """Return the numbers of tasks to query, ascending."""
    return tuple(sorted({max(1, tasks * part // 100) for part in OFFER_PERCENTAGES}))


def collect_offers(
    federation: FederationState,
    owner: str,
    users: Mapping[str, str],
    asked: BagSpecification,
    sizes: Mapping[str, Sequence[int]],
    connect: ClientFactory = connect_cluster,
) -> BagOffers:
    """Query each cluster in ``sizes`` for its numbers of tasks; ``users``: the owner by cluster."""
    found = BagOffers()
    call_in_parallel(
        partial(_collect_offer, federation, owner, users, asked, sizes, connect, found), sizes, _AT_ONCE
    )
    found.offers.sort(key=lambda one: (one.provider, one.tasks))
    return found


def _collect_offer(
    federation: FederationState,
    owner: str,
    users: Mapping[str, str],
    asked: BagSpecification,
    sizes: Mapping[str, Sequence[int]],
    connect: ClientFactory,
    found: BagOffers,
    name: str,
) -> None:
    chosen = federation.settings.clusters[name]
    if name not in users:
        found.whys[name] = f"{owner} has no user there"
        found.never.add(name)
        return
    if cannot := federation.unsupported_reason(name, asked.resources):
        found.whys[name] = cannot
        found.never.add(name)
        return
    try:
        with connect(chosen, federation.cluster_tokens[name]) as client:
            _add_answer(client, name, users[name], asked, sizes[name], found, chosen.speed)
    except Refused as error:
        found.whys[name] = "; ".join(error.places) or error.detail
        if error.kind == "invalid":
            found.never.add(name)
    except ClientError as error:
        found.whys[name] = describe_failure(error)


def _add_answer(
    client: Client,
    name: str,
    user: str,
    asked: BagSpecification,
    sizes: Sequence[int],
    found: BagOffers,
    speed: float,
) -> None:
    resources = scale_resources(asked.resources, speed)
    if not deadline_names(resources):  # a plan in deadline order depends on it
        resources["deadline"] = str(asked.deadline)
    answer = client.what_if(
        resources=resources,
        queue=asked.queues.get(name, ""),
        owner=user,
        tasks=sizes,
    )
    found.plans[name] = answer.generation
    found.offers.extend(ClusterOffer(name, one.tasks, one.end) for one in answer.tasks)
    if answer.deadline_state == "wished" and answer.earliest_deadline is None:
        found.wished.add(name)
    if not answer.tasks:
        found.whys[name] = answer.why
        if answer.answer == "never":
            found.never.add(name)


def split_offers(
    federation: FederationState, answers: BagOffers, tasks: int, deadline: int, balance: SharingRule
) -> TaskSplit | None:
    """Return the distribution of the tasks, with a margin before the deadline. Clusters that accept no
    deadlines get tasks only if the others cannot keep it. Raises ValueError if the rule needs undisclosed
    data.
    """
    deadline -= federation.settings.bags.margin
    power = {name: seen.power for name, seen in federation.clusters.items() if seen.power}
    load = {name: float(counts.get("planned", 0)) for name, counts in federation.job_counts.items() if counts}
    sure = [one for one in answers.offers if one.provider not in answers.wished]
    split = split_tasks(sure, tasks, deadline, balance, power, load)
    if split is None or not split.met:
        split = split_tasks(answers.offers, tasks, deadline, balance, power, load)
    return split


def share_ends(offers: Sequence[ClusterOffer], split: TaskSplit) -> dict[str, int]:
    """Return the end of each share, from the cluster's smallest sufficient offer."""
    found: dict[str, int] = {}
    for name, share in split.shares.items():
        ends = (one.end for one in offers if one.provider == name and one.tasks >= share)
        found[name] = min(ends, default=split.end)
    return found
