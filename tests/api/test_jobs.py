"""One job over HTTP: short ids, its history."""

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import EVENTS
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import T


def queue(client: TestClient, *ids: str) -> None:
    events = [{**EVENTS[2], "id": f"q:{job}", "job": {**EVENTS[2]["job"], "id": job}} for job in ids]
    assert client.post(f"{MAIN}/events", json={"events": events}).status_code == 200


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("7", "7.server.site"),
        ("7.server", "7.server.site"),
        ("7.server.site", "7.server.site"),
        ("8[4]", "8[4].server"),
        ("8", "8[].server"),
        ("8[]", "8[].server"),
        ("9.b", "9.b"),
    ],
)
def test_unambiguous_id_prefixes_are_accepted(client: TestClient, asked: str, found: str) -> None:
    queue(client, "7.server.site", "8[].server", "8[4].server", "9.a", "9.b")
    assert get(client, f"/jobs/{asked}")["id"] == found
    assert get(client, f"/jobs/{asked}/history")["job"] == found


@pytest.mark.parametrize(
    ("asked", "hint"), [("9", "9.a or 9.b"), ("7.ser", "7.server.site"), ("7.sit", "7.s")]
)
def test_an_ambiguous_id_is_not_guessed(client: TestClient, asked: str, hint: str) -> None:
    queue(client, "7.server.site", "9.a", "9.b")
    answer = client.get(f"{MAIN}/jobs/{asked}")
    assert answer.status_code == 404
    assert hint in answer.json()["hint"]


def test_the_history_tells_every_move_with_its_event_newest_first(busy_cluster: TestClient) -> None:
    before = get(busy_cluster, "/jobs/5.server")
    gone = {"type": "job_deleted", "id": "e:50", "time": T, "job_id": "3.server"}
    assert busy_cluster.post(f"{MAIN}/events", json={"events": [gone]}).status_code == 200
    after = get(busy_cluster, "/jobs/5.server")
    found = get(busy_cluster, "/jobs/5/history")
    first, last = found["changes"][-1], found["changes"][0]
    assert (first["event"], first["cause"]) == ("e:15", "arrived")
    assert (first["before"], first["after"]) == (None, before["planned_start"])
    assert last == after["last_change"]
    assert (last["event"], last["cause"]) == ("e:50", "freed")
    assert (last["before"], last["after"]) == (before["planned_start"], after["planned_start"])
    assert found["promised_start"] == before["promised_start"] == after["promised_start"]
    assert (found["breaches"], found["promise_ended"]) == ([], None)
    assert get(busy_cluster, "/jobs/5/history", limit=1)["changes"] == [last]


def test_history_has_the_cause_for_a_broken_promise(busy_cluster: TestClient) -> None:
    held = {"type": "job_held", "id": "e:51", "time": T, "job_id": "5.server", "holds": "u"}
    busy_cluster.post(f"{MAIN}/events", json={"events": [held]})
    found = get(busy_cluster, "/jobs/5/history")
    assert found["promised_start"] is None
    assert found["promise_ended"]["event"] == "e:51"
    assert found["changes"][0]["after"] is None
