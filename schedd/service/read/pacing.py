"""Cooperative priority: long work for readers yields to the planner.

Python threads share one interpreter lock without priorities. Long work for a reader therefore checks often
whether the planner is busy, and pauses then.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

_T = TypeVar("_T")
_PIECE_S: Final = 0.001  # processor time between two checks
_LATER_PIECE_S: Final = 0.004
_LOOK_S: Final = 0.0005
_MOST_S: Final = 0.05  # maximum pause after a piece of work
_LATER_MOST_S: Final = 0.004
_COURTESY_S: Final = 1.0  # pauses of one block in total, after which pieces and pauses are equally long
_present = threading.local()


@contextmanager
def pacing(busy: Callable[[], bool]) -> Iterator[None]:
    """Let ``yield_to_planner`` pause while ``busy``, within the block and in this thread.

    A planner that is busy all the time slows the block down to half its speed, and does not starve it.
    """
    _present.busy, _present.worked, _present.paused = busy, time.thread_time(), 0.0
    try:
        yield
    finally:
        _present.busy = None


def yield_to_planner() -> None:
    """Pause while the planner is busy, if this thread worked for a while, within ``pacing``."""
    busy: Callable[[], bool] | None = getattr(_present, "busy", None)
    if busy is None:
        return
    hurried = _present.paused >= _COURTESY_S
    if time.thread_time() - _present.worked < (_LATER_PIECE_S if hurried else _PIECE_S):
        return
    time.sleep(0)  # others may have the interpreter now
    began = time.monotonic()
    until = began + (_LATER_MOST_S if hurried else _MOST_S)
    while busy() and time.monotonic() < until:
        time.sleep(_LOOK_S)
    _present.paused += time.monotonic() - began
    _present.worked = time.thread_time()


def paced(items: Iterable[_T]) -> Iterator[_T]:
    """Yield the items, and yield to the planner after each."""
    for one in items:
        yield one
        yield_to_planner()
