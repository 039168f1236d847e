"""Offers for bags of tasks: which provider runs how many, of what each says that it can end by when.

After Netto, *Adaptive co-allocation of distributed resources* (2009), chapter 6. An offer is
``(tasks, end)``: so many tasks end by then. Two defects of the printed algorithms are mended: shares are
rounded so that they sum up to the tasks, and nobody is given more than he offered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["ClusterOffer", "SharingRule", "TaskSplit", "split_tasks"]


@dataclass(frozen=True, slots=True)
class ClusterOffer:
    """A provider ends so many tasks by ``end`` (seconds since the epoch)."""

    provider: str
    tasks: int
    end: int


@dataclass(frozen=True, slots=True)
class TaskSplit:
    """How many tasks each provider runs, and when the last of them ends; ``met``: by the deadline."""

    shares: Mapping[str, int]
    end: int
    met: bool


class SharingRule(StrEnum):
    """How tasks are shared where the deadline can be met; which one, what providers disclose decides."""

    NONE = "none"
    """As few providers as can be, the largest offers first (OffersWithNoLB)."""
    OFFERS = "offers"
    """In proportion to the offers (OffersWithPLB)."""
    POWER = "power"
    """Offers of one size share by total power (OffersWithDPLB)."""
    LOAD = "load"
    """The same, by power against the work that waits there (OffersWithDPLBV2)."""


def split_tasks(
    offers: Sequence[ClusterOffer],
    tasks: int,
    deadline: int,
    balance: SharingRule = SharingRule.NONE,
    power: Mapping[str, float] | None = None,
    load: Mapping[str, float] | None = None,
) -> TaskSplit | None:
    """The split of ``tasks``; None where all offers together are too small.

    Where the deadline cannot be met, it is that which ends earliest, whatever ``balance`` says. ``power`` and
    ``load`` are by provider, and needed by the balances of these names. Raises ValueError without them.
    """
    if tasks < 1:
        raise ValueError(f"{tasks} tasks: there must be one at least")
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
    """Of each provider the largest offer by ``end``; of equal ones the earliest."""
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
    """The earliest offers are used up first; the last one takes the rest."""
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
    return {name: power[name] / (load[name] + 1) for name in sizes}  # the text prints no formula


def _by_power(sizes: Mapping[str, int], tasks: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Each size of offer gets its part of the tasks, in it each provider by his weight."""
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
    """``tasks`` in proportion to ``wanted``, nobody above ``most``, all of them; by largest remainder.

    What somebody cannot take is shared among the others again.
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
