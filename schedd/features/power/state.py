"""What the engine knows of the power of nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from schedd.engine.facts.state import EngineState
from schedd.features.power.meter import Meter
from schedd.plan.schema import LISTS, NAMES, NUMBER, SHARED, FieldRule, declared
from schedd.policy.economy import Draw

PowerPhase = Literal["on", "stopping", "off", "booting", "failed"]
PowerAim = Literal["on", "off", "hold", "auto"]


@dataclass(frozen=True, slots=True)
class NodePower:
    """Power state of a node. ``since`` is the start of the phase, ``decision`` the open order.

    ``block`` is the slot that keeps jobs off the node until ``until``, -1 without one. ``failures`` counts
    consecutive failed orders; the next attempt is not before ``again``. ``wish`` is an admin's order. Nodes
    without orders have no record.
    """

    node: str
    phase: PowerPhase = "on"
    since: int = 0
    decision: str = ""
    block: int = -1
    until: int = 0
    failures: int = 0
    again: int = 0
    wish: PowerAim = "auto"
    by: str = ""
    reason: str = ""
    code: int = 0
    text: str = ""  # output of the last command, or its failure

    @property
    def expected_down(self) -> bool:
        """Whether the node is down because it is off, booting or stopping, and is therefore not lost."""
        return self.phase in ("stopping", "off", "booting")


_NODES: Final = FieldRule(
    dict,
    lambda nodes: list(nodes.values()),
    lambda saved: {one["node"]: NodePower(**one) for one in saved},
    each=asdict,
    kind=NodePower,
)


def _load_meters(saved: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, Meter]:
    def load(values: dict[str, Any]) -> Meter:
        draw = values.pop("draw")
        return Meter(**values, draw=Draw.model_construct(**draw) if draw is not None else None)

    return {name: load(dict(values)) for name, values in saved}


def _save_meter(meter: Meter) -> dict[str, Any]:
    return {**asdict(meter), "draw": meter.draw.model_dump() if meter.draw is not None else None}


_METERS: Final = FieldRule(
    dict,
    lambda meters: list(meters.items()),
    _load_meters,
    each=lambda pair: [pair[0], _save_meter(pair[1])],
)


@dataclass(slots=True)
class PowerState:
    """The component's part of the engine's state. Times are seconds since the epoch (UTC)."""

    nodes: dict[str, NodePower] = declared(_NODES, make=dict, carried=True, lasting=True)
    boots: dict[str, list[int]] = declared(LISTS, make=dict, carried=True, lasting=True)
    """By kind of node: durations of its latest boots, in seconds."""
    kinds: dict[str, str] = declared(FieldRule(lambda _: {}, saved=False), make=dict)
    """Kind by node, computed on demand since the last change of nodes."""
    free_since: dict[str, int] = declared(NAMES, make=dict)  # by examined node: time since which it is idle
    meters: dict[str, Meter] = declared(_METERS, make=dict, carried=True, lasting=True)
    """By node: readings of its power meter."""
    meters_due: int = declared(NUMBER, default=0, carried=True)  # next time when readings take effect
    due: int = declared(NUMBER, default=0)  # next time when nodes are examined for switching
    would_be_off: tuple[str, ...] = declared(FieldRule(load=tuple), default=())
    """In a dry run: the nodes that would be off."""
    saved_until: int = declared(NUMBER, default=0, carried=True, lasting=True)
    """End of the period in ``saved_joules``."""
    saved_joules: int = declared(NUMBER, default=0, carried=True, lasting=True)
    """Energy saved by nodes that were off, if their watts are known."""
    saves: bool = declared(SHARED, default=False, carried=True)
    """Whether the site's settings let nodes be switched, or examined in a dry run."""


@dataclass(frozen=True, slots=True)
class PublishedPower:
    """Snapshot of the component for other threads."""

    nodes: dict[str, NodePower]
    would_be_off: tuple[str, ...]
    saved_joules: int
    meters: dict[str, Meter]


def power_state(state: EngineState) -> PowerState:
    """The component's part of the engine's state."""
    found: PowerState = state.parts[PowerState]  # no call: arrivals ask often
    return found


def published_power(state: EngineState) -> PublishedPower:
    """Return a copy for other threads."""
    power = power_state(state)
    return PublishedPower(dict(power.nodes), power.would_be_off, power.saved_joules, dict(power.meters))


def measured_draws(state: EngineState) -> dict[str, Draw]:
    """By node: the watts that its board measured, where readings are enough."""
    return {name: one.draw for name, one in power_state(state).meters.items() if one.draw is not None}


def node_details(state: EngineState) -> dict[str, dict[str, Any]]:
    """By node: its ``power`` unless it is on, and the ``watts`` of the last reading."""
    power = power_state(state)
    found: dict[str, dict[str, Any]] = {name: {"power": one.phase} for name, one in power.nodes.items()}
    for name, meter in power.meters.items():
        found.setdefault(name, {})["watts"] = meter.last
    return found


def shift_power(part: PowerState, now: int, back: int) -> None:
    """Keep the remaining waits of orders when the clock was set back."""
    part.nodes = {
        name: replace(one, since=max(0, one.since - back), again=max(0, one.again - back))
        for name, one in part.nodes.items()
    }
    part.meters_due = min(part.meters_due, now)
    part.saved_until = min(part.saved_until, now)


def without_blocks(power: PowerState) -> None:
    """Forget the slots that keep jobs off nodes: the plan is rebuilt without them."""
    power.nodes = {name: replace(one, block=-1) for name, one in power.nodes.items()}
