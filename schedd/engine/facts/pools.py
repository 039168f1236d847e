"""Limits as pools of the plan: amounts that jobs take, and changes of limits.

A pool is a row of the plan like a node, so a limit holds at every moment of the plan, not only now. Limits
come from the server, its queues, the site's policy, and arrays (their slot limits).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor
from typing import Final, NamedTuple

import numpy as np

from schedd.dialect.shared import OTHER_THAN, shared_amounts
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.texts import LIMIT_TO_BE_RAISED
from schedd.model import FOREVER, Place, WaitingFor
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan
from schedd.policy.economy import Economy
from schedd.policy.limits import (
    COUNTS_TIME,
    PLANNED_WALLTIME,
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

_LATEST: Final = 4  # requests with claims that are remembered
_KNOWN = 20_000
NO_SCOPES: Final[frozenset[str]] = frozenset()
_AHEAD = 60 * 86_400
"""Horizon of calculated windows, in seconds; beyond it, pools with windows count as in a window."""
_STEP = 6 * 3600  # step in which the horizon moves on, in seconds
PLENTY = 1 << 44  # capacity of a pool outside its windows, in addition to its amount


def make_claim(
    facts: JobFacts,
    understood: ParsedRequest,
    shared: Collection[str] = (),
    types: ResourceTypes = NO_TYPES,
    scopes: frozenset[str] = NO_SCOPES,
) -> Claim:
    """Return the owner of a job and the amounts that limits count; for an invalid request, the amounts that
    it holds. As at the server, memory and walltime count only if the job requests them. A product with time,
    and use over time, count the walltime that is planned: a job without one holds its cores all the same.

    ``shared`` are the names of resources of the whole cluster, ``types`` the types of the server's resources,
    ``scopes`` the labels of the job (``job_scopes``).
    """
    request = understood.request
    amounts = {"jobs": 1, **shared_amounts(facts.resources, shared, types)}
    if request is not None:
        cpus = gpus = mem = 0
        for chunk in request.chunks:
            cpus += chunk.count * chunk.cpus
            gpus += chunk.count * chunk.gpus
            mem += chunk.count * chunk.mem
        amounts["cpus"], amounts["gpus"], amounts["mem"] = cpus, gpus, mem - understood.assumed_mem
        amounts["nodes"] = 1 if request.place is Place.PACK else request.units
        for chunk in request.chunks:
            for name, amount in chunk.resources:
                if name not in shared:
                    amounts[name] = amounts.get(name, 0) + chunk.count * amount
    else:
        amounts["cpus"] = sum(share.cpus for share in facts.shares)
        amounts["nodes"] = len({share.node for share in facts.shares})
    amounts["walltime"] = understood.requested_walltime
    amounts[PLANNED_WALLTIME] = understood.walltime
    for name, each in (("cpu_seconds", "cpus"), ("gpu_seconds", "gpus"), ("node_seconds", "nodes")):
        amounts[name] = amounts.get(each, 0) * understood.walltime
    return Claim(
        user=facts.owner.partition("@")[0],
        group=facts.group,
        account=facts.account,
        project=facts.project,
        array=facts.array if facts.slot_limit is not None else "",
        queue=facts.queue,
        scopes=scopes,
        amounts=amounts,
    )


class Drawn(NamedTuple):
    """The most watts that one core, one gpu, and a whole node draw beyond idle."""

    core: float = 0.0
    gpu: float = 0.0
    node: float = 0.0

    def by(self, amounts: Mapping[str, int], *, whole: bool) -> int:
        """Return the most watts that a job can draw, rounded up; ``whole``: it has its nodes for itself."""
        parts = amounts.get("cpus", 0) * self.core + amounts.get("gpus", 0) * self.gpu
        return ceil(max(parts, amounts.get("nodes", 0) * self.node if whole else 0.0))


def power_cap_limits(economy: Economy, nodes: Iterable[NodeFacts]) -> tuple[tuple[Limit, ...], Drawn]:
    """Return limits for the power caps less the idle power of all nodes, and the most power that jobs draw.
    Nodes without known watts count as drawing none.
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
            during=window.text if (window := one.window(economy.zone)) is not None else "",
        )
        for one in economy.caps
    )
    return tuple(limits), Drawn(core, gpu, node)


