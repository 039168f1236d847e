"""Reservations over HTTP: created, changed, deleted, and their permissions."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import token
from tests.api.test_errors import problem
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import T


def put_reservation(client: TestClient, name: str, **body: Any) -> Any:
    answer = client.put(f"{MAIN}/reservations/{name}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_reservation_keeps_its_nodes_free_until_it_is_lifted(busy_cluster: TestClient) -> None:
    before = get(busy_cluster, "/jobs/3")
    made = put_reservation(
        busy_cluster, "repair", everywhere=True, start=T + 1000, end=T + 90_000, reason="new switch"
    )
    assert made["reservation"]["reason"] == "new switch"
    assert made["at_risk"] == 3  # all that were promised a start before it is over
    assert get(busy_cluster, "/jobs/3")["planned_start"] == T + 90_000
    words = get(busy_cluster, "/jobs/3")["last_change"]["words"]
    late = "that is later than its promise of 2023-11-14 23:13:20 UTC"
    assert words == f"reservation repair was made; {late}"
    listed = get(busy_cluster, "/reservations")["reservations"]
    assert listed == [made["reservation"]]
    plan = get(busy_cluster, "/plan", end=T + 2_000)
    assert plan["reservations"] == listed
    gone = busy_cluster.delete(f"{MAIN}/reservations/repair").json()
    assert gone["reservation"] is None
    assert get(busy_cluster, "/reservations")["reservations"] == []
    assert get(busy_cluster, "/jobs/3")["planned_start"] == before["planned_start"]


def test_a_reservation_replaces_its_namesake(busy_cluster: TestClient) -> None:
    put_reservation(busy_cluster, "r", nodes=["n1"], end=T + 100)
    made = put_reservation(busy_cluster, "r", nodes=["n2"])["reservation"]
    assert (made["nodes"], made["start"], made["end"]) == (["n2"], T, None)
    assert len(get(busy_cluster, "/reservations")["reservations"]) == 1


def test_a_reservation_of_memory_alone_is_told_from_one_of_whole_nodes(busy_cluster: TestClient) -> None:
    made = put_reservation(busy_cluster, "r", nodes=["n1"], mem=1 << 20)["reservation"]
    assert (made["cores"], made["gpus"], made["mem"]) == (0, 0, 1 << 20)
    assert made["amounts"] == "1 GiB of memory of each node"


def test_those_named_may_use_the_nodes(busy_cluster: TestClient) -> None:
    put_reservation(busy_cluster, "course", everywhere=True, start=T, users=["ann"])
    assert get(busy_cluster, "/jobs/3")["planned_start"] is not None
    assert get(busy_cluster, "/jobs/4")["planned_start"] is None


@pytest.mark.parametrize(
    ("body", "where", "said"),
    [
        ({}, "body", "name nodes or features, or say everywhere"),
        ({"nodes": ["n1", "n9", "n8"]}, "body.nodes", "no node n9, n8"),
        ({"features": ["fast"]}, "body.features", "no node has fast"),
        ({"nodes": ["n1"], "end": T}, "body.end", "over already"),
        ({"nodes": ["n1"], "start": T + 10, "end": T + 5}, "body.end", "over already"),
        ({"nodes": ["n1"], "reason": "a\nb"}, "body.reason", "pattern"),
        ({"nodes": ["n1"], "total": True}, "body", "total is for a reservation of cores, gpus or memory"),
        ({"nodes": ["n1"], "cores": -1}, "body.cores", "at least 0"),
        ({"nodes": ["n1"], "until": 3}, "body.until", "not known here"),
    ],
)
def test_invalid_reservations_are_refused(
    busy_cluster: TestClient, body: dict[str, Any], where: str, said: str
) -> None:
    answer = busy_cluster.put(f"{MAIN}/reservations/r", json=body)
    found = problem(answer, "invalid")
    assert found["errors"][0]["where"] == where
    assert said in found["errors"][0]["what"]
    assert get(busy_cluster, "/reservations")["reservations"] == []


def test_nodes_are_named_as_for_a_hold(busy_cluster: TestClient) -> None:
    both = put_reservation(busy_cluster, "rack", nodes=["n[1-9]"])["reservation"]
    assert both["nodes"] == ["n1", "n2"]
    assert put_reservation(busy_cluster, "one", nodes=["n2", "*1"])["reservation"]["nodes"] == ["n1", "n2"]
    found = problem(busy_cluster.put(f"{MAIN}/reservations/r", json={"nodes": ["n1", "x[1-3]"]}), "invalid")
    assert found["errors"][0]["what"] == "no node x[1-3]"


def test_a_refused_change_is_no_success_and_the_reservation_stays(busy_cluster: TestClient) -> None:
    for i in range(16):
        put_reservation(busy_cluster, f"r{i}", nodes=["n1"], start=T + 10 * i, users=[f"u{i}"], end=T + 900)
    wanted = {"nodes": ["n1"], "start": T, "end": T + 900, "users": ["u0"]}
    made = put_reservation(busy_cluster, "last", **wanted)["reservation"]
    assert put_reservation(busy_cluster, "last", **wanted)["reservation"] == made
    answer = busy_cluster.put(f"{MAIN}/reservations/last", json={**wanted, "users": ["eve"]})
    problem(answer, "not-now")
    assert made in get(busy_cluster, "/reservations")["reservations"]


def test_deleting_an_unknown_reservation_fails(busy_cluster: TestClient) -> None:
    put_reservation(busy_cluster, "r", nodes=["n1"])
    found = problem(busy_cluster.delete(f"{MAIN}/reservations/x"), "unknown-reservation")
    assert found["hint"] == "there is r"


def test_reservations_need_the_role_operator(busy_cluster: TestClient) -> None:
    for role, status in (("reader", 403), ("adapter", 403), ("user", 403), ("operator", 200)):
        headers = {"Authorization": f"Bearer {token(role)}"}
        made = busy_cluster.put(f"{MAIN}/reservations/r", json={"nodes": ["n1"]}, headers=headers)
        assert made.status_code == status, role
        assert busy_cluster.get(f"{MAIN}/reservations", headers=headers).status_code == 200
