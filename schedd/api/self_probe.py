"""A request of the daemon to itself, over its real socket: only its answer shows that others are answered."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

_REQUEST: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_WILDCARD_TO_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class ProbeFailed(Exception):
    """The daemon did not answer a request of its own; the message says why."""


class SelfProbe:
    """Sends requests to the daemon that listens on ``listening``.

    ``on_open`` gets the address of the connection before it is opened, ``on_close`` after: it has a slot even
    if all others are taken.
    """

    def __init__(
        self,
        listening: socket.socket,
        *,
        tls: bool,
        on_open: Callable[[tuple[str, int]], None],
        on_close: Callable[[tuple[str, int]], None],
    ) -> None:
        self._family = listening.family
        host, self._port = listening.getsockname()[:2]
        self._host = _WILDCARD_TO_LOOPBACK.get(host, host)
        self._on_open = on_open
        self._on_close = on_close
        self._ended = False
        self._tls: ssl.SSLContext | None = None
        if tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._tls.check_hostname = False  # it is this process, whatever its certificate says
            self._tls.verify_mode = ssl.CERT_NONE

    def end(self) -> None:
        """From now on no answer is expected: the daemon ends."""
        self._ended = True

    async def check(self, seconds: float) -> None:
        """Return when the daemon answered, or ends. Raises ProbeFailed after ``seconds`` at the latest."""
        try:
            await self._check(seconds)
        except ProbeFailed:
            if not self._ended:
                raise

    async def _check(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                line = await self._answer()
        except TimeoutError:
            raise ProbeFailed(f"no answer within {seconds:.1f} s") from None
        except OSError as error:
            raise ProbeFailed(str(error)) from error
        if line.split(b" ")[1:2] != [b"200"]:
            raise ProbeFailed(f"the answer was {line.decode(errors='replace').strip() or 'empty'}")

    async def _answer(self) -> bytes:
        loop = asyncio.get_running_loop()
        with socket.socket(self._family, socket.SOCK_STREAM) as channel:
            channel.setblocking(False)
            channel.bind((self._host, 0))
            own = channel.getsockname()[:2]
            self._on_open(own)
            try:
                await loop.sock_connect(channel, (self._host, self._port))
                name = "localhost" if self._tls is not None else None
                reader, writer = await asyncio.open_connection(
                    sock=channel, ssl=self._tls, server_hostname=name
                )
                try:
                    writer.write(_REQUEST)
                    return await reader.readline()
                finally:
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()
            finally:
                self._on_close(own)
