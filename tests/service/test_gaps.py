"""Gaps of free capacity agree with the placements."""

from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.service.read.gaps import find_gaps, gaps_on
from schedd.service.read.plan_lists import bars_in_window
from schedd.wire import JobQueued, NodeChanged, NodeFacts, PlanningHeld, Reserve
from tests.property_examples import examples
from tests.service.planner_harness import GIB, T, event_id, job, node, planner
from tests.waits import WAIT_S


@st.composite
def random_events(draw: st.DrawFn) -> list[NodeChanged | JobQueued]:
    cpus = draw(st.lists(st.sampled_from([1, 4, 16]), min_size=1, max_size=4))
    states = draw(st.lists(st.sampled_from(["up", "up", "up", "drain", "down"]), min_size=4, max_size=4))
    events: list[NodeChanged | JobQueued] = [node(f"n{i}", n, state=states[i]) for i, n in enumerate(cpus)]
    for i in range(draw(st.integers(0, 12))):
        shape = draw(st.sampled_from(["1:ppn=1", "1:ppn=3", "2:ppn=1", "1:ppn=16", "2:ppn=4"]))
        walltime = draw(st.sampled_from(["60", "600", "3600", "7200"]))
        events.append(job(str(i), nodes=shape, walltime=walltime, mem="1gb"))
    return events


@settings(max_examples=examples(40))
@given(random_events(), st.integers(-100, 8_000), st.integers(1, 20_000))
def test_free_plus_used_equals_node_capacity_at_every_time(
    events: list[NodeChanged | JobQueued], first: int, length: int
) -> None:
    begin, end = T + first, T + first + length
    with planner(publish_starts=False) as loop:
        loop.submit(events).result(WAIT_S)
        published = loop.published
    found = find_gaps(published, begin, end)
    assert list(gaps_on(published, begin, end, published.nodes.keys())) == list(found.gaps)
    some = {"n0", "n2", "unknown"}
    assert list(gaps_on(published, begin, end, some)) == [gap for gap in found.gaps if gap.node in some]
    placed = bars_in_window(published, begin, end, limit=10_000).rows
    machines: list[NodeFacts] = [facts for facts in published.nodes.values() if facts.state == "up"]
    edges = {gap.start for gap in found.gaps} | {bar.start for bar in placed} | {bar.end for bar in placed}
    for moment in sorted({t for t in edges | {begin, end - 1} if max(begin, T) <= t < end}):
        free_cpus = idle = 0
        for machine in machines:
            shares = [s for bar in placed if bar.start <= moment < bar.end for s in bar.nodes]
            here = [share for share in shares if share.node == machine.name]
            rest = machine.cpus - sum(share.cpus for share in here)
            gap = [g for g in found.gaps if g.node == machine.name and g.start <= moment < g.end]
            assert [g.cpus for g in gap] == ([rest] if rest > 0 else [])
            if gap:
                assert gap[0].mem == machine.mem - sum(share.mem for share in here)
            free_cpus += max(rest, 0)
            idle += not here
        total = [step for step in found.totals if step.start <= moment < step.end]
        assert [(step.cpus, step.idle_nodes) for step in total] == ([(free_cpus, idle)] if machines else [])


@settings(max_examples=examples(40))
@given(random_events(), st.integers(0, 8_000), st.integers(1, 20_000), st.integers(1, 5))
def test_from_begin_returns_the_first_contiguous_gaps(
    events: list[NodeChanged | JobQueued], first: int, length: int, cpus: int
) -> None:
    begin, end = T + first, T + first + length
    with planner(publish_starts=False) as loop:
        loop.submit(events).result(WAIT_S)
        published = loop.published
    expected, reached = [], dict.fromkeys(published.nodes, begin)
    for gap in find_gaps(published, begin, end, cpus=cpus).gaps:
        if gap.start == reached[gap.node]:
            expected.append(gap)
            reached[gap.node] = gap.end
    found = find_gaps(published, begin, end, cpus=cpus, from_begin=True)
    assert list(found.gaps) == expected
    assert (found.totals, found.next) == ((), None)


def test_gaps_are_listed_by_node_and_continue_at_the_cursor() -> None:
    with planner(publish_starts=False) as loop:
        loop.submit([node(f"n{i}") for i in range(5)]).result(WAIT_S)
        published = loop.published
    seen = []
    cursor: str | None = None
    while True:
        page = find_gaps(published, T, T + 60, cursor=cursor, limit=2)
        seen.append([gap.node for gap in page.gaps])
        assert page.totals[0].idle_nodes == 5
        cursor = page.next
        if cursor is None:
            break
    assert seen == [["n0", "n1"], ["n2", "n3"], ["n4"]]


def test_reserved_and_blocked_nodes_have_no_gap() -> None:
    with planner(publish_starts=False) as loop:
        reserve = Reserve(id=event_id(), time=T, name="r", nodes=("n1",), start=T + 100, end=T + 200)
        held = PlanningHeld(id=event_id(), time=T, kind="node", name="n2", reason="a fan")
        loop.submit([node("n1"), node("n2"), reserve, held]).result(WAIT_S)
        published = loop.published
    found = find_gaps(published, T, T + 300)
    assert [(gap.node, gap.start - T, gap.end - T) for gap in found.gaps] == [
        ("n1", 0, 100),
        ("n1", 200, 300),
    ]
    assert [(step.start - T, step.cpus) for step in found.totals] == [(0, 4), (100, 0), (200, 4)]
    now = find_gaps(published, T, T + 300, from_begin=True)
    assert [(gap.node, gap.start - T, gap.end - T) for gap in now.gaps] == [("n1", 0, 100)]
    assert find_gaps(published, T + 150, T + 300, from_begin=True).gaps == ()


def test_gaps_with_few_cpus_can_be_left_out() -> None:
    with planner(publish_starts=False) as loop:
        loop.submit([node("n1"), job("1", nodes="1:ppn=3", mem="8gb")]).result(WAIT_S)
        published = loop.published
    assert [gap.cpus for gap in find_gaps(published, T, T + 9000).gaps] == [1, 4]
    assert [gap.mem for gap in find_gaps(published, T, T + 9000).gaps] == [0, 8 * GIB]
    assert [gap.cpus for gap in find_gaps(published, T, T + 9000, cpus=2).gaps] == [4]
