"""Tokens and roles limited to some clusters: over every route, and in lists of clusters."""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from schedd.api.access import credential_check
from schedd.service.access.callers import Callers
from schedd.service.access.roles import Bearer, RoleGrant, bearer_with_grants
from schedd.service.access.tokens import Tokens
from schedd.service.clusters import Clusters
from schedd.service.settings.auth import AuthSettings, GrantSettings
from schedd.service.settings.daemon import LimitSettings
from schedd.store import Role
from tests.api.conftest import EVENTS
from tests.api.test_errors import problem

SCOPED: tuple[Role, ...] = ("user", "reader", "operator", "adapter", "federation", "admin")
NAMES = {"job": "1.server", "name": "x", "kind": "node", "node": "n1", "number": "1"}
OTHER, NOWHERE = "other", "nowhere"


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


def scoped_tokens(cluster: str = "main") -> Tokens:
    entries = [
        (Bearer(f"our-{role}", role, frozenset({cluster})), digest(f"{cluster}-{role}")) for role in SCOPED
    ]
    return Tokens(
        [
            *entries,
            (Bearer("all", "admin"), digest("all")),
            (Bearer("gate", "proxy", frozenset({cluster})), digest("gate")),
        ]
    )


@pytest.fixture
def scoped(app: FastAPI) -> Iterator[TestClient]:
    """The application with tokens limited to the cluster main; both clusters are busy.

    The test sends more requests at once than a user's rate limit permits: it is disabled here.
    """
    app.state.callers = Callers(scoped_tokens(), limits=LimitSettings(user_rate=0))
    with TestClient(app, raise_server_exceptions=False) as client:
        for cluster in ("main", OTHER):
            events = {"events": EVENTS}
            answer = client.post(f"/v1/clusters/{cluster}/events", json=events, headers=bearing("all"))
            assert answer.status_code == 200
        yield client


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path that names a cluster."""
    described = app.openapi()["paths"]
    found = [
        (method.upper(), path)
        for path, methods in described.items()
        for method in methods
        if "{cluster}" in path
    ]
    assert len(found) > 25
    return found


def filled(path: str, cluster: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda one: NAMES.get(one[1], "1"), path.replace("{cluster}", cluster))


@pytest.mark.parametrize("role", SCOPED)
def test_clusters_outside_the_scope_do_not_exist_on_any_route(
    app: FastAPI, scoped: TestClient, role: str
) -> None:
    before = scoped.get(f"/v1/clusters/{OTHER}", headers=bearing("all")).json()
    for method, path in routes(app):
        answers = []
        for cluster in (OTHER, NOWHERE):
            body: dict[str, Any] = {"json": {}} if method in ("POST", "PUT") else {}
            answer = scoped.request(method, filled(path, cluster), headers=bearing(f"main-{role}"), **body)
            found = problem(answer, "unknown-cluster")
            assert found["detail"] == f"no cluster '{cluster}'; there is main", (method, path)
            answers.append(json.dumps(found).replace(cluster, "X"))
        assert answers[0] == answers[1]
    after = scoped.get(f"/v1/clusters/{OTHER}", headers=bearing("all")).json()
    for state in (before, after):
        assert not state["paused"]
    assert after["generation"] == before["generation"]


def test_a_scoped_token_has_its_role_on_its_cluster(app: FastAPI, scoped: TestClient) -> None:
    for role in SCOPED:
        assert scoped.get("/v1/clusters/main/jobs/1", headers=bearing(f"main-{role}")).status_code == 200
    paused = scoped.post("/v1/clusters/main/pause", json={"reason": "x"}, headers=bearing("main-operator"))
    assert paused.status_code == 200
    problem(scoped.post("/v1/clusters/main/resume", json={}, headers=bearing("main-reader")), "not-allowed")
    states = {
        one["name"]: one["paused"]
        for one in scoped.get("/v1/clusters", headers=bearing("all")).json()["clusters"]
    }
    assert states == {"main": "x", OTHER: ""}


def _main_cluster_only(scrape: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in scrape.splitlines() if 'cluster="main"' in line}


def test_cluster_lists_are_limited_to_the_scope(scoped: TestClient) -> None:
    for role in SCOPED:
        headers = bearing(f"main-{role}")
        listed = scoped.get("/v1/clusters", headers=headers).json()["clusters"]
        assert [one["name"] for one in listed] == ["main"]
    whole = scoped.get("/metrics", headers=bearing("all")).text
    mine = scoped.get("/metrics", headers=bearing("main-reader")).text
    assert 'schedd_jobs{cluster="other"' in whole
    assert 'schedd_events_total{cluster="other"' in whole
    # A path that is no route is counted under route="other": that is no cluster's name.
    assert f'"{OTHER}"' not in mine.replace(f'route="{OTHER}"', "")
    later = scoped.get("/metrics", headers=bearing("all")).text
    # A value first counted between two scrapes is only in the later one.
    assert _main_cluster_only(whole) <= _main_cluster_only(mine) <= _main_cluster_only(later)
    problem(scoped.get("/metrics", headers=bearing("main-user")), "not-allowed")


def test_readiness_reasons_are_limited_to_the_scope(scoped: TestClient, clusters: Clusters) -> None:
    for name, why in (("main", "lost-a"), (OTHER, "lost-b")):
        clusters[name].failure = why
    told = problem(scoped.get("/readyz", headers=bearing("main-reader")), "not-ready")
    assert "lost-a" in told["detail"]
    assert "lost-b" not in json.dumps(told)
    assert OTHER not in json.dumps(told)
    clusters["main"].failure = ""
    told = problem(scoped.get("/readyz", headers=bearing("main-reader")), "not-ready")
    assert OTHER not in json.dumps(told)
    assert "lost-b" not in json.dumps(told)
    assert "lost-b" in problem(scoped.get("/readyz", headers=bearing("all")), "not-ready")["detail"]


def test_proxy_with_a_scope_vouches_only_on_its_clusters(app: FastAPI, scoped: TestClient) -> None:
    app.state.callers.auth = AuthSettings(admins=("root",))
    for user, allowed in (("root", 200), ("ann", 403)):
        headers = {**bearing("gate"), "X-Remote-User": user}
        assert scoped.post("/v1/clusters/main/resume", headers=headers).status_code == allowed
        problem(scoped.post(f"/v1/clusters/{OTHER}/resume", headers=headers), "unknown-cluster")


def test_users_may_have_a_role_on_some_clusters(app: FastAPI, scoped: TestClient) -> None:
    grants = (
        GrantSettings(users=("ann", "eve"), role="operator", clusters=("main",)),
        GrantSettings(users=("ann",), role="reader"),
    )
    auth = AuthSettings(grants=grants)
    tokens = Tokens([(Bearer("gate", "proxy"), digest("gate"))])
    app.state.callers = Callers(tokens, auth)

    def status(user: str, cluster: str, method: str = "POST", path: str = "/resume") -> int:
        headers = {**bearing("gate"), "X-Remote-User": user}
        return scoped.request(method, f"/v1/clusters/{cluster}{path}", headers=headers).status_code

    assert [status("ann", "main"), status("ann", OTHER)] == [200, 403]
    assert [status("eve", "main"), status("eve", OTHER), status("bob", "main")] == [200, 403, 403]
    assert status("eve", OTHER, "GET", "") == 200  # elsewhere she is a user as everybody
    shown = {
        user: scoped.get("/metrics", headers={**bearing("gate"), "X-Remote-User": user})
        for user in ("ann", "eve", "bob")
    }
    assert 'cluster="other"' in shown["ann"].text
    assert 'cluster="other"' not in shown["eve"].text
    assert 'cluster="main"' in shown["eve"].text
    problem(shown["bob"], "not-allowed")


def test_a_stream_ends_with_its_scope(app: FastAPI, scoped: TestClient) -> None:
    scope = {
        "type": "http",
        "app": app,
        "path_params": {"cluster": "main"},
        "headers": [(b"authorization", b"Bearer main-reader")],
    }
    caller = app.state.callers.tokens.bearer("main-reader").on_cluster("main")
    counts = credential_check(Request(scope), caller)
    assert counts()
    app.state.callers.tokens = Tokens(
        [(Bearer("our-reader", "reader", frozenset({OTHER})), digest("main-reader"))]
    )
    assert not counts()


def test_a_stream_ends_when_the_user_of_a_proxy_gets_another_role(app: FastAPI) -> None:
    """It went on with the old role, since only the proxy's own token was looked at."""
    tokens = Tokens([(Bearer("gate", "proxy"), digest("gate"))])
    app.state.callers = Callers(tokens, AuthSettings(operators=("ann",)))
    headers = [(b"authorization", b"Bearer gate"), (b"x-remote-user", b"ann")]
    scope = {"type": "http", "app": app, "path_params": {"cluster": "main"}, "headers": headers}
    counts = credential_check(Request(scope), Bearer("ann", "operator"))
    assert counts()
    app.state.callers.replace_settings(tokens, AuthSettings(), app.state.callers.limits)
    assert not counts()


