"""Translation of job facts into requests; pure, with a cache."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from schedd.dialect import (
    DescribedRequest,
    Hold,
    NodeKind,
    RequestError,
    Site,
    find_dialect,
    holds_in,
    is_shrinkable,
    node_kinds,
    own_conditions,
    parse_walltime,
)
from schedd.dialect.moldable import CHOSEN
from schedd.dialect.walltime_scale import SCALE, WalltimeScale
from schedd.model import Features, Never, Node, NodeSets, NodeState, Request
from schedd.plan.gates import GATE
from schedd.policy.access import Access
from schedd.policy.engine_settings import EngineSettings
from schedd.policy.site import SitePolicy
from schedd.wire import NO_TYPES, JobFacts, NodeFacts, PlanningHeld, QueueFacts, ResourceTypes
from schedd.wire.quick_init import quick_init, quick_replace

_LATEST = 4
_CACHE = 50_000
_ANY_WALLTIME = "999999999"  # of nine digits: those are read fast


@quick_init
@dataclass(frozen=True, slots=True)
class _RequestFacts:
    """What a request is read from; a copy of all facts of the job would take as long as to read it."""

    family: str
    resources: Mapping[str, str]
    exclusive: bool
    state: str


@quick_init
@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """Request of a job, or the reason why it cannot be parsed; ``walltime`` (s) is ``assumed`` if none was
    given. ``assumed_mem`` is the part of its memory (KiB) that only the site's default plans. ``scaled`` is
    the scale of a normalised walltime as text; empty: the walltime is as the job states it.
    """

    request: Request | None
    walltime: int
    assumed: bool
    problem: str = ""
    assumed_mem: int = 0
    scaled: str = ""

    @property
    def scale(self) -> WalltimeScale | None:
        """What the walltime was scaled from; None: it is as the job states it."""
        return WalltimeScale.from_text(self.scaled) if self.scaled else None

    @property
    def requested_walltime(self) -> int:
        """The walltime that the job, or a default of the server, names; 0: neither does."""
        return 0 if self.assumed else self.walltime


class RequestReader:
    """Reads requests, remembering the texts already read."""

    def __init__(self, settings: EngineSettings) -> None:
        self._settings = settings
        self._known: dict[object, ParsedRequest] = {}
        self._requests: dict[object, Request] = {}
        self._nodes: frozenset[str] = frozenset()
        self._generic: frozenset[str] = frozenset()
        self._uncounted: frozenset[str] = frozenset()
        self._shared: frozenset[str] = frozenset()
        self._kinds: tuple[NodeKind, ...] = ()
        self._types = NO_TYPES
        self._known_nodes: tuple[Node, ...] = ()
        self._levels: dict[str, tuple[int, ...]] = {}
        self._obeyed = settings.site.obeyed
        self._latest: list[tuple[JobFacts, QueueFacts | None, Mapping[str, str], ParsedRequest]] = []
        """The latest answers, with the objects that they depend on: an arriving job is read several times."""

    def copy(self) -> "RequestReader":
        """Return a reader for a copy of the engine, with the same nodes and an empty cache."""
        new = RequestReader(self._settings)
        new._nodes, new._generic, new._shared = self._nodes, self._generic, self._shared
        new._kinds, new._types, new._uncounted = self._kinds, self._types, self._uncounted
        new._known_nodes, new._levels = self._known_nodes, self._levels
        new._obeyed = self._obeyed
        return new

    def set_nodes(self, nodes: Mapping[str, Node], uncounted: Iterable[str] = ()) -> bool:
        """Set the names and node-locked resources of nodes, including resources that the plan does not count.

        Returns True and clears the cache if they changed: a request may now be parsed differently.
        """
        names = frozenset(nodes)
        generic = frozenset(
            name for node in nodes.values() for name, _ in node.resources if not name.startswith(GATE)
        )
        self._uncounted = frozenset(uncounted)
        generic |= self._uncounted
        kinds = node_kinds(nodes.values(), GATE)
        self._known_nodes = tuple(nodes.values())
        levels = self._find_levels()
        same = names == self._nodes and generic == self._generic and kinds == self._kinds
        if same and levels == self._levels:
            return False
        self._nodes, self._generic, self._kinds, self._levels = names, generic, kinds, levels
        self._forget()
        return True

    def knows_uncounted(self, names: Iterable[str]) -> bool:
        """Return whether these are the uncounted resources of the last ``set_nodes``."""
        return frozenset(names) == self._uncounted

    def set_shared(self, names: frozenset[str]) -> bool:
        """Know the resources of the whole cluster; returns whether requests may now read differently."""
        if names == self._shared:
            return False
        self._shared = names
        self._forget()
        return True

    def set_site(self, site: SitePolicy) -> bool:
        """Know the site's policy; returns whether requests may now read differently."""
        if site.obeyed == self._obeyed:
            return False
        self._obeyed = site.obeyed
        self._forget()
        return True

    def set_types(self, types: ResourceTypes) -> bool:
        """Know the types of the server's resources; returns whether requests may now read differently."""
        if types == self._types:
            return False
        self._types = types
        self._levels = self._find_levels()
        self._forget()
        return True

    def _forget(self) -> None:
        self._known.clear()
        self._requests.clear()
        self._latest.clear()

    def _find_levels(self) -> dict[str, tuple[int, ...]]:
        """By name the values on nodes of the numbers that jobs do not use up."""
        found: dict[str, list[int]] = {}
        for node in self._known_nodes if self._types.levels else ():
            for feature in node.features:
                name, _, value = feature.partition("=")
                if name in self._types.levels and value.isdecimal():
                    found.setdefault(name, []).append(int(value))
        return {name: tuple(sorted(set(values))) for name, values in found.items()}

    def read(
        self, facts: JobFacts, queue: QueueFacts | None, server_defaults: Mapping[str, str]
    ) -> ParsedRequest:
        """Return the job's parsed request; defaults of the queue precede defaults of the server."""
        for known_facts, known_queue, defaults, known in self._latest:
            if known_facts is facts and known_queue is queue and defaults is server_defaults:
                return known
        found = self._read_facts(facts, queue, server_defaults)
        if len(self._latest) == _LATEST:
            del self._latest[0]
        self._latest.append((facts, queue, server_defaults, found))
        return found

    def _read_facts(
        self, facts: JobFacts, queue: QueueFacts | None, server_defaults: Mapping[str, str]
    ) -> ParsedRequest:
        queue_defaults = queue.defaults if queue is not None else {}
        resources = facts.resources
        if SCALE in resources or CHOSEN in resources:
            rest = {name: text for name, text in resources.items() if name not in (SCALE, CHOSEN)}
            found = self._read_facts(quick_replace(facts, resources=rest), queue, server_defaults)
            return quick_replace(found, scaled=resources.get(SCALE, ""))
        runs = is_shrinkable(resources) and facts.state in ("R", "E", "S")
        others = (
            *(facts.family, facts.exclusive, runs),
            *(tuple(queue_defaults.items()), tuple(server_defaults.items())),
        )
        key = (tuple(resources.items()), others)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _CACHE:
                self._forget()
            known = self._like_another(facts, queue, server_defaults, others)
            if known is None:
                known = self._read(facts, {**server_defaults, **queue_defaults})
            self._known[key] = known
        return known

    def _like_another(
        self,
        facts: JobFacts,
        queue: QueueFacts | None,
        server_defaults: Mapping[str, str],
        rest: tuple[object, ...],
    ) -> ParsedRequest | None:
        """A request that differs from others in nothing but its walltime is read once for all of them."""
        text = facts.resources.get("walltime", _ANY_WALLTIME)
        if text == _ANY_WALLTIME or is_shrinkable(facts.resources):
            return None
        try:
            walltime = parse_walltime(text)
        except RequestError:
            return None
        resources = {**facts.resources, "walltime": _ANY_WALLTIME}
        found = self._known.get((tuple(resources.items()), rest))
        if found is None:
            queue_defaults = queue.defaults if queue is not None else {}
            described = _RequestFacts(facts.family, resources, facts.exclusive, facts.state)
            found = self._read(described, {**server_defaults, **queue_defaults})
            self._known[tuple(resources.items()), rest] = found
        if found.request is None or walltime < 1 or found.walltime != int(_ANY_WALLTIME):
            return None  # its length is not its walltime: a shorter one is expected
        return ParsedRequest(found.request, walltime, False, found.problem, found.assumed_mem)

    def _read(self, facts: DescribedRequest, defaults: Mapping[str, str]) -> ParsedRequest:
        settings, read = self._settings, find_dialect(facts.family).read
        site = Site(
            defaults=defaults,
            pack=settings.node_rule == "pack",
            mem_per_core=settings.mem_per_core,
            known_nodes=self._nodes,
            generic=self._generic,
            shared=self._shared,
            kinds=self._kinds,
            types=self._types,
            levels=self._levels,
            obeyed=self._obeyed,
        )
        try:
            request = read(facts, site)
            own = read(facts, replace(site, mem_per_core=0)) if site.mem_per_core else request
        except RequestError as error:
            return ParsedRequest(None, settings.default_walltime, True, error.comment)
        assumed_mem = _total_memory(request) - _total_memory(own)
        if request.walltime is None:
            return ParsedRequest(request, settings.default_walltime, True, assumed_mem=assumed_mem)
        # The walltime is kept apart, so that jobs of one shape share it whatever their length.
        alike = quick_replace(request, walltime=None)
        alike = self._requests.setdefault((alike, alike.notes), alike)
        return ParsedRequest(alike, request.walltime, False, assumed_mem=assumed_mem)


