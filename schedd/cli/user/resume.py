"""``schedd resume``: start jobs again."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json

_MORE = (
    "Use it after a pause, or after another scheduler has started jobs. Needs the role operator or admin; on "
    "the daemon's socket root is one."
)


def make_parser(name: str = "schedd resume") -> argparse.ArgumentParser:
    return make_command_parser(
        name,
        "Start jobs of a cluster again after `schedd pause`; due jobs start at once.",
        _MORE,
        of_cluster=True,
    )


def run(argv: Sequence[str], name: str = "schedd resume") -> int:
    """Resume; returns the exit code."""
    return run_command(make_parser(name), _resume, argv, acts=True)


def _resume(session: Session, args: argparse.Namespace) -> bool:
    done = session.client.resume()
    if args.json:
        show_json(done)
    else:
        print(f"{session.cluster.name}: jobs are started")
    return True
