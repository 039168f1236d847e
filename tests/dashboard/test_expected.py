"""Expected starts on pages: a band in the chart, and the queue in their order."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from schedd.engine import EngineSettings
from schedd.wire import ExpectedFacts, StartsExpected
from tests.dashboard.conftest import Look, Site, T
from tests.dashboard.test_pages import column, drawn, model
from tests.service.planner_harness import event_id

Open = Callable[..., Look]
pytestmark = pytest.mark.parametrize("site", [EngineSettings(slack=900, predict=True)], indirect=True)
SECONDS = (4_000, 9_000), (2_000, 5_000)
"""After T: the expected start and by when in nine of ten cases, of the two jobs planned first and last."""


@pytest.fixture
def told(site: Site) -> list[str]:
    """The two planned jobs that have expected starts, by planned start; the later one is expected sooner."""
    site.app.state.clusters.expected_start_workers["main"].stop()
    planned = [one["id"] for one in site.ask("/jobs?state=planned")["jobs"]]
    jobs = [planned[0], planned[-1]]
    facts = [
        ExpectedFacts(job, T + start, T + by, T + by + 600, "submission")
        for job, (start, by) in zip(jobs, SECONDS, strict=True)
    ]
    site.happen(StartsExpected(id=event_id(), time=T, jobs=tuple(facts)))
    return jobs


def bands(page: Page) -> list[tuple[float, float]]:
    """Begin and end of each band drawn, in the chart's seconds after now."""
    now = page.evaluate(f"{model('now', 'Span')}.location")
    left, right = (
        page.evaluate(f"[...{model('expected', 'ColumnDataSource')}.data.{side}]")
        for side in ("left", "right")
    )
    return sorted(
        {(round((a - now) / 1000), round((b - now) / 1000)) for a, b in zip(left, right, strict=True)}
    )


def test_the_chart_shows_expected_starts_for_all_jobs_or_the_selected_job(
    look: Open, site: Site, told: list[str]
) -> None:
    page = drawn(look("reader").go("plan"))
    assert bands(page) == []
    expect(page.locator("#legend")).not_to_contain_text("expected start")
    page.get_by_label("expected starts").check()
    assert bands(page) == sorted(SECONDS)
    expect(page.locator("#legend")).to_contain_text("expected start")
    page.wait_for_url("**expected=1**")
    page.get_by_label("expected starts").uncheck()
    assert bands(page) == []
    page.locator("#find").fill(told[1])
    page.locator("#find").press("Enter")
    expect(page.locator("#picked")).to_contain_text("in nine of ten cases")
    assert bands(page) == [SECONDS[1]]


def test_users_see_only_bands_for_their_own_jobs(look: Open, site: Site, told: list[str]) -> None:
    own = [one["id"] for one in site.ask("/jobs?user=ann")["jobs"]]
    page = drawn(look("user").go("plan"))
    assert bands(page) == sorted(when for job, when in zip(told, SECONDS, strict=True) if job in own)
    assert len(bands(page)) >= 1


def test_the_queue_is_sorted_by_expected_start(look: Open, site: Site, told: list[str]) -> None:
    page = look("reader").go("queue?state=planned")
    first = [text.split()[0] for text in column(page, "#jobs", 1)]
    assert first[0] == told[0]
    page.get_by_role("link", name="Expected start").click()
    page.wait_for_url("**sort=expected**")
    expect(page.locator("#jobs tbody tr").first).to_contain_text(told[1])
    by_expected = [text.split()[0] for text in column(page, "#jobs", 1)]
    assert by_expected[:2] == [told[1], told[0]], "those without one are last"
    assert sorted(by_expected) == sorted(first)
