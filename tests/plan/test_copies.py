"""Forks and checkpoints have every field of the plan."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pytest

import schedd.plan.contents as contents_module
import schedd.plan.plan as plan_module
from schedd.model import FOREVER, Chunk, Node, NodeSets, Place, Request
from schedd.plan import repairs
from schedd.plan.compaction import Compaction
from schedd.plan.kernels import layout as at
from schedd.plan.machine import Machine
from schedd.plan.packed_array import pack_array
from schedd.plan.plan import Plan
from schedd.plan.schema import MOMENT, NAMES, NUMBERS, Arrays, declared
from tests.property_examples import examples

OF_THE_MOMENT = {"_compaction", "_former"}
"""Work under way that only saves time later."""
REFERENCES = {"slabs", "shapes", "_slabs", "_shapes", "_repairs", "_machine", "candidates"}
COUNTERS_OF_ITS_OWN = {
    *(at.WORK, at.STOP, at.ALLOC_TOP, at.ALLOC_GARBAGE, at.WANTED_SEGMENTS, at.WANTED_ENTRIES),
    *(at.MOST_WORK, at.SEARCH_END, at.WORK_END),
}
OWN_COLUMNS = {at.ALLOC, at.HELD}
"""Positions of entries, and values derived from them."""
ROOM = {"scratch", "out"}
GIVEN_AGAIN = {"Repairs.ranks", "CandidateNodes._fitting", "CandidateNodes._having"}
"""Not saved: the caller gives the ranks before each repair, and which classes fit is found again."""


def _plan(seed: int) -> Plan:
    """Return a plan with values in every field, during a pass of repair."""
    rng = Random(seed)
    nodes = [
        Node(f"n{i}", 8, 64, 32, 1, (("scratch", 4),), frozenset({f"rack={i % 2}"}), speed=1 + i % 2)
        for i in range(6)
    ]
    plan = Plan(nodes, 0)
    for name in ("a", "b", "idle"):
        plan.set_pool(name, 9, 0)
    plan.limit_pool("a", 10, 50, -3, 0)
    plan.set_node_orders({"site": {"n1": 1, "n3": 0}})
    slots = []
    for i in range(60):
        count = rng.choice([1, 1, 2, 3])
        chunk = Chunk(count, rng.randint(1, 8), rng.choice([0, 4]), resources=(("scratch", i % 2),))
        request = Request((chunk,), rng.choice(list(Place)), together=NodeSets(by="rack", wait=5))
        request = replace(request, node_order="site" if i % 3 else "")
        if plan.find_unmet_requirement(request) is not None:
            continue
        pools = {name: 1 for name in ("a", "b") if rng.random() < 0.3}
        slots.append(plan.add_job(request, rng.randint(5, 80), rng.randint(0, 20), pools))
        plan.place(slots[-1], 0)
    plan.shapes.release(plan.shapes.intern(Request((Chunk(7, 1),))))
    for slot in rng.sample(slots, 8):
        plan.fix_in_place(slot) if rng.random() < 0.3 else plan.drop_job(slot, 0)
    for slot in rng.sample(slots, 5):
        if plan.state(slot) == at.PLANNED:
            plan.mark_for_search(slot)
    plan.order_repairs(np.arange(plan.jobs.size))
    plan.repair(0, 200)
    plan.weigh_nodes(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(repairs, "MOST_NOW", 0)
        plan.mark_for_search(int(plan.planned()[-1]))
        plan.repair_now(0)  # most are left for the next call
    return plan


def _restored(plan: Plan) -> Plan:
    plain, arrays = _saved(plan)
    return Plan.load(json.loads(json.dumps(plain)), arrays)


def _saved(plan: Plan) -> tuple[dict[str, Any], Arrays]:
    saving = plan.save()
    while True:
        try:
            next(saving)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def _fields(part: object) -> dict[str, Any]:
    names = {one.name for one in fields(part)} if is_dataclass(part) else vars(part).keys()
    return {name: getattr(part, name) for name in names if name not in REFERENCES | OF_THE_MOMENT}


def _comparable(value: Any) -> Any:
    """A value that can be compared, whatever room arrays have."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _comparable(getattr(value, name)) for name in value._fields}
    return value


