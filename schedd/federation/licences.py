"""Shares of floating licences for each member cluster, so that no licence copy is used twice.

Each cluster has a *bound*: the maximum number of copies that it may be using or may be entitled to use. A
bound is raised in the log before the cluster receives the grant. It is lowered only after the cluster has
reported a smaller number. The bounds of one licence never add up to more than its copies. An unreachable
cluster keeps its copies, and no other cluster gets them. Grants are numbered for each cluster, and a cluster
ignores grants that arrive out of order. Everything here is pure: no clock, no I/O.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from schedd.federation.events import LicenceLeased

_ASK_AGAIN_S: Final = 600  # a cluster that rejects a licence is asked again: its site may change that


@dataclass(frozen=True, slots=True)
class ClusterLicenceUse:
    """A cluster's answer about one licence: ``copies`` in its plan, granted by the grant ``number``; copies
    that its jobs hold, and copies that its waiting jobs need.
    """

    copies: int
    number: int
    held: int
    wanted: int


@dataclass(frozen=True, slots=True)
class LicenceGrant:
    """Grant of ``copies`` to a cluster. A grant with an already known number only queries the licence use.

    ``raised`` must be committed before the grant is sent.
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
    answers: dict[str, ClusterLicenceUse] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    """Clusters that reject grants of this licence, with the reason."""
    refused_at: dict[str, int] = field(default_factory=dict)


def share_copies(copies: int, wanted: Mapping[str, int]) -> dict[str, int]:
    """Distribute ``copies`` over clusters by demand (max-min fairness).

    No cluster gets more than its demand before every demand is met; small demands are met first. Copies
    beyond the total demand are distributed evenly.
    """
    found = dict.fromkeys(wanted, 0)
    left = max(0, copies)
    open_ones = sorted((name for name in wanted if wanted[name] > 0), key=lambda name: (wanted[name], name))
    while open_ones:
        name = open_ones.pop(0)
        found[name] = min(wanted[name], left // (len(open_ones) + 1))
        left -= found[name]
    # Distribute the rounding remainder to unmet demand, then evenly.
    for name in sorted(wanted):
        more = min(left, wanted[name] - found[name])
        found[name] += more
        left -= more
    for place, name in enumerate(sorted(wanted)):
        found[name] += left // len(wanted) + (place < left % len(wanted))
    return found


class LicencePools:
    """All licences that the federation lends, by name with the number of copies.

    A bound is raised only after every cluster has answered once, because a cluster may hold copies from an
    earlier log.
    """

    def __init__(self, copies: Mapping[str, int], clusters: Iterable[str]) -> None:
        self._clusters = tuple(clusters)
        self.pools = {name: _LicencePool(count) for name, count in copies.items()}

    def apply(self, event: LicenceLeased) -> None:
        """Apply a new bound. Events of licences that are not in the settings are ignored."""
        pool = self.pools.get(event.licence)
        if pool is not None:
            pool.bounds[event.cluster] = event.copies
            pool.numbers[event.cluster] = event.number

    def lease_events(self, now: int) -> list[LicenceLeased]:
        """Return all current bounds as events, to replace the leases in the log."""
        return [
            _leased(name, cluster, bound, pool.numbers[cluster], now)
            for name, pool in self.pools.items()
            for cluster, bound in pool.bounds.items()
        ]

    def free_copies(self, licence: str) -> int:
        """Return the copies outside all bounds; negative if the settings lowered the number of copies."""
        pool = self.pools[licence]
        return pool.copies - sum(pool.bounds.values())

    def pending_grants(self, cluster: str, reachable: Iterable[str], now: int) -> list[LicenceGrant]:
        """Return the grants to send to a cluster. ``reachable`` are the clusters that answer."""
        found = []
        here = set(reachable)
        for name, pool in self.pools.items():
            if cluster in pool.refusals and 0 <= now - pool.refused_at[cluster] < _ASK_AGAIN_S:
                continue
            lent_now, number = pool.answers.get(cluster), pool.numbers.get(cluster, 0)
            bound = pool.bounds.get(cluster, 0)
            if lent_now is None or cluster in pool.refusals:  # query the current use first
                found.append(LicenceGrant(name, cluster, bound, number))
                continue
            some = {
                one: pool.answers[one] for one in pool.answers if one in here and one not in pool.refusals
            }
            away = sum(kept for one, kept in pool.bounds.items() if one not in some)
            wanted = {one: lent.held + lent.wanted for one, lent in some.items()}
            allotted = share_copies(pool.copies - away, wanted).get(cluster, bound)
            if allotted > bound:
                known = all(one in pool.bounds for one in self._clusters)
                allotted = min(allotted, bound + max(0, self.free_copies(name))) if known else bound
            if allotted > lent_now.copies:
                # Use a new number even if the bound suffices: an older grant may still arrive.
                raised = _leased(name, cluster, max(allotted, bound), number + 1, now)
                found.append(LicenceGrant(name, cluster, allotted, number + 1, raised))
            elif allotted < lent_now.copies:
                found.append(LicenceGrant(name, cluster, allotted, number + 1))
            else:
                found.append(LicenceGrant(name, cluster, lent_now.copies, number))
        return found

    def apply_answer(self, grant: LicenceGrant, lent: ClusterLicenceUse, now: int) -> list[LicenceLeased]:
        """Store a cluster's answer to a grant. Return the events that follow."""
        pool = self.pools[grant.licence]
        pool.answers[grant.cluster] = lent
        pool.refusals.pop(grant.cluster, None)
        number = pool.numbers.get(grant.cluster, 0)
        # A grant of an earlier federation daemon may have a higher number.
        newest = max(number, grant.number, lent.number)
        bound = max(lent.copies, lent.held)
        if (bound, newest) == (pool.bounds.get(grant.cluster), number):
            return []
        return [_leased(grant.licence, grant.cluster, bound, newest, now)]

    def apply_refusal(
        self, grant: LicenceGrant, why: str, now: int, *, keeps: bool = False
    ) -> list[LicenceLeased]:
        """Store that a cluster rejects this licence, until it answers. Return the events that follow. It
        ``keeps`` its copies if it rejects the federation, and not the licence.
        """
        pool = self.pools[grant.licence]
        pool.refusals[grant.cluster], pool.refused_at[grant.cluster] = why, now
        if keeps or pool.bounds.get(grant.cluster) == 0:
            return []
        return [_leased(grant.licence, grant.cluster, 0, pool.numbers.get(grant.cluster, 0), now)]

    def forget_answers(self, cluster: str) -> None:
        """Drop the answers of a cluster that is unreachable. Its bounds remain."""
        for pool in self.pools.values():
            pool.answers.pop(cluster, None)
            pool.refusals.pop(cluster, None)


def _leased(licence: str, cluster: str, copies: int, number: int, now: int) -> LicenceLeased:
    return LicenceLeased(job="", time=now, licence=licence, cluster=cluster, copies=copies, number=number)
