"""The page of alternative plans in a real browser: search, charts, comparison, application."""

import re
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from playwright.sync_api import expect

from schedd.engine import EngineSettings
from schedd.policy.site import site_policy
from tests.dashboard.conftest import DashboardSite, UserWindow, token
from tests.service.planner_harness import job, node
from tests.waits import WAIT_S

Open = Callable[..., UserWindow]
POWER = {"thrifty": {"idle": 50, "core": 2}, "*": {"idle": 50, "core": 20}}
SITE = EngineSettings(
    slack="1000000",
    search_every=0,
    end_allowance=0,
    site=site_policy({"power": POWER, "prices": [{"core_hour": 1}]}),
)


def submit_more_jobs(site: DashboardSite) -> None:
    """Submit a long job and short ones after the jobs of the fixture."""
    site.submit(node("n2", properties=("thrifty",)))
    site.submit(job("20.server", nodes="2:ppn=4", walltime="36000"))
    site.submit(*(job(f"{i}.server", walltime=f"{(i - 20) * 600}") for i in range(24, 30)))


def planned_starts(site: DashboardSite) -> dict[str, int]:
    return {one["id"]: one["planned_start"] for one in site.get_json("/jobs?state=planned")["jobs"]}


@pytest.mark.parametrize("site", [SITE], indirect=True)
def test_an_operator_searches_plans_and_applies_an_alternative(
    open_window: Open, site: DashboardSite
) -> None:
    submit_more_jobs(site)
    before = planned_starts(site)
    window = open_window("operator")
    page = window.open_page("alternatives")
    expect(page.locator("main")).to_contain_text("No search since the daemon started")
    seconds = 0.5
    found: dict[str, Any] = {}
    while not found.get("plans"):
        page.get_by_label("Search time, s").fill(str(seconds))
        page.locator("#search-form").get_by_label("wait", exact=True).fill("1")
        page.locator("#search-form").get_by_label("energy", exact=True).fill("1")
        with page.expect_navigation():
            page.get_by_role("button", name="Search", exact=True).click()
        expect(page.locator("main").get_by_role("status")).to_contain_text("Search finished")
        found = site.get_json("/alternatives")["set"]
        seconds *= 2  # on a busy machine a search of this time may find nothing
    assert planned_starts(site) == before
    assert found["weights"] == {"wait": 1, "energy": 1}
    expect(page.locator("#plans tbody tr")).to_have_count(len(found["plans"]) + 1)
    expect(page.locator(".front circle")).to_have_count(len(found["plans"]))
    page.get_by_label("X axis").select_option("energy")
    page.get_by_label("Y axis").select_option("wait")
    page.get_by_label("Point size").select_option("energy")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator(".front svg")).to_have_attribute("aria-label", "Plans by energy and wait")
    best = found["plans"][0]
    title = page.locator(f'.front a[aria-label^="Plan {best["number"]}:"] title')
    words = title.text_content() or ""
    assert re.match(rf"Plan 1: {len(best['moves'])} jobs move; .*wait [+-]", words)
    page.get_by_role("link", name="Show jobs that plan 1 moves").click()
    expect(page.locator("#moves tbody tr")).to_have_count(len(best["moves"]))
    page.get_by_role("button", name="Apply plan 1").click()
    expect(page.locator("main").get_by_role("status")).to_contain_text("The plan is in force")
    after = planned_starts(site)
    assert {one["job"]: one["after"] for one in best["moves"]} == {
        one["job"]: after[one["job"]] for one in best["moves"]
    }


@pytest.mark.parametrize("site", [SITE], indirect=True)
def test_outdated_plans_and_invalid_weights_are_refused(open_window: Open, site: DashboardSite) -> None:
    submit_more_jobs(site)
    site.post_json("/alternatives", {"evaluations": 40, "seconds": 20})
    window = open_window("operator")
    page = window.open_page("alternatives?plan=1")
    site.post_json("/alternatives", {"evaluations": 40, "seconds": 20})
    page.get_by_role("button", name="Apply plan 1").click()
    expect(page.get_by_role("alert")).to_contain_text("set 1 is not kept; the latest is 2", ignore_case=True)
    with page.expect_response(lambda answer: "/alternatives" in answer.url) as refreshed:
        site.submit(job("30.server"))
    assert refreshed.value.status == 200
    form = {"seconds": "1", "w_wait": "0"}
    cookies = {one["name"]: one["value"] for one in window.context.cookies()}
    csrf = page.locator("#search-form input[name=csrf]").get_attribute("value") or ""
    answer = _post(site, "search", {**form, "csrf": csrf}, cookies)
    assert answer.status_code == 422
    assert "all weights are 0" in answer.text
    answer = _post(site, "search", {"seconds": "soon", "csrf": csrf}, cookies)
    assert (answer.status_code, "seconds: " in answer.text.lower()) == (422, True)
    assert _post(site, "apply", {"set": "1", "plan": "x", "csrf": csrf}, cookies).status_code == 422
    window.wrong.clear()  # the browser names answers that are not 200


def _post(site: DashboardSite, act: str, form: dict[str, str], cookies: dict[str, str]) -> Any:
    url = f"{site.url}/dashboard/main/alternatives/{act}"
    headers = {"Origin": site.url, "Accept": "text/html"}
    return httpx2.post(url, data=form, cookies=cookies, headers=headers, timeout=WAIT_S)


def test_the_page_is_for_operators(open_window: Open, site: DashboardSite) -> None:
    window = open_window("user")
    page = window.open_page("plan")
    expect(page.get_by_role("link", name="Alternatives")).to_have_count(0)
    cookies = {one["name"]: one["value"] for one in window.context.cookies()}
    answer = httpx2.get(f"{site.url}/dashboard/main/alternatives", cookies=cookies)
    assert answer.status_code == 403
    assert token("user") not in answer.text
