"""Attempts that are proved futile fail if they are made."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import Chunk, Node, Place, Request
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.displace import PREFER_OLD_PLACE_AND_POOLS, TOO_LATE, displace
from schedd.plan.kernels.freed import set_now
from schedd.plan.kernels.futility import is_futile, make_touched_rows
from schedd.plan.kernels.undo import make_undo_log
from schedd.plan.plan import Plan

NOW = 5


def _request(rng: Random) -> Request:
    exclusive = rng.random() < 0.1
    if rng.random() < 0.6:
        return Request((_chunk(rng, 1),), exclusive=exclusive)
    place = rng.choice([Place.FREE, Place.SCATTER])
    kinds = 2 if rng.random() < 0.2 else 1
    return Request(tuple(_chunk(rng, rng.randint(1, 3)) for _ in range(kinds)), place, exclusive)


def _chunk(rng: Random, count: int) -> Chunk:
    features = (frozenset({"big"}),) if rng.random() < 0.2 else ()
    return Chunk(count, rng.randint(1, 4), mem=rng.choice([0, 0, 3]), features=features)


def full_plan(rng: Random, *, pools: bool = True) -> Plan:
    """A plan of some nodes with many jobs, some of them fixed, some in a pool."""
    nodes = [
        Node(f"n{i}", rng.choice([2, 4, 8]), mem=6, features=frozenset({"big"} if i % 2 else ()))
        for i in range(rng.randint(2, 6))
    ]
    plan = Plan(nodes, 0)
    plan.set_pool("licence", 2, 0)
    for _ in range(rng.randint(5, 50)):
        amounts = {"licence": 1} if pools and rng.random() < 0.2 else {}
        ready = rng.choice([0, 0, rng.randint(0, 60)])
        slot = plan.add_job(_request(rng), rng.choice([3, 10, 30, 100]), ready, amounts)
        if plan.place(slot, rng.choice([0, NOW])) < 0:
            plan.drop_job(slot, 0)
        elif plan.start(slot) == 0:
            plan.fix_in_place(slot)
        elif rng.random() < 0.05:
            plan.drop_job(slot, 0)
    return plan


def _timelines(plan: Plan) -> list[object]:
    """Return the free amounts on every row, independent of positions in slabs, and the rows' versions."""
    tb = plan.tables
    parts = [slice(row[at.OFF], row[at.OFF] + row[at.LEN]) for row in tb.rows.tolist()]
    versions: list[int] = tb.rows[:, at.VERSION].tolist()
    return [*([tb.T[part].tolist(), tb.F[:, part].tolist()] for part in parts), versions]


def is_of_one_unit(plan: Plan, slot: int) -> bool:
    (*chunks,) = plan.shapes.requests[int(plan.tables.jobs[at.SHAPE, slot])].chunks
    return len(chunks) == 1 and chunks[0].count == 1


def _attempts(plan: Plan, rng: Random) -> list[tuple[np.ndarray, np.ndarray, int]]:
    """Jobs of one unit, each with those planned on a node that it could use, and their latest starts."""
    tb = plan.tables
    planned = plan.planned().tolist()
    found = []
    for slot in filter(lambda one: is_of_one_unit(plan, one), planned):
        chunk = int(tb.shapes[tb.jobs[at.SHAPE, slot], at.CHUNK])
        first, n = int(tb.chunks[chunk, at.SET]), int(tb.chunks[chunk, at.SET_LEN])
        for row in tb.sets[first : first + n].tolist():
            others = [s for s in planned if s != slot and row in {take.row for take in plan.takes(s)}]
            others = [s for s in others if rng.random() < 0.7][: rng.randint(1, 8)]
            if others:
                by = [plan.start(s) + rng.choice([1, 5, 20, 80]) for s in others]
                found.append((np.array([slot, *others]), np.array([plan.start(slot) - 1, *by]), row))
    return found


def _predictions_and_results(seed: int) -> list[tuple[bool, int]]:
    """Return predictions and results of attempts in one plan."""
    rng = Random(seed)
    plan = full_plan(rng)
    said = []
    for jobs, latest, row in _attempts(plan, rng)[:40]:
        fork = plan.fork()
        set_now(fork.tables, NOW)
        before, columns = _timelines(fork), fork.tables.jobs.copy()
        vain = is_futile(fork.tables, make_touched_rows(fork.tables, row), jobs, latest, row, NOW)
        assert _timelines(fork) == before
        assert np.array_equal(fork.tables.jobs, columns)
        how, times = at.FULL, 0
        while how == at.FULL:
            undo = make_undo_log(fork.tables, jobs.shape[0], 8)
            order = np.array([0, *rng.sample(range(1, jobs.shape[0]), jobs.shape[0] - 1)], np.int64)
            how, _ = displace(fork.tables, undo, jobs, order, latest, NOW, PREFER_OLD_PLACE_AND_POOLS)
            fork.slabs.make_room(16, times)
            times += 1
        said.append((vain, how))
    return said


@given(seed=st.integers(0, 1 << 32))
def test_attempts_proved_futile_fail(seed: int) -> None:
    assert (True, at.DONE) not in _predictions_and_results(seed)


def test_most_failing_attempts_are_proved_futile() -> None:
    said = [one for seed in range(40) for one in _predictions_and_results(seed)]
    vain = [told for told, how in said if how == TOO_LATE]
    assert len(vain) > 100
    assert sum(vain) > 0.84 * len(vain)  # 0.82 without searches for the jobs of one unit
    assert (False, at.DONE) in said
