"""Interpretation of input, error messages, and remembered choices on pages."""

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from schedd.alternatives.objective_weights import Objective
from schedd.dashboard.criterion_help import CRITERION_HELP
from schedd.dashboard.filters import format_change, format_criterion, format_figure, format_time
from schedd.dashboard.health import format_act
from schedd.dashboard.pages.what_if import WhatIfForm, normalize_walltime
from schedd.dashboard.start_changes import group_changes
from schedd.engine.show.job_view import Change
from schedd.plan.criteria import Criterion
from schedd.wire import WattsRead
from tests.dashboard.conftest import DashboardSite, UserWindow
from tests.dashboard.test_pages import column_texts, iso
from tests.service.planner_harness import T, job

Open = Callable[..., UserWindow]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("90m", "01:30:00"),
        ("1h", "01:00:00"),
        ("2d", "48:00:00"),
        ("1h30m", "01:30:00"),
        ("1 h 30 min", "01:30:00"),
        (" 1 d  2 h 3 m 4 s", "26:03:04"),
        ("45s", "00:00:45"),
        ("01:30:00", "01:30:00"),
        ("soon", "soon"),
        ("", ""),
    ],
)
def test_walltimes_with_units_are_understood(text: str, taken: str) -> None:
    assert normalize_walltime(text) == taken


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (WhatIfForm(nodes="1", walltime="4"), "say the unit: 4h, 4m, 4s"),
        (WhatIfForm(nodes="1", mem="16"), "say the unit: 16gb"),
        (WhatIfForm(nodes="1", walltime="4h", mem="16gb"), ""),
        (WhatIfForm(request="nodes=1,walltime=60"), ""),
    ],
)
def test_a_walltime_without_unit_shows_its_interpretation(asked: WhatIfForm, said: str) -> None:
    assert (said in asked.unclear) if said else asked.unclear == ""


def test_criteria_and_changes_are_formatted() -> None:
    assert [format_change(one) for one in (-0.0004, 0.0004, 0.0, 0.015, -0.2)] == [
        *("0 %", "0 %", "0 %", "+1.5 %", "-20.0 %")
    ]
    assert format_criterion(0.6187, "utilisation", "1") == "61.9 %"
    assert format_criterion(7200, "wait", "s") == "2 h"
    assert format_criterion(3, "late_jobs", "jobs") == "3 jobs"
    assert format_criterion(1.23456, "slowdown", "1") == "1.235"


@pytest.mark.parametrize(
    ("value", "words"),
    [(12_345, "12,345"), (1e6, "1,000,000"), (1e-5, "0.00001"), (1e-9, "0"), (-2.5, "-2.5"), (0.0, "0")],
)
def test_figures_have_no_exponents(value: float, words: str) -> None:
    """A cluster of 10,000 nodes had "1.234e+04 jobs" in its plan metrics."""
    assert format_figure(value) == words
    assert format_criterion(value, "late_jobs", "jobs") == f"{words} jobs"


def test_audit_uses_the_same_action_names_as_pages() -> None:
    assert format_act("hold", "node n1: repair") == ("drain", "n1: repair")
    assert format_act("hold", "queue batch: repair") == ("hold", "queue batch: repair")
    assert format_act("alternatives", "x") == ("alternatives", "x")
    assert format_act("search", "") == ("optimise", "")
    assert format_act("resume", "") == ("resume", "")


def test_walltime_is_refused_until_it_has_a_unit(open_window: Open, site: DashboardSite) -> None:
    window = open_window("reader")
    page = window.open_page("what-if?nodes=1&ppn=1&walltime=4")
    expect(page.get_by_role("alert")).to_contain_text("say the unit: 4h", ignore_case=True)
    page.get_by_label("Walltime").fill("4h")
    page.get_by_role("button", name="Show start time").click()
    expect(page.locator("#answer")).to_contain_text("04:00:00")
    window.wrong = [one for one in window.wrong if "422" not in one]


def test_search_prefers_exact_matches(open_window: Open, site: DashboardSite) -> None:
    site.submit(job("14.server", user="user1"), job("16.server", user="user16"), job("40.server"))
    page = open_window("reader").open_page("queue?q=user1")
    assert column_texts(page, "#list", 4) == ["user1"]
    page = open_window("reader").open_page("queue?q=4")
    assert [text.split()[0] for text in column_texts(page, "#list", 1)] == ["4.server"]
    page = open_window("reader").open_page("queue?q=ser")
    assert page.locator("#list tbody tr").count() == 8


def test_page_reports_a_lost_connection_until_its_return(open_window: Open, site: DashboardSite) -> None:
    window = open_window("reader")
    page = window.open_page("queue")
    expect(page.locator("#pulse")).to_contain_text("Live")
    page.wait_for_selector("html.scripted")
    window.context.set_offline(True)
    page.get_by_role("searchbox").fill("bob")
    expect(page.locator("#not-searched")).to_contain_text("Not searched")
    expect(page.locator("#pulse .dot.bad")).to_be_visible()
    expect(page.locator("#pulse")).to_contain_text("Not live")
    window.context.set_offline(False)
    page.get_by_role("searchbox").fill("ann")
    expect(page.locator("#not-searched")).to_have_count(0)
    expect(page.locator("#pulse .dot.good")).to_be_visible()
    assert set(column_texts(page, "#list", 4)) == {"ann"}
    window.wrong = [one for one in window.wrong if "ERR_INTERNET_DISCONNECTED" not in one]


def test_draining_can_be_previewed_without_a_reason(open_window: Open, site: DashboardSite) -> None:
    page = open_window("operator").open_page("admin?node=n1#hold")
    page.locator("#hold").get_by_label("Nodes or queue").fill("n1")
    page.locator("#hold").get_by_role("button", name="Preview").click()
    expect(page.locator("#held")).to_contain_text("Nothing has changed yet")
    assert site.get_json("/holds")["holds"] == []


