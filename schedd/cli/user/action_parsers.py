"""Acts of the commands on bags, bookings and co-allocations of a federation; output of answers."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from schedd.cli.user.command_session import (
    EXIT_CODES,
    add_federation_answer_options,
    make_described_parser,
    show_json,
)
from schedd.cli.user.formatting import format_time

_NAMES = {"coallocation": "co-allocation"}
AddAction = Callable[[str, str], argparse.ArgumentParser]
"""Adds an act by its name and its help; returns its parser."""


def make_action_parser(
    name: str, about: str, more: str, codes: Mapping[int, str], things: str
) -> tuple[argparse.ArgumentParser, AddAction]:
    """Return a parser of actions on ``things``, ``list`` included. ``codes`` replace the usual ones."""
    found = make_described_parser(name, about, more, {**EXIT_CODES, **codes})
    add_federation_answer_options(found)
    acts = found.add_subparsers(dest="act", metavar="ACTION", title="actions")

    def add(act: str, words: str) -> argparse.ArgumentParser:
        return acts.add_parser(act, help=words, allow_abbrev=False)

    add("list", f"show {things} that are not over (default)")
    return found, add


def add_named_actions(add: AddAction, thing: str, helps: Mapping[str, str]) -> None:
    """Acts that are done with one ``thing``, by its number, and their help."""
    for act, words in helps.items():
        add(act, words).add_argument(
            thing, metavar=thing.upper(), help=f"number of the {_NAMES.get(thing, thing)}"
        )


def print_answer(args: argparse.Namespace, answer: Any, words: Callable[[], str]) -> None:
    """The federation's answer as JSON, or these words for people."""
    if args.json:
        show_json(answer)
    else:
        print(words())


def format_optional_time(seconds: int | None, now: int) -> str:
    """A moment that may not be known."""
    return format_time(seconds, now) if seconds is not None else "-"
