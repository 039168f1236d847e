"""Times in ISO 8601 next to the seconds since the epoch: in all answers, of all times, only on request."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from inspect import signature
from typing import Any, get_args, get_type_hints

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.api import iso_times
from schedd.api.iso_times import TIME_FIELDS, TIMES_OF_CLASSES, add_iso_times, is_time, iso_time, time_shape
from schedd.api.views import DecisionBatch, EventsAccepted
from schedd.federation.api.app import create_app as create_federation
from schedd.federation.api.daemon import FEDERATION_ROUTES
from schedd.service.cluster.plan_loop import PlanLoop
from tests.api.conftest import tokens
from tests.service.planner_harness import T

MAIN = "/v1/clusters/main"
_NUMBER_NAMES = """
accepted alerts arriving asked at_risk booked breaches broken by_offer cancelled code component copies cores
count counted cpu_seconds_planned cpus cpus_planned declined delay deleted duration earlier end_allowance
ended enough events_waiting exit_status failed failures following forecast_in free free_cpus free_gpus
free_mem gap_searches gaps_found generation gpus halted held hidden homeless idle_nodes jobs known late
late_by lead limit load longest_wait longest_waiting loss lost mem most moved moves mtbf next nodes nodes_up
number off option optimal ours p50 p90 planned plans points predicted_run_time priority processors
promises rank refused remaps run_time running runs runs_for saved seed several shares shifts shorter
slot_limit spare start_late_by starting stretch_s subjobs taken tasks times to_one too_late tried units
value version waiting walltime wanted watts weight with_deadline without_cluster without_start worse
ahead
"""
NUMBERS = frozenset(_NUMBER_NAMES.split())
"""Whole numbers of these names are no times."""


def answer_types(app: FastAPI) -> Iterator[tuple[str, Any]]:
    for route in app.routes:
        path: str = getattr(route, "path", "")
        if path.startswith("/v1/") and hasattr(route, "endpoint"):
            said = getattr(route, "response_model", None) or signature(route.endpoint).return_annotation
            yield path, said


def classes_of(kind: Any, seen: set[Any]) -> Iterator[type]:
    kind = getattr(kind, "__value__", kind)
    if kind in seen:
        return
    seen.add(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        yield kind
        for hint in get_type_hints(kind).values():
            yield from classes_of(hint, seen)
    for part in get_args(kind):
        yield from classes_of(part, seen)


@pytest.fixture(scope="module")
def federation_app() -> FastAPI:
    found = create_federation(tokens())
    for add in FEDERATION_ROUTES:
        add(found)
    return found


def test_every_whole_number_is_known_as_a_time_or_as_none(the_app: FastAPI, federation_app: FastAPI) -> None:
    seen: set[Any] = {DecisionBatch, EventsAccepted}
    found = [
        (kind, name)
        for app in (the_app, federation_app)
        for _, said in answer_types(app)
        for kind in classes_of(said, seen)
        for name, hint in get_type_hints(kind).items()
        if (hint is int or int in get_args(hint)) and not (name in NUMBERS or is_time(kind, name, hint))
    ]
    assert not found, "add the name to TIME_FIELDS if it is a time, else to NUMBERS of this test"
    assert not TIME_FIELDS & NUMBERS
    times = {f"{kind.__name__}.{name}" for kind in seen if isinstance(kind, type) for name in vars(kind)}
    assert times >= TIMES_OF_CLASSES


def test_every_answer_with_times_has_the_parameter(the_app: FastAPI, federation_app: FastAPI) -> None:
    paths = [(the_app.openapi(), the_app), (federation_app.openapi(), federation_app)]
    checked = 0
    for described, app in paths:
        for path, said in answer_types(app):
            if said in (DecisionBatch, EventsAccepted) or time_shape(said).empty:
                continue
            checked += 1
            for method, operation in described["paths"][path].items():
                if method == "get" and operation["responses"].get("200"):
                    assert "iso" in [one["name"] for one in operation.get("parameters", ())], path
    assert checked > 80


def check_object(value: Any) -> int:
    """Check all members ``iso``, and return their number."""
    if isinstance(value, list):
        return sum(map(check_object, value))
    if not isinstance(value, dict):
        return 0
    for name, text in value.get("iso", {}).items():
        assert text == iso_time(value[name]), name
    return ("iso" in value) + sum(check_object(one) for name, one in value.items() if name != "iso")


def without_iso(value: Any) -> Any:
    if isinstance(value, list):
        return [without_iso(one) for one in value]
    if isinstance(value, dict):
        return {name: without_iso(one) for name, one in value.items() if name != "iso"}
    return value


@pytest.mark.parametrize(
    ("path", "least"),
    [
        (f"{MAIN}/jobs?limit=101", 6),
        (f"{MAIN}/jobs?limit=1000&fields=id,planned_start,planned_nodes", 6),
        (f"{MAIN}/jobs?fields=id,planned_start,state", 6),
        (f"{MAIN}/jobs/1.server", 2),
        (f"{MAIN}/jobs/1.server/history", 1),
        (f"{MAIN}/plan", 6),
        (f"{MAIN}/gaps", 2),
        (f"{MAIN}/users", 1),
        ("/v1/clusters", 1),
    ],
)
def test_iso_has_exactly_the_times_beside_it(busy_cluster: TestClient, path: str, least: int) -> None:
    plain = busy_cluster.get(path).json()
    assert check_object(plain) == 0
    answer = busy_cluster.get(path + ("&" if "?" in path else "?") + "iso=true")
    assert answer.status_code == 200, answer.text
    assert check_object(answer.json()) >= least
    assert without_iso(answer.json()) == plain


def test_long_lists_that_are_rendered_in_pieces_have_times(
    busy_cluster: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedd.api.replies._ROWS_PER_CHUNK", 2)
    page = busy_cluster.get(f"{MAIN}/jobs?limit=1000&iso=true").json()
    assert len(page["jobs"]) == 5
    assert all(one["iso"]["planned_start"] == iso_time(one["planned_start"]) for one in page["jobs"])


@pytest.mark.parametrize("fields", ["id,planned_start,promised_start", "id,planned_start,last_change"])
def test_columns_have_columns_of_times(busy_cluster: TestClient, fields: str) -> None:
    query = f"{MAIN}/jobs?form=columns&iso=true&fields={fields}"
    found = busy_cluster.get(query).json()
    columns = found["jobs"]
    assert columns["iso"]["planned_start"] == [iso_time(one) for one in columns["planned_start"]]
    assert found["iso"] == {"as_of": iso_time(found["as_of"])}


def test_what_if_results_have_times(busy_cluster: TestClient) -> None:
    body = {"resources": {"nodes": "1:ppn=1", "walltime": "60"}}
    found = busy_cluster.post(f"{MAIN}/what-if?iso=true", json=body).json()
    assert found["iso"]["planned_start"] == iso_time(found["planned_start"])
    assert check_object(found) >= 1


def test_a_wrong_value_is_refused(busy_cluster: TestClient) -> None:
    answer = busy_cluster.get(f"{MAIN}/jobs?iso=maybe")
    assert answer.status_code == 422
    assert "query.iso" in answer.json()["detail"]
    assert busy_cluster.get("/healthz?iso=true").status_code == 422


def test_the_tag_is_equal_while_only_the_age_of_the_plan_changes(
    busy_cluster: TestClient, loop: PlanLoop
) -> None:
    path = f"{MAIN}/jobs/1.server?iso=true"
    first = busy_cluster.get(path)
    loop._clock.moment += 5  # type: ignore[attr-defined]
    node = {"name": "n9", "cpus": 1, "mem": 1}
    event = {"type": "node_changed", "id": "e:77", "time": T + 5, "node": node}
    busy_cluster.post(f"{MAIN}/events", json={"events": [event]})
    second = busy_cluster.get(path)
    assert second.json()["as_of"] == first.json()["as_of"] + 5
    assert second.json()["iso"]["as_of"] == iso_time(second.json()["as_of"])
    assert first.headers["etag"] == second.headers["etag"]


def test_answers_without_the_parameter_format_no_time(
    busy_cluster: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("a time is formatted")

    monkeypatch.setattr(iso_times, "iso_time", fail)
    monkeypatch.setattr("schedd.api.replies.add_iso_times", fail)
    assert busy_cluster.get(f"{MAIN}/jobs?limit=1000").status_code == 200


def test_nested_shapes() -> None:
    @dataclass
    class Leaf:
        start: int | None
        cpus: int

    @dataclass
    class Tree:
        since: int
        leaves: Mapping[str, Leaf]
        inner: "tuple[Tree, ...]" = ()

    Tree.__annotations__["inner"] = tuple[Tree, ...]
    value = {
        "since": 0,
        "leaves": {"start": {"start": 60, "cpus": 4}, "none": {"start": None, "cpus": 1}},
        "inner": [{"since": 1, "leaves": {}, "inner": []}],
    }
    found = add_iso_times(value, time_shape(Tree))
    assert found["iso"] == {"since": "1970-01-01T00:00:00Z"}
    assert found["leaves"]["start"]["iso"] == {"start": "1970-01-01T00:01:00Z"}
    assert found["leaves"]["none"]["iso"] == {"start": None}
    assert found["inner"][0]["iso"] == {"since": "1970-01-01T00:00:01Z"}
    assert iso_time(1 << 60) is None
