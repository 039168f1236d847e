"""Who comes next: one at a time, requests before looks."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["PriorityLock"]

_MAX_REQUESTS_IN_A_ROW: Final = 20
"""So many requests go before a look that waits; then it has its turn, whatever else waits."""


class PriorityLock:
    """A lock that is handed over in order: to *requests*, whose answer somebody waits for, before *looks* of
    the threads of a hundred clusters, which would make a long queue before each request. No look waits for
    ever: after twenty requests in a row it is next. Not reentrant.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._requests: deque[threading.Lock] = deque()
        self._background: deque[threading.Lock] = deque()
        self._in_a_row = 0

    @property
    def waiting(self) -> tuple[int, int]:
        """How many requests and how many looks wait now."""
        with self._guard:
            return len(self._requests), len(self._background)

    @contextmanager
    def request(self) -> Iterator[None]:
        """A turn that waits for the one that is held now and for other requests alone."""
        self._acquire(self._requests)
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def background(self) -> Iterator[None]:
        """A turn that waits until no request does, or twenty have gone before it."""
        self._acquire(self._background)
        try:
            yield
        finally:
            self._release()

    def _acquire(self, queue: deque[threading.Lock]) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            mine = threading.Lock()
            mine.acquire()
            queue.append(mine)
        mine.acquire()  # until it is handed over: nobody can take it in between

    def _release(self) -> None:
        with self._guard:
            look = self._background and (not self._requests or self._in_a_row >= _MAX_REQUESTS_IN_A_ROW)
            queue = self._background if look else self._requests
            if not queue:
                self._held, self._in_a_row = False, 0
                return
            self._in_a_row = 0 if look or not self._background else self._in_a_row + 1
            queue.popleft().release()
