"""Lets coroutines wait for what a thread has to tell."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

__all__ = ["ThreadSignal", "wait_for_signal"]

_LATE_S = 5.0
"""After so long who listens looks whether all is as it was: whoever asks may not be known any more."""


class ThreadSignal:
    """Rung by any thread, heard in any event loop. Once ``closed`` nobody is to wait any longer."""

    def __init__(self) -> None:
        self.closed = False
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def notify(self) -> None:
        """Wake all who listen."""
        with self._lock:
            waiting = tuple(self._waiting)
        for loop, rung in waiting:
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits there any more
                loop.call_soon_threadsafe(rung.set)

    def close(self) -> None:
        """Let nobody wait any longer."""
        self.closed = True
        self.notify()

    @contextlib.contextmanager
    def subscribe(self) -> Iterator[asyncio.Event]:
        """An event that is set whenever the bell rings; clear it before looking for what it rang for."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(entry)
        try:
            yield entry[1]
        finally:
            with self._lock:
                self._waiting.discard(entry)


async def wait_for_signal(rung: asyncio.Event) -> None:
    """Wait until the bell is rung, or for some seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LATE_S):
            await rung.wait()
