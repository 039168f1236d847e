"""Clusters of different speed: walltimes, offers and ends against a plain computation by waves."""

import threading
from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.dialect import format_walltime, parse_walltime
from schedd.dialect.walltime_scale import scale_seconds
from schedd.federation.api import app
from schedd.federation.api.booking_rows import counter_offers
from schedd.federation.api.requests import FederatedWhatIf
from schedd.federation.bookings.bookings import FederationBooking
from schedd.federation.bookings.decisions import (
    ClusterReadiness,
    FederationBookingRules,
    WindowOffer,
    next_attempt,
    pending_calls,
)
from schedd.federation.cluster_speed import scale_resources
from schedd.federation.events import BagSpecification, BookingSubmitted
from schedd.federation.routing.jobs import PlanQuestion
from schedd.federation.routing.policies import RoutingCandidate
from schedd.federation.workers.bag_offers import collect_offers
from schedd.federation.workers.cluster_worker import ClusterWorker
from tests.engine.cluster import T
from tests.federation.simulated_federation import SimulatedFederation
from tests.property_examples import examples

SPEEDS = dict(zip("abcdefg", (0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 4.0), strict=True))


@pytest.fixture(scope="module")
def simulation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedFederation]:
    """Empty clusters of two nodes of four cpus each, of speeds from 0.25 to 4."""
    made = SimulatedFederation(tmp_path_factory.mktemp("fed"), names="".join(SPEEDS), speeds=SPEEDS)
    yield made
    made.close()


def seconds_at(walltime: int, speed: float) -> int:
    return max(1, ceil(walltime / Fraction(str(speed))))


