"""Experiment `front`: hypervolume reached by Tabu Search, NSGA-II and both."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from research.experiments.fronts import ALONE, METHODS, Volume, volumes
from research.studies.results import Results, chosen
from schedd.replay.comparison import ComparedMachine, Comparison

NAME: Final = "front"
ABOUT: Final = (
    "Hypervolumes of what Tabu, Tabu with its archive, NSGA-II, and both find of wait, makespan, energy and "
    "cost, from the same plan of 1,000 and of 5,000 waiting jobs of a log, in 2, 8 and 32 CPU seconds."
)
_LOGS: Final = {"KTH-SP2-1996-2.swf.gz": (100, 1)}  # with nodes, and cpus of each


def run_front(logs: Path, out: Path, *, quick: bool, only: Sequence[str]) -> None:
    """Write page and figures. Raises TraceError and OSError for logs that cannot be read, and NoPymoo."""
    names = chosen(_LOGS, only, logs)
    results = Results.of(NAME, ABOUT, out, *(f"--only {log}" for log in only), "--logs LOGS", quick=quick)
    sizes, seconds, seeds = ((200,), (2.0,), 1) if quick else ((1_000, 5_000), (2.0, 8.0, 32.0), 3)
    found: list[Volume] = []
    with Console(stderr=True).status("reading") as status:
        for name in names:
            nodes, cpus = _LOGS[name]
            for size in sizes:
                wanted = Comparison(
                    logs=[logs / name],
                    machine=ComparedMachine(nodes=nodes, cpus_per_node=cpus),
                    estimates="user",
                    jobs=size,
                )
                for ready in wanted.ready():
                    for one in volumes(ready.prepared, size, seconds, seeds):
                        status.update(f"{one.log}, {one.jobs} jobs: {one.method}, {one.seconds:g} s")
                        found.append(one)
    figures = {"seeds": seeds, "results": [one.as_row() for one in found]}
    results.write(figures, _page(found, seeds), f"{len(found)} results")


def _page(found: Sequence[Volume], seeds: int) -> str:
    words = (
        "The hypervolume is the share of the box from nothing to 1.2 times the live plan's values that the "
        f"plans found dominate, and the live plan with them: median of the seeds ({seeds}), also as a "
        f"multiple of what the live plan dominates alone ({ALONE:.6f}), with least and most. "
        "*Plans* is how many of them no other dominates. Seconds are those of the processor; *all CPU s* "
        "counts what it takes to value the plans in the end, too."
    )
    columns = (
        "log",
        "jobs",
        "method",
        "seconds",
        "hypervolume",
        "times the live plan's",
        "least to most",
        "plans",
        "all CPU s",
    )
    lines = [words, ""]
    lines += [f"| {' | '.join(columns)} |", "|---|--:|---|" + "--:|" * (len(columns) - 3)]
    for one in sorted(found, key=lambda v: (v.log, v.jobs, v.seconds, METHODS.index(v.method))):
        cells = (
            one.log,
            f"{one.jobs:,}",
            one.method,
            f"{one.seconds:g}",
            f"{one.volume:.6f}",
            f"{one.volume / ALONE:.2f}",
            f"{one.least / ALONE:.2f} to {one.most / ALONE:.2f}",
            f"{one.plans:.1f}",
            f"{one.cpu_s:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join((*lines, ""))