def _total_memory(request: Request) -> int:
    return sum(chunk.count * chunk.mem for chunk in request.chunks)


def planner_node(facts: NodeFacts) -> Node:
    """The planner's view of a node."""
    return Node(
        name=facts.name,
        cpus=facts.cpus,
        mem=facts.mem,
        vmem=facts.vmem,
        gpus=facts.gpus,
        resources=tuple(sorted(facts.resources.items())),
        features=frozenset(facts.properties),
        state=NodeState(facts.state),
        speed=facts.speed,
    )


def unusable_amounts(nodes: Mapping[str, NodeFacts]) -> dict[str, Mapping[str, int]]:
    """Return the amounts on unusable parts of nodes, by node."""
    return {name: facts.unusable for name, facts in nodes.items() if facts.unusable}


BOOKING: Final = "booking "
"""Beginning of the id in the facts of a booking; no job has such an id."""


HYPOTHETICAL: Final = "what-if"
"""Id of the job of a question: it has no account, project or group, and perhaps no owner."""


def holds_resources(facts: JobFacts) -> bool:
    """Whether the server lets the job hold resources: it runs, is ending, or is suspended on its nodes."""
    return facts.state in ("R", "E") or (facts.state == "S" and bool(facts.shares))


def held_by_limit(holds: str) -> bool:
    """Return whether the slot limit of an array is the only one of these holds."""
    return holds_in(holds) == (Hold.SLOT_LIMIT,)


