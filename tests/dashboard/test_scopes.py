"""The dashboard for users with a role on only some clusters."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.testclient import TestClient
from starlette.routing import Mount

from schedd.api.app import create_app
from schedd.dashboard import add_dashboard
from schedd.dashboard.mount import LazyApplication
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from tests.service.planner_harness import StillClock, job, node
from tests.waits import WAIT_S

HERE, OTHER, NOWHERE = "main", "secret", "nowhere"


def digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


@pytest.fixture(scope="module")
def app() -> Iterator[FastAPI]:
    warm_up()
    clusters = Clusters({HERE: EngineSettings(), OTHER: EngineSettings()}, StillClock())
    clusters.start(warm=False)
    for loop in clusters:
        loop.submit((node("n1"), job("1.server"))).result(WAIT_S)
    tokens = Tokens(
        [
            (Bearer("all", "admin"), digest("everywhere")),
            (Bearer("boss", "admin", frozenset({HERE})), digest("here")),
            (Bearer("both", "reader", None, ((HERE, "operator"),)), digest("both")),
        ]
    )
    app = create_app(clusters, Callers(tokens))
    add_dashboard(app)
    yield app
    clusters.stop()


def visitor(app: FastAPI, token: str) -> TestClient:
    """Logged in with this token."""
    client = TestClient(
        app, follow_redirects=False, headers={"Accept": "text/html"}, raise_server_exceptions=False
    )
    assert client.post("/dashboard/login", data={"token": token}).status_code == 303
    return client


def paths(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path of the dashboard that names a cluster, by the dashboard's own routes."""
    pages = next(one.app for one in app.routes if isinstance(one, Mount) and one.path == "/dashboard")
    assert isinstance(pages, LazyApplication)
    described = get_openapi(title="x", version="1", routes=pages.load().routes)["paths"]
    found = [
        (method.upper(), path)
        for path, methods in described.items()
        for method in methods
        if path.startswith("/{cluster}/")
    ]
    assert len(found) > 15
    return found


def test_clusters_outside_the_scope_have_no_pages_or_forms(app: FastAPI) -> None:
    client = visitor(app, "here")
    page = client.get(f"/dashboard/{HERE}/plan").text
    (csrf,) = set(re.findall(r'name="csrf" value="([^"]+)"', page))
    before = app.state.clusters[OTHER].published.generation
    for method, path in paths(app):
        texts = []
        for cluster in (OTHER, NOWHERE):
            where = re.sub(r"\{\w+\}", "1.server", path.replace("{cluster}", cluster))
            form: dict[str, Any] = (
                {"data": {"csrf": csrf, "reason": "x", "name": "x"}} if method == "POST" else {}
            )
            answer = client.request(method, f"/dashboard{where}", **form)
            assert answer.status_code == 404, (method, path)
            texts.append(re.sub(r"nonce-?[^\s]*", "", answer.text.replace(cluster, "X")))
        assert "1.server" not in texts[0]
        assert len(texts[0]) == len(texts[1])
    assert app.state.clusters[OTHER].published.generation == before
    assert not app.state.clusters[OTHER].published.paused


def test_other_cluster_is_named_on_no_page(app: FastAPI) -> None:
    client = visitor(app, "here")
    assert client.get("/dashboard/").headers["location"] == f"/dashboard/{HERE}/plan"
    for page in (
        "plan",
        "queue",
        "nodes",
        "what-if",
        "plan-metrics",
        "alternatives",
        "admin",
        "jobs/1.server",
    ):
        answer = client.get(f"/dashboard/{HERE}/{page}")
        assert answer.status_code == 200, page
        assert OTHER not in answer.text, page
    chosen = visitor(app, "everywhere").get("/dashboard/")
    assert OTHER in chosen.text
    assert HERE in chosen.text


def test_pages_use_the_role_on_their_cluster(app: FastAPI) -> None:
    client = visitor(app, "both")
    assert client.get(f"/dashboard/{HERE}/admin").status_code == 200
    assert client.get(f"/dashboard/{OTHER}/admin").status_code == 403
    assert client.get(f"/dashboard/{OTHER}/plan").status_code == 200
    assert OTHER in client.get(f"/dashboard/{HERE}/plan").text
