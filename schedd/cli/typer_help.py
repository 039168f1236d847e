"""Help of commands made with Typer, in the form of the other commands' help."""

import argparse
import textwrap
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, get_args, get_origin

from schedd.cli.arguments import OneLineErrorParser

if TYPE_CHECKING:
    import typer

_HELP: Final = frozenset({"-h", "--help"})
_WIDTH: Final = 79


def asks_for_help(args: Sequence[str]) -> bool:
    options = args[: args.index("--")] if "--" in args else args
    return not _HELP.isdisjoint(options)


def typer_parser(typed: "typer.Typer", args: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return a parser for the command that the arguments name, with its description, options and
    sub-commands. It is only for help: Typer parses.
    """
    from typer.main import get_command  # noqa: PLC0415  (commands for users must not pay for it)

    command: Any = get_command(typed)
    path = ["schedd"]
    for word in args:
        if word not in getattr(command, "commands", ()):
            break
        command = command.commands[word]
        path.append(word)
    return _make_parser(command, " ".join(path))


def _make_parser(command: Any, name: str) -> argparse.ArgumentParser:
    about, _, more = (command.help or "").partition("\n\n")
    parser = OneLineErrorParser(
        prog=name,
        description=textwrap.fill(" ".join(about.split()), _WIDTH),
        epilog="\n\n".join(textwrap.fill(" ".join(one.split()), _WIDTH) for one in more.split("\n\n")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if hasattr(command, "commands"):
        actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
        for word, one in command.commands.items():
            about = " ".join((one.help or "").partition("\n\n")[0].split())
            actions.add_parser(word, help=(about[:1].lower() + about[1:]).removesuffix("."))
        return parser
    for one in command.params:
        _add_parameter(parser, one)
    return parser


def _add_parameter(parser: argparse.ArgumentParser, one: Any) -> None:
    about = f"{one.help or ''}{_default_words(one)}".replace("%", "%%")
    if not one.opts[0].startswith("-"):
        nargs = "*" if one.nargs == -1 else None if one.required else "?"
        parser.add_argument(one.name, metavar=one.metavar or one.name.upper(), nargs=nargs, help=about)
    elif one.is_flag:
        parser.add_argument(*one.opts, *one.secondary_opts, action="store_true", help=about)
    else:
        parser.add_argument(*one.opts, metavar=one.metavar or _value_name(one), help=about)


def _value_name(one: Any) -> str:
    """Return the choices of a parameter, or its name in capitals."""
    annotation = one.type_descriptor.annotation
    if get_origin(annotation) is Literal:
        return f"{{{','.join(get_args(annotation))}}}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f"{{{','.join(str(member.value) for member in annotation)}}}"
    return str(one.opts[0].lstrip("-").replace("-", "_").upper())


def _default_words(one: Any) -> str:
    """Return the default in parentheses, unless the help names it or there is none."""
    value, about = one.default, one.help or ""
    flag = getattr(one, "is_flag", False)
    if not one.show_default or flag or value in (None, "", ()) or "(default" in about:
        return ""
    shown = value.value if isinstance(value, Enum) else value
    return f" (default: {shown})"
