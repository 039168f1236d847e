"""Transfers over HTTP: permissions, permitted submissions, responses."""

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.features.transfers.state import transfer_state
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.wire import TransferDecision
from tests.api.conftest import token
from tests.api.test_errors import MAIN, problem
from tests.service.planner_harness import T

JOB: dict[str, Any] = {
    "user": "ann",
    "script": "sleep 1\n",
    "resources": {"nodes": "1:ppn=4", "walltime": "60"},
}
HERE = f"{MAIN}/transfers"


@pytest.fixture
def federation_client(app: FastAPI) -> TestClient:
    return TestClient(app, headers={"Authorization": f"Bearer {token('federation')}"})


def carry_out_last_decision(
    client: TestClient, loop: PlanLoop, done: bool = True, job: str = "9.server"
) -> None:
    """Carry out the last decision, as an adapter."""
    decision = [one for one in loop.decisions.page_after("").decisions if isinstance(one, TransferDecision)][
        -1
    ]
    event = {
        "type": "transfer_step_done",
        "id": f"a:{decision.id}",
        "time": T,
        "decision_id": decision.id,
        "transfer": decision.transfer,
        "step": decision.step,
        "done": done,
        "server_job": job,
        "text": "" if done else "no such queue",
    }
    assert client.post(f"{MAIN}/events", json={"events": [event]}).status_code == 200


def test_a_transfer_is_submitted_held_released_and_planned(
    federation_client: TestClient, busy_cluster: TestClient, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[tuple[str, ...]] = []
    monkeypatch.setattr(loop, "audit", lambda *said: noted.append(said))
    first = federation_client.put(f"{HERE}/f.1.1", json=JOB)
    assert first.status_code == 200
    assert first.json()["transfer"]["phase"] == "submitting"
    assert federation_client.put(f"{HERE}/f.1.1", json=JOB).json()["transfer"]["phase"] == "submitting"
    sent = [one for one in loop.decisions.page_after("").decisions if isinstance(one, TransferDecision)]
    assert len(sent) == 1
    assert sent[0].submission is not None
    assert sent[0].submission.script == "sleep 1\n"
    early = problem(federation_client.post(f"{HERE}/f.1.1/release"), "not-now")
    assert "submitting" in early["detail"]
    carry_out_last_decision(busy_cluster, loop)
    assert not [one for one in loop.decisions.page_after("").decisions if isinstance(one, TransferDecision)]
    assert federation_client.get(f"{HERE}/f.1.1").json()["transfer"]["phase"] == "held"
    job = {
        "id": "9.server",
        "owner": "ann@x",
        "queue": "batch",
        "submitted": T,
        "resources": JOB["resources"],
    }
    seen = {"type": "job_queued", "id": "q:9", "time": T, "job": job}
    busy_cluster.post(f"{MAIN}/events", json={"events": [seen]})
    assert federation_client.post(f"{HERE}/f.1.1/release").json()["transfer"]["phase"] == "releasing"
    assert noted[-1] == ("our-federation", "release", "f.1.1")
    carry_out_last_decision(busy_cluster, loop)
    (row,) = federation_client.get(HERE).json()["transfers"]
    assert (row["phase"], row["state"], row["job"]) == ("released", "planned", "9.server")
    assert row["planned_start"] is not None
    ended = {"type": "job_ended", "id": "x:9", "time": T, "job_id": "9.server", "exit_status": 2}
    busy_cluster.post(f"{MAIN}/events", json={"events": [ended]})
    (row,) = federation_client.get(HERE).json()["transfers"]
    assert (row["end"], row["exit_status"]) == ("ended", 2)
    assert federation_client.get(f"{HERE}?since={T + 10**6}").json()["transfers"] == []


def test_a_refused_transfer_has_its_reason(
    federation_client: TestClient, client: TestClient, loop: PlanLoop
) -> None:
    federation_client.put(f"{HERE}/f.2.1", json=JOB)
    carry_out_last_decision(client, loop, done=False)
    row = federation_client.get(f"{HERE}/f.2.1").json()["transfer"]
    assert (row["phase"], row["text"]) == ("refused", "no such queue")


def test_a_transfer_withdrawn_before_its_arrival_is_not_submitted(
    federation_client: TestClient, loop: PlanLoop
) -> None:
    assert federation_client.delete(f"{HERE}/f.3.1").json()["transfer"]["phase"] == "withdrawn"
    assert federation_client.put(f"{HERE}/f.3.1", json=JOB).json()["transfer"]["phase"] == "withdrawn"
    assert not [one for one in loop.decisions.page_after("").decisions if isinstance(one, TransferDecision)]


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        ({"user": "root"}, "body.user"),
        ({"user": "ann;reboot"}, "body.user"),
        ({"script": ""}, "body.script"),
        ({"script": "a\0b"}, "body.script"),
        ({"attributes": {"Hold_Types": "n"}}, "body.attributes"),
        ({"attributes": {"User_List": "bob"}}, "body.attributes"),
        ({"attributes": {"exec_host": "n1"}}, "body.attributes"),
        ({"variables": {"A,B": "1"}}, "body.variables"),
        ({"resources": {"nodes": "1\n2"}}, "body.resources"),
        ({"hold": "u"}, "body.hold"),
        ({"booking": "a b"}, "body.booking"),
        ({"booking": "b", "booked": True}, "body"),
        ({"booking": "b", "array": "0-3"}, "body"),
    ],
)
def test_transfers_cannot_use_manager_privileges(
    federation_client: TestClient, wrong: dict[str, Any], where: str
) -> None:
    found = problem(federation_client.put(f"{HERE}/f.4.1", json={**JOB, **wrong}), "invalid")
    assert found["errors"][0]["where"] == where
    problem(federation_client.get(f"{HERE}/f.4.1"), "unknown-transfer")