def _all_fields(plan: Plan) -> dict[str, Any]:
    """Every field of every part of a plan, by name."""
    slabs = plan.slabs
    tb = slabs.tb
    top, freed = int(tb.ctl[at.SLAB_TOP]), int(tb.ctl[at.FREED])
    used = {
        "T": tb.T[:top],
        "F": tb.F[:, :top],
        "jobs": tb.jobs[[i for i in range(at.JOB_FIELDS) if i not in OWN_COLUMNS]],
        "alloc": [plan.held(np.array([slot])).amounts.tolist() for slot in range(plan.jobs.size)],
        "ctl": [n for i, n in enumerate(tb.ctl.tolist()) if i not in COUNTERS_OF_ITS_OWN],
        "shapes": tb.shapes[: slabs.n_shapes],
        "chunks": tb.chunks[: slabs.n_chunks],
        "sets": tb.sets[: slabs.n_sets],
        "costs": tb.costs[: slabs.n_sets],
        "pools": tb.pools[: slabs.n_pools],
    }
    found: dict[str, Any] = {}
    for name in tb._fields:
        if name not in ROOM:
            found[f"tables.{name}"] = _comparable(used.get(name, getattr(tb, name)))
    for part in (plan, slabs, plan.shapes, plan.shapes.candidates, plan._machine, plan._repairs):
        for name, value in _fields(part).items():
            if name == "freed":
                found["freed"] = [array[:, :freed].tolist() for array in value]
                found["sizes"] = slabs._sizes | {"entries": 0}
            elif name != "tb":
                found[f"{type(part).__name__}.{name}"] = _comparable(value)
    return found


@pytest.mark.parametrize("copied", [Plan.fork, _restored])
@pytest.mark.parametrize("seed", range(examples(5)))
def test_fork_copies_every_field_of_every_part(copied: Callable[[Plan], Plan], seed: int) -> None:
    plan = _plan(seed)
    before, found = _all_fields(plan), _all_fields(copied(plan))
    assert before.keys() == found.keys()
    for name, value in before.items():
        if copied is Plan.fork or name not in GIVEN_AGAIN:
            assert found[name] == value, name
    # Otherwise it would equal an initial value.
    empty = _all_fields(Plan([], 0))
    same = {name for name in before if before[name] == empty[name]}
    # A copy counts the fitting nodes again, and looks for the typical speed when it is asked for.
    counted = {"Slabs.most_chunks", "Shapes._spare", "CandidateNodes._named_counts"}
    assert same <= counted | {"Machine._typical_speed"}, same


@dataclass(eq=False)
class _MachineWithMoreFields(Machine):
    """The part of a later version, which has a field more."""

    notes: dict[str, int] = declared(NAMES, make=dict)
    marks: list[int] = declared(NUMBERS, make=list)


@dataclass(eq=False)
class _Silent(Machine):
    """A field more, which does not say how it is copied."""

    notes: dict[str, int] = field(default_factory=dict)


def test_a_field_more_travels_by_being_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    older = _saved(_plan(1))
    for module in (contents_module, plan_module):
        monkeypatch.setattr(module, "Machine", _MachineWithMoreFields)
    plan = _plan(1)
    machine = plan._machine
    assert isinstance(machine, _MachineWithMoreFields)
    machine.notes["a"] = 3
    machine.marks += [1, 2]
    for copy in (plan.fork()._machine, _restored(plan)._machine):
        assert isinstance(copy, _MachineWithMoreFields)
        assert (copy.notes, copy.marks) == ({"a": 3}, [1, 2])
        copy.notes["b"] = copy.marks[0] = 9
    assert (machine.notes, machine.marks) == ({"a": 3}, [1, 2])
    loaded = Plan.load(*older)._machine
    assert isinstance(loaded, _MachineWithMoreFields)
    assert (loaded.notes, loaded.marks) == ({}, []), "as in a new part"


def test_additional_empty_field_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = _saved(_plan(1))
    for module in (contents_module, plan_module):
        monkeypatch.setattr(module, "Machine", _Silent)
    with pytest.raises(KeyError, match="notes"):
        _plan(1).fork()
    with pytest.raises(KeyError, match="notes"):
        Plan.load(*saved)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("with_room", [False, True])
