"""Tables fit a monitor, a tablet and a phone: they wrap, or become cards, before they scroll sideways."""

from collections.abc import Callable

import pytest

from schedd.api.result_views import DeadlineAccuracy
from schedd.dashboard.plan_metrics import AccuracyReport
from schedd.engine import EngineSettings
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.predict import AccuracyFigures
from schedd.service.read.estimate_accuracy import EstimateAccuracy, Horizon
from schedd.store import PromiseBreach
from schedd.store.records import StartAccuracy, StartErrorStatistics
from schedd.wire import ExpectedFacts, StartsExpected
from tests.dashboard.conftest import DashboardSite, T, UserWindow
from tests.service.planner_harness import event_id, job

Open = Callable[..., UserWindow]
PAGES = (
    *("plan", "queue", "queue?dense=1", "nodes", "nodes/n1", "my-jobs?user=ann", "jobs/99[2].server"),
    *("calendar", "what-if?nodes=2&ppn=4&walltime=01:00:00", "plan-metrics", "alternatives", "admin"),
)
SIZES = {"monitor": (1440, 900), "tablet": (768, 1024), "phone": (390, 844)}
TOO_WIDE = """() => [...document.querySelectorAll("main *")]
  .filter((one) => one.clientWidth && one.scrollWidth > one.clientWidth + 1
    && (one.tagName === "TD" || ["auto", "scroll"].includes(getComputedStyle(one).overflowX)))
  .map((one) => `${one.ariaLabel || one.id || one.className}: ${one.scrollWidth} in ${one.clientWidth} px`)"""


def accuracy_report(*_: object, **__: object) -> AccuracyReport:
    """Return a report with all kinds of rows."""
    figures = AccuracyFigures(
        1_234,
        p90_coverage=0.713,
        p50_coverage=0.481,
        median_error=12_345.0,
        plan_median_error=54_321.0,
        error_ratio=0.23,
        pinball_50=6_543.0,
        pinball_90=3_456.0,
        sharpness=2.47,
    )
    rows = [Horizon("submission", lead, figures) for lead in (None, 0, 3_600)]
    rows += [Horizon("waiting", None, figures), Horizon("hour", None, figures)]
    errors = StartErrorStatistics(12_345, -54_321.0, 12_345.0, 98_765.0)
    broken = PromiseBreach("1234567.server", T, "e", "node n1 went down, and no other was free", T, T + 1)
    return AccuracyReport(
        StartAccuracy(errors, {0: errors, 3_600: errors}), EstimateAccuracy(tuple(rows), 1), (), [broken]
    )


@pytest.fixture
def busy_site(site: DashboardSite, monkeypatch: pytest.MonkeyPatch) -> DashboardSite:
    """A site with a long request, forecasts, an ended job, and accuracies."""
    monkeypatch.setattr("schedd.dashboard.pages.plan_metrics.read_accuracy_report", accuracy_report)
    forecasts = (DeadlineAccuracy("waiting", 0.1, 0.2, 12, 0.151, 0.083),)
    monkeypatch.setattr("schedd.dashboard.pages.plan_metrics.deadline_accuracy_rows", lambda _: forecasts)
    site.app.state.clusters.service("main", ExpectedStartWorker).stop()
    site.submit(job("99[2].server", user="ann", nodes="1:ppn=4+1:ppn=2", walltime="1:30:00", mem="12345mb"))
    planned = [one["id"] for one in site.get_json("/jobs?state=planned")["jobs"]]
    expected = tuple(ExpectedFacts(one, T + 9_000, T + 99_000, T + 999_000, "submission") for one in planned)
    site.submit(StartsExpected(id=event_id(), time=T, jobs=expected))
    return site


@pytest.mark.parametrize(
    "site", [EngineSettings.model_validate({"slack": "900", "predict": True})], indirect=True
)
@pytest.mark.parametrize("size", SIZES)
def test_no_table_scrolls_within_itself(open_window: Open, busy_site: DashboardSite, size: str) -> None:
    width, height = SIZES[size]
    window = open_window("admin", viewport={"width": width, "height": height})
    found = {}
    for path in PAGES:
        page = window.open_page(path)
        found[path] = page.evaluate(TOO_WIDE)
        beyond = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert beyond == 0, f"{path} is {beyond} px wider than the screen"
    assert found == {path: [] for path in PAGES}
