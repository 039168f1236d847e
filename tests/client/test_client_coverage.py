"""The client has a method for every request of the API."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi import FastAPI

from schedd.api.app import create_app
from schedd.client import Client, Endpoint, Refused
from schedd.client.client import Reserved
from schedd.client.http import HttpConnection
from schedd.client.json_object import json_members
from schedd.engine import EngineSettings
from schedd.policy.site import site_policy
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from schedd.wire import Event
from tests.api.conftest import token, tokens
from tests.api.served_app import serving
from tests.service.planner_harness import StillClock, T, job, node
from tests.waits import WAIT_S

SITE: dict[str, Any] = {
    "bookings": {"most": 1},
    "fair_share": {"levels": ["user"]},
    "licences": {"matlab": {"copies": 3}, "ansys": {"copies": 2, "lent": True}},
}
BOOKING = {"request": "nodes=1:ppn=1", "duration": 60, "deadline": T + 86_400}
NODE: Reserved = {"nodes": ["n1"], "start": T + 10**6}
JOB = {"user": "ann", "script": "sleep 1", "resources": {"nodes": "1"}}
C = "/v1/clusters/{cluster}"


def _apply(client: Client) -> None:
    with pytest.raises(Refused, match="has no plan 999"):
        client.apply_alternative(1, 999)


def _array(client: Client) -> None:
    with pytest.raises(Refused, match="knows no job array 3"):
        client.array("3")


def _accept(client: Client) -> None:
    with pytest.raises(Refused, match="has 0 counter-offers"):
        client.accept_option("b", 1)


def _skip_event(call: Callable[[], object]) -> None:
    with pytest.raises(Refused, match="sends no notices"):
        call()


METHODS: dict[tuple[str, str], Callable[[Client], object]] = {
    ("get", "/v1/clusters"): Client.clusters,
    ("get", "/v1/me"): Client.me,
    ("get", "/v1/me/walltimes"): Client.my_tighter_walltimes,
    ("get", "/v1/jobs"): lambda client: list(client.my_jobs()),
    ("get", C): Client.cluster,
    ("get", f"{C}/alerts"): Client.alerts,
    ("get", f"{C}/jobs"): lambda client: list(client.jobs()),
    ("get", f"{C}/jobs/{{job}}"): lambda client: client.job("3"),
    ("get", f"{C}/jobs/{{job}}/explain"): lambda client: client.explain("3"),
    ("get", f"{C}/jobs/{{job}}/history"): lambda client: client.history("3"),
    ("get", f"{C}/arrays/{{array}}"): _array,
    ("get", f"{C}/jobs/{{job}}/run-time"): lambda client: client.run_time("3"),
    ("get", f"{C}/jobs/{{job}}/tighter-walltime"): lambda client: client.tighter_walltime("3"),
    ("get", f"{C}/jobs/{{job}}/priority"): lambda client: client.priority("3"),
    ("get", f"{C}/users"): Client.users,
    ("get", f"{C}/fair-share"): Client.fair_share,
    ("get", f"{C}/fair-share/history"): lambda client: client.fair_share_history(since=0),
    ("get", f"{C}/licences"): Client.licences,
    ("get", f"{C}/partitions"): Client.partitions,
    ("get", f"{C}/nodes"): lambda client: list(client.nodes()),
    ("get", f"{C}/plan"): lambda client: list(client.bars()),
    ("get", f"{C}/gaps"): lambda client: list(client.gaps()),
    ("get", f"{C}/stream"): lambda client: next(client.follow()),
    ("get", f"{C}/reservations"): Client.reservations,
    ("get", f"{C}/holds"): Client.holds,
    ("get", f"{C}/policy"): Client.policy,
    ("get", f"{C}/plan/evaluation"): Client.evaluation,
    ("get", f"{C}/plan/objectives"): Client.objectives,
    ("get", f"{C}/alternatives"): Client.alternatives,
    ("get", f"{C}/jobs/{{job}}/cost"): lambda client: client.cost("3"),
    ("get", f"{C}/plan/evaluation/history"): lambda client: list(client.evaluations(since=0)),
    ("get", f"{C}/accuracy"): Client.accuracy,
    ("get", "/v1/report"): Client.quality_report,
    ("get", f"{C}/searches"): lambda client: list(client.searches()),
    ("post", f"{C}/what-if"): lambda client: client.what_if("walltime=60"),
    ("post", f"{C}/pause"): lambda client: client.pause("a test"),
    ("post", f"{C}/resume"): Client.resume,
    ("post", f"{C}/searches"): Client.optimise,
    ("post", f"{C}/alternatives"): lambda client: client.search_alternatives(evaluations=20),
    ("delete", f"{C}/alternatives"): Client.stop_alternatives,
    ("post", f"{C}/alternatives/{{number}}/plans/{{plan}}/apply"): _apply,
    ("post", f"{C}/reservations/{{name}}/preview"): lambda client: client.preview_reservation("r", **NODE),
    ("put", f"{C}/reservations/{{name}}"): lambda client: client.reserve("r", **NODE),
    ("delete", f"{C}/reservations/{{name}}"): lambda client: client.unreserve("r"),
    ("post", f"{C}/holds/{{kind}}/{{name}}/preview"): lambda client: client.preview_hold("node", "n1", "x"),
    ("put", f"{C}/holds/{{kind}}/{{name}}"): lambda client: client.hold("node", "n1", "x"),
    ("delete", f"{C}/holds/{{kind}}/{{name}}"): lambda client: client.release("node", "n1"),
    ("get", f"{C}/power"): Client.power,
    ("post", f"{C}/power/readings"): lambda client: client.record_power({"n1": 90.0}),
    ("put", f"{C}/power/{{node}}"): lambda client: client.set_power("n1", "hold", "x"),
    ("get", f"{C}/accounts"): Client.accounts,
    ("put", f"{C}/accounts/{{account}}"): lambda client: client.set_account("phys", {"amount": 5}),
    ("post", f"{C}/accounts/transfers"): lambda client: client.transfer_amount("", "phys", 5),
    ("get", f"{C}/accounts/ledger"): Client.ledger,
    ("get", f"{C}/accounts/report"): Client.account_report,
    ("post", f"{C}/policy/preview"): lambda client: client.preview_policy(SITE),
    ("put", f"{C}/transfers/{{name}}"): lambda client: client.submit_held("h.1", JOB),
    ("get", f"{C}/transfers/{{name}}"): lambda client: client.job_transfer("h.1"),
    ("get", f"{C}/transfers"): Client.job_transfers,
    ("delete", f"{C}/transfers/{{name}}"): lambda client: client.withdraw_transfer("h.1"),
    ("put", f"{C}/licences/{{name}}"): lambda client: client.lend("ansys", 1, 1),
    ("get", f"{C}/notices"): Client.notices,
    ("post", f"{C}/notices"): lambda client: _skip_event(lambda: client.add_notice(moved=600)),
    ("delete", f"{C}/notices/{{number}}"): lambda client: _skip_event(lambda: client.remove_notice(1)),
    ("put", f"{C}/policy"): lambda client: client.set_policy(SITE),
    ("put", f"{C}/bookings/{{name}}"): lambda client: client.book("b", BOOKING),
    ("get", f"{C}/bookings/{{name}}"): lambda client: client.booking("b"),
    ("get", f"{C}/bookings"): Client.bookings,
    ("post", f"{C}/bookings/{{name}}/accept"): _accept,
    ("post", f"{C}/bookings/{{name}}/{{act}}"): lambda client: client.do_with_booking("b", "freeze"),
    ("delete", f"{C}/bookings/{{name}}"): lambda client: client.cancel_booking("b"),
    ("delete", f"{C}/policy"): Client.withdraw_policy,
}
"""The calls depend on each other and run in this order."""
ADAPTERS = {("post", f"{C}/events"), ("get", f"{C}/decisions")}
"""The adapter's methods, which are in another client."""
CALENDARS = {("get", "/v1/me/calendar.ics")}
"""For calendar programs: it is no JSON."""
LATER = {("post", f"{C}/transfers/{{name}}/release"), ("post", f"{C}/transfers/{{name}}/bag-end")}
"""Need an adapter at work: see tests/api/test_transfers.py."""


