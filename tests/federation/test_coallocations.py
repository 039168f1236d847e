"""Co-allocations: all components start together or none, and moves only end earlier."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from schedd.dialect import parse_walltime
from schedd.features.bookings.state import booking_table
from schedd.federation.events import CoAllocationReleaseRequested, PlaceBooked, RoundCommitted, RoundProposed
from schedd.federation.items import ImpossibleError
from tests.engine.cluster import T
from tests.federation.simulated_federation import SimulatedFederation

WHOLE = {"nodes": "2:ppn=4"}


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[SimulatedFederation]:
    made = SimulatedFederation(tmp_path)
    yield made
    made.close()


def test_all_components_start_at_the_promised_time(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 2, 200)
    simulation.busy("b", 2, 300)
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(5)
    told = simulation.group(name).promised
    assert told is not None
    assert told[0] == T + 300
    simulation.go(500, 5)
    group = simulation.group(name)
    assert simulation.starts(name) == {0: [300], 1: [300]}
    assert (group.over, group.settled) == ("ended", True)
    assert not any(
        one.slots for at in simulation.clusters.values() for one in booking_table(at.engine.state).values()
    )


def test_coallocation_prefers_a_single_cluster(simulation: SimulatedFederation) -> None:
    name = simulation.submit({}, {}, overhead=20)
    simulation.go(10)
    one = simulation.group(name).committed
    assert one is not None
    assert (len(one.clusters), one.length) == (1, 100)
    wide = simulation.submit(WHOLE, WHOLE, overhead=20)
    simulation.go(10)
    two = simulation.group(wide).committed
    assert two is not None
    assert (two.clusters, two.length) == (("a", "b"), 120)


def test_coallocation_respects_maximum_clusters(tmp_path: Path) -> None:
    simulation = SimulatedFederation(tmp_path, "abc")
    try:
        three = simulation.submit(WHOLE, WHOLE, WHOLE, most=2)
        four = simulation.submit({}, {}, {}, {}, most=1)
        fits = simulation.submit({}, {}, {}, {}, most=2)
        simulation.go(5)
        one = simulation.group(fits).committed
        assert one is not None
        assert len(one.clusters) == 2
        for name in (three, four):
            assert not simulation.group(name).rounds
            assert simulation.federation.coallocation_operations.notes[name].startswith(
                "there is no time at which"
            )
    finally:
        simulation.close()


def test_coallocation_respects_ready_time_and_deadline(simulation: SimulatedFederation) -> None:
    later = simulation.submit(WHOLE, WHOLE, ready=T + 500, deadline=T + 600)
    late = simulation.submit(WHOLE, WHOLE, deadline=T + 120)  # it is 100 s long, and nothing starts in 60 s
    simulation.go(5)
    assert simulation.group(later).promised == (T + 500, T + 600)
    assert not simulation.group(late).rounds
    assert simulation.federation.coallocation_operations.notes[late].startswith("there is no time at which")


def test_components_run_as_long_as_the_slowest_cluster_needs(tmp_path: Path) -> None:
    """100 s of work at speed 1, and 25 % for two clusters: 250 s at half speed, at the fast cluster, too."""
    simulation = SimulatedFederation(tmp_path, speeds={"a": 0.5, "b": 4.0})
    try:
        limited = {"resources": {**WHOLE, "cput": "800"}}
        name = simulation.submit({**WHOLE, "clusters": "a"}, {**limited, "clusters": "b"}, overhead=25)
        simulation.go(3)
        one = simulation.group(name).committed
        assert one is not None
        assert one.length == 250
        simulation.go(one.start - simulation.now + 40)
        assert simulation.group(name).started_at
        for cluster in "ab":
            walltimes = {
                parse_walltime(job.resources["walltime"])
                for job in simulation.clusters[cluster].server.jobs.values()
                if job.state == "R"
            }
            assert walltimes == {250}
        limits = [job.resources.get("cput") for job in simulation.clusters["b"].server.jobs.values()]
        assert limits == ["00:33:20"]
        alone = simulation.submit({**WHOLE, "clusters": "b"})
        simulation.go(3)
        assert [copy.length for copy in simulation.group(alone).attempts] == [25]
    finally:
        simulation.close()


def test_cluster_order_rotates_between_coallocations(simulation: SimulatedFederation) -> None:
    names = [simulation.submit({}) for _ in range(2)]  # each cluster has room for both
    simulation.go(5)
    rounds = [simulation.group(name).committed for name in names]
    assert sorted(one.clusters for one in rounds if one is not None) == [("a",), ("b",)]


def test_select_components_go_to_openpbs(tmp_path: Path) -> None:
    simulation = SimulatedFederation(tmp_path, openpbs="b")
    chunk = {"resources": {"select": "1:ncpus=4", "place": "free"}}
    try:
        name = simulation.submit(chunk, {**WHOLE, "clusters": ["a"]}, chunk)
        simulation.go(200, 5)
        assert simulation.starts(name).keys() == {0, 1, 2}
        assert len({moment for moments in simulation.starts(name).values() for moment in moments}) == 1
        assert [copy.cluster for copy in simulation.group(name).attempts] == ["b", "a", "b"]
        apart = simulation.submit({**chunk, "clusters": ["a"]})
        simulation.go(5)
        assert (
            "component 1 cannot go to a: its server does not support select"
            in simulation.federation.coallocation_operations.notes[apart]
        )
    finally:
        simulation.close()


def test_coallocation_shifts_into_a_gap_and_never_later(
    simulation: SimulatedFederation,
) -> None:
    simulation.busy("a", 2, 1000, runtime=200)
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(5)
    first = simulation.group(name).committed
    assert first is not None
    assert first.start == T + 1000
    simulation.busy("a", 2, 400)  # it may use the hole first
    simulation.go(300, 5)
    group = simulation.group(name)
    assert group.committed is not None
    assert group.committed.start == T + 600  # behind the local jobs that took the hole at 200
    assert group.committed.why.startswith("shift")
    simulation.go(700, 5)
    assert simulation.starts(name) == {0: [600], 1: [600]}


def test_coallocation_remaps_to_a_single_cluster_for_an_earlier_end(
    simulation: SimulatedFederation,
) -> None:
    simulation.busy("a", 1, 1000)
    simulation.busy("b", 1, 2000, runtime=100)
    name = simulation.submit({}, {}, {}, overhead=20)
    simulation.go(5)
    assert simulation.group(name).committed is not None
    simulation.go(150, 5)
    one = simulation.group(name).committed
    assert one is not None or simulation.group(name).over == "ended"
    simulation.go(1500, 10)
    starts = simulation.starts(name)
    assert len({moment for moments in starts.values() for moment in moments}) == 1
    assert sorted(starts) == [0, 1, 2]


def test_components_stay_at_clusters_without_remap(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 2, 1000)
    simulation.busy("b", 2, 1000, runtime=100)
    name = simulation.submit({"clusters": ["a", "b"]}, {"clusters": ["a"]}, remap=False)
    simulation.go(5)
    before = simulation.group(name).committed
    simulation.go(300, 5)
    after = simulation.group(name).committed
    assert before is not None
    assert after is not None
    assert {p.component: p.cluster for p in before.places} == {p.component: p.cluster for p in after.places}


def test_failed_component_deletes_all_with_a_reason(
    simulation: SimulatedFederation,
) -> None:
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(20)
    simulation.clusters["b"].obeys = False  # its run decisions come to nothing
    simulation.go(200)
    group = simulation.group(name)
    assert (group.over, group.settled) == ("failed", True)
    assert group.text.startswith("component 2 did not start at b within 60 s")
    assert simulation.starts(name)[0] == [61]  # the other ran until then
    for provider in simulation.clusters.values():
        assert not any(job.state == "R" for job in provider.server.jobs.values())
        assert not any(one.slots for one in booking_table(provider.engine.state).values())


def test_component_beyond_maximum_skew_does_not_start(tmp_path: Path) -> None:
    simulation = SimulatedFederation(tmp_path, max_skew=2)
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(45)
    assert simulation.group(name).release_requested_at
    simulation.clusters["b"].refuses = "a node is busy"
    simulation.go(30)
    group = simulation.group(name)
    assert simulation.starts(name) == {0: [61]}, "the other component was deleted, not run for a minute"
    assert (group.over, group.settled) == ("failed", True)
    assert group.text.startswith("component 2 did not start at b: it could not be started within 2 s of")
    assert group.text.endswith("a node is busy"), group.text
    simulation.close()


def test_late_release_moves_the_coallocation_before_any_start(tmp_path: Path) -> None:
    simulation = SimulatedFederation(tmp_path, max_skew=2)
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(30)
    simulation.clusters["b"].deaf = True  # its adapter is busy with something else
    simulation.go(36)
    assert simulation.starts(name) == {}
    (dropped, *_) = simulation.group(name).rounds
    assert dropped.text == "the hold of component 2 at b was not released in time"
    simulation.clusters["b"].deaf = False
    simulation.go(400)
    group, starts = simulation.group(name), simulation.starts(name)
    assert (group.over, group.settled) == ("ended", True)
    assert starts[0] == starts[1]
    simulation.close()


def test_component_starts_in_the_committed_booking_during_a_move(simulation: SimulatedFederation) -> None:
    """The previous booking is cancelled once the network works."""
    simulation.busy("a", 2, 1000, runtime=100)
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(5)
    simulation.lost = "cancel"
    simulation.go(500, 5)
    assert simulation.group(name).moves >= 1
    starts = simulation.starts(name)
    assert starts[0] == starts[1]
    assert starts[0][0] < 1000
    assert simulation.group(name).over == "ended", simulation.group(name)


def test_coallocation_starts_without_optional_component(simulation: SimulatedFederation) -> None:
    simulation.busy("b", 2, 5000)
    name = simulation.submit({"clusters": ["a"]}, {"clusters": ["b"], "optional": True})
    simulation.go(300, 5)
    group = simulation.group(name)
    assert (group.over, sorted(simulation.starts(name))) == ("ended", [0])


def test_clusters_delete_components_without_start_confirmation(
    simulation: SimulatedFederation,
) -> None:
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(30)
    simulation.cut = {"b"}
    while not simulation.group(name).release_requested_at and simulation.now < T + 70:
        simulation.cut = set() if simulation.now < T + 39 else {"b"}
        simulation.go(1)
    # From here on the federation is gone for good.
    for provider in simulation.clusters.values():
        provider.at(400)
    for provider in simulation.clusters.values():
        assert not any(job.state == "R" for job in provider.server.jobs.values())


def test_unreachable_cluster_moves_the_coallocation_before_any_start(
    simulation: SimulatedFederation,
) -> None:
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(30)
    simulation.cut = {"b"}
    simulation.go(100)
    assert simulation.starts(name) == {}
    assert not simulation.group(name).release_requested_at
    simulation.cut = set()
    simulation.go(400, 5)
    starts = simulation.starts(name)
    assert sorted(starts) == [0, 1]
    assert starts[0] == starts[1]


def test_restarted_federation_polls_clusters_before_an_abort(
    simulation: SimulatedFederation,
) -> None:
    """It was away when the components started, and one cluster does not answer at once."""
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    while not simulation.group(name).armed_at:
        simulation.go(1)
    for provider in simulation.clusters.values():
        provider.at(61 + 76)  # longer than the limit, shorter than components run without word
    simulation.cut = {"b"}
    simulation.begin()
    simulation.go(5)
    simulation.cut = set()
    simulation.go(200)
    assert simulation.starts(name) == {0: [61], 1: [61]}
    assert (simulation.group(name).over, simulation.group(name).text) == ("ended", "")


def test_no_component_starts_if_the_federation_dies_before_the_release(
    simulation: SimulatedFederation,
) -> None:
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(30)
    simulation.clusters["b"].deaf = True
    while not simulation.group(name).release_requested_at:
        simulation.go(1)
    simulation.clusters["b"].deaf = False
    for provider in simulation.clusters.values():
        provider.at(400)  # no confirmation that all components may start
    assert simulation.starts(name) == {}
    for provider in simulation.clusters.values():
        assert not provider.server.jobs, "its cluster deleted it"
        assert not any(one.slots for one in booking_table(provider.engine.state).values())


def test_unacknowledged_arming_deletes_all_components_before_the_start(
    simulation: SimulatedFederation,
) -> None:
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(30)
    simulation.after["arm"] = 1_000  # the requests get through, and their answers do not
    simulation.go(60)
    group = simulation.group(name)
    assert simulation.starts(name) == {}
    assert (group.over, group.settled) == ("failed", True)
    assert group.text == "a, b may not have received the order to start"


def test_cancelled_coallocation_leaves_no_jobs_or_bookings(simulation: SimulatedFederation) -> None:
    name = simulation.submit(WHOLE, WHOLE)
    simulation.go(10)
    simulation.federation.coallocation_operations.cancel(name, "ann@org")
    simulation.go(20)
    group = simulation.group(name)
    assert (group.over, group.settled, simulation.starts(name)) == ("cancelled", True, {})
    assert not any(provider.server.jobs for provider in simulation.clusters.values())


def test_competing_coallocations_both_run_without_shared_cores(simulation: SimulatedFederation) -> None:
    names = [simulation.submit(WHOLE, WHOLE) for _ in range(2)]
    simulation.go(600, 2)
    starts = [simulation.starts(name) for name in names]
    assert all(sorted(one) == [0, 1] and one[0] == one[1] for one in starts)
    assert abs(starts[0][0][0] - starts[1][0][0]) >= 100


def test_release_needs_a_committed_round_and_happens_once(simulation: SimulatedFederation) -> None:
    name = simulation.submit({})
    with pytest.raises(ImpossibleError):
        simulation.federation.coallocations.apply(CoAllocationReleaseRequested(job=name, time=T))
    simulation.go(5)
    round_ = simulation.group(name).committed
    assert round_ is not None
    simulation.federation.coallocations.apply(CoAllocationReleaseRequested(job=name, time=T))
    for event in (
        CoAllocationReleaseRequested(job=name, time=T),
        RoundProposed(job=name, time=T, number=2, start=T, length=5, places=(), why=""),
        RoundCommitted(job=name, time=T, number=1),
        PlaceBooked(job=name, time=T, number=1, component=0, plan=1),
    ):
        with pytest.raises(ImpossibleError):
            simulation.federation.coallocations.apply(event)
