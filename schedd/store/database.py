"""A database: transactions that write one after another, and readings that wait for nobody."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from schedd.store import connections, schema_version
from schedd.store.errors import DatabaseUnavailable, translate_error

__all__ = ["Database"]


class Database:
    """Opened by ``open``; every failure is a StoreError that names the database and says what to do.

    ``guard`` is called at the beginning of each guarded transaction; what it raises ends that.
    """

    guard: Callable[[Connection], None] | None = None

    def __init__(self, url: str) -> None:
        self._url = connections.parse_database_url(url)
        self._writer = connections.create_writer(self._url)
        self._readers = connections.create_readers(self._url)
        self._renewer = (
            self._writer if self.path is not None else connections.create_writer(self._url, statement_s=2.0)
        )
        self._deferring = self._writer.execution_options(**{connections.DEFERRED: True})
        self._lock = Lock()
        self.name = connections.redacted_url(self._url)

    @classmethod
    def open(cls, url: str) -> "Database":
        """A database whose tables are this program's; an empty one gets them.

        Raises SchemaOlder and SchemaNewer for other tables, DatabaseUnavailable when there is none.
        """
        database = cls(url)
        try:
            with database.write() as connection:
                if schema_version.revision(connection) is None:
                    schema_version.upgrade(connection)
                schema_version.check(connection)
        except BaseException:
            database.close()
            raise
        return database

    @property
    def path(self) -> Path | None:
        """The file of a SQLite database."""
        named = self._url.database if self._url.get_backend_name() == "sqlite" else None
        return Path(named) if named is not None else None

    @contextmanager
    def write(self, *, guarded: bool = False, deferred: bool = False) -> Iterator[Connection]:
        """One transaction: kept as a whole, durably, when the block ends, or not at all.

        One that is ``deferred`` survives this process, and is durable after the next that is not, or after
        ``sync``. Only SQLite gains by that; elsewhere it is durable at once.
        """
        engine = self._deferring if deferred else self._writer
        with self._lock, self._begin(engine) as connection:
            if guarded and self.guard is not None:
                self.guard(connection)
            yield connection

    def sync(self) -> None:
        """Put on the disk what deferred transactions have written. Raises StoreError."""
        if self.path is None:
            return
        try:
            # Nobody locks the WAL itself, so that closing another descriptor of it lets go of nothing.
            log = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # a checkpoint has moved it into the database, and synced that
        except OSError as error:
            raise DatabaseUnavailable(f"{self.name} cannot be synced: {error.strerror}") from error
        try:
            os.fdatasync(log)
        except OSError as error:
            raise DatabaseUnavailable(f"{self.name} cannot be synced: {error.strerror}") from error
        finally:
            os.close(log)

    @contextmanager
    def lease_transaction(self) -> Iterator[Connection]:
        """A transaction for the lease: it waits for no other of this program, where the database allows."""
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
            # A connection that failed may be half dead; the next transaction gets a new one.
            with suppress(SQLAlchemyError):
                engine.dispose()
            raise translate_error(error, self.name) from error

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view of what is durable."""
        try:
            with self._readers.begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise translate_error(error, self.name) from error

    def versions(self) -> tuple[str | None, str]:
        """The version of the tables, None where there are none, and the one that this program needs."""
        with self.read() as connection:
            return schema_version.revision(connection), schema_version.head()

    def migrate(self, to: str = "head", *, back: bool = False) -> tuple[str | None, str | None]:
        """Bring the tables up to version ``to``, or ``back`` to it; returns the versions before and after.

        ``head`` is the newest, ``base`` that without tables. Raises SchemaNewer when this program does not
        know the present tables, StoreError when ``to`` is unknown or lies in the other direction.
        """
        with self.write() as connection:
            before = schema_version.revision(connection)
            schema_version.migrate_to(connection, to, back=back)
            return before, schema_version.revision(connection)

    def close(self) -> None:
        """Let go of all connections."""
        self._writer.dispose()
        self._renewer.dispose()
        self._readers.dispose()
