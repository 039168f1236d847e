"""Reads of single jobs at a steady rate; run as a separate process.

It takes ``Reads`` as JSON on its standard input and writes its measurements to its standard output. Every
read is due at a moment of its own; it waits for a free connection if it must, and its wait counts from there.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections import Counter, deque
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

import uvloop
from typing_extensions import override

from research.benchmarks.wait import Wait

_TICK_S: Final = 0.001


@dataclass(frozen=True, slots=True)
class Reads:
    """Load of reads: ``rate`` per second (0: as many as are answered) over this number of connections."""

    port: int
    token: str
    paths: tuple[str, ...]
    rate: float
    seconds: float
    connections: int


@dataclass(frozen=True, slots=True)
class ReadFigures:
    """``gone``: reads of jobs that had ended meanwhile. Waits count from the moment a read was due."""

    seconds: float
    reads: int
    reads_per_s: float
    gone: int
    wait: Wait


def start(reads: Reads) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-m", "research.benchmarks.reads"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(asdict(reads)))
    process.stdin.close()
    process.stdin = None
    return process


def wait_for(process: "subprocess.Popen[str]") -> ReadFigures:
    """Return the measurements after the end. Raises ValueError when it failed."""
    said = process.communicate()[0]
    if process.returncode:
        raise ValueError(f"the reading process ended with {process.returncode}")
    found = json.loads(said)
    return ReadFigures(**{**found, "wait": Wait(**found["wait"])})


class _ReadConnection(asyncio.Protocol):
    """Asks for one thing at a time; HTTP answers with a length."""

    def __init__(self, reader: "_ReaderThread") -> None:
        self._reader = reader
        self._data = b""
        self._due = 0.0
        self._transport: asyncio.Transport | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self._reader.idle.append(self)

    def ask(self, request: bytes, due: float) -> None:
        assert self._transport is not None
        self._due = due
        self._transport.write(request)

    @override
    def data_received(self, data: bytes) -> None:
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        if len(body) >= length:
            self._data = b""
            self._reader.done(self, int(lines[0].split()[1]), self._due)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.lost(exc)


class _ReaderThread:
    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        self._requests = [
            f"GET {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {reads.token}\r\n\r\n".encode()
            for path in reads.paths
        ]
        self._waits: list[float] = []
        self._statuses: Counter[int] = Counter()
        self._asked = 0
        self._begun = 0.0
        self._waiting: deque[float] = deque()
        self._over = asyncio.get_running_loop().create_future()
        self.idle: deque[_ReadConnection] = deque()

    async def run(self) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        for _ in range(self._reads.connections):
            await loop.create_connection(lambda: _ReadConnection(self), "127.0.0.1", self._reads.port)
        self._begun = time.monotonic()
        self._tick(loop)
        await self._over
        took = time.monotonic() - self._begun
        strange = {status: n for status, n in self._statuses.items() if status not in (200, 404)}
        if strange:
            raise SystemExit(f"the daemon answered otherwise than expected: {strange}")
        figures = ReadFigures(
            seconds=round(took, 1),
            reads=len(self._waits),
            reads_per_s=round(len(self._waits) / took, 1),
            gone=self._statuses[404],
            wait=Wait.of(self._waits),
        )
        return asdict(figures)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        if now - self._begun >= self._reads.seconds:
            if not self._over.done():
                self._over.set_result(None)
            return
        rate = self._reads.rate
        if rate:
            due = int((now - self._begun) * rate)
            self._waiting.extend(self._begun + i / rate for i in range(self._asked, due))
            self._asked = due
        else:
            self._waiting.extend([now] * len(self.idle))
        self._ask()
        loop.call_later(_TICK_S, self._tick, loop)

    def _ask(self) -> None:
        while self._waiting and self.idle:
            request = self._requests[len(self._waits) * 7919 % len(self._requests)]
            # In turn: the daemon closes a connection that asks for nothing.
            self.idle.popleft().ask(request, self._waiting.popleft())

    def done(self, connection: _ReadConnection, status: int, due: float) -> None:
        now = time.monotonic()
        self._waits.append(now - due)
        self._statuses[status] += 1
        self.idle.append(connection)
        if not self._reads.rate and not self._over.done():
            self._waiting.append(now)
        self._ask()

    def lost(self, exc: Exception | None) -> None:
        if not self._over.done():
            self._over.set_exception(exc or ConnectionError("the daemon hung up"))


async def _run(reads: Reads) -> dict[str, Any]:
    return await _ReaderThread(reads).run()


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(_run(Reads(**json.load(sys.stdin))))))