@pytest.mark.parametrize("role", ["user", "reader", "operator", "adapter"])
def test_other_roles_cannot_transfer(app: FastAPI, role: str) -> None:
    caller = TestClient(app, headers={"Authorization": f"Bearer {token(role)}"})
    problem(caller.put(f"{HERE}/f.5.1", json=JOB), "not-allowed")
    problem(caller.get(HERE), "not-allowed")


def test_federation_sees_and_changes_only_its_own_transfers(
    federation_client: TestClient, client: TestClient
) -> None:
    client.put(f"{HERE}/theirs", json=JOB)
    assert federation_client.get(HERE).json()["transfers"] == []
    problem(federation_client.get(f"{HERE}/theirs"), "unknown-transfer")
    problem(federation_client.delete(f"{HERE}/theirs"), "not-allowed")
    problem(federation_client.post(f"{HERE}/theirs/release"), "unknown-transfer")


def test_a_whatif_for_another_user_needs_permission(app: FastAPI, federation_client: TestClient) -> None:
    question = {"request": "nodes=1,walltime=60", "owner": "ann"}
    assert federation_client.post(f"{MAIN}/what-if", json=question).status_code == 200
    user = TestClient(app, headers={"Authorization": f"Bearer {token('user')}"})
    problem(user.post(f"{MAIN}/what-if", json=question), "not-allowed")


# ---- licences that a federation lends ----------------------------------------------------------------------


def lend_copies(
    client: TestClient, copies: int, number: int, name: str = "matlab", role: str = "federation"
) -> Any:
    return client.put(
        f"/v1/clusters/main/licences/{name}",
        json={"copies": copies, "number": number},
        headers={"Authorization": f"Bearer {token(role)}"},
    )


@pytest.fixture
def lending_cluster(client: TestClient, loop: PlanLoop) -> TestClient:
    """A cluster with matlab from a federation; three jobs on three nodes request a copy each."""
    site = {"licences": {"matlab": {"lent": True}}}
    assert client.put("/v1/clusters/main/policy", json=site).status_code == 200
    nodes = [
        {"type": "node_changed", "id": f"n:{i}", "time": T, "node": {"name": f"m{i}", "cpus": 1}}
        for i in range(3)
    ]
    jobs = [
        {
            "type": "job_queued",
            "id": f"l:{i}",
            "time": T,
            "job": {
                "id": f"9{i}.server",
                "owner": "ann@login",
                "queue": "batch",
                "submitted": T,
                "resources": {"nodes": "1", "walltime": "60", "matlab": "1"},
                "version": "1",
            },
        }
        for i in range(3)
    ]
    assert client.post("/v1/clusters/main/events", json={"events": nodes + jobs}).status_code == 200
    return client


def test_jobs_start_only_with_lent_copies(lending_cluster: TestClient, loop: PlanLoop) -> None:
    assert lend_copies(lending_cluster, 9, 0).json()["copies"] == 0, "number 0 only looks"
    view = lend_copies(lending_cluster, 2, 1).json()
    assert (view["copies"], view["number"]) == (2, 1)
    assert view["held"] + view["wanted"] == 3
    starts = loop.published.starts
    later = lend_copies(lending_cluster, 1, 2).json()
    assert later["copies"] == 1
    assert lend_copies(lending_cluster, 3, 2).json()["copies"] == 1, "what comes late changes nothing"
    assert lend_copies(lending_cluster, 3, 1).json()["copies"] == 1
    assert later["held"] <= 2, "those that run go on"
    del starts


def test_only_lendable_licences_are_lent(lending_cluster: TestClient) -> None:
    refused = lend_copies(lending_cluster, 1, 1, name="fluent")
    assert refused.status_code == 422
    assert "lent = true" in refused.text
    assert lend_copies(lending_cluster, 1, 1, role="operator").status_code == 403
    assert lend_copies(lending_cluster, -1, 1).status_code == 422


