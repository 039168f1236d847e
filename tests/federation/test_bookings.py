"""Bookings of a federation: one place at one cluster or none, whatever is cut, killed, lost or refused."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from schedd.api.booking_rows import booking_row, counter_offers
from schedd.client import Unreachable
from schedd.federation.bookings.bookings import FederationBookings
from schedd.federation.bookings.events import (
    BookingAccepted,
    BookingAttempted,
    BookingCancelled,
    BookingConfirmed,
    BookingDeclined,
    BookingPlaced,
    BookingRefused,
    BookingRequested,
    BookingWithdrawalRequested,
    BookingWithdrawn,
)
from schedd.federation.events import decode, encode
from schedd.federation.routing.jobs import ImpossibleError
from schedd.federation.settings import ClusterSettings, FederationSettings
from tests.engine.cluster import T
from tests.federation.simulated_federation import SimulatedCluster, SimulatedFederation

DAY = 86_400


@pytest.fixture
def region(tmp_path: Path) -> Iterator[SimulatedFederation]:
    made = SimulatedFederation(tmp_path)
    yield made
    made.close()


# ---- where it goes ----------------------------------------------------------------------------------------


def test_it_is_booked_where_the_plans_let_it_begin_first_under_the_users_name_there(
    region: SimulatedFederation,
) -> None:
    region.busy("a", 2, 300)
    region.busy("b", 2, 200)
    name = region.book("review")
    region.go(2)
    one = region.booking(name)
    assert region.booked() == {name: [("b", 200)]}
    assert (one.booked, one.phase, one.start, one.cpus) == (True, "flexible", T + 200, 8)
    (there,) = region.clusters["b"].engine.state.bookings.values()
    assert (there.event.owner, there.confirmed, there.event.transfer) == ("ann", True, "")
    assert not region.clusters["a"].engine.state.bookings, "the other was asked for its plan alone"


def test_equal_plans_go_by_handicap_as_jobs_do(tmp_path: Path) -> None:
    region = SimulatedFederation(tmp_path)
    far = region.settings.clusters["a"].model_copy(update={"handicap": 500})
    region.settings = region.settings.model_copy(
        update={"clusters": {"a": far, "b": region.settings.clusters["b"]}}
    )
    region.begin()
    name = region.book("review", (1_000, 5_000))
    region.go(2)
    assert region.booked() == {name: [("b", 1_000)]}
    region.close()


def test_it_may_be_bound_to_clusters_and_needs_a_user_there(region: SimulatedFederation) -> None:
    region.busy("a", 2, 300)
    only = region.book("only", clusters=("a",))
    stranger = region.book("stranger", owner="eve@elsewhere")
    region.go(2)
    assert region.booked() == {only: [("a", 300)]}
    assert region.booking(stranger).over == "refused"
    assert region.booking(stranger).text == (
        "a: eve@elsewhere has no user there; b: eve@elsewhere has no user there"
    )


def test_a_strict_interval_is_booked_then_or_not_at_all(region: SimulatedFederation) -> None:
    region.busy("a", 2, 300)
    names = [region.book(f"r{i}", (250, 350), freeze=0) for i in range(2)]
    region.go(2)
    assert region.booked() == {names[0]: [("b", 250)]}
    assert region.booking(names[0]).phase == "frozen"
    assert region.booking(names[1]).over == "refused"


def test_a_booking_that_may_move_makes_way_where_no_plan_has_room(region: SimulatedFederation) -> None:
    """What the plans say is where it is tried first; a refusal is a cluster's own."""
    first = [region.book(f"f{i}", (100, 1_000), clusters=(name,)) for i, name in enumerate("ab")]
    region.go(2)
    assert region.booked() == {first[0]: [("a", 100)], first[1]: [("b", 100)]}
    late = region.book("late", (100, 200))
    region.go(4)
    assert region.booked()[late] == [("a", 100)]
    assert region.booking(late).attempts[0].expected is None
    moved = region.booking(first[0])
    assert (moved.start, moved.moves[-1][1:]) == (T + 200, (T + 100, T + 200))


