"""`schedd bench face`: what it writes of pages, their data, and commands."""

import json
from pathlib import Path

import pytest

from schedd.bench import face
from schedd.bench.browser import Paints
from schedd.cli.bench import run

pytestmark = pytest.mark.timeout(400)  # the daemon may have to compile the kernels


@pytest.mark.parametrize("seen", [None, Paints({"plan": 100}, {"plan": 50}, (300, 200), 20)])
def test_pages_and_commands_are_measured_with_and_without_a_browser(
    seen: Paints | None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(face, "_TIMES", 1)
    monkeypatch.setattr(face, "paints", lambda *_: seen)  # the real one is that of tests/dashboard
    path = tmp_path / "face.json"
    assert run(["face", "--nodes", "12", "--jobs", "40", "--seed", "7", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    assert {one["name"].partition("?")[0].partition("/jobs")[0] for one in found["pages"]} >= {
        "/plan",
        "/queue",
        "/nodes",
        "/quality",
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
    assert ("drawn" in shown) == (seen is not None)
