"""`python -m research experiment`: cells run by real dask workers and continued where they ended."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dask.distributed import LocalCluster

import schedd
from research.__main__ import main
from research.experiments import parallel
from research.experiments.cells import (
    Cell,
    run_cell,
)
from research.experiments.named import EXPERIMENTS
from research.experiments.parallel import run_cells
from research.studies import command as experiment_command
from schedd.replay.machine_state import ReplayDefectError
from schedd.replay.workload import TraceError
from tests.research.experiments.experiment import row, small


def command(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "research", "experiment", *map(str, args)],
        capture_output=True, text=True, timeout=180, check=False, env=os.environ,
    )  # fmt: skip


def test_an_experiment_runs_on_workers_and_goes_on_where_it_ended(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (logs / "small.swf").rename(logs / "KTH-SP2-1996-2.swf.gz")
    args = ("slack-curve", "--quick", "--only", "KTH", "--logs", logs, "--out", out, "--workers", "2")
    done = command(*args)
    # On a busy machine a worker may say that its scheduler was gone at the end before its last heartbeat.
    assert done.returncode == 0, done.stderr
    assert "10 of 20 replays" in done.stdout, "the other log is not here"
    page = (out / "slack-curve-quick.md").read_text()
    assert "python -m research experiment slack-curve --quick --logs LOGS" in page
    assert "**10 more were not run yet.**" in page
    assert "KTH-SP2-1996-2, user (90 jobs)" in page
    assert (out / "slack-curve-quick.png").read_bytes().startswith(b"\x89PNG")
    saved = out / "slack-curve-quick.json"
    kept = json.loads(saved.read_text())
    assert len(kept["cells"]) == 10
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
        (("nothing",), "no experiment 'nothing': there are paper, windows"),
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
    assert "python -m research experiment:" in capsys.readouterr().err


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
        # A failed one does not keep the others from running.
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
        return [
            (cells[0], ReplayDefectError("a job started twice")),
            (cells[1], OSError("the worker is gone")),
        ]

    monkeypatch.setattr(experiment_command, "run_cells", fail)
    args = ["experiment", "slack-curve", "--quick", "--only", "KTH", "--logs", str(logs)]
    assert main([*args, "--out", str(tmp_path)]) == 3
    said = capsys.readouterr().err
    assert "a job started twice" in said
    assert "the worker is gone" in said


def test_another_log_keeps_what_was_found_of_the_first(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KTH-SP2-1996-2.swf.gz", "SDSC-SP2-1998-4.2-cln.swf.gz"):
        (logs / name).write_text("")

    def run_all(
        cells: Sequence[Cell], _: str, done: Callable[[Cell, dict[str, object]], None], **__: object
    ) -> list[tuple[Cell, Exception]]:
        for cell in cells:
            searched = cell.search is not None
            done(cell, row(10, slack="off" if searched else "", searches=4 * searched))
        return []

    monkeypatch.setattr(experiment_command, "run_cells", run_all)
    args = ["experiment", "slack-curve", "--quick", "--logs", str(logs), "--out", str(tmp_path), "--only"]
    for log in ("KTH", "SDSC"):
        assert main([*args, log]) == 0
    kept = json.loads((tmp_path / "slack-curve-quick.json").read_text())["cells"]
    assert {each["cell"]["workload"]["log"][:3] for each in kept} == {"KTH", "SDS"}
    text = (tmp_path / "slack-curve-quick.md").read_text()
    assert "KTH-SP2-1996-2, user" in text
    assert "SDSC-SP2-1998-4.2-cln, user" in text
