"""Charts in a browser: the page while the plan is loaded, and zooming by dragging over a time."""

import json
import re
from collections.abc import Callable

from playwright.sync_api import Page, Route, expect

from schedd.service.background.plan_metrics_sampler import PlanMetricsSampler
from schedd.wire import JobEnded
from tests.dashboard.conftest import DashboardSite, UserWindow
from tests.service.planner_harness import T, event_id, job

Open = Callable[..., UserWindow]
_INNER = "[...document.querySelectorAll('#plan > :not(.wait)')]"


def test_plan_page_says_that_it_loads_and_shows_no_empty_chart(
    open_window: Open, site: DashboardSite
) -> None:
    page = open_window("reader").page
    held: list[Route] = []
    released = False

    def hold(route: Route) -> None:
        route.continue_() if released else held.append(route)

    page.route(re.compile(r"/main/plan\.json"), hold)
    page.goto(f"{site.url}/dashboard/main/plan")
    page.wait_for_function(f"{_INNER}.length > 0")  # the empty figure is there
    note = page.locator("#plan .wait")
    expect(note).to_be_visible()
    expect(note).to_have_text("Loading the plan of 3 nodes …")
    assert page.evaluate(f"{_INNER}.map((one) => getComputedStyle(one).visibility)") == ["hidden"]
    page.locator("#find").fill("bob")
    page.locator("#find").press("Enter")  # counts as soon as there is something to find
    assert page.locator("#plan[data-ready]").count() == 0
    released = True
    for route in held:
        route.continue_()
    page.wait_for_selector("#plan[data-ready]")
    expect(note).to_have_count(0)
    assert page.evaluate(f"{_INNER}.map((one) => getComputedStyle(one).visibility)") == ["visible"]
    expect(page.locator("#picked")).to_contain_text("bob")


def test_a_plan_that_cannot_be_read_is_named_in_place_of_the_chart(
    open_window: Open, site: DashboardSite
) -> None:
    window = open_window("reader")
    window.page.route(re.compile(r"/main/plan\.json"), lambda route: route.fulfill(status=503))
    window.page.goto(f"{site.url}/dashboard/main/plan")
    expect(window.page.locator("#plan")).to_contain_text("The chart cannot be drawn (the plan: 503)")
    window.wrong = [one for one in window.wrong if "503" not in one]


def shown_times(page: Page, root: str) -> list[float]:
    found: list[float] = page.evaluate(
        f"(() => {{ const r = {figure_model(root, 'x')}; return [r.start, r.end]; }})()"
    )
    return found


def figure_model(root: str, name: str) -> str:
    """A model of the figure in this element, in the page's script's words."""
    views = f"[...Bokeh.index.roots].find((one) => document.querySelector('{root}').contains(one.el))"
    return f"[...{views}.model.references()].find((one) => one.name === '{name}')"


def check_zoom(page: Page, root: str) -> None:
    """Drag over the middle half of the chart: it shows less; a double click shows all again."""
    page.wait_for_selector(f"{root}[data-ready]")
    chart = page.locator(root)
    chart.scroll_into_view_if_needed()
    before = shown_times(page, root)
    box = chart.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.4 * box["width"], y)
    page.mouse.down()
    for share in (0.5, 0.6, 0.7):
        page.mouse.move(box["x"] + share * box["width"], y)
    page.mouse.up()
    range_of_times = figure_model(root, "x")
    page.wait_for_function(f"{range_of_times}.start !== {before[0]} && {range_of_times}.end !== {before[1]}")
    start, end = shown_times(page, root)
    assert before[0] < start < end < before[1]
    assert 0.2 < (end - start) / (before[1] - before[0]) < 0.6
    page.mouse.dblclick(box["x"] + 0.5 * box["width"], y)
    page.wait_for_function(f"{range_of_times}.start === {before[0]} && {range_of_times}.end === {before[1]}")


def test_dragging_over_the_history_of_a_start_zooms(open_window: Open, site: DashboardSite) -> None:
    for number in ("1", "2"):
        site.clock.moment += 60
        ended = JobEnded(id=event_id(), time=T, job_id=f"{number}.server", exit_status=0)
        site.submit(ended)
    planned = [one["id"] for one in site.get_json("/jobs?state=planned")["jobs"]]
    moved = [one for one in planned if len(site.get_json(f"/jobs/{one}/history")["changes"]) > 1]
    page = open_window("reader").open_page(f"jobs/{moved[0]}")
    check_zoom(page, "#chart")
    line = f"((one) => (one.data_source ?? one).data.time[1])({figure_model('#chart', 'since')})"
    page.wait_for_function(f"{line} >= {1_000 * site.clock.moment}")  # planned so until now


def test_dragging_over_the_plan_metrics_zooms(open_window: Open, site: DashboardSite) -> None:
    clusters = site.app.state.clusters
    sampler = PlanMetricsSampler(site.loop, clusters.metrics_logs["main"], 60)
    for number in range(3):
        sampler.sample()
        site.clock.moment += 300
        site.submit(job(f"6{number}.server", walltime="900"))
    check_zoom(open_window("reader").open_page("plan-metrics"), "#worth")


def test_dragging_over_published_against_actual_starts_zooms(open_window: Open, site: DashboardSite) -> None:
    """The chart needs a database; here the answer of the daemon gets one with four points."""
    data = json.dumps({"start": [T, T + 600, T + 4_000, T + 9_000], "published": [T, T, T, T + 10_000]})
    chart = (
        '<div id="errors" class="plot card" data-figure="/dashboard/-/figures/errors.json"></div>'
        f'<script type="application/json" id="errors-data">{data}</script></main>'
    )

    def add_chart(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace("</main>", chart))

    page = open_window("reader").page
    page.route(re.compile(r"/main/plan-metrics$"), add_chart)
    page.goto(f"{site.url}/dashboard/main/plan-metrics")
    check_zoom(page, "#errors")
