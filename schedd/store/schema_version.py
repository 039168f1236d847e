"""Version of the database schema, and migrations to a newer or older one."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select

from schedd.store import downgrade_checks
from schedd.store.errors import SchemaNewer, SchemaOlder, StoreError
from schedd.store.tables_version import DEVELOPMENT, revision

_LOCK: Final = 0x5C4EDD  # key of an advisory lock that only this program uses
_IDLE_S: Final = 60
"""Timeout between two statements: reading and compiling the migrations takes seconds on a busy machine."""


def scripts() -> Path:
    """Return the folder of the migrations: in the installed package, or ``sql/`` of a checkout.

    Raises FileNotFoundError if neither exists.
    """
    here = Path(__file__).resolve().parent
    for place in (here / "migrations", here.parent.parent / "sql"):
        if (place / "env.py").is_file():
            return place
    raise FileNotFoundError(
        f"the migrations of the database are missing (looked beside {here}); reinstall schedd"
    )


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    # The option's values are interpolated.
    config.set_main_option("script_location", str(scripts()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def head() -> str:
    """Return the schema version to which all migrations lead."""
    found = ScriptDirectory.from_config(_config()).get_current_head()
    assert found is not None
    return found


def upgrade(connection: Connection, to: str = "head") -> None:
    """Migrate up to version ``to``, within the connection's transaction."""
    _serialise_migrations(connection)
    command.upgrade(_config(connection), to)


def downgrade(connection: Connection, to: str) -> None:
    """Migrate back to version ``to`` (``base``: no tables), within the connection's transaction."""
    _serialise_migrations(connection)
    command.downgrade(_config(connection), to)


def _serialise_migrations(connection: Connection) -> None:
    """Lock out concurrent migrations: two daemons may start with an empty database."""
    if connection.dialect.name == "postgresql":
        limit = ("idle_in_transaction_session_timeout", f"{_IDLE_S}s", True)
        connection.execute(select(func.set_config(*limit)))
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def migrate_to(connection: Connection, to: str = "head", *, back: bool = False) -> None:
    """Migrate the schema up to version ``to``, or ``back`` to it; ``base`` is the version without tables.

    Raises SchemaNewer when this program does not know the present version; StoreError when ``to`` is unknown
    or lies in the other direction, or when programs of that version could not read the data.
    """
    present = revision(connection)
    directory = ScriptDirectory.from_config(_config())
    newest_first = [script.revision for script in directory.walk_revisions()]
    known = ["base", *reversed(newest_first)]
    if present is not None and present not in known:
        check(connection)
    wanted = known[-1] if to == "head" else to
    if wanted not in known:
        raise StoreError(f"there is no version {to} of the tables; known are {', '.join(known)}")
    here = known.index(present or "base")
    there = known.index(wanted)
    if back and there > here:
        raise StoreError(f"version {wanted} is newer than {present or 'none'}: `schedd migrate upgrade`")
    if not back and there < here:
        raise StoreError(
            f"version {wanted} is older than {present}: `schedd migrate downgrade --to {wanted}`"
        )
    if back:
        _downgrade_checked(connection, wanted)
    else:
        upgrade(connection, wanted)


def _downgrade_checked(connection: Connection, wanted: str) -> None:
    """Downgrade unless programs of that version could not continue with the data.

    Raises StoreError; then the transaction must not be committed.
    """
    found = downgrade_checks.obstacles(connection, wanted)
    rows = downgrade_checks.rows_by_table(connection) if wanted != "base" and not found else {}
    if not found:
        downgrade(connection, wanted)
        found = [f"it would drop {one}" for one in downgrade_checks.dropped_rows(connection, rows)]
    if found:
        raise StoreError(
            f"the database cannot go back to version {wanted}: {'; '.join(found)}. Nothing was changed. "
            "Keep this version, or go back to the copy of the database from before the upgrade (what "
            "happened since is not in it); `--to base` removes all tables"
        )


def check(connection: Connection) -> None:
    """Raise SchemaOlder or SchemaNewer unless the schema matches this program."""
    present, needed = revision(connection), head()
    if present == needed:
        return
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if present is None or present in known:
        what = "there are no tables yet" if present is None else f"the tables are of version {present}"
        raise SchemaOlder(f"{what}, this program needs {needed}; run `schedd migrate`")
    if present.endswith(DEVELOPMENT):
        raise SchemaOlder(
            f"the tables are of version {present}, which no program upgrades. Keep a copy, and use an empty "
            "database: the first snapshot fills the plan. Promises, bookings, holds, accounts, tokens and "
            "history are not taken over"
        )
    raise SchemaNewer(
        f"the tables are of version {present}, which this program does not know (it needs {needed}); "
        f"install the newer schedd, or take its tables back with it: `schedd migrate downgrade --to {needed}`"
    )
