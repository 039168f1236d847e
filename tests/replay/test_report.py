"""Tables, JSON and the picture of replays."""

import json
import re
import warnings
from dataclasses import replace
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from schedd.predict import ProbabilityBin
from schedd.replay.coverage import CoveragePart
from schedd.replay.metrics import measure, series
from schedd.replay.plot import draw, save
from schedd.replay.report import (
    coverage_parts_table,
    end_estimate_table,
    fit_table,
    quality_table,
    speed_table,
    to_json,
)
from schedd.replay.result import TIMINGS, ReplayResult
from schedd.replay.start_estimates import StartEstimateFigures
from tests.property_examples import some

SUBMIT, START, END, PROCS = [0, 0, 10], [0, 0, 100], [100, 5, 104], [2, 2, 4]


def result(log: str = "KTH", policy: str = "easy") -> ReplayResult:
    return ReplayResult(
        log=log,
        policy=policy,
        estimates="exact",
        procs=4,
        jobs=3,
        skipped=1,
        metrics=measure(SUBMIT, START, END, PROCS, ["a", "b", "a"], 4),
        promise_breaches=0,
        repairs=2,
        wall_s=0.5,
        cpu_s=0.4,
        events_per_s=12.0,
        plan_add_us_mean=36.6,
        plan_add_us_p99=None,
        repair_us_p99=812.4,
        unix_start_time=843480031,
        series=series(SUBMIT, START, END, PROCS, 4),
    )


def printed(table: Table, width: int = 200) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_json_has_every_promised_field_and_the_timings_come_last() -> None:
    (row,) = json.loads(to_json([result()]))
    promised = (
        "log policy estimates jobs skipped avg_wait_s p95_wait_s max_wait_s avg_response_s avg_slowdown "
        "avg_bounded_slowdown avg_bounded_slowdown_10s makespan_s utilisation fairness_nuwt_stddev "
        "promise_breaches wall_s events_per_s plan_add_us_mean plan_add_us_p99"
    )
    assert set(promised.split()) <= set(row)
    assert tuple(row)[-len(TIMINGS) :] == TIMINGS
    assert (row["log"], row["jobs"], row["avg_wait_s"], row["plan_add_us_p99"]) == ("KTH", 3, 30.0, None)


def test_two_runs_agree_but_for_the_timings() -> None:
    slower = replace(result(), wall_s=9.0, events_per_s=1.0, plan_add_us_mean=80.0, repair_us_p99=None)
    rows = [json.loads(to_json([run]))[0] for run in (result(), slower)]
    assert {key for key in rows[0] if rows[0][key] != rows[1][key]} <= set(TIMINGS)


def test_table_names_each_log_once_and_marks_unmeasured_figures() -> None:
    runs = [result(policy="fcfs"), result(), result(log="CTC")]
    quality, speed = printed(quality_table(runs)), printed(speed_table(runs))
    assert quality.count("KTH") == 1
    assert quality.count("54.33") == 3
    assert "36.6" in speed
    assert " - " in speed


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_tables_wider_than_the_terminal_have_a_column_for_each_policy(width: int) -> None:
    console = Console(width=width)
    runs = [result(policy=policy) for policy in ("conservative", "fcfs", "sjf", "easy", "aggressive")]
    runs += [result(log="CTC", policy="easy"), result(log="CTC")]
    for wide in (quality_table(runs), speed_table(runs)):
        text = "".join(printed(table, width) for table in fit_table(wide, console))
        words = re.findall(r"[^│\n]+", text)
        assert {word.strip() for word in words} >= {"KTH", "CTC", "conservative", "aggressive"}
        assert all(len(line) <= width for line in text.splitlines())
        for column in wide.columns[2:]:
            assert re.search(rf"│ +{re.escape(str(column.header))} +│", text), "no word is broken"


def test_forecasts_of_ends_are_shown_by_tenths() -> None:
    told = StartEstimateFigures(expected_ends=(ProbabilityBin(0.9, 1.0, 1_000, 0.95, 0.94),))
    table = end_estimate_table([result(), replace(result(policy="tabu"), accuracy=told)], MARKDOWN)
    assert table is not None
    lines = printed(table).strip().splitlines()
    assert [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines][2:] == [
        ["KTH", "tabu", "90 to 100", "1,000", "95.0", "94.0"]
    ]
    assert end_estimate_table([result()]) is None


