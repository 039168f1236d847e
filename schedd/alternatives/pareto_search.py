"""Search for a Pareto set of plans: NSGA-II over chromosomes.

Sources: K. Deb et al., A fast and elitist multiobjective genetic algorithm: NSGA-II (2002), through pymoo;
chromosome, seeding and selection after D. Paul (2013), sections 3 and 4, with the changes of
docs/developers/decisions/025. Only this module imports pymoo.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from schedd.alternatives.chromosomes import ChromosomeDecoder
from schedd.alternatives.pareto_front import ObjectiveWeights, pareto_front, select_spread
from schedd.plan.columns import Ints
from schedd.plan.placements import Allocation
from schedd.plan.plan import Plan
from schedd.plan.work_limits import WorkSpent

Floats = npt.NDArray[np.float64]

_CROSSED: Final = 0.9
_CUTS: Final = 4
_MUTATED: Final = 0.9
_BOX: Final = 1.2
_NOTHING: Final = 1e-9
_GENES_CHANGED: Final = 10  # mean number of genes changed by a mutation (Paul 2013)


class PymooMissing(RuntimeError):
    """pymoo is not installed."""


@dataclass(frozen=True, slots=True)
class ParetoSettings:
    """Settings of one run. Raises ValueError for values out of range.

    The run ends after ``seconds`` or after ``evaluations`` decoded plans (None: no limit). Without a time
    limit the same plan and ``seed`` give the same set. ``most``: largest number of plans besides the live
    one.
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
class AlternativePlan:
    """An alternative plan: its objective values, and the places of the moved jobs."""

    values: tuple[float, ...]
    places: tuple[Allocation, ...]


@dataclass(frozen=True, slots=True)
class ParetoSet:
    """Result of a run. ``live``: values of the live plan.

    No plan of ``plans`` dominates another or has a higher weighted cost than the live plan; ``worse`` counts
    the plans of the front left out for their cost. ``tried``: decoded plans; ``unplaced``: plans without a
    place in time for a job.
    """

    live: tuple[float, ...]
    plans: tuple[AlternativePlan, ...]
    tried: int
    unplaced: int
    worse: int
    stopped: bool
    elapsed_s: float
    volume: float  # hypervolume of the live plan and `plans`; see `hypervolume`


@dataclass(slots=True)
class _NonDominated:
    """Current non-dominated vectors, with their chromosomes."""

    values: list[Floats] = field(default_factory=list)
    rows: list[Floats] = field(default_factory=list)

    def add(self, value: Floats, row: Floats) -> None:
        if any((other <= value).all() for other in self.values):
            return
        stays = [i for i, other in enumerate(self.values) if not (value <= other).all()]
        self.values = [*(self.values[i] for i in stays), value]
        self.rows = [*(self.rows[i] for i in stays), row]


