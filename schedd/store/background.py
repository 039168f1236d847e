"""Encoding, compressing and keeping a checkpoint beside the engine's thread."""

import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["Background", "Parts"]

Parts = Iterable[bytes | memoryview]
"""A checkpoint piece by piece, made while it is gone through: so that no other thread waits for long."""
_SHARE = 20


class Background:
    """Makes one checkpoint at a time, at most every ``every`` seconds.

    Where it takes long they are made less often: at most a twentieth of the time goes into them.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._wait = every
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._started = time.monotonic()
        self._work: Future[float] | None = None

    @property
    def due(self) -> bool:
        """Whether it is time for the next, none being in the making."""
        return self._work is None and time.monotonic() - self._started >= self._wait

    def start(self, parts: Parts, keep: Callable[[bytes], None]) -> None:
        """Let the thread encode and compress a checkpoint, and ``keep`` it."""
        self._started = time.monotonic()
        self._work = self._thread.submit(_make, parts, keep)

    def ended(self, *, wait: bool = False) -> bool:
        """Whether the one in the making is kept now; told once. Raises what ``keep`` raised."""
        work = self._work
        if work is None or not (wait or work.done()):
            return False
        try:
            self._wait = max(self._every, _SHARE * work.result())
        finally:
            self._work = None
        return True

    def close(self) -> None:
        """End the thread, after what it is at."""
        self._thread.shutdown(wait=True, cancel_futures=True)


def _make(parts: Parts, keep: Callable[[bytes], None]) -> float:
    """Returns the seconds of processor time that making it took."""
    begun = time.thread_time()
    packer = zlib.compressobj(1)
    body = b"".join((*(packer.compress(part) for part in parts), packer.flush()))
    took = time.thread_time() - begun
    keep(body)
    return took
