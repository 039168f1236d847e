"""An extension on emulated servers of both families, with the real adapter and daemon, each a process."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from server_adapter.emulator import NodeSpec, lifecycle
from tests.server_adapter.bridge.processes import MEMORY, ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

SETTINGS = """
[clusters.main.site.walltime_extensions]
jobs = {users = ["ann"]}
step = "20m"
before = "59m"
"""


@pytest.mark.parametrize("family", ["6.1", "openpbs"])
async def test_server_has_the_longer_walltime_and_the_job_says_so(tmp_path: Path, family: str) -> None:
    house = ProcessHarness(tmp_path, family, nodes=[NodeSpec("node1", 12, (), MEMORY)], interval=0.3)

    async def job(name: str, when: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        async with asyncio.timeout(WAIT_S):
            while True:
                with suppress(HTTPError):  # the job is not known yet
                    found: dict[str, Any] = await house.request(f"/jobs/{name}")
                    if when(found):
                        return found
                await asyncio.sleep(0.1)

    async with house.server:
        cluster: Any = house.server.cluster
        cluster.attributes |= {"scheduling": "True"}
        if family == "openpbs":
            cluster.schedulers["default"].attributes |= {"scheduling": "True"}
        settings = tmp_path / "schedd0.toml"
        settings.write_text(settings.read_text() + SETTINGS)
        house.configure()
        try:
            house.daemon.start()
            await house.ready()
            house.adapter.start()
            wanted = {"select": "1:ncpus=4:mem=1mb"} if family == "openpbs" else {"nodes": "1:ppn=4"}
            wanted |= {"walltime": "00:59:03"}
            submitted: Any = house.server.submit("ann", resources=wanted, runtime=6_000.0)
            name = str(getattr(submitted, "id", submitted))
            extended = await job(name, lambda one: "its walltime was extended by 20 min" in one["why"])
            assert house.server.job(name).resources["walltime"] == "01:19:03"
            assert extended["job_state"] == "R"
            lifecycle.delete(cluster, house.server.job(name))
            past: dict[str, Any] = {"ended": None}
            async with asyncio.timeout(WAIT_S):
                while past["ended"] is None:
                    with suppress(HTTPError, KeyError):  # its end is not stored yet
                        past = (await house.request(f"/jobs/{name}/history"))["past"] or past
                    await asyncio.sleep(0.1)
            assert "longer walltime ordered: accepted" in [one["words"] for one in past["moments"]]
        finally:
            house.adapter.kill()
            house.daemon.kill()
