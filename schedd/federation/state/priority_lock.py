"""Mutual exclusion with two priorities: requests before background work."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_MAX_REQUESTS_IN_A_ROW: Final = 20
"""Requests that may overtake a waiting background thread; it is next after these."""


class PriorityLock:
    """Lock with first-in, first-out order within two priorities. Not reentrant.

    *Requests*, for which a user waits, go before *background* work of the cluster threads; a hundred of these
    would otherwise form a long queue. Background work cannot starve: it is next after 20 requests in a row.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._requests: deque[threading.Lock] = deque()
        self._background: deque[threading.Lock] = deque()
        self._in_a_row = 0

    @property
    def waiting(self) -> tuple[int, int]:
        """Number of waiting requests and waiting background threads."""
        with self._guard:
            return len(self._requests), len(self._background)

    @contextmanager
    def request(self) -> Iterator[None]:
        """Hold the lock with high priority."""
        self._acquire(self._requests)
        try:
            yield
        finally:
            self._release()

    @contextmanager
    def background(self) -> Iterator[None]:
        """Hold the lock with low priority: after all requests, or after 20 requests in a row."""
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
        mine.acquire()  # released by the previous holder, so that no thread can barge in

    def _release(self) -> None:
        with self._guard:
            look = self._background and (not self._requests or self._in_a_row >= _MAX_REQUESTS_IN_A_ROW)
            queue = self._background if look else self._requests
            if not queue:
                self._held, self._in_a_row = False, 0
                return
            self._in_a_row = 0 if look or not self._background else self._in_a_row + 1
            queue.popleft().release()
