"""Calls of functions in a forked process, which has an interpreter lock of its own.

The process has only the calling thread, so the functions must not use locks, the database or the network:
another thread may have held a lock at the fork. If the process stops for that, it is killed after a while.
"""

import gc
import os
import select
import signal
import struct
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

_SILENCE_S: Final = 60.0  # a process that sends nothing for as long is killed
_CHECK_S: Final = 0.2  # time between two checks for a cancellation
_NICENESS: Final = 5  # on a busy host, the engine has three quarters of the time that both want
_FRAME: Final = struct.Struct("<BQ")  # number of the call, or _END; number of the bytes that follow
_END: Final = 255
_READ: Final = 1 << 20


class ForkedCallFailed(Exception):
    """The process could not be created, failed, was silent for too long, or was cancelled."""


def call_in_fork(
    calls: Sequence[Callable[[], Iterable[bytes]]], is_cancelled: Callable[[], bool] = lambda: False
) -> tuple[list[bytes], float]:
    """Make the calls in a forked process; return the joined bytes of each, and its processor time in seconds.

    Raises ForkedCallFailed.
    """
    receiving, sending = os.pipe()
    try:
        process = os.fork()
    except OSError as error:
        os.close(receiving)
        os.close(sending)
        raise ForkedCallFailed(f"no process can be created: {error.strerror}") from error
    if not process:
        _run(calls, sending)
    os.close(sending)
    complete = False
    try:
        found = _receive(receiving, len(calls), is_cancelled)
        complete = True
    finally:
        os.close(receiving)
        if not complete:
            os.kill(process, signal.SIGKILL)
        _, _, usage = os.wait4(process, 0)
    return found, usage.ru_utime + usage.ru_stime


def _run(calls: Sequence[Callable[[], Iterable[bytes]]], sending: int) -> NoReturn:
    """Send the results of the calls, as the new process, and end it."""
    status = 1
    try:
        gc.disable()  # a collection would copy the memory that both processes share
        os.nice(_NICENESS)
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(one, signal.SIG_DFL)
        _close_files(sending)
        for number, call in enumerate(calls):
            for piece in call():
                if piece:
                    _send(sending, number, piece)
        _send(sending, _END, b"")
        status = 0
    finally:
        os._exit(status)  # also after an error: nothing of the daemon may run here


def _close_files(sending: int) -> None:
    """Close what the daemon has open: after its end its port and its lock must be free."""
    for path in list(Path("/proc/self/fd").iterdir()):
        number = int(path.name)
        if number > 2 and number != sending:
            with suppress(OSError):
                os.close(number)


def _send(sending: int, number: int, piece: bytes) -> None:
    for part in (_FRAME.pack(number, len(piece)), piece):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(sending, rest) :]


def _receive(receiving: int, calls: int, is_cancelled: Callable[[], bool]) -> list[bytes]:
    found: list[list[bytes]] = [[] for _ in range(calls)]
    while True:
        number, length = _FRAME.unpack(_read(receiving, _FRAME.size, is_cancelled))
        if number == _END:
            return [b"".join(pieces) for pieces in found]
        found[number].append(_read(receiving, length, is_cancelled))


def _read(receiving: int, length: int, is_cancelled: Callable[[], bool]) -> bytes:
    """Return exactly as many bytes. Raises ForkedCallFailed."""
    pieces: list[bytes] = []
    waited = 0.0
    poll = select.poll()  # not ``select``, which refuses high numbers of files
    poll.register(receiving, select.POLLIN)
    while length:
        if is_cancelled():
            raise ForkedCallFailed("it was cancelled")
        if not poll.poll(_CHECK_S * 1000):
            waited += _CHECK_S
            if waited >= _SILENCE_S:
                raise ForkedCallFailed(f"its process sent nothing for {_SILENCE_S:g} s")
            continue
        piece = os.read(receiving, min(length, _READ))
        if not piece:
            raise ForkedCallFailed("its process failed")
        waited = 0.0
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
