"""Searches agree with the reference planner."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from research.benchmarks.plain import Holding, Plain
from schedd.model import Chunk, Node, Place, Request
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.bounds import STEPS, need_level
from schedd.plan.plan import NOT_BOUND, Plan
from schedd.plan.records import RequestVariant
from tests.plan.mirror import Mirror
from tests.plan.reference import Reference
from tests.plan.strategies import DURATIONS, MOMENTS, chunks, clusters, is_mixed, requests
from tests.property_examples import examples

JOBS = st.lists(st.tuples(requests(sets=True), DURATIONS, MOMENTS), min_size=1, max_size=10)


@given(clusters(), JOBS)
def test_placements_match_the_reference(cluster: list[Node], jobs: list[Any]) -> None:
    mirror = Mirror(Plan(cluster, 0))
    for request, duration, ready in jobs:
        slot = mirror.new(request, duration, ready)
        expected = mirror.earliest(slot, 5)
        assert mirror.plan.probe(slot, 5) == expected
        assert mirror.plan.place(slot, 5) == expected
        if expected >= 0:
            mirror.check_takes(slot)
            ups = {name for name, node in mirror.plan.nodes.items() if node.state == "up"}
            assert {mirror.plan.node_names[take.row] for take in mirror.plan.takes(slot)} <= ups
    mirror.check_timelines(0)
    mirror.check_rooms()
    mirror.check_bounds(5)
    assert not mirror.over_committed(0)


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(20))
def test_units_on_many_nodes_match_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    mirror = Mirror(Plan([Node(f"n{i}", rng.randint(1, 4)) for i in range(24)], 0))
    for _ in range(25):
        request = Request((Chunk(rng.randint(2, 30), rng.choice([1, 1, 2, 4])),), rng.choice(list(Place)))
        slot = mirror.new(request, rng.randint(20, 400), rng.randint(0, 200))
        expected = mirror.earliest(slot, 5)
        assert mirror.plan.place(slot, 5) == expected
        if expected >= 0 and rng.random() < 0.3:  # what it leaves lets rows gain before others end
            mirror.plan.drop_job(slot, 0)
            del mirror.jobs[slot]
    mirror.check_bounds(5)


def test_a_search_notes_until_when_a_node_is_full() -> None:
    """A later search with a later result need not look at that node again."""
    plan = Plan([Node("a", 4), Node("b", 4, features=frozenset({"x"}))], 0)
    half, length = Request((Chunk(1, 2),), Place.FREE), 3600
    for _ in "ab":
        plan.place(plan.add_job(Request((Chunk(1, 4),), Place.FREE), 1_000, 0), 0)
    slot = plan.add_job(half, length, 0)
    assert plan.probe(slot, 0) == 1_000
    longer = Request((Chunk(1, 4, features=(frozenset({"x"}),)),), Place.FREE)
    assert plan.place(plan.add_job(longer, 9_000, 0), 0) == 1_000
    assert plan.probe(slot, 0) == 1_000  # on a; b was free then before
    bounds = plan.tables.bounds[need_level(2, 0) * at.DURATIONS + int(np.searchsorted(STEPS, length))]
    assert bounds[plan.node_rows["b"]] == 10_000


def test_searches_on_thousands_of_nodes_match_the_plain_checker() -> None:
    rng = random.Random(5)
    nodes = [Node(f"n{i:04}", rng.choice([2, 4, 8])) for i in range(2000)]
    plan = Plan(nodes, 0)
    holdings: list[Holding] = []
    for number in range(120):
        many = rng.random() < 0.6
        request = Request((Chunk(rng.choice([2, 30, 300, 1500]) if many else 1, rng.choice([1, 2, 3, 8])),))
        duration, ready = rng.randint(20, 4000), rng.choice([0, 0, 700])
        slot = plan.add_job(request, duration, ready)
        start = plan.place(slot, 0)
        if number % 6 == 0:
            assert start == Plain(nodes, holdings).earliest(request, duration, ready)
        holdings += (
            Holding(plan.node_names[take.row], start, start + duration, take.amounts[0], 0, 0)
            for take in plan.takes(slot)
        )
    assert not Plain(nodes, holdings).over_committed()


@given(
    clusters(3), st.lists(st.tuples(requests(mixed=False), st.integers(1, 6), st.integers(0, 9)), max_size=6)
)
def test_the_reference_passes_over_no_second(cluster: list[Node], jobs: list[Any]) -> None:
    mirror = Mirror(Plan(cluster, 0))
    for request, duration, ready in jobs:
        slot = mirror.new(request, duration, ready)
        assert mirror.plan.place(slot, 0) == mirror.reference(slot).brute(request, duration, ready, 60)


@given(clusters(), JOBS, st.dictionaries(st.sampled_from("ab"), st.integers(0, 4), min_size=2), st.data())
def test_job_waits_until_all_its_pools_have_room(
    cluster: list[Node], jobs: list[Any], pools: dict[str, int], data: st.DataObject
) -> None:
    mirror = Mirror(Plan(cluster, 0))
    for name, size in pools.items():
        mirror.plan.set_pool(name, size, 0)
        mirror.pool_sizes[name] = size
    if data.draw(st.booleans()):
        limit = ("a", data.draw(MOMENTS), data.draw(MOMENTS) + 401, data.draw(st.integers(-2, 2)))
        mirror.plan.limit_pool(*limit, 0)
        mirror.limits.append(limit)
    for request, duration, ready in jobs:
        if is_mixed(request):
            continue
        asked = data.draw(st.dictionaries(st.sampled_from("ab"), st.integers(0, 3)))
        slot = mirror.new(request, duration, ready, asked)
        assert mirror.plan.place(slot, 5) == mirror.earliest(slot, 5)
    mirror.check_timelines(0)


@given(clusters(), JOBS, MOMENTS)
def test_no_start_lies_beyond_the_bound(cluster: list[Node], jobs: list[Any], bound: int) -> None:
    mirror = Mirror(Plan(cluster, 0))
    for request, duration, ready in jobs:
        slot = mirror.new(request, duration, ready)
        expected = mirror.earliest(slot, 0)
        within = expected if 0 <= expected < bound else -1
        assert mirror.plan.probe(slot, 0, bound) == within
        assert mirror.plan.place(slot, 0) == expected
    mirror.check_bounds(0)


@given(clusters(), JOBS, MOMENTS)
def test_the_first_startable_job_is_the_first_that_fits_now(
    cluster: list[Node], jobs: list[Any], now: int
) -> None:
    mirror = Mirror(Plan(cluster, 0))
    for request, duration, ready in jobs[::2]:
        mirror.plan.place(mirror.new(request, duration, ready), 0)
    waiting = [mirror.new(request, duration, ready) for request, duration, ready in jobs[1::2]]
    now += 400  # after all the placing
    fit = [
        i
        for i, slot in enumerate(waiting)
        if mirror.jobs[slot][2] <= now and mirror.earliest(slot, now) == now
    ]
    slots = np.array(waiting, np.int64)
    for begin in range(len(waiting) + 1):
        expected = min((i for i in fit if i >= begin), default=len(waiting))
        assert mirror.plan.first_startable(slots, begin, now) == expected


@given(clusters(), JOBS)
def test_a_probe_changes_nothing(cluster: list[Node], jobs: list[Any]) -> None:
    mirror = Mirror(Plan(cluster, 0))
    for request, duration, ready in jobs:
        slot = mirror.new(request, duration, ready)
        before = {f: getattr(mirror.plan.tables, f).copy() for f in ("T", "F", "rows", "jobs", "alloc")}
        mirror.plan.probe(slot, 0)
        for name, array in before.items():
            assert np.array_equal(getattr(mirror.plan.tables, name), array)
        mirror.plan.place(slot, 0)


def room_at(ref: Reference, node: Node, chunk: Chunk, start: int, end: int) -> int:
    """The cpus that a node leaves a unit from one moment to another; -1: it has no room."""
    if node.state != "up" or node not in ref.eligible(chunk):
        return -1
    least = ref.least(node, start, end)[0]
    return least["cpus"] if all(least[name] >= need for name, need in ref.need(chunk).items()) else -1


ONE_KIND = st.lists(
    st.tuples(
        st.builds(
            lambda chunk, place: Request((chunk,), place),
            chunks(),
            st.sampled_from([Place.SCATTER, Place.FREE, Place.PACK]),
        ),
        DURATIONS,
        MOMENTS,
    ),
    min_size=1,
    max_size=10,
)


RANKS = st.lists(st.integers(0, 2), max_size=8)
"""Ranks of the first nodes; empty: no order."""


def set_order(plan: Plan, cluster: list[Node], ranks: list[int]) -> str:
    """Give the plan an order of nodes; returns its name."""
    named = {node.name: rank for node, rank in zip(cluster, ranks, strict=False)}
    plan.set_node_orders({"site": named} if ranks else {})
    return "site" if ranks else ""


def rank_in(ranks: list[int], i: int) -> int:
    """The rank of a node; nodes without one come last."""
    return ranks[i] if i < len(ranks) else 10 if ranks else 0


@given(clusters(), ONE_KIND, st.booleans(), RANKS)
@settings(max_examples=examples(150))
def test_single_unit_goes_to_the_cheapest_then_tightest_node(
    cluster: list[Node], jobs: list[Any], weighed: bool, ranks: list[int]
) -> None:
    mirror = Mirror(Plan(cluster, 0))
    order = set_order(mirror.plan, cluster, ranks)
    for request, duration, ready in jobs:
        slot = mirror.new(replace(request, node_order=order), duration, ready)
        if weighed:
            mirror.weigh()
        ref = mirror.reference()
        start = mirror.plan.place(slot, 0)
        if start < 0 or request.units > 1:
            continue
        (chunk,) = request.chunks
        room = [room_at(ref, node, chunk, start, start + duration) for node in cluster]
        cost = [(rank_in(ranks, i), ref.cost(chunk, node)) for i, node in enumerate(cluster)]
        fits = [(*cost[i], room[i], i) for i in range(len(cluster)) if room[i] >= 0]
        assert mirror.plan.takes(slot)[0].row == min(fits)[-1]


@given(clusters(), ONE_KIND, st.booleans(), RANKS)
@settings(max_examples=examples(150))
def test_scattered_units_go_to_the_cheapest_nodes(
    cluster: list[Node], jobs: list[Any], weighed: bool, ranks: list[int]
) -> None:
    mirror = Mirror(Plan(cluster, 0))
    order = set_order(mirror.plan, cluster, ranks)
    for request, duration, ready in jobs:
        slot = mirror.new(replace(request, node_order=order), duration, ready)
        if weighed:
            mirror.weigh()
        ref = mirror.reference()
        start = mirror.plan.place(slot, 0)
        if start < 0 or request.place is not Place.SCATTER:
            continue
        (chunk,) = request.chunks
        room = [room_at(ref, node, chunk, start, start + duration) for node in cluster]
        cost = [(rank_in(ranks, i), ref.cost(chunk, node)) for i, node in enumerate(cluster)]
        fits = [(*cost[i], room[i], i) for i in range(len(cluster)) if room[i] >= 0]
        assert {take.row for take in mirror.plan.takes(slot)} == {i for *_, i in sorted(fits)[: chunk.count]}


@given(clusters(), JOBS, RANKS)
def test_node_costs_delay_no_equal_units(cluster: list[Node], jobs: list[Any], ranks: list[int]) -> None:
    """Each job on top of the same others, placed by either rule."""
    plan = Plan(cluster, 0)
    order = set_order(plan, cluster, ranks)
    for request, duration, ready in jobs:
        if len(request.chunks) > 1 and request.place is Place.FREE:
            continue  # first fit is not monotonous
        other = plan.fork()
        other.spare_scarce(False)
        slot = plan.add_job(replace(request, node_order=order), duration, ready)
        assert other.add_job(request, duration, ready) == slot
        assert plan.place(slot, 0) == other.place(slot, 0)


def test_now_may_decrease() -> None:
    plan = Plan([Node("a", 4)], 0)
    first = plan.add_job(Request((Chunk(cpus=4),)), 100, 0)
    assert plan.probe(first, 500) == 500
    assert plan.place(first, 100) == 100


def test_a_node_free_first_and_another_later_are_no_gap() -> None:
    plan = Plan([Node("a", 1), Node("b", 1)], 0)
    on_a = plan.add_job(Request((Chunk(cpus=1, features=(frozenset({"a"}),)),)), 100, 100)
    on_b = plan.add_job(Request((Chunk(cpus=1, features=(frozenset({"b"}),)),)), 100, 0)
    assert (plan.place(on_a, 0), plan.place(on_b, 0)) == (100, 0)
    long = plan.add_job(Request((Chunk(cpus=1),)), 150, 0)
    assert plan.place(long, 0) == 100


def test_a_request_that_fits_nowhere_is_not_placed() -> None:
    plan = Plan([Node("a", 4)], 0)
    slot = plan.add_job(Request((Chunk(cpus=5),)), 100, 0)
    assert plan.place(slot, 0) == -1
    assert plan.state(slot) == at.UNPLACED
    assert plan.place(slot, 0, NOT_BOUND) == -1


def test_more_units_than_nodes_are_matched_exactly() -> None:
    nodes = [Node("small", 2), Node("mid", 4), Node("large", 8)]
    plan = Plan(nodes, 0)
    wide = Request((Chunk(cpus=2), Chunk(cpus=8), Chunk(cpus=3)), Place.SCATTER)
    slot = plan.add_job(wide, 10, 0)
    assert plan.place(slot, 0) == 0
    assert [plan.node_names[take.row] for take in plan.takes(slot)] == ["small", "large", "mid"]


@given(clusters(), JOBS, st.integers(5, 30))
def test_job_is_placed_at_a_later_start_without_loss_of_what_searches_know(
    cluster: list[Node], jobs: list[Any], start: int
) -> None:
    mirror = Mirror(Plan(cluster, 0))
    plan = mirror.plan
    plan.discard_freed()
    for request, duration, ready in jobs:
        slot = mirror.new(request, duration, ready)
        fits = mirror.earliest(slot, max(start, ready)) == start
        assert plan.fits_at_start(slot, start, 5) == fits
        assert plan.place_at_start(slot, start, 5) == fits
        assert (plan.start(slot), plan.ready(slot)) == (start if fits else -1, ready)
        assert plan.searched_from == 5
        assert not plan.freed
    mirror.check_bounds(5)
    assert not mirror.over_committed(0)


@given(
    clusters(),
    JOBS,
    st.lists(st.tuples(requests(sets=True), DURATIONS, MOMENTS), max_size=4),
    st.integers(0, 60),
    st.sampled_from([0, 30, 200, NOT_BOUND]),
)
def test_best_variant_is_the_first_to_end_of_those_in_time(
    cluster: list[Node], jobs: list[Any], variants: list[Any], ready: int, promised: int
) -> None:
    mirror = Mirror(Plan(cluster, 0))
    mirror.plan.set_pool("p", 2, 0)
    mirror.pool_sizes["p"] = 2
    for i, (request, duration, start) in enumerate(jobs):
        mirror.plan.place(mirror.new(request, duration, start, {"p": i % 2}), 0)
    request, duration, _ = jobs[0]
    slot = mirror.new(request, duration, 0, {"p": 1})
    tried = [
        RequestVariant(one, seconds, {"p": i % 3} if i % 3 else {})
        for i, (one, seconds, _) in enumerate(variants)
    ]
    reference = mirror.reference(slot)
    found = []
    for i, one in enumerate(tried):
        start = reference.earliest(one.request, one.duration, ready, pools=dict(one.pools))
        if start >= 0:
            found.append((start > promised, start + one.duration, start, i))
    _, _, start, best = min(found, default=(False, 0, -1, -1))
    before = [mirror.plan.start(slot), mirror.plan.variant(slot), mirror.plan.slabs.n_pools]
    assert mirror.plan.find_best_variant(slot, tried, 0, ready, promised=promised) == (best, start)
    assert [mirror.plan.start(slot), mirror.plan.variant(slot), mirror.plan.slabs.n_pools] == before
    if best >= 0:
        mirror.plan.set_variant(slot, tried[best], 0)
        mirror.plan.set_ready(slot, ready)
        mirror.jobs[slot] = (tried[best].request, tried[best].duration, ready, dict(tried[best].pools))
        assert mirror.plan.place(slot, 0) == start
        mirror.check_takes(slot)
    mirror.check_timelines(0)
