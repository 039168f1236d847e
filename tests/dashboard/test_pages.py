"""Every page in a real browser: its values equal the API's values and follow the plan."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from schedd.dashboard.filters import format_duration
from schedd.service.background.plan_metrics_sampler import PlanMetricsSampler
from schedd.wire import JobDeleted, PlanningHeld, QueueChanged, QueueFacts, Reserve
from tests.dashboard.conftest import DashboardSite, UserWindow
from tests.property_examples import alternate
from tests.service.planner_harness import T, event_id, job, node

Open = Callable[..., UserWindow]
PAGES = [
    "plan",
    "queue",
    "nodes",
    "calendar",
    "jobs/4.server",
    "what-if",
    "what-if?nodes=2&ppn=4&walltime=01:00:00",
    "plan-metrics",
    "alternatives",
    "admin",
]
OF_ONE = ["nodes/n1", "my-jobs?user=ann", "calendar?month=2023-12", "accounts"]
"""Pages of features that not every cluster has."""
AXE = {"resultTypes": ["violations"], "preload": False}  # preloading writes styles, which pages refuse
SCREENS: dict[str, dict[str, Any]] = {
    "desktop": {"viewport": {"width": 1360, "height": 900}},
    "phone in the dark": {
        "viewport": {"width": 390, "height": 844},
        "has_touch": True,
        "color_scheme": "dark",
    },
}


def wait_until_drawn(page: Page) -> Page:
    page.wait_for_selector("#plan[data-ready]")
    return page


def model(name: str, kind: str) -> str:
    """A model of the page's chart, in its script's words."""
    models = "[...[...Bokeh.index.roots][0].model.references()]"
    return f"{models}.find((one) => one.name === '{name}' && one.type === '{kind}')"


def column_texts(page: Page, table: str, number: int) -> list[str]:
    return page.locator(f"{table} tbody tr td:nth-child({number})").all_inner_texts()


def time_values(page: Page, selector: str) -> list[str]:
    found: list[str] = page.eval_on_selector_all(
        selector, "all => all.map(one => one.getAttribute('datetime'))"
    )
    return found


def iso(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}"


def test_plan_page_agrees_with_the_api(open_window: Open, site: DashboardSite) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    about = site.get_json("")
    tiles = page.locator("#tiles b").all_inner_texts()
    assert tiles[:3] == [str(about["jobs"][name]) for name in ("running", "planned", "without_start")]
    soon = site.get_json("/jobs?state=planned")["jobs"]
    assert [text.strip() for text in column_texts(page, "#next", 1)] == [one["id"] for one in soon]
    assert time_values(page, "#next td:nth-child(2) time") == [
        iso(one[name]) for one in soon for name in ("planned_start", "promised_start")
    ]


def test_the_chart_draws_every_job_in_the_plan(open_window: Open, site: DashboardSite) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    bars = page.evaluate(
        f"""() => {{
          const data = {model("bars", "ColumnDataSource")}.data;
          const utc = (x) => (x + new Date(x).getTimezoneOffset() * 60000) / 1000;
          const row = (i) => [utc(data.left[i]), utc(data.right[i]), Math.floor(data.top[i])];
          return [...data.job].map((_, i) => row(i));
        }}"""
    )
    names = ["n1", "n2", "n3"]
    wanted = [
        [one["start"], one["end"], names.index(share["node"])]
        for one in site.get_json(f"/plan?begin={T}&end={T + 10**6}")["jobs"]
        for share in one["nodes"]
    ]
    assert sorted(bars) == sorted(wanted)
    assert wanted


def test_rows_fit_a_phone(open_window: Open) -> None:
    """The start of a job was right of the screen, because a column before it was wide."""
    window = open_window("reader", viewport={"width": 390, "height": 844})
    tables = {"queue": "#jobs", "plan": "#next", "nodes": "#list", "my-jobs?user=ann": "#mine"}
    for path, table in tables.items():
        cells = window.open_page(path).locator(f"{table} tbody td")
        assert cells.count()
        assert (
            cells.evaluate_all(
                "all => all.filter((one) => one.getBoundingClientRect().right > innerWidth).length"
            )
            == 0
        )


def test_new_job_appears_without_reload(open_window: Open, site: DashboardSite) -> None:
    window = open_window("reader")
    page = wait_until_drawn(window.open_page("plan"))
    generation = page.locator("#plan").get_attribute("data-generation")
    site.submit(job("77.server", walltime="60"))
    expect(page.locator("#next")).to_contain_text("77.server")
    expect(page.locator("#plan")).not_to_have_attribute("data-generation", generation or "")
    page = window.open_page("queue?q=88")
    expect(page.locator("#list")).to_contain_text("No matching jobs")
    site.submit(job("88.server"))
    expect(page.locator("#list tbody")).to_contain_text("88.server")
    site.submit(JobDeleted(id=event_id(), time=T, job_id="88.server"))
    expect(page.locator("#list")).to_contain_text("No matching jobs")


def test_updates_preserve_unchanged_elements(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("queue")
    row = page.locator("tr[data-key='2.server']")
    row.evaluate("row => { row.marked = true; }")
    page.locator("tr[data-key='2.server'] a").focus()
    site.submit(job("99.server"))
    expect(page.locator("#list tbody")).to_contain_text("99.server")
    assert row.evaluate("row => row.marked && document.activeElement === row.querySelector('a')")


def queue_order(site: DashboardSite, query: str = "") -> list[str]:
    """The next starts, and then the running jobs by their ends."""
    jobs = site.get_json(f"/jobs{query}")["jobs"]
    waiting = [one["id"] for one in jobs if one["state"] != "running"]
    running = [one for one in jobs if one["state"] == "running"]
    return waiting + [one["id"] for one in sorted(running, key=lambda one: one["planned_end"])]


def test_queue_is_searched_filtered_and_sorted(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("queue")
    everything = queue_order(site)
    rows = page.locator("#list tbody td:first-child a")
    assert rows.all_inner_texts() == everything
    page.get_by_role("searchbox").press_sequentially("bob")
    expect(rows).to_have_text(queue_order(site, "?user=bob"))
    assert "q=bob" in page.url
    page.get_by_role("searchbox").fill("")
    expect(rows).to_have_text(everything)
    page.locator("select[name=user]").select_option("ann")
    expect(rows).to_have_text(queue_order(site, "?user=ann"))
    page.get_by_role("link", name=re.compile("^planned")).click()
    expect(rows).to_have_text([one["id"] for one in site.get_json("/jobs?user=ann&state=planned")["jobs"]])
    page.get_by_role("link", name=re.compile("^Job")).click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text(re.compile("Job"))
    page.get_by_role("link", name=re.compile("^Job")).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text(re.compile("Job"))
    expect(rows.first).to_have_text("5.server")
    page.reload()
    expect(rows.first).to_have_text("5.server")


def test_a_job_page_agrees_with_the_api(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("jobs/4.server")
    shown = site.get_json("/jobs/4.server")
    answer = page.locator("#answer")
    known = [iso(shown[name]) for name in ("planned_start", "promised_start", "planned_end")]
    assert time_values(page, "#answer .big time") == known[:2]
    assert time_values(page, "#details time") == [known[0], known[2], known[1]]
    expect(answer).to_contain_text("n2")
    expect(page.locator("#where td:first-child")).to_have_text(
        [one["node"] for one in shown["planned_nodes"]]
    )
    why = site.get_json("/jobs/4.server/explain")
    links = why["chain"]
    assert time_values(page, "#chain td:nth-child(2) time") == [iso(one["until"]) for one in links]
    assert links[-1]["until"] == shown["planned_start"]
    expect(page.locator("#chain .end")).to_contain_text("This job starts")
    named = page.locator("#chain code").all_inner_texts()
    assert named == [one["id"] for link in links for one in link["jobs"][:3]]
    assert named
    page.get_by_text("Blockers (").click()
    assert column_texts(page, "#blockers", 1) == [f"{one['name']} {one['state']}" for one in why["blockers"]]
    assert why["blockers"]
    moves = site.get_json("/jobs/4.server/history")["changes"]
    assert column_texts(page, "#moves", 4) == [one["words"] or one["cause"] for one in moves]


def test_node_page_agrees_with_the_api(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("nodes")
    nodes = site.get_json("/nodes")["nodes"]
    assert column_texts(page, "#list", 1) == [one["name"] for one in nodes]
    used = [f"{one['cpus'] - one['free_cpus']} of {one['cpus']}" for one in nodes]
    assert column_texts(page, "#list", 3) == used
    assert column_texts(page, "#list", 2) == [
        {"up": "up", "down": "down", "drain": "draining"}[n["state"]] for n in nodes
    ]
    page.get_by_label("State").select_option("down")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    site.submit(node("n2", state="drain"))
    page.get_by_label("State").select_option("drain")
    expect(page.locator("#list tbody td:first-child")).to_have_text("n2")


def test_a_whatif_agrees_with_the_api(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("what-if")
    page.get_by_label("Nodes").fill("2")
    page.get_by_label("Cpus per node").fill("4")
    page.get_by_label("Walltime").fill("00:30:00")
    page.get_by_role("button", name="Show start time").click()
    question = {"request": "nodes=2:ppn=4,walltime=00:30:00", "windows": 8, "changes": True}
    wanted = site.post_json("/what-if", question)
    assert time_values(page, "#answer .big time") == [
        iso(wanted[name]) for name in ("planned_start", "promised_start")
    ]
    assert time_values(page, "#windows td:first-child time") == [
        iso(one["first"]) for one in wanted["windows"]
    ]
    expect(page.locator("#answer")).to_contain_text("n1, n2")
    page.get_by_label("Nodes").fill("1")
    page.get_by_label("Cpus per node").fill("1")
    page.get_by_label("Walltime").fill("2:00:00")
    page.get_by_role("button", name="Show start time").click()
    wanted = site.post_json("/what-if", {**question, "request": "nodes=1:ppn=1,walltime=2:00:00"})
    assert column_texts(page, "#changes", 3) == [one["enough"] or "–" for one in wanted["changes"]]
    page.get_by_label("Nodes").fill("9")
    page.get_by_role("button", name="Show start time").click()
    expect(page.locator("#answer")).to_contain_text("Cannot run")
    before = site.get_json("")["generation"]
    assert site.get_json("/jobs")["generation"] == before


def test_an_invalid_whatif_shows_the_reason(open_window: Open, site: DashboardSite) -> None:
    window = open_window("reader")
    page = window.open_page("what-if?walltime=soon&nodes=1")
    expect(page.get_by_role("alert")).to_contain_text("walltime")
    window.wrong = [one for one in window.wrong if "422" not in one]


def test_a_whatif_accepts_a_queued_job(open_window: Open, site: DashboardSite) -> None:
    page = open_window("user").open_page("jobs/5.server")
    page.get_by_role("link", name="What change would start it now?").click()
    wanted = site.post_json("/what-if", {"job": "5.server", "windows": 8, "changes": True}, "user")
    assert time_values(page, "#answer .big time") == [
        iso(wanted[name]) for name in ("planned_start", "promised_start")
    ]
    expect(page.locator("#answer")).to_contain_text("5.server")


def test_plan_metrics_agree_with_the_api(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("plan-metrics")
    planned = site.get_json("/jobs?state=planned")["jobs"]
    assert sum(map(int, column_texts(page, "#waits", 2))) == len(planned)
    left = [one["promised_start"] - one["planned_start"] for one in planned]
    said = dict(
        zip(
            page.locator("#slacks th[scope=row]").all_inner_texts(),
            column_texts(page, "#slacks", 2),
            strict=True,
        )
    )
    assert said["up to 15 min"] == str(sum(0 < one <= 900 for one in left))
    waits = [one["planned_start"] - one["submitted"] for one in planned]
    assert page.locator("#tiles b").nth(2).inner_text() == format_duration(sum(waits) / len(waits))
    value = {one["criterion"]: one["value"] for one in site.get_json("/plan/evaluation")["criteria"]}
    assert page.locator("#tiles b").nth(5).inner_text() == f"{value['bounded_slowdown']:.3g}"
    assert page.locator("#tiles b").nth(4).inner_text() == format_duration(value["response"])
    criteria = page.eval_on_selector_all("#criteria dd", "all => all.map(one => Number(one.dataset.value))")
    assert criteria == pytest.approx([one["value"] for one in site.get_json("/plan/evaluation")["criteria"]])
    expect(page.locator("main")).to_contain_text("Without a database")


def test_quality_draws_the_criteria_over_time(open_window: Open, site: DashboardSite) -> None:
    clusters = site.app.state.clusters
    sampler = PlanMetricsSampler(site.loop, clusters.metrics_logs["main"], 60)
    window = open_window("reader")
    page = window.open_page("plan-metrics")
    expect(page.locator("#worth-none")).to_be_visible()
    sampler.sample()
    site.clock.moment += 300
    site.submit(job("60.server", walltime="900"))
    sampler.sample()
    page = window.open_page("plan-metrics")
    expect(page.locator("#worth")).to_have_attribute("data-points", "2")
    page.locator("#criterion").select_option("bounded_slowdown")
    drawn_values = page.evaluate(f"[...{model('values', 'ColumnDataSource')}.data.value]")
    kept = site.get_json(f"/plan/evaluation/history?since={T}")["evaluations"]
    assert drawn_values == pytest.approx([one["criteria"]["bounded_slowdown"] for one in kept])
    assert len(kept) == 2
    site.clock.moment += 300
    hold_all_jobs(site)
    sampler.sample()
    page = window.open_page("plan-metrics")
    expect(page.locator("#worth")).to_have_attribute("data-points", "2")
    drawn_values = page.evaluate(f"[...{model('values', 'ColumnDataSource')}.data.value].map(String)")
    assert drawn_values[2:] == ["NaN"], "the line has a gap"


def hold_all_jobs(site: DashboardSite) -> None:
    """Hold the queue of all jobs."""
    site.submit(
        QueueChanged(id=event_id(), time=T, queue=QueueFacts(name="batch")),
        PlanningHeld(id=event_id(), time=T, kind="queue", name="batch", reason="a course", by="an operator"),
    )


def test_without_planned_jobs_there_are_no_criteria_and_their_promises_are_at_risk(
    open_window: Open, site: DashboardSite
) -> None:
    hold_all_jobs(site)
    assert site.get_json("/jobs?state=planned")["jobs"] == []
    risky = site.get_json("")["at_risk"]
    assert risky
    window = open_window("admin")
    page = window.open_page("plan-metrics")
    assert set(page.locator("#criteria dd").all_inner_texts()) == {"–"}
    assert page.locator("#tiles b").all_inner_texts()[2:] == ["–"] * 4
    expect(page.locator("#tiles")).not_to_contain_text("mean")
    row = page.locator('#slacks tr[data-key="no planned start (at risk)"]')
    expect(row.locator("td").first).to_have_text(str(risky))
    expect(row.get_by_role("img")).to_have_attribute("aria-label", "100 %")
    page = window.open_page("admin")
    health = page.locator('#health tr[data-key="Promises"]')
    expect(health).to_contain_text(f"warning: {risky} promise")
    health.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Plan metrics")


def test_a_job_that_leaves_while_shown_is_marked_gone(open_window: Open, site: DashboardSite) -> None:
    window = open_window("reader")
    page = window.open_page("jobs/5.server")
    expect(page.locator("#answer .state")).to_have_text("planned")
    site.submit(JobDeleted(id=event_id(), time=T, job_id="5.server"))
    expect(page.locator("#away")).to_contain_text("This no longer exists")
    page.reload()
    expect(page.locator("main")).to_contain_text("Without a database nothing is kept of jobs that ended")
    window.wrong = [one for one in window.wrong if "404" not in one]


@pytest.mark.parametrize("screen", SCREENS)
def test_axe_finds_nothing_serious_on_any_page(open_window: Open, site: DashboardSite, screen: str) -> None:
    reserved = Reserve(id=event_id(), time=T, name="repair", start=T, end=T + 90_000, nodes=("n1",))
    site.submit(
        reserved, replace(reserved, id=event_id(), name="free", start=T + 1, end=None, users=("ann",))
    )
    window = open_window("admin", **SCREENS[screen])
    for path in alternate([*PAGES, *OF_ONE], odd=screen == "desktop"):
        page = window.open_page(path)
        if path == "plan":
            wait_until_drawn(page)
        found = Axe().run(page, options=AXE).response["violations"]
        grave = [
            (path, one["id"], one["nodes"][0]["html"][:200])
            for one in found
            if one["impact"] in {"serious", "critical"}
        ]
        assert grave == []
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0, f"{path} is {wide} px wider than the screen"


def test_chart_is_moved_and_zoomed_by_keys(open_window: Open, site: DashboardSite) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    time_range = (
        f"(() => {{ const range = {model('times', 'Range1d')}; return [range.start, range.end]; }})()"
    )
    page.locator("#plan").focus()
    first = page.evaluate(time_range)
    page.keyboard.press("ArrowRight")
    moved = page.evaluate(time_range)
    assert moved[0] > first[0]
    assert moved[1] - moved[0] == pytest.approx(first[1] - first[0])
    page.keyboard.press("+")
    zoomed = page.evaluate(time_range)
    assert zoomed[1] - zoomed[0] < first[1] - first[0]
    page.keyboard.press("0")
    everything = page.evaluate(time_range)
    assert everything[1] > first[0]


def test_every_page_works_without_scripts(open_window: Open, site: DashboardSite) -> None:
    """Controls that need scripts are hidden, forms have a button, and times are in UTC."""
    window = open_window("admin", java_script_enabled=False)
    forms = 0
    for path in [*PAGES, *OF_ONE]:
        page = window.open_page(path)
        expect(page.locator("h1"), path).to_be_visible()
        ids = page.locator("[id]").evaluate_all("all => all.map((one) => one.id)")
        twice = [one for one in ids if ids.count(one) > 1]
        assert twice == [], f"{path}: scripts and links would find the first alone"
        expect(page.locator(".script-only:visible"), path).to_have_count(0)
        assert "UTC" in page.locator("#zone").inner_text(), path
        dead = page.locator("main button[type=button]:visible")
        assert dead.count() == 0, (path, dead.first.inner_text())
        for form in page.locator("main form:visible").all():
            if form.locator("input:visible, select:visible").count():
                forms += 1
                assert form.locator("button:visible").count() > 0, f"{path}: nothing sends this form"
        outside = page.locator("main select:visible, main input:visible").evaluate_all(
            "all => all.filter((one) => !one.form).map((one) => one.outerHTML)"
        )
        assert outside == [], f"{path}: a field of no form does nothing"
    assert forms > 3
