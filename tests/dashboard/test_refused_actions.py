"""Forms of pages with a refused action are audited as refused."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from schedd.api.app import create_app
from schedd.dashboard import add_dashboard
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.cluster.daemon_store import DaemonStore
from schedd.service.clusters import Clusters
from schedd.service.settings.daemon import StoreSettings
from tests.dashboard.conftest import token, tokens
from tests.service.planner_harness import StillClock, node
from tests.waits import WAIT_S

REFUSED: dict[str, tuple[str, dict[str, str], str, str]] = {
    "a pause without a reason": ("admin/pause", {}, "pause", "Say why"),
    "a hold without a reason": (
        "admin/hold", {"hold_kind": "node", "hold_name": "n1"}, "hold", "Give a reason",
    ),
    "a hold of an unknown node": (
        "admin/hold", {"hold_kind": "node", "hold_name": "n9", "hold_reason": "x"}, "hold", "",
    ),
    "a release of what is not held": (
        "admin/release", {"hold_kind": "node", "hold_name": "n1"}, "release", "none of the nodes n1",
    ),
    "a reservation without a name": ("admin/reserve", {"kind": "everywhere"}, "reserve", "name: "),
    "a reservation of an unknown node": (
        "admin/reserve", {"name": "r", "kind": "nodes", "where": "n9"}, "reserve", "",
    ),
    "a reservation lifted that is not there": ("admin/unreserve", {"name": "x"}, "unreserve", "x: "),
    "weights that are no numbers": ("admin/weights", {"version": "0", "criterion_wait": "x"}, "policy", ""),
    "a plan of no set": ("alternatives/apply", {"set": "7", "plan": "1"}, "apply alternative", ""),
    "a plan without a number": ("alternatives/apply", {}, "alternatives", "set and plan"),
    "alternatives in no time": ("alternatives/search", {"seconds": "x"}, "alternatives", ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    path: Path = tmp_path_factory.mktemp("store")
    durable = DaemonStore(StoreSettings(url=f"sqlite:///{path}/schedd.sqlite"))
    found = Clusters({"main": EngineSettings()}, StillClock(), durable=durable)
    found.start(warm=False)
    deadline = time.monotonic() + WAIT_S
    while found["main"].on_standby and time.monotonic() < deadline:
        time.sleep(0.01)
    found["main"].submit([node("n1")]).result(WAIT_S)
    yield found
    found.stop()


def log_in(clusters: Clusters, role: str) -> tuple[TestClient, str]:
    """Return a browser with a session, and the secret of its forms."""
    app = create_app(clusters, Callers(tokens()))
    add_dashboard(app)
    client = TestClient(app, headers={"Accept": "text/html"})
    client.post("/dashboard/login", data={"token": token(role)})
    page = client.get("/dashboard/main/plan").text
    return client, re.findall(r'name="csrf" value="([^"]+)"', page)[0]


def audit_entries(clusters: Clusters) -> list[tuple[str, str, str]]:
    assert clusters.durable is not None
    return [(one.act, one.who, one.detail) for one in clusters.durable.store.audit_entries()][::-1]


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_refused_form_is_audited_as_refused(clusters: Clusters, case: str) -> None:
    path, fields, act, why = REFUSED[case]
    client, csrf = log_in(clusters, "admin")
    before = len(audit_entries(clusters))
    answer = client.post(f"/dashboard/main/{path}", data={**fields, "csrf": csrf}, follow_redirects=False)
    assert answer.status_code >= 400, answer.text
    (noted,) = audit_entries(clusters)[before:]
    assert noted[:2] == (act, "our-admin"), noted
    assert noted[2].startswith("refused: "), noted
    assert why in noted[2], noted


@pytest.mark.parametrize("path", ["pause", "resume", "hold", "release", "reserve", "unreserve", "weights"])
def test_a_form_of_a_reader_or_of_an_earlier_login_is_audited_as_refused(
    clusters: Clusters, path: str
) -> None:
    for role, secret in (("reader", None), ("admin", "of an earlier login")):
        client, csrf = log_in(clusters, role)
        before = len(audit_entries(clusters))
        form = {"csrf": secret or csrf, "reason": "x"}
        answer = client.post(f"/dashboard/main/admin/{path}", data=form, follow_redirects=False)
        assert answer.status_code == 403, answer.text
        (noted,) = audit_entries(clusters)[before:]
        assert noted[1] == f"our-{role}"
        assert noted[2].startswith("refused: "), noted


def test_previews_leave_no_refusal_in_the_audit(clusters: Clusters) -> None:
    client, csrf = log_in(clusters, "admin")
    before = audit_entries(clusters)
    wrong = {"csrf": csrf, "preview": "1", "hold_kind": "node", "hold_name": "n9", "kind": "nodes"}
    for path in ("hold", "reserve", "weights/preview"):
        form = {**wrong, "version": "0", "criterion_wait": "x"}
        assert client.post(f"/dashboard/main/admin/{path}", data=form).status_code == 422, path
    assert audit_entries(clusters) == before
