"""The installed daemon's settings and database, for commands that use them directly.

The libraries of both are imported when they are used: the help of a command needs none of them.
"""

import argparse
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from schedd.cli.arguments import fail

if TYPE_CHECKING:
    from schedd.service.settings.file import Settings
    from schedd.store import Store

DEFAULT_CONFIG: Final = Path("/etc/schedd/schedd.toml")


def add_config_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--config``."""
    about = f"settings file (default: $SCHEDD_CONFIG, else {DEFAULT_CONFIG} if it exists)"
    parser.add_argument("--config", type=Path, help=about)


def add_database_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--database``."""
    about = "URL of the database, or path of a SQLite file (default: from the settings)"
    parser.add_argument("--database", default="", help=about)


def find_config_file(path: Path | None) -> Path | None:
    named = os.environ.get("SCHEDD_CONFIG")
    if path is not None or named:
        return path or Path(str(named))
    try:
        return DEFAULT_CONFIG if DEFAULT_CONFIG.is_file() else None
    except PermissionError:  # who reads it says so
        return DEFAULT_CONFIG


@contextmanager
def exit_on_error(command: str) -> Iterator[None]:
    """Says what went wrong in a line of its own each, and ends with 2 for settings, 1 for the database."""
    from schedd.store import StoreError  # noqa: PLC0415
    from schedd.wire.toml_files import SettingsError  # noqa: PLC0415

    try:
        yield
    except (SettingsError, StoreError) as error:
        fail(command, str(error), 2 if isinstance(error, SettingsError) else 1)


@contextmanager
def open_store(url: str, *, new: bool = False, otherwise: str = "") -> Iterator["Store"]:
    """The store at ``url``; a missing one is created if it may be ``new``. ``otherwise``: what shows the same
    without the database. Raises StoreError.
    """
    from schedd.store import Store, StoreError  # noqa: PLC0415

    with preserving_owner(url) as there:
        if not there and not new:
            raise StoreError(
                f"{url}: no such file; this reads the daemon's database: run it on the daemon's host, where "
                f"store.url of the settings (--config) names it{f'; {otherwise}' if otherwise else ''}"
            )
        store = Store.open(url)
        try:
            yield store
        finally:
            store.close()


@contextmanager
def preserving_owner(url: str) -> Iterator[bool]:
    """Whether the database exists, if it is a file. Files created by root get the owner of the file or its
    directory afterwards: the daemon. Raises StoreError.
    """
    from schedd.store import StoreError  # noqa: PLC0415
    from schedd.store.connections import parse_database_url  # noqa: PLC0415

    parsed = parse_database_url(url)
    if parsed.get_backend_name() != "sqlite":
        yield True
        return
    file = Path(parsed.database or "")
    try:
        there = file.exists()
    except OSError as error:
        fault = (error.strerror or str(error)).lower()
        raise StoreError(f"{file}: {fault}; run this as root, or as its owner") from None
    try:
        yield there
    finally:
        if os.geteuid() == 0 and file.exists():
            owner = (file if there else file.parent).stat()
            for path in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm", ".lock"))):
                with suppress(FileNotFoundError):
                    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def database_url(config: Path | None, named: str = "") -> str:
    """The URL of the database: ``named`` if given, else that in the settings, where only ``[store]``
    must be valid. Raises SettingsError and StoreError.
    """
    if named:
        return named
    from schedd.service.settings.file import read_store_settings  # noqa: PLC0415
    from schedd.store.default_location import default_url  # noqa: PLC0415
    from schedd.wire.toml_files import SettingsError  # noqa: PLC0415

    url = read_store_settings(find_config_file(config)).url
    if url == "memory":
        raise SettingsError('store.url is "memory": this daemon keeps nothing beyond its process')
    return url or default_url()


def load_daemon_settings(config: Path | None) -> "Settings":
    """The settings of the installed daemon. Raises SettingsError."""
    from schedd.service.settings.file import read_settings_file  # noqa: PLC0415

    return read_settings_file(find_config_file(config))


def invoking_user() -> str:
    """The user who runs the command, for the audit; with sudo, the original user."""
    name = os.environ.get("SUDO_USER")
    try:
        return name or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
