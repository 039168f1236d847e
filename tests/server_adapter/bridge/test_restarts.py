"""After a restart of the server, jobs start long before its grace is over: both families, real processes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server_adapter.emulator import NodeSpec
from tests.server_adapter.bridge.processes import ProcessHarness
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

GRACE_S = 3600
"""A test that waited for it would fail by its own time limit."""


@pytest.fixture(params=["4.2", "openpbs"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ProcessHarness]:
    nodes = [NodeSpec(f"node{number}", 4) for number in (1, 2)]
    made = ProcessHarness(tmp_path, request.param, nodes=nodes, server_grace=GRACE_S)
    async with made.running():
        made.adapter.start()
        yield made


def submit(house: ProcessHarness, runtime: float) -> str:
    shape = {"select": "1:ncpus=4"} if house.family == "openpbs" else {"nodes": "1:ppn=4"}
    return house.server.submit(resources={**shape, "walltime": "600"}, runtime=runtime)


async def runs(house: ProcessHarness, job: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while not house.server.cluster.runs.get(job):
            await asyncio.sleep(0.05)


async def test_jobs_start_after_a_server_restart_without_grace_time(house: ProcessHarness) -> None:
    long = submit(house, 3000.0)
    await runs(house, long)
    await house.server.restart(down=0.5)
    after = submit(house, 0.2)
    await runs(house, after)
    assert str(house.server.job(long).state) == "R"
    assert (await house.request(""))["stale"] == ""


async def test_jobs_start_after_a_restart_of_an_idle_server_without_grace_time(house: ProcessHarness) -> None:
    first = submit(house, 0.2)
    await runs(house, first)
    async with asyncio.timeout(WAIT_S):
        while str(house.server.job(first).state) == "R":
            await asyncio.sleep(0.1)
    await house.server.restart(down=0.5)
    await runs(house, submit(house, 0.2))


@pytest.mark.parametrize("house", ["openpbs"], indirect=True)
async def test_runs_that_a_restart_requeues_start_again_before_later_jobs(house: ProcessHarness) -> None:
    """Subjobs counted as failed, and the jobs went behind those that had come after them."""
    first = [submit(house, 3000.0) for _ in range(2)]
    for job in first:
        await runs(house, job)
    later = [submit(house, 3000.0) for _ in range(2)]
    async with asyncio.timeout(WAIT_S):
        while len((await house.request("/jobs"))["jobs"]) < len(first) + len(later):
            await asyncio.sleep(0.05)
    await house.server.restart(down=0.2, requeues=True)
    async with asyncio.timeout(WAIT_S):
        while [house.server.cluster.runs.get(job) for job in first] != [2, 2]:
            await asyncio.sleep(0.05)
    assert [house.server.cluster.runs.get(job) for job in later] == [None, None]
    assert "failed" not in (await house.request(f"/jobs/{first[0]}"))["why"]
