"""Pages of a cluster with many nodes and jobs: their size does not grow with it."""

import html
import re
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from schedd.api.app import create_app
from schedd.api.node_selection import fold_names
from schedd.dashboard import add_dashboard
from schedd.dashboard.cluster_load import measure_load
from schedd.dashboard.plan_columns import PlanViewport, plan_columns
from schedd.engine import EngineSettings
from schedd.service.access.callers import Callers
from schedd.service.clusters import Clusters
from schedd.service.read.plan_lists import node_views
from schedd.wire import PlanningHeld
from tests.dashboard.conftest import token, tokens
from tests.service.planner_harness import StillClock, T, event_id, job, node, planner
from tests.waits import WAIT_S

NODES, RACK, JOBS = 4_000, 8, 500
MAX_BYTES = 200_000


def hold(number: int, time: int, reason: str) -> PlanningHeld:
    return PlanningHeld(id=event_id(), time=time, kind="node", name=f"n{number:04}", reason=reason)


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
    held = [hold(i, T, "new switch") for i in range(0, 2_000, 2)]
    held += [hold(i, T + i, "fan") for i in range(2_000, 3_000, 2)]
    loop.submit(held).result(WAIT_S)
    app = create_app(clusters, Callers(tokens()))
    add_dashboard(app)
    client = TestClient(app, headers={"Accept": "text/html"})
    client.post("/dashboard/login", data={"token": token("admin")})
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
    assert list(hundreds) == [f"n{i:04} to {i + 98:04}" for i in range(1, NODES, 100)]
    assert {count for _, count in hundreds.values()} == {50}
    opened = read(client, f"nodes{hundreds['n0101 to 0199'][0]}")
    assert re.findall(r'data-key="(n\d+)"><a', opened) == [f"n{i:04}" for i in range(101, 200, 2)]


def test_nodes_drained_together_are_a_row_and_released_together(client: TestClient) -> None:
    page = read(client, "admin")
    assert "The first 200 of 510 rows" in page
    texts = re.findall(r'name="hold_name" value="(n[^"]+)"', page)
    assert len(texts) == 200
    assert texts[0] == fold_names(f"n{i:04}" for i in range(0, 200, 2))
    csrf = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
    form = {"csrf": csrf, "hold_kind": "node", "hold_name": texts[0]}
    answer = client.post("/dashboard/main/admin/release", data=form, follow_redirects=False)
    assert answer.status_code == 303
    assert texts[0] not in read(client, "admin")


def test_cpus_in_use_on_draining_nodes_are_not_counted_against_the_others() -> None:
    """A rack with a draining node had 103 % of its cpus in use."""
    with planner() as loop:
        loop.submit([node(f"n{i}", properties=("rack=r1",)) for i in range(3)]).result(WAIT_S)
        loop.submit([job(f"{i}") for i in range(3)]).result(WAIT_S)
        loop.submit([node("n1", state="drain", properties=("rack=r1",))]).result(WAIT_S)
        found = plan_columns(loop.published, lambda _: True, PlanViewport(group="rack"))
    (rack,) = found["groups"]
    assert (rack["used"][0], rack["cpus"]) == (8, 8)
    assert (found["use"]["used"][0], found["capacity"]) == (8, 8)


def test_load_of_the_cluster_is_that_of_its_nodes() -> None:
    """It is counted without the views of the nodes; a page shows a few of them."""
    with planner() as loop:
        assert measure_load(loop.published).used == 0
        states = {"n1": "up", "n2": "up", "n3": "down", "n4": "drain"}
        loop.submit([node(name, state=state) for name, state in states.items()]).result(WAIT_S)
        loop.submit([job("1", nodes="1:ppn=3"), job("2", nodes="1:ppn=4")]).result(WAIT_S)
        found, views = measure_load(loop.published), node_views(loop.published)
        up = [view for view in views if view.state == "up"]
        assert found.used == sum(view.cpus - view.free_cpus for view in up) == 7
        assert (found.cpus, found.down_cpus, found.drain_cpus) == (8, 4, 4)
        assert (found.up, found.down, found.drain) == (2, 1, 1)
