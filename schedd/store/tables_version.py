"""Version of the tables: the one that this program needs, and the one that a database has."""

from typing import Final

from sqlalchemy import Connection, inspect, text

__all__ = ["NEEDED_VERSION", "revision"]

NEEDED_VERSION: Final = "0001"
"""The newest of the migrations. It stands here, so that a start need not load and read all of them."""

_TABLE: Final = "alembic_version"


def revision(connection: Connection) -> str | None:
    """Return the version of the tables as they are, None where there are none."""
    if not inspect(connection).has_table(_TABLE):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {_TABLE}")).scalar_one_or_none()
    return found
