"""Every operation ends after bounded work, whatever the request."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.model import Chunk, Node, NodeSets, Place, Request
from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan
from schedd.plan.records import Take
from schedd.plan.work_limits import WorkSpent
from tests.plan.mirror import Mirror
from tests.property_examples import examples

GB = 1 << 20
_ANYTHING: Any = None


def _check(plan: Plan) -> None:
    """Every timeline is its capacity less what placed jobs hold."""
    mirror = Mirror(plan)
    mirror.jobs = dict.fromkeys(np.flatnonzero(plan.tables.jobs[at.STATE] > at.UNPLACED).tolist(), _ANYTHING)
    mirror.check_timelines(0)
    mirror.check_rooms()


def _kinds(n: int) -> Request:
    """Chunks that differ only in memory, so that each is placed separately."""
    return Request(tuple(Chunk(count=1, cpus=1, mem=1024 * (100 + i)) for i in range(n)))


@pytest.mark.parametrize(("kinds", "nodes"), [(16, 1), (40, 4), (64, 8), (200, 2)])
def test_job_of_many_chunks_is_placed_removed_and_repaired(kinds: int, nodes: int) -> None:
    plan = Plan([Node(f"n{i}", cpus=256, mem=512 * GB) for i in range(nodes)], 0)
    before = plan.add_job(Request((Chunk(cpus=256),)), 50, 0)
    assert plan.place(before, 0) == 0
    slot = plan.add_job(_kinds(kinds), 100, 0)
    assert plan.place(slot, 0) == (0 if nodes > 1 else 50)
    plan.drop_job(before, 0)
    plan.repair(0)
    assert plan.start(slot) == 0
    assert len(plan.takes(slot)) == kinds
    plan.remove(slot, 0)
    assert plan.place(slot, 0) == 0


def test_job_of_many_chunks_moves_in_small_slices_of_repair() -> None:
    plan = Plan([Node("n", cpus=256, mem=512 * GB)], 0)
    before = plan.add_job(Request((Chunk(cpus=256),)), 50, 0)
    plan.place(before, 0)
    slot = plan.add_job(_kinds(64), 100, 0)
    plan.place(slot, 0)
    plan.remove(before, 0)
    slices = 0
    while not plan.repair(0, 50)[1]:
        slices += 1
        assert slices < 200
    assert plan.start(slot) == 0


def test_running_job_may_hold_one_node_in_many_takes() -> None:
    plan = Plan([Node("n", cpus=64, mem=64 * GB)], 0)
    slot = plan.add_job(Request((Chunk(cpus=64),)), 100, 0)
    plan.fix(slot, 0, [Take(0, 0, 1, (1, 1, 0, 0))] * 64)
    _check(plan)
    other = plan.add_job(Request((Chunk(cpus=1),)), 10, 0)
    assert plan.place(other, 0) == 100
    plan.set_duration(slot, 50, 0)
    plan.repair(0)
    assert plan.start(other) == 50
    plan.drop_job(slot, 0)
    _check(plan)


def test_a_job_may_need_many_pools() -> None:
    plan = Plan([Node("n", cpus=4)], 0)
    names = [f"p{i}" for i in range(300)]
    for name in names:
        plan.set_pool(name, 5, 0)
    slot = plan.add_job(Request((Chunk(cpus=1),)), 100, 0, dict.fromkeys(names, 3))
    other = plan.add_job(Request((Chunk(cpus=1),)), 100, 0, dict.fromkeys(names, 3))
    assert plan.place(slot, 0) == 0
    assert plan.place(other, 0) == 100
    plan.set_pools(other, dict.fromkeys(names, 1), 0)
    plan.repair(0)
    assert plan.start(other) == 0


def _crowded(nodes: int, jobs: int) -> Plan:
    """Nodes with many short jobs of different lengths: a change nearly every second."""
    plan = Plan([Node(f"n{i}", cpus=32, mem=64 * GB) for i in range(nodes)], 0)
    for i in range(jobs):
        slot = plan.add_job(Request((Chunk(cpus=1 + i % 29),)), 40 + 7 * i % 53, 0)
        plan.place(slot, 0)
    return plan


def _hard(plan: Plan) -> int:
    """A job with chunks that fit nearly always separately, and never together for long."""
    last = plan.add_job(Request((Chunk(cpus=1),), exclusive=True), 100_000, 0)
    plan.place(last, 0)
    kinds = tuple(Chunk(cpus=1 + i % 3, mem=(1 + i) * 1024) for i in range(len(plan.nodes)))
    return plan.add_job(Request(kinds, Place.SCATTER), 5, 0)


def test_search_beyond_its_work_limit_ends_without_changes() -> None:
    plan = _crowded(12, 600)
    slot = _hard(plan)
    plan.limit_work(each=20_000)
    before = plan.work
    with pytest.raises(WorkSpent, match="20,000"):
        plan.probe(slot, 0)
    with pytest.raises(WorkSpent):
        plan.place(slot, 0)
    assert plan.work - before < 2 * 60_000
    assert plan.start(slot) < 0
    _check(plan)
    easy = plan.add_job(Request((Chunk(cpus=1),)), 10, 0)
    assert plan.place(easy, 0) >= 0
    plan.limit_work()
    assert plan.place(slot, 0) > 0


def test_request_ends_when_its_searches_reach_the_work_limit() -> None:
    fork = _crowded(12, 600).fork()
    slot = fork.add_job(Request((Chunk(count=6, cpus=16),)), 50, 0)
    fork.limit_work(all_of_them=50_000)
    before = fork.work
    fork.probe(slot, 0)
    with pytest.raises(WorkSpent):
        [fork.probe(slot, 0) for _ in range(100_000)]
    assert fork.work - before < 60_000
    with pytest.raises(WorkSpent):
        fork.fork().probe(slot, 0)


def test_aborted_request_ends_at_its_next_search() -> None:
    fork = _crowded(4, 10).fork()
    slot = fork.add_job(Request((Chunk(cpus=1),)), 50, 0)
    fork.abort_searches()
    with pytest.raises(WorkSpent, match="given up"):
        fork.probe(slot, 0)


def test_repair_does_not_move_a_job_whose_search_exceeds_the_limit() -> None:
    plan = _crowded(12, 600)
    slot = _hard(plan)
    start = plan.place(slot, 0)
    plan.limit_work(each=1_000)
    plan.mark_for_search(slot)
    before = plan.work
    moves, done = plan.repair(0)
    assert done
    assert not len(moves)
    assert plan.work - before < 20_000
    assert plan.start(slot) == start
    _check(plan)


_SIZES = st.sampled_from([1, 2, 3, 64, 1000, 100_000, 1 << 40, 1 << 59])
_ANY = st.builds(
    Chunk,
    count=st.sampled_from([1, 2, 7, 64, 5000, 1 << 20]),
    cpus=st.sampled_from([0, 1, 3, 64, 1024, 1 << 20]),
    mem=st.sampled_from([0, 1, 100 * 1024, GB, 1 << 30]),
    gpus=st.sampled_from([0, 0, 0, 1, 1 << 20]),
)
_SHAPES = st.builds(
    Request,
    st.lists(_ANY, min_size=1, max_size=70).map(tuple),
    st.sampled_from(list(Place)),
    exclusive=st.booleans(),
    together=st.none() | st.sampled_from([NodeSets(by="rack", wait=0), NodeSets(by="rack", wait=None)]),
)
_NODES = st.lists(
    st.builds(
        Node,
        st.just("n"),
        cpus=st.sampled_from([0, 1, 4, 64, 1024, 1 << 20]),
        mem=st.sampled_from([0, GB, 1 << 45]),
        gpus=st.sampled_from([0, 4]),
        features=st.sampled_from([frozenset(), frozenset({"rack=a"}), frozenset({"rack=b"})]),
    ),
    min_size=1,
    max_size=9,
)


@settings(max_examples=examples(300))
@given(_NODES, st.lists(st.tuples(_SHAPES, _SIZES), min_size=1, max_size=12), st.data())
def test_mixed_shapes_on_tiny_and_huge_nodes_need_bounded_work(
    nodes: list[Node], jobs: list[Any], data: st.DataObject
) -> None:
    named = [Node(f"n{i}", n.cpus, n.mem, gpus=n.gpus, features=n.features) for i, n in enumerate(nodes)]
    plan = Plan(named, 0)
    each = 200_000
    plan.limit_work(each=each)
    slots = []
    for request, duration in jobs:
        slot = plan.add_job(request, duration, 0)
        slots.append(slot)
        before = plan.work
        try:
            plan.place(slot, 0)
        except WorkSpent:
            assert plan.start(slot) < 0
        assert plan.work - before < 4 * each
    gone = data.draw(st.sampled_from(slots))
    plan.drop_job(gone, 0)
    slots.remove(gone)
    slices = 0
    while not plan.repair(0, 10_000)[1]:
        slices += 1
        assert slices < 1000
    if slots:
        held = data.draw(st.sampled_from(slots))
        pieces = data.draw(st.integers(1, 100))
        plan.remove(held, 0)
        plan.fix(held, 0, [Take(data.draw(st.integers(0, len(named) - 1)), 0, 1, (1, 1, 1, 0))] * pieces)
        plan.set_duration(held, 5, 0)
    plan.remove_overcommitted(plan.planned())
    _check(plan)
    assert np.all(plan.starts(plan.planned()) >= 0)
