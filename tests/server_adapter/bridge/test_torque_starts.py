"""Several simultaneous decisions on a TORQUE server: each connection serves one."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from schedd.wire import Run, ShareFacts
from server_adapter.batch.sockets import Address
from server_adapter.bridge.server import RunOutcome
from server_adapter.emulator import EmulatedServer, NodeSpec
from server_adapter.servers.torque.link import PERMITTED, TorqueLink
from server_adapter.servers.torque.reader import TorqueReader, job_query
from server_adapter.servers.torque.runs import TorqueStarter
from server_adapter.torque.credentials import TorqueAnyPort

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def server() -> AsyncIterator[EmulatedServer]:
    async with EmulatedServer([NodeSpec("node1", 4), NodeSpec("node2", 4)]) as server:
        server.set_scheduling(True)
        yield server


async def run_together(server: EmulatedServer, *nodes: str) -> list[RunOutcome]:
    """Decides one run of a one-core job for each of these nodes, all at the same moment."""
    links = [
        TorqueLink(Address(*server.address), TorqueAnyPort(), permitted=PERMITTED["scheduler"])
        for _ in range(4)
    ]
    jobs = [server.submit(resources={"nodes": "1"}, runtime=600.0) for _ in nodes]
    state = await TorqueReader(links[0]).read()
    starter = TorqueStarter(links, job_query(), asynchronous=True)
    runs = [
        Run(
            id=f"d{number}",
            cause="",
            time=1,
            job_id=job,
            shares=(ShareFacts(node, 1),),
            version=state.jobs[job].version,
            expires=2**31,
            walltime=None,
            term=1,
        )
        for number, (job, node) in enumerate(zip(jobs, nodes, strict=True))
    ]
    outcomes = await asyncio.gather(*[starter.run(one, lambda: None) for one in runs])
    for link in links:
        await link.close()
    return list(outcomes)


async def test_decisions_are_carried_out_beside_each_other(server: EmulatedServer) -> None:
    outcomes = await run_together(server, *["node1", "node2"] * 4)
    assert [one.text for one in outcomes if not one.accepted] == []
    assert len(outcomes) == 8


async def test_pending_runs_count_against_their_node(server: EmulatedServer) -> None:
    outcomes = await run_together(server, *["node1"] * 7)
    assert sum(one.accepted for one in outcomes) == 4
    assert all(one.busy and not one.code for one in outcomes if not one.accepted)
