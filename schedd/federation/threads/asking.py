"""Asks the clusters' plans by when they would end how many tasks of a bag."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from schedd.client import Client, ClientError, Refused
from schedd.federation.bags.events import BagAsked
from schedd.federation.bags.offers import Balance, Offered, Split, compose
from schedd.federation.roof.roof import Roof
from schedd.federation.threads.peers import Connect, client_of

__all__ = ["PARTS", "Answers", "ask", "ends_of", "sizes_of", "split_of"]

PARTS: Final = tuple(range(5, 101, 5))
"""Per cent of a bag that clusters are asked for. The thesis has five as an example; a plan is gone through
once for all of them, and with more of them shares fit the deadline better."""
_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class Answers:
    """The offers, by cluster the version of the plan, and why there is no offer. ``never``: who can run not
    even one task.
    """

    offers: list[Offered] = field(default_factory=list)
    plans: dict[str, int] = field(default_factory=dict)
    whys: dict[str, str] = field(default_factory=dict)
    never: set[str] = field(default_factory=set)


def sizes_of(tasks: int) -> tuple[int, ...]:
    """Of a bag of so many: the numbers of tasks for which clusters are asked, ascending."""
    return tuple(sorted({max(1, tasks * part // 100) for part in PARTS}))


def ask(
    roof: Roof,
    owner: str,
    users: Mapping[str, str],
    asked: BagAsked,
    sizes: Mapping[str, Sequence[int]],
    connect: Connect = client_of,
) -> Answers:
    """Each of the clusters in ``sizes`` for its numbers of tasks; ``users``: whom the owner is where."""
    found = Answers()
    if not sizes:
        return found
    with ThreadPoolExecutor(min(_AT_ONCE, len(sizes))) as pool:
        list(pool.map(partial(_ask_one, roof, owner, users, asked, sizes, connect, found), sizes))
    found.offers.sort(key=lambda one: (one.provider, one.tasks))
    return found


def _ask_one(
    roof: Roof,
    owner: str,
    users: Mapping[str, str],
    asked: BagAsked,
    sizes: Mapping[str, Sequence[int]],
    connect: Connect,
    found: Answers,
    name: str,
) -> None:
    chosen = roof.settings.clusters[name]
    if name not in users:
        found.whys[name] = f"{owner} has no user there"
        found.never.add(name)
        return
    if cannot := roof.cannot(name, asked.resources):
        found.whys[name] = cannot
        found.never.add(name)
        return
    try:
        with connect(chosen, roof.peer_tokens[name]) as client:
            _take(client, name, users[name], asked, sizes[name], found, chosen.speed)
    except Refused as error:
        found.whys[name] = "; ".join(error.places) or error.detail
        if error.kind == "invalid":
            found.never.add(name)
    except ClientError as error:
        found.whys[name] = str(error)


def _take(
    client: Client,
    name: str,
    user: str,
    asked: BagAsked,
    sizes: Sequence[int],
    found: Answers,
    speed: float,
) -> None:
    answer = client.what_if(
        resources=asked.resources, queue=asked.queues.get(name, ""), owner=user, tasks=sizes
    )
    found.plans[name] = answer["generation"]
    sooner = int(asked.walltime - asked.walltime / speed)
    found.offers.extend(Offered(name, one["tasks"], one["end"] - sooner) for one in answer["tasks"])
    if not answer["tasks"]:
        found.whys[name] = answer["why"]
        if answer["answer"] == "never":
            found.never.add(name)


def split_of(roof: Roof, answers: Answers, tasks: int, deadline: int, balance: Balance) -> Split | None:
    """How so many tasks are shared by these offers. Raises ValueError where a balance lacks what it needs."""
    power = {name: float(seen.cpus) for name, seen in roof.seen.items() if seen.cpus}
    load = {name: float(counts.get("planned", 0)) for name, counts in roof.counts.items() if counts}
    return compose(answers.offers, tasks, deadline, balance, power, load)


def ends_of(offers: Sequence[Offered], split: Split) -> dict[str, int]:
    """By cluster, when its share has ended: by its smallest offer that is as large."""
    found: dict[str, int] = {}
    for name, share in split.shares.items():
        ends = (one.end for one in offers if one.provider == name and one.tasks >= share)
        found[name] = min(ends, default=split.end)
    return found
