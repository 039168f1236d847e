"""Searches over HTTP: permissions and results."""

from fastapi.testclient import TestClient

from tests.api.conftest import EVENTS, token

SEARCHES = "/v1/clusters/main/searches"


def test_a_search_runs_and_is_listed(busy_cluster: TestClient) -> None:
    assert busy_cluster.get(SEARCHES).json() == {"searches": [], "next": None}
    shorter = {**EVENTS[-1]["job"], "id": "9.server", "resources": {"nodes": "1:ppn=4", "walltime": "600"}}
    event = {**EVENTS[-1], "id": "e:99", "job": shorter}
    assert busy_cluster.post("/v1/clusters/main/events", json={"events": [event]}).status_code == 200
    made = busy_cluster.post(SEARCHES)
    assert made.status_code == 200
    found = made.json()["search"]
    assert (found["number"], found["why"], found["kind"], found["ended"]) == (
        1,
        "asked for",
        "tabu",
        "seconds",
    )
    assert found["jobs"] == 4
    assert {one["criterion"] for one in found["criteria"]} >= {"wait", "bounded_slowdown", "wait_max"}
    assert busy_cluster.get(SEARCHES).json() == {"searches": [found], "next": None}


def test_a_search_of_equal_jobs_in_their_order_ends_at_once(busy_cluster: TestClient) -> None:
    assert busy_cluster.post(SEARCHES).json()["search"]["ended"] == "nothing to do"


def test_searches_need_the_role_operator(busy_cluster: TestClient) -> None:
    for role, status in (("user", 403), ("adapter", 403), ("operator", 200)):
        answer = busy_cluster.post(SEARCHES, headers={"Authorization": f"Bearer {token(role)}"})
        assert answer.status_code == status, role


def test_a_search_with_nothing_to_do_says_so(client: TestClient) -> None:
    assert client.post(SEARCHES).json() == {"search": None}
