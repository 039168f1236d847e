"""The chart of a large plan in a browser: scrolling, zoom, groups, search, and state in the URL."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.dashboard.conftest import DashboardSite, UserWindow
from tests.dashboard.test_pages import model, wait_until_drawn
from tests.property_examples import some
from tests.service.planner_harness import job, node

Open = Callable[..., UserWindow]
RACKS = 5


@pytest.fixture
def large(site: DashboardSite) -> DashboardSite:
    """60 nodes in racks, with more jobs of 40 users than run at once."""
    nodes = [node(f"m{i:03}", properties=(f"rack=r{i % RACKS}",)) for i in range(1, 58)]
    jobs = [
        job(f"{i}.server", user=f"user{i % 40}", nodes=f"{1 + i % 3}:ppn=4", walltime=str(3600 * (1 + i % 9)))
        for i in range(100, 220)
    ]
    site.submit(*nodes, *jobs)
    return site


def data(page: Page, source: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = page.evaluate(
        f"""() => Object.fromEntries(Object.entries({model(source, "ColumnDataSource")}.data)
            .map(([name, column]) => [name, [...column]]))"""
    )
    return found


def row_labels(page: Page) -> list[str]:
    """The labels of the rows, from the top."""
    found: list[list[Any]] = page.evaluate(
        f"[...{model('row_axis', 'LinearAxis')}.major_label_overrides].sort((a, b) => a[0] - b[0])"
    )
    return [text for _, text in found]


def times(page: Page) -> list[float]:
    found: list[float] = page.evaluate(
        f"(() => {{ const r = {model('times', 'Range1d')}; return [r.start, r.end]; }})()"
    )
    return found


def wait_for_times(page: Page, condition: str) -> None:
    """Wait until ``condition`` holds for ``start`` and ``end``, in ms, of the shown period."""
    page.wait_for_function(
        f"(() => {{ const {{start, end}} = {model('times', 'Range1d')}; return {condition}; }})()"
    )


def test_rows_scroll_and_zoom_by_keys_and_the_url_remembers_them(
    open_window: Open, large: DashboardSite
) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    expect(page.locator("#said")).to_contain_text("60 nodes · rows 1 to 36 of 60")
    page.locator("#plan").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#said")).to_contain_text("rows 2 to 37 of 60")
    page.keyboard.press("End")
    expect(page.locator("#said")).to_contain_text("rows 25 to 60 of 60")
    page.keyboard.press("[")
    expect(page.locator("#said")).to_contain_text("rows 32 to 53 of 60")
    page.wait_for_url(re.compile(r"count=22"))
    shown = row_labels(page)
    assert len(shown) == 22
    page.reload()
    wait_until_drawn(page)
    assert row_labels(page) == shown
    page.get_by_role("button", name="more rows").click()
    page.get_by_role("button", name="more rows").click()
    expect(page.locator("#said")).to_have_text("60 nodes")
    assert len(data(page, "bars")["job"]) > 60


def test_node_search_reports_missing_matches(open_window: Open, large: DashboardSite) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    only = page.get_by_label("Nodes", exact=True)
    only.fill("m[001-010]")
    expect(page.locator("#said")).to_contain_text("10 of 60 nodes")
    assert row_labels(page)[0] == "m001"
    only.fill("rack=r1 m00*")
    expect(page.locator("#said")).to_contain_text("2 of 60 nodes")
    only.fill("down")
    expect(page.locator("#said")).to_contain_text("1 of 60 nodes")
    only.fill("nonsense")
    expect(page.locator("#said")).to_contain_text("No node matches “nonsense”")
    assert data(page, "bars")["job"] == []


def test_groups_show_their_load_and_open(open_window: Open, large: DashboardSite) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    page.get_by_label("Group by").select_option("rack")
    groups = page.locator("#groups button")
    expect(groups).to_have_count(RACKS + 1)
    expect(groups.first).to_contain_text(re.compile(r"rack=r0: 11 nodes, \d+ % in use"))
    assert data(page, "bars")["job"] == []
    assert data(page, "loads")["left"]
    groups.nth(1).press("Enter")
    expect(groups.nth(1)).to_have_attribute("aria-expanded", "true")
    expect(groups.nth(1)).to_be_focused()
    assert data(page, "bars")["job"]
    page.wait_for_url(re.compile("group=rack.*open=rack"))
    page.reload()
    wait_until_drawn(page)
    expect(page.locator("#groups button[aria-expanded=true]")).to_have_text(re.compile("^rack=r1"))
    assert row_labels(page)[1].startswith("▾")


def test_job_page_and_bar_link_to_each_other(open_window: Open, large: DashboardSite) -> None:
    last = large.get_json("/plan?end=4000000000")["jobs"][-1]
    page = open_window("reader").open_page(f"jobs/{last['job']}")
    page.get_by_role("link", name="Show in the plan").click()
    wait_until_drawn(page)
    expect(page.locator("#picked a")).to_have_text(last["job"])
    selected = page.evaluate(f"[...{model('bars', 'ColumnDataSource')}.selected.indices]")
    assert len(selected) >= 1
    start, end = times(page)
    left = data(page, "bars")["left"][selected[0]]
    assert start <= left <= end
    page.locator("#picked a").click()
    page.wait_for_url(f"**/jobs/{last['job']}")


def test_search_prefers_exact_matches_and_scrolls_to_hidden_rows(
    open_window: Open, large: DashboardSite
) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    page.locator("#find").fill("user1")
    expect(page.locator("#said")).to_contain_text("3 matching jobs")
    found = [one for one in large.get_json("/plan?end=4000000000")["jobs"] if one["owner"] == "user1@login"]
    for one in found:
        page.locator("#find").press("Enter")
        expect(page.locator("#picked a")).to_have_text(one["job"])
    page.locator("#find").fill("nobody")
    expect(page.locator("#said")).to_contain_text("no job, user or queue matches “nobody”")


def test_the_legend_lists_and_selects_users(open_window: Open, large: DashboardSite) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan?colour=user&count=100"))
    buttons = page.locator("#legend button")
    expect(buttons).to_have_count(13)
    page.get_by_role("button", name=re.compile("^and [0-9]+ more")).click()
    expect(page.get_by_role("button", name="user39", exact=True)).to_be_visible()
    fills = data(page, "bars")["fill"]
    assert len(set(fills)) > 30, "users have colours of their own"
    page.get_by_role("button", name="user7", exact=True).click()
    expect(page.locator("#find")).to_have_value("user7")
    expect(page.locator("#said")).to_contain_text("3 matching jobs")
    assert len(set(data(page, "bars")["fill"])) == 2


def test_wide_bars_show_their_owner(open_window: Open, large: DashboardSite) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan?count=10"))
    expect(page.locator("#rows-bar")).to_have_attribute("aria-valuenow", "0")
    # These are being started: white has too little contrast on their colour.
    first = [one["job"].partition(".")[0] for one in large.get_json("/plan")["jobs"][:3]]
    # The texts follow their bars a tenth of a second later.
    page.wait_for_function(
        f"""first => {{
            const light = [...{model("light_texts", "ColumnDataSource")}.data.text];
            const dark = [...{model("dark_texts", "ColumnDataSource")}.data.text];
            return [...light, ...dark].some((text) => /^\\d+ user\\d+$/.test(text))
                && dark.some((text) => first.includes(text.split(" ")[0]));
        }}""",
        arg=first,
    )


def test_minimap_selects_rows_and_times(open_window: Open, large: DashboardSite) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    strip = page.locator("#minimap")
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    assert box is not None
    before = times(page)
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.95 * box["height"], steps=4)
    page.mouse.up()
    expect(page.locator("#said")).to_contain_text("rows 31 to 57 of 60")
    after = times(page)
    assert after[0] > before[0]
    horizon = page.evaluate("fetch('plan.json').then((one) => one.json()).then((one) => one.horizon)")
    assert (after[1] - after[0]) / 1000 == pytest.approx(0.2 * horizon, rel=0.1)


def test_keys_are_listed_and_dragging_selects(open_window: Open, large: DashboardSite) -> None:
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    page.locator("#plan").focus()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Page Up")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("b")
    expect(page.locator("#brush")).to_have_attribute("aria-pressed", "true")
    before = times(page)
    box = page.locator("#plan").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 140, steps=5)
    page.mouse.up()
    wait_for_times(page, f"end - start < {0.5 * (before[1] - before[0])}")


INVALID_ADDRESSES = (
    "first=-1",
    "first=99999999",
    "count=0",
    "count=x",
    "from=9&to=1",
    "open=%7C%7C",
    "group=%00",
    "group=no-such-resource",
    "colour=no",
)


def test_an_invalid_address_is_corrected(open_window: Open, large: DashboardSite) -> None:
    window = open_window("reader")
    for query in some(INVALID_ADDRESSES):
        page = wait_until_drawn(window.open_page(f"plan?{query}"))
        expect(page.locator("#said"), query).to_contain_text("60 nodes")
        expect(page.locator("#groups"), query).to_be_hidden()


def test_chart_sends_only_visible_rows_on_a_large_cluster(open_window: Open, site: DashboardSite) -> None:
    """The amount of data does not depend on the number of nodes."""
    site.submit(*(node(f"x{i:04}") for i in range(2_000)))
    page = wait_until_drawn(open_window("reader").open_page("plan"))
    expect(page.locator("#said")).to_contain_text("2,003 nodes · rows 1 to 36 of 2,003")
    columns = page.evaluate("fetch('plan.json').then((one) => one.json())")
    assert len(columns["nodes"]["name"]) == 36
    assert len(columns["map"]["rows"]) <= 60


def test_the_map_of_nodes_shows_racks(open_window: Open, large: DashboardSite) -> None:
    page = open_window("reader").open_page("nodes")
    racks = page.locator("#map h3")
    expect(racks).to_have_count(RACKS + 1)
    expect(racks.first).to_contain_text("rack r0")
    expect(racks.last).to_contain_text("rack none")
    expect(page.locator("#map a")).to_have_count(60)
    page.get_by_role("link", name="all nodes", exact=True).click()
    expect(page.locator("#map h3")).to_have_count(0)
    expect(page.locator("#map a")).to_have_count(60)
