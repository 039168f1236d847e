"""The page of the experiment on forecasts for deadlines."""

from pathlib import Path

from research.studies.deadline_forecasts import _draw, _page


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
