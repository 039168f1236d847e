"""The daemon's requests to itself."""

import asyncio
import socket

import pytest

from schedd.api.self_probe import ProbeFailed, SelfProbe
from tests.waits import WAIT_S

pytestmark = pytest.mark.anyio


async def test_a_closed_socket_is_a_failure_until_the_daemon_ends() -> None:
    own: set[tuple[str, int]] = set()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        probe = SelfProbe(listening, tls=False, on_open=own.add, on_close=own.discard)
    with pytest.raises(ProbeFailed, match=r"refused|Connect call failed"):
        await probe.check(WAIT_S)
    probe.end()
    await probe.check(WAIT_S)
    assert own == set()


async def test_an_error_is_a_failure() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        ignore = set[tuple[str, int]]().add
        probe = SelfProbe(server.sockets[0]._sock, tls=False, on_open=ignore, on_close=ignore)  # type: ignore[attr-defined]
        with pytest.raises(ProbeFailed, match=r"the answer was .*503"):
            await probe.check(WAIT_S)
