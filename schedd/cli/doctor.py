"""``schedd doctor``: look at a site from the settings to the server, and say what to do."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from schedd.cli.diagnosis import ADAPTER_SETTINGS, CheckResult, check_adapter_files, check_daemon, check_host
from schedd.cli.installation import ConfigFile

_CODES: Final = {"good": 0, "warn": 1, "bad": 2}


def command(
    config: Annotated[Path | None, ConfigFile] = None,
    adapter: Annotated[
        Path, typer.Option(help="the adapter's settings file, if it runs on this host")
    ] = ADAPTER_SETTINGS,
    url: Annotated[
        str, typer.Option(help="address of the daemon (default: from the client's settings)")
    ] = "",
    cluster: Annotated[str, typer.Option(help="check only this cluster")] = "",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="show only problems")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="the findings as one JSON list")] = False,
) -> None:
    """Look at a site from the settings to the server, and say what to do.

    Looked at are the settings, rights, the port, the database and its disk, the compiled kernels, the
    adapter's settings, and what the daemon says: versions, clocks, the adapter's age, whether jobs are
    started, the server's attributes that matter, open alerts. Nothing is changed. The exit status is made for
    monitoring: 0 all is good, 1 something should be looked at, 2 something does not work.
    """
    found = [*check_host(config), *check_adapter_files(adapter), *check_daemon(url, cluster)]
    shown = [one for one in found if one.state != "good"] if quiet else found
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in shown], ensure_ascii=False))
    else:
        for one in shown:
            typer.echo(_format_result(one))
        counts = ", ".join(f"{sum(one.state == state for one in found)} {state}" for state in _CODES)
        typer.echo(counts)
    code = max((_CODES[one.state] for one in found), default=0)
    if code:
        raise typer.Exit(code)


def _format_result(one: CheckResult) -> str:
    text = f"{one.state:4}  {one.part:18}  {one.message}"
    return f"{text}\n{'':26}-> {one.remedy}" if one.remedy else text
