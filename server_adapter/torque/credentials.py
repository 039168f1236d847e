"""Ways to be trusted by a pbs_server: privileged source port, trqauthd, vouching (protocol document, 3)."""

import asyncio
import errno
import os
import random
import socket
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from server_adapter.dis import Decoder, DisError
from server_adapter.torque.errors import ProtocolError, RightsError, ServerUnreachableError
from server_adapter.torque.frames import encode_request
from server_adapter.torque.replies import decode_reply
from server_adapter.torque.requests import AuthenticateRequest

PRIVILEGED_PORTS = range(512, 1024)
_IFF = 1  # trqauthd's only kind of authentication
_ASK = 1


@dataclass(frozen=True, slots=True)
class Address:
    """Where a pbs_server listens."""

    host: str = "127.0.0.1"
    port: int = 15001


class Credential(Protocol):
    """Opens a connected socket that the server trusts for `user`."""

    async def connect(self, address: Address, user: str, version: int) -> socket.socket:
        """Raises `ServerUnreachableError` or `RightsError`."""
        ...


@dataclass(frozen=True, slots=True)
class AnyPort:
    """No credential: for servers that trust every client, such as the emulated one by default."""

    async def connect(self, address: Address, user: str, version: int) -> socket.socket:
        """A plain connection."""
        del user, version
        return await _connect(address, None)


@dataclass(frozen=True, slots=True)
class PrivilegedPort:
    """A source port below 1024, which takes root or CAP_NET_BIND_SERVICE: all rights at once."""

    async def connect(self, address: Address, user: str, version: int) -> socket.socket:
        """A connection from the first free privileged port, beginning at a random one."""
        del user, version
        return await connect_privileged(address)


@dataclass(frozen=True, slots=True)
class Trqauthd:
    """Asks trqauthd (4.x and later), through its UNIX socket, to vouch for our connection.

    The daemon's name of the server may differ from our address of it: `server` is then given.
    """

    path: Path = Path("/tmp/trqauthd-unix")
    server: str | None = None

    async def connect(self, address: Address, user: str, version: int) -> socket.socket:
        """A plain connection, vouched for by trqauthd."""
        del version
        connection = await _connect(address, None)
        try:
            await self._ask(address, user, connection.getsockname()[1])
        except BaseException:
            connection.close()
            raise
        return connection

    async def _ask(self, address: Address, user: str, port: int) -> None:
        server = self.server or address.host
        question = (
            f"{_ASK}|{len(server)}|{server}|{address.port}|{_IFF}|{len(user)}|{user}|{os.getpid()}|{port}|"
        )
        try:
            reader, writer = await asyncio.open_unix_connection(str(self.path))
        except OSError as error:
            raise RightsError(
                f"trqauthd does not answer at {self.path} ({error.strerror}): running? right path?"
            ) from error
        with closing(writer):
            writer.write(question.encode())
            await writer.drain()
            try:
                code = await reader.readuntil(b"|")
                await reader.readuntil(b"|")
                text = await reader.readuntil(b"|")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
                raise RightsError(f"trqauthd at {self.path} gave no answer that makes sense") from error
        if code != b"0|":
            words = text[:-1].decode("utf-8", "replace")
            raise RightsError(f"trqauthd refused to vouch for {user}: {code[:-1].decode()} {words}")


@dataclass(frozen=True, slots=True)
class Vouch:
    """Root vouches for an ordinary user's connection from a privileged port, with request 49."""

    async def connect(self, address: Address, user: str, version: int) -> socket.socket:
        """A plain connection, which then is the user's."""
        connection = await _connect(address, None)
        try:
            voucher = await connect_privileged(address)
            with closing(voucher):
                await self._vouch(voucher, user, version, connection.getsockname()[1])
        except BaseException:
            connection.close()
            raise
        return connection

    async def _vouch(self, voucher: socket.socket, user: str, version: int, port: int) -> None:
        loop = asyncio.get_running_loop()
        request = encode_request(AuthenticateRequest(port=port), user=user, version=version)
        try:
            await loop.sock_sendall(voucher, request)
            reply = decode_reply(Decoder(await loop.sock_recv(voucher, 4096)))
        except DisError as error:
            raise ProtocolError(f"no reply to AuthenUser: {error}") from error
        except OSError as error:
            raise ServerUnreachableError(f"the connection for AuthenUser broke: {error}") from error
        if reply.code:
            raise RightsError(f"the server does not take our word for {user}: {reply.code} {reply.text}")


async def connect_privileged(address: Address) -> socket.socket:
    """A connected socket whose source port is below 1024. Ports in use or in TIME_WAIT are passed over."""
    first = random.randrange(len(PRIVILEGED_PORTS))
    for turn in range(len(PRIVILEGED_PORTS)):
        port = PRIVILEGED_PORTS[(first + turn) % len(PRIVILEGED_PORTS)]
        try:
            return await _connect(address, port)
        except _PortBusyError:
            continue
    raise RightsError("no privileged source port (512..1023) is free; wait for those in TIME_WAIT")


class _PortBusyError(Exception):
    pass


async def _connect(address: Address, source_port: int | None) -> socket.socket:
    loop = asyncio.get_running_loop()
    where = f"{address.host}:{address.port}"
    try:
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ServerUnreachableError(f"pbs_server's host {address.host} is unknown: {error}") from error
    family, kind, protocol, _, target = found[0]
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source_port is not None:
            _bind(connection, family, source_port)
        await loop.sock_connect(connection, target)
    except OSError as error:
        connection.close()
        if source_port is not None and error.errno in (errno.EADDRNOTAVAIL, errno.EADDRINUSE):
            raise _PortBusyError from error
        raise ServerUnreachableError(
            f"pbs_server does not answer at {where}: {error.strerror or error}"
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _bind(connection: socket.socket, family: int, port: int) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        connection.bind(("::" if family == socket.AF_INET6 else "", port))
    except PermissionError as error:
        raise RightsError(
            f"source port {port} may not be bound: run as root, with CAP_NET_BIND_SERVICE, or use trqauthd"
        ) from error
