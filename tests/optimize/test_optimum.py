"""Searches against the proven optimum of plans of up to 12 waiting jobs."""

from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("ortools", reason="has no wheel for this Python")

from schedd.model import FOREVER, Chunk, Node, Request
from schedd.optimize import PlanSearch, SearchSettings
from schedd.plan.evaluate import Criterion, ScoringColumns
from schedd.plan.latest_starts import latest_starts
from schedd.plan.plan import Plan
from tests.optimize.exact import Asking, least_waits

NOW = 100_000
SNAPSHOTS = 24
LEAST_GAIN = {None: 0.85, 25: 0.7}
"""By slack: of what could be gained, the share that orders decoded anew and single moves gain together."""


@dataclass(frozen=True)
class Snapshot:
    """A plan with its waiting slots, and the same for the solver."""

    plan: Plan
    columns: ScoringColumns
    promised: np.ndarray
    nodes: list[int]
    running: list[tuple[int, int, int]]
    waiting: dict[int, tuple[int, int]]
    """By slot: cpus and duration."""


def snapshot(seed: int) -> Snapshot:
    """One to three nodes that are busy, and 4 to 12 jobs planned behind each other as they came."""
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
    return Snapshot(plan, columns, promised, nodes, running, waiting)


def waits(scene: Snapshot, plan: Plan) -> list[int]:
    return [plan.start(slot) - int(scene.columns.release[slot]) for slot in scene.waiting]


@pytest.mark.parametrize("slack", [None, 25])
@pytest.mark.parametrize("guarded", [False, True], ids=["wait", "wait-and-longest"])
def test_no_search_beats_the_optimum_and_most_of_what_can_be_gained_is(
    guarded: bool, slack: int | None
) -> None:
    gained, possible, optimal = 0.0, 0.0, 0
    weights = {Criterion.WAIT: 1.0, **({Criterion.WAIT_MAX: 1.0} if guarded else {})}
    for seed in range(SNAPSHOTS):
        scene = snapshot(seed)
        if slack is not None:
            slots = list(scene.waiting)
            scene.promised[slots] = [scene.plan.start(slot) + slack for slot in slots]
        latest = latest_starts(scene.plan, scene.promised, scene.columns, NOW)
        asked = [
            Asking(cpus, duration, int(scene.columns.release[slot]), int(latest[slot]))
            for slot, (cpus, duration) in scene.waiting.items()
        ]
        old = waits(scene, scene.plan)
        # The cost of a plan is mean / mean before + longest / longest before: here in whole numbers.
        each, longest = (max(old), sum(old)) if guarded else (1, 0)
        fork = scene.plan.fork()
        settings = SearchSettings(weights=weights, moves=300, seed=seed)
        report = PlanSearch(fork, scene.columns, latest, NOW, settings, patience=0).run().report
        new = waits(scene, fork)
        before, after = (each * sum(w) + longest * max(w) for w in (old, new))
        best = least_waits(scene.nodes, scene.running, asked, NOW, each, longest)
        assert best <= after <= before
        (said,) = (change for change in report.changes if change.criterion is Criterion.WAIT)
        assert said.after * len(new) == pytest.approx(sum(new))
        gained += (before - after) / before
        possible += (before - best) / before
        optimal += after == best
    assert gained >= LEAST_GAIN[slack] * possible > 0
    assert optimal >= SNAPSHOTS // 2
