"""Distribution of a bag's tasks over clusters by their offers.

After Netto, *Adaptive co-allocation of distributed resources* (2009), chapter 6. An offer is ``(tasks,
end)``: this many tasks end by that time. Two defects of the printed algorithms are corrected: rounded shares
add up to the number of tasks, and no share exceeds its offer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class ClusterOffer:
    """A cluster completes this many tasks by ``end`` (seconds since the epoch)."""

    provider: str
    tasks: int
    end: int


@dataclass(frozen=True, slots=True)
class TaskSplit:
    """Number of tasks by cluster and the end of the last one; ``met`` means by the deadline."""

    shares: Mapping[str, int]
    end: int
    met: bool


class SharingRule(StrEnum):
    """Sharing rule for bags that can meet their deadline; the clusters' disclosure limits the choice."""

    NONE = "none"  # fewest clusters, largest offers first (OffersWithNoLB)
    OFFERS = "offers"  # proportional to the offers (OffersWithPLB)
    POWER = "power"  # offers of equal size share by total power (OffersWithDPLB)
    LOAD = "load"  # as POWER, with power divided by the waiting work (OffersWithDPLBV2)


def split_tasks(
    offers: Sequence[ClusterOffer],
    tasks: int,
    deadline: int,
    balance: SharingRule = SharingRule.NONE,
    power: Mapping[str, float] | None = None,
    load: Mapping[str, float] | None = None,
) -> TaskSplit | None:
    """Return the distribution of ``tasks``, or None if all offers together are too small.

    If the deadline cannot be met, the split with the earliest end is returned, regardless of ``balance``.
    ``power`` and ``load`` are by cluster; the rules of these names raise ValueError without them.
    """
    if tasks < 1:
        raise ValueError(f"{tasks} tasks: at least one is needed")
    for end in sorted({offer.end for offer in offers if offer.tasks > 0}):
        best = _largest(offers, end)
        if sum(one.tasks for one in best) >= tasks:
            break
    else:
        return None
    if end > deadline:
        return _late(best, tasks, end)
    best = _largest(offers, deadline)
    sizes = {one.provider: one.tasks for one in best}
    match balance:
        case SharingRule.NONE:
            shares = _fill(sorted(best, key=lambda one: (-one.tasks, one.end, one.provider)), tasks)
        case SharingRule.OFFERS:
            shares = _shared(sizes, sizes, tasks)
        case _:
            shares = _by_power(sizes, tasks, _weights(balance, sizes, power, load))
    ends = {one.provider: one.end for one in best}
    return TaskSplit(shares, max(ends[name] for name in shares), met=True)


def _largest(offers: Sequence[ClusterOffer], end: int) -> list[ClusterOffer]:
    """Return the largest offer of each cluster that ends by ``end``; ties go to the earlier end."""
    found: dict[str, ClusterOffer] = {}
    for offer in offers:
        known = found.get(offer.provider)
        if (
            offer.tasks > 0
            and offer.end <= end
            and (known is None or (offer.tasks, -offer.end) > (known.tasks, -known.end))
        ):
            found[offer.provider] = offer
    return list(found.values())


def _late(best: Sequence[ClusterOffer], tasks: int, end: int) -> TaskSplit:
    """Use the earliest offers first; the last cluster takes the rest."""
    shares = _fill(sorted(best, key=lambda one: (one.end, -one.tasks, one.provider)), tasks)
    return TaskSplit(shares, end, met=False)


def _fill(offers: Sequence[ClusterOffer], tasks: int) -> dict[str, int]:
    shares: dict[str, int] = {}
    for offer in offers:
        taken = min(offer.tasks, tasks)
        if taken:
            shares[offer.provider] = taken
        tasks -= taken
    return shares


def _weights(
    balance: SharingRule,
    sizes: Mapping[str, int],
    power: Mapping[str, float] | None,
    load: Mapping[str, float] | None,
) -> dict[str, float]:
    if power is None or any(name not in power for name in sizes):
        raise ValueError(f"balance {balance.value} needs the power of every provider")
    if balance is SharingRule.POWER:
        return {name: power[name] for name in sizes}
    if load is None or any(name not in load for name in sizes):
        raise ValueError(f"balance {balance.value} needs the load of every provider")
    return {name: power[name] / (load[name] + 1) for name in sizes}  # the thesis prints no formula


def _by_power(sizes: Mapping[str, int], tasks: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Distribute the tasks over offer sizes, and within each size by cluster weight."""
    groups: dict[int, list[str]] = {}
    for name, size in sizes.items():
        groups.setdefault(size, []).append(name)
    of_group = _shared(
        {str(size): size * len(names) for size, names in groups.items()},
        {str(size): size * len(names) for size, names in groups.items()},
        tasks,
    )
    shares: dict[str, int] = {}
    for size, names in groups.items():
        wanted = {name: weights[name] for name in names}
        shares |= _shared(wanted, dict.fromkeys(names, size), of_group.get(str(size), 0))
    return shares


def _shared(wanted: Mapping[str, float], most: Mapping[str, int], tasks: int) -> dict[str, int]:
    """Distribute ``tasks`` in proportion to ``wanted`` with maxima ``most``, by largest remainder.

    Tasks above a maximum are redistributed to the others.
    """
    shares = dict.fromkeys(wanted, 0)
    left = tasks
    while left:
        open_ones = [name for name in wanted if shares[name] < most[name]]
        total = sum(wanted[name] for name in open_ones) or 1.0
        exact = {name: left * (wanted[name] / total if total else 0.0) for name in open_ones}
        given = {name: min(int(exact[name]), most[name] - shares[name]) for name in open_ones}
        over = left - sum(given.values())
        if not any(given.values()) or over < len(open_ones):
            for name in sorted(open_ones, key=lambda one: (int(exact[one]) - exact[one], one)):
                if over and shares[name] + given[name] < most[name]:
                    given[name] += 1
                    over -= 1
        for name, more in given.items():
            shares[name] += more
        left = over
    return {name: share for name, share in shares.items() if share}
