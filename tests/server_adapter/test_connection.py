"""The connection against the emulated server and against peers that misbehave."""

import asyncio
import random
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import (
    ProtocolError,
    RequestForbiddenError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
)
from server_adapter.batch.replies import Location
from server_adapter.batch.requests import JobRequest, ManageRequest, RunRequest, StatusRequest
from server_adapter.batch.sockets import Address
from server_adapter.dis import Attribute, Limits
from server_adapter.emulator import EmulatedServer, NodeSpec
from server_adapter.emulator.client_context import ClientContext
from server_adapter.emulator.principal import make_principal
from server_adapter.torque.codes import READ_ONLY
from server_adapter.torque.connection import TorqueConnection, open_connection
from server_adapter.torque.credentials import (
    TorqueAnyPort,
    TorqueCredential,
    TorquePrivilegedPort,
    TorqueVouch,
    Trqauthd,
)
from tests.server_adapter.inventory import JOB_ATTRIBUTES, parse_job
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

NODES = [NodeSpec("node1"), NodeSpec("node2")]
ALL_JOBS = StatusRequest(code=RequestCode.STATUS_JOB)


def may_bind_privileged_ports() -> bool:
    for port in range(1023, 1000, -1):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except PermissionError:
                return False
            except OSError:
                continue
            return True
    return False


root_only = pytest.mark.skipif(not may_bind_privileged_ports(), reason="privileged ports need root")
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def connect(
    server: EmulatedServer,
    credential: TorqueCredential | None = None,
    *,
    user: str = "root",
    timeout: float = WAIT_S,
) -> TorqueConnection:
    return await open_connection(
        Address(*server.address), credential or TorqueAnyPort(), user=user, timeout=timeout
    )


