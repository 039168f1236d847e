"""Database connections on SQLite or PostgreSQL: one writer, several read-only connections.

SQLite runs in WAL mode with ``synchronous=FULL``: every commit is on disk when it returns. NORMAL would
survive a killed process but not a power failure, and an event may be acknowledged only when it cannot be
lost. A commit carries a whole batch, which shares the cost of the sync. A deferred transaction commits with
NORMAL; the next FULL commit or ``Database.sync`` writes it to disk, because all are in the same WAL.
"""

import os
import sqlite3
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, ExceptionContext, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError
from sqlalchemy.pool import QueuePool

from schedd.store.errors import DatabaseFileChanged, StoreError

DEFERRED: Final = "schedd_deferred"
"""Execution option of a transaction that need not be on disk when it is committed."""

SILENT_CLIENT_MS = 3_000
"""PostgreSQL ends a transaction after this silence of its client, so that a lost host holds no locks."""

_BUSY_MS = 5_000
_WAL_PAGES = 4_000  # WAL size at which SQLite checkpoints it into the database file: pages of 4 KiB, 16 MB
_DEAD_HOST: Final = {
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 4_000,
}
"""Options that detect within seconds that PostgreSQL's host does not respond."""


def parse_database_url(text: str) -> URL:
    """Return the URL for ``text``: ``sqlite:///path``, ``postgresql://…`` (psycopg), or the path of a file.

    Raises StoreError for any other text, and where the driver of PostgreSQL is not installed.
    """
    if "://" not in text:
        text = f"sqlite:///{text}"
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise StoreError(f"not the URL of a database: {error}") from None
    except ValueError:
        raise StoreError("not the URL of a database: its port is no number") from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        if find_spec("psycopg") is None:
            raise StoreError("a database in PostgreSQL needs psycopg: pip install 'schedd[postgresql]'")
        return url.set(drivername="postgresql+psycopg")
    if url.drivername == "sqlite" and url.database and ":memory:" not in url.database:
        return url
    raise StoreError(
        f"the database {redacted_url(url)} is not supported: give sqlite:///PATH or postgresql://USER@HOST/NAME"
    )


def redacted_url(url: URL) -> str:
    """Return the URL as text with its passwords replaced by ``***``."""
    url = url.set(drivername=url.get_backend_name())
    hidden = {name: "***" for name in url.query if "password" in name.lower()}
    return url.update_query_dict(hidden).render_as_string(hide_password=True).replace("%2A%2A%2A", "***")


FileIdentities = set[tuple[int, int] | None]
"""Device and inode of the file of a SQLite database since the first connection to it; empty before. Writer
and readers of one database share them: neither makes a file again that was moved away."""


def create_writer(
    url: URL, files: FileIdentities | None = None, *, statement_s: float = 60.0, ping: bool = True
) -> Engine:
    """Create an engine with one writing connection; PostgreSQL: ``statement_s`` per statement, and ``ping``:
    whether each transaction begins with a check of the connection.
    """
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, files, "BEGIN IMMEDIATE", pool_size=1, max_overflow=0)
    limits = {
        "statement_timeout": int(statement_s * 1000),
        "idle_in_transaction_session_timeout": SILENT_CLIENT_MS,
    }
    options = " ".join(f"-c {name}={value}" for name, value in limits.items())
    args = {**_DEAD_HOST, "connect_timeout": 2, "options": options}
    return create_engine(
        url,
        pool_size=1,
        max_overflow=0,
        pool_pre_ping=ping,
        connect_args={**args, "application_name": "schedd"},
    )


def create_readers(url: URL, files: FileIdentities | None = None) -> Engine:
    """Create an engine with read-only connections, which never wait for locks."""
    if url.get_backend_name() == "sqlite":
        return _sqlite(url, files, "BEGIN", pool_size=2, max_overflow=6)
    engine = create_engine(
        url,
        pool_size=2,
        max_overflow=6,
        pool_pre_ping=True,
        connect_args={**_DEAD_HOST, "connect_timeout": 5, "application_name": "schedd reader"},
    )
    return engine.execution_options(postgresql_readonly=True, isolation_level="REPEATABLE READ")


def _sqlite(url: URL, shared_files: FileIdentities | None, begin: str, **pool: int) -> Engine:
    files = shared_files if shared_files is not None else set()
    engine = create_engine(
        url,
        poolclass=QueuePool,
        connect_args={"timeout": _BUSY_MS / 1000, "check_same_thread": False},
        **pool,
    )
    read_only = begin == "BEGIN"

    @event.listens_for(engine, "do_connect")
    def _make(*_: Any) -> None:
        # A file that was moved away is not made again, empty.
        check_file_in_place(url, files)
        # SQLite creates files by the umask; its -wal and -shm files get the mode of this one. If the file
        # exists or cannot be created, SQLite reports the error itself.
        with suppress(OSError):
            os.close(os.open(str(url.database), os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    @event.listens_for(engine, "connect")
    def _connect(connection: sqlite3.Connection, _record: Any) -> None:
        files.add(_file_identity(url))
        # The driver's own notion of transactions leaves DDL outside; ours begin and end where we say.
        connection.isolation_level = None
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            "foreign_keys=ON",
            f"wal_autocheckpoint={_WAL_PAGES}",
            f"query_only={'ON' if read_only else 'OFF'}",
        ):
            try:
                connection.execute(f"PRAGMA {pragma}").close()
            except UnicodeDecodeError as error:
                raise _not_text(error) from None

    @event.listens_for(engine, "handle_error")
    def _failed(context: ExceptionContext) -> None:
        if isinstance(context.original_exception, UnicodeDecodeError):
            raise DatabaseError(context.statement, None, _not_text(context.original_exception)) from None

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if not read_only:
            # SQLite goes on with a deleted file, whose contents are gone when the daemon ends.
            if _file_identity(url) not in files:
                raise OperationalError(begin, None, _moved_away(url))
            deferred = connection.get_execution_options().get(DEFERRED, False)
            connection.exec_driver_sql(f"PRAGMA synchronous={'NORMAL' if deferred else 'FULL'}")
        connection.exec_driver_sql(begin)

    return engine


FILE_MOVED: Final = "its file was moved or deleted while in use: put it back (schedd continues by itself)"


def check_file_in_place(url: URL, files: FileIdentities) -> None:
    """Raise sqlite3.OperationalError if the SQLite file of open connections was moved or deleted."""
    if url.get_backend_name() == "sqlite" and files and _file_identity(url) not in files:
        raise _moved_away(url)


def _file_identity(url: URL) -> tuple[int, int] | None:
    """Return device and inode of the database's file; None if it is missing."""
    try:
        found = Path(str(url.database)).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _moved_away(url: URL) -> sqlite3.OperationalError:
    """Return the error for a file that is missing, or that is another one, as after a restore or a copy."""
    words = FILE_MOVED
    if _file_identity(url) is not None:
        words = "its file was replaced while in use: restart schedd to continue with this one"
    error = DatabaseFileChanged(words)
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    return error


def _not_text(error: UnicodeDecodeError) -> sqlite3.DatabaseError:
    """Return a damage report for bytes in SQLite's message that the driver cannot decode."""
    said = error.object.decode("ascii", "backslashreplace")
    return sqlite3.DatabaseError(f"the file is damaged: {said}")
