"""Alternative plans over HTTP: permissions, responses, errors."""

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.features.alternatives.api import plan_alternatives
from schedd.service.clusters import Clusters
from tests.api.conftest import token
from tests.api.test_objectives import priced
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import T

__all__ = ["priced"]
PARETO = f"{MAIN}/alternatives"
HOW = {"evaluations": 40, "seed": 1}


@pytest.fixture
def mixed(priced: TestClient) -> TestClient:
    """The same, and short jobs behind long ones."""
    events: list[dict[str, Any]] = [
        {
            "type": "job_queued",
            "id": f"m:{i}",
            "time": T,
            "job": {
                "id": f"{i}.server",
                "owner": "ann@login",
                "queue": "batch",
                "submitted": T,
                "resources": {"nodes": "1:ppn=4", "walltime": str(600 * (20 - i))},
                "version": "1",
            },
        }
        for i in range(10, 18)
    ]
    assert priced.post(f"{MAIN}/events", json={"events": events}).status_code == 200
    return priced


def test_alternatives_are_searched_listed_and_applied(
    mixed: TestClient, the_app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[tuple[str, ...]] = []
    monkeypatch.setattr(the_app.state.clusters["main"], "audit", lambda *said: noted.append(said))
    assert mixed.get(PARETO).json() == {"set": None, "drift": 0.0}
    made = mixed.post(PARETO, json=HOW)
    assert made.status_code == 200, made.text
    found = made.json()["set"]
    assert mixed.get(PARETO).json() == made.json()
    assert found["by"] == "our-admin"
    assert set(found["live"]) == {"wait", "makespan", "energy", "cost"}
    best = found["plans"][0]
    assert best["moves"]
    before = {one["objective"]: one["value"] for one in get(mixed, "/plan/objectives")["objectives"]}
    assert found["live"]["wait"] == before["wait"]
    done = mixed.post(f"{PARETO}/1/plans/1/apply", json={})
    assert done.status_code == 200, done.text
    assert done.json()["moved"] == len(best["moves"])
    assert [said[:2] for said in noted] == [("our-admin", "alternatives"), ("our-admin", "apply alternative")]
    assert f"{len(best['moves'])} jobs moved" in noted[1][2]
    for move in best["moves"]:
        assert get(mixed, f"/jobs/{move['job']}")["planned_start"] == move["after"]
    after = {one["objective"]: one["value"] for one in get(mixed, "/plan/objectives")["objectives"]}
    assert {name: after[name] for name in best["objectives"]} == pytest.approx(best["objectives"])
    # The live plan is another now.
    assert mixed.get(PARETO).json()["drift"] > 0


def test_an_outdated_set_is_refused_with_its_drift(mixed: TestClient) -> None:
    assert mixed.post(PARETO, json=HOW).status_code == 200
    assert mixed.post(f"{PARETO}/1/plans/1/apply", json={}).status_code == 200
    answer = mixed.post(f"{PARETO}/1/plans/1/apply", json={"tolerance": 0})
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:schedd:problem:moved-on")
    again = mixed.post(f"{PARETO}/1/plans/1/apply", json={"tolerance": 1})
    assert (again.status_code, again.json()["type"]) == (409, "urn:schedd:problem:moved-on"), "it is this one"
    none = mixed.post(f"{PARETO}/1/plans/99/apply", json={})
    assert (none.status_code, none.json()["type"]) == (404, "urn:schedd:problem:unknown-plan")
    none = mixed.post(f"{PARETO}/7/plans/1/apply", json={})
    assert "the latest is 1" in none.json()["detail"]


@pytest.mark.parametrize("role", ["user", "reader", "adapter"])
def test_only_operators_and_admins_may(mixed: TestClient, role: str) -> None:
    headers = {"Authorization": f"Bearer {token(role)}"}
    for method, path in (("GET", ""), ("POST", ""), ("DELETE", ""), ("POST", "/1/plans/1/apply")):
        answer = mixed.request(method, PARETO + path, headers=headers, json={} if method == "POST" else None)
        assert answer.status_code == 403, (method, path)
    operator = {"Authorization": f"Bearer {token('operator')}"}
    assert mixed.post(PARETO, json=HOW, headers=operator).status_code == 200


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"weights": {"speed": 1}}, "there is no objective 'speed'"),
        ({"weights": {"wait": 0}}, "all weights are 0"),
        ({"weights": {"wait": -1}}, "weights"),
        ({"seconds": 51}, "seconds"),
        ({"evaluations": 0}, "evaluations"),
        ({"generations": 7}, "generations"),
    ],
)
def test_invalid_searches_are_refused(mixed: TestClient, body: dict[str, Any], words: str) -> None:
    answer = mixed.post(PARETO, json=body)
    assert answer.status_code == 422
    assert words in answer.text


def test_a_missing_library_is_named_with_its_package(
    mixed: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pymoo.algorithms.moo.nsga2", None)
    answer = mixed.post(PARETO, json=HOW)
    assert answer.status_code == 501
    assert "schedd[pareto]" in answer.json()["detail"]


def test_stopping_without_a_search_reports_false(mixed: TestClient, the_app: FastAPI) -> None:
    assert mixed.delete(PARETO).json() == {"stopped": False}
    clusters: Clusters = the_app.state.clusters
    assert plan_alternatives(clusters, "main").latest is None
