"""Accounts over HTTP: values, permissions and reports."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from schedd.service.access.callers import Callers
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.settings.auth import AuthSettings
from schedd.wire import JobEnded, JobStarted, PolicyChanged, ShareFacts
from tests.api.conftest import token, tokens
from tests.api.test_errors import problem
from tests.api.test_responses import MAIN, get
from tests.service.planner_harness import T, event_id
from tests.waits import WAIT_S, wait_until

USER = {"Authorization": f"Bearer {token('user')}"}


@pytest.fixture
def accounts(busy_cluster: TestClient, loop: PlanLoop) -> TestClient:
    site = {"accounts": {"by": "user"}, "currency": "CZK"}
    loop.submit([PolicyChanged(id=event_id(), time=T, version=1, site=site)]).result(WAIT_S)
    busy_cluster.put(f"{MAIN}/accounts/ann", json={"amount": 100, "users": ["ann"]})
    busy_cluster.put(f"{MAIN}/accounts/bob", json={"amount": 2, "overdraft": 1, "period": "month"})
    return busy_cluster


def start_and_end(loop: PlanLoop, job: str) -> None:
    shares = (ShareFacts("n1", 4),)
    loop.submit([JobStarted(id=event_id(), time=T, job_id=job, shares=shares)]).result(WAIT_S)
    loop.submit([JobEnded(id=event_id(), time=T, job_id=job)]).result(WAIT_S)


def test_account_shows_available_and_held_amounts(accounts: TestClient) -> None:
    ann, bob = get(accounts, "/accounts")["accounts"]
    # Jobs 1, 3 and 5 are ann's, 2 and 4 bob's, each of four cores for an hour.
    assert (ann["name"], ann["unit"], ann["amount"], ann["held"], ann["left"]) == (
        *("ann", "core_hours", 100, 12, 88),
    )
    assert (ann["users"], ann["until"], bob["period"]) == (["ann"], None, "month")
    assert (bob["held"], bob["left"]) == (4, -1), "job 2 was about to start when the account was made"
    assert bob["until"] > T
    job = get(accounts, "/jobs/4.server")
    assert job["planned_start"] is None
    assert job["why"] == (
        "waiting for account bob: 0.00 core-hours are left, and it may take 4.00 core-hours"
    )


def test_transfer_lets_jobs_start(accounts: TestClient) -> None:
    body = {"source": "ann", "target": "bob", "amount": 5.5, "reason": "a favour"}
    answer = accounts.post(f"{MAIN}/accounts/transfers", json=body)
    assert [one["left"] for one in answer.json()["accounts"]] == [82.5, 0.5]
    assert get(accounts, "/jobs/4.server")["planned_start"] is not None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"source": "ann", "target": "bob", "amount": 89}, "too little that is not reserved"),
        ({"source": "ann", "target": "ann", "amount": 1}, "two different"),
        ({"source": "nope", "target": "bob", "amount": 1}, "no account nope"),
        ({"amount": 1}, "two different"),
        ({"source": "ann", "amount": 0}, "amount"),
        ({"source": "ann", "amount": "NaN"}, "amount"),
        ({"source": "ann", "amount": 1, "by": "me"}, "by"),
    ],
)
def test_invalid_transfer_is_refused_and_changes_nothing(
    accounts: TestClient, body: dict[str, Any], said: str
) -> None:
    before = get(accounts, "/accounts")["accounts"]
    assert said in str(problem(accounts.post(f"{MAIN}/accounts/transfers", json=body), "invalid"))
    assert get(accounts, "/accounts")["accounts"] == before


def test_an_account_in_money_keeps_its_unit_if_none_is_given(accounts: TestClient) -> None:
    accounts.put(f"{MAIN}/accounts/lab", json={"amount": 7, "unit": "money"})
    accounts.put(f"{MAIN}/accounts/lab", json={"amount": 8})
    (lab,) = [one for one in get(accounts, "/accounts")["accounts"] if one["name"] == "lab"]
    assert (lab["unit"], lab["amount"]) == ("CZK", 8)


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("ann", {"amount": 5, "unit": "money"}, "account ann counts core_hours"),
        ("new", {"amount": 2e9}, "amount"),
        ("new", {"amount": 1, "overdraft": -1}, "overdraft"),
        ("new", {"amount": 1, "period": "week"}, "period"),
        ("new", {"amount": 1, "users": ["a b"]}, "users"),
        ("new", {}, "amount"),
    ],
)
def test_invalid_account_is_refused(accounts: TestClient, name: str, body: dict[str, Any], said: str) -> None:
    assert said in str(problem(accounts.put(f"{MAIN}/accounts/{name}", json=body), "invalid"))
    assert [one["name"] for one in get(accounts, "/accounts")["accounts"]] == ["ann", "bob"]


def test_only_admins_change_accounts(accounts: TestClient) -> None:
    for role in ("user", "operator", "reader"):
        headers = {"Authorization": f"Bearer {token(role)}"}
        problem(accounts.put(f"{MAIN}/accounts/x", json={"amount": 1}, headers=headers), "not-allowed")
        body = {"target": "ann", "amount": 1}
        problem(accounts.post(f"{MAIN}/accounts/transfers", json=body, headers=headers), "not-allowed")


def test_charges_are_listed_and_reported(accounts: TestClient, loop: PlanLoop) -> None:
    start_and_end(loop, "1.server")
    wait_until(lambda: len(get(accounts, "/accounts/ledger")["lines"]) >= 3)
    charge, made, _ = get(accounts, "/accounts/ledger")["lines"]
    assert (charge["kind"], charge["account"], charge["job"], charge["owner"]) == (
        *("charge", "ann", "1.server"),
        "ann@login",
    )
    assert (made["kind"], made["account"], made["by"], made["amount"], made["start"]) == (
        *("set", "bob", "our-admin"),
        *(2, None),
    )
    page = get(accounts, "/accounts/ledger", limit=1)
    assert page["following"] == charge["number"]
    assert get(accounts, "/accounts/ledger", before=page["following"])["lines"][0] == made
    assert get(accounts, "/accounts/ledger", user="bob")["lines"] == []
    (row,) = get(accounts, "/accounts/report")["rows"]
    assert (row["account"], row["user"], row["jobs"], row["month"]) == ("ann", "ann", 1, "2023-11")
    (row,) = get(accounts, "/accounts/report", by="account")["rows"]
    assert (row["month"], row["account"], row["user"]) == ("", "ann", "")
    problem(accounts.get(f"{MAIN}/accounts/report", params={"by": "week"}), "invalid")


def test_user_sees_only_accessible_accounts_and_own_charges(accounts: TestClient, app: Any) -> None:
    app.state.callers = Callers(tokens(), AuthSettings(others="none"))
    found = accounts.get(f"{MAIN}/accounts", headers=USER).json()["accounts"]
    assert [(one["name"], one["users"]) for one in found] == [("bob", [])]
    assert accounts.get(f"{MAIN}/accounts/ledger", headers=USER).json()["lines"] == []
    answer = accounts.get(f"{MAIN}/accounts/report", params={"user": "ann"}, headers=USER)
    assert "you may not see what ann used" in str(problem(answer, "invalid"))
