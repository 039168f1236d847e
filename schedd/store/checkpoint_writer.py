"""Encodes, compresses and stores checkpoints in a thread of its own, parallel to the engine's thread.

Large ones are encoded in a forked process, which does not need the interpreter lock of the daemon.
"""

import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from typing import Protocol

import structlog

from schedd.store.forked_call import ForkedCallFailed, call_in_fork
from schedd.supervision import run_in_thread

_log = structlog.get_logger(__name__)

CheckpointChunks = Iterable[bytes | memoryview]
"""The pieces of a checkpoint, generated lazily; some pieces are empty.

The thread pauses between pieces, because the interpreter lock delays all other threads while it works."""


class FrozenContent(Protocol):
    """An immutable state of the engine that can be encoded as a checkpoint."""

    def parts(self) -> CheckpointChunks:
        """Yield the checkpoint in pieces."""
        ...

    def facts(self) -> CheckpointChunks:
        """Yield the lasting facts of the state, in the format that every version of the program reads."""
        ...

    @property
    def size(self) -> int:
        """Number of jobs and nodes."""
        ...


_MIN_INTERVAL_FACTOR = 20  # interval >= factor * processor time of one checkpoint
_PAUSE_FACTOR = 9  # pause = factor * processor time since the last pause
_BUSY_PAUSE_FACTOR = 3  # the same while the engine is busy: a late checkpoint means a longer replay
_MAX_REPLAY_S = 6.0
_MAX_REPLAY_FACTOR = 3  # replay <= factor * processor time of one checkpoint
_MIN_PIECE_S = 0.001  # processor time between two pauses
FORKED_SIZE = 20_000
"""Jobs and nodes from which on a checkpoint is encoded in a forked process: it takes a second or longer."""
_FORKED_REPLAY_S = 4.0
_FORKED_REPLAY_FACTOR = 1.5
"""The same as for ``_MAX_REPLAY_S`` and its factor, after a checkpoint of a forked process, which delays the
engine less."""
_PACKED_TOGETHER = 1 << 15
"""Bytes that are compressed in one call: each call waits for the interpreter lock."""


class _Abandoned(Exception):
    """Raised in the writer's thread because a later checkpoint replaces the present one."""