def test_the_same_name_is_the_same_booking_until_it_is_over(region: SimulatedFederation) -> None:
    one = region.book("review")
    region.go(2)
    assert region.book("review", (500, 900)) == one
    his = region.book("review", owner="bob@org")  # names are the owner's
    assert his != one
    assert region.book("review", owner="bob@org") == his
    region.federation.booking_operations.cancel(one, "ann@org")
    region.go(2)
    assert region.book("review", owner="bob@org") != one


# ---- refused, and taken otherwise -------------------------------------------------------------------------


def test_where_all_refuse_their_counter_offers_are_merged_and_one_is_taken(
    region: SimulatedFederation,
) -> None:
    region.busy("a", 2, 1_000)
    region.busy("b", 2, 1_200)
    for cluster in "ab":
        region.clusters[cluster].reserve("later", "n1", "n2", start=2_000, end=3_000)
    name = region.book("review", (2_200, 2_400))
    region.go(2)
    one = region.booking(name)
    assert (one.over, region.booked()) == ("refused", {})
    assert one.text == ("a: there is no room for it in its window; b: there is no room for it in its window")
    offers = counter_offers(one)
    assert {offer.cluster for offer in offers} == {"a", "b"}
    assert {offer.stretch < 0 for offer in offers} == {True, False}
    assert [abs(offer.stretch) for offer in offers] == sorted(abs(offer.stretch) for offer in offers)
    chosen = next(offer for offer in offers if offer.cluster == "b" and offer.stretch > 0)
    region.federation.booking_operations.accept(name, "ann@org", chosen.cluster, chosen.start)
    region.go(2)
    assert region.booked() == {name: [("b", chosen.start - T)]}
    assert region.booking(name).booked
    assert counter_offers(region.booking(name)) == ()


def test_an_offer_that_is_gone_brings_new_ones(region: SimulatedFederation) -> None:
    region.busy("a", 2, 1_000)
    region.busy("b", 2, 5_000)
    name = region.book("review", (100, 300))
    region.go(2)
    first = counter_offers(region.booking(name))
    assert (first[0].cluster, first[0].start) == ("a", T + 1_000)
    other = region.book("quick", (1_000, 1_100), clusters=("a",))
    region.go(2)
    region.federation.booking_operations.accept(name, "ann@org", "a", T + 1_000)
    region.go(2)
    one = region.booking(name)
    assert (one.over, region.booked()) == ("refused", {other: [("a", 1_000)]})
    new = counter_offers(one)
    assert T + 1_000 not in {offer.start for offer in new if offer.cluster == "a"}
    assert {offer.cluster for offer in new} == {"a", "b"}, "what the other offered before still stands"


def test_only_what_was_refused_can_be_taken_otherwise(region: SimulatedFederation) -> None:
    name = region.book("review")
    region.go(2)
    with pytest.raises(ImpossibleError, match="was not refused"):
        region.federation.booking_operations.accept(name, "ann@org", "a", T + 1_000)


# ---- time -------------------------------------------------------------------------------------------------


def test_it_is_frozen_when_asked_for_or_after_its_share_of_the_wait_and_ends(
    region: SimulatedFederation,
) -> None:
    one = region.book("one", (200, 1_000))
    two = region.book("two", (400, 1_000), freeze=50)
    region.go(2)
    region.federation.booking_operations.freeze(one, "ann@org")
    region.go(2)
    assert (region.booking(one).phase, region.booking(two).phase) == ("frozen", "flexible")
    region.go(210)
    assert (region.booking(one).phase, region.booking(two).phase) == ("open", "frozen")
    region.go(400)
    assert [region.booking(name).over for name in (one, two)] == ["ended", "ended"]
    assert not region.federation.bookings.open


