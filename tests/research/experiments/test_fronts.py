"""The experiment of fronts: methods side by side from one plan."""

import gzip
import json
from pathlib import Path

import pytest

from research.__main__ import main
from research.experiments.fronts import METHODS


def log(folder: Path, jobs: int = 260) -> None:
    line = "{0} {1} 0 {2} {3} -1 -1 {3} {4} -1 1 1 1 1 1 1 -1 -1"
    lines = [
        line.format(i, i, 60 + 37 * i % 900, 1 + i * 7 % 40, 1_000 + 611 * i % 9_000) for i in range(1, jobs)
    ]
    packed = gzip.compress(("; MaxProcs: 100\n" + "\n".join(lines) + "\n").encode())
    (folder / "KTH-SP2-1996-2.swf.gz").write_bytes(packed)


def test_all_methods_are_measured_from_the_same_plan(tmp_path: Path) -> None:
    log(tmp_path)
    out = tmp_path / "out"
    assert main(["experiment", "front", "--quick", "--logs", str(tmp_path), "--out", str(out)]) == 0
    saved = json.loads((out / "front-quick.json").read_text())
    rows = {row["method"]: row for row in saved["results"]}
    assert tuple(rows) == METHODS
    nothing = round((0.2 / 1.2) ** 4, 12)  # what the live plan dominates by itself
    for row in rows.values():
        assert nothing <= row["least"] <= row["volume"] <= row["most"] < 1
        assert row["jobs"] == 200
    assert rows["tabu"]["volume"] > nothing
    assert rows["nsga-2"]["plans"] >= 2
    page = (out / "front-quick.md").read_text()
    assert "python -m research experiment front --quick --logs LOGS" in page
    assert page.count("| KTH-SP2-1996-2 | 200 |") == len(METHODS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--part", "busiest"], "front has no --part"),
        (["--only", "Nothing"], "has no such log"),
        ([], "it has no KTH-SP2-1996-2.swf.gz"),
    ],
)
def test_what_it_cannot_run_is_one_clear_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", "front", *words, "--logs", str(tmp_path), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