class CheckpointWriter:
    """Writes one checkpoint at a time, at most every ``every`` seconds.

    Large checkpoints are written less often: writing takes at most 1 / 20 of the time. An exception limits
    the replay after a crash: the next checkpoint is due as soon as the engine's thread has used 6 s of
    processor time, and three times the cost of a checkpoint, since the last one (4 s, and 1.5 times the cost,
    if that was encoded in a forked process). Encoding in the thread pauses between small pieces so that it
    does not delay answers to readers; it does not pause while a caller waits for the end.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._wait = every
        self._cost_s = 0.0
        self._worked = -1.0
        """Processor time of the engine's thread at the start of the last checkpoint; negative before the
        first call."""
        self._forked = False  # whether the last checkpoint was encoded in a forked process
        self.is_urgent = False
        """Whether the last checkpoint is a large one, and was due since the engine had worked for long."""
        self._pause = _PAUSE_FACTOR
        self._started = time.monotonic()
        self._work: Future[float] | None = None
        self._caller_waits = threading.Event()
        self._abandoned = threading.Event()

    @property
    def is_due(self) -> bool:
        """Whether the next checkpoint should be started; False while one is being written."""
        if self._worked < 0:
            self._worked = time.thread_time()
        since = time.monotonic() - self._started
        return self._work is None and since >= self._every and (since >= self._wait or self._busy)

    @property
    def _busy(self) -> bool:
        """Whether a restart now would be slow: the engine has worked long since the last checkpoint."""
        least, factor = (
            (_FORKED_REPLAY_S, _FORKED_REPLAY_FACTOR) if self._forked else (_MAX_REPLAY_S, _MAX_REPLAY_FACTOR)
        )
        return time.thread_time() - self._worked >= max(least, factor * self._cost_s)

    def start(self, state: FrozenContent, store: Callable[[bytes, bytes], None]) -> None:
        """Encode and compress a checkpoint and its facts in a thread, then call ``store`` with both."""
        busy = self._busy
        self.is_urgent = busy and state.size >= FORKED_SIZE
        self._pause = _BUSY_PAUSE_FACTOR if busy else _PAUSE_FACTOR
        self._started = time.monotonic()
        self._worked = time.thread_time()
        self._work = run_in_thread("checkpoint", partial(self._make, state, store))

    def finished(self, *, wait: bool = False) -> bool:
        """Return True once after a checkpoint was stored. Raises the exception of ``store``, if any."""
        work = self._work
        if work is None or not (wait or work.done()):
            return False
        if wait:
            self._caller_waits.set()
        try:
            self._cost_s = work.result()
            self._wait = max(self._every, _MIN_INTERVAL_FACTOR * self._cost_s)
        finally:
            self._work = None
            self._caller_waits.clear()
        return True

    def abandon(self) -> None:
        """End the checkpoint under way, without storing it if it is not encoded yet."""
        self._abandoned.set()
        try:
            with suppress(_Abandoned):
                self.finished(wait=True)
        finally:
            self._abandoned.clear()

    def close(self) -> None:
        """Wait for the current checkpoint, without further pauses."""
        self._caller_waits.set()
        if self._work is not None:
            wait((self._work,))

    def _make(self, state: FrozenContent, store: Callable[[bytes, bytes], None]) -> float:
        """Write the checkpoint; return the processor time of encoding it, in seconds."""
        found = self._encode_in_fork(state) if state.size >= FORKED_SIZE else None
        self._forked = found is not None
        if found is None:
            begun = time.thread_time()
            body, facts = self._compress(state.parts()), self._compress(state.facts())
            found = body, facts, time.thread_time() - begun
        body, facts, took = found
        store(body, facts)
        return took

    def _encode_in_fork(self, state: FrozenContent) -> tuple[bytes, bytes, float] | None:
        """Return body, facts and processor time; None: it failed, and this thread is to encode the state."""
        calls = (lambda: compress_pieces(state.parts()), lambda: compress_pieces(state.facts()))
        try:
            (body, facts), took = call_in_fork(calls, self._abandoned.is_set)
        except ForkedCallFailed as error:
            if self._abandoned.is_set():
                raise _Abandoned from None
            _log.warning("a checkpoint is encoded in the daemon itself", why=str(error))
            return None
        return body, facts, took

    def _compress(self, parts: CheckpointChunks) -> bytes:
        return b"".join(compress_pieces(self._with_pauses(parts)))

    def _with_pauses(self, parts: CheckpointChunks) -> Iterator[bytes | memoryview]:
        """Yield the pieces, with pauses between them. Raises _Abandoned."""
        rested, rested_at = time.thread_time(), time.monotonic()
        for part in parts:
            if self._abandoned.is_set():
                raise _Abandoned
            yield part
            # A cheap clock first: most pieces are small, and reading the processor time is a system call.
            if time.monotonic() - rested_at < _MIN_PIECE_S:
                continue
            worked = time.thread_time() - rested
            if worked >= _MIN_PIECE_S:
                self._caller_waits.wait(worked * self._pause)
                rested, rested_at = time.thread_time(), time.monotonic()


def compress_pieces(parts: CheckpointChunks) -> Iterator[bytes]:
    """Yield the compressed bytes of the pieces, in pieces."""
    packer = zlib.compressobj(1)
    small: list[bytes | memoryview] = []
    room = _PACKED_TOGETHER
    for part in parts:
        if len(part) < room:
            small.append(part)
            room -= len(part)
        else:
            yield packer.compress(b"".join(small))
            yield packer.compress(part)
            small, room = [], _PACKED_TOGETHER
    yield packer.compress(b"".join(small)) + packer.flush()
