"""Visibility of jobs, identities passed on by a proxy, and rate limits."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.engine import Breach, Cause, EndedPromise, JobRecord, Risk, render_job
from schedd.engine.facts.texts import RUNS_PAST_WALLTIME
from schedd.service.access.callers import Callers
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.read.job_visibility import JobVisibility
from schedd.service.read.plan_lists import find_record
from schedd.service.settings.auth import AuthSettings
from schedd.service.settings.daemon import LimitSettings
from tests.api.conftest import EVENTS, token, tokens
from tests.api.test_errors import MAIN, problem
from tests.service.planner_harness import T

As = Callable[..., Any]
CLOSED = {"type": "server_changed", "id": "s:1", "time": T, "server": {"open": False}}


@pytest.fixture
def send_as(app: FastAPI, busy_cluster: TestClient) -> Iterator[As]:
    """Sends requests as a user, through a proxy. ann owns the jobs 1, 3 and 5, bob the others."""
    with TestClient(app, headers={"Authorization": f"Bearer {token('proxy')}"}) as client:

        def request_as(user: str, path: str, method: str = "GET", **more: Any) -> Any:
            return client.request(method, path, headers={"X-Remote-User": user}, **more)

        yield request_as


def test_users_see_only_own_jobs_if_the_server_hides_others(send_as: As, busy_cluster: TestClient) -> None:
    everything = send_as("ann", f"{MAIN}/jobs").json()["jobs"]
    assert len(everything) == 5
    busy_cluster.post(f"{MAIN}/events", json={"events": [CLOSED]})
    mine = send_as("ann", f"{MAIN}/jobs").json()["jobs"]
    assert [job["id"] for job in mine] == ["1.server", "3.server", "5.server"]
    assert [job["id"] for job in send_as("ann", f"{MAIN}/jobs?limit=1&user=ann").json()["jobs"]] == [
        "1.server"
    ]
    assert send_as("ann", f"{MAIN}/jobs?user=bob").json()["jobs"] == []
    assert send_as("ann", f"{MAIN}/jobs/3.server").status_code == 200
    # A hidden job gets the same response as an unknown one.
    hidden, gone = (send_as("ann", f"{MAIN}/jobs/{job}") for job in ("2.server", "77.server"))
    hint = problem(hidden, "unknown-job")["hint"].replace("2.server", "77.server")
    assert hint == problem(gone, "unknown-job")["hint"]
    assert "did you mean" not in send_as("ann", f"{MAIN}/jobs/2").json()["hint"]
    assert len(busy_cluster.get(f"{MAIN}/jobs").json()["jobs"]) == 5


def test_blockers_owned_by_other_users_are_only_counted(send_as: As, busy_cluster: TestClient) -> None:
    wide = {**EVENTS[2]["job"], "id": "6.server", "resources": {"nodes": "2:ppn=4", "walltime": "60"}}
    queued = {"type": "job_queued", "id": "w:1", "time": T, "job": wide}
    busy_cluster.post(f"{MAIN}/events", json={"events": [queued, CLOSED]})
    full = busy_cluster.get(f"{MAIN}/jobs/6/explain").json()
    own = send_as("ann", f"{MAIN}/jobs/6/explain").json()
    theirs = [one for one in full["blockers"] if one["owner"].startswith("bob")]
    assert theirs
    assert own["hidden"] == len(theirs)
    assert {one["name"] for one in full["blockers"]} == {"1.server", "2.server"}
    assert own["blockers"] == [one for one in full["blockers"] if one not in theirs]
    assert full["hidden"] == 0
    for hidden in ("bob", *(one["name"] for one in theirs)):
        assert hidden not in json.dumps(own)
    assert send_as("ann", f"{MAIN}/jobs/2.server/explain").status_code == 404


def test_plan_hides_the_owners_using_cpus(send_as: As, busy_cluster: TestClient) -> None:
    busy_cluster.post(f"{MAIN}/events", json={"events": [CLOSED]})
    full, own = (
        answer.json() for answer in (busy_cluster.get(f"{MAIN}/plan"), send_as("ann", f"{MAIN}/plan"))
    )
    times = [[(bar["start"], bar["end"], bar["nodes"]) for bar in plan["jobs"]] for plan in (full, own)]
    assert times[0] == times[1]
    assert [bar["job"] for bar in own["jobs"]] == ["1.server", "", "3.server", "", "5.server"]
    assert "bob" not in json.dumps(own)
    listed = [job for node in send_as("ann", f"{MAIN}/nodes").json()["nodes"] for job in node["jobs"]]
    assert listed == ["1.server"]


@pytest.mark.parametrize(
    ("others", "open_", "count"), [("all", False, 5), ("none", True, 3), ("server", True, 5)]
)
def test_site_can_override_job_visibility(
    app: FastAPI, send_as: As, busy_cluster: TestClient, others: str, open_: bool, count: int
) -> None:
    event = {**CLOSED, "server": {"open": open_}}
    busy_cluster.post(f"{MAIN}/events", json={"events": [event]})
    app.state.callers = Callers(tokens(), AuthSettings(others=others))  # type: ignore[arg-type]
    assert len(send_as("ann", f"{MAIN}/jobs").json()["jobs"]) == count


def test_etags_differ_by_visibility(send_as: As, busy_cluster: TestClient) -> None:
    busy_cluster.post(f"{MAIN}/events", json={"events": [CLOSED]})
    tags = {send_as(user, f"{MAIN}/jobs").headers["etag"] for user in ("ann", "bob")}
    tags.add(busy_cluster.get(f"{MAIN}/jobs").headers["etag"])
    assert len(tags) == 3


def test_explanations_only_count_other_users_jobs(busy_cluster: TestClient, loop: PlanLoop) -> None:
    ann = JobVisibility(Bearer("ann", "user"))
    for said, told in (
        (f"job 2.server {RUNS_PAST_WALLTIME}", f"another user's job {RUNS_PAST_WALLTIME}"),
        (f"job 3.server {RUNS_PAST_WALLTIME}", f"job 3.server {RUNS_PAST_WALLTIME}"),
        (
            "blocked by job 1.server, 2.server, 4.server, long",
            "blocked by job 1.server and 2 jobs of other users, long",
        ),
        ("jobs 8[3].server, 9.a.b", "2 jobs of other users"),
        ("node n1, which is down", "node n1, which is down"),
    ):
        assert ann.redact_text(said, loop.published) == told
        assert JobVisibility().redact_text(said, loop.published) == said
    view = render_job(loop.published, next(one for one in loop.published.records if one is not None))
    cause = Cause.OVERRUN
    risky = replace(
        view, at_risk=Risk(1, "ended 9.server", cause), breaches=(Breach(1, "ended 9.server", cause, 1, 2),)
    )
    seen = ann.redact_view(risky, loop.published)
    assert seen.at_risk is not None
    assert (seen.at_risk.event, [one.event for one in seen.breaches]) == ("", [""])


def test_other_users_jobs_are_not_named_where_ids_lack_the_servers_name(
    busy_cluster: TestClient, loop: PlanLoop
) -> None:
    """As on a TORQUE server with display_job_server_suffix = False."""

    def short(record: JobRecord) -> JobRecord:
        return replace(record, facts=replace(record.facts, id=record.id.partition(".")[0]))

    ann, published = JobVisibility(Bearer("ann", "user")), loop.published
    published = replace(
        published,
        records=tuple(one if one is None else short(one) for one in published.records),
        slotless={one.id: one for one in map(short, published.slotless.values())},
        ids={one.id: one for one in map(short, published.ids.values())},
    )
    for said, told in (
        (f"job 2 {RUNS_PAST_WALLTIME}", f"another user's job {RUNS_PAST_WALLTIME}"),
        (f"job 3 {RUNS_PAST_WALLTIME}", f"job 3 {RUNS_PAST_WALLTIME}"),
        ("jobs 1, 2 and 3 more hold n1", "job 1 and another user's job and 3 more hold n1"),
        ("job 8[3], which came earlier", "another user's job, which came earlier"),
    ):
        assert ann.redact_text(said, published) == told


def test_ended_promise_does_not_name_other_users_jobs(
    busy_cluster: TestClient, loop: PlanLoop, send_as: As, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy_cluster.post(f"{MAIN}/events", json={"events": [CLOSED]})
    record = find_record(loop.published, "1.server")
    assert record is not None
    known = replace(record, ended=EndedPromise(1, "ended 2.server", "it waits for job 2.server", 2))
    monkeypatch.setattr("schedd.api.jobs.find_record", lambda *_: known)
    path = f"{MAIN}/jobs/1.server/history"
    own = send_as("ann", path).json()["promise_ended"]
    assert own == {"time": 1, "event": "", "words": "it waits for another user's job", "promised": 2}
    assert busy_cluster.get(path).json()["promise_ended"]["event"] == "ended 2.server"


def test_proxy_acts_only_for_the_user_that_it_names(app: FastAPI, send_as: As) -> None:
    app.state.callers = Callers(tokens(), AuthSettings(operators=("bob",)))
    assert send_as("bob", f"{MAIN}/resume", "POST").status_code == 200
    assert (
        "ann has the role user" in problem(send_as("ann", f"{MAIN}/resume", "POST"), "not-allowed")["detail"]
    )
    problem(send_as("a b", MAIN), "no-token")
    with TestClient(app) as client:
        # The header without a token, or with another's token, is ignored.
        problem(client.get(MAIN, headers={"X-Remote-User": "bob"}), "no-token")
        headers = {"X-Remote-User": "bob", "Authorization": f"Bearer {token('user')}"}
        problem(client.post(f"{MAIN}/resume", headers=headers), "not-allowed")
        alone = client.get(MAIN, headers={"Authorization": f"Bearer {token('proxy')}"})
        assert "X-Remote-User" in problem(alone, "no-token")["detail"]
        twice = [
            ("Authorization", f"Bearer {token('proxy')}"),
            ("X-Remote-User", "ann"),
            ("X-Remote-User", "bob"),
        ]
        problem(client.get(MAIN, headers=twice), "no-token")


def test_rate_limited_requests_get_a_retry_time(app: FastAPI, send_as: As) -> None:
    app.state.callers = Callers(tokens(), limits=LimitSettings(user_rate=2, refused_rate=1))
    answers = [send_as("ann", MAIN) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 4 + [429]
    assert problem(answers[-1], "too-often")["detail"] == "too many requests of ann"
    assert answers[-1].headers["retry-after"] == "1"
    assert send_as("bob", MAIN).status_code == 200
    with TestClient(app) as client:
        guesses = [client.get(MAIN, headers={"Authorization": f"Bearer {i}"}) for i in range(3)]
        assert [guess.status_code for guess in guesses] == [401, 401, 429]
        # A valid token is accepted although others guess from the same address.
        assert client.get(MAIN, headers={"Authorization": f"Bearer {token('reader')}"}).status_code == 200


def test_tokens_are_not_refused_before_the_store_was_read(app: FastAPI, send_as: As) -> None:
    unread = tokens()
    unread.complete = False
    app.state.callers = Callers(unread)
    with TestClient(app) as client:
        answer = client.get(MAIN, headers={"Authorization": "Bearer whatever"})
        assert "not read yet" in problem(answer, "not-ready")["detail"]


def test_cluster_names_need_credentials(app: FastAPI, send_as: As) -> None:
    with TestClient(app) as client:
        assert "main" not in json.dumps(problem(client.get("/v1/clusters/nain"), "no-token"))


def test_example_events_match_their_users() -> None:
    assert [event["job"]["owner"] for event in EVENTS[2:]] == [
        f"{name}@login" for name in ("ann", "bob") * 2
    ] + ["ann@login"]


def test_history_is_visible_only_to_users_with_access_to_the_job(
    send_as: As, busy_cluster: TestClient
) -> None:
    busy_cluster.post(f"{MAIN}/events", json={"events": [CLOSED]})
    assert send_as("ann", f"{MAIN}/jobs/3.server/history").status_code == 200
    problem(send_as("ann", f"{MAIN}/jobs/2.server/history"), "unknown-job")


def test_proxied_cross_site_changes_are_refused(app: FastAPI, send_as: As) -> None:
    app.state.callers = Callers(tokens(), AuthSettings(operators=("bob",)))
    with TestClient(
        app, headers={"Authorization": f"Bearer {token('proxy')}", "X-Remote-User": "bob"}
    ) as client:
        for foreign in (
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "none"},
            {"Origin": "http://evil.org"},
        ):
            problem(client.post(f"{MAIN}/resume", headers=foreign), "not-allowed")
            assert client.get(MAIN, headers=foreign).status_code == 200
        own = {"Sec-Fetch-Site": "same-origin", "Origin": "http://testserver"}
        assert client.post(f"{MAIN}/resume", headers=own).status_code == 200


def test_responses_cannot_be_framed_or_read_by_other_sites(busy_cluster: TestClient) -> None:
    for path in ("/docs", "/openapi.json", MAIN, "/nowhere"):
        for method in ("GET", "OPTIONS"):
            answer = busy_cluster.request(method, path, headers={"Origin": "http://evil.org"})
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cross-origin-resource-policy"] == "same-origin"
            assert not [name for name in answer.headers if name.startswith("access-control")]
