"""Experiments: cells as data, run by real dask workers, continued where they ended, and their pages."""

import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from dask.distributed import LocalCluster
from matplotlib.backends.backend_agg import FigureCanvasAgg

import schedd
from schedd.cli.experiments import command as experiment_command
from schedd.cli.main import main
from schedd.replay.experiments import cells as cells_module
from schedd.replay.experiments import parallel
from schedd.replay.experiments.cells import (
    _SEARCH_ALONE,
    _TELLS,
    Cell,
    Search,
    Workload,
    _prepared,
    busiest,
    code_version,
    run_cell,
)
from schedd.replay.experiments.named import EXPERIMENTS, Experiment, of_part, quick
from schedd.replay.experiments.parallel import run_cells
from schedd.replay.experiments.picture import draw
from schedd.replay.experiments.report import lines_of, page
from schedd.replay.experiments.results import Found, Results
from schedd.replay.floor import Defect
from schedd.replay.streams import stream
from schedd.replay.workload import TraceError, TraceJob

STREAM = Workload(log="stream", every_s=3, jobs=40)


def swf(path: Path, jobs: int = 90) -> None:
    random = np.random.default_rng(7)
    lines = ["; MaxProcs: 8"]
    for i in range(jobs):
        run, procs = int(random.integers(60, 600)), int(random.integers(1, 9))
        lines.append(f"{i + 1} {40 * i} -1 {run} {procs} -1 -1 {procs} {2 * run} -1 1 {i % 4} 1 1 1 1 -1 -1")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    path = tmp_path / "logs"
    path.mkdir()
    swf(path / "small.swf")
    return path


SMALL = Workload(log="small.swf")


def small(curve: Any = "") -> Experiment:
    """Two rivals and a search of two seeds."""
    found = [Cell(workload=SMALL, name=name, policy=name) for name in ("easy", "conservative")]
    found += [
        Cell(
            workload=SMALL,
            name="tabu",
            policy="conservative",
            slack="off",
            search=Search(seed=seed, moves=40),
        )
        for seed in (1, 2)
    ]
    return Experiment(name="small", about="A test.", cells=tuple(found), against=True, curve=curve)


# ---- cells --------------------------------------------------------------------------------------


def test_every_experiment_has_cells_that_can_be_told_apart() -> None:
    for experiment in EXPERIMENTS.values():
        keys = [json.dumps(cell.as_dict(), sort_keys=True) for cell in experiment.cells]
        assert len(set(keys)) == len(keys) > 10
        assert 0 < len(quick(experiment).cells) <= len(keys)


def test_a_cell_gives_the_row_of_its_replay_and_the_bound(logs: Path) -> None:
    easy, plan, one, two = (run_cell(cell, str(logs)) for cell in small().cells)
    assert 0 < easy["bound_wait_s"] == plan["bound_wait_s"] <= min(easy["avg_wait_s"], one["avg_wait_s"])
    assert one["searches"] > 3
    assert (one["slack"], plan["slack"]) == ("off", "0")
    assert one["avg_wait_s"] < plan["avg_wait_s"]
    assert {one["policy"], two["policy"]} == {"tabu"}


def test_parts_of_a_log_are_its_first_third_and_the_rest(logs: Path) -> None:
    def ids(part: str) -> list[object]:
        experiment = of_part(small(), part)  # type: ignore[arg-type]
        return [job.id for job in _prepared(experiment.cells[0].workload, str(logs)).jobs]

    assert ids("whole") == list(range(1, 91))
    assert ids("first third") == list(range(1, 31))
    assert ids("rest") == list(range(31, 91))
    assert ids("busiest") == list(range(31, 91))
    light, heavy = (TraceJob(0, 0, run, 1) for run in (10, 1000))
    jobs = [replace(heavy if 40 <= i < 50 else light, submit=i) for i in range(100)]
    assert busiest(jobs, 10) == 40
    assert busiest(jobs, 100) == 0


def test_estimates_are_blurred_by_a_factor_but_never_above_the_users(logs: Path) -> None:
    def estimates(name: str) -> np.ndarray:
        jobs = _prepared(replace(SMALL, estimates=name), str(logs)).jobs
        return np.array([job.estimate / job.run for job in jobs])

    assert (estimates("exact") == 1).all()
    assert (estimates("user") == 2).all()
    doubled = estimates("x2")
    assert (doubled <= 2).all()
    assert 1.75 < doubled.min() < doubled.max() == 2
    with pytest.raises(TraceError, match="estimates 'xx'"):
        estimates("xx")


