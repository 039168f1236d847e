"""A small first-come scheduler over real sockets: many jobs, faults on the way, nothing lost or run twice."""

import asyncio
import random

import pytest

from server_adapter.batch.errors import ServerRefusedError, ServerUnreachableError
from server_adapter.batch.requests import SelectRequest
from server_adapter.batch.sockets import Address
from server_adapter.emulator import EmulatedServer, JobState, NodeSpec, Timing
from server_adapter.torque import (
    CommandListener,
    RequestCode,
    TorqueAnyPort,
    TorqueConnection,
    open_connection,
)
from tests.property_examples import some
from tests.server_adapter import admin_requests
from tests.server_adapter.inventory import read_job, read_jobs, read_nodes, read_queues, read_server
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

NODES = [NodeSpec(f"node{number}", 4, ("odd" if number % 2 else "even",)) for number in range(1, 9)]
QUICK = Timing(obit=0.5, kill=1.0, refused=0.3, report=45.0, node_check=20.0)


async def cycle(connection: TorqueConnection) -> None:
    """Starts what fits, in order of rank; a refusal leaves the job for the next cycle."""
    free = {
        node.name: node.slots - node.used
        for node in await read_nodes(connection)
        if not (node.down or node.offline)
    }
    for job in sorted(await read_jobs(connection), key=lambda job: job.rank or 0):
        if job.state != "Q":
            continue
        count, _, rest = job.resources.get("nodes", "1").partition(":ppn=")
        slots = int(rest or 1)
        hosts = [name for name, left in free.items() if left >= slots][: int(count)]
        if len(hosts) < int(count):
            continue
        try:
            await connection.request(admin_requests.run(job.id, [(host, slots) for host in hosts]))
        except ServerRefusedError:
            continue
        for host in hosts:
            free[host] -= slots


async def schedule(server: EmulatedServer, wake: asyncio.Event) -> None:
    while True:
        try:
            async with await open_connection(
                Address(*server.address), TorqueAnyPort(), timeout=WAIT_S
            ) as connection:
                while True:
                    wake.clear()
                    await cycle(connection)
                    try:
                        async with asyncio.timeout(0.1):
                            await wake.wait()
                    except TimeoutError:
                        pass
        except ServerUnreachableError:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("version", some(["2.5", "4.2", "6.1"], 1))
async def test_many_jobs_end_once_each_through_refusals_cuts_restarts_and_dead_nodes(version: str) -> None:
    rnd = random.Random(version)
    wake = asyncio.Event()
    listener = CommandListener(lambda _: wake.set(), any_port=True)
    await listener.start(port=0)
    async with EmulatedServer(
        NODES,
        version=version,
        time_scale=100,
        scheduler=("127.0.0.1", listener.port),
        timing=QUICK,
    ) as server:
        server.cluster.attributes["keep_completed"] = "100000"
        server.set_scheduling(True)
        scheduler = asyncio.create_task(schedule(server, wake))
        for number in range(80):
            server.submit(
                rnd.choice(["alice", "bob"]),
                resources={"nodes": f"{rnd.randint(1, 2)}:ppn={rnd.randint(1, 4)}"},
                runtime=rnd.uniform(5, 40),
                array="1-3%2" if number % 20 == 0 else "",
                depend=f"afterany:{number - 1}.localhost" if number % 10 == 5 else "",
                not_before=server.now + 20 if number % 10 == 7 else None,
            )
        faults = server.faults
        faults.refuse_runs(5)
        await asyncio.sleep(0.1)
        faults.cut_replies(2, after=50)
        await asyncio.sleep(0.1)
        faults.be_silent(1)
        server.kill_node("node3")
        await asyncio.sleep(0.1)
        await server.restart(down=0.1)
        await asyncio.sleep(0.3)
        server.revive_node("node3")
        jobs = server.cluster.jobs
        await server.until(lambda: all(job.finished for job in jobs.values()), 30)
        scheduler.cancel()
        await asyncio.gather(scheduler, return_exceptions=True)
    await listener.close()
    assert len(jobs) == 88
    for job in jobs.values():
        assert (job.state, job.start_count, job.exit_status) == (JobState.COMPLETE, 1, 0)
        assert server.cluster.runs[job.id] == 1
    assert not any(node.taken for node in server.cluster.nodes.values())


async def test_the_inventory_reads_server_queues_nodes_and_jobs() -> None:
    async with EmulatedServer(NODES) as server:
        name = server.submit(resources={"nodes": "1:ppn=2", "walltime": "00:10:00", "mem": "2gb"})
        async with await open_connection(Address(*server.address), TorqueAnyPort()) as connection:
            assert (await read_server(connection)).version == "6.1-dev"
            (queue,) = await read_queues(connection)
            assert queue.defaults == {"walltime": "01:00:00"}
            await connection.request(admin_requests.run(name, [("node2", 2)], asynchronous=True))
            nodes = await read_nodes(connection)
            assert [node.used for node in nodes] == [0, 2, 0, 0, 0, 0, 0, 0]
            job = await read_job(connection, name)
            assert job is not None
            assert (job.walltime, job.hosts) == (600, (("node2", 2),))
            assert await read_job(connection, "99.localhost") is None
            picked = await connection.describe(SelectRequest(code=RequestCode.SELECT_STATUS))
            assert [item.name for item in picked] == [name]