def test_what_is_given_back_at_the_cluster_itself_is_over(region: SimulatedFederation) -> None:
    name = region.book("review", clusters=("a",))
    region.go(2)
    region.connect(region.settings.clusters["a"], "x").cancel_booking(f"fed.{name}.1")
    region.go(2)
    one = region.booking(name)
    assert (one.over, one.text) == ("cancelled", "a: given back by ours")


def test_what_a_cluster_lost_is_said_to_be_lost(region: SimulatedFederation) -> None:
    name = region.book("review", (500, 900), clusters=("a",))
    region.go(2)
    without_its_database = SimulatedCluster("a")
    without_its_database.at(region.now - T)
    region.clusters["a"] = without_its_database
    region.go(2)
    one = region.booking(name)
    assert (one.over, one.text) == ("lost", "a does not know it any more")


def test_a_job_in_a_booking_goes_where_that_is_and_runs_in_it(region: SimulatedFederation) -> None:
    region.busy("a", 2, 300)
    region.busy("b", 2, 200)
    number = region.book("review", duration=300)
    region.go(2)
    work = {
        "script": "sleep 1",
        "resources": {"nodes": "2:ppn=4", "walltime": "100"},
        "booking": f"fed.{number}.1",
    }
    job = region.federation.submit("ann@org", work, clusters=("b",), booking=number)
    free = region.federation.submit("ann@org", {**work, "booking": ""})
    region.go(3)
    assert [one.cluster for one in region.federation.jobs[job.id].attempts] == ["b"]
    assert region.federation.jobs[job.id].attempts[0].why == "its booking is there"
    assert not region.federation.jobs[free.id].attempts, "no plan was asked here"
    region.go(400, 2)
    assert region.clusters["b"].started()[f"fed.{job.id}.1"] == T + 200
    assert booking_row(region.federation, region.booking(number))["jobs"] == [job.id]


def test_a_job_in_a_booking_waits_for_its_cluster_and_goes_nowhere_else(region: SimulatedFederation) -> None:
    number = region.book("review", (500, 900), clusters=("b",))
    region.go(2)
    region.cut = {"b"}
    region.go(2)
    work = {
        "script": "sleep 1",
        "resources": {"nodes": "1:ppn=4", "walltime": "100"},
        "booking": f"fed.{number}.1",
    }
    job = region.federation.submit("ann@org", work, clusters=("b",), booking=number)
    region.go(100, 2)
    assert not region.federation.jobs[job.id].over
    region.cut = set()
    region.go(600, 2)
    assert region.clusters["b"].starts.total() == 1
    assert next(iter(region.clusters["b"].started().values())) == T + 500


# ---- what breaks ------------------------------------------------------------------------------------------


def test_a_cluster_that_is_cut_off_keeps_the_booking_and_is_said_to_be(region: SimulatedFederation) -> None:
    name = region.book("review", (500, 900), clusters=("a",))
    region.go(2)
    region.cut = {"a"}
    region.go(200, 5)
    assert region.booked() == {name: [("a", 500)]}
    row = booking_row(region.federation, region.booking(name))
    assert (row["state"], row["cluster"], row["away"]) == ("flexible", "a", "it does not answer")
    assert row["text"] == "a does not answer, the booking stays: it does not answer"
    region.cut = set()
    region.go(2)
    assert booking_row(region.federation, region.booking(name))["away"] == ""


def test_what_is_taken_back_while_its_cluster_is_cut_off_is_given_back_once_it_answers(
    region: SimulatedFederation,
) -> None:
    name = region.book("review", (500, 900), clusters=("a",))
    region.go(2)
    region.cut = {"a"}
    region.go(2)
    region.federation.booking_operations.cancel(name, "ann@org")
    region.go(20)
    row = booking_row(region.federation, region.booking(name))
    assert (row["state"], row["over"], region.booked()) == ("being given back", "", {name: [("a", 500)]})
    assert row["text"] == "taken back by ann@org; it is given back once a answers: it does not answer"
    region.begin()  # the federation is killed meanwhile
    region.cut = set()
    region.go(8)
    assert (region.booking(name).over, region.booked()) == ("cancelled", {})


