"""A set of plans of which none is better by all objectives: NSGA-II over chromosomes that the plan decodes.

K. Deb et al., A fast and elitist multiobjective genetic algorithm: NSGA-II (2002), through pymoo; chromosome,
seeding and choice after D. Paul (2013), sections 3 and 4, as far as docs/decisions/025 says. This is the only
module that names pymoo.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schedd.choice.decode import Decoder
from schedd.choice.front import Balance, front, shown
from schedd.plan.columns import Ints
from schedd.plan.places import Allocation
from schedd.plan.plan import Plan, WorkSpent

__all__ = ["Alternative", "Front", "NoPymoo", "Pareto", "ParetoSettings", "hypervolume"]

Floats = npt.NDArray[np.float64]

_CROSSED: Final = 0.9
_CUTS: Final = 4
_MUTATED: Final = 0.9
_BOX: Final = 1.2
_NOTHING: Final = 1e-9
_GENES_CHANGED: Final = 10
"""About so many genes a mutation changes, as the thesis has it."""


class NoPymoo(RuntimeError):
    """The library for it is not installed."""


@dataclass(frozen=True, slots=True)
class ParetoSettings:
    """One run. It ends after so many ``seconds``, or when it has tried so many plans (``evaluations``; None:
    no bound): with a bound on these alone the same plan and ``seed`` give the same set. ``most`` plans are
    offered at most, beside the live one. Raises ValueError.
    """

    seconds: float | None = 10.0
    evaluations: int | None = None
    population: int = 24
    seed: int = 0
    most: int = 12

    def __post_init__(self) -> None:
        if self.seconds is None and self.evaluations is None:
            raise ValueError("a run needs a bound: seconds, evaluations or both")
        if self.seconds is not None and not 0 <= self.seconds < float("inf"):
            raise ValueError(f"seconds {self.seconds}: must be finite, at least 0")
        for name, least in (("evaluations", 1), ("population", 4), ("most", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} {value}: must be at least {least}")


@dataclass(frozen=True, slots=True)
class Alternative:
    """A plan that is offered: its values, in the order of the objectives asked for, and who is elsewhere."""

    values: tuple[float, ...]
    places: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class Front:
    """What came of a run. ``live``: the values of the live plan. None of the ``plans`` dominates another or
    is worse than the live plan by the weights. ``worse`` plans of the front were left out since they are.
    ``tried`` plans were decoded, of which ``homeless`` ones kept not every job's latest start.
    """

    live: tuple[float, ...]
    plans: tuple[Alternative, ...]
    tried: int
    homeless: int
    worse: int
    stopped: bool
    elapsed_s: float
    volume: float
    """The hypervolume of the live plan and of those that are offered: see ``hypervolume``."""


@dataclass(slots=True)
class _Kept:
    """The vectors of plans that no other dominates so far, with their chromosomes."""

    values: list[Floats] = field(default_factory=list)
    rows: list[Floats] = field(default_factory=list)

    def add(self, value: Floats, row: Floats) -> None:
        if any((other <= value).all() for other in self.values):
            return
        stays = [i for i, other in enumerate(self.values) if not (value <= other).all()]
        self.values = [*(self.values[i] for i in stays), value]
        self.rows = [*(self.rows[i] for i in stays), row]


class Pareto:
    """One run; ``values`` gives the objectives of a plan that was decoded."""

    def __init__(
        self,
        decoder: Decoder,
        values: Callable[[Plan], Floats],
        balance: Balance,
        settings: ParetoSettings,
        orders: Sequence[Floats] = (),
    ) -> None:
        """``orders``: keys of the decoder's slots by which all are placed anew in the beginning."""
        self._decoder, self._values, self._balance = decoder, values, balance
        self._settings, self._orders = settings, orders
        self._jobs = decoder.slots.shape[0]
        self._stopped = False
        self._kept = _Kept()
        self._tried = self._homeless = 0
        self._begin = 0.0

    def stop(self) -> None:
        """Make ``run`` end at once, from any thread; what was found till then is kept."""
        self._stopped = True
        self._decoder.stop()

    def run(self) -> Front:
        """Search to the end; call it once. Raises NoPymoo."""
        self._begin = perf_counter()
        stay = np.zeros(self._jobs, np.int64)
        live = self._values(self._decoder.decode(stay, np.arange(self._jobs, dtype=np.float64)).plan)
        rows = self._first(np.random.default_rng(self._settings.seed))
        self._kept.add(live, rows[0])
        if self._jobs >= 2 and not self._ended():
            self._evolve(rows, live)
        return self._offer(live)

    # ---- chromosomes ----------------------------------------------------------------------------

    def _row(self, genes: Ints, keys: Floats) -> Floats:
        """One row of numbers from 0 to 1: a gene is the middle of its share of that range."""
        return np.concatenate([(genes + 0.5) / self._decoder.genes, keys])

    def _read(self, row: Floats) -> tuple[Ints, Floats]:
        genes = np.minimum(
            (row[: self._jobs] * self._decoder.genes).astype(np.int64), self._decoder.genes - 1
        )
        return genes, row[self._jobs :]

    def _first(self, random: np.random.Generator) -> Floats:
        """The first plans: the live one, the known ones, all jobs anew in each order on each tier, and the
        live one with some jobs anew.
        """
        n, decoder = self._jobs, self._decoder
        in_turn = (np.arange(n) + 0.5) / max(n, 1)
        rows = [self._row(np.full(n, gene), in_turn) for gene in (decoder.stays, *decoder.known)]
        keys = [in_turn, *(_spread(order) for order in self._orders)]
        rows += [self._row(np.full(n, gene), key) for key in keys for gene in decoder.anew]
        for _ in range(max(0, self._settings.population - len(rows))):
            share = random.uniform(0.02, 0.5)
            genes = np.where(random.random(n) < share, random.choice(decoder.anew, n), decoder.stays)
            rows.append(self._row(genes, np.clip(in_turn + random.normal(0, 0.1, n), 0, 1)))
        return np.array(rows[: max(self._settings.population, 4)])

    # ---- the loop -------------------------------------------------------------------------------

    def _ended(self) -> bool:
        settings = self._settings
        return (
            self._stopped
            or (settings.seconds is not None and perf_counter() - self._begin >= settings.seconds)
            or (settings.evaluations is not None and self._tried >= settings.evaluations)
        )

    def _evolve(self, rows: Floats, live: Floats) -> None:
        algorithm, problem = _nsga2(rows, live.shape[0], self._settings)
        while not self._ended():
            asked = algorithm.ask()
            found, homeless = [], []
            for row in asked.get("X"):
                if self._ended():
                    return
                value, lost = self._try(row, live)
                found.append(value)
                homeless.append([float(lost)])
            asked.set("F", np.array(found))
            asked.set("G", np.array(homeless))
            for one in asked:
                one.evaluated.update(("F", "G"))
            algorithm.evaluator.n_eval += len(asked)
            algorithm.tell(infills=asked)
        del problem

    def _try(self, row: Floats, live: Floats) -> tuple[Floats, int]:
        """The values of a chromosome, and how many jobs have no place; if any, the values mean nothing."""
        try:
            decoded = self._decoder.decode(*self._read(row))
        except WorkSpent:
            return live, self._jobs
        self._tried += 1
        if decoded.homeless:
            self._homeless += 1
            return live, decoded.homeless
        value = self._values(decoded.plan)
        if not self._stopped:  # else its repair may have been cut short
            self._kept.add(value, row)
        return value, 0

    # ---- what is offered ------------------------------------------------------------------------

    def _offer(self, live: Floats) -> Front:
        elapsed = perf_counter() - self._begin
        values = np.array(self._kept.values)
        best = front(values)
        good = [i for i in best.tolist() if self._balance.as_good(values[i], live)]
        other = [i for i in good if not np.array_equal(values[i], live)]
        worse = best.shape[0] - len(good)
        picked = [other[k] for k in shown(values[other], self._settings.most).tolist()] if other else []
        plans = []
        for i in sorted(picked, key=lambda i: self._balance.cost(values[i])):
            try:
                plan = self._decoder.decode(*self._read(self._kept.rows[i])).plan
            except WorkSpent:  # it is too hard now, though it was not
                continue
            places = self._decoder.moved(plan)
            if places:
                plans.append(Alternative(tuple(values[i].tolist()), places))
        return Front(
            tuple(live.tolist()),
            tuple(plans),
            self._tried,
            self._homeless,
            worse,
            self._stopped,
            elapsed,
            hypervolume(np.vstack([live, *(values[i] for i in picked)]), live),
        )


