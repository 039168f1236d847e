"""Users' summaries, plan metrics, accuracy of start estimates."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.engine import EngineSettings
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.clusters import Clusters
from schedd.service.settings.daemon import StoreSettings
from schedd.store.records import PlanMetricsSample
from schedd.wire import ExpectedFacts, StartsExpected
from tests.api.conftest import EVENTS, token
from tests.api.test_jobs import queue
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import StillClock, T
from tests.waits import WAIT_S


def test_users_are_counted(busy_cluster: TestClient) -> None:
    queue(busy_cluster, "6.server")
    held = {"type": "job_held", "id": "h:1", "time": T, "job_id": "4.server", "holds": "u"}
    busy_cluster.post(f"{MAIN}/events", json={"events": [held]})
    found = get(busy_cluster, "/users")["users"]
    jobs = get(busy_cluster, "/jobs")["jobs"]
    assert [one["user"] for one in found] == ["ann", "bob"]
    for one in found:
        own = [job for job in jobs if job["owner"].startswith(one["user"])]
        planned = [job for job in own if job["state"] == "planned"]
        assert one["running"] == sum(job["state"] in ("running", "starting") for job in own)
        assert one["planned"] == len(planned)
        assert one["without_start"] == sum(job["planned_start"] is None for job in own)
        assert one["running"] + one["planned"] + one["without_start"] == len(own)
        assert one["cpus"] == 4 * one["running"]
        assert one["cpu_seconds_planned"] == sum(job["cpus"] * job["walltime"] for job in planned)
        assert one["next_start"] == min((job["planned_start"] for job in planned), default=None)
        assert one["last_end"] == max(job["planned_end"] or 0 for job in own)


def test_evaluation_includes_the_walltime_utilisation(busy_cluster: TestClient) -> None:
    assert get(busy_cluster, "/plan/evaluation")["walltime_use"] == 1.0
    started = {"type": "job_started", "time": T, "shares": [{"node": "n1", "cpus": 4}], "id": "s"}
    ended = {"type": "job_ended", "time": T + 360, "id": "e"}
    for event in (started, ended):
        queued = busy_cluster.post(f"{MAIN}/events", json={"events": [{**event, "job_id": "1.server"}]})
        assert queued.status_code == 200
    # One run of a tenth of an hour among fifty that are taken to have used theirs.
    assert get(busy_cluster, "/plan/evaluation")["walltime_use"] == pytest.approx(50.1 / 51)


def test_the_evaluation_measures_waits(busy_cluster: TestClient) -> None:
    found = {one["criterion"]: one for one in get(busy_cluster, "/plan/evaluation")["criteria"]}
    waits = [
        job["planned_start"] - job["submitted"] for job in get(busy_cluster, "/jobs", state="planned")["jobs"]
    ]
    assert found["wait"] == {"criterion": "wait", "value": sum(waits) / len(waits), "unit": "s"}
    assert found["wait_max"]["value"] == max(waits)
    assert found["slowdown"]["unit"] == "1"


def test_the_evaluation_history_is_paged(busy_cluster: TestClient, clusters: Clusters) -> None:
    path = "/plan/evaluation/history"
    assert get(busy_cluster, path)["evaluations"] == []
    for before in (90_000, 120, 90, 60):
        clusters.metrics_logs["main"].record_metrics(PlanMetricsSample(T - before, 3, 5, {"wait": 7.0}))
    found = get(busy_cluster, path)
    assert [one["time"] for one in found["evaluations"]] == [T - 120, T - 90, T - 60]
    assert found["evaluations"][0] == {"time": T - 120, "generation": 3, "jobs": 5, "criteria": {"wait": 7.0}}
    assert (found["units"]["wait"], found["units"]["late_jobs"], found["next"]) == ("s", "jobs", None)
    page = get(busy_cluster, path, since=0, limit=2)
    assert ([one["time"] for one in page["evaluations"]], page["next"]) == ([T - 90_000, T - 120], T - 119)
    page = get(busy_cluster, path, since=page["next"], until=T - 60)
    assert ([one["time"] for one in page["evaluations"]], page["next"]) == ([T - 90], None)
    assert len(get(busy_cluster, path, every=86_400, since=0)["evaluations"]) == 2


def test_without_a_database_there_is_no_history(busy_cluster: TestClient) -> None:
    empty: dict[str, object] = {"by_lead": [], "expected": [], "breaches": None}
    empty |= {"planned_since": None, "expected_since": None, "deadlines": []}
    assert get(busy_cluster, "/accuracy") == {"kept": False, "overall": None, **empty}


@pytest.fixture
def durable(the_app: FastAPI, tmp_path: Path) -> Iterator[TestClient]:
    kept = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/schedd.sqlite"))
    clusters = Clusters({"main": EngineSettings().with_changes(predict=True)}, StillClock(), durable=kept)
    clusters.start(warm=False)
    the_app.state.clusters = clusters
    with TestClient(the_app, headers={"Authorization": f"Bearer {token('admin')}"}) as client:
        for _ in range(200):
            if client.get("/leadz").status_code == 200:
                break
            time.sleep(0.05)
        yield client
    clusters.stop()


def test_start_estimates_are_compared_with_actual_starts(durable: TestClient) -> None:
    answer = durable.post(f"{MAIN}/events", json={"events": EVENTS})
    assert answer.status_code == 200, answer.text
    told = get(durable, "/jobs/3")["planned_start"]
    started = {
        "type": "job_started",
        "id": "s:1",
        "time": told + 60,
        "job_id": "3.server",
        "shares": [{"node": "n1", "cpus": 4}],
    }
    assert durable.post(f"{MAIN}/events", json={"events": [started]}).status_code == 200
    found = get(durable, "/accuracy")
    assert found["kept"] is True
    assert found["overall"] == found["by_lead"][0] | {"lead": 0}
    assert (found["overall"]["count"], found["overall"]["mean"]) == (1, 60.0)


def test_expected_starts_are_compared_by_queue_and_user(the_app: FastAPI, durable: TestClient) -> None:
    assert durable.post(f"{MAIN}/events", json={"events": EVENTS}).status_code == 200
    clusters: Clusters = the_app.state.clusters
    loop = clusters["main"]
    told = ExpectedFacts("3.server", T + 20, T + 100, T + 180, "submission")
    loop.submit([StartsExpected(id="x", time=T, jobs=(told,))]).result(WAIT_S)
    started = {
        "type": "job_started",
        "id": "s:1",
        "time": T + 32,
        "job_id": "3.server",
        "shares": [{"node": "n1", "cpus": 4}],
    }
    assert durable.post(f"{MAIN}/events", json={"events": [started]}).status_code == 200
    store = clusters.durable.store if clusters.durable is not None else None
    assert store is not None
    for _ in store.record_history(store.find_cluster("main") or 0):
        pass
    owner = get(durable, "/jobs/3")["owner"].partition("@")[0]
    cast("StillClock", loop._clock).moment = T + 115  # beyond its P90
    for asked in ({}, {"user": owner}, {"queue": "batch"}):
        found = get(durable, "/accuracy", **asked)
        of = {(one["kind"], one["lead"]): one["figures"] for one in found["expected"]}
        assert of["submission", None]["count"] == of["submission", 0]["count"] == 1
        assert of["waiting", None] == {**dict.fromkeys(of["waiting", None]), "count": 0}
        assert (of["submission", None]["p50_coverage"], of["submission", None]["p90_coverage"]) == (0, 1)
        assert (of["submission", None]["median_error"], of["submission", None]["error_ratio"]) == (
            12,
            12 / 148,
        )
        assert found["breaches"] == 0
        assert found["overall"]["count"] > 0
        assert (found["planned_since"], found["expected_since"]) == (None, None)
    for asked in ({"user": "nobody"}, {"queue": "other"}, {"until": T}, {"since": T - 100, "until": T}):
        found = get(durable, "/accuracy", **asked)
        assert not any(one["figures"]["count"] for one in found["expected"])
        assert found["overall"]["count"] == 0


def test_empty_period_has_no_metrics(busy_cluster: TestClient) -> None:
    for asked, why in (({"since": T + 9}, "it lies ahead"), ({"since": T - 5, "until": T - 5}, "it ends at")):
        answer = busy_cluster.get(f"{MAIN}/accuracy", params=asked)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["where"] == "query.since"
        assert why in answer.json()["detail"]


def test_searches_and_history_survive_a_restart(durable: TestClient, the_app: FastAPI) -> None:
    assert durable.post(f"{MAIN}/events", json={"events": EVENTS}).status_code == 200
    before: Clusters = the_app.state.clusters
    before._metrics_samplers[0].sample()
    run = durable.post(f"{MAIN}/searches").json()["search"]
    made = get(durable, "/plan/evaluation/history")["evaluations"]
    assert made[0]["jobs"] == 3
    before.stop()
    assert before.durable is not None
    again = Clusters({"main": EngineSettings()}, StillClock(), durable=DaemonStore(before.durable.settings))
    the_app.state.clusters = again
    assert durable.get(f"{MAIN}/searches").status_code == 503  # it has not opened the database yet
    again.start(warm=False)
    try:
        assert get(durable, "/searches") == {"searches": [run], "next": None}
        assert get(durable, "/plan/evaluation/history")["evaluations"] == made
        for _ in range(200):
            if durable.get("/leadz").status_code == 200:
                break
            time.sleep(0.05)
        assert durable.post(f"{MAIN}/searches").json()["search"]["number"] == run["number"] + 1
        newest = get(durable, "/searches", limit=1)
        assert [one["number"] for one in newest["searches"]] == [2]
        older = get(durable, "/searches", cursor=newest["next"])
        assert ([one["number"] for one in older["searches"]], older["next"]) == ([1], None)
    finally:
        again.stop()
