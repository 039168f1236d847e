"""Value of a plan: criteria over its planned jobs, updated incrementally.

Formulas and their sources are in docs/developers/optimisation.md. Run times are the plan's estimates, not the
real ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from schedd.model import FOREVER, NodeState
from schedd.plan.criteria import CRITERIA, LATENESS, MAXIMISED, NON_REGULAR, Criterion, check_weights
from schedd.plan.kernels import evaluate as ev
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.evaluate import Floats, Scores
from schedd.plan.kernels.layout import Ints
from schedd.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class ScoringColumns:
    """Attributes of jobs that the plan itself does not have, by slot: arrays at least as long as its slots.

    ``release``: start of the wait (seconds since the epoch); ``due``: deadline of the end, FOREVER if there
    is none; ``owner``: number of its user, from 0 on; ``rank``: by priority, higher first.
    """

    release: Ints
    due: Ints
    owner: Ints
    rank: Ints
    history: Floats = field(default_factory=lambda: np.zeros((2, 0)))
    """By number of user: seconds that earlier jobs waited, and cpu-seconds that they used. The criteria of
    normalised waits include them."""

    def copy(self) -> Self:
        return type(self)(
            self.release.copy(), self.due.copy(), self.owner.copy(), self.rank.copy(), self.history
        )

    def including(self, slots: Sequence[int], release: int, due: int) -> Self:
        """Return the columns with more equal jobs, of another user and of rank 0."""
        size = max(self.release.shape[0], max(slots) + 1)
        new = [np.zeros(size, np.int64) for _ in range(4)]
        for array, old in zip(new, (self.release, self.due, self.owner, self.rank), strict=True):
            array[: old.shape[0]] = old
        other = max(int(self.owner.max(initial=-1)) + 1, self.history.shape[1])
        for array, value in zip(new, (release, due, other, 0), strict=True):
            array[list(slots)] = value
        release_, due_, owner_, rank_ = new
        return type(self)(release_, due_, owner_, rank_, self.history)

    @classmethod
    def blank(cls, slots: int) -> Self:
        """Return columns for ``slots`` jobs of one user and one rank, released at 0, without deadlines."""
        zero = np.zeros(slots, np.int64)
        return cls(zero, np.full(slots, FOREVER, np.int64), zero.copy(), zero.copy())


@dataclass(frozen=True)
class CriterionValues:
    """One value per criterion; see ``UNITS``."""

    array: Floats

    def __getitem__(self, criterion: Criterion) -> float:
        return float(self.array[CRITERIA.index(criterion)])

    def as_dict(self) -> dict[str, float]:
        """Return the values by names of the criteria."""
        return dict(zip(map(str, CRITERIA), self.array.tolist(), strict=True))

    def at_least(self, criterion: Criterion, value: float) -> Self:
        """Return the values with at least ``value`` for this criterion."""
        array = self.array.copy()
        array[CRITERIA.index(criterion)] = max(self[criterion], value)
        return type(self)(array)


class CriterionWeights:
    """Weights of criteria; unnamed criteria have weight 0.

    The cost of a plan is the weighted sum of its values, each divided by its value in a reference plan, with
    which a search began. A plan is better than another if its cost is lower. Raises the errors of
    ``check_weights``.
    """

    def __init__(self, weights: Mapping[Criterion, float]) -> None:
        check_weights(weights)
        self.array: Floats = np.zeros(ev.CRITERIA)
        for criterion, weight in weights.items():
            self.array[CRITERIA.index(criterion)] = -weight if criterion in MAXIMISED else weight
        # scaled to a maximum of 1, so that the minimum gain is independent of the scale and nothing overflows
        self.array /= np.abs(self.array).max()

    @property
    def regular(self) -> bool:
        """Whether a plan never becomes worse when jobs start earlier."""
        return not any(self.array[CRITERIA.index(criterion)] for criterion in NON_REGULAR)

    @property
    def only_lateness(self) -> bool:
        """Whether jobs that end by their deadlines do not count."""
        return not any(self.array[CRITERIA.index(one)] for one in CRITERIA if one not in LATENESS)

    def cost(self, values: CriterionValues, reference: CriterionValues) -> float:
        """Return a plan's cost for ``values``; infinite if one is positive where ``reference`` is 0."""
        return ev.weighted_cost(values.array, self.array, reference.array)


class Evaluation:
    """Criteria of one plan; after moves, only the moved jobs are evaluated again."""

    def __init__(
        self,
        plan: Plan,
        columns: ScoringColumns,
        now: int,
        *,
        threshold: int = 10,
    ) -> None:
        """``threshold``: of the bounded slowdown, seconds, at least 1."""
        if threshold < 1:
            raise ValueError(f"threshold {threshold}: must be at least 1 second")
        self._plan = plan
        jobs = plan.tables.jobs
        slots = jobs.shape[1]
        planned = plan.planned()
        known = columns.history.shape[1]
        users = max(known, int(columns.owner[planned].max()) + 1 if planned.shape[0] else 1)
        speed = np.zeros(plan.tables.rows.shape[0])
        for name, row in plan.node_rows.items():
            speed[row] = plan.nodes[name].speed
        up = [plan.node_rows[name] for name, node in plan.nodes.items() if node.state is NodeState.UP]
        cpus = plan.tables.cap[up, at.CPUS].astype(np.float64)
        base = np.zeros(ev.BASE_FIELDS)
        base[ev.NOW] = now
        base[ev.THRESHOLD] = threshold
        base[ev.CAPACITY] = cpus.sum()
        base[ev.WEIGHTED_CAPACITY] = (cpus * speed[up]).sum()
        self.scores = Scores(
            release=columns.release[:slots].copy(),
            due=columns.due[:slots].copy(),
            owner=columns.owner[:slots].copy(),
            rank=columns.rank[:slots].copy(),
            speed=speed,
            part=np.zeros((ev.PARTS, slots)),
            counted=np.zeros(slots, np.int64),
            sums=np.zeros(ev.PARTS),
            most=np.zeros(ev.PARTS),
            holder=np.full(ev.PARTS, -1, np.int64),
            jobs=np.zeros(1, np.int64),
            waited=np.zeros(users),
            used=np.zeros(users),
            base=base,
        )
        ev.count_fixed(plan.tables, self.scores)
        self.scores.waited[:known], self.scores.used[:known] = columns.history
        self.update(planned)

    def update(self, slots: Ints) -> None:
        """Update the parts of these jobs; jobs that are no longer planned are dropped."""
        ev.update_scores(self._plan.tables, self.scores, slots, slots.shape[0])

    def slopes(self, slots: Ints, weights: CriterionWeights, reference: CriterionValues) -> Floats:
        """Return the growth of the cost per second that each of these jobs starts later."""
        found: Floats = ev.cost_slopes(self._plan.tables, self.scores, slots, weights.array, reference.array)
        return found

    def cpu_seconds(self, slots: Ints) -> Floats:
        """Return the requested cpu-seconds of each of these planned jobs."""
        asked: Floats = self.scores.part[ev.REQUESTED, slots]
        return asked

    def values(self) -> CriterionValues:
        """Return the present values of all criteria."""
        array = np.zeros(ev.CRITERIA)
        ev.write_values(self.scores, array)
        return CriterionValues(array)
