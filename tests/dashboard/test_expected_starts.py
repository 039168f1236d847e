"""Expected starts on pages: a band in the chart, and the queue in their order."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from schedd.engine import EngineSettings
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.wire import ExpectedFacts, StartsExpected
from tests.dashboard.conftest import DashboardSite, T, UserWindow
from tests.dashboard.test_pages import column_texts, model, wait_until_drawn
from tests.service.planner_harness import event_id

Open = Callable[..., UserWindow]
pytestmark = pytest.mark.parametrize(
    "site", [EngineSettings(slack="900").with_changes(predict=True)], indirect=True
)
SECONDS = (2_500, 4_000), (2_000, 5_000)
"""Seconds after T: the expected start and P90 of the jobs planned first and last."""


@pytest.fixture
def jobs_with_expected_starts(site: DashboardSite) -> list[str]:
    """Give two planned jobs expected starts; the one planned later is expected earlier."""
    site.app.state.clusters.service("main", ExpectedStartWorker).stop()
    planned = [one["id"] for one in site.get_json("/jobs?state=planned")["jobs"]]
    jobs = [planned[0], planned[-1]]
    facts = [
        ExpectedFacts(job, T + start, T + by, T + by + 600, "submission")
        for job, (start, by) in zip(jobs, SECONDS, strict=True)
    ]
    site.submit(StartsExpected(id=event_id(), time=T, jobs=tuple(facts)))
    return jobs


def drawn_bands(page: Page) -> list[tuple[float, float]]:
    """Return start and end of each drawn band, in seconds after now."""
    now = page.evaluate(f"{model('now', 'Span')}.location")
    left, right = (
        page.evaluate(f"[...{model('expected', 'ColumnDataSource')}.data.{side}]")
        for side in ("left", "right")
    )
    return sorted(
        {(round((a - now) / 1000), round((b - now) / 1000)) for a, b in zip(left, right, strict=True)}
    )


def test_the_chart_shows_the_expected_start_of_the_selected_job(
    open_window: Open, site: DashboardSite, jobs_with_expected_starts: list[str]
) -> None:
    page = open_window("reader").open_page("plan")
    # Enter counts also while the plan is loaded.
    page.locator("#find").fill(jobs_with_expected_starts[1])
    page.locator("#find").press("Enter")
    wait_until_drawn(page)
    expect(page.locator("#picked")).to_contain_text(re.compile(r"Likely .* \(90 % by "))
    assert drawn_bands(page) == [SECONDS[1]]
    expect(page.locator("#legend")).to_contain_text("likely start")
    expect(page.locator("#legend")).to_contain_text("promise: starts at the latest")
    texts = "[...{}.data.text]"
    labels = [
        text
        for ink in ("light", "dark")
        for text in page.evaluate(texts.format(model(f"{ink}_texts", "ColumnDataSource")))
    ]
    found = jobs_with_expected_starts[1].partition(".")[0]
    assert all(label.split()[0] == found for label in labels), "labels of other jobs are dimmed, too"
    page.locator("#plan").focus()
    page.keyboard.press("Escape")
    assert drawn_bands(page) == []
    page.get_by_role("button", name="tonight").click()
    page.wait_for_url("**from=*")


def test_users_get_only_bands_for_own_jobs(
    open_window: Open, site: DashboardSite, jobs_with_expected_starts: list[str]
) -> None:
    own = [one["id"] for one in site.get_json("/jobs?user=ann")["jobs"]]
    page = wait_until_drawn(open_window("user").open_page("plan"))
    assert drawn_bands(page) == sorted(
        when for job, when in zip(jobs_with_expected_starts, SECONDS, strict=True) if job in own
    )
    assert len(drawn_bands(page)) >= 1
    page.get_by_role("button", name="mine").click()
    expect(page.locator("#find")).to_have_value("ann")
    page.get_by_role("button", name="mine").click()
    expect(page.locator("#find")).to_have_value("")


def test_the_queue_is_sorted_by_likely_start(
    open_window: Open, site: DashboardSite, jobs_with_expected_starts: list[str]
) -> None:
    page = open_window("reader").open_page("queue?state=planned&columns=expected,start")
    likely = [text.split()[0] for text in column_texts(page, "#jobs", 1)]
    assert likely.index(jobs_with_expected_starts[1]) < likely.index(jobs_with_expected_starts[0])
    page.get_by_role("link", name="Planned start").click()
    page.wait_for_url("**sort=start**")
    expect(page.locator("#jobs tbody tr").first).to_contain_text(jobs_with_expected_starts[0])
    by_plan = [text.split()[0] for text in column_texts(page, "#jobs", 1)]
    assert by_plan.index(jobs_with_expected_starts[0]) < by_plan.index(jobs_with_expected_starts[1])
    assert sorted(by_plan) == sorted(likely)
