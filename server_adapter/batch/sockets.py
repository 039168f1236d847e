"""Connected sockets to a pbs_server, from any source port or from a privileged one."""

import asyncio
import errno
import random
import socket
from dataclasses import dataclass

from server_adapter.batch.errors import RightsError, ServerUnreachableError

PRIVILEGED_PORTS = range(512, 1024)


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a pbs_server, or of its client."""

    host: str = "127.0.0.1"
    port: int = 15001


def peer_address(writer: asyncio.StreamWriter) -> Address | None:
    """Return the address of the other end; None if it has gone already."""
    found = writer.get_extra_info("peername")
    return Address(*found[:2]) if found else None


async def connect_privileged(address: Address) -> socket.socket:
    """Return a connected socket with a source port below 1024. Ports in use or in TIME_WAIT are skipped."""
    first = random.randrange(len(PRIVILEGED_PORTS))
    for turn in range(len(PRIVILEGED_PORTS)):
        port = PRIVILEGED_PORTS[(first + turn) % len(PRIVILEGED_PORTS)]
        try:
            return await connect(address, port)
        except _PortBusyError:
            continue
    raise RightsError("no privileged source port (512..1023) is free; wait for those in TIME_WAIT")


class _PortBusyError(Exception):
    pass


async def connect(address: Address, source_port: int | None) -> socket.socket:
    """Return a connected socket, with this source port if given.

    Raises `ServerUnreachableError`, `RightsError`.
    """
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
            f"source port {port} may not be bound: run as root, with CAP_NET_BIND_SERVICE"
        ) from error
