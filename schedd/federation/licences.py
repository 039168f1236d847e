"""Floating licences that clusters share: who may use how many, so that no copy is ever used twice.

Each cluster has a *bound*: the most copies that it may be using or may believe that it may use. A bound is
raised in the log before the cluster hears of it, and lowered only after the cluster has said how many it
still counts on and holds; the bounds of one licence never add up to more than there are. So a cluster that is
cut off keeps what it has, and nobody else gets it. Grants are numbered for each cluster, which ignores one
that comes late. Pure: nothing here reads a clock or talks to anybody.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["LicenceGrant", "LicenceLeased", "LicencePools", "LicenceUse", "share_copies"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenceLeased:
    """A cluster may use so many ``copies`` of a licence, or is known to use no more; ``job`` is empty."""

    job: str
    time: int
    licence: str
    cluster: str
    copies: int
    number: int
    type: Literal["licence_leased"] = "licence_leased"


@dataclass(frozen=True, slots=True)
class LicenceUse:
    """What a cluster says of a licence: copies that its plan counts on, by the grant of that number; copies
    that jobs hold, and that waiting jobs want.
    """

    copies: int
    number: int
    held: int
    wanted: int


@dataclass(frozen=True, slots=True)
class LicenceGrant:
    """A cluster is to count on so many copies; with a number that it knows already it only tells how it is.

    ``raised`` is to be kept before it is sent.
    """

    licence: str
    cluster: str
    copies: int
    number: int
    raised: LicenceLeased | None = None


@dataclass(slots=True)
class _LicencePool:
    copies: int
    bounds: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    answers: dict[str, LicenceUse] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    """Clusters that do not take this licence from us, with why."""


def share_copies(copies: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """So many copies shared among clusters by what they want: nobody gets more than he wants before all have
    that, small wishes are met first, and what nobody wants is shared evenly.
    """
    found = dict.fromkeys(wanted, 0)
    left = max(0, copies)
    open_ones = sorted((name for name in wanted if wanted[name] > 0), key=lambda name: (wanted[name], name))
    while open_ones:
        name = open_ones.pop(0)
        found[name] = min(wanted[name], left // (len(open_ones) + 1))
        left -= found[name]
    # What rounding left goes to who still wants some, then evenly to all.
    for name in sorted(wanted):
        more = min(left, wanted[name] - found[name])
        found[name] += more
        left -= more
    for place, name in enumerate(sorted(wanted)):
        found[name] += left // len(wanted) + (place < left % len(wanted))
    return found


class LicencePools:
    """All licences that the federation lends to these clusters: by name how many copies there are.

    Nothing is lent before every cluster has been heard once: one of them may have copies from an earlier log.
    """

    def __init__(self, copies: Mapping[str, int], clusters: Iterable[str]) -> None:
        self._clusters = tuple(clusters)
        self.pools = {name: _LicencePool(count) for name, count in copies.items()}

    def apply(self, event: LicenceLeased) -> None:
        """A bound is another; of a licence that is not lent any more nothing is known."""
        pool = self.pools.get(event.licence)
        if pool is not None:
            pool.bounds[event.cluster] = event.copies
            pool.numbers[event.cluster] = event.number

    def lease_events(self, now: int) -> list[LicenceLeased]:
        """All bounds, as a log would hold them that had nothing else."""
        return [
            _leased(name, cluster, bound, pool.numbers[cluster], now)
            for name, pool in self.pools.items()
            for cluster, bound in pool.bounds.items()
        ]

    def free_copies(self, licence: str) -> int:
        """Copies that no cluster may use; below 0 where there are fewer now than were lent."""
        pool = self.pools[licence]
        return pool.copies - sum(pool.bounds.values())

    def pending_grants(self, cluster: str, reachable: Iterable[str], now: int) -> list[LicenceGrant]:
        """What a cluster is to be told of each licence; ``reachable`` are those that answer."""
        found = []
        here = set(reachable)
        for name, pool in self.pools.items():
            if cluster in pool.refusals:
                continue
            told, number = pool.answers.get(cluster), pool.numbers.get(cluster, 0)
            bound = pool.bounds.get(cluster, 0)
            if told is None:  # how it is must be known first
                found.append(LicenceGrant(name, cluster, bound, number))
                continue
            some = {
                one: pool.answers[one] for one in pool.answers if one in here and one not in pool.refusals
            }
            away = sum(kept for one, kept in pool.bounds.items() if one not in some)
            wanted = {one: lent.held + lent.wanted for one, lent in some.items()}
            wish = share_copies(pool.copies - away, wanted).get(cluster, bound)
            if wish > bound:
                known = all(one in pool.bounds for one in self._clusters)
                wish = min(wish, bound + max(0, self.free_copies(name))) if known else bound
            if wish > told.copies:
                # Its number is used up, too, even where the bound allows it: it may come late.
                raised = _leased(name, cluster, max(wish, bound), number + 1, now)
                found.append(LicenceGrant(name, cluster, wish, number + 1, raised))
            elif wish < told.copies:
                found.append(LicenceGrant(name, cluster, wish, number + 1))
            else:
                found.append(LicenceGrant(name, cluster, told.copies, number))
        return found

    def apply_answer(self, grant: LicenceGrant, lent: LicenceUse, now: int) -> list[LicenceLeased]:
        """The cluster has answered; the events that follow."""
        pool = self.pools[grant.licence]
        pool.answers[grant.cluster] = lent
        number = pool.numbers.get(grant.cluster, 0)
        # One of an earlier life of ours, or of another's, may be newer than ours.
        newest = max(number, grant.number, lent.number)
        bound = max(lent.copies, lent.held)
        if (bound, newest) == (pool.bounds.get(grant.cluster), number):
            return []
        return [_leased(grant.licence, grant.cluster, bound, newest, now)]

    def apply_refusal(self, grant: LicenceGrant, why: str, now: int) -> list[LicenceLeased]:
        """The cluster does not take this licence from us; the events that follow."""
        pool = self.pools[grant.licence]
        pool.refusals[grant.cluster] = why
        if pool.bounds.get(grant.cluster) == 0:
            return []
        return [_leased(grant.licence, grant.cluster, 0, pool.numbers.get(grant.cluster, 0), now)]

    def forget_answers(self, cluster: str) -> None:
        """It does not answer: how it is must be heard anew; its bounds stay."""
        for pool in self.pools.values():
            pool.answers.pop(cluster, None)
            pool.refusals.pop(cluster, None)


def _leased(licence: str, cluster: str, copies: int, number: int, now: int) -> LicenceLeased:
    return LicenceLeased(job="", time=now, licence=licence, cluster=cluster, copies=copies, number=number)