@dataclass(slots=True)
class LimitBook:
    """Limits in force, and the pools of the plan made for them."""

    sources: tuple[tuple[Limit, ...], ...] = ()  # limits by their source: see `strictest`
    pools: dict[str, Limit] = field(default_factory=dict)  # by name of the pool
    caps: tuple[Limit, ...] = ()  # power caps, reduced to the power available to jobs
    drawn: Drawn = Drawn()
    shared: frozenset[str] = frozenset()  # names of resources of the whole cluster
    opened: dict[str, int] = field(default_factory=dict)
    """By pool with windows: the end of its calculated windows."""
    types: ResourceTypes = NO_TYPES  # types of the server's resources
    lowered: set[str] = field(default_factory=set)
    """Pools that may be too small for the planned jobs after a change."""
    _known: dict[tuple[object, ...], dict[str, Limit]] = field(default_factory=dict)
    _last_job: tuple[JobFacts, Plan, ResourceTypes] | None = None
    """The job, plan and resource types of ``_last_amounts``."""
    _last_amounts: list[tuple[ParsedRequest, frozenset[str], dict[str, int]]] = field(default_factory=list)
    """Cache of the last job: (request, scopes, amounts by pool). An arrival calls ``needs`` several times."""
    _last_claims: list[tuple[JobFacts, ParsedRequest, frozenset[str], ResourceTypes, Claim]] = field(
        default_factory=list
    )
    """The latest requests of jobs, the shared resources, the types of resources, and their claims without
    scopes."""
    _alike: dict[str, Limit] = field(default_factory=dict)
    """By pool: the limit of the latest claim. Equal limits are one object, which is compared at once."""
    _limited: frozenset[str] = frozenset()
    """Queues that have limits; empty: all."""
    _prefixes: tuple[str, ...] = ()  # beginnings of queues with limits
    scopes: frozenset[str] = NO_SCOPES  # scopes that have limits: other scopes have no effect
    _counts_time: bool = False  # whether a limit counts an amount of ``COUNTS_TIME``

    def copy(self) -> "LimitBook":
        """Return a copy for a fork of the plan."""
        return replace(
            self,
            pools=dict(self.pools),
            opened=dict(self.opened),
            lowered=set(self.lowered),
            _known={},
            _last_job=None,
            _last_amounts=[],
            _last_claims=[],
            _alike={},
        )

    def set_power(self, caps: tuple[Limit, ...], drawn: Drawn) -> bool:
        """Replace the power caps; return whether they were changed."""
        if (caps, drawn) == (self.caps, self.drawn):
            return False
        self.caps, self.drawn = caps, drawn
        self._changed()
        return True

    def set_sources(self, sources: tuple[tuple[Limit, ...], ...]) -> None:
        if sources != self.sources:
            self.sources = sources
            self._changed()

    @property
    def _all(self) -> Iterator[Limit]:
        for limits in self.sources:
            yield from limits

    def _changed(self) -> None:
        self._known.clear()
        self._alike.clear()
        self._last_job = None
        self.shared = frozenset(limit.what for limit in self._all if limit.shared)
        self._limited = frozenset(limit.queue for limit in self._all if not limit.scope)
        self._prefixes = tuple(queue[:-1] for queue in self._limited if queue.endswith("*"))
        self.scopes = frozenset(limit.scope for limit in self._all if limit.scope)
        self._counts_time = any(limit.what in COUNTS_TIME for limit in self._all)

    @property
    def copies(self) -> dict[str, int]:
        """Available amount of each resource of the whole cluster: the minimum over all sources."""
        found: dict[str, int] = {}
        for limit in self._all:
            if OTHER_THAN in limit.what:
                continue
            if limit.shared and limit.who == "all" and not limit.scope and not limit.queue:
                found[limit.what] = min(limit.amount, found.get(limit.what, limit.amount))
        return found

    def needs(
        self,
        plan: Plan,
        facts: JobFacts,
        understood: ParsedRequest,
        now: int,
        scopes: frozenset[str] = NO_SCOPES,
    ) -> dict[str, int]:
        """Return a job's amounts by pool; missing pools are added. ``scopes``: see ``make_claim``."""
        scopes = scopes & self.scopes
        any_limit = self.caps or "" in self._limited or facts.queue in self._limited
        any_limit = any_limit or bool(scopes) or facts.queue.startswith(self._prefixes)
        if not any_limit and facts.slot_limit is None:
            return {}
        last = self._last_job
        if last is None or not (last[0] is facts and last[1] is plan and last[2] is self.types):
            self._last_job, self._last_amounts = (facts, plan, self.types), []
        for known, its_scopes, amounts in self._last_amounts:
            if its_scopes == scopes and (known is understood or self._claims_as_much(known, understood)):
                return amounts
        claim = self.claim(facts, understood)
        if scopes:
            claim = replace(claim, scopes=scopes)
        if self.caps:
            request = understood.request
            whole = facts.exclusive or (request is not None and request.exclusive)
            watts = self.drawn.by(claim.amounts, whole=whole)
            claim = replace(claim, amounts={**claim.amounts, WATTS: watts})
        found = self._claim_limits(claim, facts.slot_limit)
        wanted = needs(found, claim)
        rows = plan.pools
        for pool in wanted:
            limit = found[pool]
            before = self.pools.get(pool)
            new = pool not in rows
            if not new and before is limit:
                continue
            if before == limit and not new:
                self.pools[pool] = limit  # the next comparison is short
            else:
                if before is not None and limit.amount < before.amount:
                    self.lowered.add(pool)
                plan.set_pool(pool, limit.amount, now)
                self.pools[pool] = limit
                if limit.during and new:
                    self._open(plan, pool, now, now + _AHEAD)
        self._last_amounts.append((understood, scopes, wanted))
        return wanted

    def _claims_as_much(self, one: ParsedRequest, other: ParsedRequest) -> bool:
        """Return whether two forms of a job's request differ in nothing that a limit counts. Forms that
        differ only in their walltime share a request.
        """
        same = one.request is other.request and one.request is not None
        return same and not self._counts_time and one.assumed_mem == other.assumed_mem

    def claim(self, facts: JobFacts, understood: ParsedRequest) -> Claim:
        """Return the claim of a job, without scopes. An arrival needs it for limits and for its priority."""
        for one, request, shared, types, claim in self._last_claims:
            if one is facts and request is understood and shared is self.shared and types is self.types:
                return claim
        found = make_claim(facts, understood, self.shared, self.types)
        if len(self._last_claims) == _LATEST:
            del self._last_claims[0]
        self._last_claims.append((facts, understood, self.shared, self.types, found))
        return found

    def extend_windows(self, plan: Plan, now: int) -> None:
        """Extend the calculated windows of all pools up to the horizon."""
        for pool, until in self.opened.items():
            if until < now + _AHEAD - _STEP:
                self._open(plan, pool, max(until, now), now + _AHEAD)

    def _open(self, plan: Plan, pool: str, begin: int, end: int) -> None:
        """Open a pool outside its windows over ``[begin, end)``; after ``end`` it counts as closed."""
        at = begin
        windows = occurrences(Recurrence.parse(self.pools[pool].during), begin, end)
        for first, last in (*windows, (end, end)):
            if at < min(first, end):
                plan.limit_pool(pool, at, min(first, end), PLENTY, begin)
            at = max(at, last)
        self.opened[pool] = end

    def _claim_limits(self, claim: Claim, slot_limit: int | None) -> dict[str, Limit]:
        key = (claim.user, claim.group, claim.account, claim.project, claim.queue, claim.scopes)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            found = strictest((*self.sources, self.caps), claim)
            for pool, limit in found.items():
                known = self._alike.setdefault(pool, limit)
                if known is not limit:
                    found[pool] = self._alike[pool] = known if known == limit else limit
            self._known[key] = found
        if claim.array and slot_limit is not None:
            own = Limit(amount=slot_limit, who="array", name=claim.array)
            return {**found, own.pool: own}
        return found

    def forget(self, pools: Iterable[str]) -> None:
        self._last_job = None
        for pool in pools:
            self.pools.pop(pool, None)
            self.opened.pop(pool, None)

    def too_much(self, wanted: Mapping[str, int]) -> WaitingFor | None:
        """Return the reason for waiting of a job that requests more than a limit ever allows; else None."""
        for pool, amount in wanted.items():
            limit = self.pools.get(pool)  # a pool of a component is no limit
            if limit is not None and amount > limit.amount and not limit.during:
                asked = format_amount(amount, limit.what, limit.unit)
                return WaitingFor(
                    "limit", f"{LIMIT_TO_BE_RAISED}: {format_limit(limit)}; it asks for {asked}"
                )
        return None


def free_amounts(limit: Limit, times: Ints, used: Ints, begin: int, end: int) -> tuple[Ints, Ints]:
    """Return (n,) times, and the free amount of a limit's pool from each time on, covering ``[begin, end)``.

    ``used`` is the amount in use from each of ``times`` on.
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
    """Return whether no start in ``[earliest, start)`` leaves room for ``amount`` for ``end - start``
    seconds.

    ``free`` is the free amount of the pool from each of ``times`` on, with the job's own part in use over
    ``[start, end)``.
    """
    if earliest >= start:
        return False
    edges = np.unique(np.concatenate([times, [earliest, start, end]]))
    edges = edges[(edges >= earliest) & (edges <= end)]
    at = np.maximum(np.searchsorted(times, edges, side="right") - 1, 0)
    room = free[at] + np.where(edges >= start, amount, 0) >= amount
    room[-1] = True  # the pool is not needed after the end
    # Each possible start follows a time without room.
    blocked = np.flatnonzero(~room)
    if not blocked.shape[0]:
        return False
    begins = np.concatenate([[earliest], edges[blocked + 1]])
    until = np.concatenate([edges[blocked], [FOREVER]])
    fits = (until - begins >= end - start) & (begins < start)
    return not bool(fits.any())
