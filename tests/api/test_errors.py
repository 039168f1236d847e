"""Every error is a problem document with the error and the remedy."""

import json
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import TypeAdapter

from schedd.api.app import create_app
from schedd.api.planner_calls import TIMEOUTS
from schedd.api.problems import PROBLEM_KINDS
from schedd.engine import EngineSettings
from schedd.engine.facts.texts import NOT_ANNOUNCED, STARTED_BY_SOMEBODY_ELSE
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.questions import open_questions
from schedd.wire import Event
from tests.api.conftest import EVENTS, MAX_BODY, token, tokens
from tests.service.planner_harness import StillClock, T
from tests.service.test_plan_loop import busy_planner
from tests.waits import WAIT_S

MAIN = "/v1/clusters/main"
EVENT_TYPES: TypeAdapter[Event] = TypeAdapter(Event)


def problem(answer: Any, kind: str) -> dict[str, Any]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    found: dict[str, Any] = answer.json()
    status, title = PROBLEM_KINDS[kind]
    assert answer.status_code == found["status"] == status
    assert (found["type"], found["title"]) == (f"urn:schedd:problem:{kind}", title)
    assert found["detail"]
    assert found["instance"].startswith("/")
    return found


@pytest.fixture
def stranger(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def bearer(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(role)}"}


# ---- permissions ----------------------------------------------------------------------------------

READS = ["/v1/clusters", MAIN, f"{MAIN}/jobs", f"{MAIN}/nodes", f"{MAIN}/plan", f"{MAIN}/gaps", "/metrics"]


@pytest.mark.parametrize("path", [*READS, f"{MAIN}/decisions"])
def test_without_a_token_nothing_is_read(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path)
    assert "Authorization: Bearer" in problem(answer, "no-token")["hint"]
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("value", ["Bearer wrong", "Bearer", "Basic YWRtaW46YWRtaW4=", "nonsense", ""])
def test_a_wrong_token_is_refused(stranger: TestClient, value: str) -> None:
    found = problem(stranger.get(MAIN, headers={"Authorization": value}), "no-token")
    assert "wrong" not in json.dumps(found)


ANYBODY = "user reader operator adapter admin federation"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        *(("GET", path, ANYBODY) for path in READS if path != "/metrics"),
        ("GET", "/metrics", "reader operator adapter admin federation"),
        ("POST", f"{MAIN}/what-if", ANYBODY),
        ("GET", f"{MAIN}/decisions", "adapter admin"),
        ("POST", f"{MAIN}/events", "adapter admin"),
        ("POST", f"{MAIN}/pause", "operator admin"),
        ("POST", f"{MAIN}/resume", "operator admin"),
        ("GET", f"{MAIN}/transfers", "admin federation"),
    ],
)
def test_each_role_has_only_its_permissions(
    stranger: TestClient, method: str, path: str, allowed: str
) -> None:
    bodies = {
        "what-if": {"request": "nodes=1"},
        "events": {"events": []},
        "pause": {"reason": "x"},
    }
    body = bodies.get(path.rpartition("/")[2])
    words = f"one of the roles {allowed.replace(' ', ', ')}"
    for role in ANYBODY.split():
        answer = stranger.request(method, path, headers=bearer(role), json=body)
        if role in allowed.split():
            assert answer.status_code == 200, answer.text
        else:
            found = problem(answer, "not-allowed")
            assert found["detail"] == f"our-{role} has the role {role}; this needs {words}"


def test_anonymous_reading_needs_the_sites_permission(clusters: Clusters) -> None:
    app = create_app(clusters, tokens(Bearer("anonymous", "reader")))
    with TestClient(app) as client:
        assert client.get(MAIN).status_code == 200
        assert "roles operator, admin" in problem(client.post(f"{MAIN}/resume"), "no-token")["detail"]
        problem(client.get(MAIN, headers={"Authorization": "Bearer wrong"}), "no-token")


def test_health_checks_and_the_description_need_no_token(stranger: TestClient) -> None:
    for path in ("/healthz", "/readyz", "/leadz", "/openapi.json", "/docs", "/redoc"):
        assert stranger.get(path).status_code == 200


