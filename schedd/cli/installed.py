"""The installed daemon's settings and database, for commands that work on them beside it."""

import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import typer

from schedd.service.settings import Settings, SettingsError, load
from schedd.store import Store, StoreError
from schedd.store.connect import url_of
from schedd.store.place import default_url

__all__ = ["USUAL", "ConfigFile", "configuration", "failing", "opened", "settings_of", "who"]

USUAL: Final = Path("/etc/schedd/schedd.toml")
ConfigFile = typer.Option(help=f"File of settings; without it $SCHEDD_CONFIG, else {USUAL} where it exists.")


def configuration(path: Path | None) -> Path | None:
    """The file that is meant."""
    named = os.environ.get("SCHEDD_CONFIG")
    if path is not None or named:
        return path or Path(str(named))
    return USUAL if USUAL.is_file() else None


@contextmanager
def failing(command: str) -> Iterator[None]:
    """Says what went wrong in a line of its own each, and ends with 2 for settings, 1 for the database."""
    try:
        yield
    except (SettingsError, StoreError) as error:
        for line in str(error).splitlines():
            typer.echo(f"schedd {command}: {line}", err=True)
        raise typer.Exit(2 if isinstance(error, SettingsError) else 1) from None


@contextmanager
def opened(settings: Settings) -> Iterator[Store]:
    """The daemon's store. Raises StoreError and SettingsError."""
    if settings.store.url == "memory":
        raise SettingsError('store.url is "memory": this daemon keeps nothing beyond its process')
    url = settings.store.url or default_url()
    parsed = url_of(url)
    file = Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None
    new = file if file is not None and not file.exists() and os.geteuid() == 0 else None
    store = Store.open(url)
    try:
        if new is not None:
            # It is the daemon's, whose directory it stands in, though root made it.
            owner = new.parent.stat()
            for path in new.parent.glob(f"{new.name}*"):
                os.chown(path, owner.st_uid, owner.st_gid)
        yield store
    finally:
        store.close()


def settings_of(config: Path | None) -> Settings:
    """The settings of the installed daemon. Raises SettingsError."""
    return load(configuration(config))


def who() -> str:
    """Who runs the command, for the audit: behind sudo, who called that."""
    name = os.environ.get("SUDO_USER")
    try:
        return name or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
