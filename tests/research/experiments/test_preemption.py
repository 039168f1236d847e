"""The experiment with urgent jobs: rules of preemption, compared by waits and lost work."""

import gzip
import json
from pathlib import Path

import numpy as np

from research.__main__ import main as research
from research.experiments.preemption import simulate_easy
from schedd.replay.workload import TraceJob


def easy_job(number: int, submit: int, run: int, procs: int, queue: str = "batch") -> TraceJob:
    return TraceJob(id=number, submit=submit, run=run, procs=procs, estimate=run, queue=queue)


def test_rules_of_other_schedulers_choose_their_victims_at_the_last_moment() -> None:
    jobs = [
        easy_job(0, 0, 100, 2),
        easy_job(1, 10, 1_000, 2),  # starts at 10
        easy_job(2, 20, 1_000, 2),  # waits for job 0
        easy_job(3, 200, 50, 2, "urgent"),
    ]
    none = simulate_easy(jobs, 4, "none")
    assert none.start.tolist() == [0, 10, 100, 1_010]
    latest = simulate_easy(jobs, 4, "latest start")
    assert latest.start.tolist() == [0, 10, 250, 200]
    assert (latest.preempted.tolist(), latest.lost) == ([0, 0, 1, 0], 200)
    assert simulate_easy(jobs, 4, "latest submission").preempted.tolist() == [0, 0, 1, 0]


def test_experiment_compares_waits_and_lost_work(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    line = "{0} {1} 0 {2} {3} -1 -1 {3} {4} -1 1 1 1 1 1 1 -1 -1"
    lines = [
        line.format(i, 150 * i, random.integers(60, 4_000), random.integers(1, 30), 4_500)
        for i in range(1, 240)
    ]
    packed = gzip.compress(("; MaxProcs: 100\n" + "\n".join(lines) + "\n").encode())
    (tmp_path / "KTH-SP2-1996-2.swf.gz").write_bytes(packed)
    out = tmp_path / "out"
    words = [
        "experiment",
        "preemption",
        "--quick",
        "--only",
        "KTH",
        "--logs",
        str(tmp_path),
        "--out",
        str(out),
    ]
    assert research(words) == 0
    rows = {row["rule"]: row for row in json.loads((out / "preemption-quick.json").read_text())["results"]}
    assert rows["planned, protected"]["preempted_runs"] > 0
    assert rows["planned, protected"]["promise_breaches"] == 0
    assert rows["planned, protected"]["urgent_wait_mean"] < rows["planned, none"]["urgent_wait_mean"]
    assert rows["EASY, latest start"]["urgent_wait_mean"] < rows["EASY, none"]["urgent_wait_mean"]
    assert rows["planned, none"]["lost_core_hours"] == rows["EASY, none"]["lost_core_hours"] == 0
    assert "python -m research experiment preemption --quick" in (out / "preemption-quick.md").read_text()
