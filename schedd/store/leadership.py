"""Leader election: at most one daemon makes decisions.

On PostgreSQL the leader holds a lease, and a thread renews it four times per period. A leader that cannot
renew stops before the lease ends by the database's clock: it counts from before the renewal request, on the
monotonic clock, and gives up one eighth earlier to allow for clock drift. On SQLite, which only one host can
use, the leader holds a lock on a file next to the database until its process ends. The term increases with
every acquisition in both cases. The first term of a database is the time of its acquisition, in seconds since
the epoch: it is higher than all terms of a lost database, which adapters may have seen.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection

from schedd.store import lease
from schedd.store.database import Database
from schedd.store.errors import NotLeader, StoreError
from schedd.supervision import SupervisedThread, Supervisor

_USABLE_SHARE = 0.875  # of the lease's length; the rest allows for clock drift
_STUCK_PERIODS = 4
"""A lease that was not renewed for this many periods by the monotonic clock counts as expired."""


class Leadership:
    """Leadership of one daemon; under the same name ``holder`` it reacquires its lease at once."""

    def __init__(
        self,
        database: Database,
        holder: str,
        *,
        seconds: float = 6.0,
        first: Callable[[], int] = lambda: int(time.time()),
        above: Callable[[], int] = lambda: 0,
        supervisor: Supervisor | None = None,
    ) -> None:
        """``first``: first term of a new database; ``above``: highest term known elsewhere."""
        self._database = database
        self._holder = holder
        self._seconds = seconds
        self._first = first
        self._above = above
        self._until = self._renew_at = 0.0
        self._seen: tuple[int, int] | None = None
        self._seen_at = 0.0
        self._lost = ""
        self._lock_file: int | None = None
        self._stopping = threading.Event()
        self._supervisor = supervisor or Supervisor()
        self._thread: SupervisedThread | None = None
        self.term = 0

    @property
    def is_leader(self) -> bool:
        """Whether this daemon may decide now."""
        return not self._lost and self.term > 0 and time.monotonic() < self._until

    @property
    def lost_reason(self) -> str:
        """Which daemon has taken over for good in this term; empty if none has."""
        return self._lost

    def try_acquire(self) -> bool:
        """Try once to become the leader; return whether it succeeded. Raises StoreError."""
        path = self._database.path
        if path is not None and not self._acquire_file_lock(path):
            return False
        begun = time.monotonic()
        try:
            with self._database.lease_transaction() as connection:
                term = lease.acquire(
                    connection,
                    self._holder,
                    self._seconds,
                    force=path is not None,
                    first=self._first(),
                    above=self._above(),
                    stuck=self._stuck(connection) if path is None else None,
                )
        except StoreError:
            # The old leader may have been cut off while it held the lease's row: then the next attempt
            # succeeds.
            if path is None:
                with suppress(StoreError), self._database.lease_transaction() as connection:
                    lease.end_stuck(connection)
            raise
        if term is None:
            return False
        self._database.guard = self.check
        if path is None:  # before the term is published: without this thread the lease would only expire
            self._stopping.clear()
            self._renew_at = begun + self._seconds / 4
            self._thread = self._supervisor.thread("lease", self._renew, needed=True)
            self._thread.start()
        self.term, self._lost = term, ""
        self._until = float("inf") if path is not None else begun + self._seconds * _USABLE_SHARE
        return True

    def _stuck(self, connection: Connection) -> tuple[int, int] | None:
        """Return the lease's (term, expiry) if it has not changed for too long by the monotonic clock.

        This handles a database clock that was set back while the leader died: the lease would otherwise last
        until the clock has caught up. A leader that is alive has renewed it or has stopped deciding by then.
        """
        now, found = time.monotonic(), lease.term_and_expiry(connection)
        if found is None or found != self._seen:
            self._seen, self._seen_at = found, now
        return found if now - self._seen_at > _STUCK_PERIODS * self._seconds else None

    def check(self, connection: Connection) -> None:
        """Check the lease in each write transaction. Raises NotLeader or LeaseExpired."""
        lease.check(connection, self._holder, self.term, expires=self._database.path is None)

    def release(self) -> None:
        """Stop renewing, and release the lease if the database can be reached."""
        self._stopping.set()
        self._until = 0.0
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self.term and not self._lost:
            with suppress(StoreError), self._database.lease_transaction() as connection:
                lease.release(connection, self._holder, self.term)
        self.term, self._lost = 0, ""
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def _renew(self) -> None:
        # Past due after an error: then it is renewed at once, whatever the wait for the restart was.
        while not self._stopping.wait(max(0.0, self._renew_at - time.monotonic())):
            begun = time.monotonic()
            try:
                with self._database.lease_transaction() as connection:
                    ours = lease.renew(connection, self._holder, self.term, self._seconds)
                    now = None if ours else lease.current_leader(connection)
            except StoreError:
                self._renew_at = time.monotonic() + self._seconds / 4
                continue
            self._renew_at = time.monotonic() + self._seconds / 4
            if not ours:
                self._lost = f"{now.holder} leads in term {now.term}" if now is not None else "nobody leads"
                return
            self._until = begun + self._seconds * _USABLE_SHARE

    def _acquire_file_lock(self, path: Path) -> bool:
        if self._lock_file is not None:
            return True
        try:
            found = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NotLeader(f"{path}.lock cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(found)
            return False
        self._lock_file = found
        return True
