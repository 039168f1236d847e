"""``schedd migrate``: bring the database's tables to this program's version, or back to an older one."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from schedd.service.settings import SettingsError, load
from schedd.store import StoreError
from schedd.store.database import Database
from schedd.store.place import default_url

__all__ = ["command"]


class Action(StrEnum):
    """What to do with the tables."""

    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    CURRENT = "current"


def command(
    action: Annotated[Action, typer.Argument(help="What to do with the tables.")] = Action.UPGRADE,
    database: Annotated[
        str, typer.Option(help="URL of the database, or path of a SQLite file; else that of the settings.")
    ] = "",
    config: Annotated[Path | None, typer.Option(help="File of settings.")] = None,
    to: Annotated[
        str, typer.Option(help="Version to go to: the newest when upgrading; `base` removes all tables.")
    ] = "",
) -> None:
    """Bring the database's tables to this program's version, or back to an older one.

    Stop the daemon first, and keep a copy of the database when going back: newer tables are dropped.
    """
    if action is Action.DOWNGRADE and not to:
        raise typer.BadParameter("say to which version, or `base` for none", param_hint="--to")
    try:
        opened = Database(database or _configured(config) or default_url())
        try:
            _migrate(opened, action, to)
        finally:
            opened.close()
    except (StoreError, SettingsError) as error:
        typer.echo(f"schedd migrate: {error}", err=True)
        raise typer.Exit(1) from None


def _configured(config: Path | None) -> str:
    """What the settings name. Without a file the environment is asked alone: nothing else must be right."""
    return load(config).store.url if config is not None else os.environ.get("SCHEDD_STORE__URL", "")


def _migrate(database: Database, action: Action, to: str) -> None:
    if action is Action.CURRENT:
        present, needed = database.versions()
        typer.echo(f"{database.name}: version {present or 'none'}; this program needs {needed}")
        return
    before, after = database.migrate(to or "head", back=action is Action.DOWNGRADE)
    if before == after:
        typer.echo(f"{database.name}: version {after or 'none'} as before")
    else:
        typer.echo(f"{database.name}: from version {before or 'none'} to {after or 'none'}")
