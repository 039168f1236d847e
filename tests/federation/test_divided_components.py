"""Divided requests: a total number of cores on any clusters, distributed by free capacity."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.features.bookings.state import booking_table
from schedd.federation.coallocation.coallocations import CoAllocation, CoAllocationOptions
from schedd.federation.coallocation.divided_components import find_divided_start, scale_unit, unit_cores
from schedd.wire import SubmissionFacts, TransferDecision
from tests.engine.cluster import T
from tests.federation.federation_harness import FederationHarness
from tests.federation.simulated_federation import SimulatedFederation, seeds

GROUPS = "/v1/federation/coallocations"
UNIT = {"nodes": "1:ppn=4"}


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[SimulatedFederation]:
    made = SimulatedFederation(tmp_path, "abc")  # two nodes of four cores each
    yield made
    made.close()


def cores(simulation: SimulatedFederation, name: str) -> dict[str, int]:
    """Return the booked cores by cluster."""
    one = simulation.group(name).committed
    assert one is not None, simulation.federation.coallocation_operations.notes
    return {place.cluster: 4 * place.units for place in one.places}


def submissions(simulation: SimulatedFederation, name: str) -> dict[tuple[str, str], SubmissionFacts]:
    """Return the transfers of the co-allocation by cluster and name."""
    return {
        (cluster, one.transfer): one.submission
        for cluster, provider in simulation.clusters.items()
        for one in provider.decisions
        if isinstance(one, TransferDecision)
        and one.step == "submit"
        and one.submission is not None
        and one.transfer.split(".")[1] == name
    }


def ran(simulation: SimulatedFederation, name: str) -> dict[str, str]:
    """What the jobs of the group asked for that ran, by cluster."""
    found: dict[str, str] = {}
    for (cluster, transfer), submission in submissions(simulation, name).items():
        provider = simulation.clusters[cluster]
        if provider.handed.get(transfer) in provider.began:
            assert cluster not in found, "one piece at each cluster"
            found[cluster] = submission.resources["nodes"]
    return found


# ---- units and pieces ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "each", "three"),
    [
        ({"nodes": "1:ppn=8", "walltime": "60"}, 8, {"nodes": "3:ppn=8", "walltime": "60"}),
        ({"nodes": "1:ppn=2:fast"}, 2, {"nodes": "3:ppn=2:fast"}),
        ({"nodes": "1"}, 1, {"nodes": "3"}),
        ({"procs": "1"}, 1, {"procs": "3"}),
        (
            {"select": "1:ncpus=4:mem=2gb", "place": "scatter"},
            4,
            {"select": "3:ncpus=4:mem=2gb", "place": "scatter"},
        ),
    ],
)
def test_scaled_unit_multiplies_the_request(asked: dict[str, str], each: int, three: dict[str, str]) -> None:
    assert unit_cores(asked) == each
    assert scale_unit(asked, 3) == three
    assert scale_unit(asked, 0) == asked


@pytest.mark.parametrize(
    "asked",
    [
        {"nodes": "2:ppn=4"},
        {"nodes": "1:ppn=4+1:ppn=2"},
        {"nodes": "n1:ppn=4"},
        {"nodes": "10:ppn=4"},
        {"select": "2:ncpus=1"},
        {"nodes": "1:ppn=4", "mem": "2gb"},
        {"walltime": "60"},
    ],
)
def test_invalid_unit_is_explained(asked: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="requests one unit"):
        unit_cores(asked)


# ---- where it goes ---------------------------------------------------------------------------------------


class UnitPlans:
    """Clusters with free capacity over time; ``sizes`` records the queried units."""

    def __init__(self, room: Mapping[str, Mapping[int, int]]) -> None:
        self.room = room
        self.asked = 0

    def free(self, name: str, moment: int) -> int:
        since = max((one for one in self.room[name] if one <= moment), default=None)
        return self.room[name][since] if since is not None else 0

    def query(self, asked: Iterable[tuple[str, int, int]], after: int) -> dict[tuple[str, int], int | None]:
        found: dict[tuple[str, int], int | None] = {}
        for name, units, _ in asked:
            self.asked += 1
            moments = (after, *(one for one in sorted(self.room[name]) if one > after))
            found[name, units] = next((one for one in moments if self.free(name, one) >= units), None)
        return found


def test_division_prefers_a_single_cluster_then_the_largest() -> None:
    plans = UnitPlans({"a": {0: 3}, "b": {0: 6}, "c": {0: 4}})
    alone = find_divided_start(CoAllocationOptions(units=6, most=3, overhead=20), 100, "abc", plans.query, 10)
    assert alone is not None
    assert (alone.start, alone.length, dict(alone.places), dict(alone.units)) == (10, 100, {0: "b"}, {0: 6})
    two = find_divided_start(CoAllocationOptions(units=8, most=3, overhead=20), 100, "abc", plans.query, 10)
    assert two is not None
    assert (two.length, dict(two.places), dict(two.units)) == (120, {0: "b", 1: "c"}, {0: 6, 1: 2})
    assert find_divided_start(CoAllocationOptions(units=14, most=3), 100, "abc", plans.query, 10) is None
    assert find_divided_start(CoAllocationOptions(units=13, most=2), 100, "abc", plans.query, 10) is None
    assert find_divided_start(CoAllocationOptions(units=1, most=1), 100, (), plans.query, 10) is None
    assert (
        find_divided_start(CoAllocationOptions(units=8, most=3, deadline=100), 100, "abc", plans.query, 10)
        is None
    )


@given(
    st.dictionaries(
        st.sampled_from("abcd"),
        st.dictionaries(st.integers(0, 5), st.integers(0, 9), min_size=1, max_size=4),
        min_size=1,
    ),
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(0, 5),
)
def test_division_starts_at_the_first_possible_time(
    room: dict[str, dict[int, int]], units: int, most: int, first: int
) -> None:
    plans = UnitPlans(room)
    found = find_divided_start(
        CoAllocationOptions(units=units, most=most), 10, tuple(room), plans.query, 0, first=first
    )
    moments = [
        moment
        for moment in range(7)
        if any(
            sum(plans.free(name, moment) for name in chosen) >= units
            for count in range(1, min(most, len(room)) + 1)
            for chosen in combinations(room, count)
        )
    ]
    assert (found.start if found is not None else None) == min(moments, default=None)
    if found is not None:
        assert len(found.places) <= most
        assert len(set(found.places.values())) == len(found.places)
        assert sum(found.units.values()) == units
        assert all(0 < found.units[i] <= plans.free(name, found.start) for i, name in found.places.items())


def test_division_runs_as_long_as_on_its_slowest_cluster() -> None:
    plans = UnitPlans({"a": {0: 4}, "b": {0: 4}, "c": {0: 9}})
    speeds = {"a": 2.0, "b": 1.0, "c": 0.25}

    def divide(units: int) -> tuple[int, set[str]] | None:
        options = CoAllocationOptions(units=units, most=3, overhead=20)
        found = find_divided_start(options, 100, "abc", plans.query, 10, speeds=speeds)
        return (found.length, set(found.places.values())) if found is not None else None

    assert divide(4) == (50, {"a"})
    assert divide(8) == (120, {"a", "b"})
    assert divide(9) == (400, {"c"})
    assert divide(10) == (480, {"a", "c"}) or divide(10) == (480, {"b", "c"})


def test_division_needs_few_queries() -> None:
    plans = UnitPlans({name: {0: 1_000} for name in "abcd"})
    found = find_divided_start(CoAllocationOptions(units=3_500, most=4), 10, "abcd", plans.query, 0)
    assert found is not None
    assert sorted(found.units.values()) == [500, 1_000, 1_000, 1_000]
    assert plans.asked < 70


# ---- over real engines -----------------------------------------------------------------------------------


def test_divided_cores_start_together(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 1, 900)
    name = simulation.submit(UNIT, units=5, most=3, overhead=20)
    simulation.go(5)
    assert sorted(cores(simulation, name).items()) == [("a", 4), ("b", 8), ("c", 8)]
    one = simulation.group(name).committed
    assert one is not None
    assert one.length == 120
    simulation.go(400, 5)
    moments = {moment for moments in simulation.starts(name).values() for moment in moments}
    assert len(moments) == 1
    assert ran(simulation, name) == {"a": "1:ppn=4", "b": "2:ppn=4", "c": "2:ppn=4"}
    assert (simulation.group(name).over, simulation.group(name).settled) == ("ended", True)


def test_component_environment_describes_the_division(simulation: SimulatedFederation) -> None:
    name = simulation.submit(UNIT, units=3, most=2)
    simulation.go(10)
    told = [one.variables for one in submissions(simulation, name).values()]
    assert sorted(one["SCHEDD_PIECE_CORES"] for one in told) == ["4", "8"]
    assert {one["SCHEDD_ALL_CORES"] for one in told} == {"12"}
    assert sorted(one["SCHEDD_PIECE"] for one in told) == ["1", "2"]


def test_division_waits_for_its_maximum_clusters(simulation: SimulatedFederation) -> None:
    for cluster, walltime in (("a", 300), ("b", 500), ("c", 700)):
        simulation.busy(cluster, 1, walltime)
    name = simulation.submit(UNIT, units=4, most=2)
    simulation.go(5)
    one = simulation.group(name).committed
    assert one is not None
    assert one.start == T + 500  # a and b are free as wholes then
    assert cores(simulation, name) == {"a": 8, "b": 8}


def test_impossible_core_count_is_explained(simulation: SimulatedFederation) -> None:
    name = simulation.submit(UNIT, units=5, most=2)
    simulation.go(5)
    assert not simulation.group(name).rounds
    assert (
        "it requests 20 cores, but 2 clusters have at most 16"
        in simulation.federation.coallocation_operations.notes[name]
    )


def test_division_changes_for_an_earlier_start(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 2, 1_000, runtime=100)
    simulation.busy("b", 1, 1_000)
    simulation.busy("c", 2, 1_000)
    name = simulation.submit(UNIT, units=3, most=2)
    simulation.go(5)
    first = simulation.group(name).promised
    assert first is not None
    assert first[0] == T + 1_000
    simulation.go(150, 2)
    group = simulation.group(name)
    assert group.committed is not None
    assert group.committed.start < T + 300
    assert cores(simulation, name) == {"a": 8, "b": 4}
    simulation.go(400, 5)
    assert sum(int(one.partition(":")[0]) for one in ran(simulation, name).values()) == 3
    assert len({moment for moments in simulation.starts(name).values() for moment in moments}) == 1
    assert not any(
        one.slots for at in simulation.clusters.values() for one in booking_table(at.engine.state).values()
    )


def test_division_keeps_clusters_without_remap(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 2, 500)
    simulation.busy("b", 2, 500)
    simulation.busy("c", 2, 600, runtime=50)
    name = simulation.submit(UNIT, units=3, most=2, remap=False)
    simulation.go(5)
    assert cores(simulation, name).keys() == {"a", "b"}
    simulation.go(200, 5)
    assert cores(simulation, name).keys() == {"a", "b"}


def test_failed_divided_component_deletes_all(simulation: SimulatedFederation) -> None:
    name = simulation.submit(UNIT, units=3, most=2)
    simulation.go(5)
    where = sorted(cores(simulation, name))
    simulation.clusters[where[-1]].refuses = "the server is full"
    simulation.go(400, 2)
    group = simulation.group(name)
    assert (group.over, group.settled) == ("failed", True)
    assert f"did not start at {where[-1]}" in group.text
    assert all(not provider.server.jobs for provider in simulation.clusters.values())


def test_cluster_is_excluded_after_refusing_a_divided_component(simulation: SimulatedFederation) -> None:
    name = simulation.submit(UNIT, units=3, most=2)
    simulation.go(5)
    lost = min(cores(simulation, name))
    copy = next(one for one in simulation.group(name).attempts if one.cluster == lost)
    simulation.federation.coallocation_operations.refuse_component(name, copy.number, "no such queue")
    simulation.go(60, 5)
    assert lost not in cores(simulation, name)
    assert sum(cores(simulation, name).values()) == 12


@pytest.mark.parametrize("seed", seeds(1, 6))
def test_divided_cores_start_all_or_none_despite_faults(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_random_fault_sequences(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


def play(directory: Path, seed: int) -> None:
    simulation = SimulatedFederation(directory, "abc", seed)
    chance = simulation.chance
    for cluster in "abc":
        simulation.busy(
            cluster, chance.randint(0, 3), chance.randint(50, 400), runtime=chance.randint(20, 400)
        )
    simulation.loss, simulation.death = 0.1, 0.02
    names = []
    for _ in range(3):
        names.append(simulation.submit(UNIT, units=chance.randint(1, 5), most=3))
        simulation.go(chance.randint(5, 60), 2)
        simulation.cut = {chance.choice("abc")} if chance.random() < 0.4 else set()
        simulation.busy(chance.choice("abc"), 1, chance.randint(50, 300))
    simulation.go(200, 2)
    simulation.loss = simulation.death = 0.0
    simulation.cut = set()
    simulation.finish(2_500)
    for name in names:
        check_all_or_none(simulation, simulation.group(name), seed)
    for provider in simulation.clusters.values():
        assert not any(one.slots for one in booking_table(provider.engine.state).values())
    simulation.close()


def check_all_or_none(simulation: SimulatedFederation, group: CoAllocation, seed: int) -> None:
    """The components ran once each with the requested total, or the co-allocation failed with a reason."""
    assert group.over in ("ended", "failed"), (seed, group)
    assert group.settled, (seed, group)
    if group.over == "ended":
        pieces = ran(simulation, group.id)
        assert sum(int(one.partition(":")[0]) for one in pieces.values()) == group.options.units, (
            seed,
            pieces,
        )
        moments = [moment for moments in simulation.starts(group.id).values() for moment in moments]
        assert len(moments) == len(pieces), (seed, moments)
        assert max(moments) - min(moments) <= 60, (seed, moments)


# ---- over HTTP -------------------------------------------------------------------------------------------

PART: dict[str, Any] = {"script": "sleep 1", "request": "nodes=1:ppn=4,walltime=100", "cores": 12}


def test_api_submits_and_shows_divided_cores(harness: FederationHarness) -> None:
    ann = harness.client("ann@org")
    made = ann.post(GROUPS, json={"components": [PART], "most": 2, "key": "g"})
    assert made.status_code == 201, made.text
    row = made.json()
    assert (row["cores"], row["state"], len(row["components"])) == (12, "waiting for a start", 1)
    harness.log.close()
    harness.begin()
    group = harness.federation.coallocations[row["id"]]
    assert (group.options.units, len(group.components)) == (3, 2)
    assert ann.get(f"{GROUPS}/{row['id']}").json()["cores"] == 12


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"components": [PART]}, "a divided component needs most"),
        ({"components": [PART, PART], "most": 2}, "must be the only one"),
        ({"components": [{**PART, "cores": 10}], "most": 2}, "cannot be divided into units of 4"),
        ({"components": [{**PART, "cores": 0}], "most": 2}, "it must be at least 1"),
        ({"components": [{**PART, "request": "nodes=3:ppn=4"}], "most": 2}, "requests one unit"),
        ({"components": [{**PART, "request": "nodes=1:ppn=4,mem=1gb"}], "most": 2}, "and not mem"),
        ({"components": [{**PART, "optional": True}], "most": 2}, "must not be optional"),
        ({"components": [PART], "most": 33}, "it must be at most 32"),
    ],
)
def test_indivisible_request_is_refused(harness: FederationHarness, body: dict[str, Any], said: str) -> None:
    answer = harness.client("ann@org").post(GROUPS, json=body)
    assert answer.status_code == 422, answer.text
    assert said in answer.text
    assert not harness.federation.coallocations.by_id
