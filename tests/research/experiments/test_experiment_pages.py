"""CellResults of experiments, kept cell by cell, and the pages and pictures made of them."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from research.experiments import cells as cells_module
from research.experiments.cells import (
    Cell,
    code_version,
    prepared_workload,
)
from research.experiments.named import EXPERIMENTS, Experiment
from research.experiments.picture import draw
from research.experiments.report import lines_of, page
from research.experiments.results import CellResults, Found
from schedd.replay.workload import TraceError
from tests.research.experiments.experiment import ROWS, SMALL, found, small


def test_results_are_kept_cell_by_cell_and_count_for_this_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = small().cells

    def results() -> CellResults:
        opened = CellResults(tmp_path / "r.json", cells, "command")
        opened.load()
        return opened

    first = results()
    assert first.missing() == list(cells)
    first.add(cells[1], ROWS[1])
    assert results().missing() == [cells[0], *cells[2:]]
    assert [each.row for each in results().found()] == [ROWS[1]]
    code_version.cache_clear()
    monkeypatch.setattr(cells_module, "_TELLS", ("schedd/wire/",))
    assert results().missing() == list(cells)
    code_version.cache_clear()


@pytest.mark.parametrize("text", ["", "[]", '{"cells": [1]}', "{}"])
def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(TraceError, match="not the result of an experiment"):
        CellResults(path, small().cells, "").load()


def test_the_page_has_means_with_their_spread_the_bound_and_who_dominates() -> None:
    text = page(small(), found(), "python -m research experiment small", "small.png")
    lines = text.splitlines()
    assert "| small (9 jobs) | *lower bound* |  | ≥ 3.25 |  |  |  |" in lines
    assert "|  | easy | 1 | 10 | 2 | 50 | 60 |" in lines
    assert "|  | tabu, slack off | 2 | 8.50 (8-9) | 2.20 (1.50-2.90) | 50 | 60 |" in lines
    # The search waits less, but its slowdown of 2.2 is above 2: it dominates nobody, and nobody it.
    assert "| easy | 0 | 0 | 1 |" in lines
    assert "| small | easy | bounded slowdown (10 s) | 2.20 | 2 |" in lines
    assert "not run yet" not in text
    better = [
        *found()[:2],
        *(replace(each, row={**each.row, "avg_bounded_slowdown_10s": 1.0}) for each in found()[2:]),
    ]
    text = page(small(), better, "", "")
    assert "| easy | 1 | 0 | 1 |" in text
    assert "Nowhere." in text
    assert "at most a tenth above that of `easy` on 1 of 1." in text
    starved = [*found()[:2], *(replace(each, row={**each.row, "max_wait_s": 67}) for each in found()[2:])]
    assert "above that of `easy` on 0 of 1." in page(small(), starved, "", "")
    worse = [replace(found()[0], row={**ROWS[0], "avg_wait_s": 1.0}), *found()[1:]]
    assert "| easy | 0 | 1 | 1 |" in page(small(), worse, "", "")
    assert "**1 more were not run yet.**" in page(small(), found()[:3], "", "")


def test_the_page_says_which_program_found_what_of_which_part() -> None:
    one, *others = found()
    busy = replace(one.cell, workload=replace(one.cell.workload, part="busiest"))
    text = page(small(), [replace(one, cell=busy, code="xyz"), *others], "", "")
    assert "4 replays by programs with the sources xyz (1), abc (3)." in text
    assert "Of each log the 9 jobs in a row that need most of the machine" in text
    assert "in a row" not in page(small(), found(), "", "")


def test_the_page_says_whether_promises_were_kept() -> None:
    assert "promise" not in page(small(), found(), "", "")
    told = [replace(each, row={**each.row, "held_share": 0.9, "start_delay_s": 7.0}) for each in found()]
    text = page(replace(small(), figures=("wait", "held")), told, "", "")
    assert "*Held*: jobs that started by their first published start" in text
    assert "No promise was broken" in text
    broken = [found()[0], replace(found()[1], row={**ROWS[1], "promise_breaches": 15}), *found()[2:]]
    text = page(small(), broken, "", "")
    assert "Promises broken by nodes that failed, small: conservative, 15." in text
    assert "*Held*" not in text


def windows() -> tuple[Experiment, list[Found]]:
    """Two windows under EASY and the search, one no worse in all four figures, one with a longer wait."""
    experiment = replace(EXPERIMENTS["windows"], cells=EXPERIMENTS["windows"].cells[:4])
    rows = []
    for wait, slowdown, p999, longest, searches in (
        (100, 50, 400, 1000, 0), (50, 20, 400, 500, 9), (100, 50, 400, 1000, 0), (50, 20, 100, 2000, 9)
    ):  # fmt: skip
        told = {
            "avg_wait_s": wait, "avg_bounded_slowdown_10s": slowdown,
            "p999_wait_s": p999, "max_wait_s": longest,
        }  # fmt: skip
        rows.append({**ROWS[0], **told, "searches": searches, "held_share": 0.97, "start_delay_s": 7.0})
    return experiment, [Found(cell, row, "abc") for cell, row in zip(experiment.cells, rows, strict=True)]


def test_windows_are_told_by_their_ratios_to_easy_and_how_many_are_no_worse_in_all_four() -> None:
    experiment, found = windows()
    text = page(experiment, found, "python -m research experiment windows", "windows.png")
    kth, ctc = "KTH-SP2-1996-2, from job 10,001 on, user", "CTC-SP2-1996-3.1-cln, from job 30,001 on, user"
    assert f"| {kth} | 0.50 | 0.40 | 1.00 | 0.50 | yes |" in text  # 1.00 is no worse
    assert f"| {ctc} | 0.50 | 0.40 | 0.25 | 2.00 |  |" in text
    assert "| **geometric mean** | 0.500 | 0.400 | 0.500 | 1.000 | 1 of 2 |" in text
    assert "| **worst** | 0.50 | 0.40 | 1.00 | 2.00 |  |" in text
    assert "left out" not in text
    text = page(experiment, found[:3], "", "")
    assert "1 of 2 windows are left out, since they were not run yet." in text
    assert "| **geometric mean** | 0.500 | 0.400 | 1.000 | 0.500 | 1 of 1 |" in text
    assert "None was run under both yet." in page(experiment, found[:1], "", "")
    last = EXPERIMENTS["windows"].cells[-18]
    assert (last.name, last.slack) == ("backfill-shortest", "1h+0.5w")
    shortest = Found(last, {**found[1].row, "searches": 0, "avg_wait_s": 80}, "abc")
    text = page(replace(experiment, cells=(*experiment.cells, last)), [*found, shortest], "", "")
    own = text.split("### backfill-shortest")[1]
    assert f"| {kth} | 0.80 | 0.40 | 1.00 | 0.50 | yes |" in own
    assert "| **geometric mean** | 0.800 |" in own
    assert f"| {kth} | 0.50 | 0.40 | 1.00 | 0.50 | yes |" in text
    figure = draw(experiment, lines_of(found))
    assert [len(axes.patches) for axes in figure.axes] == [2, 2, 2, 2]
    with pytest.raises(ValueError, match="under both"):
        draw(experiment, lines_of(found[:1]))


def test_the_windows_are_eighteen_beyond_the_first_thirds_and_none_overlaps_another() -> None:
    experiment = EXPERIMENTS["windows"]
    jobs = {"KTH": 28_481, "CTC": 77_205, "SDSC-SP2": 54_034, "SDSC-BLUE": 232_542, "HPC2N": 202_876}
    of = {(cell.workload.log, cell.workload.skip) for cell in experiment.cells}
    assert len(of) == 18
    assert len(experiment.cells) == 54
    for log, skip in of:
        all_jobs = next(n for name, n in jobs.items() if log.startswith(name))
        assert all_jobs // 3 <= skip <= all_jobs - 10_000
        assert not any(other == log and 0 < begin - skip < 10_000 for other, begin in of)
    assert {cell.slack for cell in experiment.cells if cell.search} == {"1h+0.5w"}


def test_a_window_begins_behind_the_jobs_that_it_passes_over(logs: Path) -> None:
    whole = prepared_workload(SMALL, str(logs)).jobs
    assert prepared_workload(replace(SMALL, skip=20, jobs=30), str(logs)).jobs == whole[20:50]
    assert prepared_workload(replace(SMALL, part="rest", skip=10), str(logs)).jobs == whole[40:]


def test_results_from_before_there_were_windows_still_count() -> None:
    cell = Cell(workload=SMALL, name="easy", policy="easy")
    assert "skip" not in cell.as_dict()["workload"]
    assert replace(cell, workload=replace(SMALL, skip=1)).as_dict()["workload"]["skip"] == 1


def test_a_loss_in_a_digit_that_tables_do_not_have_is_told_with_it() -> None:
    close = [*found()[:2], *(replace(each, row={**each.row, "max_wait_s": 2060.4}) for each in found()[2:])]
    close[0] = replace(close[0], row={**close[0].row, "max_wait_s": 2060.1})
    assert "| longest wait s | 2060.4 | 2060.1 |" in page(small(), close, "", "")


@pytest.mark.parametrize("curve", ["", "slack", "estimates", "every_s"])
def test_the_picture_has_a_panel_for_each_figure(curve: str) -> None:
    figure = draw(small(curve=curve), lines_of(found()))
    titles = [axes.get_title(loc="left").splitlines()[1] for axes in figure.axes]
    assert titles == ["mean wait s", "bounded slowdown (10 s)", "p99.9 wait s", "longest wait s"]
    drawn = figure.axes[0].patches if not curve else figure.axes[0].lines
    assert len(drawn) >= 3
    with pytest.raises(ValueError, match="nothing was run"):
        draw(small(curve=curve), [])


def test_only_over_slacks_is_a_policy_with_one_point_a_level() -> None:
    for curve, styles in (("slack", {"--"}), ("every_s", {"-"})):
        drawing = draw(small(curve=curve), lines_of(found()))
        assert {line.get_linestyle() for line in drawing.axes[0].lines} == styles


def test_a_line_far_beyond_the_others_does_not_flatten_them_and_is_named() -> None:
    far = [replace(each, row={**each.row, "avg_wait_s": 9e6}) for each in found() if each.cell.name == "easy"]
    others = [each for each in found() if each.cell.name != "easy"]
    wait, slowdown, *_ = draw(small(curve="slack"), lines_of([*far, *others])).axes
    assert [text.get_text() for text in wait.texts] == ["beyond: easy"]
    assert wait.get_ylim()[1] < 100
    assert not slowdown.texts


@pytest.mark.parametrize("mean", [0.4, 9.0, 17.0, 900.0, 99_000.0, 7e6])
def test_the_numbers_on_an_axis_are_where_they_stand(mean: float) -> None:
    alike = [replace(each, row={**each.row, "avg_wait_s": mean}) for each in found()]
    for curve, axis in (("", "xaxis"), ("slack", "yaxis")):
        drawing = draw(small(curve=curve), lines_of(alike))
        FigureCanvasAgg(drawing)
        drawing.savefig(io.BytesIO())
        ticks = getattr(drawing.axes[0], axis).get_major_ticks()
        assert 2 <= len(ticks) <= 7
        for tick in ticks:
            text = tick.label1.get_text().replace(",", "")
            told = float(text.removesuffix("k")) * (1000 if text.endswith("k") else 1)
            assert told == pytest.approx(tick.get_loc(), rel=1e-9)
