"""Bookings over HTTP: creation, counter-offers, freezing, cancelling, permissions."""

import hashlib
from typing import Any

import pytest
from fastapi.testclient import TestClient

from schedd.service.access.callers import Callers
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from tests.api.conftest import token
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import T

HERE = f"{MAIN}/bookings"
ASKED = {"request": "nodes=1:ppn=2", "duration": 3600, "ready": T + 100_000, "deadline": T + 110_000}


@pytest.fixture
def open_site(busy_cluster: TestClient) -> TestClient:
    """A site with a policy that permits bookings."""
    answer = busy_cluster.put(f"{MAIN}/policy", json={"bookings": {"most": 2}})
    assert answer.status_code == 200, answer.text
    return busy_cluster


def put_booking(client: TestClient, name: str, who: str = "", **body: Any) -> Any:
    headers = {"Authorization": f"Bearer {token(who)}"} if who else {}
    return client.put(f"{HERE}/{name}", json={**ASKED, **body}, headers=headers)


def test_booking_is_created_shown_frozen_and_cancelled(open_site: TestClient) -> None:
    made = put_booking(open_site, "b")
    assert made.status_code == 200, made.text
    booking = made.json()["booking"]
    assert (booking["phase"], booking["start"], booking["cpus"]) == ("flexible", T + 100_000, 2)
    assert (booking["spare"], len(booking["nodes"])) == (6_400, 1)
    assert get(open_site, "/bookings")["bookings"] == [booking]
    frozen = open_site.post(f"{HERE}/b/freeze").json()["booking"]
    assert (frozen["phase"], frozen["spare"]) == ("frozen", 0)
    gone = open_site.delete(f"{HERE}/b").json()["booking"]
    assert (gone["phase"], gone["nodes"]) == ("cancelled", [])
    assert open_site.post(f"{HERE}/b/freeze").status_code == 409


def test_refused_booking_has_counter_offers_that_can_be_accepted(open_site: TestClient) -> None:
    wide: dict[str, Any] = {"request": "nodes=2:ppn=4", "ready": None, "deadline": None}
    assert put_booking(open_site, "a", **wide, start=T + 100_000).status_code == 200
    refused = put_booking(open_site, "b", **wide, start=T + 101_000)
    assert refused.status_code == 409
    problem = refused.json()
    assert problem["type"].endswith("no-room")
    assert {one["stretch"] < 0 for one in problem["options"]} == {True, False}
    assert get(open_site, "/bookings/b")["booking"]["nodes"] == []
    option = problem["options"][0]
    taken = open_site.post(f"{HERE}/b/accept", json={"option": option["option"]}).json()["booking"]
    assert (taken["start"], taken["phase"]) == (option["start"], "frozen")
    again = open_site.post(f"{HERE}/b/accept", json={"option": 1})
    assert again.status_code == 409
    assert "has 0 counter-offers" in again.json()["detail"]


def test_bookings_need_the_sites_permission(busy_cluster: TestClient) -> None:
    answer = put_booking(busy_cluster, "b")
    assert answer.status_code == 409
    assert "may book nothing" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"request": None}, "give either request or resources"),
        ({"start": T}, "start excludes ready and deadline"),
        ({"ready": None, "deadline": None}, "say when"),
        ({"guard": 5}, "guard, late and arming are for a transfer"),
        ({"late": 5}, "guard, late and arming are for a transfer"),
        ({"request": "nodes=1:ppn"}, "ppn"),
        ({"duration": 5}, "at least 60"),
        ({"freeze": 101}, "at most 100"),
        ({"what": 1}, "not known here"),
        ({"duration": None}, "say how long: duration"),
        ({"request": "trl=4@100"}, "leave duration out"),
        ({"request": "trl=4@100:x", "duration": None}, "write tasks@seconds"),
        ({"request": "trl=4@59", "duration": None}, "each length must be between 60 and"),
    ],
)
def test_invalid_bookings_are_refused(open_site: TestClient, body: dict[str, Any], said: str) -> None:
    answer = put_booking(open_site, "b", **body)
    assert answer.status_code in (409, 422), answer.text
    assert said in answer.text


def test_user_books_and_sees_only_own_bookings(open_site: TestClient) -> None:
    people = [
        (Bearer(name, "user"), hashlib.sha256(token(name).encode()).digest()) for name in ("ann", "bob")
    ]
    open_site.app.state.callers = Callers(Tokens(people))  # type: ignore[attr-defined]
    assert put_booking(open_site, "b", "ann").json()["booking"]["owner"] == "ann"
    assert put_booking(open_site, "c", "ann", owner="bob").status_code == 403
    assert put_booking(open_site, "c", "ann", transfer="fed.1.1").status_code == 403
    bob = {"Authorization": f"Bearer {token('bob')}"}
    assert open_site.get(f"{HERE}/b", headers=bob).status_code == 404
    assert open_site.delete(f"{HERE}/b", headers=bob).status_code == 404
    assert open_site.get(HERE, headers=bob).json()["bookings"] == []


def test_users_may_have_bookings_with_the_same_name(
    open_site: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = {"ann": "a-token-of-ann", "bob": "a-token-of-bob"}
    entries = [(Bearer(n, "user"), hashlib.sha256(one.encode()).digest()) for n, one in users.items()]
    entries.append((Bearer("our-admin", "admin"), hashlib.sha256(token("admin").encode()).digest()))
    open_site.app.state.callers = Callers(Tokens(entries))  # type: ignore[attr-defined]
    ann, bob = ({"Authorization": f"Bearer {one}"} for one in users.values())
    body = {**ASKED, "request": "nodes=1:ppn=1"}
    first = open_site.put(f"{HERE}/exam", json=body, headers=ann)
    free = open_site.put(f"{HERE}/other", json=body, headers=bob)
    taken = open_site.put(f"{HERE}/exam", json={**body, "duration": 1_800}, headers=bob)
    assert (first.status_code, free.status_code, taken.status_code) == (200, 200, 200), taken.text
    assert set(taken.json()["booking"]) == set(free.json()["booking"])
    assert (taken.json()["booking"]["name"], taken.json()["booking"]["owner"]) == ("exam", "bob")
    again = open_site.put(f"{HERE}/exam", json=body, headers=bob).json()["booking"]
    assert again["duration"] == 1_800  # the same booking
    for headers, seconds in ((ann, 3_600), (bob, 1_800)):
        shown = open_site.get(f"{HERE}/exam", headers=headers).json()["booking"]
        assert shown["duration"] == seconds
    gone = open_site.delete(f"{HERE}/exam", headers=bob).json()["booking"]
    assert (gone["owner"], gone["phase"]) == ("bob", "cancelled")
    assert open_site.get(f"{HERE}/exam", headers=ann).json()["booking"]["phase"] == "flexible"
    assert (
        open_site.get(f"{HERE}/exam~bob").json()["booking"]["owner"] == "bob"
    )  # for callers that see all jobs
    assert open_site.put(f"{HERE}/exam~ann", json=body, headers=bob).status_code == 422
    assert open_site.get(f"{HERE}/exam~ann", headers=bob).status_code == 404
