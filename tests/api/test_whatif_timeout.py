"""What-if questions have a timeout, and none outlives the daemon."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from fastapi import Request
from fastapi.testclient import TestClient

from schedd.api import question_runner
from schedd.plan.work_limits import WorkSpent
from schedd.service.clusters import Clusters
from schedd.wire import JobFacts
from tests.api.test_errors import problem
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import T
from tests.waits import WAIT_S

QUESTIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/what-if", {"request": "nodes=1:ppn=1,walltime=60"}),
    ("POST", "/policy/preview", {"limits": [{"what": "jobs", "amount": 1}]}),
    ("POST", "/holds/node/n1/preview", {"reason": "x"}),
    ("POST", "/reservations/r/preview", {"nodes": ["n1"], "start": T + 60, "end": T + 120}),
]


@pytest.mark.parametrize(("method", "path", "body"), QUESTIONS, ids=[path for _, path, _ in QUESTIONS])
def test_daemon_shutdown_aborts_questions(
    busy_cluster: TestClient, clusters: Clusters, method: str, path: str, body: dict[str, Any]
) -> None:
    assert busy_cluster.request(method, f"{MAIN}{path}", json=body).status_code == 200
    before = {job["id"]: job["planned_start"] for job in get(busy_cluster, "/jobs")["jobs"]}
    clusters.questions.end()
    told = problem(busy_cluster.request(method, f"{MAIN}{path}", json=body), "too-hard")
    assert "the question was cancelled" in told["detail"]
    assert {job["id"]: job["planned_start"] for job in get(busy_cluster, "/jobs")["jobs"]} == before


@pytest.mark.parametrize("gone", [False, True])
def test_a_whatif_is_aborted_after_its_timeout_or_when_its_client_has_gone(
    busy_cluster: TestClient, clusters: Clusters, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    monkeypatch.setattr(question_runner, "QUESTION_TIMEOUT_S", 0.2)
    copy = clusters["main"].fork().result(WAIT_S)
    facts = JobFacts(id="x", owner="u", queue="batch", submitted=T, resources={"nodes": "1:ppn=1"})
    before = copy.what_if(facts, T).answer

    def never_return() -> None:
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            copy.what_if(facts, T)

    async def message() -> dict[str, str]:
        if not gone:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    if gone:
        monkeypatch.setattr(question_runner, "QUESTION_TIMEOUT_S", WAIT_S)
    app = SimpleNamespace(state=SimpleNamespace(clusters=clusters))
    request = cast("Request", SimpleNamespace(app=app, receive=message))
    with pytest.raises(WorkSpent, match="the question was cancelled"):
        asyncio.run(question_runner.run_question(request, never_return))
    assert copy.what_if(facts, T).answer == before, "the next question is answered"
    assert busy_cluster.get("/healthz").status_code == 200
