"""What the engine knows of normalised walltimes: the speed chosen for each job, and walltimes that it set."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from schedd.engine.facts.job_requests import BOOKING
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.normalised_walltimes.settings import NormalisedWalltimes
from schedd.plan.machine import MOST_TIERS
from schedd.plan.schema import MOMENT, NAMES, NUMBER, SHARED, FieldRule, declared
from schedd.policy.site import SitePolicy
from schedd.wire import JobFacts, NodeFacts

REFERENCE: Final = 0.0
"""The choice for a job without scaling: it runs on nodes of the reference speed or faster ones."""
ANYWHERE: Final = -1.0
"""Chosen for a job in a booking: it runs there with the walltime that it states."""
_GIVEN: Final = FieldRule(
    dict,
    lambda value: {job: list(seconds) for job, seconds in value.items()},
    lambda saved: {job: tuple(seconds) for job, seconds in saved.items()},
)


class SpeedTable:
    """Reference speeds, and the speeds among which the plan chooses, by a site's settings."""

    def __init__(self, site: SitePolicy) -> None:
        self.site = site
        self.rules = site.part(NormalisedWalltimes)

    def __bool__(self) -> bool:
        return self.rules.speed is not None or bool(self.rules.queues)

    def reference(self, facts: JobFacts) -> float:
        """The reference speed of a job's walltime; 0: the speed of the nodes where it runs."""
        if facts.id.startswith(BOOKING):  # it has no queue
            return self.rules.speed or 0.0
        return self.rules.queues.get(facts.queue, self.rules.speed or 0.0)

    @cached_property
    def speeds(self) -> tuple[float, ...]:
        """The lowest speed of each group of nodes, ascending: with many speeds, neighbours are one group."""
        found = sorted({1.0, *self.site.speeds.values()})
        groups = [found[i * len(found) // MOST_TIERS] for i in range(MOST_TIERS)]
        return tuple(dict.fromkeys(groups)) if len(found) > MOST_TIERS else tuple(found)

    @cached_property
    def bounds(self) -> tuple[float, ...]:
        """The speeds that divide the nodes, with the reference speeds; all nodes have at least the lowest."""
        references = {self.rules.speed or 0.0, *self.rules.queues.values()}
        return tuple(sorted(one for one in {*self.speeds, *references} if one > self.speeds[0]))

    def features(self, facts: NodeFacts) -> list[str]:
        """The features of a node of the plan."""
        speed = self.site.speed(facts.name, facts.properties, facts.speed)
        return [speed_feature(one) for one in self.bounds if one <= speed]


def speed_feature(speed: float) -> str:
    """The feature of nodes of at least this speed. No user can request it: it has a blank."""
    return f"speed of at least {speed!r}"


@dataclass(slots=True)
class WalltimeState:
    """The component's part of the engine's state."""

    table: SpeedTable | None = declared(SHARED, default=None)
    """The speeds by the settings in force. A cache: see ``speed_table``."""
    latest: tuple[JobFacts, SitePolicy, tuple[int, ...] | None, dict[float | None, JobFacts]] | None = (
        declared(MOMENT, default=None)
    )
    """Facts of the latest job, the site and its ``given`` walltimes, and the planned facts for each speed: an
    arrival needs them several times. A cache: see ``planned_facts``."""
    chosen: dict[str, float] = declared(NAMES, make=dict, carried=True)
    """By job: the lowest node speed that its planned walltime allows, ``REFERENCE`` or ``ANYWHERE``."""
    published: Mapping[str, tuple[int, ...]] | None = declared(MOMENT, default=None)
    """A copy of ``given`` for readers; None: it was changed."""
    given: dict[str, tuple[int, ...]] = declared(_GIVEN, make=dict, carried=True, lasting=True)
    """By job, in seconds: the walltime of its submission, then each walltime set on the server, in order.
    The server keeps no record of the first."""
    examined: int = declared(NUMBER, default=0)  # when other speeds were last considered


@dataclass(frozen=True, slots=True)
class PublishedWalltimes:
    """What other threads may read of the component."""

    table: SpeedTable
    given: Mapping[str, tuple[int, ...]]


def walltime_state(state: EngineState) -> WalltimeState:
    """The component's part of the engine's state."""
    found: WalltimeState = state.parts[WalltimeState]  # no call: arrivals ask often
    return found


def speed_table(known: EngineState | PlanSnapshot) -> SpeedTable:
    """The speeds of a state, by the policy in force, or of a snapshot."""
    if not isinstance(known, EngineState):
        return known.part(PublishedWalltimes).table
    part: WalltimeState = known.parts[WalltimeState]  # no call: each arrival needs the table many times
    if part.table is None or part.table.site is not known.site:
        part.table = SpeedTable(known.site)
    return part.table


def publish_walltimes(state: EngineState) -> PublishedWalltimes:
    """A value for other threads."""
    part = walltime_state(state)
    if part.published is None:
        part.published = dict(part.given)
    return PublishedWalltimes(speed_table(state), part.published)
