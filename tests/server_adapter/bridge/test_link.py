"""The connection to a server that is away: looked for often, said seldom."""

import logging
import socket

import pytest

from server_adapter.batch.sockets import Address
from server_adapter.bridge.link import Link
from server_adapter.torque.connection import open_connection
from server_adapter.torque.credentials import AnyPort

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_server_that_is_away_is_looked_for_every_two_seconds_and_named_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = Address("127.0.0.1", port)
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 40:
            raise InterruptedError

    link = Link(address, lambda: open_connection(address, AnyPort()), sleep=sleep)
    with caplog.at_level(logging.WARNING, "server_adapter.bridge.link"), pytest.raises(InterruptedError):
        await link.wait_until_up()
    assert slept[0] < 1
    assert max(slept) < 2.5
    assert min(slept[5:]) > 1
    assert len(caplog.records) == 1
    assert "tried every 2 s" in caplog.records[0].message
