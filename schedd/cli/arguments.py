"""Arguments of commands; errors in one line that says what, where, and where to read more."""

import argparse
import math
import sys
from collections.abc import Callable
from copy import copy
from typing import Any, Final, NoReturn

_COMMON_OPTIONS: Final = ("--json", "--cluster", "--url", "--federation")
"""Options of a command that may also follow its action."""
_METAVARS: Final = {"cluster": "NAME", "tls_certificate": "FILE", "adapter": "FILE", "log": "FILE"}
"""Names of values by option; other options have one by their type."""


class OneLineErrorParser(argparse.ArgumentParser):
    """Ends with that line and 2; the usage is what ``--help`` is for. Its sub-commands do the same.

    Values of options are called ``FILE`` and ``N`` by their types, and actions are described by their help.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.chosen = ""  # the command with its action, once this is known
        self.register("action", "parsers", _DescribedActions)

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """As argparse does, with the usual name of a value."""
        action = super().add_argument(*names, **options)
        takes = action.nargs != 0 and not action.choices
        if action.option_strings and takes and action.metavar is None:
            action.metavar = _METAVARS.get(action.dest, _type_metavar(action))
        return action

    def error(self, message: str) -> NoReturn:
        """As argparse calls it."""
        text = " ".join(message.split())
        self.exit(2, f"{self.prog}: {text}; `{self.chosen or self.prog} --help` shows the usage\n")


class _DescribedActions(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001  (argparse has no public name for it)
    """Sub-commands; without a description of its own, one has its help text as description. The options of
    all commands may stand before or after the sub-command.
    """

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        """As argparse does."""
        act = self.choices.get(values[0])
        if act is not None:
            if isinstance(parser, OneLineErrorParser):
                parser.chosen = act.prog
            known = act._option_string_actions  # noqa: SLF001  (argparse has no public name for it)
            for name in _COMMON_OPTIONS:
                found = parser._option_string_actions.get(name)  # noqa: SLF001
                if found is not None and name not in known:
                    known[name] = copy(found)
                    known[name].default = argparse.SUPPRESS
        super().__call__(parser, namespace, values, option)

    def add_parser(self, name: str, **options: Any) -> Any:
        """As argparse does."""
        about: str = options.get("help") or ""
        if about and not options.get("description"):
            plain = about.removesuffix(" (default)")
            options["description"] = f"{plain[:1].upper()}{plain[1:]}."
        return super().add_parser(name, **options)


def _type_metavar(action: argparse.Action) -> str:
    # By its name: to import pathlib takes a tenth of the time of a user's command.
    if getattr(action.type, "__name__", "") == "Path":
        return "DIRECTORY" if action.dest in ("dir", "prefix") else "FILE"
    return action.dest.upper()


class CommandFailedError(Exception):
    """Ends a command with this exit code, after its error was printed."""

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


def add_days_option(parser: argparse.ArgumentParser, default: int, shown: str) -> None:
    """Add ``--days N``. ``shown`` begins its help: "jobs that started in"."""
    parser.add_argument(
        "--days",
        type=parse_within(float, 0, 36_600),
        default=default,
        metavar="N",
        help=f"{shown} the last N days (default: {default})",
    )


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