async def fake_server(borrow: Talk) -> tuple[asyncio.Server, Address]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await borrow(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    return server, Address("127.0.0.1", server.sockets[0].getsockname()[1])


async def test_a_request_gets_its_reply_and_a_refusal_leaves_the_connection_usable() -> None:
    async with EmulatedServer(NODES) as server, await connect(server) as connection:
        name = server.submit()
        reply = await connection.request(JobRequest(code=RequestCode.LOCATE_JOB, job=name))
        assert reply.payload == Location("localhost")
        with pytest.raises(ServerRefusedError, match="15064 UNKNODE") as caught:
            await connection.request(RunRequest(code=RequestCode.RUN_JOB, job=name, destination="nosuch"))
        assert caught.value.code == 15064
        assert connection.usable
        await connection.request(RunRequest(code=RequestCode.RUN_JOB, job=name, destination="node1:ppn=2"))
        (described,) = await connection.describe(ALL_JOBS, JOB_ATTRIBUTES)
        job = parse_job(described.name, described.values)
        assert (job.state, job.hosts, job.start_count) == ("R", (("node1", 2),), 1)


async def test_a_status_request_with_names_returns_only_those() -> None:
    async with EmulatedServer(NODES) as server, await connect(server) as connection:
        server.submit(resources={"nodes": "1:ppn=2", "walltime": "00:10:00"})
        names = (Attribute("job_state"), Attribute("Resource_List"))
        (job,) = await connection.describe(StatusRequest(code=RequestCode.STATUS_JOB, attributes=names))
        assert set(job.values) == {
            "job_state",
            *(f"Resource_List.{name}" for name in ("nodes", "walltime", "nodect", "neednodes")),
        }


async def test_requests_of_several_tasks_are_serialized() -> None:
    async with EmulatedServer(NODES) as server, await connect(server) as connection:
        names = [server.submit() for _ in range(20)]
        requests = [JobRequest(code=RequestCode.LOCATE_JOB, job=name) for name in names]
        replies = await asyncio.gather(*map(connection.request, requests))
        assert all(reply.code == 0 for reply in replies)


async def test_a_mode_that_only_reads_stops_other_requests_before_they_leave() -> None:
    async with EmulatedServer(NODES) as server:
        name = server.submit()
        address = Address(*server.address)
        async with await open_connection(address, TorqueAnyPort(), permitted=READ_ONLY) as connection:
            with pytest.raises(RequestForbiddenError):
                await connection.request(RunRequest(code=RequestCode.RUN_JOB, job=name))
            assert len(await connection.describe(ALL_JOBS)) == 1
        assert server.job(name).start_count == 0


async def test_a_port_without_listener_raises_server_unreachable() -> None:
    server, address = await fake_server(lambda _, __: asyncio.sleep(0))
    server.close()
    await server.wait_closed()
    with pytest.raises(ServerUnreachableError, match="does not answer at"):
        await open_connection(address, TorqueAnyPort())


async def test_a_silent_server_causes_a_timeout_and_closes_the_connection() -> None:
    async with EmulatedServer(NODES) as server, await connect(server) as connection:
        connection._timeout = 0.2
        server.faults.be_silent(1)
        with pytest.raises(ServerUnreachableError, match=r"within 0\.2 s"):
            await connection.describe(ALL_JOBS)
        assert not connection.usable
        with pytest.raises(ServerUnreachableError, match="cannot be used"):
            await connection.describe(ALL_JOBS)


async def test_a_connection_cut_in_mid_reply_is_reported_and_a_new_one_works() -> None:
    async with EmulatedServer(NODES) as server:
        server.submit()
        async with await connect(server) as connection:
            server.faults.cut_replies(1, after=40)
            with pytest.raises(ServerUnreachableError, match="broke"):
                await connection.describe(ALL_JOBS)
        async with await connect(server) as connection:
            assert len(await connection.describe(ALL_JOBS)) == 1


async def test_after_a_server_restart_a_new_connection_finds_the_same_jobs() -> None:
    async with EmulatedServer(NODES) as server:
        name = server.submit()
        async with await connect(server) as connection:
            await server.restart(down=0.05)
            with pytest.raises(ServerUnreachableError):
                await connection.describe(ALL_JOBS)
        async with await connect(server) as connection:
            (job,) = await connection.describe(ALL_JOBS)
            assert job.name == name


async def test_bytes_that_are_no_reply_are_a_protocol_error() -> None:
    async def borrow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n")
        await writer.drain()

    server, address = await fake_server(borrow)
    async with server:
        with pytest.raises(ProtocolError, match="at byte 0"):
            await open_connection(address, TorqueAnyPort(), timeout=WAIT_S)


async def test_a_reply_without_end_is_rejected() -> None:
    async def borrow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"+2+2+0+0+66+100000")
        while not writer.is_closing():
            writer.write(b"+2+1x+0" * 10_000)
            await writer.drain()

    server, address = await fake_server(borrow)
    async with server:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        connection = TorqueConnection(reader, writer, limits=Limits(message_bytes=200_000))
        with pytest.raises(ProtocolError, match="without end"):
            await connection.describe(ALL_JOBS)
        await connection.close()


def test_a_server_that_refuses_version_two_is_used_with_version_one() -> None:
    async def run_scenario() -> None:
        async def borrow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while raw := await reader.read(1000):
                if raw.startswith(b"+2+2"):
                    writer.write(b"+2+15+15058+0+72+30Bad DIS based Request Protocol")
                    return
                if raw.endswith(b"59+4root"):
                    return
                writer.write(b"+2+1+0+0+6+1+0+9localhost+12+182+12server_state+0+4Idle+0")

        server, address = await fake_server(borrow)
        async with server, await open_connection(address, TorqueAnyPort(), timeout=WAIT_S) as connection:
            assert connection.version == 1

    asyncio.run(run_scenario())


@root_only
async def test_a_privileged_port_is_trusted_and_an_ordinary_port_is_not() -> None:
    async with EmulatedServer(NODES, privileged_ports=True) as server:
        with pytest.raises(RightsError, match="15021 BADCRED"):
            await connect(server)
        for _ in range(3):
            async with await connect(server, TorquePrivilegedPort()) as connection:
                assert await connection.describe(ALL_JOBS) == []