def test_where_the_answer_is_lost_it_is_the_same_booking_when_asked_again(
    region: SimulatedFederation,
) -> None:
    region.after = {"book": 1}  # the request gets through, its answer does not
    name = region.book("review")
    region.go(1)
    assert region.booking(name).attempts[0].phase == "requested"
    assert len(region.booked()[name]) == 1
    region.begin()
    region.go(6)
    assert region.booking(name).booked
    assert [one.number for one in region.booking(name).attempts] == [1]
    assert len(region.booked()[name]) == 1


def test_a_cluster_that_falls_silent_is_passed_over_and_what_it_may_have_booked_expires(
    region: SimulatedFederation,
) -> None:
    region.busy("b", 2, 1_000)
    region.after = {"book": 99}  # a books, but nobody ever hears of it
    region.lost = "cancel"  # nor can it be given back
    name = region.book("review", (500, 2_000))
    region.go(20)
    one = region.booking(name)
    assert [(it.cluster, it.phase) for it in one.attempts] == [("a", "withdrawing"), ("b", "requested")], one
    region.after = {}
    region.go(20)
    assert region.booked() == {name: [("b", 1_000)]}
    assert [it.phase for it in region.booking(name).attempts] == ["withdrawing", "confirmed"]
    region.lost = ""
    region.go(5)
    assert [it.phase for it in region.booking(name).attempts] == ["withdrawn", "confirmed"]


def test_a_cluster_that_is_never_heard_of_is_tried_three_times(region: SimulatedFederation) -> None:
    region.after = {"book": 99}
    name = region.book("review", (500, 2_000), clusters=("a",))
    region.go(80, 2)
    one = region.booking(name)
    assert (one.over, one.text, len(one.attempts)) == ("refused", "a did not answer in time", 3)
    assert region.booked() == {}


def test_one_whose_confirmation_does_not_get_through_is_sought_anew(region: SimulatedFederation) -> None:
    region.lost = "confirm"
    name = region.book("review", (500, 2_000))
    region.go(5)
    assert region.booking(name).attempts[0].phase == "booked"
    assert not region.booking(name).booked
    assert booking_row(region.federation, region.booking(name))["state"] == "being booked"
    region.go(40)
    region.lost = ""
    region.go(10)
    assert region.booking(name).booked
    assert [it.phase for it in region.booking(name).attempts] == ["withdrawn", "confirmed"]
    assert len(region.booked()[name]) == 1


def test_a_confirmation_that_got_through_counts_though_its_answer_was_lost(
    region: SimulatedFederation,
) -> None:
    region.after = {"confirm": 99}
    name = region.book("review", (500, 2_000))
    region.go(10)
    assert region.booking(name).booked, "the cluster's list says so"
    assert [it.number for it in region.booking(name).attempts] == [1]


def test_no_cluster_answers(region: SimulatedFederation) -> None:
    region.cut = {"a", "b"}
    region.begin()
    name = region.book("review")
    region.go(20)
    assert region.booking(name).seeks, "they are waited for"
    region.go(20)
    one = region.booking(name)
    assert (one.over, one.text) == (
        "refused",
        "a does not answer: it does not answer; b does not answer: it does not answer",
    )


def test_a_cluster_that_hangs_is_asked_seldom(region: SimulatedFederation) -> None:
    name = region.book("review", (500, 9_000), clusters=("a",))
    region.go(2)
    asked: list[int] = []

    def hang(settings: ClusterSettings, token: str) -> Any:
        asked.append(region.now - T)
        for provider in region.clusters.values():
            provider.at(provider.server.now - T + 10)
        raise Unreachable("it takes too long")

    region.bookings._connect = hang
    region.federation.booking_operations.cancel(name, "ann@org")
    for _ in range(100):
        region.bookings.round()
        for provider in region.clusters.values():
            provider.at(provider.server.now - T + 1)
    assert [after - before for before, after in pairwise(asked)] == [50] * (len(asked) - 1), asked
    assert len(asked) > 1


