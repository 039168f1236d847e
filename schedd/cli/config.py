"""``schedd config``: check the settings, show those in force, explain them all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel

from schedd.api.listening import out_of_date
from schedd.api.parts import parts_of
from schedd.cli.config_init import init
from schedd.cli.installed import ConfigFile, configuration, failing, settings_of
from schedd.service.advice import advice
from schedd.service.effective import effective
from schedd.service.reference import SECTIONS, decisions, described, section
from schedd.service.settings import Settings
from server_adapter import settings as adapter

__all__ = ["ADAPTER_SECTIONS", "app"]

ADAPTER_SECTIONS: dict[str, type[BaseModel]] = {
    "pbs-adapter.toml": adapter.Settings,
    "pbs-adapter.toml [server]": adapter.ServerSettings,
    "pbs-adapter.toml [listen]": adapter.ListenSettings,
    "pbs-adapter.toml [daemon]": adapter.DaemonSettings,
    "pbs-adapter.toml [poll]": adapter.PollSettings,
    "pbs-adapter.toml [run]": adapter.RunSettings,
    "pbs-adapter.toml [tell]": adapter.TellSettings,
    "pbs-adapter.toml [power]": adapter.PowerSettings,
}
"""Every section of the adapter's file."""

app = typer.Typer(help="Make a new site's settings, check them, show those in force, explain them all.")
_Config = Annotated[Path | None, ConfigFile]


app.command()(init)


@app.command()
def check(
    config: _Config = None,
    strict: Annotated[bool, typer.Option("--strict", help="Fail where there is any advice, too.")] = False,
) -> None:
    """Check the settings as a start or a reload would, and say what is allowed but seldom meant.

    Ends with 0 when they can be used, with 2 when they cannot.
    """
    with failing("config"):
        settings = settings_of(config)
        said = [*_checked(settings), *advice(settings)]
    for line in said:
        typer.echo(f"advice: {line}")
    where = configuration(config)
    typer.echo(f"{where if where is not None else 'the environment'}: can be used")
    if strict and said:
        raise typer.Exit(2)


@app.command()
def show(config: _Config = None) -> None:
    """Print the settings in force as TOML, each with where it comes from; secrets are left out."""
    with failing("config"):
        settings = settings_of(config)
        for line in effective(settings, configuration(config)):
            typer.echo(line)


@app.command()
def reference() -> None:
    """Print what each setting means, may be, and is by default, as Markdown: first those to decide, then the
    daemon's, then the adapter's.
    """
    typer.echo(f"## Ten settings that you must decide\n\n{decisions()}\n")
    for name in SECTIONS:
        typer.echo(section(name))
    for name, model in ADAPTER_SECTIONS.items():
        typer.echo(described(name, model))


def _checked(settings: Settings) -> Iterator[str]:
    """Advice about what the settings name. Raises SettingsError when it cannot be used."""
    tls = parts_of(settings).tls
    if tls is not None and (why := out_of_date(tls, settings.server)):
        yield f"server.tls_certificate: no client will trust {settings.server.tls_certificate}: {why}"
