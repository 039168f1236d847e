"""Hostile bodies: the response names the error, and nothing changes."""

import json
import os
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from schedd.service.cluster.plan_loop import PlanLoop
from tests.api.conftest import EVENTS
from tests.api.test_errors import MAIN

EXAMPLES = int(os.environ.get("SCHEDD_EXAMPLES", "150"))
JSON = {"Content-Type": "application/json"}
DEEP = (100, 100_000)

values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
keys = st.sampled_from(
    (
        *("id", "time", "type", "job", "node", "jobs", "nodes", "shares"),
        *("resources", "owner", "state", "submitted", "mem", "holds", "depend"),
    )
)


def refused(client: TestClient, loop: PlanLoop, path: str, body: bytes, **headers: str) -> int:
    """Posts the body; its status. A refused body leaves the plan unchanged."""
    before = loop.published.generation
    answer = client.post(f"{MAIN}/{path}", content=body, headers={**JSON, **headers})
    assert answer.status_code in (200, 400, 413, 422), answer.text
    if answer.status_code != 200:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"]
        assert loop.published.generation == before
    return answer.status_code


def fuzz(*strategies: Any) -> Callable[[Any], Any]:
    hushed = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    chosen: Any = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=hushed)
    tried: Any = given(*strategies)

    def decorate(test: Any) -> Any:
        return chosen(tried(test))

    return decorate


@fuzz(st.sampled_from(["events", "what-if", "pause"]), st.binary(max_size=300))
def test_any_bytes_are_answered(client: TestClient, loop: PlanLoop, path: str, body: bytes) -> None:
    refused(client, loop, path, body)


@fuzz(st.sampled_from(["events", "what-if", "pause"]), values)
def test_any_json_is_answered(client: TestClient, loop: PlanLoop, path: str, value: Any) -> None:
    refused(client, loop, path, json.dumps(value).encode())


@fuzz(st.sampled_from(EVENTS[1:3]), st.lists(keys, min_size=1, max_size=2), values)
@example(event=EVENTS[2], way=["job", "resources"], value={"nodes": "1" * 5_000})
def test_an_event_with_anything_in_any_place_is_answered(
    client: TestClient, loop: PlanLoop, event: dict[str, Any], way: list[str], value: Any
) -> None:
    changed: dict[str, Any] = json.loads(json.dumps(event))
    place = changed
    for key in way[:-1]:
        inner = place.setdefault(key, {})
        place = inner if isinstance(inner, dict) else place
    place[way[-1]] = value
    refused(client, loop, "events", json.dumps({"events": [changed]}).encode())


@pytest.mark.covering
@pytest.mark.parametrize("depth", DEEP)
@pytest.mark.parametrize(
    ("before", "opening", "inside", "closing", "after"),
    [
        ("", "[", "", "]", ""),
        ("", '{"events":', "1", "}", ""),
        ('{"events":[', "[", "", "]", "]}"),
        ('{"events":[{"type":"job_queued","id":"x","time":1,"job":{"resources":', '{"a":', "1", "}", "}}]}"),
        ('{"request":"nodes=1","resources":', '{"nodes":', '"1"', "}", "}"),
    ],
)
@pytest.mark.parametrize(
    "path",
    [
        *("events", "what-if", "pause", "policy/preview"),
        *("reservations/x/preview", "holds/node/n1/preview"),
    ],
)
def test_deep_bodies_are_refused(
    client: TestClient,
    loop: PlanLoop,
    path: str,
    depth: int,
    before: str,
    opening: str,
    inside: str,
    closing: str,
    after: str,
) -> None:
    body = before + opening * depth + inside + closing * depth + after
    assert refused(client, loop, path, body.encode()) in (400, 413, 422)


