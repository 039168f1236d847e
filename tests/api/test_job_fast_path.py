"""The fast path to one job answers like the framework."""

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.api import job_fast_path, jobs
from schedd.service.access.callers import Callers
from schedd.service.clusters import Clusters
from tests.api.conftest import EVENTS, ROLES, token, tokens

JOB = "/v1/clusters/main/jobs/1.server"
ASKED: list[tuple[str, str, dict[str, str]]] = [
    *(("GET", JOB, {"Authorization": f"Bearer {token(role)}"}) for role in ROLES),
    ("GET", JOB, {}),
    ("GET", JOB, {"Authorization": "Bearer nobodys-token-at-all"}),
    ("GET", JOB, {"Authorization": "Basic abc"}),
    ("GET", JOB, {"Authorization": f"Bearer {token('admin')}", "Content-Length": "0"}),
    ("GET", JOB, {"Authorization": f"Bearer {token('admin')}", "Accept-Encoding": "identity"}),
    *(
        (method, path, {"Authorization": f"Bearer {token('admin')}"})
        for method, path in [
            ("GET", "/v1/clusters/main/jobs/1"),
            ("GET", "/v1/clusters/main/jobs/77.server"),
            ("GET", "/v1/clusters/main/jobs/1%2Eserver"),
            ("GET", "/v1/clusters/main/jobs/a%2Fb"),
            ("GET", "/v1/clusters/nowhere/jobs/1.server"),
            ("GET", JOB + "?"),
            ("GET", JOB + "?x=1"),
            ("GET", JOB + "/"),
            ("GET", JOB + "/history"),
            ("GET", "/v1/clusters/main/jobs/"),
            ("HEAD", JOB),
            ("POST", JOB),
            ("OPTIONS", JOB),
        ]
    ),
]


def send_request(app: FastAPI, method: str, path: str, headers: dict[str, str]) -> tuple[int, Any, bytes]:
    app.state.callers = Callers(tokens())  # no rate limit applies yet
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.request(method, path, headers=headers)
    return answer.status_code, sorted(answer.headers.multi_items()), answer.content


@pytest.fixture
def submit_jobs(client: TestClient) -> None:
    assert client.post("/v1/clusters/main/events", json={"events": EVENTS}).status_code == 200


@pytest.mark.usefixtures("submit_jobs")
@pytest.mark.parametrize(("method", "path", "headers"), ASKED)
def test_the_fast_path_and_the_framework_agree(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, method: str, path: str, headers: dict[str, str]
) -> None:
    short = send_request(app, method, path, headers)
    monkeypatch.setattr(job_fast_path, "_match_plain_get", lambda _scope: None)
    assert send_request(app, method, path, headers) == short


def test_long_responses_are_compressed_on_both_paths(
    client: TestClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = EVENTS[-1]
    job = {**event["job"], "resources": {**event["job"]["resources"], "note": "n" * 3_000}}
    assert client.post("/v1/clusters/main/events", json={"events": [{**event, "job": job}]}).is_success
    path, by = f"/v1/clusters/main/jobs/{job['id']}", {"Authorization": f"Bearer {token('admin')}"}
    for packed in ("gzip", "identity"):
        asked = {**by, "Accept-Encoding": packed}
        short = send_request(app, "GET", path, asked)
        assert (("content-encoding", "gzip") in short[1]) == (packed == "gzip")
        with monkeypatch.context() as patch:
            patch.setattr(job_fast_path, "_match_plain_get", lambda _scope: None)
            assert send_request(app, "GET", path, asked) == short


@pytest.mark.usefixtures("submit_jobs")
def test_a_plain_read_uses_the_fast_path(
    client: TestClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = client.get(JOB)
    assert (first.status_code, first.json()["id"]) == (200, "1.server")
    assert client.get(JOB, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    asked: list[str] = []

    def noted(request: Any, cluster: Any, seen: Any, job: str) -> Any:
        asked.append(job)
        return the_job(request, cluster, seen, job)

    the_job = jobs.job_reply
    monkeypatch.setattr(job_fast_path, "job_reply", noted)
    assert client.get(JOB).content == first.content
    assert asked == ["1.server"]
    metrics = app.state.request_metrics
    labels = {"route": "/v1/clusters/{cluster}/jobs/{job}", "code": "2xx"}
    assert metrics.get_sample_value("schedd_http_requests_total", labels) >= 2


def test_before_the_daemon_is_ready_it_says_so(clusters: Clusters, client: TestClient) -> None:
    clusters.ready = False
    answer = client.get(JOB)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:schedd:problem:not-ready")
