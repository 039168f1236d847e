"""Moves of a search per second, and its gain over time."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, median
from threading import Thread
from time import perf_counter

import numpy as np
from rich.table import Table

from research.benchmarks.grow import Grower
from research.benchmarks.workload import Profile
from schedd.model import FOREVER
from schedd.optimize import PlanSearch, SearchInput, SearchSettings
from schedd.parallel_calls import run_in_threads
from schedd.plan.columns import PLANNED
from schedd.plan.criteria import PATIENCE, Criterion
from schedd.plan.evaluate import ScoringColumns
from schedd.plan.latest_starts import latest_starts

LIFTED = (2, 8, 32)
SECONDS = (0.5, 2.0, 8.0)
PARALLEL = (1, 2, 4)
PARALLEL_SEEDS = 5
PARALLEL_MOVES = 10_000
STOPS = 30
_USERS = 97


@dataclass(frozen=True, slots=True)
class SearchFigures:
    """One search of at most ``lifted`` jobs a move, for ``seconds``, always from the same plan.

    A move counts when it was decided exactly: all criteria worked out, or a job found too late for its
    promise. ``gain`` is the weighted mean of the criteria's gains, with the default weights.
    """

    lifted: int
    seconds: float
    moves: int
    moves_per_s: float
    accepted: int
    too_late: int
    moved: int
    gain: float
    wait_s_before: float
    wait_s_after: float


@dataclass(frozen=True, slots=True)
class ParallelFigures:
    """Searches at the same time, in threads: figures of ``PARALLEL_SEEDS`` seeds, all from the same plan.

    ``moves_per_s`` of all searches together; ``gain``: mean over the seeds. Each search is limited by
    ``moves_each``, or by ``seconds`` of wall time.
    """

    parallel: int
    seconds: float | None
    moves_each: int | None
    moves_per_s: float
    gain: float
    least_gain: float


@dataclass(frozen=True, slots=True)
class StopFigures:
    """Searches as the daemon makes them, stopped from another thread at moments that are drawn: how long each
    still went on, in ms.
    """

    stops: int
    median_ms: float
    longest_ms: float


@dataclass(frozen=True, slots=True)
class OptimiseResult:
    """All searches on one plan; ``slack_s`` is what its promises leave."""

    profile: str
    nodes: int
    cpus: int
    jobs: int
    seed: int
    slack_s: int
    searches: tuple[SearchFigures, ...]
    parallel: tuple[ParallelFigures, ...]
    stopped: StopFigures


def bench_optimise(
    profile: Profile,
    nodes: int,
    jobs: int,
    seed: int,
    *,
    slack: int = 4 * 3600,
    lifted: Sequence[int] = LIFTED,
    seconds: Sequence[float] = SECONDS,
    parallel: Sequence[int] = PARALLEL,
    tell: Callable[[str], None] = lambda _: None,
) -> OptimiseResult:
    """Grow a plan of ``jobs`` waiting jobs as ``python -m research bench plan`` does, and search it.

    Every job waits since the plan began to grow and is promised its start with ``slack`` seconds. Raises
    ValueError for fewer than 10 jobs, or no nodes.
    """
    if jobs < 10:
        raise ValueError(f"{jobs} jobs: at least 10 are needed")
    _warm_up()
    tell(f"planning {jobs:,} jobs")
    grower = Grower(profile, nodes, jobs, seed)
    begin = grower.now
    grower.fill(jobs)
    plan = grower.plan
    slots = plan.jobs.size
    columns = ScoringColumns(
        np.full(slots, begin, np.int64),
        np.full(slots, FOREVER, np.int64),
        np.arange(slots) % _USERS,
        np.zeros(slots, np.int64),
    )
    promised = np.where(plan.jobs.states == PLANNED, plan.jobs.starts + slack, FOREVER)
    latest = latest_starts(plan, promised, columns, begin)
    found = []
    for k in lifted:
        for bound in seconds:
            tell(f"searching for {bound} s, {k} jobs at a time")
            settings = SearchSettings(moves=None, seconds=bound, seed=seed, lifted=k, whole=0)
            fork = plan.fork()
            before = perf_counter()
            report = PlanSearch(fork, columns, latest, grower.now, settings).run().report
            wait = next(change for change in report.changes if change.criterion is Criterion.WAIT)
            found.append(
                SearchFigures(
                    lifted=k,
                    seconds=bound,
                    moves=report.tried,
                    moves_per_s=report.tried / (perf_counter() - before),
                    accepted=report.accepted,
                    too_late=report.too_late,
                    moved=report.moved,
                    gain=report.gain,
                    wait_s_before=wait.before,
                    wait_s_after=wait.after,
                )
            )
    start = SearchInput(plan, promised, columns, 1.0, grower.now)
    abreast = []
    for number in parallel:
        tell(f"{number} searches at the same time")
        by_moves = SearchSettings(moves=PARALLEL_MOVES, seed=seed, parallel=number)
        by_time = replace(by_moves, moves=None, seconds=seconds[len(seconds) // 2])
        abreast += [_search_in_parallel(start, limits) for limits in (by_moves, by_time)]
    tell(f"stopping {STOPS} searches")
    waits = []
    for after in np.random.default_rng(seed).uniform(0, seconds[-1] / 4, STOPS).tolist():
        settings = SearchSettings(moves=None, seconds=seconds[-1], seed=seed)
        waits.append(_stopped(PlanSearch(plan.fork(), columns, latest, grower.now, settings), after))
    stopped = StopFigures(STOPS, 1e3 * median(waits), 1e3 * max(waits))
    cpus = sum(node.cpus for node in grower.nodes)
    return OptimiseResult(profile, nodes, cpus, jobs, seed, slack, tuple(found), tuple(abreast), stopped)


def _search_in_parallel(start: SearchInput, limits: SearchSettings) -> ParallelFigures:
    """Search with several seeds, each time on a fork of the plan of ``start``."""
    weights = {str(criterion): weight for criterion, weight in limits.weights.items()}
    gains, tried, took = [], 0, 0.0
    for seed in range(PARALLEL_SEEDS):
        fresh = replace(start, plan=start.plan.fork())
        settings = replace(limits, seed=limits.seed + seed)
        before = perf_counter()
        search = fresh.make_search(settings, weights, PATIENCE, run_together=run_in_threads)
        report = search.run().report
        took += perf_counter() - before
        tried += report.tried
        gains.append(report.gain)
    return ParallelFigures(
        limits.parallel, limits.seconds, limits.moves, tried / took, fmean(gains), min(gains)
    )


def _stopped(search: PlanSearch, after: float) -> float:
    """Return how long a search goes on after it is stopped; it is stopped ``after`` seconds."""
    ended = []

    def work() -> None:
        search.search()
        ended.append(perf_counter())

    thread = Thread(target=work)
    thread.start()
    thread.join(after)
    asked = perf_counter()
    search.stop()
    thread.join()
    return max(0.0, ended[0] - asked)


def _warm_up() -> None:
    grower = Grower("metacentrum", 20, 60, 0)
    grower.fill(60)
    plan = grower.plan
    columns = ScoringColumns.blank(plan.jobs.size)
    latest = np.full(plan.jobs.size, FOREVER, np.int64)
    PlanSearch(plan, columns, latest, grower.now, SearchSettings(moves=50)).run()


def to_json(result: OptimiseResult) -> str:
    return json.dumps(asdict(result), indent=2)


def parallel_table(result: OptimiseResult) -> Table:
    """One line for each number of searches at the same time."""
    table = Table(title=f"searches at the same time, mean of {PARALLEL_SEEDS} seeds")
    for name in ("searches", "bound of each", "moves/s", "gain", "least gain"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in result.parallel:
        bound = f"{one.moves_each:,} moves" if one.seconds is None else f"{one.seconds:g} s"
        gains = [f"{100 * gain:.2f} %" for gain in (one.gain, one.least_gain)]
        table.add_row(str(one.parallel), bound, f"{one.moves_per_s:,.0f}", *gains)
    return table


def table_of(result: OptimiseResult) -> Table:
    """One line for each search."""
    stopped = result.stopped
    table = Table(
        title=f"{result.profile}: {result.jobs:,} jobs wait for {result.nodes:,} nodes, {result.cpus:,} cpus",
        caption=f"{stopped.stops} stopped: ended within {stopped.median_ms:.2f} ms (median), "
        f"{stopped.longest_ms:.2f} ms (longest)",
    )
    for name in ("lifted", "s", "moves", "moves/s", "accepted", "too late", "gain", "wait"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in result.searches:
        table.add_row(
            str(one.lifted),
            f"{one.seconds:g}",
            f"{one.moves:,}",
            f"{one.moves_per_s:,.0f}",
            f"{one.accepted:,}",
            f"{one.too_late:,}",
            f"{100 * one.gain:.1f} %",
            f"{100 * (one.wait_s_after / max(one.wait_s_before, 1) - 1):+.1f} %",
        )
    return table
