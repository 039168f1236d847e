"""Where the components of a group go: one search over what plans say, without a federation."""

from collections.abc import Iterable, Mapping
from itertools import product
from math import ceil
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from schedd.federation.coallocation.coallocations import CoallocationComponent, CoAllocationOptions
from schedd.federation.coallocation.common_start import CommonStart, find_common_start, merge_requests


class ComponentPlans:
    """Clusters with a number of nodes, each free from a given time; ``asked`` counts the queries."""

    def __init__(self, nodes: Mapping[str, int], free: Mapping[str, int] | None = None) -> None:
        self.nodes, self.free = nodes, free or {}
        self.sizes: list[int] = []
        self.seconds: list[tuple[str, int]] = []
        self.asked = 0

    def query(self, asked: Iterable[tuple[str, tuple[int, ...], int]], after: int) -> dict[Any, int | None]:
        found: dict[Any, int | None] = {}
        for name, components, seconds in asked:
            self.asked += 1
            self.seconds.append((name, seconds))
            fits = sum(self.sizes[i] for i in components) <= self.nodes[name]
            found[name, components] = max(after, self.free.get(name, 0)) if fits else None
        return found

    def find_common_start(
        self, sizes: list[int], allowed: Mapping[int, tuple[str, ...]], first: int = 0
    ) -> CommonStart | None:
        self.sizes = sizes
        components = [CoallocationComponent({"resources": {"nodes": str(size)}}, 60) for size in sizes]
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
@example([2, 1, 3], [3, 3], 1)
@example([4, 4], [6], 0)
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
    places = found.places if found is not None else {}
    assert sorted(places) == (list(range(len(sizes))) if fits else [])
    for name in names:
        assert sum(sizes[i] for i, where in places.items() if where == name) <= plans.nodes[name]


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from([0.25, 0.5, 1.0, 3.0, 4.0]), st.integers(0, 4)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from([0, 25]),
    st.integers(0, 5),
)
@example([2, 1], [(2, 1.0, 3), (3, 0.5, 0)], 25, 0)
def test_common_start_at_different_speeds_has_the_earliest_end(
    sizes: list[int], clusters: list[tuple[int, float, int]], overhead: int, first: int
) -> None:
    """All components run as long as those at the slowest cluster in use."""
    names = "abc"[: len(clusters)]
    nodes = {name: one[0] for name, one in zip(names, clusters, strict=True)}
    speed = {name: one[1] for name, one in zip(names, clusters, strict=True)}
    free = {name: one[2] for name, one in zip(names, clusters, strict=True)}
    plans = ComponentPlans(nodes, {name: 100 * count for name, count in free.items()})
    plans.sizes = sizes
    ends = []
    for places in product(names, repeat=len(sizes)):
        used = set(places)
        if all(
            sum(size for size, where in zip(sizes, places, strict=True) if where == name) <= nodes[name]
            for name in used
        ):
            work = 60 + (60 * overhead // 100 if len(used) > 1 else 0)
            ends.append(
                max(100 * free[name] for name in used) + ceil(work / min(speed[name] for name in used))
            )
    components = [CoallocationComponent({"resources": {"nodes": str(size)}}, 60) for size in sizes]
    found = find_common_start(
        components,
        CoAllocationOptions(overhead=overhead),
        {i: tuple(names) for i in range(len(sizes))},
        plans.query,
        0,
        first=first,
        speeds=speed,
    )
    assert (found is not None) == bool(ends)
    if found is None:
        return
    assert sorted(found.places) == list(range(len(sizes)))
    if len(set(speed.values())) > 1:
        assert found.start + found.length == min(ends)
    used = set(found.places.values())
    assert found.length * min(speed[name] for name in used) >= 60
    assert found.start >= max(100 * free[name] for name in used)


def test_deadline_excludes_slow_clusters_only() -> None:
    plans = ComponentPlans({"a": 2, "b": 2}, {"b": 500})
    plans.sizes = [2]
    components = [CoallocationComponent({"resources": {"nodes": "2"}}, 60)]

    def search(deadline: int | None) -> CommonStart | None:
        options = CoAllocationOptions(deadline=deadline)
        speeds = {"a": 0.1, "b": 2.0}
        return find_common_start(components, options, {0: ("a", "b")}, plans.query, 0, speeds=speeds)

    assert search(None) == CommonStart(500, 30, {0: "b"})
    assert search(529) is None
    plans.free = {"b": 5000}
    assert search(None) == CommonStart(0, 600, {0: "a"})
    assert search(600) == CommonStart(0, 600, {0: "a"})
    assert search(599) is None
    assert dict(plans.seconds) == {"a": 600, "b": 30}


def test_requests_are_merged_in_each_dialect() -> None:
    def at_once(*asked: dict[str, str]) -> dict[str, str] | None:
        return merge_requests([CoallocationComponent({"resources": one}, 60) for one in asked], 60)

    walltime = {"walltime": "00:01:00"}
    a, b = {"select": "2:ncpus=4"}, {"select": "1:ncpus=2", "walltime": "00:00:30"}
    both, spread = {"select": "2:ncpus=4+1:ncpus=2"}, {"place": "scatter"}
    assert at_once(a, b) == {**both, **walltime}
    assert at_once({**a, **spread}, {**b, **spread}) == {**both, **spread, **walltime}
    assert at_once({**a, **spread}, b) is None
    assert at_once(a, {"nodes": "1"}) is None
    assert at_once({**a, "mem": "1gb"}, b) is None
    assert at_once({"nodes": "1"}, {"nodes": "2:ppn=4"}) == {"nodes": "1+2:ppn=4", **walltime}
