"""Clusters over a period: balance, deadlines, slowdown, use, waits by queue."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.engine import EngineSettings
from schedd.policy.site import site_policy
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.clusters import Clusters
from schedd.service.settings.daemon import StoreSettings
from tests.api.conftest import token
from tests.api.test_errors import problem
from tests.service.planner_harness import StillClock, T

HOUR = 3_600
BEGIN = T - 4 * HOUR
LICENCE = {"licences": {"matlab": {"copies": 2}}}


@pytest.fixture
def daemon_store(tmp_path: Path) -> DaemonStore:
    return DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/schedd.sqlite"))


@pytest.fixture
def durable(the_app: FastAPI, daemon_store: DaemonStore) -> Iterator[TestClient]:
    settings = {"north": EngineSettings(site=site_policy(LICENCE)), "south": EngineSettings()}
    clusters = Clusters(settings, StillClock(), durable=daemon_store)
    clusters.start(warm=False)
    the_app.state.clusters = clusters
    with TestClient(the_app, headers={"Authorization": f"Bearer {token('admin')}"}) as client:
        for _ in range(200):
            if client.get("/leadz").status_code == 200:
                break
            time.sleep(0.05)
        yield client
    clusters.stop()


def node(at: int, cpus: int, state: str = "up") -> dict[str, Any]:
    return {"type": "node_changed", "time": at, "node": {"name": "n1", "cpus": cpus, "state": state}}


def job(name: str, at: int, cpus: int, queue: str = "batch", **resources: str) -> dict[str, Any]:
    asked = {"nodes": f"1:ppn={cpus}", "walltime": "36000", **resources}
    facts = {"id": f"{name}.s", "owner": "ann", "queue": queue, "submitted": at, "resources": asked}
    return {"type": "job_queued", "time": at, "job": {**facts, "family": "torque"}}


def run_events(name: str, start: int, end: int | None, cpus: int) -> list[dict[str, Any]]:
    held = [{"node": "n1", "cpus": cpus}]
    began = {"type": "job_started", "time": start, "job_id": f"{name}.s", "shares": held}
    over = {"type": "job_ended", "time": end, "job_id": f"{name}.s", "exit_status": 0}
    return [began] if end is None else [began, over]


def deliver_events(
    client: TestClient, kept: DaemonStore, cluster: str, events: Sequence[dict[str, Any]]
) -> None:
    """Deliver events to the cluster and record its history."""
    for number, event in enumerate(events):
        named = {**event, "id": f"{cluster}:{number}"}
        answer = client.post(f"/v1/clusters/{cluster}/events", json={"events": [named]})
        assert answer.status_code == 200, answer.text
    known = kept.store.find_cluster(cluster)
    assert known is not None
    for _ in kept.store.record_history(known):
        pass


def report(client: TestClient, **query: str | int) -> dict[str, Any]:
    answer = client.get("/v1/report", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.fixture
def busy_clusters(durable: TestClient, daemon_store: DaemonStore) -> TestClient:
    """Cluster north: four cpus, two jobs in sequence and a waiting one; cluster south: one job."""
    queues = [{"type": "queue_changed", "time": BEGIN, "queue": {"name": name}} for name in ("batch", "long")]
    due = str(BEGIN + 2 * HOUR)
    deliver_events(
        durable,
        daemon_store,
        "north",
        [
            node(BEGIN, 4),
            *queues,
            job("1", BEGIN, 4, matlab="2"),
            *run_events("1", BEGIN, BEGIN + HOUR, 4),
            job("2", BEGIN, 2, deadline=due),
            *run_events("2", BEGIN + HOUR, BEGIN + 3 * HOUR, 2),
            job("3", BEGIN + HOUR, 2, "long", deadline=due),
            *run_events("3", BEGIN + HOUR, BEGIN + 2 * HOUR, 2),
            job("4", BEGIN + 2 * HOUR, 4, "long", matlab="1"),
            {**job("5", BEGIN, 4), "time": T},
            {"type": "job_held", "time": T, "job_id": "5.s", "holds": "u"},
        ],
    )
    deliver_events(
        durable,
        daemon_store,
        "south",
        [
            node(BEGIN, 12),
            job("1", BEGIN + HOUR, 12),
            *run_events("1", BEGIN + 2 * HOUR, BEGIN + 3 * HOUR, 12),
        ],
    )
    return durable


def test_a_period_has_balance_deadlines_slowdown_and_use(busy_clusters: TestClient) -> None:
    found = report(busy_clusters, since=BEGIN, until=BEGIN + 3 * HOUR + 1)
    north, south = found["clusters"]
    assert (found["since"], found["until"]) == (BEGIN, BEGIN + 3 * HOUR + 1)
    assert (north["cluster"], north["kept"], north["cpus"]) == ("north", True, 4.0)
    work = HOUR * (4 + 4 + 2)
    assert north["work"] == pytest.approx(work)
    assert north["share"] == pytest.approx(work / (work + 12 * HOUR))
    assert (north["optimal"], south["optimal"]) == (0.25, 0.75)
    assert (north["ended"], north["with_deadline"], north["late"]) == (3, 2, 1)
    assert north["slowdown"] == 1.0, "the first has no deadline, and did not wait"
    assert south["slowdown"] == 2.0
    # Demand for all four cpus all the time; two were free in the third hour, and four for a second.
    assert north["processors"] == pytest.approx(10 * HOUR / (4 * (3 * HOUR + 1)))
    # The last one wanted the south for an hour without runs, and did not get it.
    assert south["processors"] == 0.5
    (matlab,) = north["licences"]
    assert (matlab["name"], matlab["copies"]) == ("matlab", 2)
    # Both in use for an hour; one asked for and not had for another, and a second.
    assert matlab["share"] == pytest.approx(2 * HOUR / (3 * HOUR + 1))
    assert south["licences"] == []


def test_a_report_covers_only_its_period(busy_clusters: TestClient) -> None:
    north, _ = report(busy_clusters, since=BEGIN + 2 * HOUR, until=BEGIN + 3 * HOUR)["clusters"]
    assert (north["ended"], north["late"]) == (1, 0)  # the job that ends with it ends after it
    assert north["processors"] == 0.5
    assert north["work"] == 2 * HOUR
    (only,) = report(busy_clusters, since=BEGIN, cluster="south")["clusters"]
    assert (only["cluster"], only["share"], only["optimal"]) == ("south", 1.0, 1.0)


def test_waits_are_reported_by_queue(busy_clusters: TestClient) -> None:
    north, south = report(busy_clusters, since=BEGIN)["clusters"]
    batch, long = north["queues"]
    assert (batch["queue"], batch["ended"], batch["late"], batch["with_deadline"]) == ("batch", 2, 1, 1)
    assert (batch["mean_wait"], batch["longest_wait"]) == (HOUR / 2, HOUR)
    assert (batch["waiting"], batch["longest_waiting"]) == (0, 0), "a job on hold does not wait for its turn"
    assert (long["ended"], long["longest_wait"]) == (1, 0)
    assert (long["waiting"], long["longest_waiting"]) == (1, 2 * HOUR)
    assert [one["queue"] for one in south["queues"]] == ["batch"]
    metrics = busy_clusters.get("/metrics").text
    assert 'schedd_longest_wait_seconds{cluster="north",queue="long"} 7200.0' in metrics
    assert 'schedd_longest_wait_seconds{cluster="north",queue="batch"} 0.0' in metrics


def test_down_nodes_do_not_count(durable: TestClient, daemon_store: DaemonStore) -> None:
    deliver_events(durable, daemon_store, "south", [node(BEGIN, 8), node(BEGIN + 2 * HOUR, 8, "down")])
    _, south = report(durable, since=BEGIN, until=T)["clusters"]
    assert (south["cpus"], south["processors"], south["work"]) == (4.0, None, 0.0)
    assert (south["share"], south["optimal"]) == (None, 1.0)


def test_cluster_known_for_a_minute_counts_all_its_cpus(
    durable: TestClient, daemon_store: DaemonStore
) -> None:
    """A mean over the whole day would be almost zero."""
    deliver_events(durable, daemon_store, "south", [node(T - 60, 8)])
    south = report(durable, since=T - 86_400, until=T, cluster="south")["clusters"][0]
    assert south["cpus"] == 8.0


def test_nodes_not_recorded_in_the_database_yet_count(durable: TestClient) -> None:
    event = {**node(T - 1, 8), "id": "south:0"}
    assert durable.post("/v1/clusters/south/events", json={"events": [event]}).status_code == 200
    south = report(durable, since=T - 86_400, until=T, cluster="south")["clusters"][0]
    assert south["cpus"] == 8.0


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"since": T + 10}, "it lies ahead"),
        ({"since": T - 10, "until": T - 20}, "it ends at"),
        ({"since": "yesterday"}, "since"),
        ({"from": 1}, "no such parameter"),
    ],
)
def test_empty_period_is_refused(durable: TestClient, query: dict[str, str | int], said: str) -> None:
    refused = problem(durable.get("/v1/report", params=query), "invalid")
    assert said in str(refused)


def test_unknown_cluster_has_no_report(durable: TestClient) -> None:
    problem(durable.get("/v1/report", params={"cluster": "west"}), "unknown-cluster")


def test_too_many_jobs_are_refused(busy_clusters: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedd.service.read.cluster_report.MOST_RUNS", 2)
    refused = problem(busy_clusters.get("/v1/report", params={"since": BEGIN}), "invalid")
    assert refused["hint"] == "ask for a shorter period, or for one cluster"
    assert report(busy_clusters, since=BEGIN, cluster="south")["clusters"][0]["ended"] == 1


def test_without_a_database_the_report_has_only_queues(busy_cluster: TestClient) -> None:
    found = report(busy_cluster)["clusters"]
    assert {one["kept"] for one in found} == {False}
    main = next(one for one in found if one["cluster"] == "main")
    assert main["queues"][0]["waiting"] > 0
