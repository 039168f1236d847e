"""Bookings of a federation: at most one place at one cluster, despite cuts, kills, losses and refusals."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from schedd.client import Unreachable
from schedd.features.bookings.admission import NO_ROOM
from schedd.features.bookings.state import booking_table
from schedd.federation.api.booking_rows import booking_row, counter_offers
from schedd.federation.bookings.bookings import FederationBookings
from schedd.federation.events import (
    AttemptBooked,
    AttemptConfirmed,
    AttemptRefused,
    AttemptWithdrawn,
    BookingAccepted,
    BookingSubmitted,
    ClusterChosen,
    ItemCancelled,
    ItemEnded,
    WithdrawalRequested,
    decode,
    encode,
)
from schedd.federation.items import ImpossibleError
from schedd.federation.settings import FederationSettings, MemberClusterSettings
from tests.engine.cluster import T
from tests.federation.simulated_federation import SimulatedCluster, SimulatedFederation, seeds

DAY = 86_400


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[SimulatedFederation]:
    made = SimulatedFederation(tmp_path)
    yield made
    made.close()


# ---- where it goes ----------------------------------------------------------------------------------------


def test_booking_goes_to_cluster_with_earliest_start(
    simulation: SimulatedFederation,
) -> None:
    simulation.busy("a", 2, 300)
    simulation.busy("b", 2, 200)
    name = simulation.book("review")
    simulation.go(2)
    one = simulation.booking(name)
    assert simulation.booked() == {name: [("b", 200)]}
    assert (one.booked, one.phase, one.start, one.cpus) == (True, "flexible", T + 200, 8)
    (there,) = booking_table(simulation.clusters["b"].engine.state).values()
    assert (there.event.owner, there.confirmed, there.event.transfer) == ("ann", True, "")
    assert not booking_table(simulation.clusters["a"].engine.state), "the other was asked for its plan alone"


def test_equal_starts_are_ordered_by_handicap(tmp_path: Path) -> None:
    simulation = SimulatedFederation(tmp_path)
    far = simulation.settings.clusters["a"].model_copy(update={"handicap": 500})
    simulation.settings = simulation.settings.model_copy(
        update={"clusters": {"a": far, "b": simulation.settings.clusters["b"]}}
    )
    simulation.begin()
    name = simulation.book("review", (1_000, 5_000))
    simulation.go(2)
    assert simulation.booked() == {name: [("b", 1_000)]}
    simulation.close()


def test_booking_respects_clusters_and_needs_a_user_name(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 2, 300)
    only = simulation.book("only", clusters=("a",))
    stranger = simulation.book("stranger", owner="eve@elsewhere")
    simulation.go(2)
    assert simulation.booked() == {only: [("a", 300)]}
    assert simulation.booking(stranger).over == "refused"
    assert simulation.booking(stranger).text == (
        "a: eve@elsewhere has no user there; b: eve@elsewhere has no user there"
    )


def test_fixed_start_is_booked_exactly_or_refused(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 2, 300)
    names = [simulation.book(f"r{i}", (250, 350), freeze=0) for i in range(2)]
    simulation.go(2)
    assert simulation.booked() == {names[0]: [("b", 250)]}
    assert simulation.booking(names[0]).phase == "frozen"
    assert simulation.booking(names[1]).over == "refused"


def test_flexible_booking_moves_to_make_room(simulation: SimulatedFederation) -> None:
    """The plans determine the first attempt; only the cluster itself refuses."""
    first = [simulation.book(f"f{i}", (100, 1_000), clusters=(name,)) for i, name in enumerate("ab")]
    simulation.go(2)
    assert simulation.booked() == {first[0]: [("a", 100)], first[1]: [("b", 100)]}
    late = simulation.book("late", (100, 200))
    simulation.go(4)
    assert simulation.booked()[late] == [("a", 100)]
    assert simulation.booking(late).attempts[0].expected is None
    moved = simulation.booking(first[0])
    assert (moved.start, moved.moves[-1][1:]) == (T + 200, (T + 100, T + 200))


def test_same_name_is_same_booking_until_it_ends(simulation: SimulatedFederation) -> None:
    one = simulation.book("review")
    simulation.go(2)
    assert simulation.book("review", (500, 900)) == one
    his = simulation.book("review", owner="bob@org")  # names are the owner's
    assert his != one
    assert simulation.book("review", owner="bob@org") == his
    simulation.federation.booking_operations.cancel(one, "ann@org")
    simulation.go(2)
    assert simulation.book("review", owner="bob@org") != one


def test_booking_gets_the_cluster_and_the_size_that_end_first(simulation: SimulatedFederation) -> None:
    """One node of a is busy: it has four cores for 300 s at once, b has eight for 100 s after 150 s."""
    simulation.busy("a", 1, 1_000)
    simulation.busy("b", 2, 150)
    sizes: dict[str, Any] = {"resources": {"trl": "8@100:4@300"}, "duration": 300}
    name = simulation.book("review", (0, 400), **sizes)
    small = simulation.book("small", (0, 310), clusters=("a",), **sizes)
    simulation.go(3)
    one = simulation.booking(name)
    assert simulation.booked() == {name: [("b", 150)], small: [("a", 1)]}
    row = booking_row(simulation.federation, one)
    assert (row.cpus, row.duration, row.end) == (8, 100, T + 250)
    assert booking_row(simulation.federation, simulation.booking(small)).duration == 300


def test_option_of_a_booking_with_sizes_is_booked_as_offered(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 2, 500)
    sizes: dict[str, Any] = {"resources": {"trl": "8@100:4@300"}, "duration": 300, "clusters": ("a",)}
    name = simulation.book("review", (0, 400), **sizes)
    simulation.go(3)
    offers = counter_offers(simulation.booking(name))
    longer = next(offer for offer in offers if offer.end - offer.start == 300)
    only_longer = [offer for offer in offers if offer.start == longer.start] == [longer]
    simulation.federation.booking_operations.accept(name, "ann@org", "a", longer.start)
    simulation.go(3)
    row = booking_row(simulation.federation, simulation.booking(name))
    assert (row.start, row.duration) == (longer.start, 300 if only_longer else 100)


# ---- refused, and taken otherwise -------------------------------------------------------------------------


def test_alternatives_are_merged_and_acceptable(
    simulation: SimulatedFederation,
) -> None:
    simulation.busy("a", 2, 1_000)
    simulation.busy("b", 2, 1_200)
    for cluster in "ab":
        simulation.clusters[cluster].reserve("later", "n1", "n2", start=2_000, end=3_000)
    name = simulation.book("review", (2_200, 2_400))
    simulation.go(2)
    one = simulation.booking(name)
    assert (one.over, simulation.booked()) == ("refused", {})
    assert one.text == (f"a: {NO_ROOM}; b: {NO_ROOM}")
    offers = counter_offers(one)
    assert {offer.cluster for offer in offers} == {"a", "b"}
    assert {offer.stretch < 0 for offer in offers} == {True, False}
    assert [abs(offer.stretch) for offer in offers] == sorted(abs(offer.stretch) for offer in offers)
    chosen = next(offer for offer in offers if offer.cluster == "b" and offer.stretch > 0)
    simulation.federation.booking_operations.accept(name, "ann@org", chosen.cluster, chosen.start)
    simulation.go(2)
    assert simulation.booked() == {name: [("b", chosen.start - T)]}
    assert simulation.booking(name).booked
    assert counter_offers(simulation.booking(name)) == ()


def test_lost_alternative_is_replaced(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 2, 1_000)
    simulation.busy("b", 2, 5_000)
    name = simulation.book("review", (100, 300))
    simulation.go(2)
    first = counter_offers(simulation.booking(name))
    assert (first[0].cluster, first[0].start) == ("a", T + 1_000)
    other = simulation.book("quick", (1_000, 1_100), clusters=("a",))
    simulation.go(2)
    simulation.federation.booking_operations.accept(name, "ann@org", "a", T + 1_000)
    simulation.go(2)
    one = simulation.booking(name)
    assert (one.over, simulation.booked()) == ("refused", {other: [("a", 1_000)]})
    new = counter_offers(one)
    assert T + 1_000 not in {offer.start for offer in new if offer.cluster == "a"}
    assert {offer.cluster for offer in new} == {"a", "b"}, "what the other offered before still stands"


def test_only_refused_booking_accepts_an_alternative(simulation: SimulatedFederation) -> None:
    name = simulation.book("review")
    simulation.go(2)
    with pytest.raises(ImpossibleError, match="was not refused"):
        simulation.federation.booking_operations.accept(name, "ann@org", "a", T + 1_000)


# ---- time -------------------------------------------------------------------------------------------------


def test_booking_freezes_on_request_or_after_its_wait_share(
    simulation: SimulatedFederation,
) -> None:
    one = simulation.book("one", (200, 1_000))
    two = simulation.book("two", (400, 1_000), freeze=50)
    simulation.go(2)
    simulation.federation.booking_operations.freeze(one, "ann@org")
    simulation.go(2)
    assert (simulation.booking(one).phase, simulation.booking(two).phase) == ("frozen", "flexible")
    simulation.go(210)
    assert (simulation.booking(one).phase, simulation.booking(two).phase) == ("open", "frozen")
    simulation.go(400)
    assert [simulation.booking(name).over for name in (one, two)] == ["ended", "ended"]
    assert not simulation.federation.bookings.open


def test_booking_cancelled_at_its_cluster_ends(simulation: SimulatedFederation) -> None:
    name = simulation.book("review", clusters=("a",))
    simulation.go(2)
    simulation.connect(simulation.settings.clusters["a"], "x").cancel_booking(f"fed.{name}.1")
    simulation.go(2)
    one = simulation.booking(name)
    assert (one.over, one.text) == ("cancelled", "a: given back by ours")


def test_booking_unknown_to_its_cluster_is_lost(simulation: SimulatedFederation) -> None:
    name = simulation.book("review", (500, 900), clusters=("a",))
    simulation.go(2)
    without_its_database = SimulatedCluster("a")
    without_its_database.at(simulation.now - T)
    simulation.clusters["a"] = without_its_database
    simulation.go(2)
    one = simulation.booking(name)
    assert (one.over, one.text) == ("lost", "a no longer knows it")


def test_job_runs_in_its_booking(simulation: SimulatedFederation) -> None:
    simulation.busy("a", 2, 300)
    simulation.busy("b", 2, 200)
    number = simulation.book("review", duration=300)
    simulation.go(2)
    work = {
        "script": "sleep 1",
        "resources": {"nodes": "2:ppn=4", "walltime": "100"},
        "booking": f"fed.{number}.1",
    }
    job = simulation.federation.submit("ann@org", work, clusters=("b",), booking=number)
    free = simulation.federation.submit("ann@org", {**work, "booking": ""})
    simulation.go(3)
    assert [one.cluster for one in simulation.federation.jobs[job.id].attempts] == ["b"]
    assert simulation.federation.jobs[job.id].attempts[0].why == "its booking is there"
    assert not simulation.federation.jobs[free.id].attempts, "no plan was asked here"
    simulation.go(400, 2)
    assert simulation.clusters["b"].started()[f"fed.{job.id}.1"] == T + 200
    assert booking_row(simulation.federation, simulation.booking(number)).jobs == [job.id]


def test_job_in_booking_waits_for_its_unreachable_cluster(simulation: SimulatedFederation) -> None:
    number = simulation.book("review", (500, 900), clusters=("b",))
    simulation.go(2)
    simulation.cut = {"b"}
    simulation.go(2)
    work = {
        "script": "sleep 1",
        "resources": {"nodes": "1:ppn=4", "walltime": "100"},
        "booking": f"fed.{number}.1",
    }
    job = simulation.federation.submit("ann@org", work, clusters=("b",), booking=number)
    simulation.go(100, 2)
    assert not simulation.federation.jobs[job.id].over
    simulation.cut = set()
    simulation.go(600, 2)
    assert simulation.clusters["b"].starts.total() == 1
    assert next(iter(simulation.clusters["b"].started().values())) == T + 500


# ---- what breaks ------------------------------------------------------------------------------------------


def test_unreachable_cluster_keeps_its_booking(simulation: SimulatedFederation) -> None:
    name = simulation.book("review", (500, 900), clusters=("a",))
    simulation.go(2)
    simulation.cut = {"a"}
    simulation.go(200, 5)
    assert simulation.booked() == {name: [("a", 500)]}
    row = booking_row(simulation.federation, simulation.booking(name))
    assert (row.state, row.cluster, row.away) == ("flexible", "a", "it does not answer")
    assert row.text == "a does not answer, and keeps the booking: it does not answer"
    simulation.cut = set()
    simulation.go(2)
    assert booking_row(simulation.federation, simulation.booking(name)).away == ""


def test_cancellation_reaches_the_cluster_after_reconnection(
    simulation: SimulatedFederation,
) -> None:
    name = simulation.book("review", (500, 900), clusters=("a",))
    simulation.go(2)
    simulation.cut = {"a"}
    simulation.go(2)
    simulation.federation.booking_operations.cancel(name, "ann@org")
    simulation.go(20)
    row = booking_row(simulation.federation, simulation.booking(name))
    assert (row.state, row.over, simulation.booked()) == ("being cancelled", "", {name: [("a", 500)]})
    assert row.text == "withdrawn by ann@org; it will be cancelled once a answers: it does not answer"
    simulation.begin()  # the federation is killed meanwhile
    simulation.cut = set()
    simulation.go(8)
    assert (simulation.booking(name).over, simulation.booked()) == ("cancelled", {})


def test_lost_reply_leads_to_same_booking(
    simulation: SimulatedFederation,
) -> None:
    simulation.after = {"book": 1}  # the request gets through, its answer does not
    name = simulation.book("review")
    simulation.go(1)
    assert simulation.booking(name).attempts[0].phase == "submitting"
    assert len(simulation.booked()[name]) == 1
    simulation.begin()
    simulation.go(6)
    assert simulation.booking(name).booked
    assert [one.number for one in simulation.booking(name).attempts] == [1]
    assert len(simulation.booked()[name]) == 1


def test_silent_cluster_is_skipped_and_its_booking_expires(
    simulation: SimulatedFederation,
) -> None:
    simulation.busy("b", 2, 1_000)
    simulation.after = {"book": 99}  # a books, but its answer is lost
    simulation.lost = "cancel"  # nor can it be given back
    name = simulation.book("review", (500, 2_000))
    simulation.go(20)
    one = simulation.booking(name)
    assert [(it.cluster, it.phase) for it in one.attempts] == [("a", "withdrawing"), ("b", "submitting")], one
    simulation.after = {}
    simulation.go(20)
    assert simulation.booked() == {name: [("b", 1_000)]}
    assert [it.phase for it in simulation.booking(name).attempts] == ["withdrawing", "confirmed"]
    simulation.lost = ""
    simulation.go(5)
    assert [it.phase for it in simulation.booking(name).attempts] == ["withdrawn", "confirmed"]


def test_silent_cluster_gets_three_attempts(simulation: SimulatedFederation) -> None:
    simulation.after = {"book": 99}
    name = simulation.book("review", (500, 2_000), clusters=("a",))
    simulation.go(80, 2)
    one = simulation.booking(name)
    assert (one.over, one.text, len(one.attempts)) == ("refused", "a did not answer in time", 3)
    assert simulation.booked() == {}


def test_unconfirmed_booking_moves_to_another_cluster(simulation: SimulatedFederation) -> None:
    simulation.lost = "confirm"
    name = simulation.book("review", (500, 2_000))
    simulation.go(5)
    assert simulation.booking(name).attempts[0].phase == "booked"
    assert not simulation.booking(name).booked
    assert booking_row(simulation.federation, simulation.booking(name)).state == "being booked"
    simulation.go(40)
    simulation.lost = ""
    simulation.go(10)
    assert simulation.booking(name).booked
    assert [it.phase for it in simulation.booking(name).attempts] == ["withdrawn", "confirmed"]
    assert len(simulation.booked()[name]) == 1


def test_confirmation_counts_despite_lost_reply(
    simulation: SimulatedFederation,
) -> None:
    simulation.after = {"confirm": 99}
    name = simulation.book("review", (500, 2_000))
    simulation.go(10)
    assert simulation.booking(name).booked, "the cluster's list says so"
    assert [it.number for it in simulation.booking(name).attempts] == [1]


def test_booking_is_refused_without_reachable_clusters(simulation: SimulatedFederation) -> None:
    simulation.cut = {"a", "b"}
    simulation.begin()
    name = simulation.book("review")
    simulation.go(20)
    assert simulation.booking(name).seeks, "they are waited for"
    simulation.go(20)
    one = simulation.booking(name)
    assert (one.over, one.text) == (
        "refused",
        "a does not answer: it does not answer; b does not answer: it does not answer",
    )


def test_hanging_cluster_is_in_backoff(simulation: SimulatedFederation) -> None:
    name = simulation.book("review", (500, 9_000), clusters=("a",))
    simulation.go(2)
    asked: list[int] = []

    def hang(settings: MemberClusterSettings, token: str) -> Any:
        asked.append(simulation.now - T)
        for provider in simulation.clusters.values():
            provider.at(provider.server.now - T + 10)
        raise Unreachable("it takes too long")

    simulation.bookings._connect = hang
    simulation.federation.booking_operations.cancel(name, "ann@org")
    for _ in range(100):
        simulation.bookings.round()
        for provider in simulation.clusters.values():
            provider.at(provider.server.now - T + 1)
    assert [after - before for before, after in pairwise(asked)] == [50] * (len(asked) - 1), asked
    assert len(asked) > 1


def test_bookings_are_polled_and_repeated_after_the_clock_was_set_back(
    simulation: SimulatedFederation,
) -> None:
    name = simulation.book("review", (500, 9_000), clusters=("a",))
    simulation.go(2)
    simulation.bookings._clock = lambda: simulation.now + 3_600
    connect, simulation.bookings._connect = simulation.bookings._connect, _unreachable
    simulation.go(2)  # polled an hour too late by the clock, and in backoff
    simulation.bookings._clock, simulation.bookings._connect = lambda: simulation.now, connect
    simulation.connect(simulation.settings.clusters["a"], "x").cancel_booking(f"fed.{name}.1")
    simulation.go(5)
    assert simulation.booking(name).over == "cancelled"


def _unreachable(settings: MemberClusterSettings, token: str) -> Any:
    raise Unreachable("it takes too long")


def test_removed_cluster_loses_its_booking(simulation: SimulatedFederation) -> None:
    name = simulation.book("review", (500, 900), clusters=("b",))
    back = simulation.book("back", (500, 900), clusters=("b",), resources={"nodes": "1:ppn=1"})
    simulation.go(2)
    simulation.cut = {"b"}
    simulation.federation.booking_operations.cancel(back, "ann@org")
    left = {"clusters": {"a": simulation.settings.clusters["a"]}}
    simulation.settings = FederationSettings.model_validate(
        simulation.settings.model_copy(update=left).model_dump()
    )
    gone = simulation.clusters.pop("b")
    simulation.begin()
    simulation.go(3)
    assert (simulation.booking(name).over, simulation.booking(back).over) == ("lost", "cancelled")
    simulation.clusters["b"] = gone


@pytest.mark.parametrize("death", range(1, 14))
def test_crash_at_each_request_leaves_a_single_booking(tmp_path: Path, death: int) -> None:
    """The federation dies at a different request or answer each time."""
    simulation = SimulatedFederation(tmp_path, "abc")
    simulation.busy("a", 2, 400)
    simulation.dies_at = death
    name = simulation.book("review", (100, 2_000))
    simulation.go(5)
    simulation.federation.booking_operations.freeze(name, "ann@org") if simulation.booking(
        name
    ).booked else None
    simulation.go(5)
    assert simulation.booking(name).booked
    assert len(simulation.booked()[name]) == 1
    simulation.federation.booking_operations.cancel(name, "ann@org")
    simulation.go(8)
    assert (simulation.booking(name).over, simulation.booked()) == ("cancelled", {})
    simulation.close()


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_booking_has_at_most_a_single_place_despite_faults(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_fault_sequences(tmp_path: Path, seed: int) -> None:
    play(tmp_path, seed)


def play(directory: Path, seed: int) -> None:
    simulation = SimulatedFederation(directory, "abc", seed)
    chance = simulation.chance
    for cluster in "abc":
        simulation.busy(cluster, chance.randint(0, 3), chance.randint(50, 400))
    simulation.loss, simulation.death = 0.15, 0.04
    names: list[str] = []
    for number in range(8):
        ready = chance.randint(0, 1_500)
        more: dict[str, Any] = {"resources": {"nodes": chance.choice(["1:ppn=4", "2:ppn=4", "1:ppn=2"])}}
        room = chance.choice([0, 50, 2_000])
        names.append(simulation.book(f"r{number}", (ready, ready + 100 + room), **more))
        for _ in range(chance.randint(1, 20)):
            simulation.go(1)
            check_single_place(simulation, seed)
        simulation.cut = {chance.choice("abc")} if chance.random() < 0.4 else set()
        chosen = simulation.booking(chance.choice(names))
        if chance.random() < 0.4 and not chosen.over and not chosen.cancelled:
            simulation.federation.booking_operations.cancel(chosen.id, "ann@org")
        elif chosen.over == "refused" and counter_offers(chosen):
            option = counter_offers(chosen)[0]
            simulation.federation.booking_operations.accept(
                chosen.id, "ann@org", option.cluster, option.start
            )
    for _ in range(30):
        simulation.go(2, 2)
        check_single_place(simulation, seed)
    simulation.loss = simulation.death = 0.0
    simulation.cut = set()
    simulation.go(80, 2)
    there = simulation.booked()
    for name in names:
        one = simulation.booking(name)
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
    simulation.go(6_000, 50)
    assert not simulation.federation.bookings.open, seed
    assert simulation.booked() == {}, seed
    simulation.close()


def check_single_place(simulation: SimulatedFederation, seed: int) -> None:
    """No two clusters keep cores for one booking for good."""
    kept: dict[str, list[str]] = {}
    for name, provider in simulation.clusters.items():
        for one in booking_table(provider.engine.state).values():
            if one.phase in ("flexible", "frozen", "open") and one.confirmed:
                kept.setdefault(one.name.split(".")[1], []).append(name)
    assert all(len(places) == 1 for places in kept.values()), (seed, kept)


# ---- the log ----------------------------------------------------------------------------------------------

ASKED = BookingSubmitted(
    job="1",
    time=T,
    owner="ann@org",
    name="r",
    resources={"nodes": "1"},
    duration=60,
    ready=T,
    deadline=T + 600,
)
TRIED = ClusterChosen(
    job="1", time=T, attempt=1, cluster="a", user="ann", until=T + 30, start=T, end=None, why="plan"
)
TAKEN = AttemptBooked(job="1", time=T, attempt=1, start=T + 5, cpus=1, plan=3)
CONFIRMED = AttemptConfirmed(job="1", time=T, attempt=1)
DECLINED = AttemptRefused(job="1", time=T, attempt=1, text="no")
UP = WithdrawalRequested(job="1", time=T, attempt=1, why="w")
BACK = AttemptWithdrawn(job="1", time=T, attempt=1)
REFUSED = ItemEnded(how="refused", job="1", time=T, text="no")
ACCEPTED = BookingAccepted(job="1", time=T, by="ann", cluster="a", start=T + 50)
CANCELLED = ItemCancelled(job="1", time=T, by="ann")


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
def test_impossible_booking_events_are_rejected(before: list[object], event: object) -> None:
    bookings = FederationBookings()
    for one in before:
        bookings.apply(one)  # type: ignore[arg-type]
    with pytest.raises(ImpossibleError):
        bookings.check(event)  # type: ignore[arg-type]


def test_booking_events_survive_encoding() -> None:
    for event in (ASKED, TRIED, TAKEN, CONFIRMED, DECLINED, UP, BACK, REFUSED, ACCEPTED, CANCELLED):
        assert decode(encode(event)) == event


def test_old_bookings_are_dropped(simulation: SimulatedFederation) -> None:
    name = simulation.book("review")
    simulation.go(2)
    simulation.federation.booking_operations.cancel(name, "ann@org")
    simulation.go(2)
    later = simulation.book("later", (8 * DAY, 9 * DAY), clusters=("a",), freeze=0)
    for provider in simulation.clusters.values():
        provider.server.now += 8 * DAY
    simulation.begin()
    assert name not in simulation.federation.bookings.by_id
    assert simulation.federation.bookings.by_owner_key("ann@org", "review") is None
    assert later in simulation.federation.bookings.by_id
    simulation.begin()
    assert name not in simulation.federation.bookings.by_id
