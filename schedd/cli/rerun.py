"""``schedd rerun``: run an incident again and print the decisions, one JSON object per line."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from schedd.engine import CheckpointError
from schedd.engine.incident import IncidentError, read, rerun


def command(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="the incident's file")],
) -> None:
    """Run the batches of an incident again, from its checkpoint, and print every decision.

    Exit code 1: the file is no incident, or it does not lead to as many decisions as were made.
    """
    try:
        with file.open(encoding="utf-8") as lines:
            incident = read(lines)
        if incident.lost:
            raise IncidentError(f"its {incident.lost} oldest batches are lost: it cannot be run again")
        for batch, decisions in zip(
            incident.batches, rerun(incident.checkpoint, incident.batches), strict=True
        ):
            for decision in decisions:
                print(json.dumps({"now": batch.now, **asdict(decision)}))
    except (IncidentError, CheckpointError, UnicodeDecodeError) as error:
        typer.echo(f"{file}: {error}", err=True)
        raise typer.Exit(1) from None