def test_a_cluster_that_leaves_the_federation_takes_its_booking_along(region: SimulatedFederation) -> None:
    name = region.book("review", (500, 900), clusters=("b",))
    back = region.book("back", (500, 900), clusters=("b",), resources={"nodes": "1:ppn=1"})
    region.go(2)
    region.cut = {"b"}
    region.federation.booking_operations.cancel(back, "ann@org")
    left = {"clusters": {"a": region.settings.clusters["a"]}}
    region.settings = FederationSettings.model_validate(region.settings.model_copy(update=left).model_dump())
    gone = region.clusters.pop("b")
    region.begin()
    region.go(3)
    assert (region.booking(name).over, region.booking(back).over) == ("lost", "cancelled")
    region.clusters["b"] = gone


@pytest.mark.parametrize("death", range(1, 14))
def test_killed_at_each_request_there_is_one_booking(tmp_path: Path, death: int) -> None:
    """The first request, or its answer, at which it dies is another one each time."""
    region = SimulatedFederation(tmp_path, "abc")
    region.busy("a", 2, 400)
    region.dies_at = death
    name = region.book("review", (100, 2_000))
    region.go(5)
    region.federation.booking_operations.freeze(name, "ann@org") if region.booking(name).booked else None
    region.go(5)
    assert region.booking(name).booked
    assert len(region.booked()[name]) == 1
    region.federation.booking_operations.cancel(name, "ann@org")
    region.go(8)
    assert (region.booking(name).over, region.booked()) == ("cancelled", {})
    region.close()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_lost_or_killed_a_booking_is_in_one_place_or_none(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_courses_of_losses_and_kills(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


def play(directory: Path, seed: int) -> None:
    region = SimulatedFederation(directory, "abc", seed)
    chance = region.chance
    for cluster in "abc":
        region.busy(cluster, chance.randint(0, 3), chance.randint(50, 400))
    region.loss, region.death = 0.15, 0.04
    names: list[str] = []
    for number in range(8):
        ready = chance.randint(0, 1_500)
        more: dict[str, Any] = {"resources": {"nodes": chance.choice(["1:ppn=4", "2:ppn=4", "1:ppn=2"])}}
        room = chance.choice([0, 50, 2_000])
        names.append(region.book(f"r{number}", (ready, ready + 100 + room), **more))
        for _ in range(chance.randint(1, 20)):
            region.go(1)
            one_place(region, seed)
        region.cut = {chance.choice("abc")} if chance.random() < 0.4 else set()
        chosen = region.booking(chance.choice(names))
        if chance.random() < 0.4 and not chosen.over and not chosen.cancelled:
            region.federation.booking_operations.cancel(chosen.id, "ann@org")
        elif chosen.over == "refused" and counter_offers(chosen):
            option = counter_offers(chosen)[0]
            region.federation.booking_operations.accept(chosen.id, "ann@org", option.cluster, option.start)
    for _ in range(30):
        region.go(2, 2)
        one_place(region, seed)
    region.loss = region.death = 0.0
    region.cut = set()
    region.go(80, 2)
    there = region.booked()
    for name in names:
        one = region.booking(name)
        if one.over:
            assert name not in there, (seed, one, there)
            assert one.settled, (seed, one)
        else:
            assert one.booked, (seed, one)
            assert one.placed is not None
            assert [place[0] for place in there[name]] == [one.placed.cluster], (seed, one, there)
            assert one.start is not None
            assert there[name][0][1] == one.start - T, (seed, one)
            assert one.wanted_ready <= one.start <= one.wanted_deadline - one.duration, (seed, one)
    region.go(6_000, 50)
    assert not region.federation.bookings.open, seed
    assert region.booked() == {}, seed
    region.close()


def one_place(region: SimulatedFederation, seed: int) -> None:
    """No two clusters keep cores for one booking for good."""
    kept: dict[str, list[str]] = {}
    for name, provider in region.clusters.items():
        for one in provider.engine.state.bookings.values():
            if one.phase in ("flexible", "frozen", "open") and one.confirmed:
                kept.setdefault(one.name.split(".")[1], []).append(name)
    assert all(len(places) == 1 for places in kept.values()), (seed, kept)


# ---- the log ----------------------------------------------------------------------------------------------

ASKED = BookingRequested(
    job="1",
    time=T,
    owner="ann@org",
    name="r",
    resources={"nodes": "1"},
    duration=60,
    ready=T,
    deadline=T + 600,
)
TRIED = BookingAttempted(
    job="1", time=T, attempt=1, cluster="a", user="ann", until=T + 30, expected=T, why="plan"
)
TAKEN = BookingPlaced(job="1", time=T, attempt=1, start=T + 5, cpus=1, plan=3)
CONFIRMED = BookingConfirmed(job="1", time=T, attempt=1)
DECLINED = BookingDeclined(job="1", time=T, attempt=1, text="no")
UP = BookingWithdrawalRequested(job="1", time=T, attempt=1, why="w")
BACK = BookingWithdrawn(job="1", time=T, attempt=1)
REFUSED = BookingRefused(job="1", time=T, text="no")
ACCEPTED = BookingAccepted(job="1", time=T, by="ann", cluster="a", start=T + 50)
CANCELLED = BookingCancelled(job="1", time=T, by="ann")


@pytest.mark.parametrize(
    ("before", "event"),
    [
        ([], TRIED),
        ([ASKED], ASKED),
        ([ASKED], TAKEN),
        ([ASKED, TRIED], CONFIRMED),
        ([ASKED, TRIED], TRIED),
        ([ASKED, TRIED], REFUSED),
        ([ASKED, TRIED, TAKEN], TAKEN),
        ([ASKED, TRIED, TAKEN], DECLINED),
        ([ASKED, TRIED, TAKEN], BACK),
        ([ASKED, TRIED, UP], TAKEN),
        ([ASKED, TRIED, CANCELLED], TAKEN),
        ([ASKED, TRIED, CANCELLED], CANCELLED),
        ([ASKED, CANCELLED], TRIED),
        ([ASKED], ACCEPTED),
        ([ASKED, TRIED, DECLINED, REFUSED], TRIED),
    ],
)
def test_what_cannot_follow_is_not_taken_in(before: list[object], event: object) -> None:
    bookings = FederationBookings()
    for one in before:
        bookings.apply(one)  # type: ignore[arg-type]
    with pytest.raises(ImpossibleError):
        bookings.check(event)  # type: ignore[arg-type]


def test_events_of_bookings_are_the_same_after_the_log() -> None:
    for event in (ASKED, TRIED, TAKEN, CONFIRMED, DECLINED, UP, BACK, REFUSED, ACCEPTED, CANCELLED):
        assert decode(encode(event)) == event


def test_bookings_are_forgotten_when_nobody_asks_after_them_any_more(region: SimulatedFederation) -> None:
    name = region.book("review")
    region.go(2)
    region.federation.booking_operations.cancel(name, "ann@org")
    region.go(2)
    later = region.book("later", (8 * DAY, 9 * DAY), clusters=("a",), freeze=0)
    for provider in region.clusters.values():
        provider.server.now += 8 * DAY
    region.begin()
    assert name not in region.federation.bookings.by_id
    assert region.federation.bookings.named("review", "ann@org") is None
    assert later in region.federation.bookings.by_id
    region.begin()
    assert name not in region.federation.bookings.by_id
