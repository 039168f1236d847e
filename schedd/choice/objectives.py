"""What a plan is worth by several aims at once, each with its unit: the objective vector.

After D. Paul, Multi-objective evolution based dynamic job scheduler (2013), section 2, measured from now on:
a daemon's plan has no first job. Formulas are in docs/choices.md. All objectives are the better the less they
are.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from schedd.choice.books import Books
from schedd.model import FOREVER
from schedd.plan.columns import CPUS, FIXED, PLANNED, Entries, Ints
from schedd.plan.evaluate import Criterion, Evaluation, JobColumns
from schedd.plan.plan import Plan

__all__ = ["Facts", "Objective", "Valued", "Vector", "objectives", "weights_of"]

Floats = npt.NDArray[np.float64]

_TAU: Final = 3600.0
"""Seconds of lateness after which the penalty has grown to e - 1."""
_MOST: Final = 50.0
"""The exponent is cut here: beyond it numbers would overflow, and no plan is compared by them any more."""
_KWH: Final = 3.6e6
_HOUR: Final = 3600.0


class Objective(StrEnum):
    """What plans are compared by. The names of criteria mean the same here."""

    MAKESPAN = "makespan"
    NON_UTILISATION = "non_utilisation"
    LATENESS = "lateness"
    COST_OVERRUN = "cost_overrun"
    COST = "cost"
    ENERGY = "energy"
    LOSS = "expected_loss"
    WAIT = "wait"
    WAIT_MAX = "wait_max"
    SLOWDOWN = "bounded_slowdown"
    UNFAIRNESS = "unfairness"


_CRITERIA: Final = {
    one: Criterion(one.value) for one in Objective if one.value in tuple(c.value for c in Criterion)
}


@dataclass(frozen=True, slots=True)
class Valued:
    """One objective of a plan. ``value`` is None where it cannot be known; ``why`` says what is missing."""

    objective: Objective
    value: float | None
    unit: str
    """`s`, `kWh`, `core-h`, the currency, or `1` for a plain number."""
    why: str = ""


def weights_of(plain: Mapping[str, float]) -> dict[Objective, float]:
    """Weights by the names of objectives. Raises ValueError for a name that is none, a weight that is
    negative or not finite, and where none is above 0.
    """
    known = [one.value for one in Objective]
    for name, weight in plain.items():
        if name not in known:
            raise ValueError(f"there is no objective {name!r}; known are {', '.join(known)}")
        if not 0 <= weight < float("inf"):
            raise ValueError(f"the weight of {name} is {weight}: must be finite, at least 0")
    if not any(plain.values()):
        raise ValueError("all weights are 0: no plan would be better than another")
    return {Objective(name): weight for name, weight in plain.items() if weight}


Vector = tuple[Valued, ...]
"""One value per objective, in the order of ``Objective``."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan itself does not know: ``columns`` of its jobs, the ``books`` of its nodes, and by slot the
    most that each job may ``cost`` (infinite: no limit).
    """

    columns: JobColumns
    books: Books
    limits: Floats


def objectives(plan: Plan, facts: Facts, now: int) -> Vector:
    """The vector of ``plan`` as it stands at ``now``."""
    values = Evaluation(plan, facts.columns, now).values()
    found: dict[Objective, tuple[float | None, str, str]] = {
        one: (values[criterion], "1" if one in (Objective.SLOWDOWN, Objective.UNFAIRNESS) else "s", "")
        for one, criterion in _CRITERIA.items()
    }
    jobs, books = plan.jobs, facts.books
    held_slots = np.flatnonzero((jobs.states == PLANNED) | (jobs.states == FIXED))
    of_jobs = facts.columns.owner[held_slots] >= 0
    slots = held_slots[of_jobs & (jobs.starts[held_slots] + jobs.durations[held_slots] > now)]
    held = plan.held(slots)
    held = held.of(~held.of_pools)
    starts, ends = jobs.starts[slots], jobs.starts[slots] + jobs.durations[slots]
    planned = jobs.states[slots] == PLANNED
    found[Objective.NON_UTILISATION] = (_idle(books, held, starts, ends, now), "s", "")
    found[Objective.LATENESS] = (_lateness(facts.columns.due[slots[planned]], ends[planned]), "1", "")
    makespan = values[Criterion.MAKESPAN]
    found[Objective.ENERGY] = _energy(books, held, np.maximum(starts, now), ends, makespan)
    found[Objective.LOSS] = _loss(books, held, starts, ends, now)
    found |= _money(facts, held, slots, planned, starts, ends, now)
    return tuple(Valued(one, value, unit, why) for one in Objective for value, unit, why in [found[one]])


def _idle(books: Books, held: Entries, starts: Ints, ends: Ints, now: int) -> float:
    """Mean over usable nodes of the time for which a core stands idle before the last end on its node."""
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


def _lateness(due: Ints, ends: Ints) -> float:
    """Mean over planned jobs of exp(lateness / tau) - 1; nothing for who is in time or has no deadline."""
    if not due.shape[0]:
        return 0.0
    late = np.where(due < FOREVER, np.maximum(ends - due, 0), 0)
    return float(np.expm1(np.minimum(late / _TAU, _MOST)).mean())


def _energy(
    books: Books, held: Entries, starts: Ints, ends: Ints, makespan: float
) -> tuple[float | None, str, str]:
    """From now to the last planned end: nodes that are on, jobs on them, and what draws while off, in kWh."""
    if not books.metered:
        return None, "kWh", "the site's settings name no watts for some nodes (site.power)"
    nodes = float(books.idle[books.on].sum() + books.off[books.nodes & ~books.on].sum()) * makespan
    jobs = float(books.joules(held, (ends - starts)[held.owner]).sum())
    return (nodes + jobs) / _KWH, "kWh", ""


def _loss(books: Books, held: Entries, starts: Ints, ends: Ints, now: int) -> tuple[float | None, str, str]:
    """What all jobs together are expected to lose since nodes fail, in core-hours."""
    if bool(np.isnan(books.failing[books.nodes]).any()):
        return None, "core-h", "nothing was seen of nodes yet"
    return float(books.losses(held, starts, ends, now).sum()) / _HOUR, "core-h", ""


def _money(
    facts: Facts,
    held: Entries,
    slots: Ints,
    planned: npt.NDArray[np.bool_],
    starts: Ints,
    ends: Ints,
    now: int,
) -> dict[Objective, tuple[float | None, str, str]]:
    """What all jobs cost from now on, and the mean over planned jobs of what is beyond their limits."""
    books = facts.books
    if not books.priced:
        none = (None, books.currency, "the site's settings have no prices (site.prices)")
        return {Objective.COST: none, Objective.COST_OVERRUN: none}
    of = held.owner
    each = books.costs(held, np.maximum(starts, now)[of], ends[of])
    job = np.bincount(of, each, minlength=slots.shape[0])
    over = np.maximum(job - facts.limits[slots], 0.0)[planned]
    return {
        Objective.COST: (float(job.sum()), books.currency, ""),
        Objective.COST_OVERRUN: (float(over.mean()) if over.shape[0] else 0.0, books.currency, ""),
    }
