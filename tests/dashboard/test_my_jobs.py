"""My jobs: landing page, changes since the last visit, and promises at risk."""

import re
from collections.abc import Callable
from dataclasses import replace

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from schedd.wire import JobDeleted, Reserve
from tests.dashboard.conftest import DashboardSite, UserWindow, token
from tests.dashboard.test_pages import AXE, column_texts, iso, time_values
from tests.service.planner_harness import T, event_id, job

Open = Callable[..., UserWindow]


def test_users_land_on_their_jobs_and_others_on_the_plan(open_window: Open, site: DashboardSite) -> None:
    for role, lands in (("user", "my-jobs"), ("reader", "plan")):
        window = open_window()
        page = window.page
        page.goto(f"{site.url}/dashboard/")
        page.locator("input[name=token]").fill(token(role))
        page.keyboard.press("Enter")
        page.wait_for_url(f"**/main/{lands}")


def test_user_sees_only_own_jobs(open_window: Open, site: DashboardSite) -> None:
    page = open_window("user").open_page("my-jobs")
    wanted = site.get_json("/jobs?user=ann")["jobs"]
    wanted.sort(key=lambda one: one["state"] == "running")  # next starts first, running jobs below
    assert [text.strip() for text in column_texts(page, "#mine", 1)] == [one["id"] for one in wanted]
    planned = [one for one in wanted if one["state"] == "planned"]
    rows = "#mine tr[data-state=planned] td"
    assert time_values(page, f"{rows}:nth-child(3) time") == [
        iso(one[name]) for one in planned for name in ("planned_start", "promised_start")
    ]
    assert page.locator(".filter").count() == 0, "nobody else to choose"
    page = open_window("user").open_page("my-jobs?user=bob")
    expect(page.locator("main")).to_contain_text("bob has no jobs in the queue")
    assert "2.server" not in page.content()


def test_readers_can_choose_a_user(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("my-jobs")
    expect(page.locator("main")).to_contain_text("Choose a user")
    page.locator("select[name=user]").select_option("bob")
    page.wait_for_url("**/my-jobs?user=bob")
    expect(page.locator("#mine tbody tr")).to_have_count(2)


def test_changes_since_the_last_visit_are_shown(open_window: Open, site: DashboardSite) -> None:
    window = open_window("user")
    page = window.open_page("my-jobs")
    moved = page.locator("#mine .moved")
    expect(moved).to_have_text([""] * 3)
    window.open_page("queue")
    last = [one for one in site.get_json("/jobs?user=ann")["jobs"] if one["state"] == "planned"][-1]
    site.submit(JobDeleted(id=event_id(), time=T, job_id="2.server"), job("9.server", walltime="60"))
    window.open_page("my-jobs")
    now = {one["id"]: one["planned_start"] for one in site.get_json("/jobs?user=ann")["jobs"]}
    row = page.locator(f"tr[data-key='{last['id']}'] .moved")
    if now[last["id"]] != last["planned_start"]:
        expect(row).to_have_text(re.compile("earlier|later|was planned"))
    expect(page.locator("tr[data-key='9.server'] .moved")).to_have_text("new")
    window.open_page("queue")
    window.open_page("my-jobs")
    expect(moved).to_have_text([""] * page.locator("#mine tbody tr").count())


def test_a_promise_at_risk_is_marked(open_window: Open, site: DashboardSite) -> None:
    window = open_window("user", permissions=["notifications"])
    window.context.add_init_script(
        """window.told = [];
        class Told { constructor(title) { window.told.push(title); } }
        Told.permission = "granted"; Told.requestPermission = async () => "granted";
        window.Notification = Told;"""
    )
    page = window.open_page("my-jobs")
    page.get_by_role("button", name="Notify me").click()
    expect(page.locator("#notify-said")).to_contain_text("You get a notice")
    assert page.evaluate("window.told") == []
    reserve = Reserve(id=event_id(), time=T, name="repair", nodes=("n1", "n2"), start=T, end=T + 90_000)
    site.submit(reserve)
    late = [one for one in site.get_json("/jobs?user=ann&state=planned")["jobs"] if one["at_risk"]]
    assert late
    expect(page.locator("#mine tr[data-risk] td").nth(2)).to_contain_text("(at risk)")
    expect(page).to_have_title(re.compile(rf"^\({len(late)} at risk\)"))
    page.wait_for_function(f"window.told.length === {len(late)}")
    assert page.evaluate("window.told[0]").endswith("promise at risk")


def test_my_jobs_works_without_scripts_and_is_accessible(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader", java_script_enabled=False).open_page("my-jobs?user=ann")
    assert page.locator("#mine tbody tr").count() == 3
    for size in ({"width": 1360, "height": 900}, {"width": 390, "height": 844}):
        page = open_window("user", viewport=size).open_page("my-jobs")
        found = Axe().run(page, options=AXE).response["violations"]
        assert [one["id"] for one in found if one["impact"] in {"serious", "critical"}] == []
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide == 0


def test_an_array_is_one_row_with_its_progress_and_end(open_window: Open, site: DashboardSite) -> None:
    parts = [job(f"20[{index}].server", walltime="600") for index in range(5)]
    named = enumerate(parts)  # as TORQUE names subjobs
    site.submit(
        *(replace(one, job=replace(one.job, array="20[].server", name=f"sweep-{i}")) for i, one in named)
    )
    page = open_window("user").open_page("my-jobs")
    row = page.locator("#mine tr[data-key='20[].server']")
    expect(row.locator(".clip")).to_have_text("sweep")
    expect(row).to_contain_text("5 planned")
    ends = [one["planned_end"] for one in site.get_json("/jobs?user=ann")["jobs"] if one["id"][:3] == "20["]
    assert iso(max(ends)) in time_values(page, "#mine tr[data-key='20[].server'] time")
    expect(row).to_contain_text("all done by")
    row.locator("a").first.click()
    page.wait_for_url("**/queue?q=20*")
    page.goto(f"{site.url}/dashboard/main/jobs/20[].server")
    page.wait_for_url("**/queue?q=20*")
    expect(page.locator("tbody tr[data-key^='20[']")).to_have_count(5)


def test_the_queue_shows_an_array_in_one_row_or_each_subjob(open_window: Open, site: DashboardSite) -> None:
    parts = [job(f"20[{index}].server", walltime="600") for index in range(5)]
    site.submit(*(replace(one, job=replace(one.job, array="20[].server")) for one in parts))
    page = open_window("reader").open_page("queue")
    row = page.locator("#jobs tr[data-key='20[].server']")
    expect(row).to_contain_text("5 planned")
    expect(row).to_contain_text("all done by")
    expect(page.locator(".more")).to_contain_text("6 rows of 10 jobs")
    page.get_by_label("each subjob").check()
    expect(page.locator("#jobs tbody tr[data-key^='20[']")).to_have_count(5)
    page.goto(f"{site.url}/dashboard/main/queue?state=planned")
    expect(row).to_contain_text("5 planned")
    expect(row).not_to_contain_text("all done by")
    row.locator("a").first.click()
    page.wait_for_url("**/queue?q=20*")
    page.goto(f"{site.url}/dashboard/main/jobs/20[].server")
    page.wait_for_url("**/queue?q=20*")
    expect(page.locator("#jobs tbody tr")).to_have_count(5)
