"""Complete site policy: the settings of schedd.toml beyond the server's configuration.

As plain values it is the content of ``[clusters.NAME.site]``: tables, lists, texts and numbers. Events and
checkpoints have this form; ``site_policy`` parses it once, and all readers get the parsed policy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, cast

from schedd.model import NodeSets
from schedd.plan.criteria import check_weights, parse_criteria
from schedd.policy.economy import Draw, Economy, PowerCap, Price
from schedd.policy.energy_placement import EnergyPlacement
from schedd.policy.feature_settings import (
    feature_limits,
    find_part,
    obeyed_resources,
    parse_feature_entries,
    parse_feature_settings,
)
from schedd.policy.limits import Limit
from schedd.policy.priority import SiteWeights
from schedd.policy.reliability import Reliability
from schedd.wire.section import Section

_S = TypeVar("_S", bound=Section)


class Placing(StrEnum):
    """Placement of a job that arrives or is replanned; see docs/developers/optimisation.md."""

    FIRST_GAP = "first_gap"
    BEST_GAP = "best_gap"
    BEST_GAP_EDF = "best_gap_edf"


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePolicy:
    """The site's policy. By default all jobs are equal, except for the priorities of the server's queues."""

    weights: SiteWeights = field(default_factory=SiteWeights)
    limits: tuple[Limit, ...] = ()
    """Limits on concurrent use."""
    tallied_limits: tuple[Limit, ...] = ()
    """Limits that count something else: see ``Counted``."""
    node_sets: NodeSets | None = None
    """Default node sets for jobs without own ones."""
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Relative speed of nodes by name or property."""
    throughput: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Units of work per second by application, and by node or property; ``*``: all others, at speed 1."""
    spare_scarce: bool = True
    """Prefer, of equal starts, nodes that leave scarce resources free; else those with fewest cpus left."""
    placement: Placing = Placing.FIRST_GAP
    coordinate_arrays: bool = False
    """Whether a repair prefers the job with the earliest end, counting an array as one job, over the longest
    wait. Netto 2009, algorithm 7.
    """
    economy: Economy = field(default_factory=Economy)
    """Watts and prices of nodes."""
    hard_limits: bool = False
    """Whether a job is planned only within its cost limit."""
    reliability: Reliability = field(default_factory=Reliability)
    """Rules for avoiding failing nodes."""
    thrift: EnergyPlacement = field(default_factory=EnergyPlacement)
    """Rules for placement by energy."""
    zone: str = "UTC"
    """Time zone of the site."""
    features: Mapping[type[Section], Section] = field(default_factory=dict)
    """Settings of features, by their models."""
    entries: Mapping[type[Section], Mapping[str, Section]] = field(default_factory=dict)
    """Entries of features' tables of named entries, by their models."""
    obeyed: frozenset[str] = frozenset()
    """The requested resources that features obey in place of the dialect."""
    criteria: Mapping[str, float] | None = None
    """Weights of the criteria of plans, if the site sets them."""
    objectives: Mapping[str, float] | None = None
    """Weights of the objectives of alternative plans, if the site sets them."""
    plain: Mapping[str, Any] = field(default_factory=dict)
    """The explicit settings that it was parsed from; these are stored, shown and changed."""

    def part(self, kind: type[_S]) -> _S:
        """Return the settings of a feature, by their model."""
        found: Any = self.features.get(kind)  # no call: each arrival reads many of them
        return found if found is not None else find_part(self.features, kind)

    def named_entries(self, kind: type[_S]) -> Mapping[str, _S]:
        """Return the entries of a feature's table by name, by their model."""
        found: Any = self.entries.get(kind, {})
        return cast("Mapping[str, _S]", found)

    def has_table(self, name: str) -> bool:
        """Whether the site sets this table of ``[clusters.NAME.site]``."""
        return self.plain.get(name) is not None

    def speed(self, name: str, properties: Iterable[str], otherwise: float) -> float:
        """Return the speed of a node: the maximum for its name and properties."""
        found = [self.speeds[one] for one in (name, *properties) if one in self.speeds]
        return max(found, default=otherwise)


def site_policy(plain: Mapping[str, Any]) -> SitePolicy:
    """Parse the policy from plain values; missing values have defaults. Raises ValueError, TypeError or
    KeyError for values that validation should have rejected.
    """
    if plain.get("criteria") is not None:  # searches read them by themselves
        check_weights(parse_criteria(plain["criteria"]))
    zone = plain.get("zone", "UTC")
    entries = parse_feature_entries(plain, zone)
    limits = list(feature_limits(entries, zone))
    return SitePolicy(
        zone=zone,
        plain=dict(plain),
        features=parse_feature_settings(plain),
        entries=entries,
        obeyed=obeyed_resources(plain),
        criteria=plain.get("criteria") or None,
        objectives=plain.get("objectives") or None,
        weights=SiteWeights(**(plain.get("priority") or {}), classes=plain.get("classes") or {}),
        tallied_limits=tuple(limit for limit in limits if limit.counts != "running"),
        limits=tuple(limit for limit in limits if limit.counts == "running"),
        speeds=dict(plain.get("speeds") or {}),
        throughput={app: dict(rates) for app, rates in (plain.get("throughput") or {}).items()},
        spare_scarce=plain.get("spare_scarce", True),
        placement=Placing(plain.get("placement", Placing.FIRST_GAP)),
        coordinate_arrays=plain.get("coordinate_arrays", False),
        node_sets=_node_sets(sets) if (sets := plain.get("node_sets")) is not None else None,
        economy=parse_economy(plain),
        hard_limits=plain.get("cost_limits") == "hard",
        reliability=Reliability(**(plain.get("reliability") or {})),
        thrift=EnergyPlacement(**(plain.get("thrift") or {})),
    )


def parse_economy(plain: Mapping[str, Any]) -> Economy:
    """Parse watts and prices, as ``site_policy``."""
    zone = plain.get("zone", "UTC")
    found = Economy(
        draws={name: Draw.model_validate(one) for name, one in (plain.get("power") or {}).items()},
        prices=tuple(Price.model_validate(one) for one in plain.get("prices") or ()),
        currency=plain.get("currency", Economy().currency),
        caps=tuple(PowerCap.model_validate(one) for one in plain.get("power_caps") or ()),
        zone=zone,
    )
    for one in (*found.prices, *found.caps):
        one.window(zone)  # raises ValueError for a rule without windows
    return found


def _node_sets(plain: Mapping[str, Any]) -> NodeSets:
    named = tuple((name, frozenset(features)) for name, features in plain.get("sets", {}).items())
    wait = None if plain.get("strict", False) else plain.get("wait", 0)
    return NodeSets(plain.get("by", ""), named, wait)
