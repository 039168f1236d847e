"""The accounts page in a real browser: available amounts and charges."""

from collections.abc import Callable

import httpx2
import pytest
from playwright.sync_api import expect

from schedd.engine import EngineSettings
from schedd.policy.site import site_policy
from schedd.wire import AccountSet
from tests.dashboard.conftest import DashboardSite, T, UserWindow, token

Open = Callable[..., UserWindow]
SITE = EngineSettings(
    slack="1000000",
    search_every=0,
    end_allowance=0,
    site=site_policy({"accounts": {"by": "user", "unknown": "run"}}),
)


def account_event(name: str, hours: float, *users: str) -> AccountSet:
    amount = round(hours * 3600)
    return AccountSet(
        id=f"a:{name}",
        time=T,
        name=name,
        unit="core_hours",
        amount=amount,
        period="month",
        users=users,
        by="r",
    )


@pytest.mark.parametrize("site", [SITE], indirect=True)
def test_admin_gets_all_accounts_and_users_get_accessible_accounts(
    open_window: Open, site: DashboardSite
) -> None:
    page = open_window("admin").open_page("plan")
    expect(page.get_by_role("link", name="Accounts")).to_have_count(0)
    site.submit(account_event("ann", 100), account_event("closed-club", 50, "zoe"))
    known = {one["name"]: one for one in site.get_json("/accounts")["accounts"]}
    page = open_window("admin").open_page("accounts")
    expect(page.get_by_role("link", name="Accounts")).to_have_attribute("aria-current", "page")
    row = page.locator("tr", has=page.get_by_text("ann", exact=True))
    expect(row).to_contain_text(f"{known['ann']['left']:.2f}")
    expect(row).to_contain_text("each month")
    expect(row).to_contain_text("everybody")
    expect(page.locator("tr", has=page.get_by_text("closed-club"))).to_contain_text("zoe")
    expect(page.locator("#charged")).to_contain_text("Nothing was charged")
    page = open_window("user").open_page("accounts")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    expect(page.locator("#list")).not_to_contain_text("zoe")


@pytest.mark.parametrize("site", [SITE], indirect=True)
def test_charges_can_be_downloaded(open_window: Open, site: DashboardSite) -> None:
    site.submit(account_event("ann", 100))
    window = open_window("admin")
    window.open_page("accounts")
    cookies = {one["name"]: one["value"] for one in window.context.cookies()}
    answer = httpx2.get(f"{site.url}/dashboard/main/accounts.csv", cookies=cookies)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text.splitlines()[0] == "month,account,user,unit,jobs,core_hours,gpu_hours,charged"
    assert token("admin") not in answer.text
