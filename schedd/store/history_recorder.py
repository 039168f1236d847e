"""Records the history of jobs and nodes and deletes expired rows, in a thread of its own."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait

from schedd.store.errors import NotLeader
from schedd.store.records import RetentionLimits
from schedd.store.store import Store
from schedd.supervision import run_in_thread

_MAX_PURGES = 100  # transactions of one purge; most delete up to 500 rows of each table
_PURGE_INTERVAL_S = 60.0  # rows are kept for days, and a look at the oldest of each table costs 30 ms
_BUSY_INTERVAL_S = 60.0
"""Time between two records of a large cluster that is busy: the engine waits for the interpreter lock."""
_MAX_BUSY_EVENTS = 5_000
"""Events that may wait for the end of that time: a storm would bring more than could be recorded later."""
_MIN_PAUSE_S = 0.02
_PAUSE_FACTOR = 9
"""Pause = factor * processor time of the last transaction: a tenth of the time is enough for 2,000 events a
second of 45 us each. Twice as much slowed down storms."""


class HistoryRecorder:
    """Records the log of one cluster up to its end whenever it is started, with pauses."""

    def __init__(self, store: Store, cluster: int, limits: RetentionLimits) -> None:
        self._store = store
        self._cluster = cluster
        self._limits = limits
        self._work: Future[None] | None = None
        self._lock = threading.Lock()  # of the next two
        self._is_running = False
        self._is_wanted = False  # whether it was started again meanwhile
        self._steps: Iterator[int] | None = None
        self._is_deferred = False  # whether a large cluster is busy: what is under way goes on later
        self._stop = threading.Event()
        self._recorded = store.last_recorded_event(cluster)
        self._purge_at = 0.0  # monotonic time of the next purge
        self._busy_at = time.monotonic() + _BUSY_INTERVAL_S  # from then on, also while the cluster is busy
        self.error: Exception | None = None

    def events_behind(self, last: int) -> int:
        """Return how many events up to ``last`` are not recorded yet."""
        return max(0, last - self._recorded)

    def start(self, now: int, last: int, *, busy: bool) -> None:
        """Record up to the end of the log, of which ``last`` is an event; if that is under way, once more.

        While a large cluster is ``busy``, a few events wait for a minute, also if they are half recorded: one
        of them may be a snapshot of all jobs.
        """
        soon = time.monotonic() >= self._busy_at or self.events_behind(last) > _MAX_BUSY_EVENTS
        self._is_deferred = busy and not soon
        if self._is_deferred:
            return
        with self._lock:
            self._is_wanted = True
            if self._is_running or self._stop.is_set():
                return
            self._is_running = True
        self._work = run_in_thread("history", lambda: self._run(now))

    def close(self) -> None:
        """End the work after its present transaction."""
        self._stop.set()
        if self._work is not None:
            wait((self._work,))

    def _run(self, now: int) -> None:
        while True:
            with self._lock:
                if not self._is_wanted or self._stop.is_set():
                    self._is_running = False
                    return
                self._is_wanted = False
            self._record_and_purge(now)

    def _record_and_purge(self, now: int) -> None:
        try:
            self._repeat(self._record)
            if time.monotonic() >= self._purge_at:
                left = iter(range(_MAX_PURGES))
                self._repeat(
                    lambda: (
                        next(left, None) is not None
                        and bool(self._store.purge(self._limits, now, self._cluster))
                    )
                )
                self._purge_at = time.monotonic() + _PURGE_INTERVAL_S
        except NotLeader:
            return  # the next leader goes on
        except Exception as error:
            self.error = error
        else:
            self.error = None
        self._busy_at = time.monotonic() + _BUSY_INTERVAL_S

    def _repeat(self, work: Callable[[], bool]) -> None:
        """Call ``work`` with pauses, until it returns False or is deferred."""
        begun = time.thread_time()
        while work() and not self._is_deferred:
            if self._stop.wait(max(_MIN_PAUSE_S, _PAUSE_FACTOR * (time.thread_time() - begun))):
                return
            begun = time.thread_time()

    def _record(self) -> bool:
        """Run one step of the history writer; return whether there may be more."""
        steps = self._steps if self._steps is not None else self._store.record_history(self._cluster)
        self._steps = None  # it is of no more use when it fails
        recorded = next(steps, None)
        if recorded is None:
            return False
        self._recorded, self._steps = recorded, steps
        return True
