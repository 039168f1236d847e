"""Retries while the database fails."""

import threading
from collections.abc import Callable
from typing import TypeVar

import structlog

from schedd.service.cluster.errors import PlannerStopped
from schedd.store import StoreError

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)
_WAITS = (0.1, 0.2, 0.5, 1.0, 2.0)  # backoff in seconds; the last value repeats


class StoreRetries:
    """Retries of one cluster's planner. ``trouble`` is why it waits; empty while all works."""

    def __init__(self, cluster: str) -> None:
        self.trouble = ""
        self._cluster = cluster
        self._stop = threading.Event()

    def retry(self, call: Callable[[], _T]) -> _T:
        """Call until there is no retryable error; return the result. Raises PlannerStopped when stopped."""
        tries = 0
        while True:
            try:
                answer = call()
            except StoreError as error:
                if not error.retryable:
                    raise
                self.report("the journal fails", str(error))
                if self._stop.wait(_WAITS[min(tries, len(_WAITS) - 1)]):
                    raise PlannerStopped("the daemon is shutting down") from error
                tries += 1
            else:
                if self.trouble:
                    _log.info("the journal works again", cluster=self._cluster)
                    self.trouble = ""
                return answer

    def wait(self, seconds: float) -> None:
        """Wait. Raises PlannerStopped when stopped."""
        if self._stop.wait(seconds):
            raise PlannerStopped("the daemon is shutting down")

    def report(self, what: str, why: str) -> None:
        """Record a failure; log it if it is the first of several."""
        if not self.trouble:
            _log.error(what, cluster=self._cluster, why=why)
        self.trouble = why

    def end(self) -> None:
        """Stop waiting."""
        self._stop.set()
