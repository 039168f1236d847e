"""`python -m research bench predict`: its output, and its refusals."""

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from research.benchmarks.command import run
from research.benchmarks.predict import PredictResult, table_of


def test_it_tells_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "predict.json"
    words = [
        "predict",
        "--jobs",
        "60",
        "--nodes",
        "9",
        "--ended",
        "1500",
        "--users",
        "5",
        "--json",
        str(path),
    ]
    assert run(words) == 0
    found = json.loads(path.read_text())
    assert (found["nodes"], found["ended"], found["users"]) == (9, 1500, 5)
    assert 0 < found["jobs"] <= 60
    assert found["templates"] > 5
    assert found["draws"] == 9
    assert min(found["us_per_job"], found["mib"], found["starts_s"]) > 0
    assert found["starts_longest_s"] >= found["starts_s"]


def test_its_table_fits_a_terminal_of_80_columns() -> None:
    result = PredictResult(
        "metacentrum", 219, 10_000, 1, 1_000_000, 10_000, 24.1, 160.2, 890_293, 5, 0.94, 0.97
    )
    out = StringIO()
    Console(width=80, file=out).print(table_of(result))
    shown = out.getvalue()
    assert "…" not in shown
    for part in ("µs/job", "MiB", "starts, s", " 24.1 ", " 160 ", " 890,293 ", " 0.97 "):
        assert part in shown


def test_too_few_jobs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "--jobs", "9"]) == 2
    assert run(["predict", "--jobs", "10", "--ended", "10"]) == 2
    assert "at least 10, 1000 and 1 are needed" in capsys.readouterr().err
