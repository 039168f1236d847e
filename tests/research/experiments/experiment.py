"""A small experiment, its log, and what might be found of it."""

from pathlib import Path
from typing import Any

import numpy as np

from research.experiments.cells import (
    Cell,
    Search,
    Workload,
)
from research.experiments.named import Experiment
from research.experiments.results import Found


def swf(path: Path, jobs: int = 90) -> None:
    random = np.random.default_rng(7)
    lines = ["; MaxProcs: 8"]
    for i in range(jobs):
        run, procs = int(random.integers(60, 600)), int(random.integers(1, 9))
        lines.append(f"{i + 1} {40 * i} -1 {run} {procs} -1 -1 {procs} {2 * run} -1 1 {i % 4} 1 1 1 1 -1 -1")
    path.write_text("\n".join(lines) + "\n")


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


def row(wait: float, slowdown: float = 2.0, *, slack: str = "", searches: int = 0) -> dict[str, object]:
    return {
        "jobs": 9, "slack": slack, "searches": searches, "avg_wait_s": wait, "p999_wait_s": 50.0,
        "avg_bounded_slowdown_10s": slowdown, "max_wait_s": 60, "held_share": None, "start_delay_s": None,
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
