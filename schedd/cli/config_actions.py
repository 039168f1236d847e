"""Actions of ``schedd config``: check the settings, show those in force, explain them all."""

import argparse
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from schedd.api.listening_sockets import certificate_fault
from schedd.api.settings_resources import load_resources
from schedd.cli.installation import exit_on_error, find_config_file, load_daemon_settings, preserving_owner
from schedd.service.settings.advice import settings_advice
from schedd.service.settings.effective import effective_settings
from schedd.service.settings.file import Settings
from schedd.service.settings.reference import by_feature, needed
from schedd.store import StoreError
from schedd.store.connections import parse_database_url, redacted_url
from schedd.store.database import read_versions
from server_adapter import settings as adapter

ADAPTER_SECTIONS: dict[str, type[BaseModel]] = {
    "pbs-adapter.toml": adapter.AdapterSettings,
    "pbs-adapter.toml [server]": adapter.PbsServerSettings,
    "pbs-adapter.toml [listen]": adapter.ListenSettings,
    "pbs-adapter.toml [daemon]": adapter.DaemonSettings,
    "pbs-adapter.toml [poll]": adapter.PollSettings,
    "pbs-adapter.toml [run]": adapter.RunSettings,
    "pbs-adapter.toml [tell]": adapter.TellSettings,
    "pbs-adapter.toml [power]": adapter.PowerCommandSettings,
    "pbs-adapter.toml [drain]": adapter.DrainSettings,
}
"""Every section of the adapter's file."""


def check(args: argparse.Namespace) -> int:
    """Check the settings; 2 for invalid ones, and with ``strict`` for advice."""
    with exit_on_error("config"):
        settings = load_daemon_settings(args.config)
        said = [*_check_resources(settings), *settings_advice(settings)]
        if args.database:
            _check_database(settings.store.url)
    for line in said:
        print(f"advice: {line}")
    where = find_config_file(args.config)
    print(f"{where if where is not None else 'the environment'}: can be used")
    return 2 if args.strict and said else 0


def show(args: argparse.Namespace) -> int:
    """Print the settings in force."""
    with exit_on_error("config"):
        settings = load_daemon_settings(args.config)
        for line in effective_settings(settings, find_config_file(args.config)):
            print(line)
    return 0


def reference(_: argparse.Namespace) -> int:
    """Print the reference of all settings."""
    print(f"## The 25 settings you need\n\n{needed(ADAPTER_SECTIONS)}\n")
    print(by_feature(ADAPTER_SECTIONS))
    return 0


def _check_database(url: str | None) -> None:
    """Raises StoreError when the daemon could not start with it. A file that is not there is not made."""
    if not url or url == "memory":
        return  # the default one belongs to the daemon's user, which need not be the caller
    parsed = parse_database_url(url)
    with preserving_owner(url) as there:
        if not there:
            folder = Path(parsed.database or "").absolute().parent
            if not folder.is_dir():
                raise StoreError(f"store.url: {folder}: no such directory; make it, for the daemon's user")
            return
        try:
            present, needed = read_versions(url)
        except StoreError as error:
            raise StoreError(f"store.url: {error}") from None
    if present is not None and present != needed:
        raise StoreError(
            f"store.url: the tables of {redacted_url(parsed)} are of version {present}, this program needs "
            f"{needed}; stop the daemon, make a backup, `schedd migrate`"
        )


def _check_resources(settings: Settings) -> Iterator[str]:
    """Advice about what the settings name. Raises SettingsError when it cannot be used."""
    tls = load_resources(settings).tls
    if tls is not None and (why := certificate_fault(tls, settings.server)):
        yield f"server.tls_certificate: no client will trust {settings.server.tls_certificate}: {why}"