def test_requirements_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "m.machines").write_text("# site\n1\ta\t2\t4\t1.0\t0\n2\tb\t2\t4\t1.0\t0\n")
    fields = "1 0 -1 10 4 -1 -1 4 20 -1 1 1 1 1 1 1 -1 -1 {} q"
    (tmp_path / "n.swf").write_text(f"; MaxProcs: 16\n{fields} 1:ppn=4:b\n")
    workload = Workload(log="n.swf", machines="m.machines")
    bare = _prepared(replace(workload, requirements=False), str(tmp_path))
    assert bare.asks[0].resources == {"procs": "4"}
    assert _prepared(workload, str(tmp_path)).asks[0].resources["nodes"] == "1:ppn=4:b"


def test_streams_are_what_they_say() -> None:
    trace, site = stream(2000, 3, 5)
    assert stream(2000, 3, 5) == (trace, site) != stream(2000, 3, 6)
    assert len(site.nodes) == 150
    assert {node.cpus for node in site.nodes} == set(range(1, 17))
    runs = np.array([job.run for job in trace.jobs])
    assert (runs.min() >= 500, runs.max() <= 3000) == (True, True)
    assert 2.6 < trace.jobs[-1].submit / 2000 < 3.4
    due = [job for job in trace.jobs if job.deadline is not None]
    assert 0.65 < len(due) / 2000 < 0.75
    assert all(job.deadline is not None and job.deadline >= job.submit + job.run for job in due)
    with pytest.raises(ValueError, match="above 0"):
        stream(10, 0, 1)


def test_failures_kill_jobs_and_have_no_bound() -> None:
    cell = Cell(workload=replace(STREAM, failures=(0.05, 0.05)), name="easy", policy="easy")
    row = run_cell(cell, "")
    assert row["killed_jobs"] > 0
    assert row["bound_wait_s"] is None


# ---- results ------------------------------------------------------------------------------------


def row(wait: float, slowdown: float = 2.0, *, slack: str = "", searches: int = 0) -> dict[str, object]:
    return {
        "jobs": 9, "slack": slack, "searches": searches, "avg_wait_s": wait, "p999_wait_s": 50.0,
        "avg_bounded_slowdown_10s": slowdown, "max_wait_s": 60, "held_share": None, "told_late_s": None,
        "bound_wait_s": 3.25, "promise_breaches": 0,
    }  # fmt: skip


ROWS = [
    row(10),
    row(12, slack="0"),
    row(8, 1.5, slack="off", searches=4),
    row(9, 2.9, slack="off", searches=4),
]


def found() -> list[Found]:
    return [Found(cell, each, "abc") for cell, each in zip(small().cells, ROWS, strict=True)]


def test_results_are_kept_cell_by_cell_and_count_for_this_program_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = small().cells

    def results() -> Results:
        opened = Results(tmp_path / "r.json", cells, "command")
        opened.load()
        return opened

    first = results()
    assert first.missing() == list(cells)
    first.add(cells[1], ROWS[1])
    assert results().missing() == [cells[0], *cells[2:]]
    assert [each.row for each in results().found()] == [ROWS[1]]
    code_version.cache_clear()
    monkeypatch.setattr(cells_module, "_DECIDES", ("wire",))
    assert results().missing() == list(cells)
    code_version.cache_clear()


@pytest.mark.parametrize("text", ["", "[]", '{"cells": [1]}', "{}"])
def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(TraceError, match="not the result of an experiment"):
        Results(path, small().cells, "").load()


def test_the_page_has_means_with_their_spread_the_bound_and_who_dominates() -> None:
    text = page(small(), found(), "schedd experiment small", "small.png")
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
    told = [replace(each, row={**each.row, "held_share": 0.9, "told_late_s": 7.0}) for each in found()]
    text = page(replace(small(), figures=("wait", "held")), told, "", "")
    assert "*Held*: jobs that began by the start first told" in text
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
        rows.append({**ROWS[0], **told, "searches": searches, "held_share": 0.97, "told_late_s": 7.0})
    return experiment, [Found(cell, row, "abc") for cell, row in zip(experiment.cells, rows, strict=True)]


def test_windows_are_told_by_their_ratios_to_easy_and_how_many_are_no_worse_in_all_four() -> None:
    experiment, found = windows()
    text = page(experiment, found, "schedd experiment windows", "windows.png")
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
    figure = draw(experiment, lines_of(found))
    assert [len(axes.patches) for axes in figure.axes] == [2, 2, 2, 2]
    with pytest.raises(ValueError, match="under both"):
        draw(experiment, lines_of(found[:1]))


