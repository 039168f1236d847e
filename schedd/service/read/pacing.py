"""Work for readers in small pieces, each only while the planner rests: a cooperative priority.

Python threads share one interpreter lock, and do not know of priorities. So long work for a reader asks again
and again whether the planner is at work, and lets it go first.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

__all__ = ["paced", "pacing", "yield_to_planner"]

_T = TypeVar("_T")
_PIECE_S: Final = 0.001
"""Processor time between two looks at the planner."""
_LOOK_S: Final = 0.0005
_MOST_S: Final = 0.05
"""So long a piece waits at most for a planner that is always busy: readers are slow then, not shut out."""
_present = threading.local()


@contextmanager
def pacing(busy: Callable[[], bool]) -> Iterator[None]:
    """Within it ``breathe`` waits while ``busy``. For the present thread."""
    _present.busy, _present.worked = busy, time.thread_time()
    try:
        yield
    finally:
        _present.busy = None


def yield_to_planner() -> None:
    """Let the planner go first, if this thread worked for a while. Without ``pacing`` it does nothing."""
    busy: Callable[[], bool] | None = getattr(_present, "busy", None)
    if busy is None or time.thread_time() - _present.worked < _PIECE_S:
        return
    time.sleep(0)  # others may have the interpreter now
    until = time.monotonic() + _MOST_S
    while busy() and time.monotonic() < until:
        time.sleep(_LOOK_S)
    _present.worked = time.thread_time()


def paced(items: Iterable[_T]) -> Iterator[_T]:
    """The same items, with a breath after each."""
    for one in items:
        yield one
        yield_to_planner()
