"""Server-sent events over a real socket."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from schedd.service.access.tokens import Tokens
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.settings.daemon import LimitSettings
from schedd.wire import JobDeleted, JobHeld
from tests.api.conftest import token
from tests.api.served_app import serving
from tests.service.planner_harness import T, event_id, job, node
from tests.waits import WAIT_S, wait_until


@pytest.fixture
def url(app: FastAPI, clusters: Clusters) -> Iterator[str]:
    """The same application, served on a socket."""
    with serving(app, clusters) as found:
        yield f"{found}/v1/clusters/main/stream"
        clusters.end_polls()


class EventStream:
    """Reads the events of one connection."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self._lines = answer.iter_lines()
        self.id = ""

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next event's kind and data."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if not line and "data" in fields:
                self.id = fields["id"]
                return fields["event"], json.loads(fields["data"])
            name, _, value = line.partition(": ")
            fields[name] = value
        raise EOFError


@contextmanager
def follow(url: str, last: str = "", **query: str) -> Iterator[EventStream]:
    headers = {"Authorization": f"Bearer {token('reader')}", **({"Last-Event-ID": last} if last else {})}
    with httpx2.stream("GET", url, params=query, headers=headers, timeout=WAIT_S, trust_env=False) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield EventStream(answer)


def ids(event: dict[str, Any]) -> list[str]:
    return [line["id"] for line in event["changed"]]


def test_changes_follow_the_initial_reset(url: str, loop: PlanLoop) -> None:
    loop.submit([node("n1"), job("1")]).result(WAIT_S)
    with follow(url) as events:
        kind, first = events.next()
        assert (kind, first["changed"], first["gone"]) == ("reset", [], [])
        assert first["generation"] == loop.published.generation
        loop.submit([job("2")]).result(WAIT_S)
        kind, second = events.next()
        assert (kind, ids(second), second["gone"]) == ("changes", ["2"], [])
        line = second["changed"][0]
        assert (line["state"], line["nodes"], line["owner"]) == ("planned", ["n1"], "ann@login")
        assert line["planned_end"] - line["planned_start"] == 3600
        loop.submit([JobDeleted(id=event_id(), time=T, job_id="2")]).result(WAIT_S)
        kind, third = events.next()
        assert (kind, ids(third), third["gone"]) == ("changes", [], ["2"])
        assert third["jobs"]["planned"] == 0


def test_a_stream_can_be_limited_to_a_user_or_job(url: str, loop: PlanLoop) -> None:
    loop.submit([node("n1")]).result(WAIT_S)
    with follow(url, user="bob") as bobs, follow(url, job="3") as third:
        assert bobs.next()[0] == third.next()[0] == "reset"
        loop.submit([job("1"), job("2", user="bob"), job("3")]).result(WAIT_S)
        assert ids(bobs.next()[1]) == ["2"]
        assert ids(third.next()[1]) == ["3"]
        loop.submit([JobDeleted(id=event_id(), time=T, job_id="1")]).result(WAIT_S)
        moved = third.next()[1]["changed"][0]
        assert moved["planned_start"] == T + 3600


def test_a_reconnecting_client_gets_missed_changes(url: str, loop: PlanLoop) -> None:
    loop.submit([node("n1"), job("1")]).result(WAIT_S)
    with follow(url) as events:
        events.next()
        last = events.id
    loop.submit([job("2"), JobDeleted(id=event_id(), time=T, job_id="1")]).result(WAIT_S)
    with follow(url, last) as events:
        kind, missed = events.next()
        assert (kind, ids(missed), missed["gone"]) == ("changes", ["2"], ["1"])
    with follow(url, "another-1") as events:
        assert events.next()[0] == "reset"


def test_a_pause_is_sent_without_moved_jobs(url: str, loop: PlanLoop) -> None:
    loop.submit([node("n1"), job("1")]).result(WAIT_S)
    held = JobHeld(id=event_id(), time=T, job_id="1", holds="u")
    loop.submit([held]).result(WAIT_S)
    with follow(url) as events:
        assert events.next()[1]["paused"] == ""
        loop.pause("storage").result(WAIT_S)
        kind, told = events.next()
        assert (kind, told["paused"], told["changed"]) == ("changes", "storage", [])


def test_streams_end_with_the_daemon(url: str, loop: PlanLoop) -> None:
    with follow(url) as events:
        events.next()
        loop.end_polls()
        with pytest.raises(EOFError):
            events.next()


def test_a_stream_ends_with_its_token(url: str, app: FastAPI, loop: PlanLoop) -> None:
    loop.submit([node("n1")]).result(WAIT_S)
    with follow(url) as events:
        events.next()
        app.state.callers.tokens = Tokens([])
        loop.submit([job("1")]).result(WAIT_S)
        with pytest.raises(EOFError):
            events.next()


def test_idle_stream_ends_with_its_token(
    url: str, app: FastAPI, loop: PlanLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedd.service.cluster.thread_signal._LATE_S", 0.1)
    loop.submit([node("n1")]).result(WAIT_S)
    with follow(url) as events:
        events.next()
        app.state.callers.tokens = Tokens([])
        with pytest.raises(EOFError):
            events.next()


def test_streams_per_user_are_limited(url: str, app: FastAPI) -> None:
    app.state.callers.limits = LimitSettings(streams=1)
    asked: dict[str, Any] = {"headers": {"Authorization": f"Bearer {token('user')}"}, "trust_env": False}
    with httpx2.stream("GET", url, timeout=WAIT_S, **asked) as first:
        assert first.status_code == 200
        lines = first.iter_lines()
        next(lines)
        second = httpx2.get(url, **asked)
        assert (second.status_code, second.json()["detail"]) == (429, "too many streams of our-user")
        with follow(url) as others:
            others.next()
    wait_until(lambda: not app.state.callers._streams)


def test_unknown_filter_and_missing_token_are_refused(url: str) -> None:
    answer = httpx2.get(url, params={"usr": "x"}, headers={"Authorization": f"Bearer {token('reader')}"})
    assert answer.status_code == 422
    assert httpx2.get(url).status_code == 401


def test_opening_and_closing_alerts_are_sent(url: str, loop: PlanLoop) -> None:
    with follow(url) as followed:
        kind, news = followed.next()
        assert (kind, news["alerts"], news["halted"]) == ("reset", [], "")
        loop.adapter_contact.last -= 61
        loop.alerts.update()
        kind, news = followed.next()
        assert (kind, [one["kind"] for one in news["alerts"]]) == ("changes", ["adapter"])
        assert (
            news["stale"]
            == news["halted"]
            == "no contact with an adapter since the daemon started at 2023-11-14 22:13:20 UTC"
        )
        loop.record_adapter_request()
        loop.alerts.update()
        kind, news = followed.next()
        while news["alerts"]:  # the silence ended first
            kind, news = followed.next()
        assert (kind, news["stale"]) == ("changes", "")
