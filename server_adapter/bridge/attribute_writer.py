"""Writes plans on jobs, and removes them."""

import asyncio
import contextlib
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
_SHORTEST_TRY_S: Final = 0.5


class AttributeWriter:
    """Writes the plan on jobs, as fast as the server allows, and removes it again.

    `pace` is the server's rate limiter: it records the time of each write. While `starting` is true, runs are
    being requested, and a write waits for some time, since a server handles one request at a time.
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
        self._queue.enqueue(decision)
        self._awake.set()

    async def update(
        self,
        state: ServerState,
        started: list[JobStarted],
        *,
        whole: bool = False,
        after_restart: bool = False,
    ) -> None:
        """Use a new reading, and replace the adapter's comments on jobs that have started.

        `whole`: it is a full reading; `after_restart`: the first one of a restarted server, which may have
        lost comments.
        """
        for event in started:
            writing = state.writings.get(event.job_id)
            if writing is not None and is_ours(writing.comment) and self._server.comments:
                planned = self._queue.planned_start(event.job_id)
                self._started.append((event.job_id, started_comment(event.time, event.shares, planned)))
        for _ in self._queue.refresh(state):
            await asyncio.sleep(0)
        for _ in self._queue.restore(state) if after_restart else ():
            await asyncio.sleep(0)
        for _ in self._queue.rewrite_lost(state) if whole and self._server.comments else ():
            await asyncio.sleep(0)
        self._awake.set()

    async def work(self, state: Callable[[], ServerState | None]) -> None:
        """Write forever. `state` returns the newest reading. Raises errors of the connection."""
        rights = self._server.write_rights
        while True:
            self._awake.clear()
            current = state()
            while current is not None and await self.step(current):
                if rights.pop_regained():
                    self._queue.rewrite_all()
                current = state()
            wait = rights.seconds_until_try
            if wait is None:
                await self._awake.wait()
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(_SHORTEST_TRY_S, wait)):
                    await self._awake.wait()
            if rights.seconds_until_try == 0:
                self._queue.rewrite_one()

    async def step(self, state: ServerState) -> bool:
        """Write once if a write is due, and not all are refused; return whether it was."""
        if self._server.write_rights.seconds_until_any > 0:
            return False
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
        """Remove the adapter's attributes from all jobs; return the number of jobs."""
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
