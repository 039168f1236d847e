"""Experiment `modes`: priorities fixed at submission against priorities that change with time."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, mean
from typing import Any, Final

import numpy as np

from research.experiments.promises import NO_ADMISSION
from research.federations.field import Field, FieldJob, Routing
from research.federations.grid import SIZES, paper
from research.federations.measures import worth
from research.studies.pool import at_once, how_often
from research.studies.results import Results
from schedd.policy.slack import OFF
from schedd.replay.workload import TraceError

NAME: Final = "modes"
ABOUT: Final = (
    "What it costs, and what it gains, that clusters work out priorities again as jobs wait (full mode), and "
    "do not keep those of the submission (light mode): the three set-ups of Pasquali and others on their "
    "grid (4 clusters, 225 machines). Needs no logs."
)
_WEIGHTS: Final = {"waiting": 3.6, "deadline": 1.0, "licences": 1.0, "short": 2.0}
"""W_A 0.001 for each second, W_L 1, W_WM 2: multilevel.md 3.5, but for W_A, which is made smaller by ten."""


@dataclass(frozen=True, slots=True)
class _Setup:
    routing: Routing
    local: str
    priority: Mapping[str, Any]


_SETUPS: Final[Mapping[str, _Setup]] = {
    "no heuristics": _Setup("random", "easy", {}),
    "no priorities": _Setup("load", "conservative", {}),
    "light": _Setup("load", "conservative", {**_WEIGHTS, "mode": "light"}),
    "full": _Setup("load", "conservative", {**_WEIGHTS, "mode": "full"}),
}
_STREAMS: Final = (0.0, 5.0, 10.0, 15.0)
_JOBS: Final = 500
_REPETITIONS: Final = 5


def run_modes(
    logs: Path,
    out: Path,
    *,
    quick: bool,
    only: Sequence[str],
    workers: int | None = None,
    jobs: int | None = None,
    repetitions: int | None = None,
) -> None:
    """Write page and figures. Raises TraceError and OSError."""
    del logs
    if only:
        raise TraceError(f"--only: {NAME} has no parts")
    many, times = jobs or (60 if quick else _JOBS), how_often(repetitions, _REPETITIONS, quick=quick)
    if many < 1:
        raise TraceError("--jobs: at least 1")
    todo = [
        (name, every, many, seed) for seed in range(1, times + 1) for every in _STREAMS for name in _SETUPS
    ]
    options = [f"--jobs {jobs}"] if jobs else []
    options += [f"--repetitions {repetitions}"] if repetitions else []
    results = Results.of(NAME, ABOUT, out, *options, quick=quick)
    rows = sorted(at_once(_one, todo, workers), key=lambda row: (row["every"], row["setup"], row["seed"]))
    figures = {"jobs": many, "repetitions": times, "results": rows}
    results.write(figures, _page(rows, many, times), f"{len(rows)} runs")


def _one(name: str, every: float, jobs: int, seed: int) -> dict[str, Any]:
    setup = _SETUPS[name]
    clusters, stream = paper(jobs, every, seed)
    stream = [_told(job) for job in stream]
    field = Field(
        clusters, stream, setup.routing, setup.local, {"priority": setup.priority, **NO_ADMISSION}, OFF
    )
    ran = field.run()
    cycles = np.frombuffer(field.cycles, np.int64) / 1e6
    row = {
        "setup": name,
        "every": every,
        "seed": seed,
        "cycles": len(cycles),
        "cycle_ms": float(cycles.mean()),
        "cycle_p99_ms": float(np.percentile(cycles, 99)),
        "planner_s": float(cycles.sum()) / 1e3,
    }
    return row | asdict(worth(clusters, stream, ran))


def _told(job: FieldJob) -> FieldJob:
    """The job as its cluster sees it, too: with its deadline among its resources."""
    if job.deadline is None:
        return job
    left = job.deadline - job.submit
    told = f"+{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"
    return replace(job, resources={**job.resources, "deadline": told})


# ---- the page --------------------------------------------------------------------------------------------


def _page(rows: Sequence[Mapping[str, Any]], jobs: int, times: int) -> str:
    weights = ", ".join(f"{name} {weight:g}" for name, weight in _WEIGHTS.items())
    about = (
        f"Four streams of {jobs:,} jobs, one each 0 (all at once), 5, 10 or 15 s in the mean, {times} "
        "repetitions with fresh jobs and machines; means of them. *No heuristics* is routing at random and "
        "EASY; the others route by Load and Ordering (by cpu of the cluster) and plan every job; of these "
        "*no priorities* has none, *light* keeps the priority of a job's submission (the paper's MS "
        "heuristics), *full* works all out again every 300 s (its LS heuristics). Nothing is promised. "
        f"Weights: {weights}. A cycle is one call of a cluster's engine; its times are of the processor."
    )
    lines = [about, ""]
    head = (
        "| set-up | past deadline, % | by cluster 1 to 4, jobs | slowdown without deadline | cycles "
        "| mean of a cycle, ms | its p99, ms | planners in all, s |"
    )
    for every in _STREAMS:
        lines += [f"## One job each {every:g} s", "", head, "|---|--:|---|--:|--:|--:|--:|--:|"]
        lines += [
            _line(name, mine)
            for name in _SETUPS
            if (mine := [row for row in rows if (row["setup"], row["every"]) == (name, every)])
        ]
        lines.append("")
    return "\n".join((*lines, *_beside(rows), ""))


def _line(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    cells = (
        name,
        f"{100 * mean(row['late']['all'] for row in rows):.1f}",
        " / ".join(f"{mean(row['late_jobs'][place] for row in rows):.0f}" for place in SIZES),
        f"{mean(row['slowdown']['all'] for row in rows):.2f}",
        f"{mean(row['cycles'] for row in rows):,.0f}",
        f"{mean(row['cycle_ms'] for row in rows):.2f}",
        f"{mean(row['cycle_p99_ms'] for row in rows):.1f}",
        f"{mean(row['planner_s'] for row in rows):.2f}",
    )
    return f"| {' | '.join(cells)} |"


def _beside(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    def late(name: str, every: float) -> str:
        mine = [row for row in rows if (row["setup"], row["every"]) == (name, every)]
        return f"{100 * mean(row['late']['all'] for row in mine):.1f}"

    def spent(name: str) -> float:
        return fmean(row["planner_s"] for row in rows if row["setup"] == name)

    missed = ", ".join(f"{name} {' / '.join(late(name, every) for every in _STREAMS)}" for name in _SETUPS)
    streams = " / ".join(f"{every:g}" for every in _STREAMS)
    cost = f"light takes {100 * spent('light') / spent('full'):.0f} % of the processor time that full takes"
    both = "Both heuristic set-ups miss fewer deadlines than none, and much the same"
    return [
        "## Beside what the paper says",
        "",
        "| the paper | here |",
        "|---|---|",
        f"| {both} | at Ta = {streams}, %: {missed} |",
        f"| Fixed priorities cost less | {cost} |",
    ]
