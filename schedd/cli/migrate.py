"""``schedd migrate``: bring the database's tables to this program's version, or back to an older one."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from schedd.cli.installation import (
    ConfigFile,
    DatabaseUrl,
    database_url,
    exit_on_error,
    invoking_user,
    preserving_owner,
)
from schedd.store import AuditRecord, Leadership, Store, StoreError
from schedd.store.database import Database


class Action(StrEnum):
    """What to do with the tables."""

    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    CURRENT = "current"


def command(
    action: Annotated[Action, typer.Argument(help="what to do with the tables")] = Action.UPGRADE,
    database: Annotated[str, DatabaseUrl] = "",
    config: Annotated[Path | None, ConfigFile] = None,
    to: Annotated[
        str, typer.Option(help="version to go to: the newest when upgrading; `base` removes all tables")
    ] = "",
) -> None:
    """Upgrade the database's tables to this program's version, or downgrade them.

    Stop the daemon first, and keep a copy of the database. A downgrade is refused if the older version could
    not continue from the present data.
    """
    if action is Action.DOWNGRADE and not to:
        raise typer.BadParameter("give the version, or `base` for an empty database", param_hint="--to")
    with exit_on_error("migrate"):
        url = database_url(config, database)
        with preserving_owner(url):
            opened = Database(url)
            try:
                _migrate(opened, action, to)
            finally:
                opened.close()


def _migrate(database: Database, action: Action, to: str) -> None:
    present, needed = database.versions()
    if action is Action.CURRENT:
        typer.echo(f"{database.name}: version {present or 'none'}; this program needs {needed}")
        return
    with _exclusive_lease(database, present):
        before, after = database.migrate(to or "head", back=action is Action.DOWNGRADE)
    if before == after:
        typer.echo(f"{database.name}: version {after or 'none'} as before")
    else:
        change = f"from version {before or 'none'} to {after or 'none'}"
        typer.echo(f"{database.name}: {change}")
        if after == needed:
            Store(database).audit(AuditRecord(int(time.time()), invoking_user(), "migrate", change))


@contextmanager
def _exclusive_lease(database: Database, present: str | None) -> Iterator[None]:
    """While no daemon leads, nor begins to. Raises StoreError when one does."""
    lead = Leadership(database, "schedd migrate")
    if present is not None and not lead.try_acquire():
        raise StoreError(f"{database.name}: a daemon uses it; stop that (its lease may last for seconds)")
    try:
        yield
    finally:
        lead.release()