@root_only
async def test_root_authenticates_a_user_who_gets_only_that_users_rights() -> None:
    async with EmulatedServer(NODES, privileged_ports=True) as server:
        name = server.submit("alice")
        async with await connect(server, TorqueVouch(), user="bob") as connection:
            with pytest.raises(ServerRefusedError, match="15007 PERM"):
                await connection.request(
                    ManageRequest(code=RequestCode.DELETE_JOB, command=1, object_type=2, name=name)
                )
        async with await connect(server, TorqueVouch(), user="alice") as connection:
            await connection.request(
                ManageRequest(code=RequestCode.DELETE_JOB, command=1, object_type=2, name=name)
            )


async def test_a_missing_right_to_privileged_ports_is_reported_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    async with EmulatedServer(NODES) as server:
        monkeypatch.setattr("server_adapter.torque.credentials.socket.socket.bind", denied)
        with pytest.raises(RightsError, match="CAP_NET_BIND_SERVICE; or use trqauthd"):
            await connect(server, TorquePrivilegedPort())
        monkeypatch.undo()


async def test_trqauthd_vouches_through_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "trqauthd-unix"
    async with EmulatedServer(NODES, privileged_ports=True, auth_socket=path) as server:
        async with await connect(server, Trqauthd(path), user="alice") as connection:
            assert await connection.describe(ALL_JOBS) == []
        with pytest.raises(RightsError, match="trqauthd does not answer"):
            await connect(server, Trqauthd(tmp_path / "elsewhere"))


async def test_a_trqauthd_that_refuses_is_quoted(tmp_path: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = (await reader.read(1000)).decode().split("|")
        assert question[:2] == ["1", "9"]
        assert question[6] == "bob"
        writer.write(b"15021|14|no such server|")
        await writer.drain()
        writer.close()

    path = tmp_path / "trqauthd-unix"
    async with EmulatedServer(NODES) as server:
        auth = await asyncio.start_unix_server(refuse, str(path))
        async with auth:
            with pytest.raises(RightsError, match="15021 no such server"):
                await connect(server, Trqauthd(path), user="bob")


async def test_ten_thousand_jobs_never_hold_the_event_loop_for_long() -> None:
    async with EmulatedServer(NODES) as server:
        for _ in range(10_000):
            server.submit(resources={"nodes": "1:ppn=2", "walltime": "00:10:00"})
        async with await connect(server) as connection:
            await connection.describe(ALL_JOBS, JOB_ATTRIBUTES)  # the emulated server warms its cache
            raw = server.handlers.answer(
                ALL_JOBS, ClientContext(make_principal(server.cluster, "root", privileged=True))
            )

    async def borrow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"+2+2+0+0+6+0")
        await reader.read(1000)
        for start in range(0, len(raw), 1 << 18):
            writer.write(raw[start : start + (1 << 18)])
            await writer.drain()
        await reader.read(1000)

    fake, address = await fake_server(borrow)
    gaps: list[float] = []

    async def watch() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            gaps.append(time.thread_time() - before)

    async with fake, await open_connection(address, TorqueAnyPort()) as connection:
        watching = asyncio.create_task(watch())
        begin = time.thread_time()
        jobs = await connection.describe(ALL_JOBS, JOB_ATTRIBUTES)
        spent = time.thread_time() - begin
        watching.cancel()
    assert len(jobs) == 10_000
    assert spent < 5  # of the processor, whatever else runs
    assert sorted(gaps)[-3] < 0.02  # processor time; two may have met a collection of garbage


async def test_random_bytes_sent_to_the_emulated_server_do_not_stop_it() -> None:
    noise = random.Random(7)
    async with EmulatedServer(NODES) as server:
        for _ in range(50):
            reader, writer = await asyncio.open_connection(*server.address)
            writer.write(noise.randbytes(noise.randrange(1, 200)))
            writer.write_eof()
            await reader.read(1000)
            writer.close()
            await writer.wait_closed()
        async with await connect(server) as connection:
            assert await connection.describe(ALL_JOBS) == []
