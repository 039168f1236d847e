"""Helpers for tests of ``schedd import``."""
# ruff: noqa: DTZ001  (the clock on the wall)

import tomllib
from datetime import datetime
from pathlib import Path
from typing import Any

from schedd.cli.importing.maui import import_maui as import_maui_on
from schedd.cli.importing.result import ImportResult
from schedd.cli.importing.sched_config import import_sched_config
from schedd.service.settings.cluster import ClusterSettings

EXAMPLES = Path(__file__).parent / "examples"
NOW = datetime(2026, 11, 21, 12)
ZONE = "Europe/Prague"


def import_maui(text: str, moab: bool = False) -> ImportResult:
    return import_maui_on(text, NOW.date(), ZONE, moab)


def import_sched(text: str, **beside: str) -> ImportResult:
    return import_sched_config(text, beside, NOW, ZONE)


def import_directory(directory: Path) -> ImportResult:
    beside = {path.name: path.read_text() for path in directory.iterdir() if path.name != "sched_config"}
    return import_sched((directory / "sched_config").read_text(), **beside)


def finding_text(done: ImportResult, setting: str) -> str:
    """Return the verdict and the text about one setting, equal for all its lines."""
    (said,) = {f"{one.verdict.value}: {one.message}" for one in done.findings if one.setting == setting}
    return said


def setting_lines(text: str, comments: str = "#") -> set[int]:
    """Return the numbers of the lines that are neither empty nor comments."""
    said = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return {number for number, line in said if line and line[0] not in comments}


def lines_with_findings(done: ImportResult, file: str = "") -> set[int]:
    """Return the lines of a file that have a finding."""
    return {one.line for one in done.findings if one.file == file} - {0}


def settings_in(toml: str, cluster: str = "main") -> dict[str, Any]:
    """A cluster's settings, checked as the daemon checks them."""
    table: dict[str, Any] = tomllib.loads(toml)["clusters"][cluster]
    ClusterSettings(**table)
    return table
