"""The page of the experiment on forecasts for deadlines."""

from dataclasses import replace
from pathlib import Path

from research.studies.deadline_forecasts import _draw, _page
from research.studies.results import Results


def test_page_has_the_bins_and_the_gap_weighted_by_jobs(tmp_path: Path) -> None:
    rows = [
        {"log": "KTH", "low": 0.8, "high": 0.9, "jobs": 30, "predicted": 0.85, "observed": 0.80},
        {"log": "KTH", "low": 0.9, "high": 1.0, "jobs": 10, "predicted": 0.95, "observed": 1.0},
        {"log": "CTC", "low": 0.9, "high": 1.0, "jobs": 5, "predicted": 0.95, "observed": 0.75},
    ]
    page = _page(rows, "picture.png")
    assert "| KTH | 80 to 90 | 30 | 85.0 | 80.0 |" in page
    assert "| KTH | 40 | 5.0 |" in page
    assert "| CTC | 5 | 20.0 |" in page
    _draw(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1_000


def test_rows_of_other_logs_stay_if_the_same_sources_found_them(tmp_path: Path) -> None:
    results = Results.of("deadline_forecasts", "", tmp_path, quick=False)
    assert results.rows_of_others("log", ()) == []
    results.write({"results": [{"log": "CTC"}, {"log": "KTH"}]}, "", "2 rows")
    assert results.rows_of_others("log", {"KTH"}) == [{"log": "CTC"}]
    assert replace(results, sources="older").rows_of_others("log", {"KTH"}) == []