def test_coverage_is_shown_by_30_days_and_user_tenth() -> None:
    told = StartEstimateFigures(
        expected_jobs=1234,
        expected_months=(CoveragePart(1, 1000, 0.91), CoveragePart(3, 234, 0.875)),
        expected_tenths=(CoveragePart(10, 77, 1.0),),
    )
    runs = [
        result(),
        replace(result(policy="tabu"), accuracy=told),
        replace(result(), accuracy=StartEstimateFigures()),
    ]
    table = coverage_parts_table(runs, MARKDOWN)
    assert table is not None
    lines = printed(table).strip().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert rows[2:] == [
        ["KTH", "tabu", "days 1 to 30", "1,000", "91.0"],
        ["", "", "days 61 to 90", "234", "87.5"],
        ["", "", "users, tenth 10", "77", "100.0"],
    ]
    assert coverage_parts_table([result()]) is None
    (row,) = json.loads(to_json([runs[1]]))
    assert row["expected_months"][1] == {"number": 3, "jobs": 234, "p90_coverage": 0.875}
    assert row["expected_tenths"] == [{"number": 10, "jobs": 77, "p90_coverage": 1.0}]


def test_a_table_can_be_printed_for_a_document() -> None:
    lines = printed(quality_table([result()], box=MARKDOWN)).strip().splitlines()
    assert lines[0].startswith("| log ")
    assert lines[1].startswith("|--")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_picture_format_follows_the_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"replay.{suffix}"
    save([result(policy="fcfs"), result()], path)
    magic = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(magic)


def test_picture_has_four_panels_per_log_and_a_line_per_policy() -> None:
    figure = draw([result(policy="fcfs"), result(), result(log="CTC")])
    assert len(figure.axes) == 8
    assert [len(axes.lines) for axes in figure.axes] == [0, 2, 0, 2, 0, 1, 0, 1]
    waits, slowdowns = figure.axes[0], figure.axes[2]
    assert (waits.get_xscale(), slowdowns.get_xscale()) == ("log", "log")
    ends = [bar.get_x() + bar.get_width() for bar in waits.patches if isinstance(bar, Rectangle)]
    assert max(ends) == pytest.approx(max(result().metrics.p95_wait_s, result().metrics.avg_wait_s, 1.0))


def test_a_picture_needs_no_course_no_date_and_no_waiting() -> None:
    bare = replace(
        result(),
        unix_start_time=None,
        series=None,
        metrics=measure([0], [0], [9], [1], ["a"], 4),
        estimates="user",
    )
    assert draw([bare, replace(bare, series=series([0], [0], [9], [1], 4))]).axes
    with pytest.raises(ValueError, match="no results"):
        draw([])


@pytest.mark.parametrize(("logs", "policies"), some([(1, 15), (1, 1), (1, 5), (3, 9), (2, 15)]))
def test_nothing_in_a_picture_lies_over_anything_else(logs: int, policies: int) -> None:
    results = [
        result(log=f"log {log}", policy=f"easy-area-{policy}h")
        for log in range(logs)
        for policy in range(policies)
    ]
    figure = draw(results)
    FigureCanvasAgg(figure)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layout that does not fit is one
        figure.savefig(BytesIO())
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert min(box.width for box in boxes) > 0.2 * figure.bbox.width
    titles = {axes.get_title(loc="left") for axes in figure.axes}
    texts: list[Any] = [text for axes in figure.axes for text in axes.findobj(Text)]
    boxes += [text.get_window_extent() for text in texts if text.get_text() in titles]
    assert len(boxes) == 2 * len(figure.axes)
    for block in figure.subfigs:
        boxes += [legend.get_window_extent() for legend in block.legends]
        assert len(block.legends) == 1
    shown = [box for box in boxes if box.width > 0]
    assert not [1 for one, other in combinations(shown, 2) if one.overlaps(other)]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in shown)


def test_policies_in_a_picture_have_different_styles() -> None:
    figure = draw([result(policy=f"easy-{number}h") for number in range(20)])
    (queue,) = [axes for axes in figure.axes if axes.get_yscale() == "symlog"]
    looks = {(line.get_color(), line.get_linestyle()) for line in queue.lines}
    assert len(looks) == 20
