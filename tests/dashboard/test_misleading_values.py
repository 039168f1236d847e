"""Pages where a plain number would mislead: held queues, draining nodes, passed starts."""

import re
from collections.abc import Iterator

import httpx2
import pytest

from schedd.dashboard.filters import format_time, pluralise
from schedd.engine import EngineSettings
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.start_sentence import NOT_BEFORE_STARTS_RESUME, WHEN_STARTS_RESUME
from schedd.wire import (
    ExpectedFacts,
    JobDeleted,
    NodeChanged,
    NodeFacts,
    PlanningHeld,
    Snapshot,
    StartsExpected,
)
from tests.dashboard.conftest import DashboardSite, token
from tests.service.planner_harness import T, event_id, node


@pytest.fixture
def client(site: DashboardSite) -> Iterator[httpx2.Client]:
    """Logged in as a reader."""
    with httpx2.Client(base_url=f"{site.url}/dashboard/main", headers={"Accept": "text/html"}) as found:
        found.post(f"{site.url}/dashboard/login", data={"token": token("reader")})
        yield found


def hold(kind: str, name: str) -> PlanningHeld:
    return PlanningHeld(id=event_id(), time=T, kind=kind, name=name, reason="new disk")  # type: ignore[arg-type]


def test_jobs_in_a_held_queue_are_counted(site: DashboardSite, client: httpx2.Client) -> None:
    assert "No job has a planned start" not in client.get("/plan").text
    site.submit(hold("queue", "batch"))
    waiting = site.get_json("")["jobs"]["without_start"]
    assert waiting > 1
    page = client.get("/plan").text
    assert f'No job has a planned start; <a href="/dashboard/main/queue">{waiting} wait</a>.' in page
    assert "No jobs wait to start" not in page
    mine = client.get("/my-jobs?user=ann").text
    assert mine.count(">waiting</span>") > 1
    assert mine.count("which is held: new disk") == 1


def test_hidden_jobs_are_not_reported_as_absent(site: DashboardSite) -> None:
    planned = [job["id"] for job in site.get_json("/jobs?user=ann&state=planned")["jobs"]]
    site.submit(*(JobDeleted(id=event_id(), time=T, job_id=job) for job in planned))
    assert site.get_json("")["jobs"]["planned"]
    with httpx2.Client(base_url=f"{site.url}/dashboard/main", headers={"Accept": "text/html"}) as client:
        client.post(f"{site.url}/dashboard/login", data={"token": token("user")})
        page = client.get("/plan").text
    assert "No planned jobs that you may see." in page


def test_totals_name_excluded_cpus(site: DashboardSite, client: httpx2.Client) -> None:
    total = site.get_json("/nodes")["nodes"]
    cpus = {one["name"]: one["cpus"] for one in total}
    site.submit(hold("node", "n2"))
    for path in ("/nodes", "/plan"):
        page = client.get(path).text
        assert f" of {cpus['n1']}; not counted: {cpus['n2']} draining, {cpus['n3']} down" in page


def test_a_draining_node_shows_its_last_end(site: DashboardSite, client: httpx2.Client) -> None:
    (runs,) = [
        job
        for job in site.get_json("/jobs")["jobs"]
        if job["state"] in ("running", "starting") and job["planned_nodes"][0]["node"] == "n2"
    ]
    site.submit(hold("node", "n2"))
    by = format_time(runs["planned_end"])
    table = client.get("/nodes?q=n2").text.partition("<tbody>")[2]
    assert "none while draining" in table
    assert table.partition("empty by ")[2].partition("</time>")[0].endswith(by)
    page = client.get("/nodes/n2").text
    assert page.partition("it is empty by ")[2].partition("</time>")[0].endswith(by)
    assert "All cpus free: not known" not in page
    assert "Without a database nothing is kept of jobs that ended." in page, "it is not known"


def test_the_column_of_requested_memory_is_hidden_if_no_shown_node_has_such_jobs(
    client: httpx2.Client,
) -> None:
    assert "Memory requested" in client.get("/nodes").text
    assert "Memory requested" not in client.get("/nodes?q=n3").text


