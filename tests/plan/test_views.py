"""Views agree with the reference planner, second by second."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schedd.model import Chunk, Node, NodeState, Place, Request
from schedd.plan.plan import Plan
from schedd.plan.views import StartWindow, empty_plan, find_unmet_requirement, find_windows
from tests.plan.mirror import Mirror
from tests.plan.reference import Reference
from tests.plan.strategies import clusters, is_mixed, requests

SHORT = st.integers(1, 8)
JOBS = st.lists(st.tuples(requests(), SHORT, st.integers(0, 12)), max_size=6)
END = 30


def _planned(cluster: list[Node], jobs: list[Any]) -> Mirror:
    mirror = Mirror(Plan(cluster, 0))
    for request, duration, ready in jobs:
        mirror.plan.place(mirror.new(request, duration, ready), 0)
    return mirror


@given(clusters(4), JOBS, requests(mixed=False), SHORT, st.integers(0, 20))
def test_windows_are_exactly_the_starts_at_which_the_request_fits(
    cluster: list[Node], jobs: list[Any], request: Request, duration: int, begin: int
) -> None:
    mirror = _planned(cluster, jobs)
    ref = mirror.reference()
    fits = [t for t in range(begin, END) if ref.fits(request, t, t + duration)]
    found = find_windows(mirror.plan.fork(), request, duration, begin, END)
    assert [t for window in found for t in range(window.first, window.last + 1)] == fits
    assert all(a.last + 1 < b.first for a, b in pairwise(found))
    assert find_windows(mirror.plan.fork(), request, duration, begin, END, limit=1) == found[:1]


def test_windows_wait_for_pools() -> None:
    plan = Plan([Node("a", 4)], 0)
    plan.set_pool("licence", 1, 0)
    one = Request((Chunk(cpus=1),))
    plan.place(plan.add_job(one, 10, 20, {"licence": 1}), 0)
    found = find_windows(plan.fork(), one, 5, 0, 50, pools={"licence": 1})
    assert found == (StartWindow(0, 15), StartWindow(30, 49))


@given(clusters(4), requests())
def test_unmet_requirement_is_found_exactly_if_the_empty_cluster_cannot_hold_the_request(
    cluster: list[Node], request: Request
) -> None:
    plan = Plan(cluster, 0)
    never = find_unmet_requirement(empty_plan(plan), request)
    if not is_mixed(request):
        up = [replace(node, state=NodeState.UP) for node in cluster]
        assert (never is None) == Reference(up).fits(request, 0, 1)


def test_unmet_requirement_names_the_cause() -> None:
    empty = empty_plan(Plan([Node("a", 4), Node("b", 8), Node("c", 8, state=NodeState.DOWN)], 0))

    def unmet_requirement(*chunks: Chunk, place: Place = Place.FREE) -> str:
        never = find_unmet_requirement(empty, Request(chunks, place))
        return never.requirement if never is not None else ""

    assert unmet_requirement(Chunk(20)) == ""
    assert unmet_requirement(Chunk(21)) == "it needs 21 units at once; the cluster has room for 20"
    assert unmet_requirement(Chunk(2, cpus=8), place=Place.SCATTER) == ""
    second = unmet_requirement(Chunk(1, cpus=4), Chunk(3, cpus=6))
    assert second == "it needs 3 units at once (chunk 2); the cluster has room for 2"
    both = unmet_requirement(Chunk(2, cpus=8), Chunk(2, cpus=4), place=Place.SCATTER)
    assert both.startswith("chunk 2 beside the chunks before it")
