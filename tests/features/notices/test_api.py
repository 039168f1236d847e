"""Notices over HTTP: created, listed and deleted; invalid ones."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.dashboard import add_dashboard
from schedd.features.notices.daemon_settings import NotifySettings
from schedd.features.notices.notifier import Notifier
from schedd.service.access.roles import Bearer
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.store import Store
from tests.api.conftest import token
from tests.api.test_responses import MAIN
from tests.service.planner_harness import T, job, node
from tests.waits import WAIT_S

USER = {"Authorization": f"Bearer {token('user')}"}
NOTICES = f"{MAIN}/notices"


@pytest.fixture
def site_with_notices(app: FastAPI, loop: PlanLoop, tmp_path: Path) -> Iterator[Notifier]:
    """The site sends mail, and has a command."""
    loop.submit([node("n1"), job("1.srv", user="our-user"), job("2.srv", user="eve")]).result(WAIT_S)
    store = Store.open(f"sqlite:///{tmp_path}/s.sqlite")
    settings = NotifySettings(
        relay="127.0.0.1:9",
        sender="schedd@example.org",
        domains=("example.org",),
        commands={"sms": ("/bin/true",)},
        most=2,
    )
    found = Notifier(loop, settings, lambda: store)
    app.state.services = [found]
    yield found
    app.state.services = ()
    store.close()


@pytest.mark.usefixtures("site_with_notices")
def test_notices_are_stored_listed_and_deleted(client: TestClient) -> None:
    made = client.post(NOTICES, json={"job": "1", "moved": 1800, "ahead": 900}, headers=USER).json()
    first = {
        "number": 1,
        "job": "1.srv",
        "moved": 1800,
        "ahead": 900,
        "lost": False,
        "tighter": False,
        "way": "mail",
        "since": T,
    }
    assert made["notices"] == [{**first, "to": "our-user@example.org"}]
    assert (made["domains"], made["commands"]) == (["example.org"], ["sms"])
    made = client.post(NOTICES, json={"lost": True, "tighter": True}, headers=USER).json()
    assert [(one["number"], one["lost"]) for one in made["notices"]] == [(1, False), (2, True)]
    assert [one["tighter"] for one in made["notices"]] == [False, True]
    client.delete(f"{NOTICES}/2", headers=USER)
    made = client.post(NOTICES, json={"ahead": 60, "way": "command", "to": "sms"}, headers=USER).json()
    assert [one["job"] for one in made["notices"]] == ["1.srv", ""]
    assert client.get(NOTICES).json()["notices"] == []  # the admin's own
    assert client.delete(f"{NOTICES}/1").status_code == 422  # nor may the admin remove another's
    left = client.delete(f"{NOTICES}/1", headers=USER).json()["notices"]
    assert [one["job"] for one in left] == [""]


@pytest.mark.usefixtures("site_with_notices")
@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 422, "set when to send it"),
        ({"moved": 5}, 422, "moved"),
        ({"ahead": 900, "job": "77"}, 404, "no job 77"),
        ({"ahead": 900, "to": "ann@elsewhere.org"}, 422, "this site does not send mail to"),
        ({"ahead": 900, "to": "a b@example.org"}, 422, "this site does not send mail to"),
        ({"ahead": 900, "to": "a\nBcc: x@example.org"}, 422, "this site does not send mail to"),
        ({"ahead": 900, "to": "-oQ@example.org"}, 422, "this site does not send mail to"),
        ({"ahead": 900, "way": "command", "to": "rm"}, 422, "no command 'rm'"),
        ({"ahead": 900, "way": "pigeon"}, 422, "way"),
    ],
)
def test_invalid_notices_are_refused(
    client: TestClient, body: dict[str, Any], status: int, said: str
) -> None:
    answer = client.post(NOTICES, json=body, headers=USER)
    assert answer.status_code == status
    assert said in answer.text
    assert client.get(NOTICES, headers=USER).json()["notices"] == []


@pytest.mark.usefixtures("site_with_notices")
def test_users_cannot_subscribe_to_other_users_jobs(client: TestClient) -> None:
    answer = client.post(NOTICES, json={"job": "2.srv", "ahead": 900}, headers=USER)
    assert answer.status_code in (403, 404)
    assert client.post(NOTICES, json={"job": "2.srv", "ahead": 900}).status_code == 200


@pytest.mark.usefixtures("site_with_notices")
def test_subscriptions_per_user_are_limited(client: TestClient) -> None:
    for status in (200, 200, 422):
        assert client.post(NOTICES, json={"ahead": 900}, headers=USER).status_code == status


@pytest.mark.usefixtures("site_with_notices")
def test_notices_need_a_named_caller(app: FastAPI, client: TestClient) -> None:
    app.state.callers.tokens.anonymous = Bearer("anonymous", "reader")
    del client.headers["Authorization"]
    assert client.post(NOTICES, json={"ahead": 900}).status_code == 403


def test_site_without_notices_reports_it(client: TestClient) -> None:
    assert client.get(NOTICES).json() == {"notices": [], "domains": [], "commands": []}
    answer = client.post(NOTICES, json={"ahead": 900})
    assert answer.status_code == 422
    assert "sends no notices" in answer.text


@pytest.fixture
def my_jobs(app: FastAPI, client: TestClient, site_with_notices: Notifier) -> str:
    """The address of the page My jobs of a site that sends notices."""
    add_dashboard(app)
    return "/dashboard/main/my-jobs"


def test_notices_of_all_own_jobs_are_made_and_stopped_on_the_page(my_jobs: str, client: TestClient) -> None:
    page = client.get(my_jobs, headers=USER).text
    assert "Mail me at our-user@example.org" in page
    assert "Notify me by sms" in page
    made = client.post(f"{my_jobs}/notices", data={"way": "mail"}, headers=USER, follow_redirects=False)
    assert (made.status_code, made.headers["location"]) == (303, f"{my_jobs}#notices")
    (notice,) = client.get(NOTICES, headers=USER).json()["notices"]
    assert {**notice, "since": 0} == {
        "number": 1,
        "job": "",
        "moved": 1800,
        "ahead": 900,
        "lost": True,
        "tighter": False,
        "way": "mail",
        "to": "our-user@example.org",
        "since": 0,
    }
    page = client.get(my_jobs, headers=USER).text
    assert "Mail me at" not in page
    assert "Notify me by sms" in page
    assert 'aria-label="Stop notice 1"' in page
    client.post(f"{my_jobs}/notices/stop", data={"number": "1"}, headers=USER)
    assert client.get(NOTICES, headers=USER).json()["notices"] == []


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("", {"way": "pigeon"}, 422),
        ("", {"way": "command", "to": "rm"}, 422),
        ("/stop", {"number": "7"}, 422),
        ("/stop", {"number": "x"}, 422),
        ("/stop", {}, 422),
    ],
)
def test_invalid_forms_of_notices_are_refused(
    my_jobs: str, client: TestClient, path: str, form: dict[str, str], status: int
) -> None:
    assert client.post(f"{my_jobs}/notices{path}", data=form, headers=USER).status_code == status
    assert client.get(NOTICES, headers=USER).json()["notices"] == []


def test_only_the_viewer_s_own_page_offers_notices(my_jobs: str, client: TestClient) -> None:
    assert "Notify me by" not in client.get(f"{my_jobs}?user=eve").text
    assert "Notify me by" not in client.get(my_jobs).text


def test_page_of_a_site_without_notices_offers_none(app: FastAPI, client: TestClient) -> None:
    add_dashboard(app)
    page = client.get("/dashboard/main/my-jobs", headers=USER)
    assert page.status_code == 200
    assert "notices" not in page.text
