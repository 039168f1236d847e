"""Waiting for a database that fails."""

import threading
from collections.abc import Callable
from typing import TypeVar

import structlog

from schedd.service.cluster.errors import PlannerStopped
from schedd.store import StoreError

__all__ = ["StoreRetries"]

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)
_WAITS = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between tries; the last one for as long as the database fails."""


class StoreRetries:
    """One cluster's. ``trouble`` says why it waits; empty while all is well."""

    def __init__(self, cluster: str) -> None:
        self.trouble = ""
        self._cluster = cluster
        self._stop = threading.Event()

    def retry(self, call: Callable[[], _T]) -> _T:
        """What ``call`` returns, asked for until it does. Raises PlannerStopped when told to end."""
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
        """Wait a while. Raises PlannerStopped when told to end."""
        if self._stop.wait(seconds):
            raise PlannerStopped("the daemon is shutting down")

    def report(self, what: str, why: str) -> None:
        """Something fails: the log has the first of several in a row."""
        if not self.trouble:
            _log.error(what, cluster=self._cluster, why=why)
        self.trouble = why

    def end(self) -> None:
        """Wait no more."""
        self._stop.set()
