"""A request of the daemon to itself, over its real socket: only its answer shows that others are answered."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

__all__ = ["NotAnswered", "Probe"]

_REQUEST: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_ANY: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class NotAnswered(Exception):
    """The daemon did not answer a request of its own; the message says why."""


class Probe:
    """Asks the daemon that listens on ``listening``.

    ``expect`` is told the address of the connection before it is opened, and ``forget`` after: it has a place
    even where others have none left.
    """

    def __init__(
        self,
        listening: socket.socket,
        *,
        tls: bool,
        expect: Callable[[tuple[str, int]], None],
        forget: Callable[[tuple[str, int]], None],
    ) -> None:
        self._family = listening.family
        host, self._port = listening.getsockname()[:2]
        self._host = _ANY.get(host, host)
        self._expect = expect
        self._forget = forget
        self._tls: ssl.SSLContext | None = None
        if tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._tls.check_hostname = False  # it is this process, whatever its certificate says
            self._tls.verify_mode = ssl.CERT_NONE

    async def ask(self, seconds: float) -> None:
        """Return when the daemon answered. Raises NotAnswered after ``seconds`` at the latest."""
        try:
            async with asyncio.timeout(seconds):
                line = await self._answer()
        except TimeoutError:
            raise NotAnswered(f"no answer within {seconds:.1f} s") from None
        except OSError as error:
            raise NotAnswered(str(error)) from error
        if line.split(b" ")[1:2] != [b"200"]:
            raise NotAnswered(f"answered {line!r}")

    async def _answer(self) -> bytes:
        loop = asyncio.get_running_loop()
        with socket.socket(self._family, socket.SOCK_STREAM) as channel:
            channel.setblocking(False)
            channel.bind((self._host, 0))
            own = channel.getsockname()[:2]
            self._expect(own)
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
                self._forget(own)
