"""Permissions on pages, logins and sessions, and protection against forged requests."""

import contextlib
import json
import re
from collections.abc import Callable

import httpx2
import pytest
from playwright.sync_api import expect

from schedd.dashboard.sessions import Sessions
from schedd.engine.facts.texts import STARTED_BY_SOMEBODY_ELSE
from schedd.wire import JobStarted, ShareFacts
from tests.dashboard.conftest import DashboardSite, UserWindow, token
from tests.service.planner_harness import T, event_id

Open = Callable[..., UserWindow]


def test_login_returns_to_the_requested_page(open_window: Open, site: DashboardSite) -> None:
    page = open_window().open_page("queue?user=bob")
    expect(page).to_have_url(re.compile("/dashboard/login"))
    page.get_by_label("Token").fill(token("reader"))
    page.get_by_role("button", name="Log in").click()
    expect(page).to_have_url(re.compile(r"/dashboard/main/queue\?user=bob$"))
    expect(page.locator("#list tbody tr")).to_have_count(2)


def test_a_wrong_token_is_refused_with_a_message(open_window: Open, site: DashboardSite) -> None:
    window = open_window()
    page = window.open_page("plan")
    page.get_by_label("Token").fill("not-a-token-of-anybody")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("This token is not known here.")
    assert [one for one in window.wrong if "403" not in one] == []
    window.wrong.clear()  # browsers complain of the status


def test_other_users_jobs_are_anonymous(open_window: Open, site: DashboardSite) -> None:
    window = open_window("user")
    page = window.open_page("queue")
    expect(page.locator("#list tbody td:first-child")).to_have_text(["1.server", "3.server", "5.server"])
    page = window.open_page("plan")
    page.wait_for_selector("#plan[data-ready]")
    columns = page.evaluate("fetch('plan.json').then((answer) => answer.text())")
    assert "4.server" not in columns
    assert "bob" not in columns
    assert json.loads(columns)["jobs"]["id"].count(None) == 2
    page = window.open_page("jobs/4.server")
    expect(page.get_by_role("heading")).to_have_text("No such job")
    page = window.open_page("nodes")
    assert "4.server" not in page.content()
    assert "2.server" not in page.content()
    window.wrong = [one for one in window.wrong if "404" not in one]


@pytest.mark.parametrize("role", ["user", "reader"])
def test_admin_page_and_actions_are_denied_to_other_roles(
    open_window: Open, site: DashboardSite, role: str
) -> None:
    window = open_window(role)
    page = window.open_page("queue")
    expect(page.get_by_role("navigation").get_by_role("link", name="Admin")).to_have_count(0)
    page = window.open_page("admin")
    expect(page.locator("main")).to_contain_text(
        f"{'ann' if role == 'user' else f'our-{role}'} has the role {role}"
    )
    csrf = page.locator("input[name=csrf]").first.get_attribute("value")
    answer = page.request.post(
        f"{site.url}/dashboard/main/admin/pause", form={"csrf": csrf or "", "reason": "because"}
    )
    assert answer.status == 403
    assert site.get_json("")["paused"] == ""
    window.wrong = [one for one in window.wrong if "403" not in one]


def test_an_operator_pauses_and_resumes(open_window: Open, site: DashboardSite) -> None:
    page = open_window("operator").open_page("admin")
    page.get_by_label("Reason to pause").fill("the storage is being repaired")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("main").get_by_role("status")).to_have_class("alert warn")
    expect(page.locator("#alerts")).to_contain_text(
        "Dispatch is paused: the storage is being repaired. Planning"
    )
    assert site.get_json("")["paused"] == "the storage is being repaired"
    expect(page.locator("#alerts")).to_contain_text("the storage is being repaired")
    page.get_by_role("button", name="Resume dispatch").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert site.get_json("")["paused"] == ""


