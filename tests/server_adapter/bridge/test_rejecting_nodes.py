"""Nodes with daemons that refuse every job: jobs are started on other nodes, and the nodes are closed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from server_adapter.emulator import JobState, NodeSpec
from tests.server_adapter.bridge.processes import ProcessHarness

pytestmark = pytest.mark.anyio
JOBS = 6


@pytest.fixture(params=["4.2", "openpbs"])
async def house(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ProcessHarness]:
    nodes = [NodeSpec(f"node{number}", 8) for number in range(1, 5)]
    made = ProcessHarness(tmp_path, request.param, nodes=nodes, interval=0.2)
    async with made.running(keep_completed="3600"):
        yield made


async def test_jobs_go_to_other_nodes_than_those_that_refuse_them(house: ProcessHarness) -> None:
    server = house.server
    server.faults.reject_jobs(["node1", "node2"])
    asked = {"select": "1:ncpus=8"} if house.family == "openpbs" else {"nodes": "1:ppn=8"}
    jobs = [
        server.submit(f"user{number % 2}", resources={**asked, "walltime": "00:10:00"}, runtime=1.0)
        for number in range(JOBS)
    ]
    house.adapter.start()
    while house.done() < JOBS:
        await asyncio.sleep(0.1)
    assert all(server.job(job).state is JobState.COMPLETE for job in jobs)
    decided = house.decided()
    for job in jobs:
        nodes = [node for shares in decided[job] for node in shares]
        assert nodes[-1] in ("node3", "node4")
        tried = [node for node in nodes if node in ("node1", "node2")]
        assert len(tried) == len(set(tried)), f"{job} was tried on {nodes}"
    assert any(len(decided[job]) > 1 for job in jobs)
