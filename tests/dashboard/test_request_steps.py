"""Smaller requests, and the pages that compare requests."""

import html
import re
from collections.abc import Callable

import httpx2
import pytest
from playwright.sync_api import expect

from schedd.api.planner_calls import TIMEOUTS
from schedd.dashboard.request_steps import smaller_steps
from tests.dashboard.conftest import DashboardSite, UserWindow, token
from tests.waits import WAIT_S

Open = Callable[..., UserWindow]


@pytest.mark.parametrize(
    ("resources", "cpus"),
    [
        ({"nodes": "2:ppn=8:ib"}, ["nodes=2:ppn=4:ib", "nodes=2:ppn=2:ib"]),
        ({"select": "2:ncpus=4:mem=8gb"}, ["select=2:ncpus=2:mem=8gb", "select=2:ncpus=1:mem=8gb"]),
        ({"procs": "12"}, ["procs=6", "procs=3"]),
        ({"ncpus": "2"}, ["ncpus=1"]),
        ({"nodes": "1:ppn=8+2:ppn=4"}, []),
        ({"nodes": "node7"}, []),
        ({"nodes": "1:ppn=1"}, []),
        ({"nodes": "1:ppn=8" + ":a" * 100 + "+1"}, []),
        ({"nodes": "1:ppn=8:" + ":a" * 100}, []),
        ({"select": "1:ncpus=8" + ":a=1" * 100 + "+1"}, []),
        ({"ncpus": "9" * 400}, []),
        ({"procs": "9" * 5_000}, []),
    ],
)
def test_steps_halve_the_cpus_of_simple_requests(resources: dict[str, str], cpus: list[str]) -> None:
    steps = list(smaller_steps(resources, 7200))
    assert [one.request for one in steps if one.kind == "cpus"] == cpus
    assert [one.label for one in steps if one.kind == "walltime"] == ["01:30:00", "01:00:00", "00:30:00"]
    assert [one.label for one in smaller_steps({}, 100)] == ["00:01:15"]


def test_a_what_if_about_a_job_is_prefilled_and_compares_the_altered_job(site: DashboardSite) -> None:
    headers = {"Authorization": f"Bearer {token('admin')}", "Accept": "text/html"}
    (job, *_) = [one for one in site.get_json("/jobs?state=planned")["jobs"] if "nodes" in one["resources"]]
    with httpx2.Client(base_url=f"{site.url}/dashboard/main", headers=headers, timeout=WAIT_S) as client:
        plain = client.get("/what-if", params={"job": job["id"]}).text
        request = re.search(r'name="request" value="([^"]*)"', plain)
        assert request is not None
        assert f"nodes={job['resources']['nodes']}" in request[1]
        assert f'name="job" value="{job["id"]}"' in plain
        assert 'id="compared"' not in plain
        assert 'id="sooner"' not in plain, "smaller requests come after the answer"
        later = re.search(r'data-later="([^"]*)"', plain)
        assert later is not None
        smaller = client.get(f"/what-if{html.unescape(later[1])}").text
        assert 'id="sooner"' in smaller
        assert "as requested" in smaller
        same = client.get("/what-if", params={"job": job["id"], "request": request[1]}).text
        assert 'id="compared"' not in same, "nothing is altered"
        altered = client.get("/what-if", params={"job": job["id"], "request": "walltime=00:01:00"}).text
        compared = altered.partition('id="compared"')[2].partition("</table>")[0]
        assert "As altered" in compared
        assert "00:01:00" in compared
        wrong = client.get("/what-if", params={"job": job["id"], "request": "nodes=x="})
        assert wrong.status_code == 422


def test_smaller_requests_appear_after_the_answer(open_window: Open, site: DashboardSite) -> None:
    (job, *_) = [one for one in site.get_json("/jobs?state=planned")["jobs"] if "nodes" in one["resources"]]
    page = open_window("reader").open_page(f"what-if?job={job['id']}")
    expect(page.locator("#sooner")).to_contain_text("as requested")
    expect(page.locator("#answer")).to_be_visible()


def test_a_page_does_not_wait_for_a_late_answer(
    open_window: Open, site: DashboardSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TIMEOUTS, "page", 0.0)
    headers = {"Authorization": f"Bearer {token('admin')}", "Accept": "text/html"}
    address = f"{site.url}/dashboard/main/what-if"
    page = httpx2.get(address, params={"nodes": "2", "walltime": "1h"}, headers=headers, timeout=WAIT_S).text
    assert 'id="answer"' not in page
    later = re.search(r'data-later="([^"]*)"', page)
    assert later is not None
    late = httpx2.get(f"{address}{html.unescape(later[1])}", headers=headers, timeout=WAIT_S).text
    assert 'id="answer"' in late
    (job, *_) = site.get_json("/jobs?state=planned")["jobs"]
    page = httpx2.get(address, params={"job": job["id"]}, headers=headers, timeout=WAIT_S).text
    assert f'name="job" value="{job["id"]}"' in page, "the form is the job's"
    assert f"nodes={job['resources']['nodes']}" in page
    shown = open_window("reader").open_page("what-if?nodes=2&ppn=4&walltime=1h")
    expect(shown.locator("#answer")).to_contain_text("2 x (4 cpus)")
    expect(shown.locator("#sooner")).to_contain_text("as requested")


def test_two_requests_are_shown_side_by_side(site: DashboardSite) -> None:
    question = {"nodes": "1", "ppn": "1", "walltime": "2h", "other": "walltime=00:10:00"}
    headers = {"Authorization": f"Bearer {token('admin')}", "Accept": "text/html"}
    with httpx2.Client(base_url=f"{site.url}/dashboard/main", headers=headers) as client:
        page = client.get("/what-if", params=question).text
        compared = page.partition('id="compared"')[2].partition("</table>")[0]
        assert "Second request" in compared
        assert "00:10:00" in compared
        wrong = client.get("/what-if", params={**question, "other": "walltime=never"})
        assert wrong.status_code == 422
        assert 'role="alert"' in wrong.text


def test_pages_of_a_job_and_of_plan_metrics_do_not_wait_for_what_takes_long(
    open_window: Open, site: DashboardSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TIMEOUTS, "page", 0.0)
    headers = {"Authorization": f"Bearer {token('admin')}", "Accept": "text/html"}
    (job, *_) = site.get_json("/jobs?state=planned")["jobs"]
    with httpx2.Client(base_url=f"{site.url}/dashboard/main", headers=headers, timeout=WAIT_S) as client:
        for path, part in ((f"jobs/{job['id']}", 'id="chain"'), ("plan-metrics", 'id="criteria"')):
            page = client.get(f"/{path}").text
            assert part not in page
            later = re.search(r'data-later="([^"]*)"', page)
            assert later is not None
            assert part in client.get(f"/{path}{html.unescape(later[1])}").text
            assert "data-later" not in client.get(f"/{path}?quick=1").text
    window = open_window("admin")
    expect(window.open_page(f"jobs/{job['id']}").locator("#chain")).to_contain_text("This job starts")
    expect(window.open_page("plan-metrics").locator("#criteria")).to_contain_text("slowdown")