def test_the_windows_are_eighteen_beyond_the_first_thirds_and_none_overlaps_another() -> None:
    experiment = EXPERIMENTS["windows"]
    jobs = {"KTH": 28_481, "CTC": 77_205, "SDSC-SP2": 54_034, "SDSC-BLUE": 232_542, "HPC2N": 202_876}
    of = {(cell.workload.log, cell.workload.skip) for cell in experiment.cells}
    assert len(of) == 18
    assert len(experiment.cells) == 36
    for log, skip in of:
        all_jobs = next(n for name, n in jobs.items() if log.startswith(name))
        assert all_jobs // 3 <= skip <= all_jobs - 10_000
        assert not any(other == log and 0 < begin - skip < 10_000 for other, begin in of)
    assert {cell.slack for cell in experiment.cells if cell.search} == {"1h+0.5w"}


def test_a_window_begins_behind_the_jobs_that_it_passes_over(logs: Path) -> None:
    whole = _prepared(SMALL, str(logs)).jobs
    assert _prepared(replace(SMALL, skip=20, jobs=30), str(logs)).jobs == whole[20:50]
    assert _prepared(replace(SMALL, part="rest", skip=10), str(logs)).jobs == whole[40:]


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


# ---- the command --------------------------------------------------------------------------------


def command(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "schedd.cli.main", "experiment", *map(str, args)],
        capture_output=True, text=True, timeout=180, check=False, env=os.environ,
    )  # fmt: skip


def test_an_experiment_runs_on_workers_and_goes_on_where_it_ended(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (logs / "small.swf").rename(logs / "KTH-SP2-1996-2.swf.gz")
    args = ("users-estimates", "--quick", "--only", "KTH", "--logs", logs, "--out", out, "--workers", "2")
    done = command(*args)
    assert (done.returncode, done.stderr) == (0, "")
    assert "16 of 80 replays" in done.stdout, "the other four logs are not here"
    page = (out / "users-estimates-quick.md").read_text()
    assert "schedd experiment users-estimates --quick --logs LOGS" in page
    assert "**64 more were not run yet.**" in page
    assert "KTH-SP2-1996-2, user (90 jobs)" in page
    assert (out / "users-estimates-quick.png").read_bytes().startswith(b"\x89PNG")
    saved = out / "users-estimates-quick.json"
    kept = json.loads(saved.read_text())
    assert len(kept["cells"]) == 16
    # What one cell says now can only come from the file, for it is wrong.
    kept["cells"][0]["row"]["avg_wait_s"] = 123456.5
    lost = kept["cells"].pop()
    saved.write_text(json.dumps(kept))
    assert command(*args).returncode == 0
    again = json.loads(saved.read_text())
    assert again["cells"][0]["row"]["avg_wait_s"] == 123456.5
    assert again["cells"][-1]["cell"] == lost["cell"]
    assert again["cells"][-1]["row"]["avg_wait_s"] == lost["row"]["avg_wait_s"]


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("nothing",), "no experiment 'nothing': there are paper, users-estimates"),
        (("paper", "--logs", "LOGS"), "it has no CTC-SP2-1996-3.1-cln.swf.gz"),
        (("paper", "--only", "nobody", "--logs", "LOGS"), "--only nobody: the experiment has no such log"),
        (("deadlines", "--workers", "0"), "--workers 0: at least 1"),
        (("windows", "--part", "rest", "--logs", "LOGS"), "windows has no --part"),
    ],
)
def test_what_cannot_be_run_is_one_clear_line(
    logs: Path, args: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", *(str(logs) if arg == "LOGS" else arg for arg in args)]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1


def test_without_a_name_the_experiments_are_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name} (" in shown for name in EXPERIMENTS)


def test_without_dask_it_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "dask.distributed", None)
    assert main(["experiment", "deadlines", "--quick", "--out", str(tmp_path)]) == 1
    assert "pip install 'schedd[experiments]'" in capsys.readouterr().err


def test_a_dask_scheduler_that_does_not_answer_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parallel, "_ANSWER_S", 1)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        assert main(["experiment", "deadlines", "--quick", "--out", str(tmp_path), "--dask", address]) == 2
    assert "schedd experiment:" in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["conservative", "easy-xf-24h"])
