"""The scheduler's port: receives the server's four-byte commands (protocol document, section 2)."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from server_adapter.batch.errors import TakenError
from server_adapter.batch.sockets import peer_address
from server_adapter.batch.supervision import TaskSet
from server_adapter.torque.codes import SchedulerCommand
from server_adapter.torque.connection import TorqueConnection

_log = logging.getLogger(__name__)
DEFAULT_PORT = 15004


class PortTakenError(TakenError):
    """Another process listens on the scheduler's port: most likely another scheduler."""


@dataclass(frozen=True, slots=True)
class SchedulerCall:
    """A received command. The server coalesces commands: after any code, anything may have changed."""

    code: int
    peer: str

    @property
    def name(self) -> str:
        """`NEW`, `TERM`, ..., or `unknown`."""
        try:
            return SchedulerCommand(self.code).name
        except ValueError:
            return "unknown"


class CommandListener:
    """Listens for the commands of pbs_server.

    `on_command` is called at once for each; it must not block. `peers` are the permitted source addresses.
    Unless `any_port`, the source port must be below 1024, as pbs_sched demands.

    Servers from 4.x close the socket after the command. Servers up to 3.x keep it open, accept batch requests
    of protocol version 1 on it, and send no further command before it is closed: `on_open` gets it as a
    connection, which is closed after the call; without `on_open` it is closed after `linger` seconds.
    """

    def __init__(
        self,
        on_command: Callable[[SchedulerCall], None],
        *,
        peers: Collection[str] = ("127.0.0.1", "::1"),
        any_port: bool = False,
        on_open: Callable[[TorqueConnection], Awaitable[None]] | None = None,
        linger: float = 0.5,
        command_timeout: float = 5.0,
    ) -> None:
        self._on_command = on_command
        self._peers = frozenset(peers)
        self._any_port = any_port
        self._on_open = on_open
        self._linger = linger
        self._command_timeout = command_timeout
        self._server: asyncio.Server | None = None
        self._talks = TaskSet("a scheduler command")
        self.rejected = 0

    @property
    def port(self) -> int:
        if self._server is None:
            raise RuntimeError("the listener was not started")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self, host: str = "127.0.0.1", port: int = DEFAULT_PORT) -> None:
        """Start to listen. Raises `PortTakenError`."""
        try:
            self._server = await asyncio.start_server(self._welcome, host, port)
        except OSError as error:
            raise PortTakenError(
                f"cannot listen on {host}:{port} ({error.strerror}): is another scheduler running?"
            ) from error

    async def close(self) -> None:
        """Stop listening and end all connections."""
        if self._server is None:
            return
        self._server.close()
        await self._talks.close()
        self._server = None

    def _welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = peer_address(writer)
        if peer is None:
            writer.close()
            return
        host, port = peer.host.removeprefix("::ffff:"), peer.port  # IPv4 through a socket of both families
        if host not in self._peers or not (self._any_port or port < 1024):
            self.rejected += 1
            _log.warning("scheduler command from %s port %s was not believed", host, port)
            writer.close()
            return
        self._talks.spawn(self._talk(reader, writer, host))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        try:
            async with asyncio.timeout(self._command_timeout):
                raw = await reader.readexactly(4)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            self.rejected += 1
            writer.close()
            return
        try:
            self._on_command(SchedulerCall(int.from_bytes(raw, "big"), host))
            if not await self._closed_by_server(reader) and self._on_open is not None:
                await self._on_open(TorqueConnection(reader, writer, version=1))
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _closed_by_server(self, reader: asyncio.StreamReader) -> bool:
        try:
            async with asyncio.timeout(self._linger):
                await reader.read(1)  # the server sends nothing more: this ends with its FIN
        except TimeoutError:
            return False
        except OSError:
            return True
        return True
