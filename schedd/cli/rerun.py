"""``schedd rerun``: run an incident again and print the decisions, one JSON object per line."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from schedd.cli.arguments import OneLineErrorParser, fail
from schedd.engine import CheckpointError, IncidentError, read_incident, rerun_incident


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd rerun",
        description="Run the batches of an incident again, from its checkpoint, and print every decision.",
        epilog="Exit code 1: the file is no incident, or it does not lead to as many decisions as were made.",
        allow_abbrev=False,
    )
    parser.add_argument("file", metavar="FILE", type=Path, help="the incident's file")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the decisions; 0, 1 if the file is no incident, 2 if it cannot be read."""
    file = make_parser().parse_args(argv).file
    try:
        with file.open(encoding="utf-8") as lines:
            incident = read_incident(lines)
        if incident.lost:
            raise IncidentError(f"its {incident.lost} oldest batches are lost: it cannot be run again")
        for batch, decisions in zip(
            incident.batches, rerun_incident(incident.checkpoint, incident.batches), strict=True
        ):
            for decision in decisions:
                print(json.dumps({"now": batch.now, **asdict(decision)}))
    except BrokenPipeError:
        raise  # of the standard output, not of the file
    except OSError as error:
        fail("rerun", f"{file}: {error.strerror}")
    except (IncidentError, CheckpointError, UnicodeDecodeError) as error:
        fail("rerun", f"{file}: {error}", 1)
    return 0
