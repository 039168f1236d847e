"""Bookings: acceptance, counter-offers, moves, jobs inside, and expiry."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Engine
from schedd.features.accounts.state import account_book
from schedd.features.bookings.admission import NO_ROOM
from schedd.features.bookings.state import Booking, booking_table
from schedd.wire import (
    AccountSet,
    Book,
    BookingStep,
    ClockSet,
    Reserve,
    Run,
    RunRefused,
    SubmissionFacts,
    TransferDecision,
    TransferRelease,
    TransferRequest,
    TransferStepDone,
)
from tests.engine.calls import calls_of_idle_batch
from tests.engine.cluster import Cluster, T

HOUR = 3_600


class BookingCluster(Cluster):
    """A cluster with a policy that permits bookings."""

    def __init__(self, nodes: int = 2, rules: dict[str, Any] | None = None, **more: Any) -> None:
        site = {"bookings": {"most": 10, **(rules or {})}, **more.pop("site", {})}
        super().__init__(nodes, site=site, **more)

    def book(
        self,
        name: str,
        nodes: str = "1:ppn=4",
        length: int = 100,
        within: tuple[int, int] = (0, 10_000),
        **more: Any,
    ) -> Booking:
        wanted = {
            "owner": "ann",
            "resources": {"nodes": nodes},
            "duration": length,
            "ready": T + within[0],
            "deadline": T + within[1],
            **more,
        }
        self.send(Book(id=self.server.event_id(), time=self.server.now, name=name, **wanted))
        return self.booking(name)

    def perform_step(self, name: str, act: Any, option: int = 0) -> Booking:
        event = self.server.event_id()
        self.send(BookingStep(id=event, time=self.server.now, name=name, act=act, option=option, by="ann"))
        return self.booking(name)

    def booking(self, name: str) -> Booking:
        return booking_table(self.engine.state)[name]

    def booked_starts(self) -> dict[str, int]:
        """Return the starts of bookings that hold cores, in seconds after T."""
        return {n: b.start - T for n, b in booking_table(self.engine.state).items() if b.slots}


def test_booking_reserves_its_cores_and_leaves_the_others_free() -> None:
    site = BookingCluster(nodes=1)
    found = site.book("b", "1:ppn=3", within=(50, 200))
    assert (found.phase, found.start, found.cpus) == ("flexible", T + 50, 3)
    site.submit("1", "1:ppn=4", 100)
    site.submit("2", "1:ppn=1", 100)
    assert (site.start("1"), site.start("2")) == (150, 0)


def test_batch_without_work_costs_the_same_for_many_bookings() -> None:
    calls = []
    for number in (1, 8):
        site = BookingCluster(rules={"most": 8}, validate=False)
        for i in range(number):
            site.book(f"b{i}", "1:ppn=1", within=(200, 400))
        site.at(50)
        calls.append(calls_of_idle_batch(site))
    assert calls[0] == calls[1]


def test_booking_uses_a_gap_and_moves_no_job() -> None:
    site = BookingCluster(nodes=1)
    site.submit("1", walltime=100)
    site.submit("2", walltime=100)
    assert site.book("b", within=(0, 250)).phase == "refused"
    assert site.book("c", within=(0, 300)).start == T + 200
    assert site.start("2") == 100


def test_bookings_are_refused_unless_the_site_permits_them() -> None:
    cluster = BookingCluster(rules={"most": 0})
    found = cluster.book("b")
    assert (found.phase, found.options) == ("refused", ())
    assert "may book nothing" in found.text


@pytest.mark.parametrize(
    ("rules", "asked", "words"),
    [
        ({"cpus": 4}, {"nodes": "2:ppn=4"}, "8 cores; at most 4"),
        ({"longest": 90}, {}, "100 s; at most 90 s"),
        ({"ahead": 9_000}, {}, "at most 9000 s ahead"),
        ({}, {"within": (0, 99)}, "shorter than it is"),
        ({}, {"nodes": "3:ppn=4"}, "nodes"),
        ({}, {"nodes": "one"}, "one"),
        ({"most": 1}, {}, "has 1 bookings already"),
    ],
)
def test_booking_beyond_the_site_rules_is_refused_with_a_reason(
    rules: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    site = BookingCluster(rules=rules)
    if "most" in rules:
        site.book("a")
    found = site.book("b", **asked)
    assert found.phase == "refused"
    assert words in found.text
    assert not found.slots


def test_the_alternative_that_ends_first_is_booked() -> None:
    site = BookingCluster(nodes=1)
    site.submit("1", "1:ppn=2", 100)
    alternatives: dict[str, Any] = {"resources": {"trl": "4@100:2@150:1@400"}, "length": 400}
    found = site.book("b", **alternatives, within=(0, 1_000))
    assert (found.start, found.end, found.cpus) == (T, T + 150, 2)
    assert found.event.resources == {"procs": "2", "walltime": "150"}
    later = site.book("c", **alternatives, within=(160, 1_000))
    assert (later.start, later.end, later.cpus) == (T + 160, T + 260, 4)


def test_alternatives_beyond_the_rules_are_left_out() -> None:
    site = BookingCluster(nodes=1, rules={"cpus": 2, "longest": 300})
    alternatives: dict[str, Any] = {"resources": {"trl": "4@100:2@150:1@400"}, "length": 400}
    assert site.book("b", **alternatives).cpus == 2
    refused = site.book("c", resources={"trl": "4@100:1@400"}, length=400)
    assert (refused.phase, refused.text) == (
        "refused",
        "it asks for 4 cores; at most 2 may be booked at once",
    )


def test_offers_of_alternatives_have_their_own_lengths() -> None:
    site = BookingCluster(nodes=1)
    site.book("a", within=(500, 600))
    refused = site.book("b", resources={"trl": "4@100:2@150"}, length=150, within=(500, 655))
    assert refused.phase == "refused"
    lengths = {one.end - one.start for one in refused.options}
    assert lengths == {100, 150}
    number = next(i for i, one in enumerate(refused.options, 1) if one.end - one.start == 150)
    wanted = refused.options[number - 1]
    taken = site.perform_step("b", "accept", number)
    assert taken.phase == "flexible"
    assert wanted.start <= taken.start < taken.end <= wanted.end


def test_an_alternative_is_booked_that_others_make_room_for() -> None:
    site = BookingCluster(nodes=1)
    site.book("a", within=(50, 10_000), freeze=100)
    found = site.book("b", resources={"trl": "8@50:4@100"}, length=100, within=(50, 150))
    assert (found.start, found.cpus) == (T + 50, 4)
    assert site.booking("a").start == T + 150


def test_refused_booking_gets_the_nearest_offers_first_and_can_accept_any() -> None:
    site = BookingCluster(nodes=1)
    site.book("a", within=(500, 600))
    refused = site.book("b", within=(450, 560))
    offers = [(one.start - T, one.stretch) for one in refused.options]
    assert offers[0] == (400, -0.5)
    assert (600, 1.4) in offers
    assert [abs(phi) for _, phi in offers] == sorted(abs(phi) for _, phi in offers)
    assert site.booked_starts() == {"a": 500}
    taken = site.perform_step("b", "accept", 1)
    assert (taken.phase, site.booked_starts()) == ("flexible", {"a": 500, "b": 400})


def test_outdated_offer_is_refused_with_new_offers() -> None:
    site = BookingCluster(nodes=1)
    site.book("a", within=(500, 600))
    site.book("b", within=(450, 560))
    site.book("c", within=(400, 500))
    again = site.perform_step("b", "accept", 1)
    assert (again.phase, again.text) == ("refused", NO_ROOM)
    assert all(one.start != T + 400 for one in again.options)


def test_flexible_bookings_move_within_their_windows_for_a_new_booking() -> None:
    site = BookingCluster(nodes=1)
    site.book("a", within=(100, 1000))
    assert site.booked_starts() == {"a": 100}
    site.book("b", within=(100, 200))
    assert site.booked_starts() == {"a": 200, "b": 100}
    assert site.booking("a").moves == ((T, -1, T + 100), (T, T + 100, T + 200))


def test_refused_booking_leaves_other_bookings_unchanged() -> None:
    site = BookingCluster(nodes=1)
    site.book("a", within=(100, 250))
    site.book("b", within=(250, 400))
    assert site.book("c", length=100, within=(100, 240)).phase == "refused"
    assert site.booked_starts() == {"a": 100, "b": 250}


@pytest.mark.parametrize(
    ("order", "first"),
    # First: the nearer deadline (edf), the smaller flexibility (lff), the bigger booking (bjf).
    [("edf", "late"), ("lff", "late"), ("bjf", "big")],
)
def test_configured_order_determines_the_first_replanned_booking(order: str, first: str) -> None:
    site = BookingCluster(nodes=1, rules={"order": order})
    site.book("big", length=200, within=(100, 1000))
    site.book("late", length=100, within=(100, 850))
    site.book("new", length=300, within=(100, 400))  # it fits only where `big` and `late` stand
    assert site.booked_starts()["new"] == 100
    others = {name: start for name, start in site.booked_starts().items() if name != "new"}
    assert min(others, key=lambda name: others[name]) == first


def test_under_fifo_no_booking_moves_for_a_later_booking() -> None:
    site = BookingCluster(nodes=1, rules={"order": "fifo"})
    site.book("a", within=(100, 1000))
    site.at(1)
    assert site.book("b", within=(100, 200)).phase == "refused"
    assert site.booked_starts() == {"a": 100}


def test_booking_freezes_after_its_wait_percentage_and_stays() -> None:
    site = BookingCluster(nodes=1)
    site.book("a", within=(100, 1000), freeze=50)
    site.at(49)
    assert site.booking("a").phase == "flexible"
    site.at(50)
    assert site.booking("a").phase == "frozen"
    assert site.book("b", within=(100, 200)).phase == "refused"
    assert site.booked_starts() == {"a": 100}


def test_booking_can_be_frozen_at_once_or_on_request() -> None:
    site = BookingCluster()
    assert site.book("a", freeze=0, within=(100, 1000)).phase == "frozen"
    site.book("b", within=(100, 1000))
    assert site.perform_step("b", "freeze").phase == "frozen"


def test_jobs_start_inside_their_booking_and_others_wait() -> None:
    site = BookingCluster(nodes=1)
    site.book("b", "1:ppn=4", 300, within=(100, 400))
    site.submit("1", "1:ppn=2", 100, resources={"x.advres": "b"})
    site.submit("2", "1:ppn=2", 100, resources={"x.flags": "ADVRES:b"})
    site.submit("3", "1:ppn=2", 100, resources={"advres": "b"})
    site.submit("9", "1:ppn=2", 100, owner="bob@login", resources={"advres": "b"})
    assert "reservation b, which begins at" in site.view("1").why
    assert (site.runs("9"), site.view("9").waiting_for) == ([], "reservation")
    site.at(100)
    assert (site.runs("1"), site.runs("2"), site.runs("3")) == ([100], [100], [])
    assert "room in reservation b" in site.view("3").why
    site.submit("4", "1:ppn=1", 50)
    assert site.start("4") == 400
    site.at(200)
    assert site.runs("3") == [200]
    site.at(300)
    assert site.start("4") == 400
    site.at(401)
    assert (site.booking("b").phase, site.runs("4")) == ("over", [400])


@pytest.mark.parametrize(
    ("owner", "booking", "runs"),
    [("ann", "b", [50]), ("ann", "", [0]), ("bob", "b", [0]), ("ann", "gone", [0])],
)
def test_transferred_job_runs_in_its_named_booking(owner: str, booking: str, runs: list[int]) -> None:
    site = BookingCluster()
    site.book("b", length=150, within=(50, 200))
    facts = SubmissionFacts(owner, "sleep 1", resources={"nodes": "1:ppn=4", "walltime": "100"})
    about: dict[str, Any] = {"time": T, "transfer": "fed.1.1"}
    made = site.send(
        TransferRequest(id=site.server.event_id(), submission=facts, by="fed", booking=booking, **about)
    )
    (submit,) = [one for one in made if isinstance(one, TransferDecision)]
    done: dict[str, Any] = {"decision_id": submit.id, "step": "submit", "done": True, "server_job": "1"}
    site.submit("1", walltime=100, owner=f"{owner}@login", state="H", holds="o")
    site.send(TransferStepDone(id=site.server.event_id(), **done, **about))
    site.send(TransferRelease(id=site.server.event_id(), **about), *site.server.release("1"))
    site.at(60)
    assert site.runs("1") == runs
    assert ("1" in site.booking("b").jobs) == (runs == [50])


def test_job_altered_into_a_booking_gets_a_new_promise_without_a_breach() -> None:
    site = BookingCluster(nodes=1, slack=0)
    site.book("b", "1:ppn=4", 300, within=(1_000, 2_000))
    for job in "12":
        site.submit(job, "1:ppn=4", 100)
    assert site.promise("2") == 100
    site.alter_request("2", advres="b")
    ended = site.record("2").ended
    assert ended is not None
    assert ended.words == "its booking was changed"
    site.at(1_000)
    assert (site.runs("2"), site.record("2").breaches) == ([1_000], ())


def test_job_too_long_for_its_booking_runs_after_it() -> None:
    site = BookingCluster(nodes=1)
    site.book("b", length=100, within=(50, 150))
    site.submit("1", walltime=200, resources={"advres": "b"})
    site.at(60)
    assert "ends before its walltime" in site.view("1").why
    site.at(151)
    assert site.runs("1") == [150]


@pytest.mark.parametrize(("resumed", "runs"), [(55, [55]), (65, [160]), (130, [160])])
def test_late_job_uses_no_cores_after_its_bookings_end(resumed: int, runs: list[int]) -> None:
    site = BookingCluster(nodes=1)
    site.book("b", length=110, within=(50, 160))
    site.engine.pause("upgrade")
    site.submit("1", walltime=100, resources={"advres": "b"})
    site.at(resumed)
    site.engine.resume()
    site.send()
    if resumed > 60:
        assert "ends before its walltime" in site.view("1").why
    site.at(300)
    assert site.runs("1") == runs


def test_job_in_backoff_past_its_latest_start_waits_until_the_booking_ends() -> None:
    site = BookingCluster(nodes=1, refusal_wait=30)
    site.book("b", length=110, within=(50, 160))
    site.submit("1", walltime=100, resources={"advres": "b"})
    site.obeys = False
    site.at(50)
    (run,) = [one for one in site.decisions if isinstance(one, Run)]
    site.obeys = True
    refused = RunRefused(
        id=site.server.event_id(), time=T + 50, job_id="1", decision_id=run.id, code=15043, text="no"
    )
    site.send(refused)
    assert "ends before its walltime" in site.view("1").why
    site.at(300)
    assert site.runs("1") == [50, 160]


def test_each_coallocation_has_its_own_alert() -> None:
    site = BookingCluster(nodes=2)
    for name in ("x", "y"):
        site.book(name, within=(0, 100), transfer=f"h{name}", guard=10, freeze=0)
    site.at(12)
    opened = [one for one in site.engine.state.alerts.values() if one.kind == "co_allocation"]
    assert [(one.about, one.times) for one in opened] == [("hx", 1), ("hy", 1)]


def test_released_dependent_job_starts_inside_its_booking() -> None:
    site = BookingCluster(nodes=2)
    site.book("b", length=1000, within=(0, 1000))
    site.submit("1", walltime=300)
    site.submit("2", walltime=100, depend="afterok:1", state="H", holds="s", resources={"advres": "b"})
    assert "its dependency afterok:1" in site.view("2").why
    assert site.engine.next_wake is None or site.engine.next_wake > T
    site.at(50)
    site.alter("2", state="Q", holds="")
    assert site.runs("2") == [50]


def test_dependent_job_follows_its_predecessor_after_its_booking_is_cancelled() -> None:
    site = BookingCluster(nodes=2)
    site.book("b", length=1000, within=(0, 1000))
    site.submit("1", walltime=300)
    site.submit("2", walltime=100, depend="afterok:1", state="H", holds="s", resources={"advres": "b"})
    site.perform_step("b", "cancel")
    assert site.start("2") == 300


def test_job_moved_outside_its_booking_still_starts_inside() -> None:
    site = BookingCluster(nodes=2)
    site.book("b", length=1000, within=(0, 1000))
    site.engine.pause("upgrade")
    site.submit("1", walltime=100, resources={"advres": "b"})
    state = site.engine.state
    slot, ((node, _),) = state.records["1"].slot, booking_table(state)["b"].held
    (take,) = state.plan.takes(slot)
    assert state.plan.node_names[take.row] == node
    other = next(row for row, name in state.plan.node_names.items() if name != node)
    state.plan.remove(slot, state.now)
    state.plan.place_at(slot, T, [replace(take, row=other)])
    site.engine.resume()
    site.at(1)
    assert site.runs("1") == [1]
    (begun,) = state.plan.takes(slot)
    assert state.plan.node_names[begun.row] == node


def test_cores_unused_inside_a_booking_stay_reserved() -> None:
    site = BookingCluster(nodes=1, cpus=8)
    site.book("b", "1:ppn=6", 1000, within=(0, 1000))
    site.submit("1", "1:ppn=4", 100, resources={"advres": "b"})
    assert site.runs("1") == [0]
    site.submit("2", "1:ppn=3", 100)
    site.submit("3", "1:ppn=2", 100)
    assert (site.start("2"), site.runs("3")) == (1000, [0])
    site.at(100)
    assert site.start("2") == 1000


def test_job_cannot_use_more_than_its_booking_holds() -> None:
    site = BookingCluster(nodes=1, cpus=8)
    site.book("b", "1:ppn=4", 1000, within=(0, 1000))
    site.submit("1", "1:ppn=6", 100, resources={"advres": "b"})
    assert "room in reservation b" in site.view("1").why
    site.submit("2", "1:ppn=4", 100, resources={"advres": "b"})
    assert site.runs("2") == [0]


def test_unconfirmed_booking_is_cancelled_after_its_timeout() -> None:
    site = BookingCluster(nodes=1)
    site.book("b", within=(100, 200), until=T + 60)
    site.book("c", within=(300, 400), until=T + 60)
    assert site.perform_step("c", "confirm").confirmed
    site.at(61)
    assert (site.booking("b").phase, site.booking("c").phase) == ("cancelled", "flexible")
    site.submit("1", walltime=200)
    assert site.start("1") == 61


def test_future_booking_leaves_a_node_that_goes_down_or_is_reserved() -> None:
    site = BookingCluster(nodes=2)
    site.book("b", within=(500, 2000), freeze=0)
    (first,) = (node for node, _ in site.booking("b").held)
    site.reserve("repair", first, start=100, end=5000)
    (second,) = (node for node, _ in site.booking("b").held)
    assert (second != first, site.booking("b").start) == (True, T + 500)
    site.node(second, state="drain")
    assert site.alerts("reservation") != []
    assert site.booking("b").start == T + 500


def test_flexible_booking_moves_to_a_later_start_if_its_node_is_drained() -> None:
    site = BookingCluster(nodes=2)
    site.book("b", within=(100, 2000))
    (first,) = (node for node, _ in site.booking("b").held)
    other = "n2" if first == "n1" else "n1"
    site.reserve("work", other, start=0, end=700)
    site.node(first, state="drain")
    assert (site.booked_starts()["b"], site.booking("b").held[0][0]) == (700, other)


def test_bookings_survive_a_checkpoint_and_a_clock_decrease() -> None:
    site = BookingCluster(nodes=1)
    site.book("b", "1:ppn=3", 1000, within=(0, 5000))
    site.submit("1", "1:ppn=2", 100, resources={"advres": "b"})
    site.book("c", within=(2000, 2050))
    site.book("d", within=(2000, 2100))
    engine = Engine.restore(site.engine.checkpoint())
    assert booking_table(engine.state) == booking_table(site.engine.state)
    site.server.now = T - 500
    site.send(ClockSet(id="c:1", time=T - 500))
    site.send(site.server.snapshot())
    assert set(site.booked_starts()) == {"b", "d"}


def test_repeated_booking_request_is_the_same_booking() -> None:
    site = BookingCluster(nodes=1)
    first = site.book("b", within=(100, 1000))
    again = site.book("b", within=(500, 1000))
    assert again.start == first.start


def test_booking_costs_a_share_and_is_charged_at_its_start() -> None:
    site = BookingCluster(nodes=1, rules={"cost": 0.5}, site={"accounts": {"by": "user"}})
    site.send(AccountSet(id="a:1", time=T, name="ann", unit="core_hours", amount=2 * HOUR))
    assert site.book("b", "1:ppn=4", 1800, within=(100, 9000)).phase == "flexible"
    assert site.book("c", "1:ppn=4", 3600, within=(100, 9000)).text.startswith("account ann: 1.00 core-hours")
    site.at(101)
    account = account_book(site.engine.state).accounts["ann"]
    assert (account.charged, account_book(site.engine.state).held) == (HOUR, {})
    site.book("d", "1:ppn=4", 1800, within=(3000, 9000))
    site.perform_step("d", "cancel")
    assert account_book(site.engine.state).held == {}


def test_queue_policy_refuses_bookings() -> None:
    site = BookingCluster(nodes=1, policy="fcfs")
    assert "plans no starts" in site.book("b").text


@pytest.mark.parametrize("resources", [{"advres": "b"}, {"x.advres": "b"}, {"x.flags": "ADVRES:b"}])
def test_job_with_an_unknown_booking_waits_until_it_exists(resources: dict[str, str]) -> None:
    site = BookingCluster(nodes=2)
    site.submit("1", walltime=50, resources=resources)
    site.book("b", owner="bob", within=(0, 100))
    site.submit("2", walltime=50, resources=resources)
    unknown = "reservation b, which its owner does not have"
    assert (site.runs("1"), site.runs("2")) == ([], [])
    assert unknown in site.view("1").why
    assert unknown in site.view("2").why
    site.at(101)
    site.book("b", within=(101, 201))
    assert (site.runs("1"), site.runs("2")) == ([101], [])
    site.at(200)
    assert site.runs("2") == [151]


def test_job_that_names_an_admin_reservation_waits_with_a_remedy() -> None:
    site = BookingCluster(nodes=2)
    site.send(Reserve(id="r:1", time=T, name="school", start=T, end=T + HOUR, nodes=("n1",), users=("bob",)))
    site.submit("1", resources={"x.flags": "ADVRES:school"})
    assert site.runs("1") == []
    assert "school, whose access list does not admit the job" in site.view("1").why
    assert "remove advres" in site.view("1").why
    site.alter_request("1", **{"x.flags": "RESTARTABLE"})
    assert site.runs("1") == [0]


def test_job_does_not_wait_for_an_expired_booking() -> None:
    site = BookingCluster(nodes=1)
    site.book("b", length=100, within=(0, 100))
    site.submit("1", walltime=200, resources={"advres": "b"}, state="H", holds="u")
    site.at(3 * 86_400)
    site.alter("1", state="Q", holds="")
    assert site.runs("1") == [3 * 86_400]
    site.at(7 * 86_400)
    assert "b" not in booking_table(site.engine.state)


def test_offers_are_no_later_than_the_site_permits() -> None:
    site = BookingCluster(nodes=1, rules={"ahead": 5_250})
    site.submit("1", walltime=5_000)
    found = site.book("b", within=(0, 500))
    assert [one.end - T for one in found.options] == [5_100, 5_200]
    site.perform_step("b", "accept", 2)
    assert site.booking("b").start == T + 5_100


def test_a_job_finds_the_cores_of_its_booking_next_to_free_ones_of_others() -> None:
    site = BookingCluster(nodes=2)
    site.book("b", "1:ppn=2+1:ppn=4", length=1_000)
    site.at(1)
    assert dict(site.booking("b").held).keys() == {"n1", "n2"}
    for job, cores in (("wide", 4), ("narrow", 2)):
        request = {"x.advres": "b"}
        site.submit(job, f"1:ppn={cores}", 100, resources=request, owner="ann@x")
    assert (site.start("wide"), site.start("narrow")) == (1, 1)
    assert site.planned_node_names("wide") == ["n2"]


def test_an_ended_booking_is_remembered_while_its_owners_jobs_name_it() -> None:
    site = BookingCluster(nodes=1)
    site.book("b", "1:ppn=1", within=(0, 500), owner="zoe")
    site.book("b", "1:ppn=1", within=(0, 500), owner="ann")
    assert list(booking_table(site.engine.state)) == ["b", "b~ann"]
    site.submit("long", "1:ppn=4", 400_000, owner="zoe@x")
    site.submit("1", "1:ppn=4", 100, resources={"x.advres": "b"}, owner="ann@x")
    site.at(200_000)
    assert list(booking_table(site.engine.state)) == ["b~ann"]
    site.alter("1", state="H", holds="u")
    site.alter("1", state="Q", holds="")
    assert (site.start("1") or 0) > 400_000


def test_the_price_of_a_booking_stays_held_when_the_plan_is_rebuilt() -> None:
    site = BookingCluster(nodes=1, rules={"cost": 1.0}, site={"accounts": {"by": "user"}})
    site.send(AccountSet(id="made", time=site.server.now, name="ann", amount=1_000))
    site.book("b", "1:ppn=1", within=(300, 500))
    site.at(100)
    site.server.now -= 50
    site.send(ClockSet(id="back", time=site.server.now), site.server.snapshot())
    book = account_book(site.engine.state)
    assert (book.available("ann"), book.accounts["ann"].charged) == (900, 0)
    site.at(350)
    assert account_book(site.engine.state).accounts["ann"].charged == 100
