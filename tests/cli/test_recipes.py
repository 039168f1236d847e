"""Commands recommended in documents and messages exist, with their options."""

import ast
import contextlib
import inspect
import io
import re
import shlex
from collections.abc import Iterator
from importlib import import_module

from schedd.cli.main import COMMANDS
from schedd.client import ClientError
from tests.conftest import ROOT

_RECIPE = re.compile(r"`(schedd [^`\n]+)`")
_TYPED = re.compile(r"(?:\$ )?(schedd (?!\[-)[^|<>&;]+)")
"""A line that begins with a command, in a block of them."""
_SENTENCES = frozenset({"answered", "at", "does", "on", "plans"})
"""Second words of the program's own help."""
_NO_FAULT = ("required", "expected", "invalid int value: 'N'")
"""A recipe may leave out values to be filled in."""


def recipes() -> Iterator[tuple[str, str]]:
    """File and text of each command between backquotes, in documents and in the strings of the programs."""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*/*.md"))]:
        for line in page.read_text().splitlines():
            yield from ((page.name, found) for found in _RECIPE.findall(line))
            if (typed := _TYPED.match(line)) is not None:
                yield page.name, typed[1].partition("  #")[0].strip()
    for folder in ("schedd", "server_adapter"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text()
            for node in ast.walk(ast.parse(text)) if "`schedd " in text else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield from ((str(file.relative_to(ROOT)), found) for found in _RECIPE.findall(node.value))


def recipe_error(recipe: str) -> str:
    """Return the program's objection to a recipe; empty if valid."""
    try:
        words = shlex.split(recipe.replace("\\|", "|").rstrip("\\"))[1:]
    except ValueError:
        return ""  # it goes on in the next line
    name = words[0]
    if name in _SENTENCES or not re.fullmatch(r"[a-z][a-z-]+", name):
        return ""
    if name not in COMMANDS:
        return f"no command {name}"
    make = import_module(COMMANDS[name][0]).make_parser
    rest = words[1:]
    if any(re.search(r"[…|\[\]]|\.\.\.", word) for word in rest):
        return ""
    said = io.StringIO()
    try:
        parser = make(f"schedd {name}") if inspect.signature(make).parameters else make()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            if name == "replay":  # logs and options in any order
                parser.parse_intermixed_args(rest)
            else:
                parser.parse_args(rest)
    except SystemExit as end:
        fault = said.getvalue() if end.code else ""
        return "" if any(word in fault for word in _NO_FAULT) else fault
    except ClientError as error:
        return str(error)
    return ""


def test_each_recommended_command_exists() -> None:
    found = {(where, recipe): recipe_error(recipe) for where, recipe in recipes()}
    assert len(found) > 100
    assert {key: fault for key, fault in found.items() if fault} == {}


def test_invalid_recipes_are_detected() -> None:
    assert recipe_error("schedd hold queue NAME")
    assert recipe_error("schedd frobnicate")
    assert not recipe_error("schedd hold -q NAME --reason TEXT")