def test_reset_fork_is_like_a_new_one(seed: int, with_room: bool) -> None:
    plan = _plan(seed)
    before = _all_fields(plan)
    fork = plan.fork_with_room() if with_room else plan.fork()
    if with_room:
        assert fork.slabs.tb.alloc.shape[0] > plan.slabs.tb.alloc.shape[0]
    reset = fork.make_reset(plan)
    for now in (5, 9):
        arrays = fork.slabs.tb
        for slot in fork.planned().tolist()[::2]:
            fork.remove(slot, now)
            fork.place(slot, now)
        while not fork.repair(now)[1]:
            pass
        fork.slabs.grow_alloc(10_000)
        fork.slabs.grow_segments(wanted=10_000)
        fork.forget_past(now)
        assert _all_fields(fork) != before
        reset()
        assert fork.slabs.tb.alloc is arrays.alloc, "in the memory of the fork"
        assert _all_fields(fork) == before == _all_fields(plan)


@pytest.mark.parametrize("seed", range(3))
def test_packed_plan_becomes_an_equal_fork(seed: int) -> None:
    plan = _plan(seed)
    before, shape = _all_fields(plan), plan.slabs.tb.F.shape
    packed = plan.pack()
    plan.remove(int(plan.planned()[0]), 5)
    assert _all_fields(plan) != before
    first, second = packed.unpack(), packed.unpack()
    assert _all_fields(first) == before
    assert first.slabs.tb.F.shape == shape, "room to grow decides the progress of repair"
    first.remove(int(first.planned()[0]), 5)
    assert _all_fields(second) == before, "independent of other copies"


@pytest.mark.parametrize("largest", [0, 127, 128, -129, 1 << 31, FOREVER, -(1 << 63)])
@pytest.mark.parametrize("shape", [(7,), (3, 50), (50, 3), (0, 4), (4, 0), (0,)])
def test_packed_array_has_the_same_values_in_less_memory(shape: tuple[int, ...], largest: int) -> None:
    array = np.zeros(shape, np.int64)
    array[..., -1:] = largest
    packed, found = pack_array(array), np.zeros(tuple(2 * n for n in shape), np.int64)
    packed.unpack_into(found)
    assert (found[tuple(map(slice, shape))] == array).all()
    assert found.sum() == array.sum()
    assert packed.size <= array.nbytes
    if largest in {0, 127}:
        assert 8 * packed.size == array.nbytes


@pytest.mark.parametrize("seed", range(3))
def test_size_of_the_allocations_has_no_effect_on_the_rest_of_a_plan(seed: int) -> None:
    """A checkpoint does not keep it."""
    plan = _plan(seed)
    full, roomy = plan.fork(), plan.fork()
    full.slabs.tb = full.slabs.tb._replace(alloc=Compaction.compact_now(full.slabs.tb, full.slabs._held))
    roomy.slabs.grow_alloc(10_000)
    size = full.slabs.tb.alloc.shape[0]
    slots = np.ascontiguousarray(plan.planned()[::-1])
    for one in (full, roomy):
        assert one.displace(slots, np.full(slots.shape[0], 10_000), 0) is not None
    assert full.slabs.tb.alloc.shape[0] > size, "it was full"
    assert _all_fields(full) == _all_fields(roomy)


def test_resource_that_is_added_is_not_held_by_planned_jobs() -> None:
    fork = _plan(1).fork()
    before = fork.slabs.tb.alloc.shape[1]
    fork.set_nodes([Node("n0", 8, 64, 32, 1, (("scratch", 4), ("tape", 1)))], 0)
    assert fork.slabs.tb.alloc.shape[1] == before + 1
    for slot in fork.planned().tolist():
        assert all(take.amounts[-1] == 0 for take in fork.takes(slot))


@pytest.mark.parametrize("copied", [Plan.fork, _restored])
def test_changes_of_a_fork_do_not_affect_the_plan(copied: Callable[[Plan], Plan]) -> None:
    plan = _plan(1)
    before = _all_fields(plan)
    copy = copied(plan)
    copy.set_nodes([Node("n0", 4, 32), Node("new", 8, 16, resources=(("tape", 1),))], 0)
    copy.set_pool("c", 4, 0)
    copy.limit_pool("b", 5, 6, 1, 0)
    for slot in copy.planned().tolist()[::2]:
        copy.drop_job(slot, 0)
    copy.place(copy.add_job(Request((Chunk(2, 3),)), 30, 0, {"c": 1}), 0)
    copy.repair(5)
    copy.forget_past(5)
    assert _all_fields(plan) == before


def test_a_moment_that_a_copy_would_change_to_none_cannot_be_declared() -> None:
    with pytest.raises(ValueError, match="a MOMENT is None by default"):
        declared(MOMENT, default=-1)
