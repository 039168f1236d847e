"""An emulated OpenPBS, the real adapter and the real daemon: nodes are ordered by the Priority of vnodes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from server_adapter.emulator import NodeSpec
from tests.server_adapter.bridge.processes import MEMORY, ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

SETTINGS = """
[clusters.main.site.node_choice]
expression = "sort_priority"
"""
"""As `schedd import` translates `node_sort_key: "sort_priority HIGH"`."""


def properties(view: dict[str, Any], node: str) -> list[str]:
    return [name for one in view["nodes"] if one["name"] == node for name in one["properties"]]


async def test_jobs_go_to_the_vnodes_with_the_highest_priority_as_it_is_now(tmp_path: Path) -> None:
    nodes = [NodeSpec(f"node{i}", 8, (), MEMORY) for i in (1, 2, 3)]
    house = ProcessHarness(tmp_path, "openpbs", nodes=nodes, interval=0.2)
    with (tmp_path / "schedd0.toml").open("a") as config:
        config.write(SETTINGS)

    async def view(path: str, when: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            while True:
                with suppress(HTTPError):  # it is not known yet
                    found = await house.request(path)
                    if when(found):
                        return found
                await asyncio.sleep(0.1)

    async def nodes_of_next() -> list[str]:
        wanted = {"select": "1:ncpus=1", "walltime": "01:00:00"}
        job: Any = house.server.submit(resources=wanted, runtime=600.0)
        path = f"/jobs/{getattr(job, 'id', job)}"
        found = await view(path, lambda one: one["job_state"] == "R")
        return [share["node"] for share in found["planned_nodes"]]

    async with house.running():
        cluster: Any = house.server.cluster
        cluster.schedulers["default"].attributes |= {"scheduling": "True"}
        for name, priority in {"node1": "1", "node2": "9", "node3": "-5"}.items():
            cluster.nodes[name].settings["Priority"] = priority
        house.adapter.start()
        await view("/nodes", lambda one: "sort_priority=9" in properties(one, "node2"))
        assert await nodes_of_next() == ["node2"]
        cluster.nodes["node3"].settings["Priority"] = "20"
        await view("/nodes", lambda one: "sort_priority=20" in properties(one, "node3"))
        assert await nodes_of_next() == ["node3"]
