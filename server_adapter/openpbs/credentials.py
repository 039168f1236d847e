"""Authentication at an OpenPBS server: second connection, privileged port, munge (protocol document, 3)."""

import asyncio
import grp
import os
import pwd
import socket
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

from server_adapter.batch.errors import ProtocolError, RightsError, ServerUnreachableError
from server_adapter.batch.frames import encode_request
from server_adapter.batch.request_layout import BatchRequest
from server_adapter.batch.sockets import Address, connect, connect_privileged
from server_adapter.dis import DisError
from server_adapter.openpbs.packets import Packet, PacketKind, PacketSplitter, encode_packet
from server_adapter.openpbs.replies import decode_reply
from server_adapter.openpbs.requests import AuthenticateRequest, ConnectRequest


class OpenPBSCredential(Protocol):
    """Opens a connected socket that the server trusts for `user`."""

    async def connect(self, address: Address, user: str) -> socket.socket:
        """Raises `ServerUnreachableError`, `RightsError`, `ProtocolError`."""
        ...


@dataclass(frozen=True, slots=True)
class OpenPBSAnyPort:
    """No credential: for servers that trust every client, such as the emulated one by default."""

    async def connect(self, address: Address, user: str) -> socket.socket:
        """A plain connection, opened in the server's way."""
        connection = await connect(address, None)
        try:
            await _request(connection, ConnectRequest(), user)
        except BaseException:
            connection.close()
            raise
        return connection


@dataclass(frozen=True, slots=True)
class OpenPBSVouch:
    """Root authenticates a connection from any port by a second one from a privileged port, like `pbs_iff`.

    The server then knows the connection as `user`'s.
    """

    async def connect(self, address: Address, user: str) -> socket.socket:
        """A plain connection, which then is the user's."""
        connection = await connect(address, None)
        try:
            await _request(connection, ConnectRequest(), user)
            with closing(await connect_privileged(address)) as voucher:
                port = connection.getsockname()[1]
                await _request(voucher, AuthenticateRequest(port=port), user)
        except BaseException:
            connection.close()
            raise
        return connection


@dataclass(frozen=True, slots=True)
class OpenPBSPrivilegedPort:
    """A source port below 1024 that authenticates itself: the server then treats the client as another
    server.

    It has all rights, including attributes reserved to servers and schedulers.
    """

    async def connect(self, address: Address, user: str) -> socket.socket:
        """A connection from the first free privileged port."""
        connection = await connect_privileged(address)
        try:
            await _request(connection, AuthenticateRequest(port=connection.getsockname()[1]), user)
        except BaseException:
            connection.close()
            raise
        return connection


@dataclass(frozen=True, slots=True)
class Munge:
    """A munge credential of this process's user; munge must be among the server's methods.

    `command` makes the credential from its input, like `munge`.
    """

    command: Sequence[str] = ("munge",)

    async def connect(self, address: Address, user: str) -> socket.socket:
        """Return a connection authenticated by munge. `user` must be the user of this process."""
        credential = await self._credential()
        connection = await connect(address, None)
        try:
            await _request(connection, ConnectRequest(), user)
            await _request(connection, AuthenticateRequest(method="munge"), user)
            answer = await _exchange(connection, encode_packet(credential + b"\0", PacketKind.TOKEN))
            if answer.kind != PacketKind.DONE:
                words = answer.body.rstrip(b"\0").decode("utf-8", "replace")
                raise RightsError(
                    f"the server does not take our munge credential: {words or 'no reason given'}"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    async def _credential(self) -> bytes:
        me = pwd.getpwuid(os.getuid())
        payload = f"{me.pw_name}:{grp.getgrgid(me.pw_gid).gr_name}"
        try:
            process = await asyncio.create_subprocess_exec(
                *self.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise RightsError(
                f"{self.command[0]} cannot be run ({error.strerror}): is munge installed?"
            ) from error
        out, said = await process.communicate(payload.encode())
        if process.returncode:
            raise RightsError(f"munge gave no credential: {said.decode('utf-8', 'replace').strip()}")
        return out.strip()


async def _request(connection: socket.socket, request: BatchRequest, user: str) -> None:
    """Send one request and check its reply, before the connection has streams."""
    answer = await _exchange(connection, encode_packet(encode_request(request, user=user)))
    try:
        reply = decode_reply(answer.body)
    except DisError as error:
        raise ProtocolError(f"no batch reply: {error}") from error
    if reply.code:
        words = reply.text.strip() or "no reason given"
        raise RightsError(f"the server does not trust {user} here: {reply.code} ({words})")


async def _exchange(connection: socket.socket, raw: bytes) -> Packet:
    loop = asyncio.get_running_loop()
    splitter = PacketSplitter()
    try:
        await loop.sock_sendall(connection, raw)
        while True:
            chunk = await loop.sock_recv(connection, 4096)
            if not chunk:
                raise ServerUnreachableError("the server closed the connection before it answered")
            packets = splitter.feed(chunk)
            if packets:
                return packets[0]
    except OSError as error:
        raise ServerUnreachableError(f"the connection to pbs_server broke: {error}") from error
    except DisError as error:
        raise ProtocolError(f"the peer is no OpenPBS server: {error}") from error