# ---- unknown names ----------------------------------------------------------------------------------


def test_an_unknown_cluster_is_named_with_those_that_exist(client: TestClient) -> None:
    found = problem(client.get("/v1/clusters/mian/jobs"), "unknown-cluster")
    assert found["detail"] == "no cluster 'mian'; there is main, other"


def test_unknown_job_gets_a_suggestion(busy_cluster: TestClient) -> None:
    found = problem(busy_cluster.get(f"{MAIN}/jobs/3.other"), "unknown-job")
    assert found["hint"] == "did you mean 3.server?"
    assert (
        "a new one is known within seconds, an ended one to `checkjob 77`"
        in problem(busy_cluster.get(f"{MAIN}/jobs/77"), "unknown-job")["hint"]
    )


def test_unknown_path_and_wrong_method_are_refused(client: TestClient) -> None:
    assert "/docs" in problem(client.get("/v1/cluster"), "unknown-path")["hint"]
    answer = client.delete(f"{MAIN}/jobs")
    assert "GET is" in problem(answer, "wrong-method")["detail"]
    assert answer.headers["allow"] == "GET"


# ---- invalid values ---------------------------------------------------------------------------------


def altered_event(path: str, value: Any, number: int = 2) -> dict[str, Any]:
    event = json.loads(json.dumps(EVENTS[number]))
    *way, last = path.split(".")
    place = event
    for key in way:
        place = place[key]
    place[last] = value
    return {"events": [EVENTS[0], event]}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({}, "body.events"),
        ({"events": 3}, "body.events"),
        ({"events": [{}]}, "body.events[0]"),
        ({"events": [{"type": "job_vanished"}]}, "body.events[0]"),
        (altered_event("time", "soon"), "body.events[1].job_queued.time"),
        (altered_event("time", -1), "body.events[1].time"),
        (altered_event("time", 1 << 70), "body.events[1].time"),
        (altered_event("id", ""), "body.events[1].id"),
        (altered_event("id", "a\x00b"), "body.events[1].id"),
        (altered_event("job.id", "x" * 600), "body.events[1].job.id"),
        (altered_event("job.submitted", 1 << 60), "body.events[1].job.submitted"),
        (altered_event("job.state", "Z"), "body.events[1].job_queued.job.state"),
        (altered_event("job.shares", [{"node": "n1", "cpus": -3}]), "body.events[1].job.shares[0].cpus"),
        (altered_event("node.cpus", 1 << 40, 0), "body.events[1].node.cpus"),
        (altered_event("node.speed", "NaN", 0), "body.events[1].node.speed"),
        (altered_event("node.resources", {"lic": -1}, 0), "body.events[1].node.resources.lic"),
        (altered_event("node.name", "", 0), "body.events[1].node.name"),
    ],
)
def test_a_delivery_with_any_error_is_refused_completely(
    client: TestClient, loop: PlanLoop, body: dict[str, Any], where: str
) -> None:
    found = problem(client.post(f"{MAIN}/events", json=body), "invalid")
    assert found["errors"][0]["where"] == where
    assert found["errors"][0]["what"]
    assert loop.published.generation == 0
    assert loop.published.nodes == {}


@pytest.mark.parametrize(
    ("body", "where", "said"),
    [
        ({}, "body", "give exactly one of request, resources and job"),
        ({"request": "nodes=1", "resources": {"nodes": "1"}}, "body", "give exactly one of"),
        ({"request": "nodes=1:ppn=x"}, "body.request", "ppn= needs a whole number"),
        ({"request": "nodes"}, "body.request", "name=value"),
        ({"request": "select=1:ncpus=q"}, "body.request", "ncpus"),
        ({"resources": {"walltime": "soon"}}, "body.resources", "walltime"),
        ({"request": "nodes=1", "family": "slurm"}, "body.family", "'torque' or 'openpbs'"),
        ({"request": "nodes=1", "when": 3}, "body.when", "not known here"),
        ({"request": "nodes=1", "not_before": -1}, "body.not_before", "at least 0"),
        ({"resources": {"nodes": "x" * 20_000}}, "body.resources", "too long"),
    ],
)
def test_an_invalid_whatif_locates_the_error(
    busy_cluster: TestClient, body: dict[str, Any], where: str, said: str
) -> None:
    found = problem(busy_cluster.post(f"{MAIN}/what-if", json=body), "invalid")
    assert found["errors"][0]["where"] == where
    assert said in json.dumps(found, ensure_ascii=False)