@pytest.fixture(scope="module")
def app() -> FastAPI:
    warm_up()
    return create_app(Clusters({}, StillClock()), tokens())


@pytest.fixture(scope="module")
def client(app: FastAPI) -> Iterator[Client]:
    clusters = Clusters({"main": EngineSettings(end_allowance=0, site=site_policy(SITE))}, StillClock())
    clusters.start(warm=False)
    app.state.clusters = clusters
    events: list[Event] = [node("n1"), node("n2"), *(job(f"{i}.srv") for i in range(1, 6))]
    clusters["main"].submit(events).result(WAIT_S)
    with serving(app, clusters) as url, Client(Endpoint(url, token("admin"), "main")) as found:
        yield found
    clusters.stop()


def test_every_path_has_a_method(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    served = {(verb, path) for path in paths if path.startswith("/v1/") for verb in paths[path]}
    assert METHODS.keys() == served - ADAPTERS - LATER - CALENDARS
    assert served > ADAPTERS | LATER | CALENDARS


def test_every_method_requests_its_path(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []
    send = HttpConnection._send

    def record_request(self: HttpConnection, method: str, path: str, *more: Any) -> Any:
        asked.append((method.lower(), path))
        return send(self, method, path, *more)

    monkeypatch.setattr(HttpConnection, "_send", record_request)
    for (verb, path), call in METHODS.items():
        asked.clear()
        call(client)
        assert len(asked) == 1
        assert asked[0][0] == verb
        assert re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), asked[0][1]), f"{asked[0]} for {path}"


