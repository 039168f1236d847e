"""Orders of nodes in the plan, and the arrangement of jobs that were placed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.dialect.topology import read_level
from schedd.engine.component.job_hooks import job_labels
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.node_choice.arrangement import Ints, contiguous_nodes, first_nodes, spread_units
from schedd.features.node_choice.points import rank_nodes
from schedd.features.node_choice.settings import Arrangement, NodePreferences
from schedd.features.node_choice.state import NodeChoiceState, node_choice_settings
from schedd.model import Never
from schedd.plan.columns import CPUS, MEM, SHARE, WHOLE
from schedd.plan.job_order import NO_RANKS
from schedd.plan.plan import Plan
from schedd.plan.records import Take
from schedd.plan.work_limits import WorkSpent
from schedd.wire import JobFacts, NodeFacts

_MOST_SPREAD_UNITS: Final = 20_000
"""Units of a job that are spread one by one; of a larger job whole nodes are chosen."""
_SITE: Final = "site"  # order of nodes for jobs whose partition has none


def _order_name(known: EngineState | PlanSnapshot, facts: JobFacts) -> str:
    settings = node_choice_settings(known)
    if settings.partitions:
        partition = job_labels(known, facts).get("partition", "")
        if partition in settings.partitions:
            return f"partition {partition}"
    return _SITE


def _preferences(known: EngineState | PlanSnapshot, facts: JobFacts) -> NodePreferences:
    settings = node_choice_settings(known)
    if not settings.partitions:
        return settings
    name = _order_name(known, facts)
    return settings if name == _SITE else settings.partitions[name.partition(" ")[2]]


def node_order(known: EngineState | PlanSnapshot, facts: JobFacts) -> str:
    """The name of the order of nodes for a job; empty: its nodes have no points."""
    settings = node_choice_settings(known)
    if not settings.partitions:
        return _SITE if settings.gives_points else ""
    preferences = _preferences(known, facts)
    return _order_name(known, facts) if preferences.gives_points else ""


def idle_hooks(state: EngineState) -> list[str]:
    """Return the hooks without an effect: only a job's own request can be refused, and without settings all
    nodes are equal.
    """
    settings = node_choice_settings(state)
    works = {
        "refusal": False,
        "node_order": settings.gives_points or settings.partitions,
        "after_placement": not settings.arranges_nothing,
    }
    return [hook for hook, has_work in works.items() if not has_work]


def order_nodes(state: EngineState) -> None:
    """Compute the ranks of all nodes again: nodes or the policy were changed."""
    settings = node_choice_settings(state)
    nodes = list(state.plan.nodes.values())
    named = {_SITE: settings, **{f"partition {name}": one for name, one in settings.partitions.items()}}
    orders = {
        name: ranks for name, one in named.items() if one.gives_points and (ranks := rank_nodes(one, nodes))
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
    """Return why a job can never run: no node has the level of the network that it requests."""
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
    if settings.arranges_nothing:
        return
    preferences = _preferences(state, record.facts)
    plan, slot = state.plan, record.slot
    if preferences.arrange == "pack" or plan.request(slot).together is not None:
        return
    # Most arrivals of one unit are on the node that a contiguous arrangement chooses.
    if preferences.arrange == "contiguous" and plan.is_on_first_row(slot, _ranks_by_row(state, slot)):
        return
    chunk = plan.only_chunk(slot)
    if chunk is None:
        return
    start, takes = plan.start(slot), plan.takes(slot)
    units = _units_at_start(plan, slot, start, takes, *chunk)
    if units is None:
        return
    ranks = _ranks(state, slot, units.rows)
    chosen = _choose_nodes(preferences.arrange, units, ranks)
    if units.count == 1 and [units.rows[i] for i in chosen] == [take.row for take in takes]:
        return  # it is there already
    plan.undo_place(slot)
    if not _place(state, slot, start, preferences.arrange, units, ranks, chosen):
        plan.place_at(slot, start, takes, search_again=False)


@dataclass(frozen=True, slots=True)
class _FreeUnits:
    """Units of a job that fit on each of its usable rows, (n,), at its start without the job itself.

    ``need``: the needs of a unit. ``free``: free amounts, (resources, n).
    """

    rows: Ints
    fit: Ints
    free: Ints
    need: Ints
    count: int

    @property
    def one_by_one(self) -> bool:
        """Whether the units are spread one by one."""
        return bool(self.need[SHARE] < WHOLE) and self.count <= _MOST_SPREAD_UNITS


def _units_at_start(
    plan: Plan,
    slot: int,
    start: int,
    takes: Sequence[Take],
    need: Ints,
    count: int,
    per_node: int,
    candidates: Ints,
) -> _FreeUnits | None:
    """Return the units that fit; None: there is too little room."""
    rows = plan.usable_rows(np.sort(candidates))
    if not rows.shape[0]:
        return None
    free = plan.free_amounts(rows, start, start + int(plan.jobs.durations[slot]))
    for take in takes:  # it holds the same amounts from its start to its end
        i = int(np.searchsorted(rows, take.row))
        if i < rows.shape[0] and rows[i] == take.row:
            free[:, i] += np.array(take.amounts, np.int64)
    fit = _units_that_fit(free, need, per_node)
    return _FreeUnits(rows, fit, free, need, count) if int(fit.sum()) >= count else None


def _choose_nodes(arrange: Arrangement, units: _FreeUnits, ranks: Ints) -> list[int]:
    """Return the indices of the nodes to use; of units that are spread one by one, none is chosen here."""
    if arrange == "spread" and units.one_by_one:
        return []
    if arrange == "contiguous":
        return contiguous_nodes(units.fit, ranks, units.count)
    amount = -units.free[CPUS] if arrange == "spread" else units.free[MEM]
    return first_nodes(units.fit, np.lexsort((units.rows, amount, ranks)).tolist(), units.count)


def _place(
    state: EngineState,
    slot: int,
    start: int,
    arrange: Arrangement,
    units: _FreeUnits,
    ranks: Ints,
    chosen: list[int],
) -> bool:
    """Place a job at ``start`` on the chosen nodes. Return whether it was placed."""
    plan = state.plan
    if arrange == "spread" and units.one_by_one:
        found = spread_units(units.fit, units.free[CPUS], int(units.need[CPUS]), ranks, units.count)
        if int(found.sum()) < units.count:
            return False
        needs = units.need.tolist()
        takes = [
            Take(row, 0, k, tuple(k * amount for amount in needs))
            for row, k in zip(units.rows.tolist(), found.tolist(), strict=True)
            if k
        ]
        plan.place_at(slot, start, takes, search_again=False)
        return True
    others = np.ones(units.rows.shape[0], np.bool_)
    others[chosen] = False
    with plan.excluding(units.rows[others]):
        try:
            return plan.place_at_start(slot, start, state.now)
        except WorkSpent:  # the job keeps the nodes that it has
            return False


def _units_that_fit(free: Ints, need: Ints, per_node: int) -> Ints:
    """How many units fit on each row, (n,)."""
    units = np.full(free.shape[1], per_node, np.int64)
    for column, amount in enumerate(need[: free.shape[0]].tolist()):
        if amount > 0:
            np.minimum(units, np.maximum(free[column], 0) // amount, out=units)
    return units


def _ranks(state: EngineState, slot: int, rows: Ints) -> Ints:
    """The ranks of these rows in the order of the job's nodes; all 0 without one."""
    ranks = _ranks_by_row(state, slot)
    if ranks is NO_RANKS:
        return np.zeros_like(rows)
    found: Ints = ranks[rows]
    return found


def _ranks_by_row(state: EngineState, slot: int) -> Ints:
    """The ranks of all rows in the order of the job's nodes; ``NO_RANKS``: it has no order."""
    name = state.plan.request(slot).node_order
    order = state.plan.node_ranks(name)
    if not order:
        return NO_RANKS
    part = state.part(NodeChoiceState)
    known = part.ranks.get(name)
    if known is None or known[0] is not order:
        names = state.plan.node_names
        ranks = np.zeros(max(names) + 1, np.int64)
        for row, node in names.items():
            ranks[row] = order.get(node, 0)
        known = part.ranks[name] = (order, ranks)
    return known[1]
