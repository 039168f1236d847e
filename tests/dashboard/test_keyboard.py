"""Keyboard access: every page can be traversed with Tab, and every action works by keys."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from schedd.engine import EngineSettings
from schedd.service.clusters import Clusters
from schedd.wire import JobDeleted
from tests.dashboard.conftest import DashboardSite, UserWindow, token
from tests.dashboard.test_pages import OF_ONE, PAGES, wait_until_drawn
from tests.property_examples import alternate
from tests.service.planner_harness import T, event_id, job, node

Open = Callable[..., UserWindow]

# What should take the focus, in the order of the document. The stops of one group of arrow keys count once.
STOPS = """() => [...document.querySelectorAll(
    'a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]')]
  .filter((one) => one.tabIndex >= 0 && !one.disabled && one.checkVisibility({ visibilityProperty: true }))
  .map((one, i) => (window.stops.set(one, i), i))"""

# Where the focus is, whether it is marked, and whether it can be seen.
FOCUS = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const style = getComputedStyle(one), box = one.getBoundingClientRect();
  const marked = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const inside = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
  const over = document.elementFromPoint(
    Math.min(Math.max(box.left + box.width / 2, 1), innerWidth - 2),
    Math.min(Math.max(box.top + Math.min(box.height, 40) / 2, 1), innerHeight - 2));
  const covered = !(over && (one.contains(over) || over.contains(one)));
  const seen = inside && box.width > 0 && !covered;
  return { stop: window.stops.get(one), marked, seen, html: one.outerHTML.slice(0, 120) };
}"""


def tab_stops(page: Page) -> list[dict[str, Any]]:
    """Return the stops of the Tab key on a page, and check that none is missing."""
    page.evaluate("() => { window.stops = new Map(); document.activeElement?.blur(); }")
    expected: list[int] = page.evaluate(STOPS)
    found: list[dict[str, Any]] = []
    for _ in range(8 * len(expected)):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUS)
        if at is None or (len(found) > 1 and at["stop"] == found[0]["stop"]):
            break
        if not found or at["stop"] != found[-1]["stop"]:  # a field of a date has stops within
            found.append(at)
    assert [one["stop"] for one in found] == expected, "Tab goes another way than the page is read"
    return found


@pytest.mark.parametrize("phone", [False, True])
def test_the_tab_order_is_complete_and_focus_is_visible(
    open_window: Open, site: DashboardSite, *, phone: bool
) -> None:
    size = {"width": 390, "height": 844} if phone else {"width": 1360, "height": 900}
    window = open_window("operator", viewport=size)
    for path in alternate([*PAGES, *OF_ONE], odd=phone):
        page = window.open_page(path)
        if path == "plan":
            wait_until_drawn(page)
        page.wait_for_selector("html.scripted")
        page.wait_for_function("() => !document.querySelector('[data-later]')")  # parts that come by script
        page.evaluate("() => document.querySelectorAll('details').forEach((one) => one.open = true)")
        found = tab_stops(page)
        assert [one["html"] for one in found if not one["marked"]] == [], f"{path}: the focus is not marked"
        assert [one["html"] for one in found if not one["seen"]] == [], f"{path}: the focus is not in sight"
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Shift+Tab")
        back = page.evaluate(FOCUS)
        assert back is None or back["stop"] in {one["stop"] for one in found[-3:]}, (
            f"{path}: there is no way back"
        )


