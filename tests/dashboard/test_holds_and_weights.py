"""Nodes drained, queues held, weights set on the page of admins, in a real browser; each previewed before."""

import re
from collections.abc import Callable

import httpx2
import pytest
from playwright.sync_api import expect

from schedd.wire import QueueChanged, QueueFacts
from tests.dashboard.conftest import DashboardSite, UserWindow, token
from tests.service.planner_harness import T, event_id

Open = Callable[..., UserWindow]


def test_operator_drains_and_releases_a_node(open_window: Open, site: DashboardSite) -> None:
    window = open_window("operator")
    page = window.open_page("nodes")
    page.get_by_role("link", name="Drain n2").click()
    expect(page.get_by_label("Nodes or queue")).to_have_value("n2")
    page.get_by_label("Reason to drain or hold").fill("new memory")
    wanted = site.post_json("/holds/node/n2/preview", {"reason": "new memory"})
    page.locator("#hold").get_by_role("button", name="Preview").click()
    expect(page.locator("#held")).to_contain_text(f"{wanted['moves']} waiting job")
    expect(page.locator("#held tbody tr")).to_have_count(wanted["moves"])
    assert wanted["moves"]
    assert site.get_json("/holds")["holds"] == []
    page.locator("#hold").get_by_role("button", name="Hold").click()
    expect(page.locator("main").get_by_role("status")).to_contain_text("No new jobs are planned there")
    expect(page.locator("#holds tbody")).to_contain_text("new memory")
    (held,) = site.get_json("/holds")["holds"]
    assert (held["kind"], held["name"], held["by"]) == ("node", "n2", "our-operator")
    states = {one["id"]: one["state"] for one in site.get_json("/jobs")["jobs"]}
    assert states["2.server"] == "starting"  # what was decided goes on
    assert all("n2" not in [n["node"] for n in one["planned_nodes"]] for one in planned_nodes_of_jobs(site))
    page = window.open_page("nodes")
    row = page.locator("tr[data-key=n2]")
    expect(row).to_contain_text("draining")
    expect(row).to_contain_text("held: new memory")
    page = window.open_page("admin")
    page.get_by_role("button", name="Release node n2").click()
    expect(page.locator("#holds")).to_contain_text("No node is drained and no queue is held")
    assert site.get_json("/holds")["holds"] == []


def planned_nodes_of_jobs(site: DashboardSite) -> list[dict[str, list[dict[str, str]]]]:
    found: list[dict[str, list[dict[str, str]]]] = site.get_json("/jobs?state=planned")["jobs"]
    return found


def test_a_held_queue_is_named_to_its_users(open_window: Open, site: DashboardSite) -> None:
    site.submit(QueueChanged(id=event_id(), time=T, queue=QueueFacts(name="batch")))
    window = open_window("operator")
    page = window.open_page("admin")
    page.get_by_label("What").select_option("queue")
    page.get_by_label("Nodes or queue").fill("long")
    page.get_by_label("Reason to drain or hold").fill("the course has it")
    page.locator("#hold").get_by_role("button", name="Hold").click()
    expect(page.get_by_role("alert")).to_contain_text("no queue long", ignore_case=True)
    page.get_by_label("Nodes or queue").fill("batch")
    page.locator("#hold").get_by_role("button", name="Hold").click()
    expect(page.locator("#holds tbody")).to_contain_text("the course has it")
    expect(page.locator("main").get_by_role("status")).to_contain_text(
        "No new jobs are planned in the held queue"
    )
    ann = open_window("user").open_page("jobs/5.server")
    expect(ann.locator("#answer")).to_contain_text("queue batch, which is held: the course has it")
    window.wrong = [one for one in window.wrong if "422" not in one]


