"""Bookings: taken, refused with counter-offers, moved while they may; jobs in them; what is over."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Engine
from schedd.features.accounts.state import account_book
from schedd.features.bookings.orders import ordered
from schedd.features.bookings.state import Booking, bookings_of
from schedd.policy.bookings import Order
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
from tests.engine.cluster import Cluster, T

HOUR = 3_600


class Site(Cluster):
    """A cluster whose users may book."""

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
        self.tell(Book(id=self.server.event_id(), time=self.server.now, name=name, **wanted))
        return self.booking(name)

    def do(self, name: str, act: Any, option: int = 0) -> Booking:
        event = self.server.event_id()
        self.tell(BookingStep(id=event, time=self.server.now, name=name, act=act, option=option, by="ann"))
        return self.booking(name)

    def booking(self, name: str) -> Booking:
        return bookings_of(self.engine.state)[name]

    def starts(self) -> dict[str, int]:
        """Of those that hold cores, in seconds after the beginning."""
        return {n: b.start - T for n, b in bookings_of(self.engine.state).items() if b.slots}


def test_a_booking_keeps_its_cores_free_of_other_jobs_and_leaves_the_rest_of_the_node() -> None:
    site = Site(nodes=1)
    found = site.book("b", "1:ppn=3", within=(50, 200))
    assert (found.phase, found.start, found.cpus) == ("flexible", T + 50, 3)
    site.submit("1", "1:ppn=4", 100)
    site.submit("2", "1:ppn=1", 100)
    assert (site.start("1"), site.start("2")) == (150, 0)


def test_a_booking_takes_a_gap_and_moves_no_job() -> None:
    site = Site(nodes=1)
    site.submit("1", walltime=100)
    site.submit("2", walltime=100)
    assert site.book("b", within=(0, 250)).phase == "refused"
    assert site.book("c", within=(0, 300)).start == T + 200
    assert site.start("2") == 100


def test_bookings_are_closed_unless_the_site_opens_them() -> None:
    cluster = Site(rules={"most": 0})
    found = cluster.book("b")
    assert (found.phase, found.options) == ("refused", ())
    assert "may book nothing" in found.text


@pytest.mark.parametrize(
    ("rules", "asked", "words"),
    [
        ({"cpus": 4}, {"nodes": "2:ppn=4"}, "8 cores; at most 4"),
        ({"longest": 50}, {}, "100 s; at most 50 s"),
        ({"ahead": 9_000}, {}, "at most 9000 s ahead"),
        ({}, {"within": (0, 99)}, "shorter than it is"),
        ({}, {"nodes": "3:ppn=4"}, "nodes"),
        ({}, {"nodes": "one"}, "one"),
        ({"most": 1}, {}, "has 1 bookings already"),
    ],
)
def test_what_the_site_does_not_allow_is_refused_in_words(
    rules: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    site = Site(rules=rules)
    if "most" in rules:
        site.book("a")
    found = site.book("b", **asked)
    assert found.phase == "refused"
    assert words in found.text
    assert not found.slots


def test_a_refusal_comes_with_offers_before_and_after_the_nearest_first_and_one_call_takes_one() -> None:
    site = Site(nodes=1)
    site.book("a", within=(500, 600))
    refused = site.book("b", within=(450, 560))
    offers = [(one.start - T, one.stretch) for one in refused.options]
    assert offers[0] == (400, -0.5)
    assert (600, 1.4) in offers
    assert [abs(phi) for _, phi in offers] == sorted(abs(phi) for _, phi in offers)
    assert site.starts() == {"a": 500}
    taken = site.do("b", "accept", 1)
    assert (taken.phase, site.starts()) == ("flexible", {"a": 500, "b": 400})


def test_an_offer_that_is_gone_is_refused_with_new_ones() -> None:
    site = Site(nodes=1)
    site.book("a", within=(500, 600))
    site.book("b", within=(450, 560))
    site.book("c", within=(400, 500))
    again = site.do("b", "accept", 1)
    assert (again.phase, again.text) == ("refused", "there is no room for it in its window")
    assert all(one.start != T + 400 for one in again.options)


def test_flexible_bookings_make_way_within_their_windows() -> None:
    site = Site(nodes=1)
    site.book("a", within=(100, 1000))
    assert site.starts() == {"a": 100}
    site.book("b", within=(100, 200))
    assert site.starts() == {"a": 200, "b": 100}
    assert site.booking("a").moves == ((T, -1, T + 100), (T, T + 100, T + 200))


def test_a_booking_that_cannot_move_for_another_leaves_all_as_it_was() -> None:
    site = Site(nodes=1)
    site.book("a", within=(100, 250))
    site.book("b", within=(250, 400))
    assert site.book("c", length=100, within=(100, 240)).phase == "refused"
    assert site.starts() == {"a": 100, "b": 250}


@pytest.mark.parametrize(
    ("order", "first"),
    # Who goes first: that with the nearer deadline, with less room to move; the bigger one, the older one.
    [("edf", "late"), ("lff", "late"), ("bjf", "big")],
)
def test_the_site_says_who_goes_first_when_bookings_are_planned_anew(order: str, first: str) -> None:
    site = Site(nodes=1, rules={"order": order})
    site.book("big", length=200, within=(100, 1000))
    site.book("late", length=100, within=(100, 850))
    site.book("new", length=300, within=(100, 400))  # it fits only where `big` and `late` stand
    assert site.starts()["new"] == 100
    others = {name: start for name, start in site.starts().items() if name != "new"}
    assert min(others, key=lambda name: others[name]) == first


def test_by_age_nobody_moves_for_one_who_came_later() -> None:
    site = Site(nodes=1, rules={"order": "fifo"})
    site.book("a", within=(100, 1000))
    site.at(1)
    assert site.book("b", within=(100, 200)).phase == "refused"
    assert site.starts() == {"a": 100}


def test_a_frozen_booking_stays_and_freezes_at_a_share_of_its_wait() -> None:
    site = Site(nodes=1)
    site.book("a", within=(100, 1000), freeze=50)
    site.at(49)
    assert site.booking("a").phase == "flexible"
    site.at(50)
    assert site.booking("a").phase == "frozen"
    assert site.book("b", within=(100, 200)).phase == "refused"
    assert site.starts() == {"a": 100}


def test_a_booking_can_be_frozen_at_once_or_by_request() -> None:
    site = Site()
    assert site.book("a", freeze=0, within=(100, 1000)).phase == "frozen"
    site.book("b", within=(100, 1000))
    assert site.do("b", "freeze").phase == "frozen"


def test_jobs_of_a_booking_start_in_it_when_it_begins_and_others_wait() -> None:
    site = Site(nodes=1)
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
def test_a_job_that_was_handed_over_runs_in_the_booking_that_is_named_for_it(
    owner: str, booking: str, runs: list[int]
) -> None:
    site = Site()
    site.book("b", length=150, within=(50, 200))
    facts = SubmissionFacts(owner, "sleep 1", resources={"nodes": "1:ppn=4", "walltime": "100"})
    about: dict[str, Any] = {"time": T, "transfer": "fed.1.1"}
    made = site.tell(
        TransferRequest(id=site.server.event_id(), submission=facts, by="fed", booking=booking, **about)
    )
    (submit,) = [one for one in made if isinstance(one, TransferDecision)]
    done: dict[str, Any] = {"decision_id": submit.id, "step": "submit", "done": True, "server_job": "1"}
    site.submit("1", walltime=100, owner=f"{owner}@login", state="H", holds="o")
    site.tell(TransferStepDone(id=site.server.event_id(), **done, **about))
    site.tell(TransferRelease(id=site.server.event_id(), **about), *site.server.release("1"))
    site.at(60)
    assert site.runs("1") == runs
    assert ("1" in site.booking("b").jobs) == (runs == [50])


def test_a_job_altered_into_a_booking_is_promised_anew_and_breaks_nothing() -> None:
    site = Site(nodes=1, slack=0)
    site.book("b", "1:ppn=4", 300, within=(1_000, 2_000))
    for job in "12":
        site.submit(job, "1:ppn=4", 100)
    assert site.promise("2") == 100
    site.ask("2", advres="b")
    ended = site.record("2").ended
    assert ended is not None
    assert ended.words == "its booking was changed"
    site.at(1_000)
    assert (site.runs("2"), site.record("2").breaches) == ([1_000], ())


def test_a_job_too_long_for_its_booking_runs_after_it_like_any_other() -> None:
    site = Site(nodes=1)
    site.book("b", length=100, within=(50, 150))
    site.submit("1", walltime=200, resources={"advres": "b"})
    site.at(60)
    assert "ends before its walltime" in site.view("1").why
    site.at(151)
    assert site.runs("1") == [150]


@pytest.mark.parametrize(("resumed", "runs"), [(55, [55]), (65, [160]), (130, [160])])
def test_a_late_job_holds_no_cores_beyond_the_end_of_its_booking(resumed: int, runs: list[int]) -> None:
    site = Site(nodes=1)
    site.book("b", length=110, within=(50, 160))
    site.engine.pause("upgrade")
    site.submit("1", walltime=100, resources={"advres": "b"})
    site.at(resumed)
    site.engine.resume()
    site.tell()
    if resumed > 60:
        assert "ends before its walltime" in site.view("1").why
    site.at(300)
    assert site.runs("1") == runs


def test_a_job_that_backs_off_beyond_what_is_left_of_its_booking_waits_for_its_end() -> None:
    site = Site(nodes=1, refusal_wait=30)
    site.book("b", length=110, within=(50, 160))
    site.submit("1", walltime=100, resources={"advres": "b"})
    site.obeys = False
    site.at(50)
    (run,) = [one for one in site.decisions if isinstance(one, Run)]
    site.obeys = True
    refused = RunRefused(
        id=site.server.event_id(), time=T + 50, job_id="1", decision_id=run.id, code=15043, text="no"
    )
    site.tell(refused)
    assert "ends before its walltime" in site.view("1").why
    site.at(300)
    assert site.runs("1") == [50, 160]


def test_alerts_of_two_groups_are_two() -> None:
    site = Site(nodes=2)
    for name in ("x", "y"):
        site.book(name, within=(0, 100), transfer=f"h{name}", guard=10, freeze=0)
    site.at(12)
    opened = [one for one in site.engine.state.alerts.values() if one.kind == "group"]
    assert [(one.about, one.times) for one in opened] == [("hx", 1), ("hy", 1)]


def test_a_job_that_waits_for_another_takes_its_place_in_a_booking_when_it_is_released() -> None:
    site = Site(nodes=2)
    site.book("b", length=1000, within=(0, 1000))
    site.submit("1", walltime=300)
    site.submit("2", walltime=100, depend="afterok:1", state="H", holds="s", resources={"advres": "b"})
    assert "its dependency afterok:1" in site.view("2").why
    assert site.engine.next_wake is None or site.engine.next_wake > T
    site.at(50)
    site.alter("2", state="Q", holds="")
    assert site.runs("2") == [50]


def test_a_job_that_waits_for_another_is_planned_behind_it_when_its_booking_is_given_back() -> None:
    site = Site(nodes=2)
    site.book("b", length=1000, within=(0, 1000))
    site.submit("1", walltime=300)
    site.submit("2", walltime=100, depend="afterok:1", state="H", holds="s", resources={"advres": "b"})
    site.do("b", "cancel")
    assert site.start("2") == 300


def test_a_job_that_was_moved_out_of_its_booking_starts_in_it_nevertheless() -> None:
    site = Site(nodes=2)
    site.book("b", length=1000, within=(0, 1000))
    site.engine.pause("upgrade")
    site.submit("1", walltime=100, resources={"advres": "b"})
    state = site.engine.state
    slot, ((node, _),) = state.records["1"].slot, bookings_of(state)["b"].held
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


def test_what_jobs_of_a_booking_leave_is_still_kept_for_it() -> None:
    site = Site(nodes=1, cpus=8)
    site.book("b", "1:ppn=6", 1000, within=(0, 1000))
    site.submit("1", "1:ppn=4", 100, resources={"advres": "b"})
    assert site.runs("1") == [0]
    site.submit("2", "1:ppn=3", 100)
    site.submit("3", "1:ppn=2", 100)
    assert (site.start("2"), site.runs("3")) == (1000, [0])
    site.at(100)
    assert site.start("2") == 1000


def test_a_job_may_not_take_more_than_its_booking_has() -> None:
    site = Site(nodes=1, cpus=8)
    site.book("b", "1:ppn=4", 1000, within=(0, 1000))
    site.submit("1", "1:ppn=6", 100, resources={"advres": "b"})
    assert "room in reservation b" in site.view("1").why
    site.submit("2", "1:ppn=4", 100, resources={"advres": "b"})
    assert site.runs("2") == [0]


def test_a_booking_not_confirmed_in_time_is_given_up() -> None:
    site = Site(nodes=1)
    site.book("b", within=(100, 200), until=T + 60)
    site.book("c", within=(300, 400), until=T + 60)
    assert site.do("c", "confirm").confirmed
    site.at(61)
    assert (site.booking("b").phase, site.booking("c").phase) == ("cancelled", "flexible")
    site.submit("1", walltime=200)
    assert site.start("1") == 61


def test_bookings_to_come_leave_a_node_that_goes_down_or_is_reserved() -> None:
    site = Site(nodes=2)
    site.book("b", within=(500, 2000), freeze=0)
    (first,) = (node for node, _ in site.booking("b").held)
    site.reserve("repair", first, start=100, end=5000)
    (second,) = (node for node, _ in site.booking("b").held)
    assert (second != first, site.booking("b").start) == (True, T + 500)
    site.node(second, state="drain")
    assert site.alerts("reservation") != []
    assert site.booking("b").start == T + 500


def test_a_flexible_booking_moves_in_time_when_its_node_is_drained() -> None:
    site = Site(nodes=2)
    site.book("b", within=(100, 2000))
    (first,) = (node for node, _ in site.booking("b").held)
    other = "n2" if first == "n1" else "n1"
    site.reserve("work", other, start=0, end=700)
    site.node(first, state="drain")
    assert (site.starts()["b"], site.booking("b").held[0][0]) == (700, other)


def test_bookings_go_over_a_checkpoint_and_a_clock_that_is_set_back() -> None:
    site = Site(nodes=1)
    site.book("b", "1:ppn=3", 1000, within=(0, 5000))
    site.submit("1", "1:ppn=2", 100, resources={"advres": "b"})
    site.book("c", within=(2000, 2050))
    site.book("d", within=(2000, 2100))
    engine = Engine.restore(site.engine.checkpoint())
    assert bookings_of(engine.state) == bookings_of(site.engine.state)
    site.server.now = T - 500
    site.tell(ClockSet(id="c:1", time=T - 500))
    site.tell(site.server.snapshot())
    assert set(site.starts()) == {"b", "d"}


def test_the_same_name_again_is_the_same_booking() -> None:
    site = Site(nodes=1)
    first = site.book("b", within=(100, 1000))
    again = site.book("b", within=(500, 1000))
    assert again.start == first.start


def test_a_booking_costs_a_share_of_a_job_and_is_charged_when_it_begins() -> None:
    site = Site(nodes=1, rules={"cost": 0.5}, site={"accounts": {"by": "user"}})
    site.tell(AccountSet(id="a:1", time=T, name="ann", unit="core_hours", amount=2 * HOUR))
    assert site.book("b", "1:ppn=4", 1800, within=(100, 9000)).phase == "flexible"
    assert site.book("c", "1:ppn=4", 3600, within=(100, 9000)).text.startswith("account ann: 1.00 core-hours")
    site.at(101)
    account = account_book(site.engine.state).accounts["ann"]
    assert (account.charged, account_book(site.engine.state).held) == (HOUR, {})
    site.book("d", "1:ppn=4", 1800, within=(3000, 9000))
    site.do("d", "cancel")
    assert account_book(site.engine.state).held == {}


def test_under_a_queue_policy_nothing_is_booked() -> None:
    site = Site(nodes=1, policy="fcfs")
    assert "plans no starts" in site.book("b").text


@pytest.mark.parametrize(
    ("order", "taken", "lost", "won"),
    [(Order.EDF, {"long", "short"}, 0, 1), (Order.FIFO, {"long"}, 0, 0), (Order.BJF, {"long"}, 0, 0)],
)
def test_each_order_says_what_it_would_make_of_the_same_bookings(
    order: Order, taken: set[str], lost: int, won: int
) -> None:
    site = Site(nodes=1, rules={"order": "fifo"})
    site.submit("1", walltime=50)
    site.book("long", length=200, within=(100, 1000))
    assert site.book("short", length=100, within=(100, 250)).phase == "refused"
    before = (site.starts(), site.start("1"))
    copy = site.engine.fork()
    found = ordered(copy.state, order)
    assert {name for name, one in bookings_of(copy.state).items() if one.phase != "refused"} == taken
    assert (found.asked, found.taken, found.lost, found.won) == (2, len(taken), lost, won)
    assert found.moved == ("short" in taken)
    hours = 4 * (200 + 100 * ("short" in taken)) / 3_600
    assert found.until == T + 1000
    assert found.core_hours == pytest.approx(hours)
    assert found.used == pytest.approx((50 * 4 + hours * 3_600) / 4_000)
    assert (site.starts(), site.start("1")) == before
    assert copy.state.plan.start(copy.state.records["1"].slot) == T


def test_what_is_frozen_or_can_be_taken_no_more_is_not_booked_anew() -> None:
    site = Site(nodes=1, rules={"order": "fifo"})
    site.book("fixed", length=100, within=(100, 200), freeze=0)
    site.book("late", length=100, within=(100, 200))
    site.at(101)
    found = ordered(site.engine.fork().state, Order.EDF)
    assert (found.asked, found.taken, found.core_hours, found.used) == (0, 0, 0.0, 0.0)


def test_an_order_that_would_lose_a_booking_says_so_and_what_is_held_for_it_counts_once() -> None:
    site = Site(nodes=1, rules={"order": "edf", "cost": 0.5}, site={"accounts": {"by": "user"}})
    site.tell(AccountSet(id="a:1", time=T, name="ann", unit="core_hours", amount=1200))
    site.book("long", length=400, within=(100, 1000))
    site.book("short", length=200, within=(100, 300))
    held = dict(account_book(site.engine.state).holds)
    assert (site.starts(), sum(amount for _, amount in held.values())) == ({"long": 300, "short": 100}, 1200)
    for order, lost in ((Order.EDF, 0), (Order.FIFO, 1)):
        copy = site.engine.fork()
        found = ordered(copy.state, order)
        assert (found.taken, found.lost, found.won, found.moved) == (2 - lost, lost, 0, lost)
        assert len(account_book(copy.state).holds) == 2 - lost
    assert account_book(site.engine.state).holds == held


@pytest.mark.parametrize("resources", [{"advres": "b"}, {"x.advres": "b"}, {"x.flags": "ADVRES:b"}])
def test_a_job_that_names_no_booking_of_its_owner_waits_until_there_is_one(resources: dict[str, str]) -> None:
    site = Site(nodes=2)
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


def test_a_job_that_names_an_administrators_reservation_runs_nowhere_else_and_is_told_what_to_do() -> None:
    site = Site(nodes=2)
    site.tell(Reserve(id="r:1", time=T, name="school", start=T, end=T + HOUR, nodes=("n1",), users=("ann",)))
    site.submit("1", resources={"x.flags": "ADVRES:school"})
    assert site.runs("1") == []
    assert "school, which is an administrator's" in site.view("1").why
    assert "take advres out" in site.view("1").why
    site.ask("1", **{"x.flags": "RESTARTABLE"})
    assert site.runs("1") == [0]


def test_a_job_whose_booking_is_long_over_does_not_wait_for_it() -> None:
    site = Site(nodes=1)
    site.book("b", length=100, within=(0, 100))
    site.submit("1", walltime=200, resources={"advres": "b"}, state="H", holds="u")
    site.at(3 * 86_400)
    site.alter("1", state="Q", holds="")
    assert site.runs("1") == [3 * 86_400]
    site.at(7 * 86_400)
    assert "b" not in bookings_of(site.engine.state)
