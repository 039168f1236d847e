"""The experiment with predicted run times: nothing is known before it happened."""

import gzip
import json
import sys
from pathlib import Path

import pytest

from research.__main__ import main
from research.experiments import boosted
from research.experiments.run_times import fared, methods
from schedd.replay.workload import TraceJob


def job(i: int, submit: int, run: int, user: str = "ann", wait: int = 0) -> TraceJob:
    return TraceJob(id=i, submit=submit, run=run, procs=1, estimate=3600, user=user, wait=wait)


def habits(n: int = 900) -> list[TraceJob]:
    """Three users; every tenth job of each takes its whole walltime."""
    return [
        job(i, i * 10_000, 3600 if i // 3 % 10 == 9 else 100 * (1 + i % 3), f"u{i % 3}") for i in range(n)
    ]


def test_only_what_has_ended_is_known_at_a_submission() -> None:
    """The first job ends at 150, in the second in which the third comes; the second one did not know it."""
    found = fared("log", [job(0, 0, 100, wait=50), job(1, 149, 100), job(2, 150, 100)], "last two")
    assert found.mae_s == pytest.approx((3500 + 3500 + 0) / 3)


def test_walltimes_and_the_last_two_runs_have_no_p90() -> None:
    for method in ("walltime", "last two"):
        found = fared("log", habits(60), method)
        assert (found.p90_coverage, found.months_apart, found.tenths) == (None, None, ())


def test_the_daemons_predictions_are_nearer_and_cover_what_they_say() -> None:
    found = {method: fared("log", habits(), method) for method in ("walltime", "last two", "templates")}
    ours = found["templates"]
    assert ours.mae_s < found["last two"].mae_s < found["walltime"].mae_s
    assert ours.p90_coverage == pytest.approx(0.9, abs=0.03)
    assert len(ours.months) > 1
    assert len(ours.tenths) == 3, "users are not divided"
    assert ours.months_apart is not None


def write_log(folder: Path) -> None:
    line = "{0} {1} 0 {2} 4 -1 -1 4 3600 -1 1 {3} 1 1 1 1 -1 -1"
    lines = [line.format(one.id, one.submit, one.run, one.user[1:]) for one in habits(400)]
    packed = gzip.compress(("; MaxProcs: 100\n" + "\n".join(lines) + "\n").encode())
    (folder / "KTH-SP2-1996-2.swf.gz").write_bytes(packed)


def test_the_experiment_writes_a_page_figures_and_a_picture(tmp_path: Path) -> None:
    write_log(tmp_path)
    out = tmp_path / "out"
    words = ["experiment", "prediction", "--only", "KTH", "--logs", str(tmp_path), "--out", str(out)]
    assert main(words) == 0
    saved = json.loads((out / "prediction.json").read_text())
    assert [row["method"] for row in saved["results"]] == list(methods())
    page = (out / "prediction.md").read_text()
    assert "python -m research experiment prediction --only KTH --logs LOGS" in page
    assert "| KTH-SP2-1996-2 | walltime | 400 |" in page
    assert (out / "prediction.png").read_bytes().startswith(b"\x89PNG")


def test_boosted_trees_learn_habits_and_cover_what_they_say() -> None:
    pytest.importorskip("lightgbm")
    jobs = habits()
    found = fared("log", jobs, "LightGBM")
    assert found.median_error_s < 5, "the median of what users ask for is 3,400 s too long"
    # Of the first 200, before anything was learned, walltimes are told, which cover all.
    assert found.p90_coverage == pytest.approx((200 + 0.9 * 700) / 900, abs=0.03)
    again = fared("log", jobs, "LightGBM")
    assert (found.mae_s, found.p90_coverage) == (again.mae_s, again.p90_coverage)


def test_boosted_trees_know_nothing_of_jobs_that_have_not_ended() -> None:
    """All end after the last was submitted: each is told its walltime."""
    pytest.importorskip("lightgbm")
    jobs = [job(i, i, 3000 + i) for i in range(400)]
    assert fared("log", jobs, "LightGBM").mae_s == pytest.approx(3600 - 3000 - 399 / 2)


def test_without_lightgbm_the_others_are_run_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    assert not boosted.is_installed()
    write_log(tmp_path)
    words = ["experiment", "prediction", "--only", "KTH", "--logs", str(tmp_path), "--out", str(tmp_path)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "LightGBM is not installed" in said
    saved = json.loads((tmp_path / "prediction.json").read_text())
    assert [row["method"] for row in saved["results"]] == ["walltime", "last two", "templates"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--part", "busiest"], "has no --part"),
        (["--only", "Nothing"], "has no such log"),
        ([], "it has no KTH-SP2-1996-2.swf.gz"),
    ],
)
def test_what_it_cannot_run_is_one_clear_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", "prediction", *words, "--logs", str(tmp_path), "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
