"""What the engine knows of partitions: the one chosen for each job with several, and its published data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.partitions.membership import PartitionTable
from schedd.features.partitions.settings import PartitionRules
from schedd.plan.schema import MOMENT, NAMES, NUMBER, SHARED, FieldRule, declared
from schedd.policy.site import SitePolicy

_TRIAL: Final = FieldRule(lambda _: ("", ""), saved=False)


@dataclass(slots=True)
class PartitionState:
    """The component's part of the engine's state."""

    table: PartitionTable = declared(SHARED, make=lambda: PartitionTable(PartitionRules()))
    """The partitions by the settings in force. A cache: see ``partition_table``."""
    table_site: SitePolicy | None = declared(SHARED, default=None)
    """The policy in force when ``table`` was compared with its settings."""
    chosen: dict[str, str] = declared(NAMES, make=dict, carried=True)
    """By job: the partition chosen for a job that may run in several."""
    trial: tuple[str, str] = declared(_TRIAL, default=("", ""))
    """A job and the partition that is tried for it."""
    published: Mapping[str, str] | None = declared(MOMENT, default=None)
    """A copy of ``chosen`` for readers; None: it was changed."""
    examined: int = declared(NUMBER, default=0)
    """When other partitions were last considered for jobs with several."""
    examined_starts: int = declared(NUMBER, default=0)
    """When they were last considered for an immediate start."""
    choice_second: int = declared(NUMBER, default=0)
    """Last second with a repeated choice, that is, for a job that had a partition."""
    choices: int = declared(NUMBER, default=0)  # number of repeated choices in that second
    freed: int = declared(NUMBER, default=0)  # 1: since then a job ended, or nodes changed


@dataclass(frozen=True, slots=True)
class PublishedPartitions:
    """What other threads may read of the component."""

    table: PartitionTable
    chosen: Mapping[str, str]


def partition_state(state: EngineState) -> PartitionState:
    """The component's part of the engine's state."""
    found: PartitionState = state.parts[PartitionState]  # no call: arrivals ask often
    return found


def partition_table(known: EngineState | PlanSnapshot) -> PartitionTable:
    """The partitions of a state, by the policy in force, or of a snapshot."""
    if not isinstance(known, EngineState):
        return known.part(PublishedPartitions).table
    part: PartitionState = known.parts[PartitionState]  # no call: each arrival needs the table many times
    if part.table_site is not known.site:
        rules = known.site.part(PartitionRules)
        if part.table.rules is not rules:
            part.table = PartitionTable(rules)
        part.table_site = known.site
    return part.table


def chosen_partition(known: EngineState | PlanSnapshot, job: str) -> str | None:
    """The partition chosen, or tried now, for a job that may run in several; None: none yet."""
    if not isinstance(known, EngineState):
        return known.part(PublishedPartitions).chosen.get(job)
    part = known.part(PartitionState)
    return part.trial[1] if part.trial[0] == job and job else part.chosen.get(job)


def publish_partitions(state: EngineState) -> PublishedPartitions:
    """A value for other threads."""
    part = partition_state(state)
    if part.published is None:
        part.published = dict(part.chosen)
    return PublishedPartitions(partition_table(state), part.published)


def choose(state: EngineState, job: str, name: str) -> None:
    """Note the partition of a job that may run in several; empty: that of the nodes outside all others."""
    part = partition_state(state)
    if part.chosen.get(job) != name:
        part.chosen[job], part.published = name, None


def forget(state: EngineState, job: str) -> None:
    part = partition_state(state)
    if part.chosen.pop(job, None) is not None:
        part.published = None