def hypervolume(vectors: Floats, live: Floats) -> float:
    """Which share of the box from nothing to 1.2 times the ``live`` plan's values the ``vectors`` dominate.

    By those objectives of which the live plan has any. Dozens of vectors take long in ten objectives. Raises
    NoPymoo.

    E. Zitzler, L. Thiele, Multiobjective evolutionary algorithms (1999), through pymoo.
    """
    try:
        from pymoo.indicators.hv import HV  # noqa: PLC0415  (as above)
    except ImportError as error:
        raise NoPymoo("the hypervolume needs pymoo: pip install 'schedd[pareto]'") from error
    some = live > _NOTHING
    if not some.any() or not vectors.shape[0]:
        return 0.0
    corner = np.full(int(some.sum()), _BOX)
    return float(HV(ref_point=corner)(vectors[:, some] / live[some])) / _BOX ** corner.shape[0]


def _spread(order: Floats) -> Floats:
    """Keys from 0 to 1 that say the same order."""
    ranks = np.argsort(np.argsort(order, kind="stable"), kind="stable")
    spread: Floats = (ranks + 0.5) / max(order.shape[0], 1)
    return spread


def _nsga2(rows: Floats, objectives: int, settings: ParetoSettings) -> tuple[Any, Any]:
    """Pymoo's algorithm, set up to be asked and told; and the problem, which it refers to."""
    try:
        from pymoo.algorithms.moo.nsga2 import NSGA2  # noqa: PLC0415  (optional, and it takes a second)
        from pymoo.core.problem import Problem  # noqa: PLC0415
        from pymoo.operators.crossover.pntx import PointCrossover  # noqa: PLC0415
        from pymoo.operators.mutation.pm import PM  # noqa: PLC0415
        from pymoo.termination import get_termination  # noqa: PLC0415
    except ImportError as error:
        raise NoPymoo(
            "this needs pymoo, which is not installed: pip install 'schedd[pareto]' where the daemon runs"
        ) from error
    n = rows.shape[1]
    problem = Problem(n_var=n, n_obj=objectives, n_ieq_constr=1, xl=0.0, xu=1.0)
    algorithm = NSGA2(
        pop_size=rows.shape[0],
        sampling=rows,
        crossover=PointCrossover(prob=_CROSSED, n_points=min(_CUTS, n - 1)),
        mutation=PM(prob=_MUTATED, prob_var=min(0.5, _GENES_CHANGED / n), eta=5),
    )
    algorithm.setup(problem, termination=get_termination("n_gen", 1 << 30), seed=settings.seed, verbose=False)
    return algorithm, problem
