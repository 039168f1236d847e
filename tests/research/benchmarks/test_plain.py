"""The checker that the benchmarks use agrees with the reference planner and with the plan."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from research.benchmarks.plain import Holding, Plain
from schedd.model import Node
from schedd.plan.plan import Plan
from tests.plan.mirror import Mirror
from tests.plan.strategies import DURATIONS, MOMENTS, clusters, requests

KNOWN = requests(extras=False).filter(lambda request: len(request.chunks) == 1)


def _holdings(mirror: Mirror, but: int = -1) -> list[Holding]:
    plan = mirror.plan
    return [
        Holding(
            plan.node_names[take.row], plan.start(slot), plan.end(slot), take.amounts[0], take.amounts[2],
            take.amounts[3], request.exclusive,
        )
        for slot, (request, *_) in mirror.jobs.items()
        if slot != but
        for take in plan.takes(slot)
    ]  # fmt: skip


@given(clusters(extras=False), st.lists(st.tuples(KNOWN, DURATIONS, MOMENTS), min_size=1, max_size=10))
def test_the_plain_checker_the_reference_and_the_plan_agree(cluster: list[Node], jobs: list[Any]) -> None:
    mirror = Mirror(Plan(cluster, 0))
    for request, duration, ready in jobs:
        slot = mirror.new(request, duration, ready)
        plain = Plain(cluster, _holdings(mirror)).earliest(request, duration, max(ready, 5))
        assert plain == mirror.earliest(slot, 5)
        assert plain == mirror.plan.place(slot, 5)
    assert not Plain(cluster, _holdings(mirror)).over_committed()


def test_more_than_there_is_is_noticed() -> None:
    nodes = [Node("a", 2), Node("b", 2, mem=10)]
    held = [Holding("a", 0, 10, 2, 5, 0), Holding("b", 5, 9, 1, 6, 0), Holding("b", 8, 12, 1, 5, 0)]
    assert Plain(nodes, held).over_committed() == [("b", 8)]
    assert Plain(nodes, [*held[:2], Holding("a", 10, 20, 2, 0, 0)]).over_committed() == []
    assert Plain(nodes, [held[0], Holding("a", 9, 11, 0, 0, 0, exclusive=True)]).over_committed() == [
        ("a", 9)
    ]
