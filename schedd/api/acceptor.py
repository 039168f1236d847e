"""Accepts connections in a task of its own, so that no error while one is accepted ends the listening.

The event loop's own servers stop for good when creating a protocol raises: the connection is never closed.
"""

import asyncio
import contextlib
import errno
import os
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import Final

import structlog

from schedd.supervision import SupervisedTask, Supervisor

_log = structlog.get_logger(__name__)
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_RETRY_S: Final = 0.02
"""Until the next try when there was no descriptor or no memory: meanwhile others are closed."""
_ACCEPT_BURST: Final = 32  # connections accepted before other work of the event loop has its turn
_HANDSHAKE_TIMEOUT_S: Final = 5.0
_MAX_HANDSHAKES_PER_ADDRESS: Final = 16  # TLS handshakes of one address at a time; more are closed at once


def descriptor_limit() -> int:
    """How many descriptors the process may have open, after the soft limit was raised as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


def descriptors_in_use() -> int:
    """How many descriptors the process has open."""
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208  (a path for each would cost more)
    except OSError:  # there is none left to look with, or no such file
        return 0


class Acceptor:
    """Accepts connections on one listening socket until ``close``. ``make`` makes the protocol of each."""

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], asyncio.Protocol],
        supervisor: Supervisor,
        *,
        tls: ssl.SSLContext | None = None,
        most_descriptors: int = 1 << 20,
    ) -> None:
        self._listening = listening
        self._make = make
        self._supervisor = supervisor
        self._tls = tls
        self._most = most_descriptors
        self._failures = supervisor.record("connections")
        self._handshakes: Counter[str] = Counter()
        listening.setblocking(False)
        name = "listening on the UNIX socket" if listening.family == socket.AF_UNIX else "listening"
        self._task: SupervisedTask = supervisor.task(name, self._accept, needed=True)

    async def close(self) -> None:
        """Accept no more."""
        self._task.cancel()
        await self._task.ended()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        accepted = 0
        while True:
            try:
                channel, address = await loop.sock_accept(self._listening)
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:
                    await asyncio.sleep(_RETRY_S)
                continue  # else it was given up before we came to it
            try:
                scarce = channel.fileno() >= self._most
                self._begin(channel, str(address[0]) if isinstance(address, tuple) else "")
            except BaseException:
                channel.close()
                raise
            accepted += 1
            if scarce:
                await asyncio.sleep(_RETRY_S)
            elif accepted % _ACCEPT_BURST == 0:
                await asyncio.sleep(0)

    def _begin(self, channel: socket.socket, address: str) -> None:
        if self._tls is not None and self._handshakes[address] >= _MAX_HANDSHAKES_PER_ADDRESS:
            channel.close()
            return

        async def opened() -> None:
            await self._open(channel, address)

        self._supervisor.once("connections", opened)

    async def _open(self, channel: socket.socket, address: str) -> None:
        """Hand the connection to a protocol, after the TLS handshake where there is one."""
        loop = asyncio.get_running_loop()
        timeout = _HANDSHAKE_TIMEOUT_S if self._tls is not None else None
        self._handshakes[address] += 1
        try:
            await loop.connect_accepted_socket(
                self._make, channel, ssl=self._tls, ssl_handshake_timeout=timeout
            )
        except OSError as error:  # it was reset, or the handshake failed: any client can cause that
            channel.close()
            _log.debug("a connection failed", why=str(error))
        except BaseException:
            channel.close()
            raise
        finally:
            self._handshakes[address] -= 1
            if not self._handshakes[address]:
                del self._handshakes[address]