def test_column_choice_and_density_are_remembered(open_window: Open, site: DashboardSite) -> None:
    window = open_window("reader")
    page = window.open_page("queue")
    page.wait_for_selector("html.scripted")
    heads = page.locator("#jobs thead th")
    assert heads.first.inner_text() == "Job"
    page.locator(".choose summary").click()
    page.locator("[data-column=request]").uncheck()
    page.locator("[data-column=account]").check()
    expect(heads.filter(has_text="Account")).to_have_count(1)
    expect(heads.filter(has_text="Request")).to_have_count(0)
    page.get_by_label("compact rows").check()
    expect(page.locator("#jobs.dense")).to_be_visible()
    assert "dense=1" in page.url
    window.open_page("queue")  # an address without columns has the chosen ones
    expect(page.locator("#jobs.dense thead th").filter(has_text="Account")).to_have_count(1)


def test_queue_table_fits_a_common_screen(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader", viewport={"width": 1440, "height": 900}).open_page("queue")
    box = page.locator("#list .scroll")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_the_csv_export_respects_visibility(open_window: Open, site: DashboardSite) -> None:
    named = job("20.server", user="ann")
    site.submit(replace(named, job=replace(named.job, name="=cmd()")))
    window = open_window("user")  # of ann; others' jobs are hidden here
    answer = window.context.request.get(f"{site.url}/dashboard/main/queue.csv?sort=job")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text())))
    assert [row["job"] for row in rows] == ["1.server", "3.server", "5.server", "20.server"]
    assert rows[-1]["name"] == "'=cmd()"
    shown = site.get_json("/jobs/5.server")
    assert rows[2]["planned_start"] == iso(shown["planned_start"])
    assert int(rows[2]["walltime_s"]) == shown["walltime"]


def test_theme_and_time_zone_are_remembered(open_window: Open, site: DashboardSite) -> None:
    window = open_window("reader", color_scheme="light")
    page = window.open_page("queue")
    first = page.locator("#jobs tbody time").first
    moment = datetime.fromisoformat(first.get_attribute("datetime") or "")
    expect(first).not_to_contain_text(f"{moment:%H:%M}")  # Prague's
    page.locator("#display summary").click()
    page.locator("#theme").select_option("dark")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    page.locator("#times").select_option("UTC")
    expect(first).to_contain_text(f"{moment:%H:%M}")
    expect(page.locator("#zone")).to_have_text("times: UTC")
    window.open_page("plan")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_times_in_another_year_include_it() -> None:
    assert format_time(1_700_000_000) == "Tue 14 Nov 2023 22:13 UTC"
    now = int(datetime.now(UTC).timestamp())
    assert str(datetime.now(UTC).year) not in format_time(now)


def test_consecutive_moves_with_equal_cause_share_a_row() -> None:
    def move(number: int, cause: str, before: int | None, after: int) -> Change:
        return Change(T + number, number, f"e{number}", cause, f"{cause} {number}", before, after)

    moves = [move(4, "freed", 300, 200), move(3, "improved", 350, 300), move(2, "improved", 400, 350)]
    folds = group_changes([*moves, move(1, "arrived", None, 400)])
    assert [(one.count, one.oldest.before, one.newest.after) for one in folds] == [
        (1, 300, 200),
        (2, 400, 300),
        (1, None, 400),
    ]
    assert [one.words for one in folds] == ["freed 4", "improved", "arrived 1"]


def test_a_node_page_lists_running_and_planned_jobs(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("nodes/n1")
    all_jobs = site.get_json("/jobs?limit=1000")["jobs"]
    here = [job for job in all_jobs if any(one["node"] == "n1" for one in job["planned_nodes"])]
    runs = [job["id"] for job in here if job["state"] in ("running", "starting")]
    comes = [job["id"] for job in here if job["state"] == "planned"]
    assert runs
    assert comes
    assert column_texts(page, "#runs", 1) == runs
    assert column_texts(page, "#comes", 1) == comes
    expect(page.locator("nav [aria-current]")).to_have_text("Nodes")
    page.goto(f"{site.url}/dashboard/main/nodes")
    page.locator("#list").get_by_role("link", name="n3", exact=True).click()
    expect(page.locator("h1")).to_contain_text("down")
    expect(page.locator("#runs")).to_contain_text("No running jobs.")


def test_a_node_page_shows_measured_power(open_window: Open, site: DashboardSite) -> None:
    window = open_window("operator")
    page = window.open_page("nodes/n2")
    expect(page.locator("#node")).not_to_contain_text("Power:")
    site.submit(WattsRead(id="w", time=T, nodes=("n2",), watts=(186.4,)))
    page = window.open_page("nodes/n2")
    expect(page.locator("#node")).to_contain_text("Power: 186 W when last measured.")


def test_a_node_page_hides_jobs_from_other_users(open_window: Open, site: DashboardSite) -> None:
    page = open_window("user").open_page("nodes/n2")
    expect(page.locator("#node")).to_contain_text("of other users")
    assert "bob" not in page.locator("main").inner_text()


def test_every_criterion_and_objective_is_explained() -> None:
    assert set(CRITERION_HELP) == {one.value for one in Criterion} | {one.value for one in Objective}


def test_on_a_phone_the_parts_of_a_nodes_free_time_are_apart(open_window: Open) -> None:
    page = open_window("user", viewport={"width": 390, "height": 844}).open_page("nodes")
    texts = page.locator("td.row").all_inner_texts()
    assert [text for text in texts if "no job planned" in text]
    assert not [text for text in texts if re.search(r"\S(for|in) \d|\Sno job planned", text)]
