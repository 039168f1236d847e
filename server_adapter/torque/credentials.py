"""Authentication at a TORQUE server: privileged port, trqauthd, request 49 (protocol document, 3)."""

import asyncio
import os
import socket
import struct
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from server_adapter.batch.errors import ProtocolError, RightsError, ServerUnreachableError
from server_adapter.batch.frames import encode_request
from server_adapter.batch.sockets import Address, connect, connect_privileged
from server_adapter.dis import Decoder, DisError
from server_adapter.torque.replies import decode_reply
from server_adapter.torque.requests import AuthenticateUserRequest

_IFF = 1  # trqauthd's only kind of authentication
_ASK = 1


class TorqueCredential(Protocol):
    """Opens a connected socket that the server trusts for `user`."""

    async def connect(self, address: Address, user: str, version: int) -> socket.socket:
        """Raises `ServerUnreachableError` or `RightsError`."""
        ...


@dataclass(frozen=True, slots=True)
class TorqueAnyPort:
    """No credential: for servers that trust every client, such as the emulated one by default."""

    async def connect(self, address: Address, user: str, version: int) -> socket.socket:
        """A plain connection."""
        del user, version
        return await connect(address, None)


@dataclass(frozen=True, slots=True)
class TorquePrivilegedPort:
    """A source port below 1024, which needs root or CAP_NET_BIND_SERVICE: it has all rights."""

    async def connect(self, address: Address, user: str, version: int) -> socket.socket:
        """A connection from the first free privileged port, beginning at a random one."""
        del user, version
        try:
            return await connect_privileged(address)
        except RightsError as error:
            raise RightsError(f"{error}; or use trqauthd") from error


@dataclass(frozen=True, slots=True)
class Trqauthd:
    """Authenticates the connection by trqauthd (4.x and later), through its UNIX socket.

    `server` is the server's name in trqauthd, if it differs from the address.
    """

    path: Path = Path("/tmp/trqauthd-unix")
    server: str | None = None

    async def connect(self, address: Address, user: str, version: int) -> socket.socket:
        """Return a connection authenticated by trqauthd."""
        del version
        connection = await connect(address, None)
        try:
            await self._authorize(address, user, connection.getsockname()[1])
        except BaseException:
            connection.close()
            raise
        return connection

    async def _authorize(self, address: Address, user: str, port: int) -> None:
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
            owner = _owner(writer.get_extra_info("socket"))
            if owner not in (0, os.geteuid()):
                raise RightsError(f"{self.path} is not trqauthd's: a process of user {owner} listens there")
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


def _owner(connection: socket.socket) -> int:
    """Return the user id of the process at the other end of a UNIX socket."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    owner: int = struct.unpack("3i", found)[1]
    return owner


@dataclass(frozen=True, slots=True)
class TorqueVouch:
    """Root authenticates the connection of an ordinary user from a privileged port, by request 49."""

    async def connect(self, address: Address, user: str, version: int) -> socket.socket:
        """A plain connection, which then is the user's."""
        connection = await connect(address, None)
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
        request = encode_request(AuthenticateUserRequest(port=port), user=user, version=version)
        try:
            await loop.sock_sendall(voucher, request)
            reply = decode_reply(Decoder(await loop.sock_recv(voucher, 4096)))
        except DisError as error:
            raise ProtocolError(f"no reply to AuthenUser: {error}") from error
        except OSError as error:
            raise ServerUnreachableError(f"the connection for AuthenUser broke: {error}") from error
        if reply.code:
            raise RightsError(f"the server does not take our word for {user}: {reply.code} {reply.text}")
