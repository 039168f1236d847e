"""Measured imports of users' commands."""

import json
from pathlib import Path

from research.benchmarks.command import run
from research.benchmarks.history import figures_of


def test_imports_are_measured_and_kept(tmp_path: Path) -> None:
    assert run(["imports", "--rounds", "1", "--json", str(tmp_path / "a.json")]) == 0
    figures = figures_of(json.loads((tmp_path / "a.json").read_text()))
    assert figures["import of showq: us_p50"] > figures["import of nothing: us_p50"] > 0
