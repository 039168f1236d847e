"""Objective vector of a plan, each value with its unit. Smaller values are better.

Source: D. Paul, Multi-objective evolution based dynamic job scheduler (2013), section 2; measured from now
on, because a daemon's plan has no first job. Formulas: docs/administrators/alternatives.md.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from schedd.alternatives.node_economics import NodeEconomics
from schedd.alternatives.objective_weights import Objective
from schedd.model import FOREVER
from schedd.plan.columns import CPUS, FIXED, PLANNED, HeldEntries, Ints
from schedd.plan.criteria import Criterion
from schedd.plan.evaluate import Evaluation, ScoringColumns
from schedd.plan.plan import Plan

Floats = npt.NDArray[np.float64]

_TAU: Final = 3600.0  # time constant tau in seconds of the penalty `exp(lateness / tau) - 1`
_MAX_EXPONENT: Final = 50.0  # upper bound of the exponent; avoids overflow
_KWH: Final = 3.6e6
_HOUR: Final = 3600.0


_CRITERIA: Final = {
    one: Criterion(one.value) for one in Objective if one.value in tuple(c.value for c in Criterion)
}


@dataclass(frozen=True, slots=True)
class ObjectiveMeasure:
    """Value of one objective of a plan; None if unknown, with the missing input in ``why``."""

    objective: Objective
    value: float | None
    unit: str  # `s`, `kWh`, `core-h`, the currency, or `1` for a plain number
    why: str = ""


ObjectiveVector = tuple[ObjectiveMeasure, ...]  # one value per objective, in the order of `Objective`


@dataclass(frozen=True, slots=True)
class ObjectiveInput:
    """Inputs besides the plan: job columns, economics of nodes, cost limits by slot (infinite: none)."""

    columns: ScoringColumns
    economics: NodeEconomics
    limits: Floats


def measurable_objectives(books: NodeEconomics) -> tuple[Objective, ...]:
    """Return the objectives with a known value for any plan, in the order of `Objective`."""
    unknown = set() if books.metered else {Objective.ENERGY}
    if not books.priced:
        unknown |= {Objective.COST, Objective.COST_OVERRUN}
    if bool(np.isnan(books.failing[books.nodes]).any()):
        unknown.add(Objective.LOSS)
    return tuple(one for one in Objective if one not in unknown)


def measure_objectives(plan: Plan, facts: ObjectiveInput, now: int) -> ObjectiveVector:
    """Return the objective vector of ``plan`` at ``now``."""
    values = Evaluation(plan, facts.columns, now).values()
    found: dict[Objective, tuple[float | None, str, str]] = {
        one: (values[criterion], "1" if one in (Objective.SLOWDOWN, Objective.UNFAIRNESS) else "s", "")
        for one, criterion in _CRITERIA.items()
    }
    jobs, books = plan.jobs, facts.economics
    held_slots = np.flatnonzero((jobs.states == PLANNED) | (jobs.states == FIXED))
    of_jobs = facts.columns.owner[held_slots] >= 0
    slots = held_slots[of_jobs & (jobs.starts[held_slots] + jobs.durations[held_slots] > now)]
    held = plan.held(slots)
    held = held.select(~held.are_pools)
    starts, ends = jobs.starts[slots], jobs.starts[slots] + jobs.durations[slots]
    planned = jobs.states[slots] == PLANNED
    found[Objective.NON_UTILISATION] = (_idle_time(books, held, starts, ends, now), "s", "")
    found[Objective.LATENESS] = (_mean_lateness(facts.columns.due[slots[planned]], ends[planned]), "1", "")
    makespan = values[Criterion.MAKESPAN]
    found[Objective.ENERGY] = _planned_energy(books, held, np.maximum(starts, now), ends, makespan)
    found[Objective.LOSS] = _expected_loss(books, held, starts, ends, now)
    found |= _planned_costs(facts, held, slots, planned, starts, ends, now)
    return tuple(
        ObjectiveMeasure(one, value, unit, why) for one in Objective for value, unit, why in [found[one]]
    )


def _idle_time(books: NodeEconomics, held: HeldEntries, starts: Ints, ends: Ints, now: int) -> float:
    """Return the mean over usable nodes of the idle seconds per core before the node's last end."""
    if not books.usable.any():
        return 0.0
    rows, owner = held.rows, held.owner
    last = np.zeros(books.cpus.shape[0])
    np.maximum.at(last, rows, ends[owner] - now)
    busy = np.bincount(
        rows,
        held.amounts[:, CPUS] * (ends[owner] - np.maximum(starts[owner], now)),
        minlength=books.cpus.shape[0],
    )
    idle = last - busy / np.maximum(books.cpus, 1)
    return float(np.maximum(idle[books.usable], 0.0).mean())


def _mean_lateness(due: Ints, ends: Ints) -> float:
    """Return the mean over planned jobs of ``exp(lateness / tau) - 1``; lateness is 0 without a deadline."""
    if not due.shape[0]:
        return 0.0
    late = np.where(due < FOREVER, np.maximum(ends - due, 0), 0)
    return float(np.expm1(np.minimum(late / _TAU, _MAX_EXPONENT)).mean())


def _planned_energy(
    books: NodeEconomics, held: HeldEntries, starts: Ints, ends: Ints, makespan: float
) -> tuple[float | None, str, str]:
    """Return the energy in kWh from now to the last planned end: idle nodes, jobs, and nodes that are off."""
    if not books.metered:
        return None, "kWh", "the site's settings name no watts for some nodes (site.power)"
    nodes = float(books.idle[books.on].sum() + books.off[books.nodes & ~books.on].sum()) * makespan
    jobs = float(books.entry_joules(held, (ends - starts)[held.owner]).sum())
    return (nodes + jobs) / _KWH, "kWh", ""


def _expected_loss(
    books: NodeEconomics, held: HeldEntries, starts: Ints, ends: Ints, now: int
) -> tuple[float | None, str, str]:
    """Return the expected loss of all jobs by node failures, in core-hours."""
    if bool(np.isnan(books.failing[books.nodes]).any()):
        return None, "core-h", "no history of nodes yet"
    return float(books.expected_losses(held, starts, ends, now).sum()) / _HOUR, "core-h", ""


def _planned_costs(
    facts: ObjectiveInput,
    held: HeldEntries,
    slots: Ints,
    planned: npt.NDArray[np.bool_],
    starts: Ints,
    ends: Ints,
    now: int,
) -> dict[Objective, tuple[float | None, str, str]]:
    """Return the cost of all jobs from now on, and the mean excess of planned jobs over their cost limits."""
    books = facts.economics
    if not books.priced:
        none = (None, books.currency, "the site's settings have no prices (site.prices)")
        return {Objective.COST: none, Objective.COST_OVERRUN: none}
    of = held.owner
    each = books.entry_costs(held, np.maximum(starts, now)[of], ends[of])
    job = np.bincount(of, each, minlength=slots.shape[0])
    over = np.maximum(job - facts.limits[slots], 0.0)[planned]
    return {
        Objective.COST: (float(job.sum()), books.currency, ""),
        Objective.COST_OVERRUN: (float(over.mean()) if over.shape[0] else 0.0, books.currency, ""),
    }
