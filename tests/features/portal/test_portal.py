"""Portals: the caller, jobs of all clusters with stable cursors, the calendar feed, and the framed page."""

import base64
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import icalendar
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st

from schedd.api.app import create_app
from schedd.api.iso_times import iso_time
from schedd.client import Client, Endpoint
from schedd.dashboard import add_dashboard
from schedd.engine import EngineSettings, job_histories
from schedd.features.portal import api as portal_api
from schedd.features.portal.calendar_feed import CalendarEvent, ClusterEvents, calendar_text
from schedd.features.portal.job_list import (
    CursorPosition,
    list_records,
    parse_cursor,
    portal_job,
)
from schedd.service.access.callers import Callers
from schedd.service.clusters import Clusters
from schedd.service.read.job_visibility import ALL_JOBS
from schedd.service.settings.auth import AuthSettings
from schedd.service.warmup import warm_up
from schedd.wire import JobDeleted, JobStarted, Reserve, ShareFacts
from tests.api.conftest import token, tokens
from tests.api.served_app import serving
from tests.service.planner_harness import StillClock, T, event_id, job, node
from tests.waits import WAIT_S

USER = "our-user"
HOUR = 3600


@pytest.fixture(scope="module")
def portal_app() -> FastAPI:
    warm_up()
    app = create_app(Clusters({}, StillClock()), tokens())
    add_dashboard(app)
    return app


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    settings = EngineSettings(end_allowance=0)
    found = Clusters({"east": settings, "west": settings}, StillClock())
    found.start(warm=False)
    east, west = found["east"], found["west"]
    running = JobStarted(id=event_id(), time=T, job_id="1.e", shares=(ShareFacts("n1", 4),))
    own = [job(f"{number}.e", user=USER, nodes="1:ppn=4", walltime="3600") for number in range(1, 4)]
    east.submit([node("n1", 4), *own, job("9.e", user="bob", nodes="1:ppn=4")]).result(WAIT_S)
    east.submit([running]).result(WAIT_S)
    west.submit([node("w1", 4), job("1.w", user=USER), job("2.w", user=USER, nodes="1:ppn=9")]).result(WAIT_S)
    yield found
    found.stop()


@pytest.fixture
def app(portal_app: FastAPI, clusters: Clusters) -> FastAPI:
    portal_app.state.clusters = clusters
    portal_app.state.callers = Callers(tokens())
    return portal_app


@pytest.fixture
def user(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, headers={"Authorization": f"Bearer {token('user')}"}) as client:
        yield client


