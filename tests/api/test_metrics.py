"""Metrics for Prometheus: correct, documented, and of bounded size."""

import re
import subprocess
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from schedd.api.app import create_app
from schedd.engine.facts.alerts import alert_kinds
from schedd.service.clusters import Clusters
from schedd.wire import PolicyChanged
from tests.api.conftest import EVENTS, token, tokens
from tests.api.test_errors import MAIN
from tests.conftest import ROOT
from tests.service.planner_harness import T
from tests.service.promtool import HOW, find_promtool
from tests.waits import WAIT_S

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def client(the_app: FastAPI, clusters: Clusters) -> Any:  # kernels are compiled for the other
    """A client of a separate app with counts from 0."""
    app: FastAPI = create_app(clusters, tokens())
    with TestClient(app, headers={"Authorization": f"Bearer {token('admin')}"}) as client:
        yield client


def scrape(client: TestClient) -> Samples:
    answer = client.get("/metrics")
    assert answer.status_code == 200
    families = list(text_string_to_metric_families(answer.text))
    assert len({family.name for family in families}) == len(families), "a family is told twice"
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, cluster: str = "main", **labels: str) -> float:
    return samples[name, frozenset({"cluster": cluster, **labels}.items())]


def post(client: TestClient, *events: dict[str, Any]) -> None:
    assert client.post(f"{MAIN}/events", json={"events": list(events)}).status_code == 200


def job(number: int, user: str = "ann", **resources: str) -> dict[str, Any]:
    facts = {**EVENTS[2]["job"], "id": f"{number}.server", "owner": f"{user}@login"}
    facts["resources"] = {"nodes": "1:ppn=4", "walltime": "3600", **resources}
    return {"type": "job_queued", "id": f"q:{number}", "time": T, "job": facts}


@pytest.mark.skipif(find_promtool() is None, reason=HOW)
def test_promtool_accepts_the_metrics(client: TestClient) -> None:
    post(client, job(1))
    text = client.get("/metrics").text
    checked = subprocess.run(
        ["promtool", "check", "metrics"],
        input=text.encode(),
        capture_output=True,
        check=False,
    )
    assert (checked.returncode, checked.stderr.decode()) == (0, "")
    labels = (ROOT / "docs/reference/monitoring.md").read_text("utf-8")
    assert "`quantile`" not in labels, "promtool accepts this label only of summaries"


def test_metrics_count_jobs_nodes_and_cluster_states(client: TestClient) -> None:
    before = scrape(client)
    assert value(before, "schedd_stale") == value(before, "schedd_halted") == 0
    post(client, *EVENTS)
    found = scrape(client)
    assert value(found, "schedd_jobs", state="planned") == 3
    assert value(found, "schedd_jobs", state="starting") == 2
    assert value(found, "schedd_nodes", state="up") == 2
    assert value(found, "schedd_failing", cluster="other") == 0
    assert value(found, "schedd_leading") == 1
    assert value(found, "schedd_adapter_age_seconds") >= 0
    assert value(found, "schedd_plan_ahead_seconds") >= 2 * 3600
    assert value(found, "schedd_events_total") == len(EVENTS)
    assert value(found, "schedd_event_lag_seconds_count") == 1
    assert value(found, "schedd_batch_seconds_count", part="plan") == 1
    assert value(found, "schedd_batch_seconds_count", part="publish") == 1
    post(client, *EVENTS)  # known by their ids
    again = scrape(client)
    assert value(again, "schedd_events_total") == len(EVENTS)
    assert value(again, "schedd_event_lag_seconds_count") == 2


def test_licence_scarcity_is_exported_if_priorities_use_it(client: TestClient, clusters: Clusters) -> None:
    post(client, EVENTS[0], job(1, matlab="1"), job(2, matlab="2"))
    assert not any(name == "schedd_licence_pressure" for name, _ in scrape(client))
    site = {"priority": {"licences": 1.0}, "licences": {"matlab": {"copies": 2}}}
    changed = PolicyChanged(id="p", time=T, version=2, site=site, by="root")
    clusters["main"].submit([changed]).result(WAIT_S)
    assert value(scrape(client), "schedd_licence_pressure", licence="matlab") == 1.5
    assert not any(
        name == "schedd_licence_pressure" and ("cluster", "other") in labels
        for name, labels in scrape(client)
    )


def test_a_silent_adapter_is_counted(client: TestClient, clusters: Clusters) -> None:
    clusters["main"].adapter_contact.last -= 61
    found = scrape(client)
    assert value(found, "schedd_adapter_age_seconds") > 60
    assert (value(found, "schedd_stale"), value(found, "schedd_halted")) == (1, 1)
    assert (value(found, "schedd_stale", "other"), value(found, "schedd_halted", "other")) == (0, 0)


