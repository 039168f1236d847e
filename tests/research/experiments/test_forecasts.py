"""The page of the experiment on forecasts of starts and ends."""

from dataclasses import asdict, replace
from pathlib import Path

from research.studies.forecasts import _draw, _page, _sources
from research.studies.results import Results
from schedd.predict.probability_calibration import ProbabilityBin
from schedd.replay.coverage import CoveragePart
from schedd.replay.end_estimates import AcceptedDeadlines
from schedd.replay.start_estimates import StartEstimateFigures


def test_page_has_coverage_bins_and_the_gap_weighted_by_jobs(tmp_path: Path) -> None:
    figures = StartEstimateFigures(
        expected_jobs=1_200,
        expected_p50_coverage=0.5,
        expected_p90_coverage=0.9,
        expected_error_s=1_510.0,
        expected_error_ratio=0.23,
        expected_months=(CoveragePart(1, 700, 0.88), CoveragePart(2, 500, 0.92)),
        expected_ends=(ProbabilityBin(0.8, 0.9, 30, 0.85, 0.80), ProbabilityBin(0.9, 1.0, 10, 0.95, 1.0)),
        expected_deadlines=(AcceptedDeadlines(0.8, 40, 0.825), AcceptedDeadlines(0.95, 40, 0.95)),
    )
    rows = [
        {"log": "KTH", "mode": "repair", **asdict(figures)},
        {"log": "KTH", "mode": "search", **asdict(StartEstimateFigures())},
    ]
    page = _page(rows, "picture.png")
    assert "| KTH | repair | 1,200 | 50.0 | 90.0 | - | - | 1,510 | 0.23 | - | - | - |" in page
    assert "| KTH | search | - | - |" in page
    assert "| KTH | 88.0 to 92.0 % in 2 | - |" in page
    assert "| KTH | 80 to 90 | 30 | 85.0 | 80.0 | |" in page
    assert "| KTH | all | 40 | | | 5.0 |" in page
    assert "| log | 80 % | 95 % |" in page
    assert "| KTH | 82.5 | 95.0 |" in page
    _draw(rows, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1_000


def test_rows_of_other_logs_stay_with_the_version_that_found_them(tmp_path: Path) -> None:
    results = Results.of("forecasts", "", tmp_path, quick=False)
    assert results.rows_of_others("log", ()) == []
    results.write({"results": [{"log": "CTC"}, {"log": "KTH"}]}, "", "2 rows")
    kept = replace(results, sources="newer").rows_of_others("log", {"KTH"})
    assert kept == [{"log": "CTC", "sources": results.sources}]
    rows = [{"log": "KTH", "sources": "newer"}, *kept, {"log": "SDSC", "sources": "newer"}]
    stated = _sources(rows)
    assert stated == f"newer (KTH, SDSC); {results.sources} (CTC)"
    results.write({"sources": stated, "results": rows}, "", "3 rows")
    assert f"Version of the sources: {stated}.\n" in (tmp_path / "forecasts.md").read_text(encoding="utf-8")
    assert _sources(rows[:1]) == "newer"
