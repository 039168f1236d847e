"""Requests for readings of the server: when the next one is due, and its scope."""

import asyncio
import contextlib
import time
from typing import Final

from server_adapter.bridge.server import ReadScope

_STARTED_AFTER_S: Final = 0.4  # until most accepted runs have started
_READING_SHARE: Final = 0.05  # of the time, for full readings that nothing has requested
_SHORTEST: Final = 0.2  # of the interval, between two of them


class ReadingRequests:
    """Gathers requests until the next reading. A full one is due after `interval` seconds at the latest, and
    sooner if it is short: a server does not announce `qalter`, `qhold`, or `pbs_rsub --hosts`.
    """

    def __init__(self, interval: float) -> None:
        self._interval = self._pause = interval
        self._requested = asyncio.Event()
        self._scope: ReadScope | None = None  # requested since the start of the last reading
        self._was_called = False
        self._timer: asyncio.TimerHandle | None = None
        self.read_whole_at = float("-inf")
        """Monotonic time of the end of the last full reading."""

    def request(self, scope: ReadScope = ReadScope.ALL) -> None:
        """Request a reading: something in this scope has changed on the server."""
        self._scope = scope if self._scope is None else max(scope, self._scope)
        self._requested.set()

    def request_soon(self) -> None:
        """Request a reading soon after the start of accepted jobs; several calls cause one."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_STARTED_AFTER_S, self._end_delay)

    def _end_delay(self) -> None:
        self._timer = None
        self.request(ReadScope.ENDS)

    def request_for_call(self, scope: ReadScope) -> None:
        """Request a reading since the server has called its scheduler."""
        self._was_called = True
        self.request(scope)

    async def wait(self) -> None:
        """Wait until a reading is requested, or a full one is due."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._until_full()):
                await self._requested.wait()
        self._requested.clear()

    def take(self, *, full: bool) -> tuple[ReadScope, bool]:
        """Return the scope of the next reading, and whether the server has called; reset both. `full`: a full
        reading is needed in any case.
        """
        scope, self._scope = self._scope, None
        called, self._was_called = self._was_called, False
        whole = scope is None or full or self._until_full() <= 0
        return ReadScope.ALL if whole or scope is None else scope, called

    def note_failure(self) -> None:
        """Make the next reading a full one."""
        self._scope = ReadScope.ALL

    def note_full_reading(self, took: float) -> None:
        """Record the end of a full reading that took this number of seconds."""
        self.read_whole_at = time.monotonic()
        self._pause = min(self._interval, max(took / _READING_SHARE, self._interval * _SHORTEST))

    def _until_full(self) -> float:
        return max(0.0, self.read_whole_at + self._pause - time.monotonic())
