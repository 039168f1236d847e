"""The section on tighter walltimes of *My jobs*, in a browser."""

import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from schedd.engine import EngineSettings
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.service.clusters import Clusters
from tests.dashboard.conftest import DashboardSite, UserWindow
from tests.dashboard.test_pages import AXE
from tests.property_examples import some
from tests.service.planner_harness import job

SETTINGS: Final = EngineSettings(slack="900").with_changes(predict=True)
SCREENS: Final[dict[str, dict[str, Any]]] = {
    f"{width} px, {scheme}": {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    for width, scheme in ((1440, "light"), (768, "dark"), (390, "light"))
}


@pytest.mark.parametrize("site", [SETTINGS], indirect=True, ids=["predicted"])
@pytest.mark.parametrize("screen", some(list(SCREENS.values()), 2), ids=some(list(SCREENS), 2))
def test_the_gain_of_a_tighter_walltime_is_shown_on_request(
    open_window: Callable[..., UserWindow], site: DashboardSite, screen: dict[str, Any]
) -> None:
    work = {"x.work_units": "12000", "x.work_rate": "10"}
    site.submit(
        job("6.server", user="bob", nodes="2:ppn=4", walltime="7200"),
        job("7.server", user="ann", walltime="7200", **work),
    )
    clusters: Clusters = site.app.state.clusters
    clusters.service("main", ExpectedStartWorker).run_once()
    page = open_window("user", **screen).open_page("my-jobs")
    section = page.locator("#walltimes")
    assert section.locator("table").count() == 0, "it is computed on request"
    section.get_by_role("link").click()
    row = section.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("td")).to_have_text(["7.server", "2 h", "22 min", "3 h", re.compile(r"\d %")])
    expect(section).to_be_in_viewport()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page is too wide"
    found = Axe().run(page, options=AXE).response["violations"]
    assert [one["id"] for one in found if one["impact"] in {"serious", "critical"}] == []
