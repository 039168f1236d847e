"""Figures of published starts that get later, and the page of the experiment."""

import json
from pathlib import Path

import pytest

from research.experiments.displayed_starts import DisplayedStarts
from research.studies import slips


def test_delays_are_counted_by_age_from_the_last_publication() -> None:
    watch = DisplayedStarts(threshold=60)
    for start, now in ((1_000, 0), (1_060, 30), (1_500, 100), (1_200, 400), (3_000, 5_000)):
        watch._record("1", start, now)
    found = watch.figures()
    assert found.published == 5
    assert found.later == {60: 0, 120: 1, 300: 1, 600: 1, 1200: 1, 1800: 1, 3600: 1}
    assert (found.mean_delay_s, found.longest_delay_s) == (440, 440)
    assert (found.jobs, found.jobs_delayed) == (1, 1)
    assert found.share == 0.2


def test_the_page_has_a_row_for_each_hold_and_keeps_other_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{i} {i} -1 100 4 -1 -1 4 200 -1 1 {i % 3} 1 1 1 1 -1 -1" for i in range(1, 13)]
    for name in ("a.swf", "b.swf"):
        (tmp_path / name).write_text("; MaxProcs: 4\n" + "\n".join(lines) + "\n")
    monkeypatch.setattr(slips, "_WINDOWS", {"a.swf": 0, "b.swf": 2})
    for only in (["a"], ["b"]):
        slips.run_slips(tmp_path, tmp_path / "out", quick=True, only=only)
    found = json.loads((tmp_path / "out" / "slips-quick.json").read_text())
    assert {row["log"] for row in found["results"]} == {"a", "b"}
    assert len(found["results"]) == 2 * len(slips._HOLDS_S) * len(slips._MODES)
    page = (tmp_path / "out" / "slips-quick.md").read_text()
    assert "python -m research experiment slips --quick --logs LOGS" in page
    assert page.count("| shortest | 600 |") == 2
    assert (tmp_path / "out" / "slips-quick.png").exists()
