"""What differs between the emulated versions: protocol, the scheduler's socket, destinations, names."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from server_adapter.batch.errors import ServerRefusedError
from server_adapter.batch.requests import ManageRequest, RunRequest, StatusRequest
from server_adapter.batch.sockets import Address
from server_adapter.dis import Attribute
from server_adapter.emulator import EmulatedServer, NodeSpec
from server_adapter.emulator.versions import VERSIONS
from server_adapter.torque import (
    CommandListener,
    RequestCode,
    SchedulerCommand,
    TorqueAnyPort,
    TorqueConnection,
    open_connection,
)
from tests.server_adapter import admin_requests
from tests.server_adapter.inventory import read_jobs, read_nodes, read_server
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

NODES = [NodeSpec("node1", 4), NodeSpec("node2", 4)]


async def connect(server: EmulatedServer, version: int | None = None) -> TorqueConnection:
    return await open_connection(Address(*server.address), TorqueAnyPort(), timeout=WAIT_S, version=version)


@pytest.mark.parametrize(("version", "protocol"), [("2.5", 1), ("4.2", 2), ("6.1", 2)])
async def test_a_client_detects_the_protocol_version_of_a_server(version: str, protocol: int) -> None:
    async with EmulatedServer(NODES, version=version) as server:
        name = server.submit(resources={"nodes": "1:ppn=2"})
        async with await connect(server) as connection:
            assert connection.version == protocol
            await connection.request(admin_requests.run(name, [("node1", 2)], asynchronous=True))
            (job,) = await read_jobs(connection)
            assert job.hosts == (("node1", 2),)
            assert [node.used for node in await read_nodes(connection)] == [2, 0]
            assert (await read_server(connection)).version == VERSIONS[version].pbs_version


async def test_the_oldest_version_says_at_once_that_it_does_not_speak_the_newer_protocol() -> None:
    async with EmulatedServer(NODES, version="2.5") as server:
        with pytest.raises(ServerRefusedError, match="15058"):
            await connect(server, version=2)


def test_the_oldest_version_takes_plain_destinations_alone_and_runs_in_stopped_queues() -> None:
    async def run_scenario(version: str, outcomes: list[int]) -> None:
        async with EmulatedServer(NODES, version=version) as server:
            server.cluster.queues["batch"].attributes["started"] = "True"
            async with await connect(server) as connection:
                found = []
                for destination in ("node1+node1", "node1/0+node1/1", "node2:ppn=2"):
                    job = server.submit()
                    run = RunRequest(code=RequestCode.RUN_JOB, job=job, destination=destination)
                    if destination == "node2:ppn=2":
                        server.cluster.queues["batch"].attributes["started"] = "False"
                    try:
                        found.append((await connection.request(run)).code)
                    except ServerRefusedError as error:
                        found.append(error.code)
                assert found == outcomes

    asyncio.run(run_scenario("2.5", [15064, 15064, 0]))
    asyncio.run(run_scenario("4.2", [0, 0, 15004]))


async def test_the_oldest_version_answers_an_asynchronous_alteration_twice() -> None:
    async with EmulatedServer(NODES, version="2.5") as server:
        name = server.submit()
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"+2+12+28+4root+2+22+11" + name.encode() + b"+12+20+7comment+02+11asy planned+0+0")
        assert await reader.readexactly(20) == 2 * b"+2+1+0+0+1"
        writer.close()
        await writer.wait_closed()
        assert server.job(name).attributes["comment"] == "asy planned"


class Scheduler:
    """A scheduler for servers up to 3.x: does its work on the socket that the command came through."""

    def __init__(self, work: Callable[[TorqueConnection], Awaitable[None]]) -> None:
        self.heard: list[int] = []
        self.listener = CommandListener(
            lambda command: self.heard.append(command.code), any_port=True, on_open=work, linger=0.05
        )


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_the_oldest_version_keeps_the_command_socket_and_calls_again_after_a_run() -> None:
    states: list[str] = []

    async def work(connection: TorqueConnection) -> None:
        states.append((await read_server(connection)).state)
        waiting = [job for job in await read_jobs(connection) if job.state == "Q"]
        if waiting:
            await connection.request(admin_requests.run(waiting[0].id, [("node1", 1)]))

    scheduler = Scheduler(work)
    await scheduler.listener.start(port=0)
    address = ("127.0.0.1", scheduler.listener.port)
    async with EmulatedServer(NODES, version="2.5", scheduler=address, time_scale=50) as server:
        for _ in range(2):
            server.submit(runtime=10_000, resources={"nodes": "1", "walltime": "99:00:00"})
        server.set_scheduling(True)
        await until(lambda: len(scheduler.heard) >= 3 and not server.cluster.cycling)
        assert sum(server.cluster.runs.values()) == 2
    await scheduler.listener.close()
    recycle = SchedulerCommand.RECYC
    assert scheduler.heard[:3] == [SchedulerCommand.FIRST, recycle, recycle]
    assert set(states) == {"Scheduling"}


@pytest.mark.parametrize(
    ("version", "code"), [("2.5", SchedulerCommand.FIRST), ("6.1", SchedulerCommand.NEW)]
)
async def test_only_the_oldest_version_keeps_the_first_command_until_somebody_listens(
    version: str, code: SchedulerCommand
) -> None:
    async def nothing(connection: TorqueConnection) -> None:
        del connection

    scheduler = Scheduler(nothing)
    await scheduler.listener.start(port=0)
    port = scheduler.listener.port
    await scheduler.listener.close()
    server = EmulatedServer(NODES, version=version, scheduler=("127.0.0.1", port), time_scale=50)
    async with server:
        server.set_scheduling(True)
        await until(lambda: server.lost_commands > 0)
        await scheduler.listener.start(port=port)
        server.submit(runtime=1)
        await until(lambda: bool(scheduler.heard))
    await scheduler.listener.close()
    assert scheduler.heard[0] == code


def status(code: RequestCode, *names: str) -> StatusRequest:
    return StatusRequest(code=code, attributes=tuple(map(Attribute, names)))


@pytest.mark.parametrize("version", VERSIONS)
def test_names_that_a_server_does_not_know_are_refused_in_status_requests(version: str) -> None:
    async def run_scenario() -> None:
        async with EmulatedServer(NODES, version=version) as server, await connect(server) as connection:

            async def refusal(code: RequestCode, *names: str) -> str:
                try:
                    await connection.request(status(code, *names))
                except ServerRefusedError as error:
                    return str(error)
                return ""

            jobs, queues, the_server = (
                RequestCode.STATUS_JOB,
                RequestCode.STATUS_QUEUE,
                RequestCode.STATUS_SERVER,
            )
            assert await refusal(jobs, "planned_start") == ""  # there is nothing to describe
            server.submit()
            assert "15002" in await refusal(jobs, "job_state", "planned_start")
            assert "15002" in await refusal(jobs, "Walltime")
            assert await refusal(jobs, "job_state", "exec_gpus", "x") == ""
            assert ("15002" in await refusal(jobs, "request_version")) is (version != "6.1")
            assert "status_queue failed" in await refusal(queues, "colour")
            assert "colour" in await refusal(the_server, "scheduling", "colour")
            (node, _) = await connection.describe(status(RequestCode.STATUS_NODE, "colour"), wanted=())
            assert node.name == "node1"
            reply = await connection.request(status(RequestCode.STATUS_NODE, "state"))
            assert len(reply.payload.objects[0].attributes) >= 5  # type: ignore[union-attr]

    asyncio.run(run_scenario())


async def test_a_restarted_server_calls_its_scheduler_at_once() -> None:
    scheduler = CommandListener(lambda command: heard.append(command.code), any_port=True)
    heard: list[int] = []
    await scheduler.start(port=0)
    async with EmulatedServer(NODES, scheduler=("127.0.0.1", scheduler.port), time_scale=50) as server:
        server.set_scheduling(True)
        await until(lambda: len(heard) == 1)
        await server.restart(down=0)
        await until(lambda: len(heard) == 2)
    await scheduler.close()
    assert heard == [SchedulerCommand.FIRST, SchedulerCommand.FIRST]


async def test_the_oldest_version_has_its_own_text_for_an_unknown_job() -> None:
    async with EmulatedServer(NODES, version="2.5") as server, await connect(server) as connection:
        gone = ManageRequest(code=RequestCode.DELETE_JOB, command=1, object_type=2, name="9.localhost")
        with pytest.raises(ServerRefusedError, match="Unknown Job Id MSG=cannot locate job"):
            await connection.request(gone)
