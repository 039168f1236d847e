"""``schedd config``: check the settings, show those in force, explain them all."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from schedd.api.listening import out_of_date
from schedd.api.parts import parts_of
from schedd.cli.installed import ConfigFile, configuration, failing, settings_of
from schedd.service.advice import advice
from schedd.service.effective import effective
from schedd.service.reference import SECTIONS, section
from schedd.service.settings import Settings

__all__ = ["app"]

app = typer.Typer(help="Check the daemon's settings, show those in force, explain them all.")
_Config = Annotated[Path | None, ConfigFile]


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
    """Print what each setting means, may be, and is by default, as Markdown."""
    for name in SECTIONS:
        typer.echo(section(name))


def _checked(settings: Settings) -> Iterator[str]:
    """Advice about what the settings name. Raises SettingsError when it cannot be used."""
    tls = parts_of(settings).tls
    if tls is not None and (why := out_of_date(tls, settings.server)):
        yield f"server.tls_certificate: no client will trust {settings.server.tls_certificate}: {why}"