def find_uncounted(request: Request, uncounted: Collection[str]) -> Never | None:
    """Return why the request can never be planned if it has a node resource that the plan does not count."""
    asked = (name for chunk in request.chunks for name, _ in chunk.resources) if uncounted else ()
    left = next((name for name in asked if name in uncounted), "")
    if not left:
        return None
    return Never(f"it asks for {left}, which is not counted: nodes have too many kinds of resources")


def slot_limited(facts: JobFacts) -> bool:
    """Return whether only its array's slot limit holds the job. The job is planned, within that limit."""
    return facts.slot_limit is not None and facts.state == "H" and held_by_limit(facts.holds)


def open_gates(gates: Mapping[str, Access], facts: JobFacts) -> frozenset[str]:
    """Return the gates whose access lists admit a job: see ``Access.admits``."""
    user, group, account, queue = facts.owner.partition("@")[0], facts.group, facts.account, facts.queue
    walltime = -1  # not read yet
    found = []
    for gate, access in gates.items():  # no call for each: an arrival asks for each form of its request
        if (
            user in access.users
            or group in access.groups
            or account in access.accounts
            or queue in access.queues
        ):
            found.append(gate)
        elif access.shorter:
            walltime = _walltime(facts) if walltime < 0 else walltime
            if 0 < walltime <= access.shorter:
                found.append(gate)
    return frozenset(found)