def test_weights_are_previewed_set_and_withdrawn(open_window: Open, site: DashboardSite) -> None:
    page = open_window("admin").open_page("admin")
    page.get_by_text("Try other weights").click()
    weights = page.locator("#weights")
    expect(weights.get_by_role("button", name="Apply")).to_have_count(0)
    expect(weights.get_by_label("wait", exact=True)).to_have_value("1")
    weights.get_by_label("wait", exact=True).fill("3")
    weights.get_by_label("size", exact=True).fill("-1,5")
    weights.get_by_role("button", name="Preview").click()
    site_wanted = {
        "criteria": {"wait": 3, "bounded_slowdown": 1, "wait_rms": 1, "wait_max": 1},
        "priority": {"size": -1.5},
    }
    wanted = site.post_json("/policy/preview", site_wanted)
    expect(page.locator("#weighed")).to_contain_text(f"{wanted['moves']} waiting jobs would start")
    expect(page.locator("#trial")).to_contain_text(f"of {wanted['search']['jobs']} jobs would move")
    assert site.get_json("/policy")["version"] == 0
    weights.get_by_role("button", name="Apply").click()
    expect(page.locator("#in-force")).to_contain_text("Policy version 1")
    assert site.get_json("/policy")["site"] == site_wanted
    page.get_by_role("button", name=re.compile("Restore the policy of the settings")).click()
    expect(page.locator("#in-force")).to_contain_text("The policy of the settings file is in force")
    assert site.get_json("/policy")["site"] == {}


def test_invalid_weights_are_refused_with_a_message(open_window: Open, site: DashboardSite) -> None:
    window = open_window("admin")
    page = window.open_page("admin")
    for label, value, words in (
        ("size", "much", "size: 'much' is no number"),
        ("fair share", "5", "there is no table fair_share"),
        ("wait", "-1", "must be finite, at least 0"),
    ):
        page.get_by_text("Try other weights").click()
        page.locator("#weights").get_by_label(label, exact=True).fill(value)
        page.locator("#weights").get_by_role("button", name="Preview").click()
        expect(page.get_by_role("alert")).to_contain_text(words, ignore_case=True)
        expect(page.locator("#weights").get_by_label(label, exact=True)).to_have_value(value)
        page = window.open_page("admin")
    assert site.get_json("/policy")["version"] == 0
    window.wrong = [one for one in window.wrong if "422" not in one]


def test_an_operator_may_try_weights_but_not_set_them(open_window: Open, site: DashboardSite) -> None:
    page = open_window("operator").open_page("admin")
    page.get_by_text("Try other weights").click()
    page.locator("#weights").get_by_role("button", name="Preview").click()
    expect(page.locator("#weights")).to_contain_text("Only an admin can apply them")
    expect(page.get_by_role("button", name="Apply")).to_have_count(0)
    csrf = page.locator("input[name=csrf]").first.get_attribute("value") or ""
    for path in ("weights", "weights/withdraw"):
        answer = page.request.post(
            f"{site.url}/dashboard/main/admin/{path}",
            form={"csrf": csrf, "version": "0", "priority.size": "1"},
        )
        assert answer.status == 403
    assert site.get_json("/policy")["version"] == 0


@pytest.mark.parametrize("path", ["hold", "release", "weights", "weights/preview", "weights/withdraw"])
def test_users_cannot_change_holds_or_weights(site: DashboardSite, path: str) -> None:
    headers = {"Accept": "text/html"}
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers=headers) as client:
        client.post("/login", data={"token": token("user")})
        csrf = client.get("/main/plan").text.partition('name="csrf" value="')[2].partition('"')[0]
        form = {"csrf": csrf, "hold_kind": "node", "hold_name": "n1", "hold_reason": "x", "version": "0"}
        assert client.post(f"/main/admin/{path}", data=form).status_code == 403
    assert site.get_json("/holds")["holds"] == []
    assert site.get_json("/policy")["version"] == 0


