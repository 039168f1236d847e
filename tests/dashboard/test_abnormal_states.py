"""Pages in abnormal states: no data, a stale plan, a daemon that is not ready."""

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.exceptions import FastAPIDeprecationWarning
from fastapi.testclient import TestClient
from markupsafe import escape
from playwright.sync_api import Browser, expect

from schedd.api.app import create_app
from schedd.api.problems import ProblemError
from schedd.dashboard import add_dashboard
from schedd.dashboard.filters import capitalise_first, format_figure
from schedd.dashboard.start_changes import group_changes
from schedd.engine import EngineSettings
from schedd.engine.facts.texts import NOT_ANNOUNCED
from schedd.engine.show.job_view import Change
from schedd.policy.site import site_policy
from schedd.service.access.callers import Callers
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.clusters import Clusters
from schedd.service.settings.auth import AuthSettings
from schedd.service.settings.daemon import LimitSettings, StoreSettings
from schedd.start_sentence import NEVER
from schedd.store.records import JobHistory
from schedd.wire import (
    ExpectedFacts,
    JobDeleted,
    JobEnded,
    JobStarted,
    PlanningHeld,
    QueueChanged,
    QueueFacts,
    Run,
    RunAccepted,
    ShareFacts,
    Snapshot,
    StartsExpected,
)
from tests.dashboard.conftest import DashboardSite, UserWindow, token, tokens
from tests.service.planner_harness import StillClock, T, event_id, job, node
from tests.waits import WAIT_S

Open = Callable[..., UserWindow]
SITE: dict[str, Any] = {
    "priority": {"fair_share": 100.0, "waiting": 1.0},
    "classes": {"ann": {"points": 7, "users": ["ann"]}},
    "fair_share": {"levels": ["user"], "shares": {"ann": 2, "bob": 1}},
}
PAGES = ["plan", "queue", "nodes", "what-if", "plan-metrics"]


def post_json(
    server: tuple[str, FastAPI], clusters: Clusters, clock: StillClock | None = None
) -> DashboardSite:
    url, app = server
    app.state.clusters = clusters
    app.state.callers = Callers(tokens())
    return DashboardSite(url, app, clock or StillClock())


@pytest.fixture
def blank(server: tuple[str, FastAPI]) -> Iterator[DashboardSite]:
    """A cluster without data."""
    clusters = Clusters({"main": EngineSettings()}, StillClock())
    clusters.start(warm=False)
    yield post_json(server, clusters)
    clusters.stop()


@pytest.fixture
def site_with_database(server: tuple[str, FastAPI], tmp_path: Path) -> Iterator[DashboardSite]:
    """A cluster with a database and a job that started at its estimate."""
    durable = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/main.sqlite"))
    clock = StillClock()
    clusters = Clusters({"main": EngineSettings()}, clock, durable=durable)
    clusters.start(warm=False)
    while clusters["main"].on_standby:
        time.sleep(0.01)
    site = post_json(server, clusters, clock)
    site.submit(node("n1"), job("1.server"))
    found = site.loop.decisions.page_after("", 100).decisions
    run = next(one for one in found if isinstance(one, Run))
    site.submit(
        RunAccepted(id=event_id(), time=T, decision_id=run.id, job_id="1.server"),
        JobStarted(id=event_id(), time=T, job_id="1.server", shares=run.shares),
    )
    yield site
    clusters.stop()


