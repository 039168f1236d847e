"""A database: serialised write transactions, and reads that never wait for a writer."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from schedd.store import connections
from schedd.store.errors import (
    DatabaseBusy,
    DatabaseUnavailable,
    has_failed_sync,
    is_read_only,
    translate_error,
)
from schedd.store.tables_version import NEEDED_VERSION, revision


class Database:
    """A database opened by ``open``. Every failure is a StoreError with the database's name and a remedy.

    ``guard`` is called at the beginning of each guarded transaction; an exception from it aborts the
    transaction.
    """

    guard: Callable[[Connection], None] | None = None

    def __init__(self, url: str) -> None:
        self._url = connections.parse_database_url(url)
        self._files: connections.FileIdentities = set()  # of writer and readers
        self._writer = connections.create_writer(self._url, self._files)
        self._readers = connections.create_readers(self._url, self._files)
        self._renewer = (
            self._writer
            if self.path is not None
            else connections.create_writer(self._url, self._files, statement_s=2.0)
        )
        self._beside = (
            self._writer
            if self.path is not None
            else connections.create_writer(self._url, self._files, ping=False)
        )
        self._deferring = self._writer.execution_options(**{connections.DEFERRED: True})
        self._lock = Lock()
        self._log_in_doubt = False
        """Whether a sync of SQLite's log failed: what the kernel dropped is not synced by a later one."""
        self.name = connections.redacted_url(self._url)

    @classmethod
    def open(cls, url: str) -> "Database":
        """Open a database and create the tables if it is empty.

        Raises SchemaOlder or SchemaNewer if the tables belong to another version, DatabaseUnavailable if the
        database cannot be reached.
        """
        database = cls(url)
        try:
            with database.write() as connection:
                if revision(connection) != NEEDED_VERSION:
                    _migrate_empty(connection)
        except BaseException:
            database.close()
            raise
        return database

    @property
    def path(self) -> Path | None:
        """The file of a SQLite database; None for PostgreSQL."""
        named = self._url.database if self._url.get_backend_name() == "sqlite" else None
        return Path(named) if named is not None else None

    @contextmanager
    def write(self, *, guarded: bool = False, deferred: bool = False) -> Iterator[Connection]:
        """Run the block as one transaction, which is durable when the block ends; an exception rolls it back.

        A ``deferred`` transaction survives the end of this process. It survives a power failure only after
        the next normal transaction or ``sync``. PostgreSQL treats it as a normal transaction.
        """
        engine = self._deferring if deferred else self._writer
        with self._lock:
            if self._log_in_doubt:
                self._move_log()
            with self._begin(engine) as connection:
                if guarded and self.guard is not None:
                    self.guard(connection)
                yield connection

    @contextmanager
    def write_beside(self) -> Iterator[Connection]:
        """Run the block as a guarded transaction. On PostgreSQL it has a connection of its own, so it waits
        for no other transaction of this process; after the server's restart the first one fails.
        """
        if self._beside is self._writer:
            with self.write(guarded=True) as connection:
                yield connection
        else:
            with self._begin(self._beside) as connection:
                if self.guard is not None:
                    self.guard(connection)
                yield connection

    def sync(self) -> None:
        """Write deferred transactions to disk. Raises StoreError."""
        if self.path is None:
            return
        if self._log_in_doubt:
            with self._lock:
                self._move_log()
            return
        try:
            # No process locks the WAL file, so closing a second descriptor of it releases no lock.
            log = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # a checkpoint has moved it into the database, and synced that
        except OSError as error:
            raise DatabaseUnavailable(f"{self.name} cannot be synced: {error.strerror}") from error
        try:
            os.fdatasync(log)
        except OSError as error:
            self._log_in_doubt = True
            raise DatabaseUnavailable(f"{self.name} cannot be synced: {error.strerror}") from error
        finally:
            os.close(log)

    def _move_log(self) -> None:
        """Move SQLite's log, which is still readable, into the database, which is then synced."""
        with self._begin(self._writer) as connection:
            connection.exec_driver_sql("COMMIT")  # a log is moved outside of transactions
            busy = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").scalar_one()
        if busy:
            raise DatabaseBusy(f"{self.name} cannot be synced: a reader holds its log")
        self._log_in_doubt = False

    @contextmanager
    def lease_transaction(self) -> Iterator[Connection]:
        """Run the block as a transaction on the lease; on PostgreSQL it waits for no other."""
        if self._renewer is self._writer:
            with self.write() as connection:
                yield connection
        else:
            with self._begin(self._renewer) as connection:
                yield connection

    @contextmanager
    def _begin(self, engine: Engine) -> Iterator[Connection]:
        try:
            with engine.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            self._log_in_doubt = self._log_in_doubt or has_failed_sync(error)
            # A connection that failed may be half dead; the next transaction gets a new one.
            with suppress(SQLAlchemyError):
                engine.dispose()
                if is_read_only(error):
                    # All connections of a process share SQLite's index of the log. If the first one opened it
                    # on a read-only disk, no write succeeds until all are closed.
                    self._readers.dispose()
            raise translate_error(error, self.name) from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Run the block on a consistent view of the committed data."""
        try:
            with self._readers.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise translate_error(error, self.name) from error

    def check_file_in_place(self) -> None:
        """Raise DatabaseUnavailable if the file of a SQLite database was moved or deleted while in use."""
        try:
            connections.check_file_in_place(self._url, self._files)
        except sqlite3.Error as error:
            raise translate_error(OperationalError("", None, error), self.name) from error

    def versions(self) -> tuple[str | None, str]:
        """Return the schema version of the database (None without tables) and the one this program needs."""
        with self.read() as connection:
            return revision(connection), NEEDED_VERSION

    def migrate(self, to: str = "head", *, back: bool = False) -> tuple[str | None, str | None]:
        """Migrate the schema up to version ``to``, or ``back`` to it; return the versions before and after.

        ``head`` is the newest version, ``base`` the one without tables. Raises SchemaNewer when this program
        does not know the present version, StoreError when ``to`` is unknown or lies in the other direction.
        """
        # Alembic takes as long to load as all else of the store: only tables that change need it.
        from schedd.store import schema_version  # noqa: PLC0415

        with self.write() as connection:
            before = revision(connection)
            schema_version.migrate_to(connection, to, back=back)
            return before, revision(connection)

    def close(self) -> None:
        self._writer.dispose()
        self._renewer.dispose()
        self._beside.dispose()
        self._readers.dispose()


def read_versions(url: str) -> tuple[str | None, str]:
    """Return ``Database.versions`` of a database, which is opened and closed. Raises StoreError."""
    database = Database(url)
    try:
        return database.versions()
    finally:
        database.close()


def _migrate_empty(connection: Connection) -> None:
    """Make the tables of an empty database. Raises SchemaOlder and SchemaNewer for other tables."""
    # As above: most starts find tables of the version that they need.
    from schedd.store import schema_version  # noqa: PLC0415

    if revision(connection) is None:
        schema_version.upgrade(connection)
    schema_version.check(connection)