@pytest.mark.parametrize(
    "body",
    [
        b'{"events": [], "events": 3}',
        b'{"events": [' + b"1" * 10_000 + b"]}",
        b'{"events": [1e999]}',
        b'{"events": [NaN]}',
        b'{"events": ["\\ud800"]}',
        b'{"events": ["\xed\xa0\x80"]}',
        b'\xff\xfe{\x00"\x00',
        b'{"events": []}' + b" " * 900_000 + b"x",
        b"{" + b",".join(b'"k%d": 1' % i for i in range(50_000)) + b"}",
        b"[" + b",".join([b"{}"] * 100_000) + b"]",
    ],
    ids=[
        *("twice", "long number", "infinite", "NaN", "half a pair"),
        *("surrogate", "UTF-16", "tail", "keys", "items"),
    ],
)
def test_odd_bodies_are_refused(client: TestClient, loop: PlanLoop, body: bytes) -> None:
    assert refused(client, loop, "events", body) in (400, 413, 422)


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate", "chunked, gzip"])
def test_compressed_bodies_are_not_unpacked(client: TestClient, loop: PlanLoop, encoding: str) -> None:
    body = b"\x1f\x8b" + b"\0" * 100
    assert refused(client, loop, "events", body, **{"Content-Encoding": encoding}) in (400, 422)


@fuzz(st.text(max_size=60), st.dictionaries(st.text(max_size=10), st.text(max_size=20), max_size=3))
def test_any_path_and_query_are_answered(client: TestClient, path: str, query: dict[str, str]) -> None:
    name = quote(path, safe="")
    for url in (f"{MAIN}/jobs/{name}", f"/v1/{name}", f"{MAIN}/{name}"):
        answer = client.get(url, params={**query, "wait": "0"} if path == "decisions" else query)
        assert answer.status_code < 500, answer.text


HALF = "\ud83d"
BODIES: list[tuple[str, str, dict[str, Any]]] = [
    *(
        ("post", "events", {"events": [{**event, where: HALF}]})
        for event in EVENTS[1:3]
        for where in ("id", "cause")
    ),
    ("post", "events", {"events": [{**EVENTS[2], "job": {**EVENTS[2]["job"], "name": f"a{HALF}"}}]}),
    ("post", "events", {"events": [{**EVENTS[2], "job": {**EVENTS[2]["job"], "resources": {HALF: "1"}}}]}),
    ("post", "events", {"events": [EVENTS[2]] * 600 + [{**EVENTS[2], "id": HALF}]}),
    ("post", "what-if", {"request": f"nodes=1:{HALF}"}),
    ("post", "pause", {"reason": HALF}),
    ("put", "reservations/x", {"start": 0, "end": 2_000_000_000, "nodes": ["n1"], "reason": HALF}),
    ("post", "reservations/x/preview", {"start": 0, "end": 2_000_000_000, "nodes": [HALF]}),
    ("put", "holds/node/n1", {"reason": HALF}),
    ("post", "holds/node/n1/preview", {"reason": HALF}),
    ("put", "policy", {"queues": {HALF: {}}}),
    ("post", "policy/preview", {"queues": {HALF: {}}}),
]


@pytest.mark.covering
@pytest.mark.parametrize("raw", [False, True], ids=["escaped", "raw"])
@pytest.mark.parametrize(("method", "path", "body"), BODIES, ids=[f"{m} {p}" for m, p, _ in BODIES])
def test_unpaired_surrogates_are_refused_everywhere(
    client: TestClient, loop: PlanLoop, method: str, path: str, body: dict[str, Any], raw: bool
) -> None:
    content = json.dumps(body, ensure_ascii=not raw).encode("utf-8", "surrogatepass")
    before = loop.published.generation
    answer = client.request(method, f"{MAIN}/{path}", content=content, headers=JSON)
    assert answer.status_code in (400, 422), answer.text
    assert "surrogate pair" in answer.json()["detail"]
    assert loop.published.generation == before


def test_every_operation_with_a_body_refuses_it(client: TestClient, app: Any) -> None:
    operations = [
        (method, path)
        for path, methods in app.openapi()["paths"].items()
        for method, operation in methods.items()
        if "requestBody" in operation
    ]
    assert len(operations) >= 8
    for method, path in operations:
        url = path.replace("{cluster}", "main").replace("{kind}", "node")
        url = re.sub("{[a-z]+}", "n1", url)
        answer = client.request(method, url, content=b'{"x": "\\ud83d"}', headers=JSON)
        assert "surrogate pair" in answer.text, (method, path)


def test_surrogate_pairs_are_accepted(client: TestClient, loop: PlanLoop) -> None:
    event = {**EVENTS[2], "job": {**EVENTS[2]["job"], "name": "\U0001f40e"}}
    body = json.dumps({"events": [event]}).encode()
    assert rb"\ud83d\udc0e" in body
    assert refused(client, loop, "events", body) == 200
