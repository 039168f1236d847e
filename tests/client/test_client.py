"""The client agrees with the API, and its types with the JSON of the API."""

import ast
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from pydantic import TypeAdapter

from schedd.api.app import create_app
from schedd.client import Client, ClientError, ConfigError, Endpoint, Refused, Unreachable, answers
from schedd.client.json_object import JsonObject
from schedd.engine import EngineSettings
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from schedd.store.records import PlanMetricsSample
from schedd.wire import JobDeleted
from tests.api.conftest import token, tokens
from tests.api.served_app import serving
from tests.service.planner_harness import StillClock, T, event_id, job, node
from tests.waits import WAIT_S


@pytest.fixture(scope="module")
def app() -> FastAPI:
    warm_up()
    return create_app(Clusters({}, StillClock()), tokens())


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    found = Clusters({"main": EngineSettings(end_allowance=0)}, StillClock())
    found.start(warm=False)
    yield found
    found.stop()


@pytest.fixture
def client(app: FastAPI, clusters: Clusters) -> Iterator[Client]:
    app.state.clusters = clusters
    loop = clusters["main"]
    loop.submit([node("n1"), node("n2"), *(job(f"{i}.srv") for i in range(1, 6))]).result(WAIT_S)
    with serving(app, clusters) as url, Client(Endpoint(url, token("reader"))) as found:
        yield found


def answer_types() -> Iterator[type[Any]]:
    """The classes that type checkers see as the types of answers."""
    for one in ast.walk(ast.parse(Path(answers.__file__).read_text("utf-8"))):
        if isinstance(one, ast.ImportFrom) and one.col_offset:
            module = import_module(str(one.module))
            yield from (getattr(module, alias.name) for alias in one.names)


def test_types_of_answers_have_the_fields_of_the_json() -> None:
    kinds = list(answer_types())
    assert sorted(kind.__name__ for kind in kinds) == sorted(answers.__all__)
    for kind in kinds:
        schema = TypeAdapter(kind).json_schema(mode="serialization")
        assert schema["properties"].keys() == {one.name for one in fields(kind)}, kind
        for part in (schema, *schema.get("$defs", {}).values()):
            assert not part.get("properties", {}).keys() & set(dir(JsonObject)), (
                f"a method has the name: {kind}"
            )


def test_answer_types_stand_for_json_objects_at_run_time() -> None:
    assert getattr(answers, "JobView") is JsonObject  # noqa: B009
    with pytest.raises(AttributeError, match="no answer Jobview"):
        getattr(answers, "Jobview")  # noqa: B009
    found = JsonObject(name="n1")
    assert found.name == "n1"
    with pytest.raises(AttributeError, match="the answer has no cpus"):
        _ = found.cpus


def test_questions_are_answered(client: Client) -> None:
    assert client.cluster().name == "main"
    assert [one.name for one in client.clusters()] == ["main"]
    third = client.job("3")
    assert (third.id, third.state) == ("3.srv", "planned")
    assert client.explain("3").planned_start == third.planned_start
    assert client.history("3").changes[0].after == third.planned_start
    assert [one.id for one in client.jobs()] == [f"{i}.srv" for i in range(1, 6)]
    short: list[Any] = list(client.jobs(state="planned", fields=["id"]))
    assert short == [{"id": f"{i}.srv"} for i in (3, 4, 5)]
    columns = client.job_columns(["state", "id"], queue="batch")
    assert list(columns.items()) == [
        ("state", ["starting"] * 2 + ["planned"] * 3),
        ("id", [f"{i}.srv" for i in range(1, 6)]),
    ]
    assert client.job_columns(["id"], user="nobody") == {"id": []}
    assert [one.name for one in client.nodes()] == ["n1", "n2"]
    assert [bar.job for bar in client.bars(end=T + 10)] == ["1.srv", "2.srv"]
    assert {gap.node for gap in client.gaps(cpus=4)} == {"n1", "n2"}
    asked = client.what_if(
        "nodes=1:ppn=4,walltime=60", variants=["walltime=30", {"nodes": "2:ppn=4"}], windows=1
    )
    assert asked.planned_start == asked.windows[0].first
    assert [one.walltime for one in asked.variants] == [30, 60]
    assert client.what_if(job="3").planned_start == third.planned_start
    assert {one.criterion: one.unit for one in client.evaluation().criteria}["wait"] == "s"


def test_evaluation_history_is_read_across_pages(client: Client, clusters: Clusters) -> None:
    for time in range(T, T + 1_600):
        clusters.metrics_logs["main"].record_metrics(PlanMetricsSample(time, 1, 0, {}))
    found = [one.time for one in client.evaluations(since=0)]
    assert found == list(range(T + 160, T + 1_600))  # memory keeps 1,440
    assert [one.time for one in client.evaluations(since=T, until=T + 200)] == list(range(T + 160, T + 200))
    assert list(client.searches()) == []


def test_lists_are_read_across_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedd.client.read_client._PAGE", 2)
    assert [one.id for one in client.jobs()] == [f"{i}.srv" for i in range(1, 6)]
    assert client.job_columns(["id"]) == {"id": [f"{i}.srv" for i in range(1, 6)]}


def test_plan_changes_are_followed(client: Client, clusters: Clusters) -> None:
    events = client.follow(job="3.srv")
    first, kind, _ = next(events)
    assert (kind, bool(first)) == ("reset", True)
    loop = clusters["main"]
    loop.submit([JobDeleted(id=event_id(), time=T, job_id="1.srv")]).result(WAIT_S)
    last, kind, news = next(events)
    assert (kind, [line.id for line in news.changed]) == ("changes", ["3.srv"])
    events.close()
    loop.submit([JobDeleted(id=event_id(), time=T, job_id="3.srv")]).result(WAIT_S)
    again = client.follow(job="3.srv", last=last)
    assert list(next(again)[2].gone) == ["3.srv"]
    again.close()


def test_errors_have_kind_and_location(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.job("77")
    assert (refused.value.kind, refused.value.status) == ("unknown-job", 404)
    assert (
        str(refused.value)
        == "cluster main has no job 77; a new one is known within seconds, an ended one to `checkjob 77`"
    )
    with pytest.raises(Refused) as refused:
        client.what_if("nodes=1:ppn=q")
    assert refused.value.kind == "invalid"
    assert refused.value.places[0].startswith("body.request: nodes=1:ppn=q")


def test_closed_connection_is_reopened(client: Client) -> None:
    client.cluster()
    connection = client._http._http
    assert connection.socket is not None
    connection.socket.shutdown(2)
    assert client.job("1").id == "1.srv"


def test_unreachable_daemon_and_invalid_endpoint_are_reported() -> None:
    with pytest.raises(Unreachable, match=r"no daemon answers at http://127\.0\.0\.1:9"):
        Client(Endpoint("http://127.0.0.1:9")).clusters()
    for url in ("", "ftp://x", "unix:relative", "http://", "http://x:port"):
        with pytest.raises(ConfigError, match="is no place of a daemon"):
            Client(Endpoint(url))


def test_several_clusters_need_a_name(app: FastAPI) -> None:
    clusters = Clusters({"a": EngineSettings(), "b": EngineSettings()}, StillClock())
    clusters.start(warm=False)
    app.state.clusters = clusters
    try:
        with serving(app, clusters) as url:
            with (
                Client(Endpoint(url, token("reader"))) as which,
                pytest.raises(ClientError, match=r"which cluster\? There is a, b; set SCHEDD_CLUSTER"),
            ):
                which.job("1")
            with Client(Endpoint(url, token("reader"), "b")) as second:
                assert second.cluster().name == "b"
    finally:
        clusters.stop()
