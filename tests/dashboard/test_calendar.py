"""The calendar: maintenance and reservations, with standing ones grouped, as month and list."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from schedd.dashboard.calendar import calendar_entries, calendar_windows
from schedd.wire import Book, BookingStep, PlanningHeld, Reserve
from tests.dashboard.conftest import DashboardSite, UserWindow
from tests.service.planner_harness import T, event_id

Open = Callable[..., UserWindow]
HOUR, DAY = 3600, 86_400
# T is Tue 14 Nov 2023 22:13:20 UTC: in Prague, where the browser is, already 23:13.
MORNING = T + 10 * HOUR


def make_reservation(name: str, start: int, end: int | None, **more: object) -> Reserve:
    return Reserve(id=event_id(), time=T, name=name, start=start, end=end, **more)  # type: ignore[arg-type]


def make_standing_reservations(count: int) -> list[Reserve]:
    """Return weekly reservations from tomorrow morning on."""
    begin = MORNING
    return [
        make_reservation(f"backup@w{i}", begin + 7 * i * DAY, begin + 7 * i * DAY + 2 * HOUR, nodes=("n1",))
        for i in range(count)
    ]


def test_recurring_reservation_is_a_single_entry() -> None:
    late = make_reservation("repair", T + 40 * DAY, None, nodes=tuple(f"n{i}" for i in range(1, 9)))
    found = calendar_entries(
        [
            late,
            *reversed(make_standing_reservations(3)),
            make_reservation("all", T, T + HOUR, everywhere=True),
        ]
    )
    assert [(one.name, one.standing, len(one.windows)) for one in found] == [
        ("all", False, 1),
        ("backup", True, 3),
        ("repair", False, 1),
    ]
    assert found[1].next.start == MORNING
    assert [one.place_text for one in found] == ["all nodes", "n1", "n[1-8] (8 nodes)"]
    drawn = calendar_windows(found)
    assert [one["name"] for one in drawn] == ["all", "backup", "backup", "backup", "repair"]
    assert drawn[-1]["end"] is None


def test_access_and_properties_are_shown() -> None:
    (found,) = calendar_entries(
        [make_reservation("course", T, T + 1, features=("gpu", "ib"), users=("ann",), queues=("short",))]
    )
    assert (found.place_text, found.access) == ("nodes with gpu, ib", "ann, short")
    assert calendar_windows([found])[0]["kept"] is True
    (short,) = calendar_entries(
        [make_reservation("quick", T, T + 1, nodes=("n1",), users=("ann",), shorter=1800)]
    )
    assert short.access == "jobs up to 30 min, ann"


def test_bookings_are_shown_only_to_their_users(open_window: Open, site: DashboardSite) -> None:
    def book(name: str, owner: str, start: int, **more: Any) -> Book:
        asked = {"nodes": "1:ppn=2"}
        window: dict[str, Any] = {"duration": HOUR, "ready": start, "deadline": start + HOUR}
        return Book(
            id=event_id(), time=T, name=name, owner=owner, resources=asked, transfer=name, **window, **more
        )

    his = book("fed.1", "bob", T + 4 * HOUR, freeze=0)
    site.submit(book("fed.2", "ann", T + 2 * HOUR, freeze=0, until=T + HOUR), his)
    page = open_window("operator").open_page("calendar")
    rows = page.locator("#bookings tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("not confirmed yet")
    expect(rows.nth(0)).to_contain_text("(2)")
    expect(rows.nth(1)).to_contain_text("bob")
    page = open_window("user").open_page("calendar")
    expect(page.locator("#bookings tbody tr")).to_have_count(1)
    expect(page.locator("#bookings")).to_contain_text("1 of others are not shown")
    site.submit(BookingStep(id=event_id(), time=T, name="fed.2", act="cancel"))
    expect(page.locator("#bookings")).to_contain_text("None of yours; 1 of others")


def test_month_uses_the_readers_time_zone_and_the_url_remembers_it(
    open_window: Open, site: DashboardSite
) -> None:
    site.submit(
        # 23:30 to 01:30 in Prague, and so on two of its days, on one in UTC
        make_reservation("night", T + 1000, T + 1000 + 2 * HOUR, everywhere=True, reason="cooling"),
        make_reservation(
            "course", MORNING + 30 * DAY, MORNING + 30 * DAY + HOUR, nodes=("n1",), users=("ann",)
        ),
        *make_standing_reservations(8),
    )
    window = open_window("user")
    page = window.open_page("calendar")
    expect(page.locator("#month")).to_have_text("November 2023")
    expect(page.locator("#days [aria-current=date] .number")).to_have_text("14")
    nights = page.locator("#days .window", has_text="night")
    expect(nights).to_have_count(2)
    assert nights.nth(0).inner_text().startswith("23:30–24:00")
    assert nights.nth(1).inner_text().startswith("00:00–01:30")
    expect(page.get_by_role("button", name="Month before")).to_be_disabled()
    page.get_by_role("button", name="Month after").click()
    expect(page.locator("#month")).to_have_text("December 2023")
    assert page.url.endswith("calendar?month=2023-12")
    expect(page.locator("#days .window.kept")).to_have_count(1)
    page.reload()
    expect(page.locator("#month")).to_have_text("December 2023")
    page.get_by_role("button", name="Month after").click()
    expect(page.get_by_role("button", name="Month after")).to_be_disabled()  # the last known one
    expect(page.locator("#no-days")).to_be_hidden()
    page.get_by_role("button", name="today").click()
    assert page.url.endswith("calendar")
    page.locator("#days .window", has_text="backup").first.click()
    expect(page.locator("tr:target")).to_contain_text("7 more until")
    page = window.open_page("calendar?month=13")
    expect(page.locator("#month")).to_have_text("November 2023")


def test_full_day_can_be_expanded_and_updates_appear(open_window: Open, site: DashboardSite) -> None:
    site.submit(*(make_reservation(f"r{i}", MORNING + i, MORNING + HOUR, nodes=("n1",)) for i in range(6)))
    page = open_window("reader").open_page("calendar")
    expect(page.locator("#days .window")).to_have_count(4)
    page.get_by_role("button", name="2 more").click()
    expect(page.locator("#days .window")).to_have_count(6)
    expect(page.locator("#days .window", has_text="r4")).to_be_focused()
    site.submit(make_reservation("late", MORNING + DAY, MORNING + DAY + HOUR, nodes=("n2",)))
    expect(page.locator("#days .window", has_text="late")).to_be_visible()
    expect(page.locator("#days .window")).to_have_count(7)


def test_without_scripts_reservations_and_drained_nodes_are_listed(
    open_window: Open, site: DashboardSite
) -> None:
    site.submit(
        make_reservation("repair", T, None, nodes=("n1",), reason="fans"),
        PlanningHeld(id=event_id(), time=T, kind="node", name="n2", reason="new disk"),
    )
    page = open_window("reader", java_script_enabled=False).open_page("calendar")
    expect(page.locator("#all tbody tr")).to_contain_text("no end")
    expect(page.locator("#all tbody tr")).to_contain_text("now, since Tue 14 Nov 2023 22:13 UTC")
    expect(page.locator("#now tbody tr")).to_contain_text("new disk")
    expect(page.locator("#days")).to_be_hidden()


def test_only_an_empty_calendar_is_called_empty(open_window: Open, site: DashboardSite) -> None:
    site.submit(make_reservation("far", MORNING + 40 * DAY, MORNING + 40 * DAY + HOUR, nodes=("n1",)))
    page = open_window("reader").open_page("calendar")
    expect(page.locator("#no-days")).to_be_visible()
    site.submit(make_reservation("near", MORNING + 16 * DAY, MORNING + 16 * DAY + HOUR, nodes=("n1",)))
    expect(page.locator("#days .outside .window")).to_have_count(1)  # in the first days of the next month
    expect(page.locator("#no-days")).to_be_hidden()


def test_phone_view_lists_only_days_with_entries(open_window: Open, site: DashboardSite) -> None:
    site.submit(*make_standing_reservations(2))
    page = open_window("reader", viewport={"width": 390, "height": 844}).open_page("calendar")
    expect(page.locator("#days td:visible")).to_have_count(2)
    expect(page.locator("#days td:visible").first).to_contain_text("Wednesday")


def test_reservations_from_the_policy_have_no_delete_button(open_window: Open, site: DashboardSite) -> None:
    site.submit(*make_standing_reservations(3), make_reservation("repair", T, None, nodes=("n2",)))
    page = open_window("operator", viewport={"width": 768, "height": 900}).open_page("admin")
    rows = page.locator("#reservations tbody tr")
    box = page.locator("#reservations .scroll")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth"), "a tablet shows the whole table"
    expect(rows).to_have_count(2)
    expect(rows.filter(has_text="backup")).to_contain_text("from the settings")
    expect(rows.get_by_role("button")).to_have_count(1)
    rows.get_by_role("link", name="2 more").click()
    expect(page.locator("tr:target")).to_contain_text("backup")
