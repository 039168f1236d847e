"""Arguments of commands; errors in one line that says what, where, and where to read more."""

import argparse
import math
import sys
from collections.abc import Callable
from typing import Any, NoReturn


class OneLineErrorParser(argparse.ArgumentParser):
    """Ends with that line and 2; the usage is what ``--help`` is for. Its sub-commands do the same."""

    def error(self, message: str) -> NoReturn:
        """As argparse calls it."""
        text = " ".join(message.split())
        self.exit(2, f"{self.prog}: {text}; `{self.prog} --help` says what there is\n")


class CommandFailedError(Exception):
    """Ends a command whose error is printed, with this exit code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def fail(command: str, message: str, code: int = 2) -> NoReturn:
    """Print each line of the message after the command's name, and end the command with the exit code."""
    for line in message.splitlines():
        print(f"schedd {command}: {line}", file=sys.stderr)
    raise CommandFailedError(code)


def add_action(
    actions: Any, name: str, about: str, command: Callable[[argparse.Namespace], int], more: str = ""
) -> argparse.ArgumentParser:
    """Add an action, which ``about`` describes in a sentence, to sub-parsers. ``command`` runs it."""
    found: argparse.ArgumentParser = actions.add_parser(
        name,
        help=(about[:1].lower() + about[1:]).removesuffix("."),
        description=about,
        epilog=more,
        allow_abbrev=False,
    )
    found.set_defaults(command=command)
    return found


def parse_within(
    kind: type[int] | type[float], least: float, most: float = math.inf
) -> Callable[[str], float]:
    """Return a parser of a number of this kind between these bounds."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            what = "whole number" if kind is int else "number"
            bounds = f"from {least:,} to {most:,}" if most < math.inf else f"of at least {least:,}"
            raise argparse.ArgumentTypeError(f"{text!r}: a {what} {bounds} is needed")
        return value

    return parse
