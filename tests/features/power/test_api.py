"""Switching nodes over HTTP: permissions, and power readings."""

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import token
from tests.api.test_errors import problem
from tests.api.test_responses import MAIN, get


def test_admin_requests_a_power_state_and_withdraws_it(busy_cluster: TestClient) -> None:
    assert get(busy_cluster, "/power")["nodes"] == []
    body = {"wish": "hold", "reason": "its fan"}
    (node,) = busy_cluster.put(f"{MAIN}/power/n2", json=body).json()["nodes"]
    assert (node["node"], node["phase"], node["wish"]) == ("n2", "on", "hold")
    assert (node["by"], node["reason"], node["back"]) == ("our-admin", "its fan", None)
    (node,) = busy_cluster.put(f"{MAIN}/power/n2", json={"wish": "auto"}).json()["nodes"]
    assert (node["wish"], node["by"]) == ("auto", "")


def test_node_to_be_switched_off_gets_no_new_jobs(busy_cluster: TestClient) -> None:
    busy_cluster.put(f"{MAIN}/power/n2", json={"wish": "off", "reason": "its fan"})
    (node,) = [one for one in get(busy_cluster, "/nodes")["nodes"] if one["name"] == "n2"]
    assert (node["state"], node["closed"]) == ("drain", "to be switched off: its fan")
    jobs = get(busy_cluster, "/jobs", state="planned")["jobs"]
    assert jobs
    assert all(share["node"] != "n2" for job in jobs for share in job["planned_nodes"])
    found = get(busy_cluster, "/power")
    assert (found["mode"], found["saved"], found["would"]) == ("off", 0, [])


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/power/n9", {"wish": "on"}, "no node n9"),
        ("/power/n1", {"wish": "maybe"}, "wish"),
        ("/power/n1", {"wish": "on", "watts": 5}, "watts"),
        ("/power/n1", {"wish": "on", "reason": "a\nb"}, "reason"),
    ],
)
def test_invalid_power_request_changes_nothing(
    busy_cluster: TestClient, path: str, body: dict[str, object], said: str
) -> None:
    found = problem(busy_cluster.put(MAIN + path, json=body), "invalid")
    assert said in str(found)
    assert get(busy_cluster, "/power")["nodes"] == []


def test_users_may_read_but_not_switch(busy_cluster: TestClient) -> None:
    headers = {"Authorization": f"Bearer {token('user')}"}
    assert busy_cluster.get(f"{MAIN}/power", headers=headers).status_code == 200
    answer = busy_cluster.put(f"{MAIN}/power/n1", json={"wish": "off"}, headers=headers)
    problem(answer, "not-allowed")


READINGS = f"{MAIN}/power/readings"


def test_power_readings_are_stored_and_shown(busy_cluster: TestClient) -> None:
    headers = {"Authorization": f"Bearer {token('adapter')}"}
    answer = busy_cluster.post(READINGS, json={"watts": {"n1": 212.5, "n2": 90}}, headers=headers)
    assert answer.status_code == 200
    assert answer.json()["measured"] == get(busy_cluster, "/power")["measured"]
    (first, second) = get(busy_cluster, "/power")["measured"]
    assert (first["node"], first["watts"], first["idle"]) == ("n1", 212.5, None)
    assert second["watts"] == 90
    assert {one["name"]: one["watts"] for one in get(busy_cluster, "/nodes")["nodes"]}["n1"] == 212.5
    for _ in range(5):
        busy_cluster.post(READINGS, json={"watts": {"n2": 90}}, headers=headers)
    assert get(busy_cluster, "/power")["measured"][1]["watts"] == 90


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"watts": {"n1": 5, "n77": 5}}, "n77"),
        ({"watts": {"n1": -1}}, "watts.n1"),
        ({"watts": {"n1": "much"}}, "watts.n1"),
        ({"watts": {}}, "watts"),
        ({"watts": {"n1": 1e9}}, "watts.n1"),
        ({}, "watts"),
    ],
)
def test_invalid_readings_change_nothing(
    busy_cluster: TestClient, body: dict[str, object], said: str
) -> None:
    assert said in str(problem(busy_cluster.post(READINGS, json=body), "invalid"))
    assert get(busy_cluster, "/power")["measured"] == []


@pytest.mark.parametrize("role", ["user", "operator"])
def test_users_and_operators_cannot_send_readings(busy_cluster: TestClient, role: str) -> None:
    headers = {"Authorization": f"Bearer {token(role)}"}
    problem(busy_cluster.post(READINGS, json={"watts": {"n1": 5}}, headers=headers), "not-allowed")
