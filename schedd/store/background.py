"""Compressing a checkpoint beside the engine's thread."""

import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

__all__ = ["Encoder"]

T = TypeVar("T")
_SHARE = 20


class Encoder(Generic[T]):
    """Compresses one checkpoint at a time, at most every ``every`` seconds.

    Where building one takes the engine's thread long, they are made less often: building takes at most a
    twentieth of the time.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._wait = every
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._started = time.monotonic()
        self._work: Future[bytes] | None = None
        self._with: T | None = None

    @property
    def due(self) -> bool:
        """Whether it is time for the next, none being in the making."""
        return self._work is None and time.monotonic() - self._started >= self._wait

    def start(self, build: Callable[[], bytes], remember: T) -> None:
        """Build a checkpoint here and compress it in the thread."""
        self._started = time.monotonic()
        checkpoint = build()
        self._wait = max(self._every, _SHARE * (time.monotonic() - self._started))
        self._with = remember
        self._work = self._thread.submit(zlib.compress, checkpoint, 1)

    def ready(self, *, wait: bool = False) -> tuple[bytes, T] | None:
        """The compressed checkpoint and what was to be remembered with it; None when there is none yet."""
        if self._work is None or self._with is None or not (wait or self._work.done()):
            return None
        return self._work.result(), self._with

    def drop(self) -> None:
        """Forget the one that is made or ready."""
        self._work = self._with = None

    def close(self) -> None:
        """End the thread, which may compress yet."""
        self._thread.shutdown(wait=True, cancel_futures=True)
