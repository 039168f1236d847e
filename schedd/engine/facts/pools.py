"""Limits as pools: what a job takes of which, and what follows when a limit is changed.

A pool is a row of the plan like a node, so a limit holds at every moment of the plan, not only now. Limits
come from the server, its queues, the site's policy, and arrays (how many of their jobs may run at once).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import NamedTuple

import numpy as np

from schedd.dialect.shared import shared_amounts
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.model import FOREVER, Place, WaitingFor
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan
from schedd.policy.economy import Economy
from schedd.policy.limits import (
    WATTS,
    Claim,
    Limit,
    format_amount,
    format_limit,
    needs,
    strictest,
)
from schedd.policy.recurrence import Recurrence, occurrences
from schedd.wire import NO_TYPES, JobFacts, NodeFacts, ResourceTypes

__all__ = ["Drawn", "LimitBook", "binding", "free_amounts", "make_claim", "power_cap_limits"]

_KNOWN = 20_000
_AHEAD = 60 * 86_400
"""For so many seconds ahead it is known when pools with windows are open; later they count as in a window."""
_STEP = 6 * 3600
"""That horizon moves on in such steps."""
PLENTY = 1 << 44
"""What there is of a pool outside its windows, beside its amount."""


def make_claim(
    facts: JobFacts,
    understood: ParsedRequest,
    shared: Collection[str] = (),
    types: ResourceTypes = NO_TYPES,
) -> Claim:
    """Whose the job is and what limits count of it; of one that is not understood, what it holds.

    ``shared`` are the names of resources of the whole cluster, ``types`` those of the server's resources.
    """
    request = understood.request
    amounts = {"jobs": 1, **shared_amounts(facts.resources, shared, types)}
    if request is not None:
        chunks = request.chunks
        amounts["cpus"] = sum(chunk.count * chunk.cpus for chunk in chunks)
        amounts["nodes"] = 1 if request.place is Place.PACK else request.units
        amounts["gpus"] = sum(chunk.count * chunk.gpus for chunk in chunks)
        amounts["mem"] = sum(chunk.count * chunk.mem for chunk in chunks)
        for chunk in chunks:
            for name, amount in chunk.resources:
                if name not in shared:
                    amounts[name] = amounts.get(name, 0) + chunk.count * amount
    else:
        amounts["cpus"] = sum(share.cpus for share in facts.shares)
        amounts["nodes"] = len({share.node for share in facts.shares})
    amounts["walltime"] = understood.walltime
    amounts["cpu_seconds"] = amounts["cpus"] * understood.walltime
    return Claim(
        user=facts.owner.partition("@")[0],
        group=facts.group,
        account=facts.account,
        project=facts.project,
        array=facts.array if facts.slot_limit is not None else "",
        queue=facts.queue,
        amounts=amounts,
    )


class Drawn(NamedTuple):
    """The most watts that one core, one gpu, and a whole node draw beyond idle."""

    core: float = 0.0
    gpu: float = 0.0
    node: float = 0.0

    def by(self, amounts: Mapping[str, int], *, whole: bool) -> int:
        """What a job can draw, rounded up; ``whole``: it has its nodes for itself."""
        parts = amounts.get("cpus", 0) * self.core + amounts.get("gpus", 0) * self.gpu
        return ceil(max(parts, amounts.get("nodes", 0) * self.node if whole else 0.0))


def power_cap_limits(economy: Economy, nodes: Iterable[NodeFacts]) -> tuple[tuple[Limit, ...], Drawn]:
    """What the power caps leave for jobs, all nodes being on; and what jobs can draw. Nodes without watts
    draw nothing, as far as is known.
    """
    idle = core = gpu = node = 0.0
    for one in nodes if economy.caps else ():
        draw = economy.draw(one.name, one.properties)
        if draw is not None:
            idle += draw.idle
            core, gpu = max(core, draw.core), max(gpu, draw.gpu)
            node = max(node, one.cpus * draw.core + one.gpus * draw.gpu)
    limits = (
        Limit(
            amount=max(0, floor(one.watts - idle)),
            what=WATTS,
            during=one.window.text if one.window is not None else "",
        )
        for one in economy.caps
    )
    return tuple(limits), Drawn(core, gpu, node)


@dataclass(slots=True)
class LimitBook:
    """The limits in force, and those of them that are a pool of the plan."""

    sources: tuple[tuple[Limit, ...], ...] = ()
    """Limits by their source: see ``strictest``."""
    pools: dict[str, Limit] = field(default_factory=dict)
    """By name of the pool."""
    caps: tuple[Limit, ...] = ()
    """Power caps, as what they leave for jobs."""
    drawn: Drawn = Drawn()
    shared: frozenset[str] = frozenset()
    """Names of resources of the whole cluster."""
    opened: dict[str, int] = field(default_factory=dict)
    """By pool that has windows: until when it is known when it is open."""
    types: ResourceTypes = NO_TYPES
    """Types of the server's resources."""
    lowered: set[str] = field(default_factory=set)
    """Pools that may have become too small for what is planned."""
    _known: dict[tuple[str, ...], dict[str, Limit]] = field(default_factory=dict)
    _limited: frozenset[str] = frozenset()
    """Queues that have limits; empty: all."""

    def copy(self) -> "LimitBook":
        """For a fork of the plan."""
        return replace(
            self,
            pools=dict(self.pools),
            opened=dict(self.opened),
            lowered=set(),
            _known={},
        )

    def set_power(self, caps: tuple[Limit, ...], drawn: Drawn) -> bool:
        """Take over what power caps leave for jobs; returns whether that was something else before."""
        if (caps, drawn) == (self.caps, self.drawn):
            return False
        self.caps, self.drawn = caps, drawn
        self._changed()
        return True

    def set_sources(self, sources: tuple[tuple[Limit, ...], ...]) -> None:
        """Replace the limits of all sources."""
        if sources != self.sources:
            self.sources = sources
            self._changed()

    @property
    def _all(self) -> Iterator[Limit]:
        for limits in self.sources:
            yield from limits

    def _changed(self) -> None:
        self._known.clear()
        self.shared = frozenset(limit.what for limit in self._all if limit.shared)
        self._limited = frozenset(limit.queue for limit in self._all)

    @property
    def copies(self) -> dict[str, int]:
        """How many there are of each resource of the whole cluster; the least that anybody says."""
        found: dict[str, int] = {}
        for limit in self._all:
            if limit.shared and limit.who == "all":
                found[limit.what] = min(limit.amount, found.get(limit.what, limit.amount))
        return found

    def needs(self, plan: Plan, facts: JobFacts, understood: ParsedRequest, now: int) -> dict[str, int]:
        """What a job takes of which pools; those that the plan does not have yet are made."""
        any_limit = self.caps or "" in self._limited or facts.queue in self._limited
        if not any_limit and facts.slot_limit is None:
            return {}
        claim = make_claim(facts, understood, self.shared, self.types)
        if self.caps:
            request = understood.request
            whole = facts.exclusive or (request is not None and request.exclusive)
            watts = self.drawn.by(claim.amounts, whole=whole)
            claim = replace(claim, amounts={**claim.amounts, WATTS: watts})
        found = self._of(claim, facts.slot_limit)
        wanted = needs(found, claim)
        for pool in wanted:
            limit = found[pool]
            before = self.pools.get(pool)
            if (before is not limit and before != limit) or pool not in plan.pools:
                if before is not None and limit.amount < before.amount:
                    self.lowered.add(pool)
                new = pool not in plan.pools
                plan.set_pool(pool, limit.amount, now)
                self.pools[pool] = limit
                if limit.during and new:
                    self._open(plan, pool, now, now + _AHEAD)
        return wanted

    def look_ahead(self, plan: Plan, now: int) -> None:
        """Know of all pools with windows when they are open, for a while from ``now`` on."""
        for pool, until in self.opened.items():
            if until < now + _AHEAD - _STEP:
                self._open(plan, pool, max(until, now), now + _AHEAD)

    def _open(self, plan: Plan, pool: str, begin: int, end: int) -> None:
        """Let a pool be open outside its windows over ``[begin, end)``; later on it never is, so far."""
        at = begin
        windows = occurrences(Recurrence.parse(self.pools[pool].during), begin, end)
        for first, last in (*windows, (end, end)):
            if at < min(first, end):
                plan.limit_pool(pool, at, min(first, end), PLENTY, begin)
            at = max(at, last)
        self.opened[pool] = end

    def _of(self, claim: Claim, slot_limit: int | None) -> dict[str, Limit]:
        key = (claim.user, claim.group, claim.account, claim.project, claim.queue)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            found = self._known[key] = strictest((*self.sources, self.caps), claim)
        if claim.array and slot_limit is not None:
            own = Limit(amount=slot_limit, who="array", name=claim.array)
            return {**found, own.pool: own}
        return found

    def forget(self, pools: Iterable[str]) -> None:
        """These pools are gone."""
        for pool in pools:
            self.pools.pop(pool, None)
            self.opened.pop(pool, None)

    def too_much(self, wanted: Mapping[str, int]) -> WaitingFor | None:
        """What a job waits for that asks for more than a limit ever allows."""
        for pool, amount in wanted.items():
            limit = self.pools.get(pool)  # a pool of a component is no limit
            if limit is not None and amount > limit.amount and not limit.during:
                asked = format_amount(amount, limit.what, limit.unit)
                return WaitingFor(
                    "limit", f"a limit to be raised: {format_limit(limit)}; it asks for {asked}"
                )
        return None


