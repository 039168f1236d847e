"""Runs commands in the process of the test."""

from collections.abc import Sequence

from schedd.cli.main import main


def run_main(arguments: Sequence[str]) -> object:
    """Return the exit code, also where argparse ends the process itself."""
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code
