"""``schedd audit``: the audit entries."""

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from schedd.cli.installation import ConfigFile, database_url, exit_on_error, open_store


def command(
    days: Annotated[float, typer.Option(help="show the last N days", min=0)] = 30,
    most: Annotated[int, typer.Option(help="maximum number of entries", min=1, max=100_000)] = 1_000,
    config: Annotated[Path | None, ConfigFile] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="as JSON; times are seconds since the epoch")
    ] = False,
) -> None:
    """Show who paused, resumed, created or revoked tokens, or changed settings, newest first."""
    with exit_on_error("audit"), open_store(database_url(config)) as store:
        entries = store.audit_entries(int(time.time() - days * 86_400), most)
    if as_json:
        typer.echo(json.dumps([asdict(entry) for entry in entries], indent=2))
        return
    lines = [(_format_date(one.time), one.who, one.act, one.cluster or "", one.detail) for one in entries]
    widths = [max(map(len, column)) for column in zip(("",) * 5, *lines, strict=True)]
    for line in lines:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _format_date(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S}"