def test_alerts_are_counted_by_kind_and_state(client: TestClient) -> None:
    before = scrape(client)
    kinds = {dict(pairs)["kind"] for name, pairs in before if name == "schedd_alerts_open"}
    assert (
        kinds
        == {dict(pairs)["kind"] for name, pairs in before if name == "schedd_alerts_total"}
        == set(alert_kinds())
    )
    assert not any(number for (name, _), number in before.items() if name.startswith("schedd_alerts_"))
    post(
        client,
        {"type": "job_started", "id": "x", "time": T, "job_id": "9.x", "shares": [{"node": "n1", "cpus": 1}]},
    )
    found = scrape(client)
    assert value(found, "schedd_alerts_open", kind="unknown_job") == 1
    assert value(found, "schedd_alerts_total", kind="unknown_job") == 1
    assert value(found, "schedd_alerts_open", "other", kind="unknown_job") == 0


def test_metrics_count_moves_filled_gaps_and_estimate_errors(client: TestClient) -> None:
    node = EVENTS[0]
    # One node of 4 cpus: 1 runs for an hour, 2 follows on all of it.
    post(client, node, job(1, nodes="1:ppn=2"), job(2))
    assert value(scrape(client), "schedd_gaps_filled_total") == 0
    # 3 fits next to 1, before 2.
    post(client, job(3, nodes="1:ppn=2", walltime="600"))
    found = scrape(client)
    assert value(found, "schedd_gaps_filled_total") == 1
    assert value(found, "schedd_moves_earlier_total") == 0
    started = {"type": "job_started", "time": T, "shares": [{"node": "n1", "cpus": 2}]}
    ended = {"type": "job_ended", "time": T}
    for number in (1, 3):
        post(client, {**started, "id": f"s:{number}", "job_id": f"{number}.server"})
    for number in (1, 3):
        post(client, {**ended, "id": f"end:{number}", "job_id": f"{number}.server"})
    found = scrape(client)
    assert value(found, "schedd_moves_total", cause="freed") == 2
    assert value(found, "schedd_moves_earlier_total") == 2
    # The estimate of 2 was later than its start now.
    told = value(found, "schedd_published_start_error_seconds_count")
    post(client, {**started, "id": "s:2", "job_id": "2.server", "shares": [{"node": "n1", "cpus": 4}]})
    found = scrape(client)
    assert value(found, "schedd_published_start_error_seconds_count") == told + 1
    assert value(found, "schedd_published_start_error_seconds_bucket", le="-60.0") == 1


def test_requests_are_counted_by_route_and_status_class(client: TestClient) -> None:
    for path in (f"{MAIN}/jobs/1.x", f"{MAIN}/jobs/2.x", "/nowhere/1", "/nowhere/2", f"{MAIN}/decisions"):
        client.get(path)
    found = scrape(client)
    counted = {
        (labels["route"], labels["code"]): number
        for (name, pairs), number in found.items()
        if name == "schedd_http_requests_total"
        for labels in [dict(pairs)]
    }
    assert counted["/v1/clusters/{cluster}/jobs/{job}", "4xx"] == 2
    assert counted["other", "4xx"] == 2
    assert counted["/v1/clusters/{cluster}/decisions", "2xx"] == 1
    timed = {dict(pairs)["route"] for name, pairs in found if name == "schedd_http_request_seconds_count"}
    assert "/v1/clusters/{cluster}/jobs/{job}" in timed
    assert "/v1/clusters/{cluster}/decisions" not in timed


def test_metric_series_are_independent_from_jobs_users_and_nodes(client: TestClient) -> None:
    def load(first: int) -> None:
        nodes = [
            {**EVENTS[0], "id": f"n:{i}", "node": {**EVENTS[0]["node"], "name": f"m{i}"}}
            for i in range(first, first + 20)
        ]
        post(client, *nodes, *(job(i, user=f"u{i}") for i in range(first, first + 50)))
        for i in range(first, first + 20):
            client.get(f"{MAIN}/jobs/{i}.server")
            client.get(f"/{i}")
        client.get("/metrics")

    load(100)
    before = set(scrape(client))
    load(1_000)
    assert set(scrape(client)) == before


def test_every_family_is_in_the_documentation(client: TestClient) -> None:
    post(client, *EVENTS)
    page = (ROOT / "docs" / "reference" / "monitoring.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(schedd_\w+)`", page, re.MULTILINE))
    told = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in text_string_to_metric_families(client.get("/metrics").text)
        if family.name.startswith("schedd_")
    }
    assert documented == told | {"schedd_term"}  # exported only with a database
