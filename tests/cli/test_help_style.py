"""The help of all commands has one style."""

import argparse
import re
from collections.abc import Iterator
from importlib import import_module

import pytest

from schedd.cli.main import COMMANDS

_SENTENCE = re.compile(r"[A-Z][a-z-]+,? .*\.", re.DOTALL)
"""A verb, and a full stop at the end."""
_CAPITAL = re.compile(r"[A-Z][a-z]")
_NAMES = ("Lublin", "Maui", "Standard Workload Format")
"""Names that a help text may begin with."""
_BARE_DEFAULT = re.compile(r"\((?!default\)|operators\))(?:\d[\d.:a-z]*|[a-z]+)\)$")
"""A default value without the word."""


def parsers(name: str) -> Iterator[argparse.ArgumentParser]:
    """The parsers of a command and of its actions."""
    yield from _with_actions(import_module(COMMANDS[name][0]).make_parser())


def _with_actions(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for group in _groups(parser):
        for one in group.choices.values():
            yield from _with_actions(one)


def _groups(parser: argparse.ArgumentParser) -> Iterator[argparse._SubParsersAction]:  # type: ignore[type-arg]
    for one in parser._actions:
        if isinstance(one, argparse._SubParsersAction):
            yield one


def faults(parser: argparse.ArgumentParser, *, of_action: bool) -> Iterator[str]:
    """Deviations from the style."""
    about = parser.description or ""
    if not of_action and not _SENTENCE.fullmatch(about):
        yield f"the description is no sentence: {about!r}"
    for group in _groups(parser):
        if group.metavar != "ACTION":
            yield f"actions are called {group.metavar}"
        titles = [one.title for one in parser._action_groups]
        if "actions" not in titles:
            yield f"the title of actions is not among {titles}"
        for one in group._choices_actions:
            yield from _text_faults(one.dest, one.help)
    for argument in parser._actions:
        if isinstance(argument, argparse._SubParsersAction):
            continue
        name = "/".join(argument.option_strings) or argument.dest
        yield from _text_faults(name, argument.help)
        value = argument.metavar or argument.dest
        if not argument.option_strings and isinstance(value, str) and value != value.upper():
            yield f"{name}: the argument is not in capitals: {value}"


def _text_faults(name: str, text: str | None) -> Iterator[str]:
    if not text:
        yield f"{name}: no help"
        return
    if _CAPITAL.match(text) and not text.startswith(_NAMES):
        yield f"{name}: begins with a capital: {text!r}"
    if text.endswith("."):
        yield f"{name}: ends with a full stop: {text!r}"
    if _BARE_DEFAULT.search(text):
        yield f"{name}: a default is written (default: …): {text!r}"


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_the_common_style(name: str) -> None:
    found = [
        f"{parser.prog}: {fault}"
        for number, parser in enumerate(parsers(name))
        for fault in faults(parser, of_action=number > 0)
    ]
    assert not found, "\n".join(found)


def test_a_deviation_is_detected() -> None:
    parser = argparse.ArgumentParser("x", description="what it does")
    parser.add_argument("--a", help="Shows a.")
    parser.add_argument("--b", help="its length (3)")
    parser.add_argument("c")
    parser.add_subparsers(metavar="ACT").add_parser("d")
    assert len(list(faults(parser, of_action=False))) == 8
