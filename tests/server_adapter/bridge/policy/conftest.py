"""The bench that the tests of one file share: its daemon is started once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from server_adapter.emulator import JobState
from server_adapter.emulator.jobs import Queue
from tests.server_adapter.bridge.policy.bench import NODES, QUEUES, WALL, Bench, site
from tests.server_adapter.bridge.processes import ProcessHarness


@pytest.fixture(scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    directory = tmp_path_factory.mktemp("policy")
    house = ProcessHarness(directory, "4.2", nodes=NODES, interval=0.2)
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    with (directory / "schedd0.toml").open("a") as config:
        config.write(site(now))
    async with house.server as server:
        cluster = server.cluster
        cluster.attributes |= {
            "scheduling": "True",
            "keep_completed": "3600",
            "max_user_run": "30",
            "resources_default.walltime": "00:05:00",
            "resources_available.fluent": "2",
        }
        for name, attributes in QUEUES.items():
            cluster.queues[name] = Queue(name, {"enabled": "True", "started": "True"} | attributes)
        house.configure()
        house.daemon.start()
        try:
            await house.ready()
            wall = server.submit(
                "tina", resources={"nodes": "8:ppn=4", "walltime": str(WALL)}, runtime=3000.0
            )
            house.adapter.start()
            while server.job(wall).state is not JobState.RUNNING:
                assert not house.adapter.ended, house.adapter.log.read_text()
                await asyncio.sleep(0.05)
            made = Bench(house, wall, 0)
            running = await made.current_view(wall, lambda one: one["state"] == "running")
            made.begin = running["planned_end"]
            yield made
        finally:
            house.adapter.kill()
            house.daemon.kill()


@pytest.fixture(autouse=True)
async def _alone(bench: Bench) -> AsyncIterator[None]:
    yield
    await bench.clear()
