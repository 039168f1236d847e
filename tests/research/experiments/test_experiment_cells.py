"""Cells of experiments as data: the replay of each, and its part of a log."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import schedd
from research.experiments.cells import (
    _SEARCH_ALONE,
    _TELLS,
    Cell,
    Workload,
    busiest,
    code_version,
    prepared_workload,
    run_cell,
)
from research.experiments.deadline_streams import stream
from research.experiments.named import EXPERIMENTS, of_part, quick
from schedd.replay.workload import TraceError, TraceJob
from tests.research.experiments.experiment import SMALL, small

STREAM = Workload(log="stream", every_s=3, jobs=40)


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
        return [job.id for job in prepared_workload(experiment.cells[0].workload, str(logs)).jobs]

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
        jobs = prepared_workload(replace(SMALL, estimates=name), str(logs)).jobs
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
    bare = prepared_workload(replace(workload, requirements=False), str(tmp_path))
    assert bare.requests[0].resources == {"procs": "4"}
    assert prepared_workload(workload, str(tmp_path)).requests[0].resources["nodes"] == "1:ppn=4:b"


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


def test_where_no_promise_holds_no_accepted_deadline_binds_a_search() -> None:
    cells = [cell for name in ("deadlines", "speeds") for cell in EXPERIMENTS[name].cells]
    free = [cell for cell in cells if cell.slack == "off" and not cell.name.endswith(", admission")]
    assert {cell.name for cell in free} == {"best-gap", "best-gap-edf", "tabu U+BSD"}
    crowded = Workload(log="stream", every_s=1, jobs=400)
    searched, admitted = (
        run_cell(replace(cell, workload=crowded), "") for cell in EXPERIMENTS["deadlines"].cells[7:9]
    )
    assert searched["moves_too_late"] == 0 < admitted["moves_too_late"]


def test_failures_kill_jobs_and_have_no_bound() -> None:
    cell = Cell(workload=replace(STREAM, failures=(0.05, 0.05)), name="easy", policy="easy")
    row = run_cell(cell, "")
    assert row["killed_jobs"] > 0
    assert row["bound_wait_s"] is None


@pytest.mark.parametrize("policy", ["conservative", "easy-xf-24h"])
def test_what_counts_as_the_searchs_own_source_is_never_run_without_a_search(logs: Path, policy: str) -> None:
    """Or results of rivals would be kept that another program found."""
    root = Path(schedd.__file__).parent
    above = root.parent
    own = {path for name in _SEARCH_ALONE for path in above.glob(name + ("*.py" if name[-1] == "/" else ""))}
    assert len(own) > len(_SEARCH_ALONE)
    run: set[Path] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            run.add(Path(frame.f_code.co_filename))

    cell = Cell(workload=SMALL, name=policy, policy=policy)
    run_cell(cell, str(logs))  # kernels are loaded, or compiled, before the measurement
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
    assert all((above / name).is_file() for name in _TELLS)