def seconds_by_waves(tasks: int, cpus: int, walltime: int, speed: float) -> int:
    """Return the time that the tasks take on an empty cluster, one wave after the other."""
    each_wave = 2 * (4 // cpus)
    return -(-tasks // each_wave) * seconds_at(walltime, speed)


def offered_seconds(
    simulation: SimulatedFederation, tasks: int, cpus: int, walltime: int
) -> dict[tuple[str, int], int]:
    resources = {"nodes": f"1:ppn={cpus}", "walltime": format_walltime(walltime)}
    asked = BagSpecification(resources, walltime, cpus * walltime, tasks, simulation.now + 10**6)
    sizes = {name: sorted({1, max(1, tasks // 2), tasks}) for name in SPEEDS}
    users = simulation.federation.cluster_users("ann@org")
    found = collect_offers(simulation.federation, "ann@org", users, asked, sizes, simulation.connect)
    assert not found.whys
    return {(one.provider, one.tasks): one.end - simulation.now for one in found.offers}


def make_worker(simulation: SimulatedFederation, name: str) -> ClusterWorker:
    return ClusterWorker(name, simulation.federation, "x", threading.Event(), simulation.connect)


@given(st.integers(1, 10**7), st.sampled_from([n / 20 for n in range(5, 81)]))
def test_scaled_walltime_is_rounded_up_and_suffices_for_the_work(walltime: int, speed: float) -> None:
    found = scale_seconds(walltime, speed)
    assert found == seconds_at(walltime, speed)
    assert found * Fraction(str(speed)) >= walltime
    assert scale_resources({"nodes": "2", "walltime": str(walltime)}, speed) == {
        "nodes": "2",
        "walltime": str(walltime) if speed == 1 else format_walltime(found),
    }


def test_all_time_limits_are_scaled_and_other_resources_are_kept() -> None:
    given_limits = {
        "Walltime": "60",
        "cput": "1:00",
        "max_walltime": "00:02:00",
        "minwclimit": "30",
        "trl": "2@60:4@30",
        "ncpus": "60",
        "mem": "60gb",
    }
    found = scale_resources(given_limits, 0.5)
    assert found == {
        "Walltime": "00:02:00",
        "cput": "00:02:00",
        "max_walltime": "00:04:00",
        "minwclimit": "00:01:00",
        "trl": "2@120:4@60",
        "ncpus": "60",
        "mem": "60gb",
    }
    assert scale_resources({"walltime": "soon"}, 0.5) == {"walltime": "soon"}


def test_offer_at_half_speed_ends_later_by_each_wave(simulation: SimulatedFederation) -> None:
    found = offered_seconds(simulation, 60, 1, 60)
    assert found["d", 60] == 480
    assert found["b", 60] - found["d", 60] == 480


@settings(max_examples=examples(40))
@given(st.integers(1, 40), st.sampled_from([1, 2, 4]), st.integers(1, 5000))
def test_offers_equal_a_computation_by_waves(
    simulation: SimulatedFederation, tasks: int, cpus: int, walltime: int
) -> None:
    for (name, count), end in offered_seconds(simulation, tasks, cpus, walltime).items():
        assert end == seconds_by_waves(count, cpus, walltime, SPEEDS[name]), (name, count)


def test_what_if_and_routing_know_the_end_at_each_speed(
    simulation: SimulatedFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = simulation.federation
    users = federation.cluster_users("ann@org")
    monkeypatch.setattr(app, "connect_cluster", simulation.connect)
    asked = FederatedWhatIf(request="nodes=1:ppn=4,walltime=100", array="1-5")
    rows = app.query_clusters(federation, "ann@org", users, asked)
    ends = {row.cluster: (row.end or 0) - simulation.now for row in rows}
    assert ends == {name: seconds_by_waves(5, 4, 100, speed) for name, speed in SPEEDS.items()}
    assert rows[0].cluster == "g"
    for name, speed in SPEEDS.items():
        worker = make_worker(simulation, name)
        client = simulation.connect(federation.settings.clusters[name], "")
        question = PlanQuestion((("nodes", "1:ppn=4"), ("walltime", "00:01:40")), "", "ann", 5)
        offer, _ = worker._answer(client, question)
        assert offer.end is not None
        assert offer.end - simulation.now == seconds_by_waves(5, 4, 100, speed)


def test_jobs_are_routed_by_their_ends_and_get_the_walltime_that_their_cluster_needs(tmp_path: Path) -> None:
    simulation = SimulatedFederation(tmp_path, names="ab", speeds={"a": 0.5, "b": 4.0})
    federation = simulation.federation
    try:
        submission = {
            "script": "x",
            "resources": {"nodes": "1:ppn=4", "walltime": "00:01:40"},
            "walltime": 100,
        }
        for only in (("a",), ()):
            federation.submit("ann@org", submission, clusters=only)
        for name in "ab":
            worker = make_worker(simulation, name)
            client = simulation.connect(federation.settings.clusters[name], "")
            federation.store_answers(
                name, {one: worker._answer(client, one) for one in federation.due_questions(name)}
            )
        simulation.poll()
        found = {one: federation.jobs[one].attempts[0] for one in federation.jobs.open}
        assert [(one.cluster, (one.end or 0) - (one.start or 0)) for one in found.values()] == [
            ("a", 200),
            ("b", 25),
        ]
        simulation.act()
        for name, walltime in (("a", 200), ("b", 25)):
            (job,) = simulation.clusters[name].server.jobs.values()
            assert parse_walltime(job.resources["walltime"]) == walltime
    finally:
        simulation.close()


@given(st.integers(1, 10**6), st.sampled_from([n / 20 for n in range(5, 81)]), st.booleans())
def test_bookings_by_speed_last_as_long_as_their_work_takes(
    duration: int, speed: float, by_speed: bool
) -> None:
    submitted = BookingSubmitted(
        job="1",
        time=T,
        owner="ann@org",
        name="x",
        resources={},
        duration=duration,
        by_speed=by_speed,
        ready=T,
        deadline=T + 10**8,
    )
    booking, rules = FederationBooking.create(submitted), FederationBookingRules()
    candidate = RoutingCandidate(cluster="a", user="ann", start=T, end=T + 1)
    places = {"a": ClusterReadiness(user="ann", speed=speed)}
    chosen = next_attempt(booking, rules, places, {"a": WindowOffer(T, candidate)}, T)
    assert chosen is not None
    (call,) = pending_calls(booking.apply(chosen), rules)
    assert call.body is not None
    assert call.body["duration"] == (seconds_at(duration, speed) if by_speed else duration)


def test_a_booking_by_speed_goes_where_its_window_suffices(tmp_path: Path) -> None:
    simulation = SimulatedFederation(tmp_path, names="ab", speeds={"a": 0.5, "b": 4.0})
    try:
        simulation.busy("b", 2, 300)
        fits_only_fast = simulation.book("fast", (0, 500), duration=400, by_speed=True)
        same_length = simulation.book("person", (0, 500), duration=400)
        simulation.go(3)
        assert simulation.booked() == {fits_only_fast: [("b", 300)], same_length: [("a", 1)]}
        refused = simulation.book("none", (0, 250), duration=400, by_speed=True, clusters=("b",))
        simulation.go(3)
        one = simulation.booking(refused)
        assert one.over == "refused"
        offers = counter_offers(one)
        assert {offer.end - offer.start for offer in offers} == {100}
        simulation.federation.booking_operations.accept(refused, "ann@org", "b", offers[0].start)
        simulation.go(3)
        assert simulation.booked()[refused] == [("b", offers[0].start - T)]
    finally:
        simulation.close()


def test_alternatives_of_a_booking_by_speed_are_divided(tmp_path: Path) -> None:
    simulation = SimulatedFederation(tmp_path, names="ab", speeds={"a": 0.5, "b": 2.0})
    try:
        sizes: dict[str, Any] = {"resources": {"trl": "8@200:4@600"}, "duration": 600, "by_speed": True}
        fast = simulation.book("fast", (0, 150), **sizes)
        slow = simulation.book("slow", (0, 500), clusters=("a",), **sizes)
        simulation.go(3)
        assert {name: simulation.booking(name).attempts[-1].duration for name in (fast, slow)} == {
            fast: 100,
            slow: 400,
        }
    finally:
        simulation.close()
