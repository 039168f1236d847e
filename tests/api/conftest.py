"""A daemon in this process, with a little cluster, and clients of each role."""

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from schedd.api.app import create_app
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.access.roles import Bearer
from schedd.service.access.tokens import Tokens
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.clusters import Clusters
from schedd.service.warmup import warm_up
from schedd.store import Role
from tests.service.planner_harness import StillClock, T

ROLES: tuple[Role, ...] = get_args(Role)
MAX_BODY = 1 << 20

Call = Callable[..., Any]


def token(role: str) -> str:
    return f"the-token-of-the-{role}"


def tokens(anonymous: Bearer | None = None) -> Tokens:
    entries = [(Bearer(f"our-{role}", role), hashlib.sha256(token(role).encode()).digest()) for role in ROLES]
    return Tokens(entries, anonymous)


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    found = Clusters({"main": EngineSettings(), "other": EngineSettings()}, StillClock())
    found.start(warm=False)
    yield found
    found.stop()


@pytest.fixture
def loop(clusters: Clusters) -> PlanLoop:
    return clusters["main"]


@pytest.fixture(scope="session")
def the_app() -> FastAPI:
    """One application for all tests, as building it takes long."""
    warm_up()
    return create_app(Clusters({}, StillClock()), tokens(), max_body=MAX_BODY)


@pytest.fixture
def app(the_app: FastAPI, clusters: Clusters) -> Iterator[FastAPI]:
    """A client for this test's clusters; users authenticated here are not authenticated for other tests."""
    the_app.state.clusters = clusters
    the_app.state.callers = Callers(tokens())
    yield the_app
    the_app.state.callers = Callers(tokens())


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    """A client with the role admin."""
    headers = {"Authorization": f"Bearer {token('admin')}"}
    with TestClient(app, headers=headers, raise_server_exceptions=False) as client:
        yield client


EVENTS: list[dict[str, Any]] = [
    {"type": "node_changed", "id": "e:1", "time": T, "node": {"name": "n1", "cpus": 4, "mem": 8 << 20}},
    {"type": "node_changed", "id": "e:2", "time": T, "node": {"name": "n2", "cpus": 4, "mem": 8 << 20}},
    *(
        {
            "type": "job_queued",
            "id": f"e:{10 + i}",
            "time": T,
            "job": {
                "id": f"{i}.server",
                "owner": "ann@login" if i % 2 else "bob@login",
                "queue": "batch",
                "submitted": T,
                "resources": {"nodes": "1:ppn=4", "walltime": "3600", "mem": "2gb"},
                "version": "1",
            },
        }
        for i in range(1, 6)
    ),
]


@pytest.fixture
def busy_cluster(client: TestClient) -> TestClient:
    """The admin's client, after two nodes and five jobs."""
    answer = client.post("/v1/clusters/main/events", json={"events": EVENTS})
    assert answer.status_code == 200
    return client