def test_operator_resumes_after_a_start_by_another_scheduler(open_window: Open, site: DashboardSite) -> None:
    for number in (3, 4, 5):
        job_id = f"{number}.server"
        site.submit(JobStarted(id=event_id(), time=T, job_id=job_id, shares=(ShareFacts("n1", 1),)))
    page = open_window("operator").open_page("admin")
    words = f"ob 5.server {STARTED_BY_SOMEBODY_ELSE}, as were 2 others in the same second"
    expect(page.locator("main")).to_contain_text(f"J{words}")
    expect(page.locator("#alerts")).to_contain_text(f"since j{words}")
    page.get_by_role("button", name="Resume dispatch").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert site.get_json("")["halted"] == ""


def test_an_operator_starts_a_search_and_sees_its_result(open_window: Open, site: DashboardSite) -> None:
    page = open_window("operator").open_page("admin")
    page.get_by_role("button", name="Optimise now").click()
    expect(page.locator("main").get_by_role("status")).to_contain_text("The search")
    (run,) = site.get_json("/searches")["searches"]
    page.get_by_role("navigation").get_by_role("link", name="Plan metrics").click()
    row = page.locator("#searches tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("asked for")
    assert row.locator("td.num").all_inner_texts()[:2] == [str(run["jobs"]), str(run["taken"])]


def test_operator_reserves_nodes_and_lifts_the_reservation(open_window: Open, site: DashboardSite) -> None:
    window = open_window("operator")
    page = window.open_page("admin")
    page.get_by_text("Reserve nodes").click()
    page.get_by_role("textbox", name="Name").fill("repair")
    page.get_by_label("Nodes or properties").fill("n1, n9")
    page.get_by_label("From", exact=True).fill("2023-11-15T12:00")
    page.get_by_label("Until", exact=True).fill("2023-11-15T18:00")
    page.get_by_label("Reason", exact=True).fill("new memory")
    page.get_by_role("button", name="Reserve").click()
    expect(page.get_by_role("alert")).to_contain_text("no node n9", ignore_case=True)
    expect(page.get_by_role("textbox", name="Name")).to_have_value("repair")
    page.get_by_label("Nodes or properties").fill("n1")
    body = {"nodes": ["n1"], "start": T + 40, "reason": "x"}
    wanted = site.post_json("/reservations/repair/preview", body)
    page.get_by_label("From", exact=True).fill("2023-11-14T23:14")
    page.get_by_label("Until", exact=True).fill("")
    reservations = page.get_by_role("region", name="Reservations")
    reservations.get_by_role("button", name="Preview").click()
    expect(page.locator("#foreseen")).to_contain_text(f"{wanted['moves']} waiting jobs would start")
    expect(page.locator("#foreseen")).to_contain_text(f"{wanted['broken']} promises would be put at risk")
    assert wanted["moves"]
    assert site.get_json("/reservations")["reservations"] == []
    page.get_by_label("From", exact=True).fill("2023-11-15T12:00")
    page.get_by_label("Until", exact=True).fill("2023-11-15T18:00")
    page.get_by_label("Cores of each node").fill("1")
    page.get_by_role("button", name="Reserve").click()
    expect(page.locator("#reservations")).to_contain_text("new memory")
    expect(page.locator("#reservations")).to_contain_text("n1: 1 core of each node")
    (made,) = site.get_json("/reservations")["reservations"]
    noon_in_prague = 1_700_046_000
    assert (made["name"], made["nodes"], made["reason"]) == ("repair", ["n1"], "new memory")
    assert (made["start"], made["end"], made["cores"]) == (noon_in_prague, noon_in_prague + 6 * 3600, 1)
    columns = page.evaluate("fetch('plan.json').then((answer) => answer.json())")
    assert [one["nodes"] for one in columns["reservations"]] == [[0]]
    page.get_by_role("button", name="Remove repair").click()
    expect(page.locator("#reservations")).to_contain_text("No reservations")
    assert site.get_json("/reservations")["reservations"] == []
    window.wrong = [one for one in window.wrong if "422" not in one]


def visitor(site: DashboardSite) -> httpx2.Client:
    return httpx2.Client(base_url=f"{site.url}/dashboard", headers={"Accept": "text/html"})


def logged_in(site: DashboardSite, role: str = "operator") -> tuple[httpx2.Client, str]:
    client = visitor(site)
    answer = client.post("/login", data={"token": token(role)})
    assert answer.status_code == 303
    csrf = re.search(r'name="csrf" value="([^"]+)"', client.get("/main/plan").text)
    assert csrf is not None
    return client, csrf[1]


def test_cross_site_forms_and_forms_without_csrf_token_are_refused(site: DashboardSite) -> None:
    client, csrf = logged_in(site)
    with contextlib.closing(client):
        form = {"csrf": csrf, "reason": "x"}
        for data, headers in (
            ({"reason": "x"}, {}),
            ({**form, "csrf": csrf[:-1]}, {}),
            (form, {"Origin": "http://evil.example"}),
            (form, {"Sec-Fetch-Site": "cross-site"}),
            (form, {"Sec-Fetch-Site": "same-site"}),
        ):
            assert client.post("/main/admin/pause", data=data, headers=headers).status_code == 403
        assert site.get_json("")["paused"] == ""
        assert client.post("/main/admin/pause", data=form).status_code == 303
        assert site.get_json("")["paused"] == "x"


def test_the_cookie_and_the_headers_are_strict(site: DashboardSite) -> None:
    answer = httpx2.post(f"{site.url}/dashboard/login", data={"token": token("reader")})
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/dashboard"} <= {part.strip() for part in cookie.split(";")}
    page = httpx2.get(f"{site.url}/dashboard/login")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert page.headers["cache-control"] == "no-store"


def test_a_session_ends_with_its_logout_and_with_its_token(site: DashboardSite) -> None:
    client, csrf = logged_in(site)
    with contextlib.closing(client):
        kept = dict(client.cookies)
        assert client.post("/logout", data={"csrf": csrf}).status_code == 303
        client.cookies.update(kept)
        assert client.get("/main/plan").status_code == 303
    client, _ = logged_in(site, "reader")
    with contextlib.closing(client):
        assert client.get("/main/plan").status_code == 200
        site.app.state.callers.tokens._configured.clear()
        assert client.get("/main/plan").status_code == 303


def test_a_login_link_works_once(site: DashboardSite) -> None:
    sessions: Sessions = site.app.state.sessions
    _, digest = "", next(iter(site.app.state.callers.tokens._configured))
    sessions.admit("the-key", digest)
    with visitor(site) as client:
        assert client.get("/enter?key=another").status_code == 403
        assert client.get("/enter?key=the-key").status_code == 303
        assert client.get("/main/plan").status_code == 200
    with visitor(site) as client:
        assert client.get("/enter?key=the-key").status_code == 403


@pytest.mark.parametrize("following", ["//evil.example/", "https://evil.example/", "/\\evil.example", ""])
def test_login_redirects_only_within_the_site(site: DashboardSite, following: str) -> None:
    answer = httpx2.post(f"{site.url}/dashboard/login", data={"token": token("reader"), "next": following})
    assert answer.headers["location"].startswith("/dashboard/")


def test_many_logins_end_only_sessions_from_the_same_token() -> None:
    sessions = Sessions()
    admins = sessions.open(b"admin")
    last = [sessions.open(b"ann") for _ in range(10_050)]
    assert sessions.get(admins.id) == admins
    assert [sessions.get(one.id) for one in last[-20:]] == last[-20:]
    assert sessions.get(last[-21].id) is None


def test_sessions_are_limited_by_token() -> None:
    sessions = Sessions()
    admins = [sessions.open(b"admin") for _ in range(3)]
    first = [sessions.open(str(number // 4).encode()) for number in range(9_997)]
    sessions.open(b"late")
    assert [sessions.get(one.id) for one in admins] == admins
    assert sessions.get(first[0].id) is None
    assert sessions.get(first[4].id) == first[4]


def test_sessions_expire_and_the_oldest_is_dropped() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    first = sessions.open(b"one")
    assert sessions.get(first.id) == first
    now[0] = 12 * 3600
    assert sessions.get(first.id) is None
    first = sessions.open(b"one")
    for _ in range(20):
        sessions.open(b"one")
    assert sessions.get(first.id) is None
