"""``schedd config``: create and check the settings, show those in force, explain them all."""

import argparse
from collections.abc import Sequence
from importlib import import_module

from schedd.cli.arguments import OneLineErrorParser, add_action
from schedd.cli.config_init import add_init
from schedd.cli.installation import add_config_option


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd config",
        description="Create a site's settings, check them, show those in force, list all of them.",
        allow_abbrev=False,
    )
    acts = parser.add_subparsers(dest="act", metavar="ACTION", title="actions", required=True)
    add_init(acts)
    check = add_action(
        acts,
        "check",
        "Check the settings as the daemon does at its start, test the database, and warn of unusual "
        "settings.",
        _check,
        "Exit status: 0 if they can be used, 2 if not, 1 if the database cannot be used.",
    )
    add_config_option(check)
    check.add_argument("--strict", action="store_true", help="fail on advice, too")
    check.add_argument(
        "--database",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="try the database, too (read only)",
    )
    show = add_action(
        acts,
        "show",
        "Print the settings in force as TOML, each with where it comes from; secrets are left out.",
        _show,
    )
    add_config_option(show)
    add_action(
        acts,
        "reference",
        "Print each setting's meaning, values and default as Markdown, the most needed ones first.",
        _reference,
    )
    return parser


def run(argv: Sequence[str]) -> int:
    """Run the action; 0, 2 for invalid settings, 1 if the database cannot be used."""
    args = make_parser().parse_args(argv)
    return int(args.command(args))


def _check(args: argparse.Namespace) -> int:
    return _act("check", args)


def _show(args: argparse.Namespace) -> int:
    return _act("show", args)


def _reference(args: argparse.Namespace) -> int:
    return _act("reference", args)


def _act(name: str, args: argparse.Namespace) -> int:
    # Imported only here: ``init`` needs neither the database nor the daemon.
    return int(getattr(import_module("schedd.cli.config_actions"), name)(args))
