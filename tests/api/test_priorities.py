"""Priorities and shares over HTTP."""

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.engine import EngineSettings
from schedd.policy.site import site_policy
from schedd.service.access.callers import Callers
from schedd.service.clusters import Clusters
from schedd.service.settings.auth import AuthSettings
from tests.api.conftest import EVENTS, token, tokens
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import StillClock, T

SITE = {
    "priority": {"wish": 2.0, "fair_share": 100.0, "waiting": 1.0},
    "classes": {"ann": {"points": 7, "users": ["ann"], "breaks_promises": True}},
    "fair_share": {"levels": ["group", "user"], "shares": {"phys": 3, "phys/ann": 2}},
}


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    settings = EngineSettings(site=site_policy(SITE))
    found = Clusters({"main": settings, "other": EngineSettings()}, StillClock())
    found.start(warm=False)
    yield found
    found.stop()


@pytest.fixture
def ranked(client: TestClient) -> TestClient:
    jobs = [
        {**event, "job": {**event["job"], "group": "phys", "priority": i, "submitted": T - 3600}}
        for i, event in enumerate(EVENTS[2:])
    ]
    assert client.post(f"{MAIN}/events", json={"events": [*EVENTS[:2], *jobs]}).status_code == 200
    return client


def test_job_priority_is_explained_term_by_term(ranked: TestClient) -> None:
    found = get(ranked, "/jobs/5/priority")
    terms = {term["name"]: term for term in found["terms"]}
    assert found["job"] == "5.server"
    assert terms["wish"] == {"name": "wish", "weight": 2.0, "value": 4.0, "points": 8.0}
    assert terms["class"]["points"] == 7.0
    assert terms["waiting"]["points"] == 1.0
    assert found["total"] == round(sum(term["points"] for term in found["terms"]))
    assert found["rank"] == found["total"]
    assert found["breaks_promises"] is True
    assert get(ranked, "/jobs/4/priority")["breaks_promises"] is False


def test_light_mode_shows_the_priority_at_submission(ranked: TestClient) -> None:
    policy = {**SITE, "priority": {"wish": 2.0, "waiting": 1.0, "mode": "light"}}
    assert ranked.put(f"{MAIN}/policy", json=policy).status_code == 200
    found = get(ranked, "/jobs/4/priority")
    terms = {term["name"]: term["points"] for term in found["terms"]}
    assert terms == {"class": 0.0, "wish": 6.0, "waiting": 0.0, "queue": 0.0}, "it has waited for an hour"
    assert found["rank"] == found["total"] == 6


def test_a_changed_class_changes_the_priority_immediately(ranked: TestClient) -> None:
    before = get(ranked, "/jobs/4/priority")
    owner = get(ranked, "/jobs/4")["owner"].partition("@")[0]
    policy = {**SITE, "classes": {"gold": {"points": 70, "users": [owner]}}}
    assert ranked.put(f"{MAIN}/policy", json=policy).status_code == 200
    found = get(ranked, "/jobs/4/priority")
    terms = {term["name"]: term["points"] for term in found["terms"]}
    assert terms["class"] == 70.0
    assert found["rank"] == found["total"] == before["total"] + 70


def test_fair_shares_are_reported_by_entry(ranked: TestClient) -> None:
    found = get(ranked, "/fair-share")
    places = {place["path"]: place for place in found["places"]}
    assert found["levels"] == ["group", "user"]
    assert list(places) == ["phys", "phys/ann", "phys/bob"]
    assert (places["phys/ann"]["share"], places["phys/ann"]["target"]) == (2.0, pytest.approx(2 / 3))
    assert {place["factor"] for place in places.values()} == {1.0}


def test_without_fair_share_there_is_no_tree(ranked: TestClient) -> None:
    found = ranked.get("/v1/clusters/other/fair-share").json()
    assert (found["levels"], found["places"]) == ([], [])


def test_hidden_users_have_no_visible_priority_or_share(app: FastAPI, ranked: TestClient) -> None:
    app.state.callers = Callers(tokens(), AuthSettings(others="none"))
    ann = {"Authorization": f"Bearer {token('proxy')}", "X-Remote-User": "ann"}
    with TestClient(app, headers=ann) as client:
        places = client.get(f"{MAIN}/fair-share").json()["places"]
        assert [place["path"] for place in places] == ["phys", "phys/ann"]
        assert client.get(f"{MAIN}/jobs/5/priority").status_code == 200
        assert client.get(f"{MAIN}/jobs/4/priority").status_code == 404


def test_licences_report_used_and_requested_copies(client: TestClient) -> None:
    jobs = [
        {**e, "job": {**e["job"], "resources": {**e["job"]["resources"], "matlab": "2"}}} for e in EVENTS[2:]
    ]
    counted = {"type": "resource_counted", "id": "c:1", "time": T, "name": "matlab", "amount": 3}
    assert client.post(f"{MAIN}/events", json={"events": [counted, *EVENTS[:2], *jobs]}).status_code == 200
    assert get(client, "/licences")["licences"] == [
        {"name": "matlab", "copies": 3, "held": 2, "wanted": 8, "counted": T}
    ]


def test_unknown_job_has_no_priority(ranked: TestClient) -> None:
    answer = ranked.get(f"{MAIN}/jobs/99/priority")
    assert answer.status_code == 404
    assert "no job 99" in answer.json()["detail"]
