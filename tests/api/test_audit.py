"""The audit names actions with their author, including refused ones."""

import ast
import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.api.audit import audit_act
from schedd.api.planner_calls import TIMEOUTS
from schedd.api.problems import ProblemError
from schedd.dashboard.health import latest_audit
from schedd.engine import EngineSettings
from schedd.policy.site import site_policy
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.clusters import Clusters
from schedd.service.settings.daemon import StoreSettings
from schedd.store import AuditRecord
from tests.api.conftest import token
from tests.conftest import ROOT
from tests.service.planner_harness import StillClock, T
from tests.service.test_plan_loop import busy_planner
from tests.waits import WAIT_S

MAIN = "/v1/clusters/main"
NODE = {"type": "node_changed", "id": "n:1", "time": T, "node": {"name": "n1", "cpus": 4}}
RULES = {"bookings": {"most": 1}, "accounts": {}, "licences": {"abaqus": {"lent": True}}}
BOOKING = {"request": "nodes=1:ppn=2", "duration": 3600, "ready": T + 100_000, "deadline": T + 110_000}
SCRIPT = {"user": "ann", "script": "#!/bin/sh\n", "resources": {"nodes": "1"}}


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    durable = DaemonStore(StoreSettings(url=f"sqlite:///{tmp_path}/schedd.sqlite"))
    found = Clusters({"main": EngineSettings(site=site_policy(RULES))}, StillClock(), durable=durable)
    found.start(warm=False)
    while found["main"].on_standby:
        time.sleep(0.01)
    yield found
    found.stop()


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, headers={"Authorization": f"Bearer {token('admin')}"}) as found:
        assert found.post(f"{MAIN}/events", json={"events": [NODE]}).status_code == 200
        yield found


def audit_entries(clusters: Clusters) -> list[tuple[str, str]]:
    assert clusters.durable is not None
    return [(one.act, one.detail) for one in clusters.durable.store.audit_entries()][::-1]


def fill_access_lists(client: TestClient) -> None:
    """Use all access lists of reservations."""
    for number in range(16):
        body = {"nodes": ["n1"], "start": T + number, "end": T + 9_000, "users": [f"u{number}"]}
        assert client.put(f"{MAIN}/reservations/g{number}", json=body).status_code == 200


