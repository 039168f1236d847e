"""What blocks a job is sufficient and minimal, shown by removing it."""

from collections.abc import Iterable
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from schedd.model import Chunk, Node, NodeState, Place, Request
from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan
from schedd.plan.views import Blockers, PlanBlocker, find_blockers
from tests.plan.strategies import clusters, requests
from tests.property_examples import examples

SHORT = st.integers(1, 8)
JOBS = st.lists(st.tuples(requests(), st.integers(3, 20), st.integers(0, 3)), min_size=3, max_size=14)
HORIZON = 1 << 30


def start_without(plan: Plan, slot: int, items: Iterable[PlanBlocker], now: int) -> int:
    """Where the job would start in a plan made for this one question."""
    trial = plan.fork()
    for item in items:
        if item.slot >= 0:
            trial.remove(item.slot, now)
        else:
            trial.tables.rows[item.row, at.USABLE] = 1
    return trial.probe(slot, now, HORIZON)


def check(plan: Plan, slot: int, now: int) -> Blockers:
    before = [array.copy() for array in plan.tables[1:5]]
    fork = plan.fork()
    found = find_blockers(fork, slot, now, HORIZON)
    again = find_blockers(fork, slot, now, HORIZON)
    assert found == again  # the copy is unchanged
    assert all((a == b).all() for a, b in zip(before, plan.tables[1:5], strict=True))
    start = start_without(plan, slot, (), now)
    assert found.start == start
    if not found.items:
        assert found.earliest in (start, -1)
        return found
    assert 0 <= found.earliest < (start if start >= 0 else HORIZON)
    assert start_without(plan, slot, found.items, now) == found.earliest
    for one in found.items:
        assert start_without(plan, slot, [i for i in found.items if i != one], now) != found.earliest
    sooner = [item for item in found.items if item.sooner]
    assert sooner
    without = start_without(plan, slot, sooner, now)
    assert found.earliest <= without == found.without
    assert start < 0 or without < start
    for one in sooner:
        less = start_without(plan, slot, [i for i in sooner if i != one], now)
        assert less < 0 or less >= start >= 0
    return found


@st.composite
def machines(draw: st.DrawFn) -> list[Node]:
    """Draw nodes that fit nearly all of ``wishes``."""
    states = st.sampled_from([NodeState.UP, NodeState.UP, NodeState.UP, NodeState.UP, NodeState.DOWN])
    return [
        Node(f"n{i}", 4, mem=8, gpus=draw(st.integers(0, 2)), state=draw(states))
        for i in range(draw(st.integers(2, 4)))
    ]


@st.composite
def narrow_requests(draw: st.DrawFn) -> Request:
    parts = draw(st.integers(1, 2))
    chunks = [
        Chunk(
            draw(st.integers(1, 3)),
            cpus=draw(st.integers(1, 4)),
            mem=draw(st.sampled_from([0, 1, 4])),
            gpus=draw(st.sampled_from([0, 0, 0, 1])),
        )
        for _ in range(parts)
    ]
    place = draw(st.sampled_from([Place.FREE, Place.FREE, Place.SCATTER]))
    return Request(tuple(chunks), place, exclusive=draw(st.sampled_from([False, False, False, True])))


@settings(max_examples=examples(200))
@given(
    machines(),
    st.lists(st.tuples(narrow_requests(), st.integers(2, 30), st.integers(0, 3)), min_size=2, max_size=12),
    narrow_requests(),
    st.integers(1, 30),
    st.integers(0, 10),
)
def test_job_starts_earlier_only_without_all_its_blockers(
    cluster: list[Node], jobs: list[Any], request: Request, duration: int, ready: int
) -> None:
    plan = Plan(cluster, 0)
    for other, its, its_ready in jobs:
        plan.place(plan.add_job(other, its, its_ready), 0)
    found = check(plan, plan.add_job(request, duration, ready), 0)
    event(f"{min(len(found.items), 3)} blockers, {min(sum(i.sooner for i in found.items), 3)} sooner")
    if found.items:
        assert found.earliest == ready


