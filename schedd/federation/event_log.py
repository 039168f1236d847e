"""A federation's log in its database: what is appended is durable, and only the one that leads appends."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from schedd.federation.events import LoggedEvent, decode, encode
from schedd.federation.licences import LicenceLeased
from schedd.store.codec import replace_nul
from schedd.store.database import Database
from schedd.store.leadership import Leadership
from schedd.store.tables import federation
from schedd.supervision import Supervisor

__all__ = ["FederationLog"]


class FederationLog:
    """Raises StoreError for all that the database does; NotLeader where another daemon leads by now.

    What it raised for is not in the log once anything is appended after it: a database that was lost while it
    committed may have kept it all the same, and nobody acted upon that.
    """

    def __init__(self, url: str, holder: str, lease: float, supervisor: Supervisor | None = None) -> None:
        self.supervisor = supervisor or Supervisor()
        """Of the background work of the federation."""
        self._database = Database.open(url)
        self.leadership = Leadership(self._database, holder, seconds=lease, supervisor=self.supervisor)
        self._newest = 0
        self._uncertain: set[str] = set()
        """Bodies that may be there behind the newest, though appending them failed."""

    def read(self) -> Sequence[LoggedEvent]:
        """All events in order. Raises ValueError for one that this program does not know."""
        with self._database.read() as connection:
            rows = connection.execute(select(federation.c.body).order_by(federation.c.number))
            found = [decode(row.body) for row in rows]
            self._newest, self._uncertain = _newest(connection), set()
            return found

    def append(self, events: Iterable[LoggedEvent]) -> None:
        """Keeps these, all or none of them."""
        rows: list[dict[str, Any]] = [
            {"job": event.job, "time": event.time, "body": replace_nul(encode(event))} for event in events
        ]
        if rows:
            with self._writing(row["body"] for row in rows) as connection:
                connection.execute(insert(federation), rows)

    def replace_leases(self, leases: Iterable[LicenceLeased]) -> None:
        """Keeps these instead of all leases that were kept."""
        rows = [{"job": "", "time": one.time, "body": replace_nul(encode(one))} for one in leases]
        with self._writing() as connection:
            connection.execute(delete(federation).where(federation.c.job == ""))
            if rows:
                connection.execute(insert(federation), rows)

    def delete_events(self, jobs: Sequence[str]) -> None:
        """Drops all that is told of these jobs."""
        with self._writing() as connection:
            for first in range(0, len(jobs), 500):
                some = jobs[first : first + 500]
                connection.execute(delete(federation).where(federation.c.job.in_(some)))

    @contextmanager
    def _writing(self, bodies: Iterable[str] = ()) -> Iterator[Connection]:
        uncertain = self._uncertain
        self._uncertain = uncertain | set(bodies)
        with self._database.write(guarded=True) as connection:
            if uncertain:
                rows = connection.execute(select(federation).where(federation.c.number > self._newest))
                wrong = [row.number for row in rows if row.body in uncertain]
                connection.execute(delete(federation).where(federation.c.number.in_(wrong)))
            yield connection
            newest = _newest(connection)
        self._newest, self._uncertain = newest, set()

    def close(self) -> None:
        """Lets another daemon lead, and lets go of the database."""
        self.leadership.release()
        self._database.close()


def _newest(connection: Connection) -> int:
    return connection.execute(select(func.max(federation.c.number))).scalar() or 0
