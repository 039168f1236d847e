"""Objectives of the plan and costs of jobs over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.engine import EngineSettings
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.policy.site import site_policy
from schedd.service.clusters import Clusters
from tests.api.conftest import EVENTS, token
from tests.api.test_errors import problem
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import StillClock, T

SITE: dict[str, Any] = {
    "power": {"*": {"idle": 100, "core": 5}},
    "prices": [{"core_hour": 0.5}],
    "currency": "CZK",
}


CLOCK = StillClock()


@pytest.fixture
def priced(the_app: FastAPI) -> Iterator[TestClient]:
    """Two nodes and five jobs of four cpus and an hour; of the last, its owner would pay 1.50."""
    clusters = Clusters(
        {"main": EngineSettings(site=site_policy(SITE), slack="1000000").with_changes(predict=True)}, CLOCK
    )
    CLOCK.moment = T
    clusters.start(warm=False)
    the_app.state.clusters = clusters
    events = [dict(one) for one in EVENTS]
    last = events[-1]["job"]
    events[-1]["job"] = {**last, "resources": {**last["resources"], "x.cost_limit": "1.50"}}
    with TestClient(the_app, headers={"Authorization": f"Bearer {token('admin')}"}) as client:
        assert client.post(f"{MAIN}/events", json={"events": events}).status_code == 200
        yield client
    clusters.stop()


def test_the_plan_is_evaluated_by_each_objective(priced: TestClient) -> None:
    found = {one["objective"]: one for one in get(priced, "/plan/objectives")["objectives"]}
    waits = [job["planned_start"] - T for job in get(priced, "/jobs", state="planned")["jobs"]]
    assert found["wait"]["value"] == pytest.approx(sum(waits) / len(waits))
    assert (found["cost"]["value"], found["cost"]["unit"]) == (pytest.approx(5 * 4 * 0.5), "CZK")
    assert found["cost_overrun"]["value"] == pytest.approx(0.5 / 3)
    hours = found["makespan"]["value"] / 3600
    assert found["energy"]["value"] == pytest.approx((2 * 100 * hours + 5 * 4 * 5) / 1000)


def test_unavailable_objectives_are_null_with_a_reason(busy_cluster: TestClient) -> None:
    found = {one["objective"]: one for one in get(busy_cluster, "/plan/objectives")["objectives"]}
    assert (found["energy"]["value"], found["cost"]["value"]) == (None, None)
    assert "site.power" in found["energy"]["why"]
    cost = get(busy_cluster, "/jobs/3/cost")
    assert (cost["cost"], cost["kwh"], cost["limit"], cost["over"]) == (None, None, None, False)
    assert [one["cpus"] for one in cost["nodes"]] == [4]


def test_failing_nodes_show_expected_losses(priced: TestClient) -> None:
    assert {one["mtbf"] for one in get(priced, "/nodes")["nodes"]} == {None}, "none has failed"
    assert get(priced, "/jobs/5/cost")["loss"] == 0
    known = {
        one["name"]: {key: one[key] for key in ("name", "cpus")} for one in get(priced, "/nodes")["nodes"]
    }
    name, other = sorted(known)
    for at, one, state in ((1000, name, "down"), (1301, other, "up"), (1302, name, "up")):
        CLOCK.moment = T + at
        event = {
            "type": "node_changed",
            "id": f"fails:{at}",
            "time": T + at,
            "node": {**known[one], "state": state},
        }
        assert priced.post(f"{MAIN}/events", json={"events": [event]}).status_code == 200
    between = {one["name"]: one["mtbf"] for one in get(priced, "/nodes")["nodes"]}
    assert 0 < between[name] < between[other]
    found = {one["objective"]: one for one in get(priced, "/plan/objectives")["objectives"]}["expected_loss"]
    assert (found["unit"], found["why"]) == ("core-h", "")
    assert 0 < get(priced, "/jobs/5/cost")["loss"] < found["value"]


def test_a_job_shows_its_cost_and_its_limit(priced: TestClient) -> None:
    job = get(priced, "/jobs/5")
    found = get(priced, "/jobs/5/cost")
    assert (found["job"], found["planned_start"]) == ("5.server", job["planned_start"])
    assert found["cost"] == pytest.approx(2.0)
    assert found["kwh"] == pytest.approx(0.02)
    assert (found["limit"], found["over"], found["currency"]) == (1.5, True, "CZK")
    (node,) = found["nodes"]
    assert (node["node"], node["cpus"], node["gpus"]) == (job["planned_nodes"][0]["node"], 4, 0)
    assert get(priced, "/jobs/4/cost")["over"] is False
    assert priced.get(f"{MAIN}/jobs/99/cost").status_code == 404


def test_a_job_without_a_start_has_no_cost(priced: TestClient) -> None:
    never = {**EVENTS[-1]["job"], "id": "9.server", "resources": {"nodes": "1:ppn=9", "walltime": "60"}}
    event = {"type": "job_queued", "id": "n", "time": T, "job": never}
    assert priced.post(f"{MAIN}/events", json={"events": [event]}).status_code == 200
    found = get(priced, "/jobs/9/cost")
    assert (found["planned_start"], found["cost"], found["nodes"]) == (None, None, [])


def test_a_search_reports_objectives_before_and_after(priced: TestClient) -> None:
    short = {**EVENTS[-1]["job"], "id": "8.server", "resources": {"nodes": "1:ppn=4", "walltime": "60"}}
    event = {"type": "job_queued", "id": "s", "time": T, "job": short}
    assert priced.post(f"{MAIN}/events", json={"events": [event]}).status_code == 200
    before = {one["objective"]: one["value"] for one in get(priced, "/plan/objectives")["objectives"]}
    run = priced.post(f"{MAIN}/searches").json()["search"]
    assert run["taken"] > 0
    after = {one["objective"]: one["value"] for one in get(priced, "/plan/objectives")["objectives"]}
    told = {one["objective"]: (one["before"], one["after"]) for one in run["objectives"]}
    assert told == {name: (before[name], after[name]) for name in before}
    assert told["wait"][1] < told["wait"][0]
    metrics = priced.get("/metrics").text
    (line,) = [
        one for one in metrics.splitlines() if 'plan_objective{cluster="main",objective="wait"}' in one
    ]
    assert float(line.split()[-1]) == pytest.approx(told["wait"][1])


def test_objectives_are_recorded_in_the_history(priced: TestClient, the_app: FastAPI) -> None:
    clusters: Clusters = the_app.state.clusters
    clusters._metrics_samplers[0].sample()
    found = get(priced, "/plan/evaluation/history")
    (one,) = found["evaluations"]
    assert one["criteria"]["cost"] == pytest.approx(10)
    assert one["criteria"]["energy"] > 0
    assert {name: found["units"][name] for name in ("cost", "energy", "lateness", "non_utilisation")} == {
        "cost": "CZK",
        "energy": "kWh",
        "lateness": "1",
        "non_utilisation": "s",
    }


NIGHT: dict[str, Any] = {
    "currency": "CZK",
    "prices": [
        {"core_hour": 2.0},
        # T is Tuesday, 22:13:20 UTC: the cheap hours begin at 23:00.
        {
            "core_hour": 0.5,
            "first": "2023-11-14T23:00:00",
            "last": "2023-11-15T05:00:00",
            "rule": "FREQ=DAILY",
        },
    ],
}
ELEVEN = T + 2_800


def set_night_prices(client: TestClient, **more: Any) -> TestClient:
    answer = client.put(f"{MAIN}/policy?break_promises=true", json={**NIGHT, **more})
    assert answer.status_code == 200
    return client


def ask_what_if(client: TestClient, **question: Any) -> Any:
    answer = client.post(f"{MAIN}/what-if", json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_whatif_reports_the_cost_at_its_start(client: TestClient) -> None:
    client.post(f"{MAIN}/events", json={"events": EVENTS[:2]})
    assert ask_what_if(client, request="nodes=1:ppn=4,walltime=3600")["cost"] is None
    set_night_prices(client)
    found = ask_what_if(
        client,
        resources={"nodes": "1:ppn=4", "walltime": "3600", "x.cost_limit": "4.6"},
        variants=[{"request": "nodes=1:ppn=2,walltime=1000"}],
    )
    assert (found["planned_start"], found["currency"], found["over"]) == (T, "CZK", True)
    assert found["cost"] == pytest.approx(4 * (2_800 * 2.0 + 800 * 0.5) / 3600)
    assert found["variants"][0]["cost"] == pytest.approx(2 * 1_000 * 2.0 / 3600)
    assert found["variants"][0]["over"] is False


def test_a_whatif_under_hard_limits_reports_the_first_affordable_start(client: TestClient) -> None:
    client.post(f"{MAIN}/events", json={"events": EVENTS[:2]})
    set_night_prices(client, cost_limits="hard")
    ask = {"nodes": "1:ppn=4", "walltime": "3600"}
    found = ask_what_if(client, resources={**ask, "x.cost_limit": "2"})
    assert (found["planned_start"], found["cost"], found["over"]) == (ELEVEN, pytest.approx(2.0), False)
    never = ask_what_if(client, resources={**ask, "x.cost_limit": "1.99"})
    assert (never["planned_start"], never["waiting_for"]) == (None, "cost")
    assert never["why"] == ("waiting for a time at which it costs at most 1.99 CZK; it would cost 6.67 CZK")


def test_the_cheapest_start_before_a_time_is_reported(client: TestClient) -> None:
    client.post(f"{MAIN}/events", json={"events": EVENTS[:2]})
    question = {"request": "nodes=1:ppn=4,walltime=3600", "cheapest_by": T + 86_400}
    assert ask_what_if(client, **question)["cheapest"] is None, "the site has no prices"
    set_night_prices(client)
    found = ask_what_if(client, **question)
    cheapest = found["cheapest"]
    assert (cheapest["start"], cheapest["nodes"]) == (ELEVEN, ["n1"])
    assert cheapest["cost"] == pytest.approx(2.0)
    assert found["planned_start"] == T, "the plan would have it at once"
    assert ask_what_if(client, **{**question, "cheapest_by": T + 3_599})["cheapest"] is None
    soon = ask_what_if(client, **{**question, "cheapest_by": T + 3_700})["cheapest"]
    assert soon["start"] == T + 100, "the later, the less of it is dear"
    said = problem(client.post(f"{MAIN}/what-if", json={**question, "cheapest_by": -1}), "invalid")
    assert "cheapest_by" in str(said)


def test_objectives_use_predicted_run_times_if_available(priced: TestClient) -> None:
    found = get(priced, "/plan/objectives")
    assert found["expected_as_of"] is None
    assert {one["expected"] for one in found["objectives"]} == {None}
    assert isinstance(priced.app, FastAPI)
    priced.app.state.clusters.service("main", ExpectedStartWorker).run_once()
    found = get(priced, "/plan/objectives")
    assert found["expected_as_of"] == T
    # Nothing was learned yet: jobs are taken to need their walltimes.
    assert all(one["expected"] == pytest.approx(one["value"]) for one in found["objectives"])


def test_objective_etags_change_with_the_expected_plan(priced: TestClient) -> None:
    """No job of the live plan moves meanwhile: the tag covers the whole response."""

    def get_with_etag(tag: str = "") -> Any:
        return priced.get(f"{MAIN}/plan/objectives", headers={"If-None-Match": tag})

    first = get_with_etag()
    assert get_with_etag(first.headers["etag"]).status_code == 304
    assert isinstance(priced.app, FastAPI)
    priced.app.state.clusters.service("main", ExpectedStartWorker).run_once()
    newer = get_with_etag(first.headers["etag"])
    assert (newer.status_code, newer.json()["expected_as_of"]) == (200, T)
    live = [[one["value"] for one in answer.json()["objectives"]] for answer in (first, newer)]
    assert live[0] == live[1]
    assert get_with_etag(newer.headers["etag"]).status_code == 304
