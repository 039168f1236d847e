"""Tables of empty databases: made by migrations once for each process, then by the same statements.

A migration of an empty database takes ten times as long as its statements, and a run of the tests opens more
than a thousand empty databases. Another folder of migrations is another entry.
"""

import sys
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event

__all__ = ["forget_table_statements", "reuse_table_statements"]

_statements: dict[tuple[str, Path], list[str]] = {}
"""Statements that create the tables, by dialect and folder of migrations."""


def reuse_table_statements() -> None:
    """Let ``Database.open`` create tables by the statements of the first creation."""
    database = sys.modules.get("schedd.store.database")
    if database is None or database._migrate_empty.__module__ == __name__:
        return
    from schedd.store import schema_version, tables_version  # noqa: PLC0415  (the tests of light imports load no store)

    migrate_empty = database._migrate_empty

    def create_tables(connection: Connection) -> None:
        place = connection.dialect.name, schema_version.scripts()
        if tables_version.revision(connection) is not None:
            migrate_empty(connection)
        elif place in _statements:
            schema_version._serialise_migrations(connection)
            _execute(connection, _statements[place])
        else:
            _statements[place] = _record(connection, migrate_empty)

    database._migrate_empty = create_tables  # type: ignore[attr-defined]


def forget_table_statements() -> None:
    """Let this process create the next tables by migrations."""
    _statements.clear()


def _record(connection: Connection, migrate_empty: Any) -> list[str]:
    """Migrate an empty database; return the statements that change it."""
    found: list[str] = []

    def note(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if not statement.lstrip().upper().startswith(("SELECT", "PRAGMA")):
            assert not parameters, statement
            found.append(statement)

    event.listen(connection, "before_cursor_execute", note)
    try:
        migrate_empty(connection)
    finally:
        event.remove(connection, "before_cursor_execute", note)
    return found


def _execute(connection: Connection, statements: list[str]) -> None:
    if connection.dialect.name == "postgresql":
        statements = ["; ".join(statements)]  # one round trip
    for one in statements:
        connection.exec_driver_sql(one)
