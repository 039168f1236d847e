"""`python -m research bench face`: its output about pages, their data, and commands."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from rich.console import Console

from research.benchmarks import face
from research.benchmarks.browser import Frames, Paints
from research.benchmarks.command import run
from research.benchmarks.daemon import BenchDaemon, DaemonConnection
from research.benchmarks.face import FaceResult, PageFigures, last_planned, table_of
from research.benchmarks.load import Load


def test_pages_and_commands_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(face, "_TIMES", 1)
    monkeypatch.setattr(face, "paints", lambda *_: None)  # the real one is that of tests/dashboard
    path = tmp_path / "face.json"
    assert run(["face", "--nodes", "40", "--jobs", "12", "--seed", "7", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert {one["name"].partition("?")[0].partition("/jobs")[0] for one in found["pages"]} >= {
        "/plan",
        "/queue",
        "/nodes",
        "/plan-metrics",
        "/admin",
    }
    for one in (*found["pages"], *found["data"]):
        assert 0 < one["ms"] <= one["longest"]
        assert one["packed"] > 0
        assert one["size"] > 100
    assert len(found["commands"]) == 7
    assert all(one["ms"] > 0 for one in found["commands"])
    shown = capsys.readouterr().out
    assert "showplan" in shown
    assert "drawn" not in shown  # nobody could see it: there was no browser


def test_a_load_without_a_waiting_job_is_a_clear_error() -> None:
    client = cast("DaemonConnection", SimpleNamespace(ask=lambda *_: {"jobs": []}))
    daemon = cast("BenchDaemon", SimpleNamespace(cluster="/v1/clusters/main"))
    with pytest.raises(ValueError, match=r"all jobs started at once.*--jobs"):
        last_planned(client, daemon)


def test_what_a_browser_saw_stands_beside_the_pages() -> None:
    moved = {"36 rows": Frames(1_234, 16.7, 33.4, 0.98)}
    seen = Paints({"plan": 111}, {"plan": 55}, {"plan": 44}, (333, 222), moved)
    result = FaceResult(
        Load("uniform", 12, 40, 0, 2, 7),
        1,
        (PageFigures("/plan", 7.0, 9.0, 5.0, 1_000, 500),),
        (),
        12.0,
        (),
        seen,
    )
    shown = _printed(result)
    assert "the plan's chart drawn" in shown
    assert all(
        figure in shown
        for figure in ("111", "55", "44", "333", "222", "16.7", "33.4", "1,234 bars, 98% drawn")
    )
    assert "drawn" not in _printed(replace(result, browser=None))


def _printed(result: FaceResult) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(table_of(result))
    return cast("StringIO", console.file).getvalue()
