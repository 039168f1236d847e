"""`python -m research bench optimise`: its output, and its refusals."""

import json
from pathlib import Path

import pytest

from research.benchmarks.command import run
from research.benchmarks.optimise import bench_optimise, to_json


def test_every_kind_of_move_is_measured_for_every_time() -> None:
    told: list[str] = []
    result = bench_optimise(
        "metacentrum", 24, 100, 3, lifted=(2, 4), seconds=(0.05, 0.1), parallel=(1, 2), tell=told.append
    )
    found = json.loads(to_json(result))
    assert [(one["lifted"], one["seconds"]) for one in found["searches"]] == [
        (2, 0.05), (2, 0.1), (4, 0.05), (4, 0.1),
    ]  # fmt: skip
    assert all(one["moves"] > 0 and one["moves_per_s"] > 0 for one in found["searches"])
    assert all(one["gain"] >= 0 for one in found["searches"])
    assert found["jobs"] == 100
    stopped = found["stopped"]
    assert stopped["stops"] == 30
    assert 0 <= stopped["median_ms"] <= stopped["longest_ms"]
    abreast = [(one["parallel"], one["seconds"], one["moves_each"]) for one in found["parallel"]]
    assert abreast == [(1, None, 10_000), (1, 0.1, None), (2, None, 10_000), (2, 0.1, None)]
    assert all(one["gain"] >= one["least_gain"] >= 0 for one in found["parallel"])
    assert len(told) == 8


def test_the_command_writes_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("research.benchmarks.command.bench_optimise", _short)
    path = tmp_path / "found.json"
    assert run(["optimise", "--jobs", "30", "--nodes", "9", "--json", str(path)]) == 0
    assert json.loads(path.read_text())["nodes"] == 9
    out = capsys.readouterr().out
    assert "moves/s" in out
    assert "30 stopped: ended within" in out


def _short(*args: object, **more: object) -> object:
    return bench_optimise(*args, **more, lifted=(2,), seconds=(0.05,), parallel=(1,))  # type: ignore[arg-type]


def test_too_few_jobs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["optimise", "--jobs", "9"]) == 2
    assert "at least 10" in capsys.readouterr().err
