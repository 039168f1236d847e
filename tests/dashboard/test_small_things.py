"""What a page says when it cannot do what was asked, and what it takes the words for."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from schedd.dashboard.pages.what_if import Asked, walltime_of
from tests.dashboard.conftest import Look, Site
from tests.dashboard.test_pages import column
from tests.service.build import job

Open = Callable[..., Look]


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("90m", "5400"),
        ("1h", "3600"),
        ("2d", "172800"),
        ("1h30m", "5400"),
        ("1 h 30 min", "5400"),
        ("45s", "45"),
        ("01:30:00", "01:30:00"),
        ("soon", "soon"),
        ("", ""),
    ],
)
def test_walltimes_with_units_are_understood(text: str, taken: str) -> None:
    assert walltime_of(text) == taken


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Asked(nodes="1", walltime="4"), "say the unit: 4h, 4m, 4s"),
        (Asked(nodes="1", mem="16"), "say the unit: 16gb"),
        (Asked(nodes="1", walltime="4h", mem="16gb"), ""),
        (Asked(request="nodes=1,walltime=60"), ""),
    ],
)
def test_a_number_without_a_unit_is_asked_about(asked: Asked, said: str) -> None:
    assert (said in asked.unclear) if said else asked.unclear == ""


def test_the_form_asks_for_the_unit_and_then_answers(look: Open, site: Site) -> None:
    window = look("reader")
    page = window.go("what-if?nodes=1&ppn=1&walltime=4")
    expect(page.get_by_role("alert")).to_contain_text("say the unit: 4h")
    page.get_by_label("Walltime").fill("4h")
    page.get_by_role("button", name="Show start time").click()
    expect(page.locator("#answer")).to_contain_text("04:00:00")
    window.wrong = [one for one in window.wrong if "422" not in one]


def test_a_search_takes_whole_words_first(look: Open, site: Site) -> None:
    site.happen(job("14.server", user="user1"), job("16.server", user="user16"), job("40.server"))
    page = look("reader").go("queue?q=user1")
    assert column(page, "#list", 5) == ["user1"]
    page = look("reader").go("queue?q=4")
    assert [text.split()[0] for text in column(page, "#list", 1)] == ["4.server"]
    page = look("reader").go("queue?q=ser")
    assert page.locator("#list tbody tr").count() == 8


def test_a_page_that_lost_its_daemon_says_so_everywhere(look: Open, site: Site) -> None:
    window = look("reader")
    page = window.go("queue")
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
    assert set(column(page, "#list", 5)) == {"ann"}
    window.wrong = [one for one in window.wrong if "ERR_INTERNET_DISCONNECTED" not in one]


def test_draining_can_be_previewed_without_a_reason(look: Open, site: Site) -> None:
    page = look("operator").go("admin?node=n1#hold")
    page.locator("#hold summary").click() if not page.locator("#hold[open]").count() else None
    page.locator("#hold").get_by_label("Node or queue").fill("n1")
    page.locator("#hold").get_by_role("button", name="Preview").click()
    expect(page.locator("#held")).to_contain_text("Nothing has changed yet")
    assert site.ask("/holds")["holds"] == []
