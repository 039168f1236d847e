"""The fast path of the exchange answers as the framework's route does."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.api import exchange_fast_path
from schedd.api.planner_calls import TIMEOUTS
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.cluster import plan_loop
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.clusters import Clusters
from schedd.service.settings.daemon import StoreSettings
from tests.api.conftest import EVENTS, ROLES, token, tokens
from tests.service.planner_harness import StillClock, T
from tests.waits import WAIT_S, wait_until

MAIN = "/v1/clusters/main"
Headers = dict[str, str]
ADAPTER: Headers = {"Authorization": f"Bearer {token('adapter')}"}
JSON: Headers = {"Content-Type": "application/json"}
BODY = json.dumps({"events": EVENTS})
Request = tuple[str, str, Headers, str | bytes]

POLLS: list[Request] = [
    *(("GET", f"{MAIN}/decisions", {"Authorization": f"Bearer {token(role)}"}, "") for role in ROLES),
    ("GET", f"{MAIN}/decisions", {}, ""),
    ("GET", "/v1/clusters/nowhere/decisions", ADAPTER, ""),
    *(
        ("GET", f"{MAIN}/decisions?{query}", ADAPTER, "")
        for query in (
            "limit=1",
            "limit=0",
            "limit=10001",
            "limit=x",
            "limit=1&limit=2",
            "after=",
            "after=d000000000001",
            "after=nothing",
            "after=%ff",
            "after=" + "d" * 65,
            "wait=0",
            "wait=-1",
            "wait=61",
            "wait=nan",
            "wait=",
            "wait=%D9%A3",
            "limit=1%D9%A3",
            "unknown=1",
        )
    ),
    *(
        ("GET", f"{MAIN}/decisions", {**ADAPTER, name: value}, "")
        for name, value in (
            ("Schedd-Adapter", "an-adapter"),
            ("Schedd-Adapter", "an adapter"),
            ("Schedd-Host", "h" * 256),
            ("Schedd-Read-Age", "1.5"),
            ("Schedd-Read-Age", "-1"),
            ("Schedd-Read-Age", "soon"),
            ("Schedd-Clock", "1700000000.25"),
            ("Schedd-Clock", "1e12"),
            ("Schedd-Version", "1.0+x"),
            ("Schedd-Version", "v 1"),
            ("Schedd-Uncalled", "u" * 501),
            ("Schedd-Troubles", '{"writing": "no right", "of-a-newer-adapter": "it fails"}'),
            ("Schedd-Troubles", '{"writing": 1}'),
            ("Schedd-Server-Clock-Lead", "-600"),
            ("Schedd-Server-Clock-Lead", "1.5"),
            ("Schedd-Server-Clock-Lead", "9" * 12),
            ("Schedd-Troubles", '["writing"]'),
            ("Schedd-Troubles", "[" * 1_900),
            ("Schedd-Troubles", '{"writing": "' + "w" * 2_000 + '"}'),
            ("Schedd-Adapter", "a\xb2"),
            ("Schedd-Version", "1.\xb2"),
        )
    ),
    ("DELETE", f"{MAIN}/decisions", ADAPTER, ""),
]
POSTS: list[Request] = [
    *(("POST", f"{MAIN}/events", {"Authorization": f"Bearer {token(role)}", **JSON}, BODY) for role in ROLES),
    ("POST", f"{MAIN}/events", JSON, BODY),
    ("POST", "/v1/clusters/nowhere/events", {**ADAPTER, **JSON}, BODY),
    ("POST", f"{MAIN}/events?x=1", {**ADAPTER, **JSON}, BODY),
    ("POST", f"{MAIN}/events", {**ADAPTER, "Content-Type": "text/plain"}, BODY),
    ("POST", f"{MAIN}/events", {**ADAPTER, **JSON, "Schedd-Adapter": "an adapter"}, BODY),
    ("POST", f"{MAIN}/events", {**ADAPTER, **JSON, "Schedd-After": "a" * 65}, BODY),
    ("POST", f"{MAIN}/events", {**ADAPTER, **JSON, "Schedd-Adapter": "a", "Schedd-After": "unknown"}, BODY),
    *(
        ("POST", f"{MAIN}/events", {**ADAPTER, **JSON}, body)
        for body in (
            "",
            "{}",
            "[]",
            "{",
            '{"events": 1}',
            '{"events": []}',
            '{"events": [{}]}',
            '{"events": [{"type": "nonsense"}]}',
            '{"events": [], "more": 1}',
            '{"events": [{"type": "job_held", "id": "e:9", "time": -1, "job_id": "1.server"}]}',
            '{"events": [{"type": "job_held", "id": "e:9", "time": "1", "job_id": "1.server"}]}',
            '{"events": [{"type": "job_held", "id": "\\ud800", "time": 1, "job_id": "1.server"}]}',
            b"\xff",
            "[" * 5_000,
        )
    ),
]


def answered(app: FastAPI, request: Request) -> tuple[int, Any, Any]:
    method, path, headers, body = request
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    app.state.callers = Callers(tokens())
    with TestClient(app, raise_server_exceptions=False) as client:
        answer = client.request(method, path, headers=raw, content=body or None)
    found = answer.json() if answer.content else None
    if isinstance(found, dict) and answer.status_code == 200:
        found = {name: value for name, value in found.items() if name not in ("generation", "accepted")}
    headers_of = {name: value for name, value in answer.headers.items() if name != "content-length"}
    return answer.status_code, headers_of, found


def without_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_fast_path, "_single_headers", lambda _scope: None)


@pytest.mark.parametrize("request_", POLLS)
def test_polls_get_the_framework_s_answer(
    app: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch, request_: Request
) -> None:
    assert client.post(f"{MAIN}/events", json={"events": EVENTS}).status_code == 200
    fast = answered(app, request_)
    without_fast_path(monkeypatch)
    assert answered(app, request_) == fast


@pytest.mark.parametrize("request_", POSTS)
def test_events_get_the_framework_s_answer(
    app: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch, request_: Request
) -> None:
    assert client.post(f"{MAIN}/events", json={"events": EVENTS}).status_code == 200
    fast = answered(app, request_)
    without_fast_path(monkeypatch)
    assert answered(app, request_) == fast


@pytest.mark.parametrize("given", ["unknown", token("user")])
def test_requests_of_an_adapter_with_a_wrong_token_are_named_once_it_is_silent(
    app: FastAPI, client: TestClient, given: str
) -> None:
    assert client.get(f"{MAIN}/decisions", headers=ADAPTER).status_code == 200
    contact = app.state.clusters["main"].adapter_contact
    wrong: Headers = {"Authorization": f"Bearer {given}"}
    assert answered(app, ("GET", f"{MAIN}/decisions", wrong, ""))[0] in (401, 403)
    assert "refused" not in contact.silence(60)
    contact.last -= 61
    assert "the requests of an adapter are refused: " in contact.silence(60)


@pytest.mark.parametrize("role", ["user", "adapter"])
@pytest.mark.parametrize("plain", [("GET", "decisions", ""), ("POST", "events", BODY)])
def test_a_daemon_that_is_not_ready_gives_the_framework_s_answer(
    app: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch, role: str, plain: tuple[str, str, str]
) -> None:
    assert client.post(f"{MAIN}/events", json={"events": EVENTS}).status_code == 200
    monkeypatch.setattr(app.state.clusters, "ready", False)
    method, path, body = plain
    headers: Headers = {"Authorization": f"Bearer {token(role)}", **(JSON if body else {})}
    request = (method, f"{MAIN}/{path}", headers, body)
    fast = answered(app, request)
    assert fast[0] == 503
    without_fast_path(monkeypatch)
    assert answered(app, request) == fast


def test_a_chunked_body_takes_the_framework_s_route(
    app: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(exchange_fast_path, "_plain_delivery", parsed.append)
    headers: Headers = {**ADAPTER, **JSON, "Content-Length": "20", "Transfer-Encoding": "chunked"}
    assert client.app is app
    assert answered(app, ("POST", f"{MAIN}/events", headers, BODY))[0] == 200
    assert parsed == []


def test_plain_requests_take_the_fast_path(
    app: FastAPI, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the framework's route was taken")

    monkeypatch.setattr(app.router, "app", refuse)
    monkeypatch.setattr(type(app.router), "__call__", refuse)
    app.state.callers = Callers(tokens())
    posted = client.post(f"{MAIN}/events", headers=ADAPTER, json={"events": EVENTS})
    assert (posted.status_code, posted.json()["accepted"]) == (200, len(EVENTS))
    polled = client.get(f"{MAIN}/decisions", headers=ADAPTER, params={"wait": "0", "limit": "250"})
    assert polled.status_code == 200
    assert posted.headers["Schedd-Clock"] == polled.headers["Schedd-Clock"] == f"{T:.3f}"


def test_the_reply_to_events_has_the_decisions_that_a_poll_would_fetch(client: TestClient) -> None:
    headers = {**ADAPTER, "Schedd-Adapter": "one"}
    client.post(f"{MAIN}/events", headers=headers, json={"events": EVENTS[:-1]})
    before = client.get(f"{MAIN}/decisions", headers=headers).json()
    assert before["last"]
    posted = client.post(
        f"{MAIN}/events", headers={**headers, "Schedd-After": before["last"]}, json={"events": EVENTS[-1:]}
    ).json()
    fetched = client.get(f"{MAIN}/decisions", headers=headers, params={"after": before["last"]}).json()
    assert fetched["decisions"]
    assert (posted["decisions"], posted["last"]) == (fetched["decisions"], fetched["last"])


def test_without_a_position_the_reply_to_events_has_no_decisions(client: TestClient) -> None:
    posted = client.post(f"{MAIN}/events", headers=ADAPTER, json={"events": EVENTS}).json()
    assert (posted["decisions"], posted["last"]) == ([], "")


def test_an_unnamed_adapter_gets_decisions_in_the_reply_to_events(client: TestClient) -> None:
    client.post(f"{MAIN}/events", headers=ADAPTER, json={"events": EVENTS[:-1]})
    before = client.get(f"{MAIN}/decisions", headers=ADAPTER).json()
    headers = {**ADAPTER, "Schedd-After": before["last"]}
    posted = client.post(f"{MAIN}/events", headers=headers, json={"events": EVENTS[-1:]}).json()
    assert posted["decisions"]
    assert posted["last"] == posted["decisions"][-1]["id"]


@pytest.mark.parametrize("headers", [JSON, {"Content-Type": "application/json; charset=utf-8"}])
def test_events_are_acknowledged_when_stored_if_the_planner_is_busy(
    app: FastAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headers: Headers
) -> None:
    durable = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/s.sqlite"))
    clusters = Clusters({"main": EngineSettings()}, StillClock(), durable=durable)
    clusters.start(warm=False)
    app.state.clusters = clusters
    loop, over = clusters["main"], threading.Event()
    wait_until(lambda: not loop.on_standby)
    try:
        with TestClient(app, headers={**ADAPTER, **headers}) as client:
            hurried = {"Prefer": "respond-async"}
            busy = loop.call_between_batches(lambda _: over.wait(WAIT_S))
            with monkeypatch.context() as patch:
                patch.setattr(plan_loop, "_MOST_AHEAD", -1)
                patch.setattr(TIMEOUTS, "events", 0.1)
                assert client.post(f"{MAIN}/events", content=BODY, headers=hurried).status_code == 503
            reply = client.post(f"{MAIN}/events", content=BODY, headers=hurried).json()
            assert reply["pending"]
            assert (reply["accepted"], reply["duplicates"]) == (len(EVENTS), [])
            over.set()
            busy.result(WAIT_S)
            reply = client.post(f"{MAIN}/events", content=BODY).json()
            assert not reply["pending"]
            assert reply["duplicates"] == [event["id"] for event in EVENTS]
    finally:
        over.set()
        clusters.stop()
