"""A signal from threads to coroutines."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

_LATE_S = 5.0  # maximum wait: then a listener checks again whether its caller still has access


class ThreadSignal:
    """A signal from any thread to waiting event loops. Nothing should wait after ``close``."""

    def __init__(self) -> None:
        self.closed = False
        self._lock = threading.Lock()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def notify(self) -> None:
        """Wake all waiting coroutines."""
        with self._lock:
            waiting = tuple(self._waiting)
        for loop, signalled in waiting:
            with contextlib.suppress(RuntimeError):  # the event loop was closed
                loop.call_soon_threadsafe(signalled.set)

    def close(self) -> None:
        """Mark the signal as closed and wake all waiting coroutines."""
        self.closed = True
        self.notify()

    @contextlib.contextmanager
    def subscribe(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set by each notification; clear it before reading the changed state."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(entry)
        try:
            yield entry[1]
        finally:
            with self._lock:
                self._waiting.discard(entry)


async def wait_for_signal(signalled: asyncio.Event) -> None:
    """Wait for the signal, at most some seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LATE_S):
            await signalled.wait()