def test_what_counts_as_the_searchs_own_source_is_never_run_without_a_search(logs: Path, policy: str) -> None:
    """Or results of rivals would be kept that another program found."""
    root = Path(schedd.__file__).parent
    own = {path for name in _SEARCH_ALONE for path in root.glob(name + ("*.py" if name[-1] == "/" else ""))}
    assert len(own) > len(_SEARCH_ALONE)
    run: set[Path] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            run.add(Path(frame.f_code.co_filename))

    cell = Cell(workload=SMALL, name=policy, policy=policy)
    run_cell(cell, str(logs))  # kernels are loaded, or compiled, before anybody looks
    sys.setprofile(note)
    try:
        run_cell(cell, str(logs))
    finally:
        sys.setprofile(None)
    assert root / "plan" / "plan.py" in run
    assert not own & run
    # Kernels are compiled and leave no trace here: their own are imported by nothing but the searches.
    for name in ("moves", "propose"):
        users = {p for p in root.rglob("*.py") if re.search(rf"kernels(\.| import ){name}\b", p.read_text())}
        assert users <= {root / "optimize" / "search.py", *own}, name
    assert code_version(search=False) != code_version(search=True)
    assert all((root / name).is_file() for name in _TELLS)


def test_a_dask_scheduler_that_runs_already_is_used_if_its_workers_have_this_program(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [*small().cells[:2], replace(small().cells[0], policy="nonsense")]
    rows: dict[str, dict[str, Any]] = {}
    with LocalCluster(
        processes=False, protocol="tcp://", host="127.0.0.1", n_workers=1, threads_per_worker=1,
        dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
    ) as cluster:  # fmt: skip
        address = cluster.scheduler_address
        failed = run_cells(cells, str(logs), lambda cell, row: rows.update({cell.name: row}), address=address)
        assert set(rows) == {"easy", "conservative"}
        assert rows["easy"]["avg_wait_s"] == run_cell(cells[0], str(logs))["avg_wait_s"]
        # One that fails does not keep the others from running.
        assert [(cell.policy, type(error)) for cell, error in failed] == [("nonsense", KeyError)]
        monkeypatch.setattr(parallel, "code_version", lambda: threading.current_thread().name)
        with pytest.raises(TraceError, match="workers run another version of schedd"):
            run_cells(cells, str(logs), lambda *_: None, address=address)


def test_a_dask_scheduler_that_dies_fails_the_cells_that_it_had_and_ends_the_wait(logs: Path) -> None:
    cells = list(small().cells)
    seen: list[str] = []
    root = Path(schedd.__file__).parents[1]
    words = [sys.executable, "-c", _SCHEDULER]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd=root) as scheduler:
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().strip()

        def done(cell: Cell, row: dict[str, Any]) -> None:
            seen.append(cell.name)
            scheduler.kill()

        try:
            failed = run_cells(cells, str(logs), done, address=address)
        finally:
            scheduler.kill()
    assert seen
    assert len(seen) + len(failed) == len(cells)
    assert failed


_SCHEDULER = """
from dask.distributed import LocalCluster
with LocalCluster(
    processes=False, protocol="tcp://", host="127.0.0.1", n_workers=1, threads_per_worker=1,
    dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
) as cluster:
    print(cluster.scheduler_address, flush=True)
    input()
"""


def test_a_defect_of_the_engine_is_told_apart_from_what_fails_elsewhere(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (logs / "small.swf").rename(logs / "KTH-SP2-1996-2.swf.gz")

    def fail(cells: Sequence[Cell], *_: object, **__: object) -> list[tuple[Cell, Exception]]:
        return [(cells[0], Defect("a job started twice")), (cells[1], OSError("the worker is gone"))]

    monkeypatch.setattr(experiment_command, "run_cells", fail)
    args = ["experiment", "users-estimates", "--quick", "--only", "KTH", "--logs", str(logs)]
    assert main([*args, "--out", str(tmp_path)]) == 3
    said = capsys.readouterr().err
    assert "a job started twice" in said
    assert "the worker is gone" in said


def test_another_log_keeps_what_was_found_of_the_first(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KTH-SP2-1996-2.swf.gz", "CTC-SP2-1996-3.1-cln.swf.gz"):
        (logs / name).write_text("")

    def run_all(
        cells: Sequence[Cell], _: str, done: Callable[[Cell, dict[str, object]], None], **__: object
    ) -> list[tuple[Cell, Exception]]:
        for cell in cells:
            searched = cell.search is not None
            done(cell, row(10, slack="off" if searched else "", searches=4 * searched))
        return []

    monkeypatch.setattr(experiment_command, "run_cells", run_all)
    args = ["experiment", "users-estimates", "--quick", "--logs", str(logs), "--out", str(tmp_path), "--only"]
    for log in ("KTH", "CTC"):
        assert main([*args, log]) == 0
    kept = json.loads((tmp_path / "users-estimates-quick.json").read_text())["cells"]
    assert {each["cell"]["workload"]["log"][:3] for each in kept} == {"KTH", "CTC"}
    text = (tmp_path / "users-estimates-quick.md").read_text()
    assert "KTH-SP2-1996-2, user" in text
    assert "CTC-SP2-1996-3.1-cln, user" in text