@pytest.mark.parametrize("site", [EngineSettings(slack="900").with_changes(predict=True)], indirect=True)
def test_passed_and_old_forecasts_are_not_shown_and_tables_show_their_time(
    site: DashboardSite, client: httpx2.Client
) -> None:
    site.app.state.clusters.service("main", ExpectedStartWorker).stop()
    # On a slow machine the worker has published expectations by now: these take the place of that.
    waiting = [one["id"] for one in site.get_json("/jobs?state=planned")["jobs"]]
    facts = [ExpectedFacts(job, T + 60, T + 3000, T + 3600, "submission") for job in waiting]
    site.submit(StartsExpected(id=event_id(), time=T, jobs=tuple(facts)))
    job = waiting[0]
    owner = site.get_json(f"/jobs/{job}")["owner"].partition("@")[0]
    paths = ("/plan", "/queue", f"/my-jobs?user={owner}")
    for moment, passed in ((T, False), (T + 600, True), (T + 3000, True)):
        site.clock.moment = moment
        for path in paths:
            page = client.get(path).text
            assert page.lower().count("forecasts of ") == 1
            assert (
                page.lower()
                .partition("forecasts of ")[2]
                .partition("</time>")[0]
                .endswith(format_time(T).lower())
            )
            assert ("no longer hold" in page) is (moment > T + 900)
            assert ("Likely " in page) is not passed
            assert ("Any time now" in page) is (passed and moment <= T + 900)
        assert ("<b>Any time now</b>" in client.get(f"/jobs/{job}").text) is (passed and moment <= T + 900)
    assert site.get_json(f"/jobs/{job}")["expected_start"] == T + 60


@pytest.mark.parametrize("site", [EngineSettings(slack="900").with_changes(predict=True)], indirect=True)
def test_lists_are_in_the_order_of_the_starts_that_they_show(
    site: DashboardSite, client: httpx2.Client
) -> None:
    """Forecasts that no longer hold had kept their places."""
    site.app.state.clusters.service("main", ExpectedStartWorker).stop()
    planned = [one["id"] for one in site.get_json("/jobs?state=planned")["jobs"]]
    facts = [
        ExpectedFacts(job, T + 4000 - i, T + 4600, T + 9000, "submission") for i, job in enumerate(planned)
    ]
    site.submit(StartsExpected(id=event_id(), time=T, jobs=tuple(facts)))

    def shown() -> list[str]:
        table = client.get("/queue?state=planned").text.partition("<tbody>")[2]
        return re.findall(r'data-key="([^"]+)"', table)

    assert shown() == planned[::-1]
    site.clock.moment = T + 1100  # the first planned start has not come yet
    site.submit(NodeChanged(id=event_id(), time=T + 1100, node=NodeFacts(name="n9", cpus=1)))
    views = {one["id"]: one["displayed_start"] for one in site.get_json("/jobs?state=planned")["jobs"]}
    assert shown() == sorted(views, key=lambda one: (views[one], one))


def test_singular_counts_are_singular() -> None:
    assert [pluralise(n, "job") for n in (0, 1, 2)] == ["jobs", "job", "jobs"]
    assert [pluralise(n, "waits", "wait") for n in (1, 2)] == ["waits", "wait"]


def test_no_list_shows_a_node_that_the_server_has_removed(site: DashboardSite, client: httpx2.Client) -> None:
    kept = tuple(site.loop.published.nodes[name] for name in ("n1", "n2"))
    jobs = tuple(record.facts for record in site.loop.published.records if record is not None)
    site.submit(Snapshot(id=event_id(), time=T, jobs=jobs, nodes=kept))
    assert set(site.loop.published.nodes) == {"n1", "n2", "n3"}
    assert site.get_json("")["nodes"] == 2
    assert [one["name"] for one in site.get_json("/nodes")["nodes"]] == ["n1", "n2"]
    assert '/nodes/n3"' not in client.get("/nodes").text
    assert client.get("/nodes/n3").status_code == 404
    metrics = httpx2.get(f"{site.url}/metrics", headers={"Authorization": f"Bearer {token('admin')}"}).text
    assert 'schedd_nodes{cluster="main",state="up"} 2.0' in metrics
    assert 'schedd_nodes{cluster="main",state="down"}' not in metrics


def test_no_job_starts_now_while_no_jobs_are_started(site: DashboardSite, client: httpx2.Client) -> None:
    site.post_json("/pause", {"reason": "cooling fault"})
    site.submit(node("n3"))
    (view,) = (one for one in site.get_json("/jobs?state=planned")["jobs"] if one["displayed_start"] == T)
    assert view["starts_stopped"]
    assert view["headline"].startswith(WHEN_STARTS_RESUME)
    owner = view["owner"].partition("@")[0]
    assert WHEN_STARTS_RESUME in client.get(f"/my-jobs?user={owner}").text
    assert "Due since" in client.get(f"/jobs/{view['id']}").text
    (later, *_) = (one for one in site.get_json("/jobs?state=planned")["jobs"] if one["planned_start"] > T)
    assert later["headline"].startswith(f"{NOT_BEFORE_STARTS_RESUME}; if that is in time, ")
    for page in (f"/jobs/{later['id']}", f"/what-if?job={later['id']}", "/queue"):
        assert f"<b>{NOT_BEFORE_STARTS_RESUME}</b>" in client.get(page).text, page
