"""Event log of a federation in its database. Appended events are durable, and only the leader appends."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from schedd.federation.events import LicenceLeased, LoggedEvent, decode, encode
from schedd.store import AuditRecord, RetentionLimits, lease, retention, tokens_and_audit
from schedd.store.codec import replace_nul
from schedd.store.database import Database
from schedd.store.errors import StoreError
from schedd.store.leadership import Leadership
from schedd.store.tables import federation
from schedd.supervision import SHOWN_S, Supervisor


class FederationLog:
    """Append-only event log with a leadership lease.

    Methods raise StoreError for every database error, and NotLeader if another daemon leads.

    If an append raised, its outcome is uncertain: the connection may have been lost during the commit. The
    next write deletes such events from the database, because no decision was based on them.
    """

    def __init__(self, url: str, holder: str, lease_s: float, supervisor: Supervisor | None = None) -> None:
        self.supervisor = supervisor or Supervisor()  # supervisor of the federation's background work
        self._database = Database.open(url)
        self.leadership = Leadership(self._database, holder, seconds=lease_s, supervisor=self.supervisor)
        self._newest = 0
        self._failed_at = float("-inf")  # monotonic time of the last failed write, if none succeeded since
        self._uncertain: set[str] = set()
        """Encoded events after the newest number. Their append failed but may have been committed."""

    @property
    def trouble(self) -> str:
        """Why nothing can be stored; empty while it can. A failure counts for a minute."""
        if not self.leadership.is_leader:
            return "the lease has expired, and the database is unavailable to renew it"
        try:
            self._database.check_file_in_place()
        except StoreError:
            return "the file of the database was moved or deleted while in use: put it back"
        failed = time.monotonic() - self._failed_at < SHOWN_S
        return "the database cannot be written; the daemon's log says why" if failed else ""

    def read_leader(self) -> str:
        """Return the daemon that leads by the database; empty if there is none."""
        with self._database.read() as connection:
            found = lease.current_leader(connection)
        return found.holder if found is not None else ""

    def read(self) -> Sequence[LoggedEvent]:
        """Return all events in order. Raises ValueError for an unknown event type."""
        with self._database.read() as connection:
            rows = connection.execute(select(federation.c.body).order_by(federation.c.number))
            found = [decode(row.body) for row in rows]
            self._newest, self._uncertain = _newest(connection), set()
            return found

    def append(self, events: Iterable[LoggedEvent]) -> None:
        rows: list[dict[str, Any]] = [
            {"job": event.job, "time": event.time, "body": replace_nul(encode(event))} for event in events
        ]
        if rows:
            with self._writing(row["body"] for row in rows) as connection:
                connection.execute(insert(federation), rows)

    def replace_leases(self, leases: Iterable[LicenceLeased]) -> None:
        """Replace all stored licence leases with these."""
        rows = [{"job": "", "time": one.time, "body": replace_nul(encode(one))} for one in leases]
        with self._writing() as connection:
            connection.execute(delete(federation).where(federation.c.job == ""))
            if rows:
                connection.execute(insert(federation), rows)

    def delete_events(self, jobs: Sequence[str]) -> None:
        with self._writing() as connection:
            for first in range(0, len(jobs), 500):
                some = jobs[first : first + 500]
                connection.execute(delete(federation).where(federation.c.job.in_(some)))

    def audit(self, entry: AuditRecord) -> None:
        """Store an action. It survives the end of this process, and seconds later a power failure."""
        with self._database.write(deferred=True) as connection:
            tokens_and_audit.insert_audit_entry(connection, entry, None)

    def audit_entries(self, since: int = 0, limit: int = 1_000) -> Sequence[AuditRecord]:
        """Return the actions at ``since`` or later, newest first."""
        with self._database.read() as connection:
            return tokens_and_audit.audit_entries(connection, since, limit)

    def delete_audit_entries(self, now: int) -> None:
        """Delete the actions that are older than a daemon keeps them by default."""
        with self._database.write(guarded=True) as connection:
            retention.delete_audit_entries(connection, now - RetentionLimits().audit)

    @contextmanager
    def _writing(self, bodies: Iterable[str] = ()) -> Iterator[Connection]:
        uncertain = self._uncertain
        try:
            with self._database.write(guarded=True) as connection:
                # Before this nothing was sent: a long outage of the database leaves nothing uncertain.
                self._uncertain = uncertain | set(bodies)
                if uncertain:
                    rows = connection.execute(select(federation).where(federation.c.number > self._newest))
                    wrong = [row.number for row in rows if row.body in uncertain]
                    connection.execute(delete(federation).where(federation.c.number.in_(wrong)))
                yield connection
                newest = _newest(connection)
        except StoreError:
            self._failed_at = time.monotonic()
            raise
        self._newest, self._uncertain, self._failed_at = newest, set(), float("-inf")

    def close(self) -> None:
        """Give up leadership and close the database."""
        self.leadership.release()
        self._database.close()


def _newest(connection: Connection) -> int:
    return connection.execute(select(func.max(federation.c.number))).scalar() or 0
