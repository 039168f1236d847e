"""Bookings over HTTP: request, refusal with alternatives, acceptance, freeze and cancellation, with access
rules.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from schedd.features.bookings.admission import NO_ROOM
from schedd.federation.api import bookings
from schedd.federation.api.waiting import wait_until
from schedd.store import StoreError
from tests.engine.cluster import T
from tests.federation.booking_harness import HERE, WIDE, BookingHarness
from tests.waits import WAIT_S


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[BookingHarness]:
    made = BookingHarness(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ann(harness: BookingHarness) -> TestClient:
    return harness.client("ann@org")


def request_booking(client: TestClient, name: str, **body: Any) -> Any:
    return client.put(f"{HERE}/{name}", json={**WIDE, **body})


def test_api_books_shows_freezes_and_cancels(harness: BookingHarness, ann: TestClient) -> None:
    harness.simulation.busy("a", 2, 5_000)
    made = request_booking(ann, "exam", ready=T + 100, deadline=T + 9_000)
    assert made.status_code == 200, made.text
    row = made.json()
    assert (row["state"], row["cluster"], row["start"], row["end"]) == ("flexible", "b", T + 100, T + 700)
    assert (row["spare"], row["cpus"], row["owner"], row["away"]) == (8_300, 8, "ann@org", "")
    assert row["freezes"] == T + 50
    assert [(one["cluster"], one["name"], one["user"], one["phase"]) for one in row["attempts"]] == [
        ("b", "fed.1.1", "ann", "confirmed")
    ]
    assert ann.get(f"{HERE}/exam").json() == row
    assert ann.get(HERE).json() == {"bookings": [row]}
    assert request_booking(ann, "exam", deadline=T + 50_000).json()["id"] == row["id"], (
        "the same name is the same booking"
    )
    frozen = ann.post(f"{HERE}/exam/freeze").json()
    assert (frozen["state"], frozen["spare"]) == ("frozen", 0)
    again = ann.post(f"{HERE}/exam/freeze")
    assert (again.status_code, "exam is frozen" in again.text) == (409, True)
    gone = ann.delete(f"{HERE}/exam").json()
    assert (gone["state"], gone["over"], gone["text"]) == ("cancelled", "cancelled", "withdrawn by ann@org")
    assert ann.delete(f"{HERE}/exam").json()["over"] == "cancelled"
    assert harness.simulation.booked() == {}
    assert ann.get(HERE, params={"state": "open"}).json() == {"bookings": []}


def test_booking_moves_are_shown(harness: BookingHarness, ann: TestClient) -> None:
    for name in "ab":
        request_booking(ann, f"first-{name}", ready=T + 100, deadline=T + 9_000, clusters=[name])
    late = request_booking(ann, "late", start=T + 100).json()
    assert (late["state"], late["start"]) == ("frozen", T + 100)
    harness.until(lambda: len(ann.get(f"{HERE}/first-{late['cluster']}").json()["moves"]) == 2)
    row = ann.get(f"{HERE}/first-{late['cluster']}").json()
    assert [(one["before"], one["after"]) for one in row["moves"]] == [(None, T + 100), (T + 100, T + 700)]
    assert row["start"] == T + 700


def test_refusal_has_alternatives_from_all_clusters(harness: BookingHarness, ann: TestClient) -> None:
    for name in "ab":
        request_booking(ann, f"first-{name}", start=T + 1_000, clusters=[name])
    refused = request_booking(ann, "second", start=T + 1_100)
    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (409, "urn:schedd:problem:no-room")
    assert problem["detail"] == (f"a: {NO_ROOM}; b: {NO_ROOM}")
    assert "POST …/accept accepts one" in problem["hint"]
    options = problem["options"]
    assert [one["option"] for one in options] == list(range(1, len(options) + 1))
    assert {(one["cluster"], one["stretch"] < 0) for one in options} == {
        (name, before) for name in "ab" for before in (True, False)
    }
    assert [abs(one["stretch"]) for one in options] == sorted(abs(one["stretch"]) for one in options)
    assert ann.get(f"{HERE}/second").json()["options"] == options
    wanted = next(one for one in options if one["cluster"] == "b")
    taken = ann.post(f"{HERE}/second/accept", json={"option": wanted["option"]})
    assert taken.status_code == 200, taken.text
    row = taken.json()
    assert (row["cluster"], row["start"], row["state"]) == ("b", wanted["start"], "frozen")
    again = ann.post(f"{HERE}/second/accept", json={"option": 1})
    assert (again.status_code, "has 0 counter-offers" in again.text) == (409, True)


def test_past_alternative_is_refused(harness: BookingHarness, ann: TestClient) -> None:
    for name in "ab":
        request_booking(ann, f"first-{name}", start=T + 1_000, clusters=[name])
    request_booking(ann, "second", start=T + 1_100)
    options = ann.get(f"{HERE}/second").json()["options"]
    before = next(one for one in options if one["stretch"] < 0)
    harness.later(before["start"] - T + 5)
    late = ann.post(f"{HERE}/second/accept", json={"option": before["option"]})
    assert (late.status_code, "began at" in late.text) == (409, True)


def test_refusal_names_sites_without_user_bookings(harness: BookingHarness, ann: TestClient) -> None:
    for provider in harness.simulation.clusters.values():
        provider.engine.state.site = type(provider.engine.state.site)()
    refused = request_booking(ann, "exam", deadline=T + 9_000)
    assert refused.status_code == 409
    assert "a: users may book nothing here" in refused.json()["detail"]
    assert not refused.json().get("options")


# ---- access rules -----------------------------------------------------------------------------------------


def test_users_list_own_bookings_and_admins_list_all(harness: BookingHarness, ann: TestClient) -> None:
    request_booking(ann, "exam", ready=T + 100, deadline=T + 9_000)
    bob, carol, eyes = (harness.client(name) for name in ("bob@org", "carol", "eyes"))
    assert bob.get(HERE).json() == {"bookings": []}
    for answer in (
        bob.get(f"{HERE}/exam"),
        bob.delete(f"{HERE}/exam"),
        bob.post(f"{HERE}/exam/freeze"),
        bob.post(f"{HERE}/exam/accept", json={"option": 1}),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:schedd:problem:unknown-booking")
    assert [one["name"] for one in eyes.get(HERE).json()["bookings"]] == ["exam"]
    for answer in (eyes.delete(f"{HERE}/exam"), request_booking(eyes, "x", deadline=T + 9_000)):
        assert (answer.status_code, "may only read" in answer.text) == (403, True)
    assert request_booking(bob, "for-ann", deadline=T + 9_000, owner="ann@org").status_code == 403
    made = request_booking(carol, "for-ann", deadline=T + 9_000, owner="ann@org").json()
    assert (made["owner"], made["attempts"][0]["user"]) == ("ann@org", "ann")
    assert carol.delete(f"{HERE}/exam").json()["text"] == "withdrawn by carol"
    nobody = TestClient(harness.app).get(HERE)
    assert nobody.status_code == 401


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"deadline": T + 9_000, "start": T + 50}, "body"),
        ({}, "body"),
        ({"deadline": T + 500}, "body.deadline"),
        ({"start": T + 50, "by_speed": True}, "body"),
        ({"deadline": T + 500, "by_speed": True}, "body.deadline"),
        ({"start": T - 100}, "body.start"),
        ({"deadline": T + 9_000, "duration": 5}, "body.duration"),
        ({"deadline": T + 9_000, "request": "nodes=x:ppn=y"}, "body"),
        ({"deadline": T + 9_000, "request": None}, "body"),
        ({"deadline": T + 9_000, "request": "trl=8@600"}, "body"),
        ({"deadline": T + 500, "request": "trl=8@600:4@900", "duration": None}, "body.deadline"),
        ({"deadline": T + 9_000, "clusters": ["c"]}, "body.clusters"),
        ({"deadline": T + 9_000, "request": "select=1:ncpus=2"}, "body.request"),
        ({"deadline": T + 9_000, "freeze": 101}, "body.freeze"),
        ({"deadline": T + 9_000, "until": T + 60}, "body.until"),
        ({"deadline": 1 << 40}, "body.deadline"),
    ],
)
def test_invalid_bookings_are_refused_with_their_place(
    harness: BookingHarness, ann: TestClient, body: dict[str, Any], where: str
) -> None:
    answer = request_booking(ann, "exam", **body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["where"] == where
    assert not harness.simulation.federation.bookings.by_id


@pytest.mark.parametrize("name", ["a b", "-x", "a" * 64, "ä"])
def test_booking_names_are_validated(ann: TestClient, name: str) -> None:
    assert request_booking(ann, name, deadline=T + 9_000).status_code == 422
    assert ann.get(f"{HERE}/{name}").status_code == 422


# ---- the page and the report ------------------------------------------------------------------------------


def test_page_shows_bookings_without_owners(harness: BookingHarness, ann: TestClient) -> None:
    assert "Bookings" not in TestClient(harness.app).get("/").text
    request_booking(ann, "exam", ready=T + 100, deadline=T + 9_000, clusters=["b"])
    page = TestClient(harness.app).get("/").text
    assert ">Bookings</h2>" in page
    assert "Tue 14 Nov 2023 22:15 UTC" in page
    assert "2 h 18 min" in page
    assert "exam" not in page
    assert "ann@" not in page
    harness.simulation.cut = {"b"}
    harness.later(1)
    assert '<span class="faint">it does not answer</span>' in TestClient(harness.app).get("/").text


def test_report_counts_booking_outcomes(harness: BookingHarness, ann: TestClient) -> None:
    for name in "ab":
        request_booking(ann, f"first-{name}", start=T + 1_000, clusters=[name])
    request_booking(ann, "second", start=T + 1_100)
    request_booking(ann, "third", start=T + 1_200)
    ann.post(f"{HERE}/second/accept", json={"option": 1})
    ann.delete(f"{HERE}/first-a")
    found = ann.get("/v1/federation/report").json()["bookings"]
    assert found == {
        "asked": 4,
        "booked": 3,
        "by_offer": 1,
        "refused": 1,
        "declined": 4,
        "ended": 0,
        "cancelled": 1,
        "lost": 0,
        "moves": 0,
    }


# ---- jobs -------------------------------------------------------------------------------------------------

JOB = {"script": "sleep 1", "request": "nodes=1:ppn=4,walltime=100"}


def test_job_with_booking_goes_to_its_cluster(harness: BookingHarness, ann: TestClient) -> None:
    request_booking(ann, "exam", ready=T + 100, deadline=T + 9_000, clusters=["b"])
    job = ann.post("/v1/federation/jobs", json={**JOB, "booking": "exam"})
    assert job.status_code == 201, job.text
    assert (job.json()["booking"], job.json()["cluster"]) == ("exam", "b")
    (action,) = harness.simulation.federation.pending_actions("b")
    assert action.body is not None
    assert (action.kind, action.body["booking"]) == ("submit", "fed.1.1")
    assert ann.get(f"{HERE}/exam").json()["jobs"] == [job.json()["id"]]
    ann.delete(f"{HERE}/exam")
    gone = ann.post("/v1/federation/jobs", json={**JOB, "booking": "exam"})
    assert (gone.status_code, "booking exam is cancelled" in gone.text) == (409, True)


def test_job_needs_an_own_booking(harness: BookingHarness, ann: TestClient) -> None:
    request_booking(ann, "exam", ready=T + 100, deadline=T + 9_000, clusters=["b"])
    bob = harness.client("bob@org")
    for client, more, where in (
        (bob, {"booking": "exam"}, "body.booking"),
        (ann, {"booking": "other"}, "body.booking"),
        (ann, {"booking": "exam", "clusters": ["a"]}, "body"),
        (ann, {"booking": "exam", "array": "0-3"}, "body"),
        (ann, {"booking": "a b"}, "body.booking"),
    ):
        answer = client.post("/v1/federation/jobs", json={**JOB, **more})
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["where"] == where


# ---- what breaks ------------------------------------------------------------------------------------------


def test_restart_keeps_bookings(harness: BookingHarness, ann: TestClient) -> None:
    request_booking(ann, "exam", ready=T + 100, deadline=T + 9_000)
    for name in "ab":
        request_booking(ann, f"first-{name}", start=T + 5_000, clusters=[name])
    request_booking(ann, "second", start=T + 5_100)
    before = ann.get(HERE).json()
    harness.stop()
    harness.begin()
    assert ann.get(HERE).json() == before
    number = before["bookings"][-1]["options"][0]["option"]
    assert ann.post(f"{HERE}/second/accept", json={"option": number}).status_code == 200


def test_booking_at_unreachable_cluster_is_cancelled_later(
    harness: BookingHarness, ann: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedd.federation.api.bookings._CLUSTER_REPLY_S", 0.2)
    row = request_booking(ann, "exam", ready=T + 1_000, deadline=T + 9_000).json()
    harness.simulation.cut = {row["cluster"]}
    harness.later(1)
    shown = ann.get(f"{HERE}/exam").json()
    assert (shown["state"], shown["start"]) == ("flexible", row["start"])
    assert shown["text"].startswith(f"{row['cluster']} does not answer, and keeps the booking")
    frozen = ann.post(f"{HERE}/exam/freeze").json()
    assert frozen["state"] == "being frozen"
    gone = ann.delete(f"{HERE}/exam").json()
    assert (gone["state"], gone["over"]) == ("being cancelled", "")
    assert f"it will be cancelled once {row['cluster']} answers" in gone["text"]
    assert ann.post("/v1/federation/jobs", json={**JOB, "booking": "exam"}).status_code == 409
    assert list(harness.simulation.booked()) == [row["id"]]
    harness.simulation.cut = set()
    harness.until(lambda: ann.get(f"{HERE}/exam").json()["over"] == "cancelled")
    assert harness.simulation.booked() == {}


def test_slow_booking_is_answered_with_accepted(
    harness: BookingHarness, ann: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {"book": 99}  # the cluster books, its answers are lost
    harness.simulation.after = lost

    async def wait_until_cluster_is_asked(_known: object, _seconds: float) -> None:
        await wait_until(lambda: lost["book"] < 99, WAIT_S)

    monkeypatch.setattr(bookings, "wait_until", wait_until_cluster_is_asked)
    made = request_booking(ann, "exam", ready=T + 1_000, deadline=T + 9_000, clusters=["a"])
    assert (made.status_code, made.json()["state"], made.json()["cluster"]) == (202, "being booked", "a")
    bound = ann.post("/v1/federation/jobs", json={**JOB, "booking": "exam"})
    assert (bound.status_code, "exam is being booked" in bound.text) == (409, True)
    harness.simulation.after = {}
    harness.until(lambda: ann.get(f"{HERE}/exam").json()["state"] == "flexible")


def test_nothing_is_booked_if_the_log_fails(
    harness: BookingHarness, ann: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(harness.simulation.log, "append", fail)
    answer = request_booking(ann, "exam", deadline=T + 9_000)
    assert (answer.status_code, "the disk is full" in answer.text) == (503, True)
    assert not harness.simulation.federation.bookings.by_id


def test_standby_daemon_books_nothing(harness: BookingHarness, ann: TestClient) -> None:
    harness.app.state.federation = None
    assert request_booking(ann, "exam", deadline=T + 9_000).status_code == 503
