"""Searches against the proven optimum of plans of up to 12 waiting jobs."""

from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("ortools", reason="has no wheel for this Python")

from schedd.model import FOREVER, Chunk, Node, Request
from schedd.optimize import PlanSearch, SearchSettings
from schedd.plan.criteria import Criterion
from schedd.plan.evaluate import ScoringColumns
from schedd.plan.latest_starts import latest_starts
from schedd.plan.plan import Plan
from tests.optimize.proven_optimum import SolverJob, minimal_wait_cost
from tests.property_examples import some

NOW = 100_000
SEEDS = some(range(24))
LEAST_GAIN = {None: 0.85, 25: 0.7}
"""By slack: the least share of the possible gain that whole orders and single moves must reach."""


@dataclass(frozen=True)
class SmallPlan:
    """A plan with its waiting slots, and its description for the solver."""

    plan: Plan
    columns: ScoringColumns
    promised: np.ndarray
    nodes: list[int]
    running: list[tuple[int, int, int]]
    waiting: dict[int, tuple[int, int]]
    """By slot: cpus and duration."""


def draw_small_plan(seed: int) -> SmallPlan:
    """Draw one to three busy nodes, and 4 to 12 jobs planned in the order of submission."""
    random = np.random.default_rng(seed)
    nodes = random.integers(4, 9, random.integers(1, 4)).tolist()
    plan = Plan([Node(f"n{i}", cpus) for i, cpus in enumerate(nodes)], NOW)
    running = []
    number = {plan.node_rows[f"n{i}"]: i for i in range(len(nodes))}
    for cpus in nodes:
        slot = plan.add_job(Request((Chunk(cpus=cpus),)), int(random.integers(5, 40)), NOW)
        plan.place(slot, NOW)
        plan.fix_in_place(slot)
        running.append((number[plan.takes(slot)[0].row], cpus, plan.end(slot)))
    columns = ScoringColumns.blank(plan.tables.jobs.shape[1])
    promised = np.full(plan.tables.jobs.shape[1], FOREVER, np.int64)
    waiting = {}
    count = int(random.integers(4, 13))
    for release in sorted(random.integers(NOW - 60, NOW + 1, count).tolist()):
        cpus, duration = int(random.integers(1, max(nodes) + 1)), int(random.integers(2, 60))
        slot = plan.add_job(Request((Chunk(cpus=cpus),)), duration, NOW)
        columns.release[slot] = release
        plan.place(slot, NOW)
        waiting[slot] = (cpus, duration)
    return SmallPlan(plan, columns, promised, nodes, running, waiting)


def waits(small: SmallPlan, plan: Plan) -> list[int]:
    return [plan.start(slot) - int(small.columns.release[slot]) for slot in small.waiting]


@pytest.mark.covering
@pytest.mark.parametrize("slack", [None, 25])
@pytest.mark.parametrize("guarded", [False, True], ids=["wait", "wait-and-longest"])
def test_no_search_beats_the_optimum_and_most_gain_is_reached(guarded: bool, slack: int | None) -> None:
    gained, possible, optimal = 0.0, 0.0, 0
    weights = {Criterion.WAIT: 1.0, **({Criterion.WAIT_MAX: 1.0} if guarded else {})}
    for seed in SEEDS:
        small = draw_small_plan(seed)
        if slack is not None:
            slots = list(small.waiting)
            small.promised[slots] = [small.plan.start(slot) + slack for slot in slots]
        latest = latest_starts(small.plan, small.promised, small.columns, NOW)
        solver_jobs = [
            SolverJob(cpus, duration, int(small.columns.release[slot]), int(latest[slot]))
            for slot, (cpus, duration) in small.waiting.items()
        ]
        old = waits(small, small.plan)
        # The cost of a plan is mean / mean before + longest / longest before: here in whole numbers.
        each, longest = (max(old), sum(old)) if guarded else (1, 0)
        fork = small.plan.fork()
        settings = SearchSettings(weights=weights, moves=300, seed=seed)
        report = PlanSearch(fork, small.columns, latest, NOW, settings, patience=0).run().report
        new = waits(small, fork)
        before, after = (each * sum(w) + longest * max(w) for w in (old, new))
        best = minimal_wait_cost(small.nodes, small.running, solver_jobs, NOW, each, longest)
        assert best <= after <= before
        (wait,) = (change for change in report.changes if change.criterion is Criterion.WAIT)
        assert wait.after * len(new) == pytest.approx(sum(new))
        gained += (before - after) / before
        possible += (before - best) / before
        optimal += after == best
    assert gained >= LEAST_GAIN[slack] * possible > 0
    assert optimal >= len(SEEDS) // 2