READER = {"Authorization": f"Bearer {token('reader')}"}
FEDERATION = {"Authorization": f"Bearer {token('federation')}"}
LAST_LIST = {"nodes": ["n1"], "end": T + 9_000, "users": ["eve"]}
REFUSED: dict[str, tuple[str, str, dict[str, Any], str, str]] = {
    "a booking without room": (
        "PUT", "/bookings/b", {"json": {**BOOKING, "request": "nodes=1:ppn=9"}}, "book",
        "refused: b: 3600 s for our-admin: ",
    ),
    "a step of no booking": ("POST", "/bookings/x/freeze", {}, "booking freeze", "refused: x: "),
    "a counter-offer of none": (
        "POST", "/bookings/x/accept", {"json": {"option": 1}}, "booking accept", "refused: x: ",
    ),
    "a booking given back that is not there": ("DELETE", "/bookings/x", {}, "booking cancel", "refused: x: "),
    "a reservation with one access list too many": (
        "PUT", "/reservations/r", {"json": LAST_LIST}, "reserve", "refused: r",
    ),
    "a reservation of an unknown node": (
        "PUT", "/reservations/r", {"json": {"nodes": ["n9"]}}, "reserve", "refused: r: ",
    ),
    "a reservation lifted that is not there": (
        "DELETE", "/reservations/x", {}, "unreserve", "refused: x: ",
    ),
    "a release of what is not held": ("DELETE", "/holds/node/n1", {}, "release", "refused: node n1: "),
    "power of an unknown node": (
        "PUT", "/power/n9", {"json": {"wish": "off"}}, "power", "refused: n9 off: no node n9",
    ),
    "a plan of no set": (
        "POST", "/alternatives/7/plans/1/apply", {"json": {}}, "apply alternative",
        "refused: plan 1 of set 7: ",
    ),
    "the end of no search": (
        "DELETE", "/alternatives", {}, "alternatives", "refused: no search is under way",
    ),
    "a notice about no job": (
        "POST", "/notices", {"json": {"job": "77", "moved": 60}}, "notify", "refused: 77, ",
    ),
    "the end of no notice": ("DELETE", "/notices/9", {}, "stop notifying", "refused: 9: "),
    "the release of no transfer": (
        "POST", "/transfers/x/release", {"headers": FEDERATION}, "release", "refused: x: ",
    ),
    "an action without the right": (
        "POST", "/pause", {"json": {"reason": "x"}, "headers": READER}, "pause",
        "refused: our-reader has the role reader; ",
    ),
    "a pause without a reason": ("POST", "/pause", {"json": {}}, "pause", "refused: body.reason: "),
    "a hold of an unknown node": (
        "PUT", "/holds/node/n9", {"json": {"reason": "x"}}, "hold", "refused: node n9: ",
    ),
    "a policy that cannot be read": (
        "PUT", "/policy", {"json": {"version": "x"}}, "policy", "refused: body.",
    ),
    "a bag's end of no array": (
        "POST", "/transfers/x/bag-end", {"json": {"end": T}, "headers": FEDERATION}, "report a bag's end",
        "refused: x: ",
    ),
    "a licence that is not lent": (
        "PUT", "/licences/matlab", {"json": {"copies": 1, "number": 1}, "headers": FEDERATION}, "lend",
        "refused: matlab: 1 copies: ",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(REFUSED))
def test_refused_action_is_audited_as_refused(client: TestClient, clusters: Clusters, case: str) -> None:
    method, path, more, act, detail = REFUSED[case]
    if case == "a reservation with one access list too many":
        fill_access_lists(client)
    before = len(audit_entries(clusters))
    answer = client.request(method, MAIN + path, **more)
    assert answer.status_code >= 400 or path == "/alternatives", answer.text
    (noted,) = audit_entries(clusters)[before:]
    assert noted[0] == act, answer.text
    assert noted[1].startswith(detail), noted


def test_reads_and_previews_leave_no_refusal_in_the_audit(client: TestClient, clusters: Clusters) -> None:
    before = audit_entries(clusters)
    assert client.post(f"{MAIN}/holds/node/n9/preview", json={"reason": "x"}).status_code == 422
    assert client.post(f"{MAIN}/what-if", json={"wrong": 1}).status_code == 422
    assert client.get(f"{MAIN}/jobs/9").status_code == 404
    assert audit_entries(clusters) == before


def test_a_lease_is_audited_and_repeated_looks_at_it_are_not(client: TestClient, clusters: Clusters) -> None:
    for number in (1, 1, 0, 1):
        body = {"copies": 2, "number": number}
        assert client.put(f"{MAIN}/licences/abaqus", json=body, headers=FEDERATION).status_code == 200
    assert audit_entries(clusters) == [("lend", "abaqus: 2 copies, lease 1")]


def test_many_acts_on_other_clusters_hide_none_of_a_cluster(client: TestClient, clusters: Clusters) -> None:
    assert clusters.durable is not None
    store = clusters.durable.store
    assert client.post(f"{MAIN}/pause", json={"reason": "lunch"}).status_code == 200
    store.audit(AuditRecord(T, "cli", "tokens", "made", None))
    store.register_cluster("other", T)
    for _ in range(60):
        store.audit(AuditRecord(T, "fed", "lend", "", "other"))
    found, _ = latest_audit(clusters, "main", 5, alone=False)
    assert [one.act for one in found] == ["tokens", "pause"]
    found, _ = latest_audit(clusters, "main", 5, alone=True)
    assert [one.act for one in found] == ["pause"]


def test_a_completed_action_is_audited_without_a_refusal(client: TestClient, clusters: Clusters) -> None:
    assert client.put(f"{MAIN}/bookings/b", json=BOOKING).status_code == 200
    assert client.put(f"{MAIN}/reservations/r", json={"nodes": ["n1"], "end": T + 90}).status_code == 200
    assert client.post(f"{MAIN}/pause", json={"reason": "lunch"}).status_code == 200
    assert [act for act, _ in audit_entries(clusters)] == ["book", "reserve", "pause"]
    assert not [detail for _, detail in audit_entries(clusters) if "refused" in detail]


def test_api_writes_audit_entries_only_in_audit_act() -> None:
    """Otherwise an action could be audited as done before its outcome is known."""
    known = {"audit.py", "settings_reload.py", "reservations.py", "alternatives.py"}
    for file in sorted((ROOT / "schedd" / "api").glob("*.py")):
        calls = [
            node
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Attribute) and node.attr == "audit"
        ]
        assert not calls or file.name in known, file.name


def test_an_action_that_the_planner_still_has_to_do_is_audited_with_its_outcome(
    client: TestClient, clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the timeout of its request it is not refused: it is done when the planner continues."""
    monkeypatch.setattr(TIMEOUTS, "change", 0.1)
    loop = clusters["main"]
    with busy_planner(loop):
        late = client.put(f"{MAIN}/reservations/r", json={"nodes": ["n1"], "end": T + 9_000})
        assert (late.status_code, audit_entries(clusters)) == (503, [])
    await_entry(clusters, ("reserve", "r"))
    continues, set_paused = threading.Event(), loop._set_paused
    monkeypatch.setattr(loop, "_set_paused", lambda why: continues.wait(WAIT_S) and set_paused(why))
    late = client.post(f"{MAIN}/pause", json={"reason": "lunch"})
    assert late.json()["detail"] == "starting jobs was not paused yet: the planner still works on it"
    assert [act for act, _ in audit_entries(clusters)] == ["reserve"]
    continues.set()
    await_entry(clusters, ("pause", "lunch"))
    assert client.get(MAIN).json()["paused"] == "lunch"


def test_an_action_whose_outcome_is_cancelled_is_audited_as_refused(
    client: TestClient, clusters: Clusters
) -> None:
    outcome: Future[None] = Future()

    async def act() -> None:
        async with audit_act(clusters["main"], "ann", "pause", "lunch"):
            error = ProblemError("not-ready", "the planner is busy")
            error.pending = outcome
            raise error

    with pytest.raises(ProblemError):
        asyncio.run(act())
    assert audit_entries(clusters) == []
    outcome.cancel()
    await_entry(clusters, ("pause", "refused: lunch: the planner stopped before it was done"))


def await_entry(clusters: Clusters, entry: tuple[str, str]) -> None:
    end = time.monotonic() + WAIT_S
    while not (found := audit_entries(clusters)) or not _matches(found[-1], entry):
        assert time.monotonic() < end, found
        time.sleep(0.01)


def _matches(found: tuple[str, str], entry: tuple[str, str]) -> bool:
    return found[0] == entry[0] and found[1].startswith(entry[1])