def _walltime(facts: JobFacts) -> int:
    """Return the walltime in seconds that the job requests or gets by default; 0: none. Before its start a
    job with a max_walltime has that, or what is chosen in place of it.
    """
    resources = facts.resources
    name = "max_walltime" if "max_walltime" in resources and not holds_resources(facts) else "walltime"
    try:
        return parse_walltime(resources.get(name, "0"))
    except RequestError:
        return 0


def as_planned_request(
    request: Request,
    facts: JobFacts,
    gates: Mapping[str, Access],
    node_sets: NodeSets | None,
    nodes: Features = (),
    node_order: str = "",
) -> Request:
    """Return the request with the gates that are open to the job, and the site's node sets.

    ``nodes``: names and features to which the job is restricted. ``node_order``: the order of nodes that the
    site prefers for it.
    """
    changes: dict[str, Any] = {}
    if nodes:
        changes["chunks"] = tuple(
            [quick_replace(one, features=(*one.features, *nodes)) for one in request.chunks]
        )
    if gates:
        changes["passes"] = open_gates(gates, facts)
    if node_order:
        changes["node_order"] = node_order
    if node_sets is not None and request.together is None and request.units > 1:
        changes["together"] = node_sets
    return quick_replace(request, **changes) if changes else request


def is_eligible(facts: JobFacts, now: int) -> bool:
    """Return whether only capacity and site policy can delay the job: no hold and no later ``not_before``."""
    free = (facts.state == "Q" and not holds_in(facts.holds)) or slot_limited(facts)
    return free and (facts.not_before or 0) <= now


def queue_stop_reason(queue: QueueFacts | None, hold: PlanningHeld | None) -> str:
    """Why a queue starts nothing (``which is stopped``); empty where it does. ``hold``: an admin's, on it."""
    if hold is not None:
        return f"which is held: {hold.reason}"
    if queue is not None and queue.routes:
        return f"which routes its jobs to {', '.join(queue.routes)}"
    return "which is stopped" if queue is not None and not queue.started else ""


def waiting_reasons(facts: JobFacts, stopped: str) -> list[tuple[str, str]]:
    """Return all conditions that prevent planning of the job, as (kind, text).

    ``stopped`` is the reason why its queue starts no jobs, or empty. A job with an earliest start (``-a``)
    may be planned.
    """
    found: list[tuple[str, str]] = []
    if facts.state == "T":  # a release of its holds does not end this
        found.append(("server", "the server, which keeps it in state T"))
    holds = holds_in(facts.holds)
    if (facts.state == "H" or holds) and not slot_limited(facts):
        if depend := own_conditions(facts.depend):  # it is a system hold for the server, which lifts it
            found.append(("dependency", f"its dependency {depend}"))
            holds = tuple(hold for hold in holds if hold is not Hold.SYSTEM)
        found += [("hold", hold.value) for hold in holds if hold is not Hold.OTHER]
        if not found:
            found.append(("hold", Hold.OTHER.value))
    if facts.state == "W" and facts.not_before is None:
        found.append(("hold", "the server, which keeps it in state W"))
    if facts.state == "S":
        found.append(("server", "the server, which keeps it in state S"))
    if stopped:
        found.append(("queue", f"queue {facts.queue}, {stopped}"))
    return found


def first_waiting_reason(facts: JobFacts, stopped: str, *, chained: bool = False) -> tuple[str, str] | None:
    """Return the first kind of condition that prevents planning, as (kind, text); None if the job may be
    planned.

    ``chained``: the job is planned after its dependencies.
    """
    found = [one for one in waiting_reasons(facts, stopped) if not (chained and one[0] == "dependency")]
    if not found:
        return None
    kind = found[0][0]
    return kind, " and ".join(words for its, words in found if its == kind)