def test_transferred_array_reports_its_jobs(
    federation_client: TestClient, busy_cluster: TestClient, loop: PlanLoop
) -> None:
    asked = federation_client.put(f"{HERE}/f.1.1", json={**JOB, "array": "4-6"}).json()["transfer"]
    assert (asked["phase"], asked["state"], asked["tasks"]["tasks"]) == ("submitting", "", 3)
    carry_out_last_decision(busy_cluster, loop, job="9[].server")
    federation_client.post(f"{HERE}/f.1.1/release")
    carry_out_last_decision(busy_cluster, loop, job="9[].server")
    about = {"owner": "ann@x", "queue": "batch", "submitted": T, "resources": JOB["resources"]}
    jobs = [{"id": f"9[{index}].server", "array": "9[].server", **about} for index in (4, 5, 6)]
    events = [{"type": "job_queued", "id": f"q:{job['id']}", "time": T, "job": job} for job in jobs]
    busy_cluster.post(f"{MAIN}/events", json={"events": events[:2]})
    (row,) = federation_client.get(HERE).json()["transfers"]
    assert (row["tasks"]["planned"], row["promised_end"]) == (2, None), "one is not planned yet"
    busy_cluster.post(f"{MAIN}/events", json={"events": events[2:]})
    (row,) = federation_client.get(HERE).json()["transfers"]
    jobs_there = [busy_cluster.get(f"{MAIN}/jobs/{job['id']}").json() for job in jobs]
    lengths = {one["planned_end"] - one["planned_start"] for one in jobs_there}
    assert row["promised_end"] == max(one["promised_start"] for one in jobs_there) + lengths.pop()
    assert not row["at_risk"]
    tasks = row["tasks"]
    assert (row["state"], tasks["planned"], tasks["running"], tasks["ended"]) == ("planned", 3, 0, 0)
    assert row["planned_end"] > row["planned_start"] >= T
    generation = federation_client.get(HERE).json()["generation"]
    assert federation_client.get(f"{HERE}?after={generation}&since={T + 1}").json()["transfers"] == []
    ended = {"type": "job_ended", "time": T + 5, "exit_status": 0}
    for index in (4, 5):
        one = {**ended, "id": f"x:{index}", "job_id": f"9[{index}].server"}
        busy_cluster.post(f"{MAIN}/events", json={"events": [one]})
    (row,) = federation_client.get(f"{HERE}?after={generation}&since={T + 1}").json()["transfers"]
    assert (row["end"], row["tasks"]["ended"], row["tasks"]["planned"]) == ("", 2, 1)
    assert row["tasks"]["last_end"] == T + 5
    assert (
        row["promised_end"]
        == jobs_there[2]["promised_start"] + jobs_there[2]["planned_end"] - (jobs_there[2]["planned_start"])
    )
    deleted = {"type": "job_deleted", "id": "x:6", "time": T + 6, "job_id": "9[6].server"}
    busy_cluster.post(f"{MAIN}/events", json={"events": [deleted]})
    (row,) = federation_client.get(HERE).json()["transfers"]
    assert (row["end"], row["state"], row["tasks"]["deleted"]) == ("ended", "", 1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"array": "6-4"}, "the last index must not be before the first"),
        ({"array": "0-100000"}, "at most 100000"),
        ({"array": "0-4,7"}, "pattern"),
        ({"array": "0-4", "booked": True}, "an array cannot have booking"),
        ({"array": "0-4", "keep_for": 60}, "cannot have booking, booked or keep_for"),
    ],
)
def test_invalid_array_transfer_is_refused(
    federation_client: TestClient, more: dict[str, Any], said: str
) -> None:
    found = problem(federation_client.put(f"{HERE}/f.1.1", json={**JOB, **more}), "invalid")
    assert said in str(found["errors"])


def test_the_end_of_a_bag_is_reported(
    federation_client: TestClient, busy_cluster: TestClient, loop: PlanLoop
) -> None:
    whole = f"{HERE}/f.1.1/bag-end"
    assert federation_client.post(whole, json={"end": T + 500}).status_code == 404
    federation_client.put(f"{HERE}/f.1.1", json={**JOB, "array": "4-6"})
    assert (
        "is not at the server yet"
        in problem(federation_client.post(whole, json={"end": T + 500}), "not-now")["detail"]
    )
    carry_out_last_decision(busy_cluster, loop, job="9[].server")
    assert federation_client.post(whole, json={"end": T + 500}).status_code == 200
    assert transfer_state(loop._planner.engine.state).bag_ends == {"9[].server": T + 500}
    assert federation_client.post(whole, json={"end": -1}).status_code == 422
    federation_client.put(f"{HERE}/f.2.1", json=JOB)
    assert (
        "is no array"
        in problem(federation_client.post(f"{HERE}/f.2.1/bag-end", json={"end": T}), "not-now")["detail"]
    )