def test_weights_are_refused_if_the_policy_changed_meanwhile(site: DashboardSite) -> None:
    headers = {"Accept": "text/html"}
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers=headers) as client:
        client.post("/login", data={"token": token("admin")})
        csrf = client.get("/main/plan").text.partition('name="csrf" value="')[2].partition('"')[0]
        form = {"csrf": csrf, "version": "3", "priority.size": "1", "criteria.wait": "1"}
        answer = client.post("/main/admin/weights", data=form)
        assert (answer.status_code, "was changed meanwhile" in answer.text) == (422, True)
    assert site.get_json("/policy")["version"] == 0


def test_several_nodes_are_drained_and_released_together(open_window: Open, site: DashboardSite) -> None:
    page = open_window("operator").open_page("admin?node=n1#hold")
    form = page.locator("#hold")
    form.get_by_label("Nodes or queue").fill("n[1-2]")
    form.get_by_role("button", name="Preview").click()
    expect(form).to_contain_text("2 nodes: n1, n2")
    assert site.get_json("/holds")["holds"] == []
    form.get_by_label("Reason to drain or hold").fill("new switch")
    form.get_by_role("button", name="Drain or hold").click()
    expect(page.locator("#holds tbody tr")).to_have_count(1)
    expect(page.get_by_role("button", name="Release nodes n[1-2]")).to_be_visible()
    assert [one["name"] for one in site.get_json("/holds")["holds"]] == ["n1", "n2"]
    page.get_by_label("Release several nodes").fill("n*")
    page.get_by_role("button", name="Release nodes", exact=True).click()
    expect(page.locator("#holds")).to_contain_text("No node is drained")
    assert site.get_json("/holds")["holds"] == []


def test_nodes_are_drained_for_a_period(open_window: Open, site: DashboardSite) -> None:
    page = open_window("operator").open_page("admin?node=n1#hold")
    form = page.locator("#hold")
    form.get_by_label("Nodes or queue").fill("n*")
    form.get_by_label("Drain from").fill("2023-11-15T08:00")
    form.get_by_label("Drain until").fill("2023-11-15T10:00")
    form.get_by_label("Reason to drain or hold").fill("new switch")
    form.get_by_role("button", name="Drain or hold").click()
    expect(page.locator("#reservations tbody")).to_contain_text("drain-20231115-0700")
    (made,) = site.get_json("/reservations")["reservations"]
    assert (made["nodes"], made["end"] - made["start"], made["reason"]) == (
        ["n1", "n2", "n3"],
        7200,
        "new switch",
    )
    assert site.get_json("/holds")["holds"] == []


@pytest.mark.parametrize(
    ("kind", "name", "more", "why"),
    [
        ("node", "n", {}, "no node, property or state n"),
        ("node", "x*", {}, "no node fits x*"),
        ("queue", "batch", {"start": "2023-11-15T08:00"}, "a queue is held from now on"),
        ("node", "n1", {"start": "x"}, "start: not a date and a time"),
        ("node", "n1", {"start": "9999-12-31T00:00"}, "start: not a date and a time"),
        ("node", "n1", {"start": "2023-11-15T08:00", "end": "2023-11-15T07:00"}, "over already"),
    ],
)
def test_invalid_drain_is_refused_and_changes_nothing(
    site: DashboardSite, kind: str, name: str, more: dict[str, str], why: str
) -> None:
    headers = {"Accept": "text/html"}
    with httpx2.Client(base_url=f"{site.url}/dashboard", headers=headers) as client:
        client.post("/login", data={"token": token("operator")})
        csrf = re.findall(r'name="csrf" value="([^"]+)"', client.get("/main/admin").text)[0]
        form = {"csrf": csrf, "hold_kind": kind, "hold_name": name, "hold_reason": "x", **more}
        answer = client.post("/main/admin/hold", data=form)
    assert answer.status_code == 422
    assert why.lower() in answer.text.lower()
    assert site.get_json("/holds")["holds"] == site.get_json("/reservations")["reservations"] == []
