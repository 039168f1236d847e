"""Versions of results, and the pages that the present sources did not make."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from research import stale, versions
from research.experiments.cells import Cell
from research.experiments.named import EXPERIMENTS
from research.studies import trials
from research.studies.command import STUDIES
from research.studies.trials import digest
from research.versions import sources_of, version_of
from tests.research.experiments.experiment import ROWS


def _tree(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """Write a package of two modules and return the version of the importing one."""
    for name, source in {
        "plan/one": "def f():\n    from schedd.plan.other import x\n    import schedd.wire.message\n",
        "plan/other": text,
        "plan/apart": "y = 1\n",
        "wire/message": "z = 1\n",
    }.items():
        path = folder / "schedd" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    monkeypatch.setattr(versions, "_ROOT", folder)
    for cached in (versions._path_of, versions._code_of, versions.sources_of):
        cached.cache_clear()
    return version_of("schedd.plan.one")


def test_a_version_changes_with_imported_statements_and_not_with_comments_or_docstrings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _tree(tmp_path, monkeypatch, "x = [1, 2]\n")
    assert versions.sources_of("schedd.plan.one") == ("schedd/plan/one.py", "schedd/plan/other.py")
    assert _tree(tmp_path, monkeypatch, '"""Numbers."""\n\nx = [1,  2]  # two\n"""Two of them."""\n') == first
    assert _tree(tmp_path, monkeypatch, "x = [1, 3]\n") != first
    assert version_of("schedd.plan.one", ["schedd/plan/other.py"]) != version_of("schedd.plan.one")
    monkeypatch.undo()
    for cached in (versions._path_of, versions._code_of, versions.sources_of):
        cached.cache_clear()


def test_what_the_engine_imports_by_name_counts_for_every_replay() -> None:
    found = sources_of("research.experiments.cells")
    assert {"schedd/features/fair_share/component.py", "schedd/plan/kernels/moves.py"} < set(found)
    without_effect = (
        "schedd/api",
        "schedd/dialect",
        "schedd/features/power",
        "schedd/service",
        "schedd/wire",
    )
    assert not [path for path in found if path.startswith(without_effect)]
    assert "schedd/features/power/component.py" in sources_of("research.studies.energy")
    with pytest.raises(FileNotFoundError):
        sources_of("research.nothing")


def test_a_page_is_not_stale_if_the_cheapest_replay_of_each_policy_gives_its_figures_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Cell] = []

    def repeat(cell: Cell, logs: str) -> dict[str, Any]:
        ran.append(cell)
        return {**ROWS[0], "avg_wait_s": 11 if cell.search and wrong else 10}

    monkeypatch.setattr(stale, "run_cell", repeat)
    cells = EXPERIMENTS["failures"].cells
    rows = [{**ROWS[0], "cpu_s": number + 1.0} for number in range(len(cells))]
    found = [
        {"cell": cell.as_dict(), "code": "old", "row": row} for cell, row in zip(cells, rows, strict=True)
    ]
    saved, page = tmp_path / "failures.json", tmp_path / "failures.md"
    saved.write_text(json.dumps({"command": "a command", "cells": found}))
    page.touch()
    command = ["--results", str(tmp_path), "--repeat", str(tmp_path)]
    wrong = True
    searches = sum(cell.search is not None for cell in cells)
    assert stale.run(command) == 0
    assert f"{searches} of {len(cells)} replays to be run" in (said := capsys.readouterr().out)
    assert "wagap-2013, tabu: avg_wait_s 10, now 11" in said
    assert [cell.name for cell in ran] == ["fcfs", "easy", "aggressive", "conservative", "tabu"]
    assert f"**Stale: {searches} were not repeated since the sources changed.**" in page.read_text()
    wrong = False
    assert stale.run(command) == 0
    assert capsys.readouterr().out == "0 of 1 pages of results are stale.\n"
    assert len(ran) == 6
    assert "with the same figures: 4." in page.read_text()
    assert stale.run(command[:2]) == 0
    assert len(ran) == 6
    saved.write_text(saved.read_text().replace('"repeated"', '"forgotten"'))
    assert stale.run(command[:2]) == 0
    assert "1 of 1 pages" in capsys.readouterr().out


def test_stale_pages_are_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stale, "version_of", lambda module: f"of {module}")
    monkeypatch.setattr(stale, "code_version", lambda: "0123456789ab")
    cells = [
        {"cell": cell.as_dict(), "code": "old", "row": {**ROWS[0], "cpu_s": 1.0}}
        for cell in EXPERIMENTS["speeds"].cells
    ]
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
    monkeypatch.setattr(stale, "run_cell", lambda *_: {**ROWS[0], "avg_wait_s": 11})
    for _ in range(2):
        assert stale.run(["--results", str(tmp_path), "--repeat", str(tmp_path)]) == 0
    marked = (
        "# Page\n\nVersion of the sources: 000000000000. **Stale: the sources changed since that run.**\n"
    )
    assert (tmp_path / "older.md").read_text() == marked
    assert "Stale" not in (tmp_path / "by_hand.md").read_text()
    assert stale.run(["--results", str(tmp_path / "none")]) == 2


def test_a_study_whose_quick_run_gives_the_same_figures_is_not_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"log": "a", "share": 0.5, "cpu_s": 1.0}, {"log": "b", "share": 0.25, "cpu_s": 2.0}]

    def run(_: Path, out: Path, *, quick: bool, only: tuple[str, ...]) -> None:
        assert quick
        assert not only
        again = [dict(row, cpu_s=9.0) for row in reversed(rows)]
        (out / "thesis-quick.json").write_text(json.dumps({"sources": "newer", "jobs": 4, "results": again}))

    monkeypatch.setitem(STUDIES, "thesis", ("about", run))
    monkeypatch.setattr(stale, "version_of", lambda _: "b" * 12)
    saved, page = tmp_path / "thesis.json", tmp_path / "thesis.md"
    figures = {"command": "a command", "sources": "a" * 12, "results": "of the long run"}
    trial = digest({"command": "another", "jobs": 4, "results": rows})
    saved.write_text(json.dumps(figures | {"trial": trial}))
    page.write_text(f"# Page\n\nVersion of the sources: {'a' * 12}.\n")
    command = ["--results", str(tmp_path), "--repeat", str(tmp_path)]
    rows[1]["share"] = 0.26
    assert stale.run(command) == 0
    assert f"thesis.md: sources {'a' * 12}, now {'b' * 12}" in capsys.readouterr().out
    assert page.read_text().endswith(f"{'a' * 12}. **Stale: the sources changed since that run.**\n")
    rows[1]["share"] = 0.25
    same = (
        f"# Page\n\nVersion of the sources: {'a' * 12}; version {'b' * 12} finds the same in a quick run.\n"
    )
    for options in (command, command[:2], command):
        assert stale.run(options) == 0
        assert capsys.readouterr().out == "0 of 1 pages of results are stale.\n"
        assert page.read_text() == same
    assert json.loads(saved.read_text()) == figures | {"trial": trial, "repeated": "b" * 12}
    monkeypatch.setattr(stale, "version_of", lambda _: "c" * 12)
    rows.pop()
    assert stale.run(command) == 0
    assert page.read_text() == same[:-1] + " **Stale: the sources changed since that run.**\n"


def test_a_trial_ignores_every_time_that_a_study_measures() -> None:
    """Names of figures with a unit of processor time, in the results of all studies."""
    measured = re.compile(r'"(\w*(?:cpu|planner)_\w+|\w+_ms|us_per_\w+)":')
    texts = [path.read_text() for path in Path("research/results").glob("*.json")]
    studies = [text for text in texts if '"sources"' in text and '"cells"' not in text]
    assert studies
    assert {name for text in studies for name in measured.findall(text)} <= set(trials.TIMES)
