"""The scheduler's port: commands of servers that close and of servers that keep the socket, and trusted
senders.
"""

import asyncio
from typing import Any

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.requests import StatusRequest
from server_adapter.emulator import EmulatedServer, NodeSpec
from server_adapter.openpbs.job_receiver import Receiver
from server_adapter.torque.connection import TorqueConnection
from server_adapter.torque.listener import CommandListener, PortTakenError, SchedulerCall
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio

NODES = [NodeSpec("node1")]


async def send(
    port: int, raw: bytes, *, stay: bool = False
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    await writer.drain()
    if not stay:
        writer.close()
        await writer.wait_closed()
    return reader, writer


async def test_a_command_is_received_from_a_server_that_closes_at_once() -> None:
    heard: asyncio.Queue[SchedulerCall] = asyncio.Queue()
    listener = CommandListener(heard.put_nowait, any_port=True)
    await listener.start(port=0)
    await send(listener.port, b"\0\0\0\x0a")
    command = await asyncio.wait_for(heard.get(), WAIT_S)
    assert (command.code, command.name, command.peer) == (10, "FIRST", "127.0.0.1")
    await send(listener.port, b"\0\0\0\x63")
    assert (await asyncio.wait_for(heard.get(), WAIT_S)).name == "unknown"
    await listener.close()


async def test_a_server_that_keeps_the_socket_open_gets_requests_of_version_one() -> None:
    answers: list[str] = []

    async def use(connection: TorqueConnection) -> None:
        (server,) = await connection.describe(StatusRequest(code=RequestCode.STATUS_SERVER))
        answers.append(server.name)

    listener = CommandListener(lambda _: None, any_port=True, on_open=use, linger=0.05)
    await listener.start(port=0)
    reader, writer = await send(listener.port, b"\0\0\0\x01", stay=True)
    assert await reader.readexactly(20) == b"+2+12+21+4root+0+0+0"
    writer.write(b"+2+1+0+0+6+1+0+3srv+0")
    assert await asyncio.wait_for(reader.read(), WAIT_S) in (b"", b"+2+12+59+4root")
    assert answers == ["srv"]
    writer.close()
    await listener.close()


async def test_an_open_socket_without_user_is_closed() -> None:
    listener = CommandListener(lambda _: None, any_port=True, linger=0.05)
    await listener.start(port=0)
    reader, writer = await send(listener.port, b"\0\0\0\x01", stay=True)
    assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
    writer.close()
    await listener.close()


@pytest.mark.parametrize("raw", [b"", b"\0\0"])
async def test_less_than_a_command_is_rejected(raw: bytes) -> None:
    heard: list[SchedulerCall] = []
    listener = CommandListener(heard.append, any_port=True, command_timeout=0.2)
    await listener.start(port=0)
    await send(listener.port, raw)
    async with asyncio.timeout(WAIT_S):
        while not listener.rejected:
            await asyncio.sleep(0.01)
    assert heard == []
    await listener.close()


async def test_a_caller_that_has_gone_before_it_was_accepted_is_ignored() -> None:
    class Gone:
        closed = False

        def get_extra_info(self, name: str) -> None:
            assert name == "peername"

        def close(self) -> None:
            self.closed = True

    writer: Any = Gone()
    listener = CommandListener(lambda _: None, any_port=True)
    listener._welcome(asyncio.StreamReader(), writer)
    assert writer.closed
    receiver = Receiver("127.0.0.1", 0, any_port=True, most=1)
    writer.closed = False
    receiver._welcome(asyncio.StreamReader(), writer)
    assert writer.closed


async def test_an_ordinary_source_port_or_a_strange_address_is_not_believed() -> None:
    for listener in (CommandListener(_fail), CommandListener(_fail, peers=["192.0.2.1"], any_port=True)):
        await listener.start(port=0)
        reader, writer = await send(listener.port, b"\0\0\0\x01", stay=True)
        assert await asyncio.wait_for(reader.read(), WAIT_S) == b""
        assert listener.rejected == 1
        writer.close()
        await listener.close()


def _fail(command: SchedulerCall) -> None:
    raise AssertionError(command)


async def test_a_port_in_use_is_reported_as_another_scheduler() -> None:
    first = CommandListener(lambda _: None)
    await first.start(port=0)
    with pytest.raises(PortTakenError, match="another scheduler"):
        await CommandListener(lambda _: None).start(port=first.port)
    await first.close()


async def test_the_emulated_server_calls_first_then_new_and_believes_nobody_waits() -> None:
    heard: asyncio.Queue[SchedulerCall] = asyncio.Queue()
    listener = CommandListener(heard.put_nowait, any_port=True)  # privileged only where we may bind one
    await listener.start(port=0)
    address = ("127.0.0.1", listener.port)
    async with EmulatedServer(NODES, time_scale=20, scheduler=address) as server:
        server.set_scheduling(True)
        assert (await asyncio.wait_for(heard.get(), WAIT_S)).name == "FIRST"
        server.submit()
        assert (await asyncio.wait_for(heard.get(), WAIT_S)).name == "NEW"
    await listener.close()