@pytest.mark.parametrize("header", [b"munge x", b""])
def test_a_stream_ends_with_its_way_of_authentication(app: FastAPI, header: bytes) -> None:
    """MUNGE was switched off, or requests without credentials are no longer accepted."""
    anonymous = Bearer("anonymous", "reader")
    app.state.callers = Callers(Tokens([], anonymous), AuthSettings(munge=True))
    headers = [(b"authorization", header)] if header else []
    scope = {"type": "http", "app": app, "path_params": {"cluster": "main"}, "headers": headers}
    counts = credential_check(Request(scope), Bearer("ann", "user") if header else anonymous)
    assert counts()
    app.state.callers.replace_settings(Tokens([]), AuthSettings(), app.state.callers.limits)
    assert not counts()


def test_roles_are_joined_by_the_highest() -> None:
    assert bearer_with_grants("ann", ()) is None
    here = bearer_with_grants("ann", [RoleGrant("reader", ("a",)), RoleGrant("admin", ("a", "b"))])
    assert here is not None
    found = [here.on_cluster(name) for name in ("a", "b", "c")]
    assert [one and one.role for one in found] == ["admin", "admin", None]
    assert not here.may_everywhere("ask")
    both = bearer_with_grants(
        "ann", [RoleGrant("operator"), RoleGrant("reader", ("a",)), RoleGrant("admin", ("b",))]
    )
    assert both is not None
    assert [both.on_cluster(name).role for name in ("a", "b", "c")] == ["operator", "admin", "operator"]  # type: ignore[union-attr]
    inside = both.restricted_to(frozenset({"b", "c"}))
    assert inside.on_cluster("a") is None
    assert inside.on_cluster("b") is not None
    assert inside.on_cluster("b").role == "admin"  # type: ignore[union-attr]
