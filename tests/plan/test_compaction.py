"""Compaction in steps: readers do not notice it, and results do not depend on its time."""

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import schedd.plan.slabs as slabs_module
from schedd.model import Chunk, Node, Place, Request
from schedd.plan.compaction import Compaction
from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan
from tests.plan.mirror import Mirror

NODES = 8
CPUS = 4
Life = list[list[list[int]]]


@pytest.fixture
def in_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Even a small slab moves, one job at a time; counts how often one was left in that way."""
    finished = [0]
    finish = Compaction.finish

    def counted(self: Compaction, tb: at.Tables) -> bool:
        done = finish(self, tb)
        finished[0] += done and self._copied > 20
        return done

    monkeypatch.setattr(slabs_module, "_LARGE", 64)
    monkeypatch.setattr(slabs_module, "_STEP", 3)
    monkeypatch.setattr(Compaction, "finish", counted)
    yield finished
    assert finished[0] > 3


def _request(rng: random.Random) -> Request:
    if rng.random() < 0.2:
        return Request((Chunk(1, 1),), Place.SCATTER, exclusive=True)
    return Request((Chunk(rng.choice([1, 1, 2, 3, 5]), rng.randint(1, CPUS)),))


def _saved(plan: Plan) -> tuple[dict[str, Any], dict[str, at.Ints]]:
    saving = plan.save()
    while True:
        try:
            next(saving)
        except StopIteration as end:
            plain, arrays = end.value
            return json.loads(json.dumps(plain)), arrays


def _life(seed: int, *, reload: bool = False) -> tuple[Mirror, Life]:
    """Return a plan that is changed and repaired in slices, and the moves of each slice."""
    rng = random.Random(seed)
    mirror = Mirror(Plan([Node(f"n{i}", CPUS) for i in range(NODES)], 0))
    moves: Life = []
    for i in range(250):
        if i % 7 == 6:
            name, cpus = f"n{rng.randrange(NODES)}", rng.choice([CPUS, CPUS + 2])
            mirror.plan.set_nodes([Node(name, cpus)], 0)
        if len(mirror.jobs) < 60 or rng.random() < 0.5:
            slot = mirror.new(_request(rng), rng.randint(20, 400), 0)
            mirror.plan.place(slot, 0)
        else:
            mirror.plan.drop_job(slot := rng.choice(list(mirror.jobs)), 0)
            del mirror.jobs[slot]
        for _ in range(rng.randint(0, 3)):
            moved, _ = mirror.plan.repair(0, 60)
            moves.append([moved.slots.tolist(), moved.old.tolist(), moved.new.tolist()])
        for slot in mirror.slots(at.PLANNED) if i % 5 == 0 else ():
            mirror.check_takes(slot)
        if reload and i % 9 == 0:
            plain, arrays = _saved(mirror.plan)
            mirror.plan = Plan.load(plain, arrays)
            again, those = _saved(mirror.plan)
            assert again == plain
            assert all(np.array_equal(array, those[name]) for name, array in arrays.items())
    return mirror, moves


@pytest.mark.parametrize("seed", range(2))
def test_slices_come_as_far_and_find_the_same_whenever_the_slab_changes(
    seed: int, in_steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, moves = _life(seed)
    mirror.check_timelines(0)
    mirror.check_rooms()
    assert _life(seed, reload=True)[1] == moves
    monkeypatch.setattr(slabs_module, "_LARGE", 1 << 40)
    assert _life(seed)[1] == moves


def test_published_entries_never_change(in_steps: list[int]) -> None:
    rng = random.Random(1)
    mirror = Mirror(Plan([Node(f"n{i}", CPUS) for i in range(NODES)], 0))
    seen: list[tuple[np.ndarray, np.ndarray]] = []
    for i in range(300):
        if len(mirror.jobs) < 60:
            mirror.plan.place(mirror.new(_request(rng), rng.randint(20, 400), 0), 0)
        else:
            mirror.plan.drop_job(slot := rng.choice(list(mirror.jobs)), 0)
            del mirror.jobs[slot]
        mirror.plan.repair(0, 300)
        if i % 20 == 0:
            tb = mirror.plan.tables
            view = tb.alloc[: int(tb.ctl[at.ALLOC_TOP])]
            seen.append((view, view.copy()))
    assert len({view.ctypes.data for view, _ in seen}) > 2
    assert all(np.array_equal(view, was) for view, was in seen)


def test_slab_of_rows_grows_at_arrivals_not_during_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    mirror = Mirror(Plan([Node(f"n{i}", CPUS) for i in range(60)], 0))
    grown = [0, 0]
    grow = slabs_module.Slabs.grow_segments

    def counted(self: slabs_module.Slabs, rows: int = 0) -> None:
        grown[repairing] += 1
        grow(self, rows)

    monkeypatch.setattr(slabs_module.Slabs, "grow_segments", counted)
    for _ in range(1500):
        repairing = False
        mirror.plan.place(mirror.new(_request(rng), rng.randint(20, 400), 0), 0)
        if rng.random() < 0.4:
            mirror.plan.drop_job(slot := rng.choice(list(mirror.jobs)), 0)
            del mirror.jobs[slot]
        repairing = True
        mirror.plan.repair(0)
    assert grown[False] > 1
    assert grown[True] == 0, grown
