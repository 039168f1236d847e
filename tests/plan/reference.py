"""Reference planner: slow and obvious, with explicit lists of placements that are searched for every request.

It shares no code with the kernels. Time advances from one change to the next; units that fit are counted.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from schedd.model import Chunk, Node, NodeState, Place, Request, matches

FAR = 1 << 61
UNLIMITED = 1 << 50
Amounts = dict[str, int]


@dataclass
class Held:
    """Holding of one job on one node (or pool) over ``[start, end)``; ``whole``: exclusively."""

    node: str
    start: int
    end: int
    amounts: Amounts
    whole: bool = False


@dataclass
class Reference:
    """Nodes, pools, and all that is held."""

    nodes: list[Node]
    pools: dict[str, int] = field(default_factory=dict)
    limits: list[tuple[str, int, int, int]] = field(default_factory=list)  # pool, start, end, delta
    held: list[Held] = field(default_factory=list)
    pool_held: list[Held] = field(default_factory=list)
    demand: dict[tuple[str, object], int] = field(default_factory=dict)
    """By attribute, in thousandths of the cores asked for."""

    # ---- resources ----------------------------------------------------------------------------------

    def capacity(self, node: Node) -> Amounts:
        """Return all resources of a node; unreported memory is unlimited."""
        amounts = {"cpus": node.cpus, "mem": node.mem or UNLIMITED, "gpus": node.gpus, "share": 1 << 20}
        amounts |= {name: 0 for other in self.nodes for name, _ in other.resources} | dict(node.resources)
        if any(other.vmem for other in self.nodes):
            amounts["vmem"] = node.vmem or UNLIMITED
        return amounts

    def need(self, chunk: Chunk) -> Amounts:
        """What a unit needs."""
        need = {"cpus": chunk.cpus, "mem": chunk.mem, "gpus": chunk.gpus, **dict(chunk.resources)}
        if any(node.vmem for node in self.nodes):
            need["vmem"] = chunk.vmem
        need["share"] = 1  # a job without cpus still needs a node without an exclusive job
        return {name: amount for name, amount in need.items() if amount}

    def eligible(self, chunk: Chunk) -> list[Node]:
        """The nodes that could hold a unit when empty, up or not, in their order."""
        return [
            node
            for node in self.nodes
            if matches(chunk.features, node.features | {node.name})
            and _fits(self.need(chunk), self.capacity(node))
        ]

    def free(self, node: Node, t: int) -> tuple[Amounts, bool]:
        """Return the free amounts of a node at ``t``, and whether it is empty."""
        amounts = self.capacity(node)
        alone = True
        for held in self.held:
            if held.node == node.name and held.start <= t < held.end:
                alone = False
                for name, amount in held.amounts.items():
                    amounts[name] = amounts.get(name, 0) - amount
                if held.whole:
                    amounts = dict.fromkeys(amounts, 0)
        return amounts, alone

    def least(self, node: Node, start: int, end: int) -> tuple[Amounts, bool]:
        """Return the free amounts of a node throughout ``[start, end)``, and whether it is empty
        throughout.
        """
        amounts, alone = self.free(node, start)
        for t in sorted({edge for edge in self.edges([node]) if start < edge < end}):
            now, empty = self.free(node, t)
            amounts = {name: min(amount, now[name]) for name, amount in amounts.items()}
            alone = alone and empty
        return amounts, alone

    def edges(self, nodes: Iterable[Node]) -> Iterator[int]:
        """Yield the times when free amounts on these nodes change."""
        names = {node.name: node for node in nodes}
        for held in self.held:
            if held.node in names:
                for t in (held.start, held.end):
                    if self.free(names[held.node], t - 1) != self.free(names[held.node], t):
                        yield t

    # ---- scarcity -----------------------------------------------------------------------------------

    def attributes(self, node: Node) -> set[tuple[str, object]]:
        """What a node offers that not all nodes offer: properties, and levels of amounts."""
        return {
            one
            for one in self._offers(node)
            if not all(one in self._offers(other) for other in self.nodes if other is not node)
        }

    def _offers(self, node: Node) -> set[tuple[str, object]]:
        found: set[tuple[str, object]] = {("property", name) for name in node.features}
        for name in sorted(self.capacity(node).keys() - {"cpus", "share"}):
            amount = self._known(node, name)
            found |= {(name, level[0]) for level in self.levels(name) if amount >= level[0]}
        return found

    def _known(self, node: Node, name: str) -> int:
        amount = self.capacity(node).get(name, 0)
        return 0 if amount == UNLIMITED else amount

    def levels(self, name: str) -> list[list[int]]:
        """Return the amounts of a resource on nodes, grouped if they differ by less than a quarter."""
        found: list[list[int]] = []
        for amount in sorted({self._known(node, name) for node in self.nodes} - {0}):
            if not found or amount >= 1.25 * found[-1][0]:
                found.append([])
            found[-1].append(amount)
        return found

    def asked(self, chunk: Chunk) -> set[tuple[str, object]]:
        """The attributes without which a unit cannot run."""
        found: set[tuple[str, object]] = {("property", name) for names in chunk.features for name in names}
        for name, need in self.need(chunk).items():
            levels = self.levels(name) if name not in ("cpus", "share") else []
            found |= {
                (name, level[0]) for i, level in enumerate(levels) if i == 0 or need > levels[i - 1][-1]
            }
        return found

    def cost(self, chunk: Chunk, node: Node) -> int:
        """Return the cost of a unit on a node: ``2 * log(1 + sum of weights of surplus resources)``, in
        steps.
        """
        weight = sum(self.weight(one) for one in self.attributes(node) - self.asked(chunk))
        whole, power = 1 + weight / 64, 0
        while whole >= 2 ** (power + 1):
            power += 1
        return min(2 * power + int(whole >= 1.5 * 2**power), 63)

    def weight(self, attribute: tuple[str, object]) -> int:
        """Return ``rarity * (present or expected demand)``, in units of 1/64."""
        expected = {"property": 0, "mem": 100, "vmem": 100}.get(attribute[0], 250)
        offering = sum(attribute in self._offers(node) for node in self.nodes)
        pressure = min(self.demand.get(attribute, 0) * len(self.nodes) // offering, 10_000)
        return 64 * (len(self.nodes) - offering) * (expected + pressure) // (1000 * offering)

    def by_cost(self, chunk: Chunk) -> list[Node]:
        """The eligible nodes, those first that cost least."""
        return sorted(self.eligible(chunk), key=lambda node: self.cost(chunk, node))

    # ---- what fits ------------------------------------------------------------------------------

    def fits(self, request: Request, start: int, end: int) -> bool:
        """Whether the nodes have room for the request throughout ``[start, end)``."""
        chunks = packed(request)
        room: dict[str, tuple[Amounts, bool]] = {
            node.name: self.least(node, start, end) for node in self.nodes if node.state is NodeState.UP
        }
        units: list[list[str]] = []  # for every unit the nodes that could hold it by itself
        for chunk in chunks:
            can = [
                node.name
                for node in self.eligible(chunk)
                if node.name in room and self._units(chunk, request, room[node.name]) > 0
            ]
            units += [can] * chunk.count
        if request.place is Place.SCATTER or request.place is Place.PACK:
            return _match(units)
        if len(chunks) == 1:
            return (
                sum(
                    self._units(chunks[0], request, room[node.name])
                    for node in self.eligible(chunks[0])
                    if node.name in room
                )
                >= chunks[0].count
            )
        return self._first_fit(chunks, request, room)

    def _units(self, chunk: Chunk, request: Request, room: tuple[Amounts, bool]) -> int:
        amounts, alone = room
        if request.exclusive and not alone:
            return 0
        n = 0
        while n < chunk.count:
            need = {name: (n + 1) * amount for name, amount in self.need(chunk).items()}
            if not _fits(need, amounts):
                break
            n += 1
        return n

    def _first_fit(
        self, chunks: list[Chunk], request: Request, room: dict[str, tuple[Amounts, bool]]
    ) -> bool:
        left = {name: dict(amounts) for name, (amounts, _) in room.items()}
        for chunk in chunks:
            units = chunk.count
            for node in self.by_cost(chunk):
                if node.name not in left or (request.exclusive and not room[node.name][1]):
                    continue
                while units and _fits(self.need(chunk), left[node.name]):
                    units -= 1
                    for name, amount in self.need(chunk).items():
                        left[node.name][name] -= amount
            if units:
                return False
        return True

    def pools_fit(self, amounts: Amounts, start: int, end: int) -> bool:
        """Whether every pool has its amount free throughout ``[start, end)``."""
        return all(
            self._pool_free(pool, t) >= amount
            for pool, amount in amounts.items()
            if amount > 0
            for t in {start} | {t for t in self._pool_edges() if start < t < end}
        )

    def _pool_free(self, pool: str, t: int) -> int:
        free = self.pools[pool] - sum(
            held.amounts[pool] for held in self.pool_held if held.node == pool and held.start <= t < held.end
        )
        return free + sum(
            delta for name, start, end, delta in self.limits if name == pool and start <= t < end
        )

    def _pool_edges(self) -> set[int]:
        times = {t for held in self.pool_held for t in (held.start, held.end)}
        return times | {t for _, start, end, _ in self.limits for t in (start, end)}

    def earliest(
        self,
        request: Request,
        duration: int,
        ready: int,
        bound: int = FAR,
        pools: Amounts | None = None,
    ) -> int:
        """Return the earliest start in ``[ready, bound)``, or -1: at ``ready`` or at a change.

        A request for one node set starts on a set that could hold it when empty, within its maximum wait;
        later on any nodes, unless it never spreads.
        """
        holders = self.holders(request)
        strict = bool(holders) and request.together is not None and request.together.wait is None
        anywhere = ready if strict else self.anywhere(request, duration, ready, FAR, pools)
        if anywhere < 0:
            return -1
        wait = FAR if strict or request.together is None else request.together.wait or 0
        starts = [self.anywhere(one, duration, anywhere, anywhere + wait + 1, pools) for one in holders]
        start = min((start for start in starts if start >= 0), default=-1 if strict else anywhere)
        return start if start < bound else -1

    def restricted(self, request: Request) -> list[Request]:
        """Return the request restricted to each of its node sets."""
        if request.together is None or request.units == 1 or request.place is Place.PACK:
            return []
        sets = [names for _, names in request.together.named]
        if request.together.by:
            prefix = f"{request.together.by}="
            values = {name for node in self.nodes for name in node.features if name.startswith(prefix)}
            sets = [frozenset({value}) for value in sorted(values)]
        return [
            replace(
                request,
                together=None,
                chunks=tuple(replace(one, features=(*one.features, names)) for one in request.chunks),
            )
            for names in sets
        ]

    def holders(self, request: Request) -> list[Request]:
        """Of these, those on sets that could hold it, were they empty and up."""
        empty = Reference([replace(node, state=NodeState.UP) for node in self.nodes])
        return [one for one in self.restricted(request) if empty.fits(one, 0, 1)]

    def anywhere(
        self, request: Request, duration: int, ready: int, bound: int, pools: Amounts | None = None
    ) -> int:
        """The earliest start wherever the chunks of a request may be."""
        eligible = {node.name: node for chunk in packed(request) for node in self.eligible(chunk)}
        moments = {ready} | set(self.edges(eligible.values())) | (self._pool_edges() if pools else set())
        for t in sorted(moments):
            if (
                ready <= t < bound
                and self.pools_fit(pools or {}, t, t + duration)
                and self.fits(request, t, t + duration)
            ):
                return t
        return -1

    def brute(
        self, request: Request, duration: int, ready: int, bound: int, pools: Amounts | None = None
    ) -> int:
        """The same, second by second: checks that no start lies between two changes."""
        for t in range(ready, bound):
            if self.pools_fit(pools or {}, t, t + duration) and self.fits(request, t, t + duration):
                return t
        return -1


def packed(request: Request) -> list[Chunk]:
    """Return the chunks to place; those of a packed request are merged."""
    if request.place is not Place.PACK:
        return list(request.chunks)
    total: Amounts = {}
    for chunk in request.chunks:
        for name, amount in chunk.resources:
            total[name] = total.get(name, 0) + chunk.count * amount
    return [
        Chunk(
            count=1,
            cpus=sum(chunk.count * chunk.cpus for chunk in request.chunks),
            mem=sum(chunk.count * chunk.mem for chunk in request.chunks),
            vmem=sum(chunk.count * chunk.vmem for chunk in request.chunks),
            gpus=sum(chunk.count * chunk.gpus for chunk in request.chunks),
            resources=tuple(sorted(total.items())),
            features=tuple(names for chunk in request.chunks for names in chunk.features),
        )
    ]


def _fits(need: Amounts, room: Amounts) -> bool:
    return all(room.get(name, 0) >= amount for name, amount in need.items())


def _match(units: list[list[str]]) -> bool:
    """Whether every unit can have a node of its own (Kuhn's augmenting paths, unit by unit)."""
    holder: dict[str, int] = {}

    def give(unit: int, seen: set[str]) -> bool:
        for node in units[unit]:
            if node not in seen:
                seen.add(node)
                if node not in holder or give(holder[node], seen):
                    holder[node] = unit
                    return True
        return False

    return all(give(unit, set()) for unit in range(len(units)))
