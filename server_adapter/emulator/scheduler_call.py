"""The server's call to its scheduler: four bytes from a privileged port (protocol document, section 2)."""

import asyncio
import contextlib
import socket

from server_adapter.torque.codes import SchedulerCommand

_FIRST, _LAST = 600, 1023
_PATIENCE = 5.0


async def call_scheduler(address: tuple[str, int], command: SchedulerCommand) -> socket.socket | None:
    """Send a command; return the open connection, or None if the scheduler does not listen.

    The source port is privileged if this process may bind one.
    """
    loop = asyncio.get_running_loop()
    connection = _bound()
    try:
        async with asyncio.timeout(_PATIENCE):
            await loop.sock_connect(connection, address)
            await loop.sock_sendall(connection, int(command).to_bytes(4, "big"))
    except (OSError, TimeoutError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def _bound() -> socket.socket:
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.setblocking(False)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for port in range(_FIRST + connection.fileno() % 100, _LAST):
        try:
            connection.bind(("127.0.0.1", port))
        except PermissionError:
            break
        except OSError:
            continue
        break
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
