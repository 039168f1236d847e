"""The help of all commands has one style."""

import argparse
import re
from collections.abc import Iterator
from importlib import import_module

import pytest

from schedd.cli.main import COMMANDS, main
from server_adapter import main as adapter

PROGRAMS = (*COMMANDS, "pbs-adapter")

_SENTENCE = re.compile(r"[A-Z][a-z-]+,? .*\.", re.DOTALL)
"""A verb, and a full stop at the end."""
_CAPITAL = re.compile(r"[A-Z][a-z]")
_NAMES = ("Lublin", "Maui", "Standard Workload Format")
"""Names that a help text may begin with."""
_BARE_DEFAULT = re.compile(r"\((?!default\)|operators\))(?:\d[\d.:a-z]*|[a-z]+)\)$")
"""A default value without the word."""


def parsers(name: str) -> Iterator[argparse.ArgumentParser]:
    """The parsers of a command and of its actions."""
    if name == "pbs-adapter":
        yield from _with_actions(adapter.make_parser())
    elif name in PROGRAMS:
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


def faults(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Deviations from the style."""
    about = parser.description or ""
    if not _SENTENCE.fullmatch(about):
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
        if argument.option_strings and argument.nargs != 0:
            yield from _value_faults(name, argument)
        value = argument.metavar or argument.dest
        if not argument.option_strings and isinstance(value, str) and value != value.upper():
            yield f"{name}: the argument is not in capitals: {value}"


def _value_faults(name: str, argument: argparse.Action) -> Iterator[str]:
    said = (argument.help or "") % vars(argument)
    default = argument.default
    shown = f"{default:g}" if isinstance(default, float) else str(default)
    if isinstance(default, bool) or default in (None, "", [], (), argparse.SUPPRESS):
        pass
    elif "default" not in said or (default and shown not in said.replace(",000", "000")):
        yield f"{name}: its default {shown} is not shown: {said!r}"
    if argument.choices is None and argument.metavar is None:
        yield f"{name}: its value has no name"
    value = argument.metavar if isinstance(argument.metavar, str) else ""
    if value.upper() != value and "=" not in value:
        yield f"{name}: its value is not in capitals: {value}"


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


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_has_the_common_style(name: str) -> None:
    found = [f"{parser.prog}: {fault}" for parser in parsers(name) for fault in faults(parser)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_headings_are_written_alike(name: str) -> None:
    for parser in parsers(name):
        text = parser.format_help()
        assert text.startswith("usage: ")
        heads = re.findall(r"^([A-Za-z-]+(?: [A-Za-z]+){0,2}):$", text, re.MULTILINE)
        assert not [one for one in heads if one != one.lower()], parser.prog


def test_the_list_of_commands_has_the_same_headings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert re.findall(r"^(\w+):", capsys.readouterr().out, re.MULTILINE) == ["usage", "commands"]


@pytest.mark.parametrize("name", ["pause", "resume", "hold", "release", "showq", "reservation", "policy"])
def test_only_commands_about_a_start_end_with_1_without_one(name: str) -> None:
    text = import_module(COMMANDS[name][0]).make_parser().format_help()
    assert "\n  0  answered\n  2  " in text
    assert "no planned start" in import_module(COMMANDS["showstart"][0]).make_parser().format_help()


def test_a_deviation_is_detected() -> None:
    parser = argparse.ArgumentParser("x", description="what it does")
    parser.add_argument("--a", help="Shows a.")
    parser.add_argument("--b", help="its length (3)")
    parser.add_argument("c")
    parser.add_subparsers(metavar="ACT").add_parser("d")
    parser.add_argument("--d", type=int, default=4, help="its width")
    assert len(list(faults(parser))) == 12