class ParetoSearch:
    """One run; ``values`` returns the objectives of a decoded plan."""

    def __init__(
        self,
        decoder: ChromosomeDecoder,
        values: Callable[[Plan], Floats],
        balance: ObjectiveWeights,
        settings: ParetoSettings,
        orders: Sequence[Floats] = (),
    ) -> None:
        """``orders``: initial orders, as keys of the decoder's slots."""
        self._decoder, self._values, self._balance = decoder, values, balance
        self._settings, self._orders = settings, orders
        self._jobs = decoder.slots.shape[0]
        self._stopped = False
        self._kept = _NonDominated()
        self._tried = self._homeless = 0
        self._begin = 0.0

    def stop(self) -> None:
        """Stop ``run``; callable from any thread. Plans that were found are kept."""
        self._stopped = True
        self._decoder.stop()

    def run(self) -> ParetoSet:
        """Search; call once. Raises PymooMissing."""
        self._begin = perf_counter()
        stay = np.zeros(self._jobs, np.int64)
        live = self._values(self._decoder.decode(stay, np.arange(self._jobs, dtype=np.float64)).plan)
        rows = self._initial_rows(np.random.default_rng(self._settings.seed))
        self._kept.add(live, rows[0])
        if self._jobs >= 2 and not self._is_over():
            self._evolve(rows, live)
        return self._make_set(live)

    # ---- chromosomes ----------------------------------------------------------------------------

    def _encode_row(self, genes: Ints, keys: Floats) -> Floats:
        """Return a chromosome as numbers in 0..1; a gene is the centre of its subrange."""
        return np.concatenate([(genes + 0.5) / self._decoder.gene_count, keys])

    def _decode_row(self, row: Floats) -> tuple[Ints, Floats]:
        genes = np.minimum(
            (row[: self._jobs] * self._decoder.gene_count).astype(np.int64), self._decoder.gene_count - 1
        )
        return genes, row[self._jobs :]

    def _initial_rows(self, random: np.random.Generator) -> Floats:
        """Return the initial population: the live plan, the known plans, all jobs searched in each order
        on each tier, and the live plan with a random share of searched jobs.
        """
        n, decoder = self._jobs, self._decoder
        in_turn = (np.arange(n) + 0.5) / max(n, 1)
        rows = [
            self._encode_row(np.full(n, gene), in_turn) for gene in (decoder.stay_gene, *decoder.known_genes)
        ]
        keys = [in_turn, *(_rank_keys(order) for order in self._orders)]
        rows += [self._encode_row(np.full(n, gene), key) for key in keys for gene in decoder.tier_genes]
        for _ in range(max(0, self._settings.population - len(rows))):
            share = random.uniform(0.02, 0.5)
            genes = np.where(
                random.random(n) < share, random.choice(decoder.tier_genes, n), decoder.stay_gene
            )
            rows.append(self._encode_row(genes, np.clip(in_turn + random.normal(0, 0.1, n), 0, 1)))
        return np.array(rows[: max(self._settings.population, 4)])

    # ---- the loop -------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        settings = self._settings
        return (
            self._stopped
            or (settings.seconds is not None and perf_counter() - self._begin >= settings.seconds)
            or (settings.evaluations is not None and self._tried >= settings.evaluations)
        )

    def _evolve(self, rows: Floats, live: Floats) -> None:
        algorithm, problem = _nsga2(rows, live.shape[0], self._settings)
        while not self._is_over():
            asked = algorithm.ask()
            found, homeless = [], []
            for row in asked.get("X"):
                if self._is_over():
                    return
                value, lost = self._evaluate_row(row, live)
                found.append(value)
                homeless.append([float(lost)])
            asked.set("F", np.array(found))
            asked.set("G", np.array(homeless))
            for one in asked:
                one.evaluated.update(("F", "G"))
            algorithm.evaluator.n_eval += len(asked)
            algorithm.tell(infills=asked)
        del problem

    def _evaluate_row(self, row: Floats, live: Floats) -> tuple[Floats, int]:
        """Return a chromosome's values and unplaced jobs; if there are any, the values mean nothing."""
        try:
            decoded = self._decoder.decode(*self._decode_row(row))
        except WorkSpent:
            return live, self._jobs
        self._tried += 1
        if decoded.unplaced:
            self._homeless += 1
            return live, decoded.unplaced
        value = self._values(decoded.plan)
        if not self._stopped:  # a stop may have cut the repair short
            self._kept.add(value, row)
        return value, 0

    # ---- offered plans ------------------------------------------------------------------------

    def _make_set(self, live: Floats) -> ParetoSet:
        elapsed = perf_counter() - self._begin
        values = np.array(self._kept.values)
        best = pareto_front(values)
        good = [i for i in best.tolist() if self._balance.is_as_good(values[i], live)]
        other = [i for i in good if not np.array_equal(values[i], live)]
        worse = best.shape[0] - len(good)
        picked = (
            [other[k] for k in select_spread(values[other], self._settings.most).tolist()] if other else []
        )
        plans = []
        for i in sorted(picked, key=lambda i: self._balance.cost(values[i])):
            try:
                plan = self._decoder.decode(*self._decode_row(self._kept.rows[i])).plan
            except WorkSpent:  # decoding took less work before
                continue
            places = self._decoder.moved_places(plan)
            if places:
                plans.append(AlternativePlan(tuple(values[i].tolist()), places))
        return ParetoSet(
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
    """Return the share of the box from 0 to 1.2 times the ``live`` values that ``vectors`` dominate.

    Objectives with the value 0 for the live plan are left out. Slow for dozens of vectors in ten objectives.
    Raises PymooMissing.

    E. Zitzler, L. Thiele, Multiobjective evolutionary algorithms (1999), through pymoo.
    """
    try:
        from pymoo.indicators.hv import HV  # noqa: PLC0415  (as above)
    except ImportError as error:
        raise PymooMissing("the hypervolume needs pymoo: pip install 'schedd[pareto]'") from error
    some = live > _NOTHING
    if not some.any() or not vectors.shape[0]:
        return 0.0
    corner = np.full(int(some.sum()), _BOX)
    return float(HV(ref_point=corner)(vectors[:, some] / live[some])) / _BOX ** corner.shape[0]


def _rank_keys(order: Floats) -> Floats:
    """Return keys in 0..1 with the same order."""
    ranks = np.argsort(np.argsort(order, kind="stable"), kind="stable")
    spread: Floats = (ranks + 0.5) / max(order.shape[0], 1)
    return spread


def _nsga2(rows: Floats, objectives: int, settings: ParetoSettings) -> tuple[Any, Any]:
    """Return pymoo's algorithm for ask-and-tell, and its problem, which must stay referenced."""
    try:
        from pymoo.algorithms.moo.nsga2 import NSGA2  # noqa: PLC0415  (optional, and it takes a second)
        from pymoo.core.problem import Problem  # noqa: PLC0415
        from pymoo.operators.crossover.pntx import PointCrossover  # noqa: PLC0415
        from pymoo.operators.mutation.pm import PM  # noqa: PLC0415
        from pymoo.termination import get_termination  # noqa: PLC0415
    except ImportError as error:
        raise PymooMissing(
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