@pytest.mark.parametrize("path", PAGES)
def test_pages_without_data_explain_it(blank: DashboardSite, path: str) -> None:
    with httpx2.Client(base_url=f"{blank.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("reader")})
        answer = client.get(f"/main/{path}")
        columns = client.get("/main/plan.json").json()
    assert answer.status_code == 200
    words = {
        "plan": "No nodes yet",
        "queue": "No jobs on this cluster",
        "nodes": "No nodes yet",
    }
    assert words.get(path, "") in answer.text
    assert (columns["nodes"]["name"], columns["jobs"]["id"]) == ([], [])


def test_stale_plan_is_marked(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("queue")
    expect(page.locator("#pulse")).to_contain_text("Live")
    site.submit(Snapshot(id=event_id(), time=T, jobs=(), nodes=(), queues=(), complete=False))
    assert site.get_json("")["stale"]
    expect(page.locator("#alerts")).to_contain_text("This plan may be out of date")
    expect(page.locator("#alerts")).to_contain_text(capitalise_first(site.get_json("")["stale"]))
    expect(page.locator("#pulse")).to_contain_text("Stale")
    expect(page.locator("#list tbody tr")).to_have_count(5)


@pytest.mark.parametrize("path", [*PAGES, "jobs/4.server", "admin"])
def test_every_page_reports_a_stale_plan_and_stopped_starts(site: DashboardSite, path: str) -> None:
    site.submit(Snapshot(id=event_id(), time=T, jobs=(), nodes=(), queues=(), complete=False))
    stale, halted = site.get_json("")["stale"], site.get_json("")["halted"]
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        answer = client.get(f"/main/{path}")
    assert answer.status_code == 200
    assert stale in halted
    words = "<strong>This plan may be out of date, and no jobs are started.</strong>"
    assert f"{words} {escape(capitalise_first(stale))}" in answer.text


@pytest.mark.parametrize("path", [*PAGES, "jobs/4.server", "admin"])
def test_every_page_reports_a_silent_adapter_until_its_return(site: DashboardSite, path: str) -> None:
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        assert "No contact with the adapter" not in client.get(f"/main/{path}").text
        site.loop.adapter_contact.last -= 61
        answer = client.get(f"/main/{path}").text
        words = "and no jobs are started.</strong> No contact with the adapter since "
        assert words in answer
        assert path != "admin" or '<span class="dot bad"></span>' in answer
        site.loop.record_adapter_request()
        assert words not in client.get(f"/main/{path}").text


def test_the_database_is_named_and_not_the_planner_that_waits_for_it(
    site: DashboardSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk can be read, so the database was in order and the planner had failed."""
    why = "sqlite:////var/lib/schedd.sqlite: database or disk is full"
    monkeypatch.setattr(type(site.loop), "trouble", property(lambda _: why))
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        text = client.get("/main/admin").text
    assert f"<strong>The database is unavailable; no jobs are started.</strong> {why}" in text
    database, planner = (
        re.search(rf'<th scope="row">{name}</th>.*', text)[0]  # type: ignore[index]
        for name in ("Database", "Planner")
    )
    assert why in database
    assert "waiting for the database" in planner


def test_a_jobs_page_does_without_reasons_while_the_planner_is_busy(
    site: DashboardSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_loop: object, _job: str) -> None:
        raise ProblemError("not-ready", "the planner is busy with something else")

    monkeypatch.setattr("schedd.dashboard.pages.queue.fetch_priority", refuse)
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        answer = client.get("/main/jobs/4.server")
    assert answer.status_code == 200
    assert "because the planner is busy" in answer.text
    assert 'id="answer"' in answer.text


def test_open_page_reports_a_silent_adapter_without_reload(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("queue")
    expect(page.locator("#pulse")).to_contain_text("Live")
    site.loop.adapter_contact.last -= 61
    expect(page.locator("#pulse")).to_contain_text("Stale")
    expect(page.locator("#alerts")).to_contain_text("No contact with the adapter")
    site.loop.record_adapter_request()
    expect(page.locator("#pulse")).to_contain_text("Live")


def test_every_page_names_the_command_that_helps_to_those_who_may_run_it(site: DashboardSite) -> None:
    site.loop.adapter_contact.last -= 61
    shown = {}
    for role in ("user", "reader", "operator", "admin"):
        with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
            client.post("/login", data={"token": token(role)})
            pages = [client.get(f"/main/{path}").text for path in ("plan", "queue")]
            shown[role] = ['class="help"' in page for page in pages]
    assert shown == {
        "user": [False, False],
        "reader": [False, False],
        "operator": [True, True],
        "admin": [True, True],
    }


def test_open_alerts_are_listed_for_operators_and_shown_on_every_page(
    open_window: Open, site: DashboardSite
) -> None:
    started = JobStarted(id=event_id(), time=T, job_id="99.server", shares=(ShareFacts("n1", 1),))
    site.submit(started)
    page = open_window("operator").open_page("admin")
    words = f"job 99.server {NOT_ANNOUNCED}"
    expect(page.locator("#alerts-open tbody tr").filter(has_text=words)).to_have_count(1)
    expect(page.locator("#alerts-open")).to_contain_text(words)
    shown = {}
    for role in ("user", "operator"):
        with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
            client.post("/login", data={"token": token(role)})
            shown[role] = words[1:] in client.get("/main/queue").text
    assert shown == {"user": False, "operator": True}


def test_past_start_is_shown_as_overdue(site: DashboardSite) -> None:
    start = site.get_json("/jobs/4.server")["planned_start"]
    site.clock.moment = start + 600
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        shown = [client.get(f"/main/{path}").text for path in ("queue", "jobs/4.server")]
    assert ["due for 10 min" in page for page in shown] == [True, True]


def test_an_overdue_job_names_only_the_pause(site: DashboardSite) -> None:
    start = site.get_json("/jobs/4.server")["planned_start"]
    site.loop.pause("new disks").result(WAIT_S)
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        early = client.get("/main/jobs/4.server").text
        site.clock.moment = start + 600
        late = client.get("/main/jobs/4.server").text
    why = '<p class="why" id="no-starts">Dispatch is paused: new disks.</p>'
    assert [why in page for page in (early, late)] == [True, True]
    offered = "What change would start it now?"
    assert [offered in page for page in (early, late)] == [True, False]
    assert ['id="chain"' in page for page in (early, late)] == [True, False]
    assert "not started: dispatch is paused</p>" in late
    assert "overdue" not in late
    assert "due for" not in late
    assert 'id="blockers"' not in late


def test_a_question_that_takes_too_much_is_no_internal_error(site: DashboardSite) -> None:
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        site.app.state.clusters.questions.end()  # as at the daemon's end, or after the longest time
        answer = client.get("/main/what-if?nodes=1&walltime=1h")
    assert answer.status_code == 422
    assert "The answer takes more work, or longer, than a question may" in answer.text
    assert "internal error" not in answer.text


def test_the_whatif_page_shows_pause_and_held_queues(site: DashboardSite) -> None:
    site.submit(
        node("n4"),
        QueueChanged(id=event_id(), time=T, queue=QueueFacts(name="batch")),
        PlanningHeld(id=event_id(), time=T, kind="queue", name="batch", by="admin", reason="new rules"),
    )
    question = "/main/what-if?nodes=1&walltime=1h"
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        held = client.get(question).text
        named = client.get(f"{question}&queue=batch").text
        site.loop.pause("new disks").result(WAIT_S)
        paused = client.get(question).text
        empty = client.get("/main/what-if?nodes=&ppn=&walltime=")
    assert "Would start as soon as its queue does" in held
    note = "no queue is named: this does not hold for queue batch, which is held: new rules"
    assert f"N{note[1:]}" in held
    assert note in site.post_json("/what-if", {"request": "nodes=1"})["notes"]
    assert "No planned start" in named
    assert "Would start as soon as starts resume" in paused
    assert "Dispatch is paused: new disks." in paused
    assert (empty.status_code, "The form is empty" in empty.text) == (422, True)


@pytest.mark.parametrize(
    ("wish", "status", "said"),
    [
        ("tonight", 200, "met as planned"),
        ("+1m", 200, "not met: planned"),
        ("before friday", 200, "met as planned"),
        ("soon", 422, "write tonight, tomorrow"),
        ("8:00&zone=Mars/Base", 422, "No time zone found"),
    ],
)
def test_the_whatif_page_answers_a_wished_time(
    site: DashboardSite, wish: str, status: int, said: str
) -> None:
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        answer = client.get(f"/main/what-if?nodes=1&ppn=4&walltime=1h&by={wish.replace('+', '%2B')}")
    assert answer.status_code == status
    assert said in answer.text
    assert ('id="wish"' in answer.text) == (status == 200)


def test_a_whatif_keeps_the_promise_for_a_queued_job(site: DashboardSite) -> None:
    promised = site.get_json("/jobs/4.server")["promised_start"]
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        page = client.get("/main/what-if?job=4.server").text
    shown = page.partition('class="big"')[2].partition("</p>")[0]
    assert f"{datetime.fromtimestamp(promised, UTC):%Y-%m-%dT%H:%M:%SZ}" in shown
    assert [words in page for words in ("once it is submitted", "before you submit")] == [False, False]


def test_held_job_shows_its_promise_at_risk(site: DashboardSite) -> None:
    held = PlanningHeld(id=event_id(), time=T, kind="queue", name="batch", by="admin", reason="new rules")
    site.submit(QueueChanged(id=event_id(), time=T, queue=QueueFacts(name="batch")), held)
    view = site.get_json("/jobs/4.server")
    assert (view["planned_start"], view["promised_start"] is None) == (None, False)
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        page = client.get("/main/jobs/4.server").text
        asked = client.get("/main/what-if?job=4.server").text
    shown = page.partition('class="big"')[2].partition("</p>")[0]
    assert f"{datetime.fromtimestamp(view['promised_start'], UTC):%Y-%m-%dT%H:%M:%SZ}" in shown
    assert (" (at risk)" in shown) == (view["at_risk"] is not None)
    assert "What change would start it now?" not in page
    assert "which is held: new rules" in asked


def test_an_impossible_job_shows_its_requirement_once(site: DashboardSite) -> None:
    site.submit(job("9.server", nodes="9:ppn=1"))
    view = site.get_json("/jobs/9.server")
    needs = "it needs 9 nodes; the cluster has 3 that fit"
    assert (view["requirement"], view["notes"]) == (needs, [])
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("admin")})
        page = client.get("/main/jobs/9.server").text
        asks = client.get("/main/what-if?nodes=9&walltime=1h").text
    assert f'<p class="why">{needs}</p>' in page
    assert f'<p class="why">{needs}</p>' in asks
    assert NEVER not in page + asks


def test_move_within_the_same_minute_is_not_listed() -> None:
    moves = [
        Change(T + 9, 3, "e3", "freed", "", T + 3605, T + 3603),
        Change(T + 6, 2, "e2", "altered", "", T + 60, T + 3605),
    ]
    assert [(one.oldest.before, one.newest.after) for one in group_changes(moves)] == [(T + 60, T + 3605)]


def test_pages_name_missing_data_without_the_database(
    site_with_database: DashboardSite, tmp_path: Path
) -> None:
    def pages(*paths: str) -> list[httpx2.Response]:
        with httpx2.Client(
            base_url=f"{site_with_database.url}/dashboard", headers={"Accept": "text/html"}
        ) as client:
            client.post("/login", data={"token": token("admin")})
            return [client.get(f"/main/{path}") for path in paths]

    lost = "Database unavailable"
    assert [lost in page.text for page in pages("plan-metrics", "admin")] == [False, False]
    with closing(sqlite3.connect(tmp_path / "main.sqlite", timeout=WAIT_S)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            database.execute(f"ALTER TABLE {name} RENAME TO gone_{name}")
        database.commit()
    *others, past = pages(
        "plan", "queue", "nodes", "jobs/1.server", "plan-metrics", "admin", "jobs/77.server"
    )
    assert [page.status_code for page in others] == [200] * 6
    assert [lost in page.text for page in others[-2:]] == [True, True]
    assert past.status_code == 503
    assert lost in past.text


def test_pages_report_an_unreachable_daemon(open_window: Open, site: DashboardSite) -> None:
    window = open_window("reader")
    page = window.open_page("queue")
    expect(page.locator("#away")).to_be_hidden()
    page.route("**/main/queue", lambda route: route.abort())
    site.submit(job("50.server"))
    expect(page.locator("#away")).to_contain_text("Connection to the daemon lost")
    page.unroute("**/main/queue")
    site.submit(job("51.server"))
    expect(page.locator("#list tbody")).to_contain_text("51.server")
    expect(page.locator("#away")).to_be_hidden()
    window.wrong = [one for one in window.wrong if "ERR_FAILED" not in one]


def test_pages_report_a_hanging_daemon_within_a_minute(open_window: Open) -> None:
    window = open_window("reader")
    page = window.page
    page.clock.install()
    window.open_page("queue")
    page.route("**/main/queue", lambda _: None)  # it is never answered
    page.clock.run_for(58_000)
    expect(page.locator("#away")).to_be_visible()


def test_page_reloads_once_the_daemon_is_ready(site: DashboardSite) -> None:
    clusters: Clusters = site.app.state.clusters
    clusters.ready = False
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("reader")})
        answer = client.get("/main/plan")
        clusters.ready = True
        assert answer.status_code == 503
        assert '<meta http-equiv="refresh"' in answer.text
        assert "getting ready: the plan is recovered" in answer.text
        assert client.get("/main/plan").status_code == 200


def test_actions_are_audited_and_estimates_are_on_plan_metrics(site_with_database: DashboardSite) -> None:
    with httpx2.Client(
        base_url=f"{site_with_database.url}/dashboard", headers={"Accept": "text/html"}
    ) as client:
        client.post("/login", data={"token": token("admin")})
        csrf = client.get("/main/admin").text.partition('name="csrf" value="')[2].partition('"')[0]
        client.post("/main/admin/pause", data={"csrf": csrf, "reason": "new <b>disks</b>"})
        hold = {"csrf": csrf, "hold_kind": "node", "hold_name": "n1", "hold_reason": "new memory"}
        assert client.post("/main/admin/hold", data=hold).status_code == 303
        assert client.post("/main/admin/release", data=hold).status_code == 303
        weights = {"csrf": csrf, "version": "0", "priority.size": "2", "criteria.wait": "1"}
        assert client.post("/main/admin/weights", data=weights).status_code == 303
        page = client.get("/main/admin").text
        quality = client.get("/main/plan-metrics").text
    acts = site_with_database.app.state.clusters.durable.store.audit_entries()
    assert {act.who for act in acts} == {"our-admin"}
    assert sorted((act.act, act.detail) for act in acts) == [
        ("hold", "node n1: new memory"),
        ("pause", "new <b>disks</b>"),
        ("policy", "version 1"),
        ("release", "node n1"),
    ]
    row = "<td>our-admin</td><td>pause</td><td>new &lt;b&gt;disks&lt;/b&gt;</td>"
    assert row in page
    assert "Broken promises" in quality


def test_plan_metrics_filter_estimates_by_period_queue_and_user(
    site_with_database: DashboardSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ExpectedFacts("3.server", T + 100, T + 500, T + 900, "submission")
    site_with_database.submit(job("3.server"), StartsExpected(id=event_id(), time=T, jobs=(told,)))
    site_with_database.submit(
        JobStarted(id=event_id(), time=T + 160, job_id="3.server", shares=(ShareFacts(node="n1", cpus=4),))
    )
    store = site_with_database.app.state.clusters.durable.store
    for _ in store.record_history(store.find_cluster("main")):
        pass
    one = site_with_database.get_json("/jobs/3.server")
    site_with_database.clock.moment += 600  # beyond its P90
    none = "No expected start of these jobs in this period can be compared."
    with httpx2.Client(
        base_url=f"{site_with_database.url}/dashboard", headers={"Accept": "text/html"}
    ) as client:
        client.post("/login", data={"token": token("reader")})
        for asked in (
            {},
            {"queue": one["queue"], "user": one["owner"].partition("@")[0]},
            {"seconds": 86_400},
        ):
            page = client.get("/main/plan-metrics", params=asked).text
            assert 'data-key="submission-"' in page
            assert ('id="errors"' in page) is ("queue" not in asked)
            assert 'data-label="loss">30 s, 34 s</td>' in page
            assert "At most the latest 100,000 predictions count." in page
        for asked in ({"queue": "other"}, {"user": "<b>nobody"}):
            page = client.get("/main/plan-metrics", params=asked).text
            assert 'data-key="submission-"' not in page
            assert none in page
            assert "<b>nobody" not in page
            assert 'id="errors"' not in page, "that chart is of all jobs"
        for module in ("schedd.store.expected_starts", "schedd.service.read.estimate_accuracy"):
            monkeypatch.setattr(f"{module}.MAX_ROWS", 1)
        page = client.get("/main/plan-metrics").text
        assert re.search(
            r"Only the latest 100,000 predictions count: those published from <time [^<]*</time> on", page
        )
        assert "At most the latest 100,000 planned starts count." in page
        assert client.get("/main/plan-metrics", params={"seconds": 5}).status_code == 422
        site_with_database.clock.moment += 7200
        page = client.get("/main/plan-metrics", params={"seconds": 3600}).text
        assert 'id="errors"' not in page, "that chart is of the period, too"


def test_an_ended_job_has_a_history_page(browser: Browser, site_with_database: DashboardSite) -> None:
    site_with_database.submit(JobEnded(id=event_id(), time=T + 50, job_id="1.server", exit_status=3))
    window = UserWindow(site_with_database, browser.new_context())
    window.log_in("reader")
    store = site_with_database.app.state.clusters.durable.store
    number = store.find_cluster("main")
    for _ in store.record_history(number):
        pass
    page = window.open_page("jobs/1.server")
    past = site_with_database.get_json("/jobs/1/history")["past"]
    assert (past["how"], past["exit_status"], past["started"], past["ended"]) == ("ended", 3, T, T + 50)
    expect(page.locator("#past .big")).to_contain_text("Ended")
    expect(page.locator("#past")).to_contain_text("exit status 3")
    rows = page.locator("#moments tbody tr")
    expect(rows).to_have_count(len(past["moments"]))
    assert len(past["moments"]) >= 3
    expect(rows.last).to_contain_text("ended, exit status 3")
    expect(page.locator("#moments")).to_contain_text("start ordered: accepted")
    expect(page.locator("#past .state")).to_have_text("ended")
    hidden = window.open_page("jobs/77.server")
    expect(hidden.get_by_role("heading")).to_have_text("No such job")
    assert [one for one in window.wrong if "404" not in one] == []
    window.context.close()


def test_page_of_a_moved_job_names_its_destination(site_with_database: DashboardSite) -> None:
    moved = JobDeleted(id=event_id(), time=T, job_id="8.server", moved_to="workq@far")
    site_with_database.submit(job("8.server", user="bob"), moved)
    store = site_with_database.app.state.clusters.durable.store
    for _ in store.record_history(store.find_cluster("main")):
        pass
    past = site_with_database.get_json("/jobs/8/history")["past"]
    assert (past["how"], past["moved_to"]) == ("moved", "workq@far")
    with httpx2.Client(base_url=f"{site_with_database.url}/dashboard") as client:
        client.post("/login", data={"token": token("admin")})
        assert "Moved to workq@far" in client.get("/main/jobs/8.server").text


def test_history_pages_respect_visibility(site_with_database: DashboardSite) -> None:
    site_with_database.submit(
        job("8.server", user="bob"), JobDeleted(id=event_id(), time=T, job_id="8.server")
    )
    store = site_with_database.app.state.clusters.durable.store
    number = store.find_cluster("main")
    for _ in store.record_history(number):
        pass
    site_with_database.app.state.callers = Callers(tokens(), AuthSettings(others="none"))
    assert site_with_database.get_json("/jobs/8/history")["past"]["how"] == "deleted"
    headers = {"Authorization": f"Bearer {token('user')}"}
    answer = httpx2.get(f"{site_with_database.url}/v1/clusters/main/jobs/8/history", headers=headers)
    assert answer.status_code == 404


def test_links_include_the_prefix_removed_by_a_proxy() -> None:
    clusters = Clusters({"main": EngineSettings()}, StillClock())
    clusters.start(warm=False)
    with pytest.warns(FastAPIDeprecationWarning, match="root_path"):
        app = create_app(clusters, Callers(tokens()), root="/hpc/schedd")
    add_dashboard(app)
    headers = {"Accept": "text/html"}
    with TestClient(app, headers=headers, follow_redirects=False, base_url="https://testserver") as client:
        assert client.get("/").headers["location"] == "/hpc/schedd/dashboard/"
        login = client.get("/dashboard/main/queue?q=x").headers["location"]
        assert login == "/hpc/schedd/dashboard/login?next=%2Fmain%2Fqueue%3Fq%3Dx"
        page = client.get("/dashboard/login").text
        assert 'action="/hpc/schedd/dashboard/login"' in page
        address = page.partition('rel="stylesheet" href="/hpc/schedd')[2].partition('"')[0]
        assert client.get(address).status_code == 200
        cookie = client.post("/dashboard/login", data={"token": token("reader")}).headers["set-cookie"]
        assert "Path=/hpc/schedd/dashboard" in cookie
        assert "Secure" in cookie
    clusters.stop()


def test_priorities_and_shares_agree_with_the_api(server: tuple[str, FastAPI]) -> None:
    clusters = Clusters({"main": EngineSettings(site=site_policy(SITE))}, StillClock())
    clusters.start(warm=False)
    site = post_json(server, clusters)
    site.submit(node("n1"), *(job(f"{i}.server", user="ann" if i % 2 else "bob") for i in range(1, 4)))
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("reader")})
        page = client.get("/main/jobs/3.server").text
        shares = client.get("/main/fair-share").text
    terms = site.get_json("/jobs/3.server/priority")["terms"]
    assert terms
    for term in terms:
        name = term["name"].replace("_", " ")
        if not term["points"]:
            assert f">{name}</th>" not in page, "no rows of zeros"
            assert name in page.partition("No points from: ")[2].partition("</p>")[0]
            continue
        assert f"{name}</th>" in page
        assert f'<td class="num">{format_figure(term["points"])}</td>' in page
    places = site.get_json("/fair-share")["places"]
    assert places
    for place in places:
        assert f'{place["path"]}</th><td class="num">{100 * place["target"]:.1f}&nbsp;%</td>' in shares
    clusters.stop()


def test_live_updates_of_a_users_pages_count_as_streams(site: DashboardSite) -> None:
    site.app.state.callers.limits = LimitSettings(streams=1)
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"}) as client:
        client.post("/login", data={"token": token("user")})
        with client.stream("GET", "/main/live") as first:
            assert first.status_code == 200
            lines = first.iter_lines()
            next(lines)
            assert client.get("/main/live").status_code == 429
            assert client.get("/main/queue").status_code == 200


def test_chart_is_read_again_when_an_end_is_known(
    site: DashboardSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    with httpx2.Client(base_url=f"{site.url}/dashboard") as client:
        client.post("/login", data={"token": token("admin")})
        known = {"If-None-Match": client.get("/main/plan.json").headers["ETag"]}
        assert client.get("/main/plan.json", headers=known).status_code == 304
        run: dict[str, Any] = {"started": T - 60, "ended": T - 5, "held": (("n1", 1),), "runs": 1}
        about: dict[str, Any] = {"queue": "batch", "name": "x", "resources": {}, "submitted": T - 90}
        about |= {"id": "9.server", "owner": "ann@host"}
        ended = JobHistory(**about, **run, state="C", exit_status=0, how="ended")
        monkeypatch.setattr("schedd.dashboard.pages.plan.recently_ended", lambda *_: [ended])
        assert client.get("/main/plan.json", headers=known).status_code == 200
