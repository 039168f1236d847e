"""An emulated trqauthd: vouches for clients through its UNIX socket (protocol document, section 3)."""

import asyncio
import contextlib


async def answer_question(
    vouched: dict[int, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Reads `1|9|localhost|15001|1|4|root|17788|37615|`, notes the user of that port, answers `0|0||`."""
    answer = b"1|7|refused|"
    try:
        words = [(await reader.readuntil(b"|"))[:-1] for _ in range(9)]
        if words[0] == b"1":
            vouched[int(words[8])] = words[6].decode()
            answer = b"0|0||"
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        pass
    with contextlib.suppress(OSError):
        writer.write(answer)
        await writer.drain()
    writer.close()
