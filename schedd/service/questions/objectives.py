"""Objectives of a cluster's live plan, and the cost of single jobs."""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from schedd.alternatives.node_economics import NodeEconomics
from schedd.alternatives.objective_weights import Objective
from schedd.alternatives.objectives import (
    ObjectiveInput,
    ObjectiveVector,
    measurable_objectives,
    measure_objectives,
)
from schedd.dialect.cost_limit import read_cost_limit
from schedd.engine import JobRecord, PlanSnapshot
from schedd.model import Placement
from schedd.plan.columns import CPUS, GPUS, HeldEntries
from schedd.policy.accounts import SCALE, Portion, paid
from schedd.policy.economy import Economy
from schedd.policy.reliability import failure_rates
from schedd.service.questions.plan_fork import PlanFork


@dataclass(frozen=True, slots=True)
class ObjectiveChange:
    """An objective before and after a change of the plan; both values are known."""

    objective: str
    unit: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class NodeCost:
    """Cost and energy of a job on one node; null without configured prices or watts."""

    node: str
    cpus: int
    gpus: int
    cost: float | None
    kwh: float | None


@dataclass(frozen=True, slots=True)
class JobCost:
    """Cost of a job from its (planned) start to the end of its walltime."""

    cost: float | None  # none without prices or without a start
    kwh: float | None  # energy of the job's cores and gpus, without the idle power of its nodes
    loss: float | None  # expected loss in core-hours by node failures; None if failure rates are unknown
    limit: float | None  # the owner's cost limit
    currency: str
    nodes: tuple[NodeCost, ...]

    @property
    def over(self) -> bool:
        """Whether the cost exceeds the owner's limit."""
        return self.cost is not None and self.limit is not None and self.cost > self.limit


def node_economics(published: PlanSnapshot, begin: int) -> NodeEconomics:
    """Return the watts and prices of the site, from ``begin`` to the last planned end."""
    placed = published.starts >= 0
    end = int((published.starts[placed] + published.durations[placed]).max(initial=begin))
    failing = node_failure_rates(published) if published.lives else None
    return NodeEconomics.from_economy(
        economy_in_force(published), published.names, published.nodes, begin, end, failing
    )


def economy_in_force(published: PlanSnapshot) -> Economy:
    """Return the watts and prices of the site; measured watts override configured ones."""
    return replace(published.settings.site.economy, measured=published.measured_draws)


def node_failure_rates(published: PlanSnapshot) -> dict[str, float]:
    """Return the observed failures per second, by node."""
    half_life = published.settings.site.reliability.half_life
    return failure_rates(published.lives, published.as_of, half_life)


def objective_input(fork: PlanFork) -> ObjectiveInput:
    published = fork.published
    begin = int(min(published.as_of, published.starts[published.starts >= 0].min(initial=published.as_of)))
    return ObjectiveInput(fork.columns, node_economics(published, begin), _limits(published))


def _limits(published: PlanSnapshot) -> npt.NDArray[np.float64]:
    found = np.full(max(len(published.records), published.starts.shape[0]), np.inf)
    for slot, record in enumerate(published.records):
        if record is not None and (limit := read_cost_limit(record.facts.resources)) is not None:
            found[slot] = limit
    return found


def known_objectives(published: PlanSnapshot) -> tuple[Objective, ...]:
    """Return the objectives that the site's watts, prices and history of nodes let it measure."""
    return measurable_objectives(node_economics(published, published.as_of))


def measure_fork(fork: PlanFork) -> ObjectiveVector:
    """Return the objectives of the plan in ``fork``."""
    return measure_objectives(fork.copy(), objective_input(fork), fork.as_of)


def objective_changes(before: ObjectiveVector, after: ObjectiveVector) -> tuple[ObjectiveChange, ...]:
    """Return the changes between two vectors."""
    return tuple(
        ObjectiveChange(one.objective.value, one.unit, one.value, other.value)
        for one, other in zip(before, after, strict=True)
        if one.value is not None and other.value is not None
    )


def known_values(vector: ObjectiveVector) -> dict[str, float]:
    """Return the known values by name."""
    return {one.objective.value: one.value for one in vector if one.value is not None}


def placement_cost(published: PlanSnapshot, placement: Placement) -> float | None:
    """Return the cost of a placement; None without prices."""
    economy = published.settings.site.economy
    if not economy.prices:
        return None
    nodes = published.nodes
    held = [
        Portion(one.node, nodes[one.node].properties if one.node in nodes else (), one.cpus, one.gpus)
        for one in placement.shares
    ]
    return paid("money", held, placement.start, placement.end, economy, 0.0) / SCALE["money"]


def job_cost(published: PlanSnapshot, record: JobRecord) -> JobCost:
    """Return the cost of a running or planned job; without a start it is unknown."""
    limit = read_cost_limit(record.facts.resources)
    start = int(published.starts[record.slot]) if record.slot >= 0 else -1
    if start < 0:
        return JobCost(None, None, None, limit, published.settings.site.economy.currency, ())
    end = start + record.understood.walltime
    held = published.on_nodes(np.array([record.slot], np.int64))
    return cost_between(published, node_economics(published, start), held, start, end, limit)


def cost_between(
    published: PlanSnapshot,
    books: NodeEconomics,
    held: HeldEntries,
    start: int,
    end: int,
    limit: float | None,
) -> JobCost:
    """Return the cost of a job that holds ``held`` over ``[start, end)``."""
    n = len(held)
    costs = books.entry_costs(held, np.full(n, start, np.int64), np.full(n, end, np.int64))
    kwh = books.entry_joules(held, np.full(n, end - start, np.int64)) / 3.6e6
    by_node: dict[str, list[float]] = {}
    for i, (_, entry) in enumerate(held):
        sums = by_node.setdefault(published.names.get(entry.row, ""), [0, 0, 0.0, 0.0])
        for k, value in enumerate((entry.amounts[CPUS], entry.amounts[GPUS], costs[i], kwh[i])):
            sums[k] += value
    nodes = tuple(
        NodeCost(
            name,
            int(cpus),
            int(gpus),
            float(cost) if books.priced else None,
            float(draw) if not np.isnan(draw) else None,
        )
        for name, (cpus, gpus, cost, draw) in by_node.items()
    )
    drawn = float(kwh.sum())
    times = np.array([[start], [end]], np.int64)
    lost = float(books.expected_losses(held, times[0], times[1], published.as_of).sum()) / 3600
    return JobCost(
        float(costs.sum()) if books.priced else None,
        None if np.isnan(drawn) else drawn,
        None if np.isnan(lost) else lost,
        limit,
        books.currency,
        nodes,
    )
