"""Holds of nodes and queues over HTTP, and their permissions."""

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import token
from tests.api.test_errors import problem
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import T

WHY = {"reason": "new memory"}


def test_a_node_is_held_shown_as_such_and_released(busy_cluster: TestClient) -> None:
    before = {job["id"]: job["planned_start"] for job in get(busy_cluster, "/jobs")["jobs"]}
    seen = busy_cluster.post(f"{MAIN}/holds/node/n2/preview", json=WHY).json()
    assert get(busy_cluster, "/holds")["holds"] == []
    made = busy_cluster.put(f"{MAIN}/holds/node/n2", json=WHY).json()
    held = {"kind": "node", "name": "n2", "reason": "new memory", "since": T, "by": "our-admin"}
    assert made["holds"] == get(busy_cluster, "/holds")["holds"] == [held]
    after = {job["id"]: job["planned_start"] for job in get(busy_cluster, "/jobs")["jobs"]}
    moved = {job: start for job, start in after.items() if start != before[job]}
    assert {one["job"]: one["after"] for one in seen["moved"]} == moved
    assert moved
    node = next(one for one in get(busy_cluster, "/nodes")["nodes"] if one["name"] == "n2")
    assert (node["state"], node["held"]) == ("drain", "new memory")
    gone = busy_cluster.delete(f"{MAIN}/holds/node/n2").json()
    assert gone["holds"] == []
    node = next(one for one in get(busy_cluster, "/nodes")["nodes"] if one["name"] == "n2")
    assert (node["state"], node["held"]) == ("up", "")
    starts = [job["planned_start"] for job in get(busy_cluster, "/jobs")["jobs"]]
    assert sorted(starts) == sorted(before.values())


def test_jobs_and_whatifs_in_a_held_queue_name_the_hold(busy_cluster: TestClient) -> None:
    queue = {"type": "queue_changed", "id": "q:1", "time": T, "queue": {"name": "batch"}}
    assert busy_cluster.post(f"{MAIN}/events", json={"events": [queue]}).status_code == 200
    made = busy_cluster.put(f"{MAIN}/holds/queue/batch", json={"reason": "the course has it"})
    assert made.status_code == 200
    words = "queue batch, which is held: the course has it"
    waiting = get(busy_cluster, "/jobs", state="waiting")["jobs"]
    assert waiting
    assert {job["why"].partition("; ")[0] for job in waiting} == {f"waiting for {words}"}
    (blocker,) = get(busy_cluster, f"/jobs/{waiting[0]['id']}/explain")["blockers"]
    assert (blocker["kind"], blocker["name"]) == ("queue", words)
    asked = busy_cluster.post(f"{MAIN}/what-if", json={"request": "nodes=1", "queue": "batch"}).json()
    assert (asked["answer"], asked["waiting_for"]) == ("waiting", "queue")


def test_nodes_are_held_by_range_and_released_by_pattern(busy_cluster: TestClient) -> None:
    seen = busy_cluster.post(f"{MAIN}/holds/node/n[1-2]/preview", json=WHY)
    assert seen.status_code == 200
    made = busy_cluster.put(f"{MAIN}/holds/node/n[1-2]", json=WHY).json()
    assert [one["name"] for one in made["holds"]] == ["n1", "n2"]
    made = busy_cluster.delete(f"{MAIN}/holds/node/n2").json()
    assert [one["name"] for one in made["holds"]] == ["n1"]
    assert busy_cluster.delete(f"{MAIN}/holds/node/n*").json()["holds"] == []


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("PUT", "/holds/node/n9", "no node, property or state n9"),
        ("PUT", "/holds/queue/nix", "no queue nix"),
        ("PUT", "/holds/node/x*", "no node fits x*"),
        ("DELETE", "/holds/node/n1", "planning of node n1 is not held"),
        ("DELETE", "/holds/node/n*", "planning of node n* is not held"),
    ],
)
def test_unknown_targets_are_named(busy_cluster: TestClient, method: str, path: str, said: str) -> None:
    body = WHY if method == "PUT" else None
    found = problem(busy_cluster.request(method, MAIN + path, json=body), "invalid")
    assert found["errors"][0]["what"] == said


def test_holds_need_the_role_operator(busy_cluster: TestClient) -> None:
    for role, status in (("reader", 403), ("adapter", 403), ("user", 403), ("operator", 200)):
        headers = {"Authorization": f"Bearer {token(role)}"}
        made = busy_cluster.put(f"{MAIN}/holds/node/n1", json=WHY, headers=headers)
        assert made.status_code == status, role
        assert busy_cluster.get(f"{MAIN}/holds", headers=headers).status_code == 200
        seen = busy_cluster.post(f"{MAIN}/holds/node/n1/preview", json=WHY, headers=headers)
        assert seen.status_code == status, role


def test_adapters_cannot_send_holds(busy_cluster: TestClient) -> None:
    event = {
        "type": "planning_held",
        "id": "x:1",
        "time": T,
        "kind": "node",
        "name": "n1",
        "reason": "x",
    }
    adapter = {"Authorization": f"Bearer {token('adapter')}"}
    answer = busy_cluster.post(f"{MAIN}/events", json={"events": [event]}, headers=adapter)
    problem(answer, "invalid")