@pytest.mark.parametrize(
    ("path", "query", "where"),
    [
        ("/jobs", "state=sleeping", "query.state"),
        ("/jobs", "limit=0", "query.limit"),
        ("/jobs", "limit=5&limit=6", "query.limit"),
        ("/jobs", "limit=100000", "query.limit"),
        ("/jobs", "cursor=abc", "query.cursor"),
        ("/plan", "begin=x", "query.begin"),
        ("/plan", "begin=100&end=100", "query.end"),
        ("/plan", "cursor=-1", "query.cursor"),
        ("/gaps", "cpus=0", "query.cpus"),
        ("/gaps", "end=99999999999999999999", "query.end"),
        ("/decisions", "wait=-1", "query.wait"),
        ("/decisions", "wait=nan", "query.wait"),
        ("/nodes", "state=gone", "query.state"),
        ("/jobs", "stat=planned", "query.stat"),
        ("", "verbose=1", "query.verbose"),
    ],
)
def test_an_invalid_query_lists_the_allowed_values(
    client: TestClient, path: str, query: str, where: str
) -> None:
    found = problem(client.get(f"{MAIN}{path}?{query}"), "invalid")
    assert [fault["where"] for fault in found["errors"]] == [where]


def test_errors_list_the_allowed_values(client: TestClient) -> None:
    found = problem(client.get(f"{MAIN}/jobs?limit=0"), "invalid")
    assert found["errors"][0]["allowed"] == "at least 1"
    found = problem(client.get(f"{MAIN}/jobs?state=sleeping"), "invalid")
    assert "'running'" in found["errors"][0]["allowed"]