def free_amounts(limit: Limit, times: Ints, used: Ints, begin: int, end: int) -> tuple[Ints, Ints]:
    """(n,) moments, and how much of a limit's pool is free from each on, over ``[begin, end)`` at least.

    ``used`` is what is in use from each of ``times`` on.
    """
    if not limit.during:
        return times, limit.amount - used
    windows = occurrences(Recurrence.parse(limit.during), begin, end)
    edges = np.array([edge for window in windows for edge in window], np.int64)
    moments = np.unique(np.concatenate([times, edges]))
    inside = np.searchsorted(edges, moments, side="right") % 2 == 1
    now_used = used[np.searchsorted(times, moments, side="right") - 1]
    return moments, limit.amount - now_used + np.where(inside, 0, PLENTY)


def binding(times: Ints, free: Ints, start: int, end: int, amount: int, earliest: int) -> bool:
    """Whether a pool leaves no room for ``amount`` over as long as ``[start, end)`` from any moment in
    ``[earliest, start)`` on.

    ``free`` is what is free of the pool from each of ``times`` on, the job's own part over ``[start, end)``
    taken.
    """
    if earliest >= start:
        return False
    edges = np.unique(np.concatenate([times, [earliest, start, end]]))
    edges = edges[(edges >= earliest) & (edges <= end)]
    at = np.maximum(np.searchsorted(times, edges, side="right") - 1, 0)
    room = free[at] + np.where(edges >= start, amount, 0) >= amount
    room[-1] = True  # from the end on nobody asks
    # The last moment at which there is no room before each possible start decides.
    blocked = np.flatnonzero(~room)
    if not blocked.shape[0]:
        return False
    begins = np.concatenate([[earliest], edges[blocked + 1]])
    until = np.concatenate([edges[blocked], [FOREVER]])
    fits = (until - begins >= end - start) & (begins < start)
    return not bool(fits.any())
