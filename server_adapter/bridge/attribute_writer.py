"""Writes plans on jobs, and takes them away again."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from schedd.wire import JobStarted, WriteAttributes
from server_adapter.bridge.job_comments import is_ours, started_comment
from server_adapter.bridge.rate_limits import AdaptiveRateLimiter
from server_adapter.bridge.server import Server
from server_adapter.bridge.state import ServerState
from server_adapter.bridge.write_queue import AttributeWrite, AttributeWriteQueue

_GIVES_WAY: Final = 0.05  # seconds
_LOOKS_EVERY: Final = 0.01


class AttributeWriter:
    """Keeps what stands on jobs in step with the plan, as fast as the server allows; takes it away again.

    `pace` is the server's: it learns there how long each write took. While `starting` says that runs are
    being requested, a write waits for some time: a server does one thing at a time.
    """

    def __init__(
        self,
        server: Server,
        pace: AdaptiveRateLimiter,
        *,
        threshold: int = 60,
        starting: Callable[[], bool] = lambda: False,
    ) -> None:
        self._starting = starting
        self._server = server
        self._pace = pace
        self._queue = AttributeWriteQueue(threshold)
        self._started: deque[tuple[str, str]] = deque()
        self._awake = asyncio.Event()
        self.written = 0

    def enqueue(self, decision: WriteAttributes) -> None:
        """Takes a decision to tell."""
        self._queue.enqueue(decision)
        self._awake.set()

    async def update(self, state: ServerState, started: list[JobStarted]) -> None:
        """Takes a new reading, and the starts since the last one: our comments on those are replaced."""
        for event in started:
            writing = state.writings.get(event.job_id)
            if writing is not None and is_ours(writing.comment) and self._server.comments:
                planned = self._queue.planned_start(event.job_id)
                self._started.append((event.job_id, started_comment(event.time, event.shares, planned)))
        for _ in self._queue.refresh(state):
            await asyncio.sleep(0)
        self._awake.set()

    async def work(self, state: Callable[[], ServerState | None]) -> None:
        """Writes for ever. `state` gives the newest reading. Raises what the connection raises."""
        while True:
            self._awake.clear()
            current = state()
            while current is not None and await self.step(current):
                current = state()
            await self._awake.wait()

    async def step(self, state: ServerState) -> bool:
        """One write, if there is anything to write; tells whether there was."""
        while self._started and self._started[0][0] not in state.jobs:
            self._started.popleft()  # it has ended since
        if self._started:
            await self._pause()
            job, text = self._started[0]
            await self._server.comment(job, text)
            self._started.popleft()
            return True
        write = self._queue.next(state)
        if write is None:
            return False
        try:
            await self._pause()
            await self._write(write)
        except BaseException:
            self._queue.enqueue(write.decision)
            raise
        return True

    async def clean(self, state: ServerState) -> int:
        """Takes all our writings off all jobs; returns from how many."""
        cleaned = 0
        for job, writing in state.writings.items():
            cleaned += await self._server.clean(job, writing)
        return cleaned

    async def _write(self, write: AttributeWrite) -> None:
        if await self._server.write(write):
            self.written += 1
            self._queue.mark_written(write.decision)
        else:
            self._queue.enqueue(write.decision)

    async def _pause(self) -> None:
        until = time.monotonic() + _GIVES_WAY
        while self._starting() and time.monotonic() < until:
            await asyncio.sleep(_LOOKS_EVERY)
        while (wait := self._pace.wait(time.monotonic())) > 0:
            await asyncio.sleep(wait)
