"""Orders of nodes in the plan, and the arrangement of jobs that were placed."""

from collections.abc import Iterable
from typing import Final

import numpy as np

from schedd.dialect.topology import read_level
from schedd.engine.component.job_hooks import job_labels
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.node_choice.arrangement import Ints, contiguous_nodes, first_nodes, spread_units
from schedd.features.node_choice.points import rank_nodes
from schedd.features.node_choice.settings import NodePreferences
from schedd.features.node_choice.state import node_choice_settings
from schedd.model import Never
from schedd.plan.columns import CPUS, MEM, SHARE, WHOLE
from schedd.plan.plan import WorkSpent
from schedd.plan.records import ChunkNeeds, Take
from schedd.wire import JobFacts, NodeFacts

_MOST_SPREAD_UNITS: Final = 20_000
"""Units of a job that are spread one by one; of a larger job whole nodes are chosen."""
_SITE: Final = "site"  # name of the order of all jobs without one of their partition


def _order_name(known: EngineState | PlanSnapshot, facts: JobFacts) -> str:
    settings = node_choice_settings(known)
    if settings.partitions:
        partition = job_labels(known, facts).get("partition", "")
        if partition in settings.partitions:
            return f"partition {partition}"
    return _SITE


def _preferences(known: EngineState | PlanSnapshot, facts: JobFacts) -> NodePreferences:
    settings = node_choice_settings(known)
    name = _order_name(known, facts)
    return settings if name == _SITE else settings.partitions[name.partition(" ")[2]]


def node_order(known: EngineState | PlanSnapshot, facts: JobFacts) -> str:
    """The name of the order of nodes for a job; empty: its nodes have no points."""
    preferences = _preferences(known, facts)
    return _order_name(known, facts) if preferences.prefer or preferences.expression.strip() else ""


def order_nodes(state: EngineState) -> None:
    """Compute the ranks of all nodes again: nodes or the policy were changed."""
    settings = node_choice_settings(state)
    nodes = list(state.plan.nodes.values())
    named = {_SITE: settings, **{f"partition {name}": one for name, one in settings.partitions.items()}}
    orders = {
        name: ranks
        for name, one in named.items()
        if (one.prefer or one.expression.strip()) and (ranks := rank_nodes(one, nodes))
    }
    state.plan.set_node_orders(orders)


# ---- levels of the network --------------------------------------------------------------------------


def level_features(state: EngineState, facts: NodeFacts) -> list[str]:
    """The features of a node of the plan for the sets to which it belongs, as ``switch=s1``."""
    levels = node_choice_settings(state).levels
    if not levels:
        return []
    has = {facts.name, *facts.properties}
    return [
        f"{level}={name}"
        for level, sets in levels.items()
        for name, members in sets.items()
        if has & {*members}
    ]


def refuse_unknown_level(known: EngineState | PlanSnapshot, facts: JobFacts) -> Never | None:
    """Why a job can never run that wishes for nodes of a level which no node has."""
    level = read_level(facts.resources)
    if not level or level in node_choice_settings(known).levels:
        return None
    nodes = known.node_facts if isinstance(known, EngineState) else known.nodes
    prefix = f"{level}="
    if any(one.lower().startswith(prefix) for node in nodes.values() for one in node.properties):
        return None
    names = sorted({*node_choice_settings(known).levels, *_text_resources(nodes.values())})
    remedy = f"name {' or '.join(names)} (qalter -l topology=LEVEL)" if names else "take topology out"
    return Never(f"no node has a level {level} of the network: {remedy}")


def _text_resources(nodes: Iterable[NodeFacts]) -> set[str]:
    """The names of the text resources of nodes: each is a level."""
    pairs = (one.partition("=") for node in nodes for one in node.properties)
    return {name.lower() for name, _, value in pairs if value and value.lower() not in ("true", "false")}


# ---- arrangement ------------------------------------------------------------------------------------


def arrange_job(state: EngineState, record: JobRecord) -> None:
    """Move a job that was placed just now to the preferred nodes among those free at its start."""
    settings = node_choice_settings(state)
    if settings.arrange == "pack" and all(one.arrange == "pack" for one in settings.partitions.values()):
        return
    preferences = _preferences(state, record.facts)
    plan, slot = state.plan, record.slot
    chunks = plan.chunks(slot)
    if preferences.arrange == "pack" or len(chunks) != 1 or plan.request(slot).together is not None:
        return
    start, takes = plan.start(slot), plan.takes(slot)
    plan.undo_place(slot)
    if not _place(state, slot, start, preferences, chunks[0]):
        plan.place_at(slot, start, takes, search_again=False)


def _place(
    state: EngineState, slot: int, start: int, preferences: NodePreferences, chunk: ChunkNeeds
) -> bool:
    """Place a job at ``start`` on preferred nodes. Return whether it was placed."""
    plan = state.plan
    all_rows = np.sort(np.array(chunk.rows, np.int64))
    rows = plan.usable_rows(all_rows)
    if not rows.shape[0]:
        return False
    free = plan.free_amounts(rows, start, start + int(plan.jobs.durations[slot]))
    units = _units_that_fit(free, np.array(chunk.need, np.int64), chunk.per_node)
    if int(units.sum()) < chunk.count:
        return False
    ranks = _ranks(state, slot, rows)
    one_by_one = chunk.need[SHARE] < WHOLE and chunk.count <= _MOST_SPREAD_UNITS
    if preferences.arrange == "spread" and one_by_one:
        found = spread_units(units, free[CPUS], chunk.need[CPUS], ranks, chunk.count)
        if int(found.sum()) < chunk.count:
            return False
        takes = [
            Take(row, 0, k, tuple(k * amount for amount in chunk.need))
            for row, k in zip(rows.tolist(), found.tolist(), strict=True)
            if k
        ]
        plan.place_at(slot, start, takes, search_again=False)
        return True
    if preferences.arrange == "contiguous":
        chosen = contiguous_nodes(units, ranks, chunk.count)
    else:
        amount = -free[CPUS] if preferences.arrange == "spread" else free[MEM]
        chosen = first_nodes(units, np.lexsort((rows, amount, ranks)).tolist(), chunk.count)
    others = np.setdiff1d(all_rows, rows[chosen], assume_unique=True)
    with plan.excluding(others):
        try:
            return plan.place_at_start(slot, start, state.now)
        except WorkSpent:  # the job keeps the nodes that it has
            return False


def _units_that_fit(free: Ints, need: Ints, per_node: int) -> Ints:
    """How many units fit on each row, (n,)."""
    units = np.full(free.shape[1], per_node, np.int64)
    for column in np.flatnonzero(need[: free.shape[0]] > 0).tolist():
        units = np.minimum(units, np.maximum(free[column], 0) // int(need[column]))
    return units


def _ranks(state: EngineState, slot: int, rows: Ints) -> Ints:
    """The ranks of these rows in the order of the job's nodes; all 0 without one."""
    order = state.plan.node_ranks(state.plan.request(slot).node_order)
    if not order:
        return np.zeros_like(rows)
    names = state.plan.node_names
    return np.array([order.get(names[row], 0) for row in rows.tolist()], np.int64)
