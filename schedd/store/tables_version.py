"""Versions of the tables: needed by this program, and present in a database."""

from typing import Final

from sqlalchemy import Connection, inspect, text

NEEDED_VERSION: Final = "0001"
"""Version of the newest migration. It is repeated here so that a start does not need to load all
migrations.
"""

_TABLE: Final = "alembic_version"
_DEVELOPMENT_TABLE: Final = "told"
"""A table that only databases from before the first release have. Their versions 0001 to 0016 have another
meaning.
"""
DEVELOPMENT: Final = " from before the first release"  # ends the version of such a database


def revision(connection: Connection) -> str | None:
    """Return the version of the present tables, None where there are none."""
    found_tables = inspect(connection)
    if not found_tables.has_table(_TABLE):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {_TABLE}")).scalar_one_or_none()
    if found is not None and found_tables.has_table(_DEVELOPMENT_TABLE):
        return found + DEVELOPMENT
    return found
