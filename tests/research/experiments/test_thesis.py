"""The thesis' workloads: drawn by its rules, run in the order of their dependencies, told in its tables."""

import json
from pathlib import Path

import numpy as np
import pytest

from research.__main__ import main
from research.experiments.thesis import MODELS, Batch, batch, front_of, ran
from research.experiments.thesis_printed import PRINTED
from schedd.alternatives.objective_weights import Objective
from schedd.engine import EngineSettings
from schedd.replay.driver import run
from schedd.replay.prepared import prepare
from schedd.replay.site import equal_node_site
from schedd.replay.workload import Trace, TraceError, TraceJob, select

SIX = tuple(MODELS)


@pytest.fixture(scope="module")
def typed() -> Batch:
    return batch(7, 150, SIX * 2, ["cpu"] * 6 + ["io"] * 6)


def test_jobs_are_drawn_as_the_thesis_says() -> None:
    das, sharcnet = (batch(workload, 4000, SIX, [""] * 6).prepared.jobs for workload in (1, 6))
    assert max(job.run for job in das) <= 20_000 < max(job.run for job in sharcnet) <= 100_000
    assert all(job.after is None for job in das)
    behind = [(int(job.id), int(job.after)) for job in sharcnet if job.after is not None]
    assert 0.45 < len(behind) / len(sharcnet) < 0.55
    back = np.array([job - head for job, head in behind])
    assert (back >= 1).all()
    assert (back <= 100).all()
    assert 49 < back.mean() < 51
    assert 4 < back.std() < 5
    assert batch(1, 50, SIX, [""] * 6).prepared.jobs == batch(1, 50, SIX, [""] * 6).prepared.jobs


def test_the_printed_tables_give_the_shares_that_the_thesis_prints() -> None:
    tables = {one.table: one for one in PRINTED}
    assert {name: len(one.rows) for name, one in tables.items()} == {
        "4.7": 15, "4.8": 15, "4.9": 12, "4.10": 12, "4.11": 24, "4.12": 24
    }  # fmt: skip
    means = {
        name: 100 * float(np.mean([used / end for _, end, used in one.rows])) for name, one in tables.items()
    }
    printed = {"4.7": 96.68, "4.8": 92.97, "4.9": 91.38, "4.10": 94.48, "4.11": 91.32, "4.12": 82.79}
    assert means == pytest.approx(printed, abs=0.01), "but for the rounding of each line"


@pytest.mark.parametrize("choices", [False, True])
def test_jobs_run_on_machines_of_their_type_after_what_they_wait_for(typed: Batch, choices: bool) -> None:
    weights = {Objective.MAKESPAN: 1.0, Objective.COST_OVERRUN: 1.0} if choices else None
    found = ran(typed, "", weights, every=2000, evaluations=10)
    assert bool(found.choices) is choices
    schedule = run(typed.prepared, "conservative", settings=EngineSettings())
    number = {job.id: i for i, job in enumerate(typed.prepared.jobs)}
    for i, job in enumerate(typed.prepared.jobs):
        at = int(schedule.where[i][0][1:]) - 1
        assert job.nodes_spec == f"1:ppn=1:{typed.kinds[at]}"
        assert int(schedule.end[i] - schedule.start[i]) == max(
            1, round(job.run / MODELS[typed.models[at]].speed)
        )
        if job.after is not None:
            assert schedule.start[i] >= schedule.end[number[job.after]]
    for one in found.resources:
        assert 0 < one.used_s <= one.exec_s <= found.makespan
    least, most = found.utilisation[1:]
    assert 0 < least <= most <= 1


def test_thrifty_machines_first_takes_no_more_energy() -> None:
    """There must be room for a choice: few jobs on many machines."""
    few = batch(1, 12, SIX * 4, [""] * 24)
    plain, thrifty = ran(few, ""), ran(few, "", thrifty=True)
    assert thrifty.energy < plain.energy


def test_the_front_has_no_plan_that_another_dominates() -> None:
    aims = (Objective.MAKESPAN, Objective.ENERGY, Objective.LATENESS)
    live, plans = front_of(batch(1, 60, SIX, [""] * 6), aims, 80, 20)
    assert len(plans) >= 2
    for one in plans:
        assert not any(
            all(a <= b for a, b in zip(other, one, strict=True)) for other in plans if other != one
        )
        assert not all(a <= b for a, b in zip(live, one, strict=True))


def test_a_job_that_waits_for_one_that_is_not_there_is_refused() -> None:
    jobs = tuple(TraceJob(id=i, submit=0, run=10, procs=1, after=after) for i, after in ((1, None), (2, 9)))
    what = prepare(select(Trace("t", jobs), procs=2), equal_node_site(2, 1))
    with pytest.raises(TraceError, match="job 2 waits for 9"):
        run(what, "easy")


def test_a_policy_of_queues_lets_jobs_wait_for_others_too() -> None:
    jobs = tuple(TraceJob(id=i, submit=0, run=10, procs=1, after=after) for i, after in ((1, None), (2, 1)))
    what = prepare(select(Trace("t", jobs), procs=2), equal_node_site(2, 1))
    assert run(what, "easy").start.tolist() == [0, 10]


def test_the_experiment_writes_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "thesis", "--only", "KTH", "--out", str(tmp_path)]) == 2
    assert "has no logs" in capsys.readouterr().err
    assert main(["experiment", "thesis", "--quick", "--out", str(tmp_path)]) == 0
    saved = json.loads((tmp_path / "thesis-quick.json").read_text())
    assert [one["table"] for one in saved["tables"]] == [one.table for one in PRINTED]
    page = (tmp_path / "thesis-quick.md").read_text()
    assert page.count("\n| 1 | Pentium 4 | 0.05 |") == 6
    assert "| 1 | Pentium 4 | 0.05 | 12048592.25 | 98.01 | 11813044.19 | 98.0" in page, "as printed"
    assert (tmp_path / "thesis-quick.png").stat().st_size > 10_000
