"""The connection to a server that is away: looked for often, said seldom."""

import logging
from collections.abc import Callable

import pytest

from server_adapter.batch.codes import RequestCode
from server_adapter.batch.errors import ServerUnreachableError
from server_adapter.batch.requests import StatusRequest
from server_adapter.batch.sockets import Address
from server_adapter.bridge.link import ServerLink
from server_adapter.emulator import EmulatedServer, NodeSpec
from server_adapter.torque.connection import TorqueConnection, open_connection
from server_adapter.torque.credentials import TorqueAnyPort
from tests.ports import free_port
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio


async def test_an_unreachable_server_is_tried_every_two_seconds_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    address = Address("127.0.0.1", free_port())
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 40:
            raise InterruptedError

    link = ServerLink(address, lambda: open_connection(address, TorqueAnyPort()), sleep=sleep)
    with caplog.at_level(logging.WARNING, "server_adapter.bridge.link"), pytest.raises(InterruptedError):
        await link.wait_until_up()
    assert slept[0] < 1
    assert max(slept) < 2.5
    assert min(slept[5:]) > 1
    assert len(caplog.records) == 1
    assert "tried every 2 s" in caplog.records[0].message


def reset(connection: TorqueConnection) -> None:
    connection._writer.transport.abort()


def end(connection: TorqueConnection) -> None:
    connection._reader.feed_eof()


@pytest.mark.parametrize("close", [reset, end])
async def test_an_idle_connection_closed_by_the_server_counts_as_a_restart(
    close: Callable[[TorqueConnection], None],
) -> None:
    """A killed server closes its connections, without an error for a request."""
    async with EmulatedServer([NodeSpec("node1", 4)]) as server:
        host, port = server.address
        address = Address(host, port)
        link = ServerLink(address, lambda: open_connection(address, TorqueAnyPort()))
        found = []
        async with link.borrow() as connection:
            found.append(link.up_since is None)
        close(connection)
        async with link.borrow() as other:
            found.append(other is not connection)
        found.append(link.up_since is not None)
        assert found == [True, True, True]
        await link.close()


async def test_a_connection_closed_right_after_a_reply_counts_as_a_restart() -> None:
    async with EmulatedServer([NodeSpec("node1", 4)]) as server:
        host, port = server.address
        address = Address(host, port)
        link = ServerLink(address, lambda: open_connection(address, TorqueAnyPort()))
        async with link.borrow() as connection:
            end(connection)
        async with link.borrow():
            assert link.up_since is not None
        await link.close()


async def test_a_timed_out_connection_is_replaced_without_counting_as_a_restart() -> None:
    async with EmulatedServer([NodeSpec("node1", 4)]) as server:
        host, port = server.address
        address = Address(host, port)
        link = ServerLink(address, lambda: open_connection(address, TorqueAnyPort(), timeout=WAIT_S))
        async with link.borrow() as connection:
            await connection.describe(StatusRequest(code=RequestCode.STATUS_SERVER))
        connection._timeout = 0.3
        server.faults.slow_down(5.0, {RequestCode.STATUS_NODE})
        with pytest.raises(ServerUnreachableError):
            async with link.borrow() as connection:
                await connection.describe(StatusRequest(code=RequestCode.STATUS_NODE))
        async with link.borrow() as other:
            assert other is not connection
        assert link.up_since is None
        await link.close()
