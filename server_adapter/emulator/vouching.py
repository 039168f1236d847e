"""An emulated trqauthd: authenticates clients through its UNIX socket (protocol document, section 3).

Clients first request the active server (`2|`), and get `0|9|localhost|15001|`; then each of their connections
is authenticated: `1|9|localhost|15001|1|4|root|17788|37615|` gets `0|0||`.
"""

import asyncio
import contextlib
import time
from collections.abc import MutableMapping

_VOUCH, _WHICH_SERVER, _VALIDATE, _PING = b"1|", b"2|", b"3|", b"5|"
_REFUSED = b"1|7|refused|"
_PATIENCE = 10.0


class Vouchers(dict[int, str]):
    """User of each authenticated source port, with the age of the authentication."""

    def __init__(self) -> None:
        super().__init__()
        self._at: dict[int, float] = {}

    def __setitem__(self, port: int, user: str) -> None:
        self._at[port] = time.monotonic()
        super().__setitem__(port, user)

    def age(self, port: int, begun: float) -> float:
        """Return real seconds since the port was authenticated, else since `begun` (monotonic)."""
        return time.monotonic() - (self._at.get(port, begun) if port in self else begun)


async def answer_question(
    vouched: MutableMapping[int, str],
    server: tuple[str, int],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Answer one request; record the user of a port in `vouched`. `server` is the server's name and port."""
    answer = _REFUSED
    with contextlib.suppress(
        OSError, ValueError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
    ):
        async with asyncio.timeout(_PATIENCE):
            answer = await _answer(vouched, server, reader)
    with contextlib.suppress(OSError):
        writer.write(answer)
        await writer.drain()
    writer.close()


async def _answer(
    vouched: MutableMapping[int, str], server: tuple[str, int], reader: asyncio.StreamReader
) -> bytes:
    question = await reader.readuntil(b"|")
    if question in (_WHICH_SERVER, _VALIDATE, _PING):
        name, port = server
        return f"0|{len(name)}|{name}|{port}|".encode()
    if question != _VOUCH:
        return _REFUSED
    # Length and name of the server, its port, kind, length and name of the user, process, source port.
    words = [(await reader.readuntil(b"|"))[:-1] for _ in range(8)]
    vouched[int(words[7])] = words[5].decode()
    return b"0|0||"
