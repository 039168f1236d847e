"""The site's policy over HTTP: reading, preview, activation and withdrawal."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.api.conftest import token
from tests.api.test_errors import problem
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import T

ONE_AT_A_TIME = {"limits": [{"what": "jobs", "amount": 1}]}


def test_a_policy_is_previewed_set_and_withdrawn(busy_cluster: TestClient) -> None:
    assert get(busy_cluster, "/policy")["version"] == 0
    before = {job["id"]: job["planned_start"] for job in get(busy_cluster, "/jobs")["jobs"]}
    seen = busy_cluster.post(f"{MAIN}/policy/preview", json=ONE_AT_A_TIME).json()
    assert seen["moves"] == len(seen["moved"]) > 0
    assert get(busy_cluster, "/policy")["version"] == 0
    made = busy_cluster.put(f"{MAIN}/policy?break_promises=true", json=ONE_AT_A_TIME).json()
    assert (made["version"], made["site"]) == (1, ONE_AT_A_TIME)
    after = {job["id"]: job["planned_start"] for job in get(busy_cluster, "/jobs")["jobs"]}
    assert {one["job"]: one["after"] for one in seen["moved"]} == {
        job: start for job, start in after.items() if start != before[job]
    }
    gone = busy_cluster.delete(f"{MAIN}/policy").json()
    assert (gone["version"], gone["site"]) == (0, {})


def test_a_policy_that_breaks_promises_is_refused_with_their_owners(busy_cluster: TestClient) -> None:
    seen = busy_cluster.post(f"{MAIN}/policy/preview", json=ONE_AT_A_TIME).json()
    at_risk = [one["owner"] for one in seen["moved"] if one["broken"]]
    assert at_risk == ["bob@login"]
    assert seen["owners_at_risk"] == [{"owner": "bob@login", "promises": 1}]
    refused = problem(busy_cluster.put(f"{MAIN}/policy", json=ONE_AT_A_TIME), "breaks-promises")
    assert refused["detail"] == "1 promise would be put at risk, of bob (1); nothing was changed"
    assert get(busy_cluster, "/policy")["version"] == 0
    assert busy_cluster.put(f"{MAIN}/policy", json={"priority": {"waiting": 1}}).status_code == 200
    assert busy_cluster.delete(f"{MAIN}/policy").json()["version"] == 0


def test_a_policy_replaces_only_the_version_that_the_caller_saw(busy_cluster: TestClient) -> None:
    first, second = {"priority": {"waiting": 1}}, {"priority": {"waiting": 2}}
    assert busy_cluster.put(f"{MAIN}/policy?instead=0", json=first).status_code == 200
    refused = problem(busy_cluster.put(f"{MAIN}/policy?instead=0", json=second), "not-now")
    assert "version 1 of the policy is in force, no longer version 0" in refused["detail"]
    assert get(busy_cluster, "/policy")["site"] == {"priority": {"waiting": 1.0}}
    assert busy_cluster.put(f"{MAIN}/policy?instead=1", json=second).json()["version"] == 2


def test_criteria_are_previewed_on_the_plan(busy_cluster: TestClient) -> None:
    def wait() -> float:
        criteria = get(busy_cluster, "/plan/evaluation")["criteria"]
        return float(next(one["value"] for one in criteria if one["criterion"] == "wait"))

    before = wait()
    alone = busy_cluster.post(f"{MAIN}/policy/preview", json={"criteria": {"wait": 3}}).json()
    both = {**ONE_AT_A_TIME, "criteria": {"wait": 3}}
    together = busy_cluster.post(f"{MAIN}/policy/preview", json=both).json()
    assert busy_cluster.put(f"{MAIN}/policy?break_promises=true", json=ONE_AT_A_TIME).status_code == 200
    after = wait()
    assert after != before

    def begins_with(found: dict[str, Any]) -> float:
        return float(next(one["before"] for one in found["search"]["criteria"] if one["criterion"] == "wait"))

    assert begins_with(alone) == pytest.approx(before)
    assert begins_with(together) == pytest.approx(after)
    assert (alone["moves"], together["moves"] > 0) == (0, True)
    assert together["search"]["taken"] == 0


def test_site_reservation_is_previewed(busy_cluster: TestClient) -> None:
    body = {"everywhere": True, "start": T + 1000, "end": T + 90_000}
    seen = busy_cluster.post(f"{MAIN}/reservations/r/preview", json=body).json()
    assert seen["broken"] == 3
    assert get(busy_cluster, "/reservations")["reservations"] == []
    made = busy_cluster.put(f"{MAIN}/reservations/r", json=body).json()
    assert made["at_risk"] == seen["broken"]
    for one in seen["moved"]:
        assert get(busy_cluster, f"/jobs/{one['job']}")["planned_start"] == one["after"]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"limits": [{"what": "jobs"}]}, "body.limits[0]"),
        ({"limit": []}, "body.limit"),
        ({"placement": "worst"}, "body.placement"),
    ],
)
def test_invalid_policies_are_refused(busy_cluster: TestClient, body: dict[str, Any], where: str) -> None:
    for answer in (
        busy_cluster.put(f"{MAIN}/policy", json=body),
        busy_cluster.post(f"{MAIN}/policy/preview", json=body),
    ):
        assert problem(answer, "invalid")["errors"][0]["where"] == where
    assert get(busy_cluster, "/policy")["version"] == 0


def test_an_adapter_cannot_change_a_policy(busy_cluster: TestClient) -> None:
    event = {"type": "policy_changed", "id": "x:1", "time": T, "version": 1, "site": {}}
    adapter = {"Authorization": f"Bearer {token('adapter')}"}
    answer = busy_cluster.post(f"{MAIN}/events", json={"events": [event]}, headers=adapter)
    problem(answer, "invalid")
    assert get(busy_cluster, "/policy")["version"] == 0


def test_only_admins_change_a_policy(busy_cluster: TestClient) -> None:
    reader = {"Authorization": f"Bearer {token('reader')}"}
    problem(busy_cluster.put(f"{MAIN}/policy", json={}, headers=reader), "not-allowed")
    problem(busy_cluster.get(f"{MAIN}/policy", headers=reader), "not-allowed")
