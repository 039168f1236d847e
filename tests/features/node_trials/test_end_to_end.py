"""A node of an emulated server where jobs fail is closed, tried by one job, and opened after a success."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server_adapter.emulator import NodeSpec
from tests.server_adapter.bridge.processes import MEMORY, ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

PAUSE_S = 4
TRIALS = f"""
hole_failures = 3
hole_users = 2
hole_within = 5
[clusters.main.site.node_trials]
pause = {PAUSE_S}
walltime = 120
"""


async def test_jobs_that_fail_close_a_node_and_a_trial_opens_it(tmp_path: Path) -> None:
    house = ProcessHarness(tmp_path, "6.1", nodes=[NodeSpec("node1", 4, (), MEMORY)], interval=0.3)
    with (tmp_path / "schedd0.toml").open("a") as file:
        file.write(TRIALS)

    async def node(when: Callable[[dict[str, Any]], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while True:
                for one in (await house.request("/nodes"))["nodes"]:  # none before the first snapshot
                    if when(one):
                        return
                await asyncio.sleep(0.1)

    async with house.server:
        house.server.cluster.attributes |= {"scheduling": "True", "keep_completed": "3600"}
        house.configure()
        try:
            house.daemon.start()
            await house.ready()
            house.adapter.start()
            wanted = {"nodes": "1:ppn=4", "walltime": "00:01:00"}
            for user in ("ann", "bob", "ann"):
                house.server.submit(user, resources=wanted, runtime=0.2, exit_status=1)
            await node(lambda one: "one job of up to 2 min may try it" in one["closed"])
            bad = house.server.submit("bob", resources=wanted, runtime=0.2, exit_status=1)
            long = house.server.submit("bob", resources=wanted | {"walltime": "01:00:00"}, runtime=1.0)
            (alert,) = (await house.request("/alerts"))["alerts"]
            assert alert["kind"] == "black_hole"
            async with asyncio.timeout(WAIT_S):
                while f"job {bad} tried node1 and failed" not in alert["text"]:
                    await asyncio.sleep(0.1)
                    (alert,) = (await house.request("/alerts"))["alerts"]
            good = house.server.submit("bob", resources=wanted, runtime=1.0)
            await node(lambda one: not one["closed"])
            async with asyncio.timeout(WAIT_S):
                while house.server.job(long).state != "C":
                    await asyncio.sleep(0.1)
            assert house.server.job(good).state == "C"
            assert (await house.request("/alerts"))["alerts"] == []
        finally:
            house.adapter.kill()
            house.daemon.kill()
