"""Where the components of a group go: one search over what plans say, without a federation."""

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schedd.federation.coallocation.coallocations import CoAllocationOptions, Component
from schedd.federation.coallocation.common_start import CommonStart, find_common_start, merge_requests


class ComponentPlans:
    """Clusters with a number of nodes, each free from a given time; ``asked`` counts the queries."""

    def __init__(self, nodes: Mapping[str, int], free: Mapping[str, int] | None = None) -> None:
        self.nodes, self.free = nodes, free or {}
        self.sizes: list[int] = []
        self.asked = 0

    def query(self, asked: Iterable[tuple[str, tuple[int, ...], int]], after: int) -> dict[Any, int | None]:
        found: dict[Any, int | None] = {}
        for name, components, _ in asked:
            self.asked += 1
            fits = sum(self.sizes[i] for i in components) <= self.nodes[name]
            found[name, components] = max(after, self.free.get(name, 0)) if fits else None
        return found

    def find_common_start(
        self, sizes: list[int], allowed: Mapping[int, tuple[str, ...]], first: int = 0
    ) -> CommonStart | None:
        self.sizes = sizes
        components = [Component({"resources": {"nodes": str(size)}}, 60) for size in sizes]
        every = tuple(self.nodes)
        names = {i: allowed.get(i, every) for i in range(len(sizes))}
        return find_common_start(components, CoAllocationOptions(), names, self.query, 100, first=first)


def test_flexible_component_yields_to_restricted_component() -> None:
    for first in range(3):
        found = ComponentPlans({"a": 2, "b": 2, "c": 2}).find_common_start([1, 1, 1], {2: ("c",)}, first)
        assert found is not None
        assert found.start == 100
        assert found.places[2] == "c"


def test_search_backtracks() -> None:
    found = ComponentPlans({"a": 3, "b": 2}).find_common_start([1, 2, 2], {1: ("a", "b"), 2: ("a", "b")})
    assert found is not None
    assert sorted(found.places.values()) == ["a", "a", "b"]


def test_common_start_is_the_latest_component_start() -> None:
    plans = ComponentPlans({"a": 2, "b": 2}, {"a": 500, "b": 300})
    found = plans.find_common_start([2, 2], {})
    assert found is not None
    assert (found.start, sorted(found.places.values())) == (500, ["a", "b"])


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=5),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.integers(0, 5),
)
def test_search_finds_any_existing_placement(sizes: list[int], nodes: list[int], first: int) -> None:
    names = "abc"[: len(nodes)]
    plans = ComponentPlans(dict(zip(names, nodes, strict=True)))
    found = plans.find_common_start(sizes, {}, first)
    fits = any(
        all(
            sum(size for size, where in zip(sizes, places, strict=True) if where == name) <= plans.nodes[name]
            for name in names
        )
        for places in product(names, repeat=len(sizes))
    )
    assert (found is not None) == fits
    if found is not None:
        for name in names:
            assert sum(sizes[i] for i, where in found.places.items() if where == name) <= plans.nodes[name]


def test_requests_are_merged_in_each_dialect() -> None:
    def at_once(*asked: dict[str, str]) -> dict[str, str] | None:
        return merge_requests([Component({"resources": one}, 60) for one in asked], 60)

    walltime = {"walltime": "00:01:00"}
    a, b = {"select": "2:ncpus=4"}, {"select": "1:ncpus=2", "walltime": "00:00:30"}
    both, spread = {"select": "2:ncpus=4+1:ncpus=2"}, {"place": "scatter"}
    assert at_once(a, b) == {**both, **walltime}
    assert at_once({**a, **spread}, {**b, **spread}) == {**both, **spread, **walltime}
    assert at_once({**a, **spread}, b) is None
    assert at_once(a, {"nodes": "1"}) is None
    assert at_once({**a, "mem": "1gb"}, b) is None
    assert at_once({"nodes": "1"}, {"nodes": "2:ppn=4"}) == {"nodes": "1+2:ppn=4", **walltime}