@pytest.mark.parametrize("body", [b"", b"{", b"[1,", b'{"events": [', b"\xff\xfe", b"[" * 50_000])
def test_body_without_valid_json_is_refused(client: TestClient, body: bytes) -> None:
    answer = client.post(f"{MAIN}/events", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    problem(answer, "bad-request" if answer.status_code == 400 else "invalid")


def test_a_pause_that_times_out_never_takes_effect(
    client: TestClient, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TIMEOUTS, "change", 0.2)
    with busy_planner(loop):
        said = problem(client.post(f"{MAIN}/pause", json={"reason": "x"}), "not-ready")
        assert said["detail"].startswith("starting jobs was not paused: the planner is busy")
    loop.call_between_batches(lambda _: None).result(WAIT_S)
    assert client.get(MAIN).json()["paused"] == ""
    loop._retries.trouble = "schedd.sqlite: database or disk is full"
    for act, done in (("pause", "paused"), ("resume", "resumed")):
        said = problem(client.post(f"{MAIN}/{act}", json={"reason": "x"}), "not-ready")
        assert said["detail"] == (
            f"starting jobs was not {done}: the database is unavailable: "
            "schedd.sqlite: database or disk is full"
        )
    assert "disk is full" in client.get(MAIN).json()["stale"]
    monkeypatch.setattr(TIMEOUTS, "fork", 0.2)
    monkeypatch.setattr(loop, "fork", Future)
    monkeypatch.setattr(type(loop), "last_fork", None)
    said = problem(client.post(f"{MAIN}/what-if", json={"request": "nodes=1"}), "not-ready")
    assert said["detail"] == "the database is unavailable: schedd.sqlite: database or disk is full"
    loop._retries.trouble = ""
    monkeypatch.setattr(TIMEOUTS, "change", WAIT_S)
    assert client.post(f"{MAIN}/pause", json={"reason": "x"}).json()["paused"] == "x"


def test_a_question_about_a_new_job_is_not_put_to_an_older_plan(
    busy_cluster: TestClient, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`checkjob` said that there is no such job, a moment after `showq` had listed it."""
    assert busy_cluster.get(f"{MAIN}/jobs/3.server/explain").status_code == 200
    job = {"id": "77.server", "owner": "ann@login", "queue": "batch", "submitted": T, "resources": {}}
    event = {"type": "job_queued", "id": "x:77", "time": T, "job": job}
    assert busy_cluster.post(f"{MAIN}/events", json={"events": [event]}).status_code == 200
    monkeypatch.setattr(TIMEOUTS, "fork", 0.01)
    monkeypatch.setattr(loop, "fork", Future)  # the planner is busy
    assert busy_cluster.get(f"{MAIN}/jobs/3.server/explain").status_code == 200
    problem(busy_cluster.get(f"{MAIN}/jobs/77.server/explain"), "not-ready")
    problem(busy_cluster.post(f"{MAIN}/what-if", json={"job": "77"}), "not-ready")


def test_a_pause_needs_a_reason(client: TestClient) -> None:
    assert problem(client.post(f"{MAIN}/pause", json={}), "invalid")["errors"][0]["where"] == "body.reason"
    problem(client.post(f"{MAIN}/pause", json={"reason": "a\nb"}), "invalid")


# ---- limits -----------------------------------------------------------------------------------------


def test_a_body_that_is_too_large_is_refused(client: TestClient, loop: PlanLoop) -> None:
    text = json.dumps({"events": [{**EVENTS[0], "padding": "x" * MAX_BODY}]}).encode()
    headers = {"Content-Type": "application/json"}
    found = problem(client.post(f"{MAIN}/events", content=text, headers=headers), "too-large")
    assert "1 MiB" in found["detail"]

    def body_chunks() -> Iterator[bytes]:
        yield text[: MAX_BODY // 2]
        yield text[MAX_BODY // 2 :]

    problem(client.post(f"{MAIN}/events", content=body_chunks(), headers=headers), "too-large")
    assert loop.published.generation == 0


def test_too_many_pending_events_are_refused(client: TestClient, loop: PlanLoop) -> None:
    loop._inbox.most_pending = 2
    with busy_planner(loop):
        kept = loop.submit([])
        waiting = loop.submit([EVENT_TYPES.validate_python(EVENTS[0])])
        answer = client.post(f"{MAIN}/events", json={"events": EVENTS})
        assert "send them again later" in problem(answer, "too-much")["detail"]
        assert answer.headers["retry-after"]
    kept.result(WAIT_S)
    assert waiting.result(WAIT_S).accepted == 1


def test_the_readiness_check_reports_another_scheduler_but_not_a_pause(client: TestClient) -> None:
    assert client.post(f"{MAIN}/pause", json={"reason": "repair"}).status_code == 200
    assert client.get("/readyz").status_code == 200
    assert client.post(f"{MAIN}/resume").status_code == 200
    client.post(f"{MAIN}/events", json={"events": EVENTS})
    job: dict[str, Any] = {"type": "job_started", "time": T, "shares": [{"node": "n1", "cpus": 4}]}
    strange = [{**job, "id": f"s:{i}", "job_id": f"{i}.server"} for i in (3, 4, 5)]
    assert client.post(f"{MAIN}/events", json={"events": strange}).status_code == 200
    told = problem(client.get("/readyz"), "not-ready")["detail"]
    assert f"job 5.server {STARTED_BY_SOMEBODY_ELSE}" in told
    assert client.get("/leadz").status_code == 200
    assert client.post(f"{MAIN}/resume").status_code == 200
    assert client.get("/readyz").status_code == 200


def test_a_silent_adapter_is_reported_by_responses_and_the_readiness_check(
    client: TestClient, loop: PlanLoop
) -> None:
    loop.adapter_contact.last -= 61
    words = "no contact with an adapter since the daemon started at 2023-11-14 22:13:20 UTC"
    assert problem(client.get("/readyz"), "not-ready")["detail"] == f"main: {words}"
    assert client.get("/leadz").status_code == 200  # an adapter must be able to reach it
    found = client.get(MAIN).json()
    assert (found["stale"], found["halted"]) == (words, words)
    assert client.get(f"{MAIN}/jobs").json()["stale"] == words
    client.get(f"{MAIN}/decisions")  # it is back
    assert client.get("/readyz").status_code == 200
    assert client.get(f"{MAIN}/jobs").json()["stale"] == ""


def test_users_get_only_open_alerts_that_concern_them(client: TestClient, loop: PlanLoop) -> None:
    stranger = {"type": "job_started", "time": T, "shares": [{"node": "n1", "cpus": 1}]}
    client.post(f"{MAIN}/events", json={"events": [{**stranger, "id": "x:1", "job_id": "9.server"}]})
    loop.adapter_contact.last -= 61
    loop.alerts.update()
    found = client.get(f"{MAIN}/alerts").json()["alerts"]
    assert [one["kind"] for one in found] == ["adapter", "unknown_job"]
    assert found[1]["text"] == f"job 9.server {NOT_ANNOUNCED}"
    assert client.get(MAIN).json()["alerts"] == 2
    shown = client.get(f"{MAIN}/alerts", headers=bearer("user")).json()["alerts"]
    assert [one["kind"] for one in shown] == ["adapter"]
    client.get(f"{MAIN}/decisions")
    loop.alerts.update()
    assert client.get(MAIN).json()["alerts"] == 1


# ---- when the daemon cannot ---------------------------------------------------------------------------


def test_readiness_reports_startup_and_shutdown() -> None:
    clusters = Clusters({"main": EngineSettings()}, StillClock())
    with TestClient(create_app(clusters, tokens()), headers=bearer("admin")) as client:
        assert client.get("/healthz").json()["status"] == "ok"
        for path in ("/readyz", *READS, f"{MAIN}/decisions"):
            assert "kernels" in problem(client.get(path), "not-ready")["detail"]
        assert client.get("/readyz").headers["retry-after"]
        clusters.start()
        assert client.get("/readyz").json() == {"status": "ready, but no adapter has connected yet"}
        assert client.get(MAIN).json()["job_starts"]["words"] == "not yet: no adapter has connected yet"
        assert client.get(f"{MAIN}/decisions").status_code == 200
        assert client.get("/readyz").json() == {"status": "ready"}
        assert client.get(MAIN).json()["job_starts"]["words"] == "on"
        clusters["main"].settings_problem = "its next start would fail: schedd.toml"
        assert client.get("/readyz").json() == {"status": "ready, but the settings have a fault"}
        clusters.stop()
        assert "shutting down" in problem(client.get("/readyz"), "not-ready")["detail"]


def test_the_readiness_check_reports_a_stopped_planner(client: TestClient, loop: PlanLoop) -> None:
    loop._planner.handle_batch = None  # type: ignore[method-assign, assignment]
    problem(client.post(f"{MAIN}/events", json={"events": EVENTS}), "not-ready")
    assert "main: the planner stopped" in problem(client.get("/readyz"), "not-ready")["detail"]
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}):  # strangers
        for path in ("/readyz", "/leadz"):
            said = problem(client.get(path, headers=headers), "not-ready")["detail"]
            assert (
                said == "a planner has stopped, waits for its database, or does not know its server's state"
            )
    assert client.get(f"{MAIN}/jobs").json()["stale"].startswith("the planner stopped")
    assert 'schedd_failing{cluster="main"} 1.0' in client.get("/metrics").text


def test_internal_error_is_a_problem_document_without_details(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("schedd.api.plan.bars_in_window", broken)
    found = problem(client.get(f"{MAIN}/plan"), "defect")
    assert "secret" not in json.dumps(found)
    assert client.get(MAIN).json()["now"] == T


def test_a_whatif_that_is_too_hard_names_a_remedy(
    busy_cluster: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_questions, "QUESTION_WORK", 1)
    question = {"resources": {"nodes": "2:ppn=4+1:ppn=1", "walltime": "60"}}
    answer = busy_cluster.post(f"{MAIN}/what-if", json=question)
    assert "more segments of the plan" in problem(answer, "too-hard")["detail"]
    assert answer.status_code == 422
    monkeypatch.undo()
    assert busy_cluster.post(f"{MAIN}/what-if", json=question).status_code == 200