def get(client: TestClient, path: str, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_caller_learns_its_role_clusters_and_next_start(user: TestClient, app: FastAPI) -> None:
    me = get(user, "/v1/me")
    assert (me["name"], me["role"], me["anonymous"], me["now"]) == (USER, "user", False, T)
    assert me["iso"]["now"] == iso_time(T)
    east, west = me["clusters"]
    assert (east["name"], east["running"], east["planned"], east["waiting"]) == ("east", 1, 2, 0)
    assert (east["next_job"], east["next_start"], east["role"]) == ("2.e", T + HOUR, "user")
    assert (west["running"], west["planned"], west["waiting"], west["sees_all_jobs"]) == (1, 0, 1, True)
    app.state.callers.auth = AuthSettings(others="none")
    assert not get(user, "/v1/me")["clusters"][0]["sees_all_jobs"]
    with TestClient(app) as nobody:
        assert nobody.get("/v1/me").status_code == 401


def test_my_jobs_of_all_clusters_have_all_starts_and_moves(user: TestClient, clusters: Clusters) -> None:
    page = get(user, "/v1/jobs", user="me")
    assert [(one["cluster"], one["id"]) for one in page["jobs"]] == [
        *(("east", f"{number}.e") for number in (1, 2, 3)),
        ("west", "1.w"),
        ("west", "2.w"),
    ]
    assert (page["next"], page["now"]) == (None, T)
    second = page["jobs"][1]
    view = get(user, "/v1/clusters/east/jobs/2.e")
    for name in ("expected_start", "planned_start", "displayed_start", "promised_start", "headline", "state"):
        assert second[name] == view[name]
    assert second["planned_start"] == T + HOUR
    assert second["iso"]["planned_start"] == datetime.fromtimestamp(T + HOUR, UTC).strftime("%FT%TZ")
    assert second["iso"]["started"] is None
    assert [one["after"] for one in second["moves"]] == [T + HOUR]
    clusters["east"].submit([JobDeleted(id=event_id(), time=T, job_id="2.e")]).result(WAIT_S)
    moved = get(user, "/v1/jobs", user="me", moves=5, state="planned", cluster="east")["jobs"]
    assert [(one["id"], len(one["moves"])) for one in moved] == [("3.e", 2)]
    assert (moved[0]["moves"][0]["before"], moved[0]["moves"][0]["after"]) == (T + 2 * HOUR, T + HOUR)
    assert len(get(user, "/v1/jobs")["jobs"]) == 5
    assert [one["id"] for one in get(user, "/v1/jobs", user="bob")["jobs"]] == ["9.e"]


def test_cursors_stay_valid_while_jobs_move_and_end(user: TestClient, clusters: Clusters) -> None:
    first = get(user, "/v1/jobs", user="me", limit=2)
    assert [one["id"] for one in first["jobs"]] == ["1.e", "2.e"]
    # The last job of the page goes, another takes its start, and a new one comes.
    clusters["east"].submit(
        [
            JobDeleted(id=event_id(), time=T, job_id="2.e"),
            job("4.e", user=USER, nodes="1:ppn=4"),
        ]
    ).result(WAIT_S)
    second = get(user, "/v1/jobs", user="me", limit=2, cursor=first["next"])
    third = get(user, "/v1/jobs", user="me", limit=2, cursor=second["next"])
    ids = [one["id"] for page in (second, third) for one in page["jobs"]]
    assert ids == ["3.e", "4.e", "1.w", "2.w"]
    assert third["next"] is None


@given(st.text(max_size=20), st.integers(-(2**40), 2**40), st.text(max_size=20))
def test_a_cursor_is_read_as_it_was_written(cluster: str, submitted: int, name: str) -> None:
    position = CursorPosition(cluster, submitted, name)
    text = position.encode()
    assert text.isascii()
    assert "=" not in text
    assert parse_cursor(text) == position


def test_histories_of_several_jobs_are_those_of_each(clusters: Clusters) -> None:
    loop = clusters["east"]
    gone = [[JobDeleted(id=event_id(), time=T, job_id=name)] for name in ("1.e", "2.e")]
    for events_ in gone:
        loop.submit(events_).result(WAIT_S)
    published = loop.published
    records = [one for one in published.records if one is not None]
    assert records
    for most in (0, 1, 2, 50):
        found = job_histories(published, records, most)
        for record in records:
            changes = [one for one in reversed(published.changes) if record.slot in one.slots]
            assert [one.generation for one in found.get(record.slot, ())] == [
                one.generation for one in changes[:most] if one.number >= published.first_change[record.slot]
            ]


@given(st.text(max_size=40))
def test_other_texts_are_no_cursors(text: str) -> None:
    try:
        parse_cursor(text)
    except ValueError as error:
        assert "take it from `next`" in str(error)


@pytest.mark.parametrize("query", [{"cursor": "x"}, {"cursor": "é"}, {"cluster": "south"}, {"limit": "0"}])
def test_odd_queries_are_refused_with_their_place(user: TestClient, query: dict[str, str]) -> None:
    answer = user.get("/v1/jobs", params=query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["where"] == f"query.{next(iter(query))}"


def test_the_client_lists_own_jobs_of_all_clusters(app: FastAPI, clusters: Clusters) -> None:
    with serving(app, clusters) as url, Client(Endpoint(url, token("user"))) as client:
        assert client.me().name == USER
        assert [one.id for one in client.my_jobs()] == ["1.e", "2.e", "3.e", "1.w", "2.w"]
        assert [one.cluster for one in client.all_jobs(state="running")] == ["east"]


def events(text: bytes) -> dict[str, Any]:
    calendar = icalendar.Calendar.from_ical(text)
    return {str(one["uid"]): one for one in calendar.walk("VEVENT")}


def test_the_calendar_has_jobs_arrays_and_reservations(
    user: TestClient, clusters: Clusters, app: FastAPI
) -> None:
    parts = [job(f"7[{i}].e", user=USER, nodes="1:ppn=4") for i in range(3)]
    parts = [replace(one, job=replace(one.job, array="7[].e")) for one in parts]
    soon = Reserve(
        id=event_id(),
        time=T,
        name="cooling",
        nodes=("n1",),
        start=T + 90 * HOUR,
        end=T + 91 * HOUR,
        reason="pump; fan",
    )
    far = Reserve(id=event_id(), time=T, name="far", nodes=("n1",), start=T + 9_000 * HOUR, end=None)
    clusters["east"].submit([*parts, soon, far]).result(WAIT_S)
    answer = user.get("/v1/me/calendar.ics")
    assert answer.headers["content-type"] == "text/calendar; charset=utf-8"
    assert all(len(line) <= 75 for line in answer.content.split(b"\r\n"))
    found = events(answer.content)
    running = found["job-1.e@east.schedd"]
    assert running["status"] == "CONFIRMED"
    assert running.decoded("dtstart") == datetime.fromtimestamp(T, UTC)
    planned = found["job-2.e@east.schedd"]
    assert (planned["status"], planned["summary"]) == ("TENTATIVE", "2.e likely starts on east")
    assert planned.decoded("dtstart").timestamp() == T + HOUR
    assert planned.decoded("dtend").timestamp() == T + 2 * HOUR
    assert "at the latest" in planned["description"]
    array = found["array-7[].e@east.schedd"]
    assert "3 planned" in array["summary"]
    cooling = found["reservation-cooling@east.schedd"]
    assert (str(cooling["description"]), str(cooling["location"])) == ("pump; fan", "n1")
    assert "reservation-far@east.schedd" not in found
    assert "job-9.e@east.schedd" not in found
    assert not any("2.w" in uid for uid in found), "it has no start"
    only = events(user.get("/v1/me/calendar.ics", params={"show": "reservations"}).content)
    assert list(only) == ["reservation-cooling@east.schedd"]
    # Calendar programs send the token as a password.
    with TestClient(app) as program:

        def send(path: str, pair: str) -> int:
            encoded = base64.b64encode(pair.encode()).decode()
            return program.get(path, headers={"Authorization": f"Basic {encoded}"}).status_code

        calendar = "/v1/me/calendar.ics"
        assert send(calendar, f"anything:{token('user')}") == 200
        assert (send(calendar, "our-user:wrong"), send(calendar, "")) == (401, 401)
        assert send("/v1/me", f"anything:{token('user')}") == 401
        refused = program.get(calendar, headers={"Authorization": "Basic !"})
        assert (refused.status_code, refused.headers["www-authenticate"][:6]) == (401, "Basic ")
    assert events(user.get("/dashboard/my-jobs.ics").content).keys() == found.keys()


def test_a_calendar_has_the_jobs_that_start_first(user: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portal_api, "_MAX_CALENDAR_JOBS", 2)
    found = events(user.get("/v1/me/calendar.ics").content)
    assert found.keys() == {"job-1.e@east.schedd", "job-2.e@east.schedd", "job-1.w@west.schedd"}


def test_the_event_of_a_suspended_run_ends_later(clusters: Clusters) -> None:
    loop = clusters["east"]
    runs = portal_job("east", loop.published, ALL_JOBS, loop.published.ids["1.e"], T)
    shown = ClusterEvents("east", T)
    shown.add_job(replace(runs, planned_end=T + 5 * HOUR))
    (event,) = shown.all_events()
    assert (event.start, event.end, runs.planned_end) == (T, T + 5 * HOUR, T + runs.walltime)


def test_an_array_event_counts_the_subjobs_that_are_left_out(clusters: Clusters) -> None:
    loop = clusters["east"]
    parts = [job(f"7[{i}].e", user=USER, nodes="1:ppn=4", walltime="3600") for i in range(3)]
    loop.submit([replace(one, job=replace(one.job, array="7[].e")) for one in parts]).result(WAIT_S)
    shown = ClusterEvents("east", T)
    for row in list_records("east", loop.published, ALL_JOBS, owns=lambda _: True):
        if row.record.facts.array:
            shown.add_job(portal_job("east", loop.published, ALL_JOBS, row.record, T))
    shown.later_subjobs["7[].e"] = 1
    (array,) = shown.all_events()
    assert array.summary == "7[].e: 4 planned"
    assert "its first 3 jobs; 1 start later" in array.text


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_any_text_makes_a_calendar(text: str) -> None:
    shown = ClusterEvents("east", T)
    event = CalendarEvent(f"job-{text}", T, T + 60, f"{text}\r{text}", text, "Job", certain=True, place=text)
    shown.events.append(event)
    written = calendar_text(f"\r{text}\n{text}\n", [shown])
    lines = written.split(b"\r\n")
    assert lines.count(b"BEGIN:VEVENT") == 1
    assert all(32 <= byte != 127 for line in lines for byte in line)
    assert len(events(written)) == 1


def test_only_named_origins_may_frame_the_page_of_jobs(user: TestClient, app: FastAPI) -> None:
    closed = user.get("/dashboard/framed-jobs")
    assert "frame-ancestors 'none'" in closed.headers["content-security-policy"]
    assert closed.headers["x-frame-options"] == "DENY"
    app.state.callers.auth = AuthSettings(frame_origins=("https://portal.example.org",))
    framed = user.get("/dashboard/framed-jobs")
    assert "frame-ancestors https://portal.example.org;" in framed.headers["content-security-policy"] + ";"
    assert "x-frame-options" not in framed.headers
    assert [name in framed.text for name in ("2.e", "1.w", "9.e")] == [True, True, False]
    for path in ("/dashboard/east/my-jobs", "/dashboard/login"):
        other = user.get(path)
        assert "frame-ancestors 'none'" in other.headers["content-security-policy"]
        assert other.headers["x-frame-options"] == "DENY"
    with TestClient(app) as nobody:
        unknown = nobody.get("/dashboard/framed-jobs")
        assert unknown.status_code == 401
        assert "You are not logged in" in unknown.text
        assert "frame-ancestors https://portal.example.org" in unknown.headers["content-security-policy"]


@pytest.mark.parametrize(
    "origin", ["portal.example.org", "https://a/b", "*", "https://a b", "https://a;b", "https://*.a"]
)
def test_a_setting_that_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="is no origin: give scheme, host and port"):
        AuthSettings(frame_origins=(origin,))


def test_a_reservation_without_a_reason_says_only_for_whom_it_is() -> None:
    course = Reserve(
        id="1", time=T, name="course", nodes=("n1",), start=T, end=T + HOUR, users=("ann", "bob")
    )
    found = ClusterEvents("east", T)
    found.add_reservations([course, replace(course, reason="lab")], T + HOUR + 1)
    assert [event.text for event in found.events] == ["For ann, bob", "lab\nFor ann, bob"]
