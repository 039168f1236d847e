"""Groups: all parts at one moment or none, moved only to end earlier, whatever is cut, killed or refused."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedd.federation.coallocation.events import (
    CoAllocationReleaseRequested,
    PlaceBooked,
    RoundCommitted,
    RoundProposed,
)
from schedd.federation.routing.jobs import ImpossibleError
from tests.engine.cluster import T
from tests.federation.simulated_federation import SimulatedFederation

WHOLE = {"nodes": "2:ppn=4"}


@pytest.fixture
def region(tmp_path: Path) -> Iterator[SimulatedFederation]:
    made = SimulatedFederation(tmp_path)
    yield made
    made.close()


def test_all_parts_start_at_the_moment_that_was_told_first(region: SimulatedFederation) -> None:
    region.busy("a", 2, 200)
    region.busy("b", 2, 300)
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    region.go(5)
    told = region.group(name).promised
    assert told is not None
    assert told[0] == T + 300
    region.go(500, 5)
    group = region.group(name)
    assert region.starts(name) == {0: [300], 1: [300]}
    assert (group.over, group.settled) == ("ended", True)
    assert not any(one.slots for at in region.clusters.values() for one in at.engine.state.bookings.values())


def test_a_group_that_fits_on_one_cluster_is_put_there(region: SimulatedFederation) -> None:
    name = region.submit({}, {}, overhead=20)
    region.go(10)
    one = region.group(name).committed
    assert one is not None
    assert (len(one.clusters), one.length) == (1, 100)
    wide = region.submit(WHOLE, WHOLE, overhead=20)
    region.go(10)
    two = region.group(wide).committed
    assert two is not None
    assert (two.clusters, two.length) == (("a", "b"), 120)


def test_a_group_is_on_no_more_clusters_than_it_says(tmp_path: Path) -> None:
    region = SimulatedFederation(tmp_path, "abc")
    try:
        three = region.submit(WHOLE, WHOLE, WHOLE, most=2)
        four = region.submit({}, {}, {}, {}, most=1)
        fits = region.submit({}, {}, {}, {}, most=2)
        region.go(5)
        one = region.group(fits).committed
        assert one is not None
        assert len(one.clusters) == 2
        for name in (three, four):
            assert not region.group(name).rounds
            assert region.federation.coallocation_operations.notes[name].startswith("no moment was found")
    finally:
        region.close()


def test_a_group_is_ready_and_over_when_it_says(region: SimulatedFederation) -> None:
    later = region.submit(WHOLE, WHOLE, ready=T + 500, deadline=T + 600)
    late = region.submit(WHOLE, WHOLE, deadline=T + 120)  # it is 100 s long, and nothing starts in 60 s
    region.go(5)
    assert region.group(later).promised == (T + 500, T + 600)
    assert not region.group(late).rounds
    assert region.federation.coallocation_operations.notes[late].startswith("no moment was found")


def test_another_cluster_is_first_for_the_next_group(region: SimulatedFederation) -> None:
    names = [region.submit({}) for _ in range(2)]  # each cluster has room for both
    region.go(5)
    rounds = [region.group(name).committed for name in names]
    assert sorted(one.clusters for one in rounds if one is not None) == [("a",), ("b",)]


def test_parts_that_ask_by_select_go_to_openpbs_and_start_with_the_others(tmp_path: Path) -> None:
    region = SimulatedFederation(tmp_path, openpbs="b")
    chunk = {"resources": {"select": "1:ncpus=4", "place": "free"}}
    try:
        name = region.submit(chunk, {**WHOLE, "clusters": ["a"]}, chunk)
        region.go(200, 5)
        assert region.starts(name).keys() == {0, 1, 2}
        assert len({moment for moments in region.starts(name).values() for moment in moments}) == 1
        assert [copy.cluster for copy in region.group(name).component_jobs] == ["b", "a", "b"]
        apart = region.submit({**chunk, "clusters": ["a"]})
        region.go(5)
        assert (
            "part 1 cannot go to a: its server does not know select"
            in region.federation.coallocation_operations.notes[apart]
        )
    finally:
        region.close()


def test_a_group_shifts_into_a_hole_that_local_jobs_leave_and_is_never_later(
    region: SimulatedFederation,
) -> None:
    region.busy("a", 2, 1000, runtime=200)
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    region.go(5)
    first = region.group(name).committed
    assert first is not None
    assert first.start == T + 1000
    region.busy("a", 2, 400)  # it may use the hole first
    region.go(300, 5)
    group = region.group(name)
    assert group.committed is not None
    assert group.committed.start == T + 600  # behind the local jobs that took the hole at 200
    assert group.committed.why.startswith("shift")
    region.go(700, 5)
    assert region.starts(name) == {0: [600], 1: [600]}


def test_a_group_is_mapped_anew_on_one_cluster_where_that_ends_it_earlier(
    region: SimulatedFederation,
) -> None:
    region.busy("a", 1, 1000)
    region.busy("b", 1, 2000, runtime=100)
    name = region.submit({}, {}, {}, overhead=20)
    region.go(5)
    assert region.group(name).committed is not None
    region.go(150, 5)
    one = region.group(name).committed
    assert one is not None or region.group(name).over == "ended"
    region.go(1500, 10)
    starts = region.starts(name)
    assert len({moment for moments in starts.values() for moment in moments}) == 1
    assert sorted(starts) == [0, 1, 2]


def test_without_remap_parts_keep_their_clusters(region: SimulatedFederation) -> None:
    region.busy("a", 2, 1000)
    region.busy("b", 2, 1000, runtime=100)
    name = region.submit({"clusters": ["a", "b"]}, {"clusters": ["a"]}, remap=False)
    region.go(5)
    before = region.group(name).committed
    region.go(300, 5)
    after = region.group(name).committed
    assert before is not None
    assert after is not None
    assert {p.part: p.cluster for p in before.places} == {p.part: p.cluster for p in after.places}


def test_when_a_part_does_not_start_all_are_deleted_and_it_is_said_which_and_why(
    region: SimulatedFederation,
) -> None:
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    region.go(20)
    region.clusters["b"].obeys = False  # its run decisions come to nothing
    region.go(200)
    group = region.group(name)
    assert (group.over, group.settled) == ("failed", True)
    assert group.text.startswith("part 2 did not start at b within 60 s")
    assert region.starts(name)[0] == [61]  # the other ran until then
    for provider in region.clusters.values():
        assert not any(job.state == "R" for job in provider.server.jobs.values())
        assert not any(one.slots for one in provider.engine.state.bookings.values())


def test_a_part_that_would_start_too_far_from_the_others_does_not_start(tmp_path: Path) -> None:
    region = SimulatedFederation(tmp_path, max_skew=2)
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    region.go(45)
    assert region.group(name).release_requested_at
    region.clusters["b"].refuses = "a node is busy"
    region.go(30)
    group = region.group(name)
    assert region.starts(name) == {0: [61]}, "the other part was deleted, not run for a minute"
    assert (group.over, group.settled) == ("failed", True)
    assert group.text.startswith("part 2 did not start at b: it could not be started within 2 s of")
    assert group.text.endswith("a node is busy"), group.text
    region.close()


def test_a_part_whose_hold_is_not_released_in_time_moves_the_group_and_none_begins(tmp_path: Path) -> None:
    region = SimulatedFederation(tmp_path, max_skew=2)
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    region.go(30)
    region.clusters["b"].deaf = True  # its adapter is busy with something else
    region.go(36)
    assert region.starts(name) == {}
    (dropped, *_) = region.group(name).rounds
    assert dropped.text == "the hold of part 2 at b was not released in time"
    region.clusters["b"].deaf = False
    region.go(400)
    group, starts = region.group(name), region.starts(name)
    assert (group.over, group.settled) == ("ended", True)
    assert starts[0] == starts[1]
    region.close()


def test_while_a_group_moves_its_part_starts_in_the_booking_that_counts(region: SimulatedFederation) -> None:
    """What it had before is given back only when the network lets that through."""
    region.busy("a", 2, 1000, runtime=100)
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    region.go(5)
    region.lost = "cancel"
    region.go(500, 5)
    assert region.group(name).moves >= 1
    starts = region.starts(name)
    assert starts[0] == starts[1]
    assert starts[0][0] < 1000
    assert region.group(name).over == "ended", region.group(name)


def test_a_group_begins_without_an_optional_part(region: SimulatedFederation) -> None:
    region.busy("b", 2, 5000)
    name = region.submit({"clusters": ["a"]}, {"clusters": ["b"], "optional": True})
    region.go(300, 5)
    group = region.group(name)
    assert (group.over, sorted(region.starts(name))) == ("ended", [0])


def test_half_a_group_is_deleted_by_its_clusters_when_nobody_says_that_all_began(
    region: SimulatedFederation,
) -> None:
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    region.go(30)
    region.cut = {"b"}
    while not region.group(name).release_requested_at and region.now < T + 70:
        region.cut = set() if region.now < T + 39 else {"b"}
        region.go(1)
    # From here on the federation is gone for good.
    for provider in region.clusters.values():
        provider.at(400)
    for provider in region.clusters.values():
        assert not any(job.state == "R" for job in provider.server.jobs.values())


def test_a_cluster_that_is_away_when_it_is_due_moves_the_group_and_none_begins(
    region: SimulatedFederation,
) -> None:
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    region.go(30)
    region.cut = {"b"}
    region.go(100)
    assert region.starts(name) == {}
    assert not region.group(name).release_requested_at
    region.cut = set()
    region.go(400, 5)
    starts = region.starts(name)
    assert sorted(starts) == [0, 1]
    assert starts[0] == starts[1]


def test_a_federation_that_comes_back_late_hears_the_clusters_before_it_judges(
    region: SimulatedFederation,
) -> None:
    """It was away when the parts started, and one cluster does not answer at once."""
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    while not region.group(name).armed_at:
        region.go(1)
    for provider in region.clusters.values():
        provider.at(61 + 76)  # longer than the limit, shorter than parts run without word
    region.cut = {"b"}
    region.begin()
    region.go(5)
    region.cut = set()
    region.go(200)
    assert region.starts(name) == {0: [61], 1: [61]}
    assert (region.group(name).over, region.group(name).text) == ("ended", "")


def test_no_part_starts_where_the_federation_dies_before_all_holds_are_released(
    region: SimulatedFederation,
) -> None:
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    region.go(30)
    region.clusters["b"].deaf = True
    while not region.group(name).release_requested_at:
        region.go(1)
    region.clusters["b"].deaf = False
    for provider in region.clusters.values():
        provider.at(400)  # nobody says any more that all parts may start
    assert region.starts(name) == {}
    for provider in region.clusters.values():
        assert not provider.server.jobs, "its cluster deleted it"
        assert not any(one.slots for one in provider.engine.state.bookings.values())


def test_all_parts_are_deleted_before_the_start_where_a_cluster_may_not_have_heard(
    region: SimulatedFederation,
) -> None:
    name = region.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    region.go(30)
    region.after["arm"] = 1_000  # the requests get through, and their answers do not
    region.go(60)
    group = region.group(name)
    assert region.starts(name) == {}
    assert (group.over, group.settled) == ("failed", True)
    assert group.text == "a, b: not known to have heard that it may start"


def test_a_group_that_is_taken_back_leaves_nothing_behind(region: SimulatedFederation) -> None:
    name = region.submit(WHOLE, WHOLE)
    region.go(10)
    region.federation.coallocation_operations.cancel(name, "ann@org")
    region.go(20)
    group = region.group(name)
    assert (group.over, group.settled, region.starts(name)) == ("cancelled", True, {})
    assert not any(provider.server.jobs for provider in region.clusters.values())


def test_two_groups_for_the_same_cores_never_share_them_and_both_run(region: SimulatedFederation) -> None:
    names = [region.submit(WHOLE, WHOLE) for _ in range(2)]
    region.go(600, 2)
    starts = [region.starts(name) for name in names]
    assert all(sorted(one) == [0, 1] and one[0] == one[1] for one in starts)
    assert abs(starts[0][0][0] - starts[1][0][0]) >= 100


def test_a_group_is_let_go_once_and_only_when_a_round_holds(region: SimulatedFederation) -> None:
    name = region.submit({})
    with pytest.raises(ImpossibleError):
        region.federation.coallocations.apply(CoAllocationReleaseRequested(job=name, time=T))
    region.go(5)
    round_ = region.group(name).committed
    assert round_ is not None
    region.federation.coallocations.apply(CoAllocationReleaseRequested(job=name, time=T))
    for event in (
        CoAllocationReleaseRequested(job=name, time=T),
        RoundProposed(job=name, time=T, number=2, start=T, length=5, places=(), why=""),
        RoundCommitted(job=name, time=T, number=1),
        PlaceBooked(job=name, time=T, number=1, part=0, plan=1),
    ):
        with pytest.raises(ImpossibleError):
            region.federation.coallocations.apply(event)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_lost_or_killed_a_group_runs_as_a_whole_or_not_at_all(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_courses_of_losses_and_kills(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


def play(directory: Path, seed: int) -> None:
    region = SimulatedFederation(directory, "abc", seed)
    chance = region.chance
    names = []
    for cluster in "abc":
        region.busy(cluster, chance.randint(0, 3), chance.randint(50, 400), runtime=chance.randint(20, 400))
    region.loss, region.death = 0.1, 0.02
    for _ in range(3):
        parts = [
            {"nodes": chance.choice(["1:ppn=4", "2:ppn=4", "2:ppn=2"]), "optional": chance.random() < 0.15}
            for _ in range(chance.randint(1, 3))
        ]
        parts[0]["optional"] = False
        names.append(region.submit(*parts, overhead=chance.choice([0, 20])))
        region.go(chance.randint(5, 60), 2)
        region.cut = {chance.choice("abc")} if chance.random() < 0.4 else set()
        region.busy(chance.choice("abc"), 1, chance.randint(50, 300))
    region.go(200, 2)
    region.loss = region.death = 0.0
    region.cut = set()
    region.go(2500, 5)
    for name in names:
        group, starts = region.group(name), region.starts(name)
        assert group.over in ("ended", "failed"), (seed, group)
        assert group.settled, (seed, group)
        if group.over == "ended":
            must = {i for i, one in enumerate(group.parts) if not one.optional}
            assert must <= set(starts), (seed, group, starts)
            assert all(len(one) == 1 for one in starts.values()), (seed, starts)
            moments = {one[0] for one in starts.values()}
            assert max(moments) - min(moments) <= 60, (seed, starts)
    for provider in region.clusters.values():
        assert not any(one.slots for one in provider.engine.state.bookings.values())
    region.close()


# ---- outages around the common start --------------------------------------------------------------


def outage(directory: Path, seed: int) -> str:
    """Short parts at three clusters, and outages of clusters and of the federation around the start.

    Returns how it ended. A part that runs to its end without the others must be of a group all of whose
    clusters had acknowledged that it may start, or whose federation died just then.
    """
    region = SimulatedFederation(directory, "abc", seed)
    chance = region.chance
    name = region.submit(*({**WHOLE, "walltime": 30, "clusters": [one]} for one in "abc"))
    region.go(5)
    begin = region.group(name).promised
    assert begin is not None
    out: dict[str, tuple[int, int]] = {}
    for cluster in chance.sample("abc", chance.randint(1, 2)):
        first = begin[0] - chance.randint(-5, 30)
        out[cluster] = (first, first + chance.choice([5, 20, 50, 150, 400]))
    dies = begin[0] - chance.randint(-3, 25) if chance.random() < 0.4 else 0
    until = dies + chance.choice([0, 10, 40, 200])
    while region.now < begin[0] + 1_500:
        for cluster, provider in region.clusters.items():
            first, last = out.get(cluster, (0, 0))
            gone = first <= region.now < last
            provider.deaf, provider.obeys = gone, not gone
            (region.cut.add if gone else region.cut.discard)(cluster)
        if dies <= region.now < until:
            for provider in region.clusters.values():
                provider.at(region.now - T + 1)
        elif dies and region.now == until:
            region.begin()
            region.go(1)
        else:
            region.go(1)
    group, starts = region.group(name), region.starts(name)
    assert group.settled, (seed, group)
    whole = all(
        any(moment >= group.release_requested_at - T for moment in starts.get(part, ())) for part in range(3)
    )
    found = "none" if not starts else "all" if whole else "some"
    if group.over == "ended":
        assert found == "all", (seed, group, starts)
    if found == "some":
        rounds = [one for one in group.rounds if one.armed or group.armed_at]
        heard = any(one.armed >= {0, 1, 2} for one in rounds)
        died = dies and group.armed_at - 1 <= dies <= max(one.start for one in rounds)
        assert heard or died, (seed, group, starts, out, dies)
    for provider in region.clusters.values():
        assert not any(job.state == "R" for job in provider.server.jobs.values()), seed
        assert not any(one.slots for one in provider.engine.state.bookings.values()), seed
        assert set(provider.server.jobs) == set(), (seed, "a copy was left behind")
    region.close()
    return found


@pytest.mark.parametrize("seed", range(12))
def test_an_outage_before_all_clusters_acknowledged_lets_no_part_start(tmp_path: Path, seed: int) -> None:
    outage(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(1_000, 3_000, 100))
def test_many_outages_around_the_common_start(tmp_path: Path, first: int) -> None:
    found = Counter[str]()
    for seed in range(first, first + 100):
        directory = tmp_path / str(seed)
        directory.mkdir()
        found[outage(directory, seed)] += 1
    assert found["all"]
