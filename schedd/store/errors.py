"""Errors of the store, with remedies."""

import sqlite3

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionFree


class StoreError(Exception):
    """A transaction failed and was rolled back. If ``retryable``, the same call may succeed later."""

    retryable = False


class DiskFull(StoreError):
    """The disk of the database is full."""

    retryable = True


class DatabaseUnavailable(StoreError):
    """The database cannot be reached, or its files cannot be read or written."""

    retryable = True


class DatabaseBusy(StoreError):
    """Another process holds the database's lock for longer than the timeout."""

    retryable = True


class LeaseExpired(StoreError):
    """The lease of this daemon has expired; it can be renewed unless another daemon has acquired it."""

    retryable = True


class NotLeader(StoreError):
    """Another daemon leads; changes of this daemon since then are void."""


class LogTruncated(NotLeader):
    """The log has lost batches that this daemon wrote; the daemon must restart from the remaining log."""


class BadCheckpoint(StoreError):
    """The checkpoint after ``batch`` cannot be read; an earlier one may be readable."""

    def __init__(self, batch: int, words: str) -> None:
        super().__init__(words)
        self.batch = batch


class StatementRejected(StoreError):
    """The database rejected a statement: a defect of the program or of the database's files."""


class SchemaOlder(StoreError):
    """The schema is older than this program."""


class SchemaNewer(StoreError):
    """The schema is newer than this program."""


class DatabaseFileChanged(sqlite3.OperationalError):
    """The file of a SQLite database is not the one that was opened; the message has the remedy."""


_SQLITE = {
    sqlite3.SQLITE_FULL: DiskFull,
    sqlite3.SQLITE_BUSY: DatabaseBusy,
    sqlite3.SQLITE_LOCKED: DatabaseBusy,
    sqlite3.SQLITE_IOERR: DatabaseUnavailable,
    sqlite3.SQLITE_CANTOPEN: DatabaseUnavailable,
    sqlite3.SQLITE_READONLY: DatabaseUnavailable,
    sqlite3.SQLITE_PERM: DatabaseUnavailable,
    sqlite3.SQLITE_NOMEM: DatabaseUnavailable,
    sqlite3.SQLITE_PROTOCOL: DatabaseBusy,
}
# Classes and codes of SQLSTATE (PostgreSQL, appendix A of its manual).
_SQLSTATE = {
    "53100": DiskFull,
    "53": DatabaseUnavailable,  # insufficient resources
    "08": DatabaseUnavailable,  # connection
    "57": DatabaseUnavailable,  # shutdown, crash, cannot connect now
    "58": DatabaseUnavailable,  # its own I/O errors
    "25P03": DatabaseUnavailable,  # we were silent within a transaction for too long
    "25006": DatabaseUnavailable,  # read-only: a standby
    "28": DatabaseUnavailable,  # not allowed in (pg_hba.conf, password)
    "3D000": DatabaseUnavailable,  # no such database
    "55P03": DatabaseBusy,
    "40": DatabaseBusy,  # serialisation, deadlock
}
_NO_ANSWER = {"OperationalError", "InterfaceError"}
"""Names of driver exceptions (with their subclasses) for a server that did not answer."""
_WHAT_TO_DO = {
    DiskFull: "free space on the disk of the database (schedd continues by itself) or shorten the retention",
    DatabaseUnavailable: "check that the database runs and schedd may use it (schedd continues by itself)",
    DatabaseBusy: "find the other process that writes to this database: only one schedd may",
    StatementRejected: "keep a copy of the database and report this",
}


def translate_error(error: SQLAlchemyError, where: str) -> StoreError:
    """Return the StoreError for an error of SQLAlchemy; ``where`` names the database without its password."""
    kind: type[StoreError] = StatementRejected
    if isinstance(error, DBAPIError):
        kind = _kind(error)
    elif isinstance(error, NoConnectionFree):
        kind = DatabaseUnavailable  # all that there may be wait for an answer
    words = str(error.orig) if isinstance(error, DBAPIError) else str(error)
    first = words.strip().splitlines()[0] if words.strip() else type(error).__name__
    if isinstance(error, DBAPIError) and isinstance(error.orig, DatabaseFileChanged):
        return kind(f"{where}: {first}")
    return kind(f"{where}: {first}; {_WHAT_TO_DO[kind]}")


def has_failed_sync(error: SQLAlchemyError) -> bool:
    """Whether SQLite could not sync a file."""
    code = getattr(error.orig, "sqlite_errorcode", 0) if isinstance(error, DBAPIError) else 0
    return code == sqlite3.SQLITE_IOERR_FSYNC


def is_read_only(error: SQLAlchemyError) -> bool:
    """Whether SQLite may not write, as on a disk that was mounted read-only."""
    code = getattr(error.orig, "sqlite_errorcode", 0) if isinstance(error, DBAPIError) else 0
    return code & 0xFF == sqlite3.SQLITE_READONLY


def _kind(error: DBAPIError) -> type[StoreError]:
    orig = error.orig
    code = getattr(orig, "sqlite_errorcode", None)
    if isinstance(code, int):
        return _SQLITE.get(code & 0xFF, StatementRejected)
    state = getattr(orig, "sqlstate", None)
    if isinstance(state, str):
        return _SQLSTATE.get(state) or _SQLSTATE.get(state[:2], StatementRejected)
    if error.connection_invalidated or not _NO_ANSWER.isdisjoint(
        kind.__name__ for kind in type(orig).__mro__
    ):
        return DatabaseUnavailable  # psycopg has no SQLSTATE where no server answered
    return StatementRejected
