"""Encoding, compressing and keeping a checkpoint beside the engine's thread."""

import threading
import time
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from functools import partial
from typing import Protocol

from schedd.supervision import run_in_thread

__all__ = ["CheckpointChunks", "CheckpointWriter", "FrozenState"]

CheckpointChunks = Iterable[bytes | memoryview]
"""A checkpoint piece by piece, made while it is gone through; some pieces are empty.

Between any two the thread may rest: while it works, all others wait for the interpreter now and then.
"""


class FrozenState(Protocol):
    """A state that is to be kept."""

    def parts(self) -> CheckpointChunks:
        """The checkpoint."""
        ...

    def facts(self) -> CheckpointChunks:
        """The facts of the state that every version of the program reads."""
        ...


_SHARE = 20
_REST = 9
"""Rest so many times as long as was worked."""
_REST_BUSY = 3
"""The same while the engine is at work: the sooner it is kept, the less is done again after a crash."""
_AGAIN_S = 6.0
_AGAIN = 3
_WORK_S = 0.001
"""But not before so much was worked."""


class CheckpointWriter:
    """Makes one checkpoint at a time, at most every ``every`` seconds.

    Where it takes long they are made less often: at most a twentieth of the time goes into them. But after a
    crash all is done again that the engine did since: when that is six seconds of processor time, and three
    times what making one takes, the next one is due. It is made in small pieces with rests between, unless
    somebody waits for the end: answers to reads are not held up.

    ``due`` and ``start`` are for the engine's thread alone: what that worked is what would be done again.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._wait = every
        self._took = 0.0
        self._worked = -1.0
        """What the engine's thread had worked when the last one was begun; below 0: not asked yet."""
        self._pause = _REST
        self._started = time.monotonic()
        self._work: Future[float] | None = None
        self._hurry = threading.Event()

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next, none being in the making."""
        if self._worked < 0:
            self._worked = time.thread_time()
        since = time.monotonic() - self._started
        return self._work is None and since >= self._every and (since >= self._wait or self._busy)

    @property
    def _busy(self) -> bool:
        """Whether the engine did so much since the last one that a restart would be slow."""
        return time.thread_time() - self._worked >= max(_AGAIN_S, _AGAIN * self._took)

    def start(self, state: FrozenState, keep: Callable[[bytes, bytes], None]) -> None:
        """Let the thread encode and compress a checkpoint and its facts, and ``keep`` both."""
        self._pause = _REST_BUSY if self._busy else _REST
        self._started = time.monotonic()
        self._worked = time.thread_time()
        self._work = run_in_thread("checkpoint", partial(self._make, state, keep))

    def finished(self, *, wait: bool = False) -> bool:
        """Whether the one in the making is kept now; told once. Raises what ``keep`` raised."""
        work = self._work
        if work is None or not (wait or work.done()):
            return False
        if wait:
            self._hurry.set()
        try:
            self._took = work.result()
            self._wait = max(self._every, _SHARE * self._took)
        finally:
            self._work = None
            self._hurry.clear()
        return True

    def pause(self, seconds: float) -> bool:
        """For the thread, while it keeps: let others work; True at once when somebody waits for its end."""
        return self._hurry.wait(seconds)

    def close(self) -> None:
        """End the thread, after what it is at, which rests no more."""
        self._hurry.set()
        if self._work is not None:
            wait((self._work,))

    def _make(self, state: FrozenState, keep: Callable[[bytes, bytes], None]) -> float:
        """Returns the seconds of processor time that making it took."""
        begun = time.thread_time()
        body, facts = self._packed(state.parts()), self._packed(state.facts())
        took = time.thread_time() - begun
        keep(body, facts)
        return took

    def _packed(self, parts: CheckpointChunks) -> bytes:
        rested = time.thread_time()
        packer = zlib.compressobj(1)
        packed: list[bytes] = []
        for part in parts:
            packed.append(packer.compress(part))
            worked = time.thread_time() - rested
            if worked >= _WORK_S:
                self._hurry.wait(worked * self._pause)
                rested = time.thread_time()
        return b"".join((*packed, packer.flush()))
