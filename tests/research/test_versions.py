"""Versions of results, and the pages that the present sources did not make."""

import json
from pathlib import Path

import pytest

from research import stale, versions
from research.experiments.named import EXPERIMENTS
from research.versions import sources_of, version_of
from tests.research.experiments.experiment import ROWS


def _tree(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Write a package of two modules and return the version of the one that imports the other."""
    package = folder / "schedd"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text("def f():\n    from schedd.other import x\n    return x\n")
    (package / "other.py").write_text(text)
    (package / "apart.py").write_text("y = 1\n")
    monkeypatch.setattr(versions, "_ROOT", folder)
    for cached in (versions._path_of, versions._code_of, versions.sources_of):
        cached.cache_clear()
    return version_of("schedd.one")


def test_a_version_changes_with_imported_statements_and_not_with_comments_or_docstrings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _tree(tmp_path, monkeypatch, "x = [1, 2]\n")
    assert versions.sources_of("schedd.one") == ("schedd/__init__.py", "schedd/one.py", "schedd/other.py")
    assert _tree(tmp_path, monkeypatch, '"""Numbers."""\n\nx = [1,  2]  # two\n"""Two of them."""\n') == first
    assert _tree(tmp_path, monkeypatch, "x = [1, 3]\n") != first
    assert version_of("schedd.one", ["schedd/other.py"]) != version_of("schedd.one")
    monkeypatch.undo()
    for cached in (versions._path_of, versions._code_of, versions.sources_of):
        cached.cache_clear()


def test_what_the_engine_imports_by_name_counts_for_every_replay() -> None:
    found = sources_of("research.experiments.cells")
    assert {"schedd/features/fair_share/component.py", "schedd/plan/kernels/moves.py"} < set(found)
    assert not [path for path in found if path.startswith(("schedd/api", "schedd/service", "schedd/cli"))]
    with pytest.raises(FileNotFoundError):
        sources_of("research.nothing")


def test_stale_pages_are_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stale, "version_of", lambda module: f"of {module}")
    monkeypatch.setattr(stale, "code_version", lambda: "0123456789ab")
    cells = [{"cell": cell.as_dict(), "code": "old", "row": ROWS[0]} for cell in EXPERIMENTS["speeds"].cells]
    for name, figures in {
        "speeds": {"command": "", "cells": cells},
        "routing": {"sources": "of research.studies.routing"},
        "thesis": {"sources": "older"},
        "arrays": {},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(figures))
        (tmp_path / f"{name}.md").touch()
    (tmp_path / "by_hand.md").write_text("# Page\n\nVersion of the sources: 0123456789ab.\n")
    (tmp_path / "older.md").write_text("# Page\n\nVersion of the sources: 000000000000.\n")
    (tmp_path / "README.md").touch()
    assert stale.run(["--results", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "4 of 6 pages of results are stale:",
        "  arrays.md: states no version",
        "  older.md: sources 000000000000, now 0123456789ab",
        f"  speeds.md: {len(cells)} of {len(cells)} replays to be run; it has those of old ({len(cells)})",
        "  thesis.md: sources older, now of research.studies.thesis",
    ]
    assert stale.run(["--results", str(tmp_path / "none")]) == 2
