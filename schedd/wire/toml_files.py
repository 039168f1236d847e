"""Read a settings file, and find the lines of its settings; without slow imports."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_KEY = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_PATH = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_TABLE = re.compile(rf"\s*(\[\[?)\s*({_PATH})\s*\]\]?\s*(?:#.*)?$")
_SETTING = re.compile(rf"\s*({_PATH})\s*=")


class SettingsError(Exception):
    """Invalid settings: a line for each fault, with its place and its remedy."""


def path_fault(path: Path) -> str:
    """Return why a file or directory cannot be found by this user; empty if it can."""
    try:
        path.stat()
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


def read_toml(path: Path) -> dict[str, Any]:
    """Return the contents of the file. Raises SettingsError."""
    try:
        if path.is_dir():
            raise SettingsError(f"{path}: is a directory, not a file")
        if path.exists() and not path.is_file():
            raise SettingsError(f"{path}: is no regular file")
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file") from None
    except OSError as error:
        raise SettingsError(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise SettingsError(f"{path}: {error}") from None


def setting_line(text: str, path: Sequence[str | int]) -> int | None:
    """Return the line, from 1, of the setting at ``path``; of the nearest table above it if the setting is
    not in the file. None if no part of the path is. ``text`` must be valid TOML.
    """
    wanted = tuple(map(str, path))
    table: tuple[str, ...] = ()
    lists: dict[tuple[str, ...], int] = {}
    best, line_found = 0, None
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TABLE.match(line):
            table = _numbered(_keys(found[2]), lists, begins=found[1] == "[[")
            here = table
        elif found := _SETTING.match(line):
            here = (*table, *_keys(found[1]))
        else:
            continue
        if len(here) > best and wanted[: len(here)] == here:
            best, line_found = len(here), number
    return line_found


def _keys(path: str) -> tuple[str, ...]:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, path))


def _numbered(path: tuple[str, ...], lists: dict[tuple[str, ...], int], *, begins: bool) -> tuple[str, ...]:
    """The path of a table with the positions in lists of tables; ``begins``: it is the next one of a list."""
    done: tuple[str, ...] = ()
    for place, key in enumerate(path):
        done = (*done, key)
        if begins and place == len(path) - 1:
            lists[done] = lists.get(done, -1) + 1
        if done in lists:
            done = (*done, str(lists[done]))
    return done
