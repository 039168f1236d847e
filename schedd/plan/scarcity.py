"""Scarcity: costs of nodes by the rarity of, and the demand for, resources that a job does not request.

What nodes offer is a set of *attributes*: each property, and each level of a resource (gpus, memory, generic
resources) that not all nodes reach. A job requests an attribute if it could not run without it. The cost of a
node for a job is the sum of the weights of its attributes that the job does not request. All numbers are
integers, so that costs are equal on all machines.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from schedd.model import Features

RequestKey = tuple[tuple[tuple[str, int], ...], Features]
"""Requested level of each resource, and requested properties."""
NodeOffer = tuple[frozenset[str], Mapping[str, int], int]
"""A class of nodes: its properties, its amounts by resource, and the number of nodes."""

MOST_COST: Final = 63  # maximum cost; the minimum, 0, is the cheapest usable node
_UNIT: Final = 64  # a weight of 1
_EXPECTED: Final = {"gpus": 250, "mem": 100, "vmem": 100}
_EXPECTED_GENERIC: Final = 250
"""Least assumed demand in thousandths; none for properties: most describe a location."""
_MOST_PRESSURE: Final = 10_000  # maximum of demand over supply, in thousandths
_ALIKE: Final = 4
"""Amounts within a quarter of the smaller are one level: equal nodes report different memory."""
_DAY: Final = 86_400
_EVERY_S: Final = 600  # interval between two counts of the demand, seconds
_FORGOTTEN_DAYS: Final = 60
_MOST_REMEMBERED: Final = 50_000


class NodeChoice(NamedTuple):
    """How the nodes of a job were chosen among all nodes that allow the same start.

    Attributes are pairs of a resource and the least amount of it, or of a property and 0; those with the
    largest weight come first.
    """

    spares_scarce: bool  # whether scarce attributes count at all; else only the tightest fit does
    wasted: tuple[tuple[str, int], ...]  # scarce attributes of its nodes that it does not request
    spared: tuple[tuple[str, int], ...]
    """Scarce attributes that it does not request and that none of its nodes has."""


class Scarcity:
    """Weights of attributes, and the resulting costs of node classes. Changed by its owner only."""

    __slots__ = (
        "_all_nodes",
        "_costs",
        "_counted",
        "_day",
        "_levels",
        "_nodes",
        "_offers",
        "_tops",
        "_wanted",
        "spares",
        "weights",
    )

    def __init__(self) -> None:
        self.spares = True  # whether costs are more than 0 at all
        self.weights: dict[str, int] = {}  # in force, by attribute
        self._wanted: dict[str, int] = {}
        self._counted = self._day = -1
        self._levels: dict[str, list[tuple[int, int]]] = {}
        self._offers: list[frozenset[str]] = []
        self._nodes: dict[str, int] = {}
        self._all_nodes = 0
        self._costs: dict[tuple[RequestKey, tuple[int, ...]], tuple[int, ...]] = {}
        self._tops: dict[str, list[int]] = {}

    def __eq__(self, other: object) -> bool:
        """Return whether both give the same costs for the same nodes, now and later."""
        return isinstance(other, Scarcity) and self.saved() == other.saved()

    __hash__ = None  # type: ignore[assignment]

    def copy(self) -> "Scarcity":
        """Return a copy for a fork of the plan."""
        new = Scarcity()
        new.spares, new.weights, new._wanted = self.spares, self.weights, self._wanted
        new._counted, new._day = self._counted, self._day
        new._levels, new._offers, new._nodes = self._levels, self._offers, self._nodes
        new._all_nodes, new._tops = self._all_nodes, self._tops
        return new

    def saved(self) -> list[Any]:
        """Return the state as plain values, except for values derived from the nodes."""
        return [self.spares, self.weights, self._wanted, self._counted, self._day]

    @classmethod
    def load(cls, saved: Sequence[Any]) -> "Scarcity":
        """Return the saved state, before ``set_offers``. Raises ValueError."""
        new = cls()
        new.spares, weights, wanted, new._counted, new._day = saved
        new.weights, new._wanted = dict(weights), dict(wanted)
        return new

    # ---- nodes ----------------------------------------------------------------------------------

    def set_offers(self, offers: Sequence[NodeOffer], resources: Iterable[str]) -> None:
        """Set the node classes; ``resources`` are those with attributes."""
        self._levels = {name: _levels(amounts.get(name, 0) for _, amounts, _ in offers) for name in resources}
        total = sum(nodes for _, _, nodes in offers)
        every = [self._attributes(properties, amounts) for properties, amounts, _ in offers]
        nodes: dict[str, int] = {}
        for attributes, (_, _, n) in zip(every, offers, strict=True):
            for one in attributes:
                nodes[one] = nodes.get(one, 0) + n
        # In a fixed order: properties come as sets, and the order of a set differs between processes.
        self._nodes = {one: nodes[one] for one in sorted(nodes) if nodes[one] < total}
        known: dict[frozenset[str], frozenset[str]] = {}
        rare = (frozenset(one for one in attributes if one in self._nodes) for attributes in every)
        self._offers = [known.setdefault(one, one) for one in rare]
        self._all_nodes = total
        self._costs = {}
        self._tops = {name: [most for _, most in levels] for name, levels in self._levels.items()}

    def _attributes(self, properties: Iterable[str], amounts: Mapping[str, int]) -> list[str]:
        found = [f"property {name}" for name in properties]
        for name, levels in self._levels.items():
            amount = amounts.get(name, 0)
            found += [f"{name} {least}" for least, _ in levels if amount >= least]
        return found

    def requested_attributes(self, amounts: Iterable[tuple[str, int]], features: Features) -> frozenset[str]:
        """Return the attributes without which a unit could not run."""
        return self._attributes_in_key(self.request_key(amounts, features))

    def request_key(self, amounts: Iterable[tuple[str, int]], features: Features) -> RequestKey:
        """Return a short key of the attributes that a unit requests: equal for equal levels."""
        levels = self._tops
        found = [(name, bisect_left(levels[name], need)) for name, need in amounts if name in levels]
        return tuple(found), features

    def _attributes_in_key(self, key: RequestKey) -> frozenset[str]:
        amounts, features = key
        found = [f"property {name}" for names in features for name in names]
        for resource, level in amounts:
            found += [f"{resource} {least}" for least, _ in self._levels[resource][: level + 1]]
        return frozenset(one for one in found if one in self._nodes)

    def choice(self, nodes: Iterable[tuple[int, RequestKey]]) -> NodeChoice:
        """How nodes were chosen, each given by its class and the ``request_key`` of the request it serves."""
        wasted: set[str] = set()
        offered: set[str] = set()
        requested: set[str] = set()
        for kind, key in nodes:
            asked = self._attributes_in_key(key)
            requested |= asked
            offered |= self._offers[kind]
            wasted |= self._offers[kind] - asked
        spared = self.weights.keys() - offered - requested if self.spares else set[str]()
        return NodeChoice(self.spares, self._by_weight(wasted), self._by_weight(spared))

    def _by_weight(self, attributes: Iterable[str]) -> tuple[tuple[str, int], ...]:
        known = sorted((-weight, one) for one in attributes if (weight := self.weights.get(one, 0)))
        found = []
        for _, attribute in known:
            kind, _, value = attribute.partition(" ")
            found.append((value, 0) if kind == "property" else (kind, int(value)))
        return tuple(found)

    # ---- weights --------------------------------------------------------------------------------

    def needs_recount(self, now: int) -> bool:
        """Return whether demand must be counted again."""
        return self._counted < 0 or not self._counted <= now < self._counted + _EVERY_S

    def weigh(self, demand: Iterable[tuple[int, frozenset[str]]], now: int) -> bool:
        """Count the requests, as (cores, attributes). Return whether costs changed.

        Demand decays by a tenth per day. Weights stay until any would change by half.
        """
        self._counted, day = now, now // _DAY
        if not self._nodes:  # all nodes are alike
            self._wanted, self._day = {}, day
            return False
        wanted = dict(self._wanted)
        for _ in range(min(day - self._day, _FORGOTTEN_DAYS) if self._day >= 0 else 0):
            wanted = {one: parts * 9 // 10 for one, parts in wanted.items()}
        self._day = day
        total, cores = 0, dict.fromkeys(self._nodes, 0)
        for n, asked in demand:
            total += n
            for one in asked:
                if one in cores:
                    cores[one] += n
        now_wanted = {one: 1000 * n // total for one, n in cores.items() if n} if total else {}
        self._wanted = {
            one: parts for one in self._nodes if (parts := max(wanted.get(one, 0), now_wanted.get(one, 0)))
        }
        weights = self._weights()
        either = self.weights.keys() | weights.keys()  # a weight of 0 is in neither
        if not any(_notable(self.weights.get(one, 0), weights.get(one, 0)) for one in either):
            return False
        self._adopt(weights)
        return True

    def weigh_again(self) -> None:
        """Recompute the weights after a change of nodes, from the known demand."""
        self._adopt(self._weights())

    def _adopt(self, weights: dict[str, int]) -> None:
        self.weights = weights
        self._costs = {}

    def _weights(self) -> dict[str, int]:
        return {one: weight for one, n in self._nodes.items() if (weight := self._weight(one, n))}

    def _weight(self, attribute: str, nodes: int) -> int:
        """Return ``rarity * (expected demand + demand / supply)``.

        Rarity is ``nodes without the attribute / nodes with it``.
        """
        name = attribute.partition(" ")[0]
        expected = 0 if name == "property" else _EXPECTED.get(name, _EXPECTED_GENERIC)
        pressure = min(self._wanted.get(attribute, 0) * self._all_nodes // nodes, _MOST_PRESSURE)
        return _UNIT * (self._all_nodes - nodes) * (expected + pressure) // (1000 * nodes)

    # ---- costs ----------------------------------------------------------------------------------

    def costs(self, key: RequestKey, kinds: tuple[int, ...]) -> tuple[int, ...]:
        """Return the costs of node classes for a unit's ``request_key``; empty if all are equal."""
        if not self.spares or not self.weights:
            return ()
        found = self._costs.get((key, kinds))
        if found is None:
            if len(self._costs) >= _MOST_REMEMBERED:
                self._costs = {}
            found = self._costs[key, kinds] = self._compute_costs(key, kinds)
        return found

    def _compute_costs(self, key: RequestKey, kinds: tuple[int, ...]) -> tuple[int, ...]:
        asked = self._attributes_in_key(key)
        known: dict[frozenset[str], int] = {}
        for offers in {self._offers[kind] for kind in kinds}:
            known[offers] = _level(sum(self.weights.get(one, 0) for one in offers - asked))
        least = min(known.values(), default=0)
        if all(cost == least for cost in known.values()):
            return ()
        return tuple(known[self._offers[kind]] - least for kind in kinds)


def _levels(amounts: Iterable[int]) -> list[tuple[int, int]]:
    """Return groups of nearly equal amounts, as (least, most), in order; without 0."""
    found: list[tuple[int, int]] = []
    for amount in sorted({amount for amount in amounts if amount > 0}):
        if found and (amount - found[-1][0]) * _ALIKE < found[-1][0]:
            found[-1] = (found[-1][0], amount)
        else:
            found.append((amount, amount))
    return found


def _level(weight: int) -> int:
    """Return about ``2 * log2(1 + weight)``: small relative differences vanish."""
    whole = weight + _UNIT
    power = (whole // _UNIT).bit_length() - 1
    return min(2 * power + (2 * whole >= 3 * (_UNIT << power)), MOST_COST)


def _notable(old: int, new: int) -> bool:
    return 2 * abs(new - old) >= max(old, new) and 2 * abs(new - old) >= _UNIT