@settings(max_examples=examples(50))
@given(clusters(4), JOBS, requests(), SHORT)
def test_blockers_are_found_for_every_kind_of_request(
    cluster: list[Node], jobs: list[Any], request: Request, duration: int
) -> None:
    plan = Plan(cluster, 0)
    for other, its, ready in jobs:
        plan.place(plan.add_job(other, its, ready), 0)
    check(plan, plan.add_job(request, duration, 0), 0)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.integers(1, 4), SHORT, st.integers(0, 3)), max_size=8), st.integers(1, 4))
def test_jobs_that_hold_a_limit_are_its_blockers(jobs: list[tuple[int, int, int]], amount: int) -> None:
    plan = Plan([Node("a", 4), Node("b", 4)], 0)
    plan.set_pool("licence", 4, 0)
    plan.limit_pool("licence", 5, 9, -2, 0)
    for cpus, duration, held in jobs:
        plan.place(plan.add_job(Request((Chunk(cpus=cpus),)), duration, 0, {"licence": held}), 0)
    check(plan, plan.add_job(Request((Chunk(cpus=1),)), 3, 0, {"licence": amount}), 0)


def test_jobs_on_nodes_are_blockers_also_after_a_time_of_less_capacity() -> None:
    plan = Plan([Node("a", 4), Node("b", 4)], 0)
    plan.set_pool("licence", 4, 0)
    plan.limit_pool("licence", 0, 9, -2, 0)
    other = placed(plan, 0, 50, "a", cpus=1)
    slot = plan.add_job(Request((Chunk(2, cpus=4),), Place.SCATTER), 3, 0, {"licence": 4})
    found = check(plan, slot, 0)
    assert (found.earliest, found.start) == (9, 50)
    assert [item.slot for item in found.items] == [other]


def placed(plan: Plan, start: int, duration: int, *nodes: str, cpus: int, mem: int = 0) -> int:
    """A job that holds all or some of the nodes."""
    request = Request((Chunk(len(nodes), cpus=cpus, mem=mem),), Place.SCATTER)
    slot = plan.add_job(request, duration, start)
    assert plan.place(slot, 0) == start
    assert {plan.node_names[take.row] for take in plan.takes(slot)} == set(nodes)
    return slot


def test_blockers_have_the_resources_and_nodes_they_hold() -> None:
    plan = Plan([Node("a", 4, mem=8), Node("b", 4, mem=8)], 0)
    first = placed(plan, 0, 100, "a", cpus=1, mem=7)
    second = placed(plan, 0, 200, "b", cpus=4, mem=1)
    slot = plan.add_job(Request((Chunk(2, cpus=1, mem=2),), Place.SCATTER), 10, 0)
    found = check(plan, slot, 0)
    assert (found.earliest, found.start, found.without) == (0, 200, 100)
    said = {
        item.slot: [(plan.node_names[hold.row], hold.columns) for hold in item.holds] for item in found.items
    }
    assert said == {first: [("a", (at.MEM,))], second: [("b", (at.CPUS,))]}
    assert [item.slot for item in found.items if item.sooner] == [second]


def test_the_set_of_blockers_is_small() -> None:
    plan = Plan([Node("a", 4), Node("b", 4)], 0)
    for _ in range(4):
        placed(plan, 0, 50, "a", cpus=1)
    large = placed(plan, 0, 100, "b", cpus=4)
    found = check(plan, plan.add_job(Request((Chunk(cpus=4),)), 10, 0), 0)
    assert [item.slot for item in found.items] == [large]


def test_unusable_node_is_a_blocker_if_no_job_is() -> None:
    plan = Plan([Node("a", 4), Node("b", 4, state=NodeState.DOWN)], 0)
    found = check(plan, plan.add_job(Request((Chunk(2, cpus=4),), Place.SCATTER), 10, 0), 0)
    assert (found.earliest, found.start, found.without) == (0, -1, 0)
    assert [(item.slot, plan.node_names[item.row]) for item in found.items] == [(-1, "b")]
    busy = placed(plan, 0, 50, "a", cpus=1)
    found = check(plan, plan.add_job(Request((Chunk(2, cpus=4),), Place.SCATTER), 10, 0), 0)
    assert {item.slot for item in found.items} == {busy, -1}


def test_job_that_starts_as_early_as_allowed_has_no_blockers() -> None:
    plan = Plan([Node("a", 4)], 0)
    placed(plan, 0, 50, "a", cpus=4)
    assert check(plan, plan.add_job(Request((Chunk(cpus=4),)), 10, 70), 0) == Blockers(70, 70, 70, ())