def test_first_tab_stop_skips_to_the_content(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("queue")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox")).to_be_focused()


def tab_to(page: Page, role: Any, name: str, presses: int = 60, within: str = "body") -> None:
    wanted = page.locator(within).get_by_role(role, name=name, exact=True)
    wanted.wait_for()
    for _ in range(presses):
        page.keyboard.press("Tab")
        if wanted.and_(page.locator(":focus")).count():
            return
    pytest.fail(f"Tab does not come to the {role} {name} of {page.url}")


def test_login_works_by_keyboard(open_window: Open, site: DashboardSite) -> None:
    page = open_window().open_page("queue")
    expect(page.locator("input[name=token]")).to_be_focused()
    page.keyboard.type(token("reader"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/main/queue")
    expect(page.get_by_role("heading", name="Queue")).to_be_visible()


def test_updates_preserve_the_keyboard_focus_in_the_queue(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("queue")
    tab_to(page, "link", "User")
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort]")).to_contain_text("User")
    expect(page.locator("tbody tr").first.locator("td").nth(3)).to_have_text("ann")
    tab_to(page, "link", "4.server")
    site.submit(job("9.server", user="bob"), JobDeleted(id=event_id(), time=T, job_id="5.server"))
    expect(page.locator("tbody")).to_contain_text("9.server")
    expect(page.locator("tbody")).not_to_contain_text("5.server")
    expect(page.get_by_role("link", name="4.server", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/4.server")


def test_a_whatif_works_by_keyboard(open_window: Open, site: DashboardSite) -> None:
    page = open_window("reader").open_page("what-if")
    for name, text in (("Nodes", "1"), ("Cpus per node", "2"), ("Walltime", "10m")):
        tab_to(page, "textbox", name)
        page.keyboard.type(text)
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_contain_text("1 x (2 cpus)")


def test_admin_page_works_by_keyboard(open_window: Open, site: DashboardSite) -> None:
    page = open_window("admin").open_page("admin")
    tab_to(page, "textbox", "Reason to pause")
    page.keyboard.type("new switches")
    tab_to(page, "button", "Pause", 1)
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Resume dispatch")).to_be_visible()
    assert site.get_json("")["paused"].startswith("new switches")
    tab_to(page, "textbox", "Reason to drain or hold")
    page.keyboard.type("memory")
    page.keyboard.press("Shift+Tab")
    page.keyboard.type("n2")
    page.keyboard.press("Enter")
    expect(page.locator("#holds")).to_contain_text("n2")


def test_chart_selection_works_by_keyboard(open_window: Open, site: DashboardSite) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    tab_to(page, "searchbox", "Find")
    page.keyboard.type("bob")
    seen = []
    for _ in range(3):
        page.keyboard.press("Enter")
        seen.append(page.locator("#picked a").inner_text())
    planned = [one["job"] for one in site.get_json("/plan")["jobs"] if one["owner"].startswith("bob")]
    assert seen == [*planned, planned[0]]
    tab_to(page, "link", seen[-1])
    page.keyboard.press("Shift+Tab")
    expect(page.locator("#plan")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#picked")).to_be_hidden()


def test_a_late_job_is_scrolled_into_view(open_window: Open, site: DashboardSite) -> None:
    site.submit(*(job(f"{i}.server", user="eve", walltime="48:00:00") for i in range(20, 26)))
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    last = site.get_json("/plan?end=4000000000")["jobs"][-1]
    page.get_by_role("button", name="6 h").press("Enter")
    page.locator("#find").fill(last["job"])
    page.locator("#find").press("Enter")
    expect(page.locator("#picked a")).to_have_text(last["job"])
    ends = page.evaluate(
        """(start) => {
          const range = [...[...Bokeh.index.roots][0].model.references()].find((one) => one.name === "times");
          const shift = new Date(start * 1000).getTimezoneOffset() * 60000;
          return [range.start + shift, range.end + shift];
        }""",
        last["start"],
    )
    assert ends[0] <= last["start"] * 1000 <= ends[1]


def test_the_node_map_is_a_single_tab_stop_with_arrow_keys(open_window: Open, site: DashboardSite) -> None:
    site.submit(*(node(f"m{i:03}") for i in range(150)))
    page = open_window("reader", viewport={"width": 800, "height": 900}).open_page("nodes")
    names = [one["name"] for one in site.get_json("/nodes")["nodes"]]
    tab_to(page, "link", names[0], within="#map")  # the table has links of the same names
    page.keyboard.press("Tab")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#map").get_by_role("link", name=names[1], exact=True)).to_be_focused()
    page.keyboard.press("ArrowDown")
    at = page.evaluate("() => [...document.querySelectorAll('#map a')].indexOf(document.activeElement)")
    row = page.evaluate(
        """() => {
          const tops = [...document.querySelectorAll("#map a")].map((one) => one.getBoundingClientRect().top);
          return tops.filter((top) => top === tops[0]).length;
        }"""
    )
    assert at == 1 + row
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("End")
    expect(page.locator("#map").get_by_role("link", name=names[-1], exact=True)).to_be_focused()
    site.submit(node("n1", state="down"))
    expect(page.locator("#map li.down[data-key=n1]")).to_have_count(1)
    expect(page.locator("#map").get_by_role("link", name=names[-1], exact=True)).to_be_focused()
    assert page.locator("#map a[tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/nodes/{names[-1]}")


@pytest.fixture
def two_clusters(site: DashboardSite) -> Iterator[DashboardSite]:
    """The site with a second cluster."""
    first = site.app.state.clusters
    both = Clusters({"main": EngineSettings(), "second": EngineSettings()}, site.clock)
    both.start(warm=False)
    site.app.state.clusters = both
    yield site
    for window in site.opened:
        window.context.close()
    site.app.state.clusters = first
    both.stop()


def test_escape_closes_the_cluster_menu(open_window: Open, two_clusters: DashboardSite) -> None:
    page = open_window("reader").open_page("queue")
    menu = page.locator(".bar > .menu summary")
    menu.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="second")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="second")).to_be_hidden()
    expect(menu).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/second/plan")
