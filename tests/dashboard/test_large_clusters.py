"""Pages of a cluster with many nodes and jobs: their size does not grow with it."""

import html
import re
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from schedd.api.app import create_app
from schedd.dashboard import add_dashboard
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.clusters import Clusters
from tests.dashboard.conftest import token, tokens
from tests.service.planner_harness import StillClock, job, node
from tests.waits import WAIT_S

NODES, RACK, JOBS = 4_000, 8, 500
MAX_BYTES = 200_000


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    clusters = Clusters({"main": EngineSettings()}, StillClock())
    clusters.start(warm=False)
    loop = clusters["main"]
    loop.submit(
        [
            node(f"n{i:04}", state="down" if i % 2 else "up", properties=(f"rack=r{i // RACK}",))
            for i in range(NODES)
        ]
    ).result(WAIT_S)
    loop.submit([job(f"{i}.server", nodes="60:ppn=4") for i in range(JOBS)]).result(WAIT_S)
    app = create_app(clusters, Callers(tokens()))
    add_dashboard(app)
    client = TestClient(app, headers={"Accept": "text/html", "Authorization": f"Bearer {token('admin')}"})
    yield client
    clusters.stop()


def read(client: TestClient, path: str) -> str:
    answer = client.get(f"/dashboard/main/{path}")
    assert answer.status_code == 200, path
    return answer.text


@pytest.mark.parametrize(
    "path",
    [
        *("plan", "plan.json", "queue", "nodes", "nodes?by=", "nodes?state=down", "what-if", "plan-metrics"),
        *("admin", "my-jobs?user=ann", "calendar", "alternatives", "jobs/499.server", "nodes/n0002"),
    ],
)
def test_a_page_of_many_nodes_and_jobs_is_small(client: TestClient, path: str) -> None:
    assert len(read(client, path).encode()) < MAX_BYTES


def groups(page: str) -> dict[str, tuple[str, int]]:
    """The address and the number of nodes of each group of the map."""
    found = re.findall(r'<a href="([^"]+)">([^<]+)</a> <span class="faint">(\d+) nodes?</span>', page)
    return {name: (html.unescape(address), int(count)) for address, name, count in found}


def test_a_map_of_many_nodes_has_groups_that_open_their_nodes(client: TestClient) -> None:
    racks = groups(read(client, "nodes"))
    assert len(racks) == 300
    assert "300 of 500 groups are shown" in read(client, "nodes")
    opened = read(client, f"nodes{racks['r7'][0]}")
    assert re.findall(r'data-key="(n\d+)"><a', opened) == [f"n{i:04}" for i in range(7 * RACK, 8 * RACK)]

    hundreds = groups(read(client, "nodes?by=&q=n*&state=down"))
    assert list(hundreds) == [f"n{i:04} to n{i + 98:04}" for i in range(1, NODES, 100)]
    assert {count for _, count in hundreds.values()} == {50}
    opened = read(client, f"nodes{hundreds['n0101 to n0199'][0]}")
    assert re.findall(r'data-key="(n\d+)"><a', opened) == [f"n{i:04}" for i in range(101, 200, 2)]