def test_priorities_are_read(client: Client) -> None:
    priority = client.priority("3")
    assert (priority.job, priority.breaks_promises) == ("3.srv", False)
    assert priority.total == round(sum(term.points for term in priority.terms))
    tree = client.fair_share()
    assert list(tree.levels) == ["user"]
    assert sum(place.target for place in tree.places) == pytest.approx(1)
    assert ("matlab", 3, 0) in [(one.name, one.copies, one.wanted) for one in client.licences()]


def test_users_are_counted(client: Client) -> None:
    (user,) = client.users()
    assert user.user == "ann"
    assert (user.running, user.planned) == (2, 3)
    assert user.next_start == client.job("3").planned_start
    assert user.last_end == max(bar.end for bar in client.bars())


def test_nodes_are_filtered_by_state(client: Client) -> None:
    assert [one.name for one in client.nodes(state="up")] == ["n1", "n2"]
    assert list(client.nodes(state="down")) == []


def test_reservation_is_previewed_without_being_created(client: Client) -> None:
    third = client.job("3").planned_start
    assert third is not None
    seen = client.preview_reservation("r", everywhere=True, start=third, end=third + 60)
    assert seen.moves == len(seen.moved) > 0
    assert client.reservations() == []
    mine = client.preview_reservation(
        "r", everywhere=True, start=third, end=third + 60, access={"queues": ["batch"]}
    )
    assert mine.moves == 0


def test_without_a_database_there_are_no_estimates(client: Client) -> None:
    empty: dict[str, object] = {"by_lead": [], "expected": [], "breaches": None}
    empty |= {"planned_since": None, "expected_since": None, "deadlines": []}
    found = client.accuracy(since=0, queue="batch", user="ann")
    assert json_members(found) == {"kept": False, "overall": None, **empty}
