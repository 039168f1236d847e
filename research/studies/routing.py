"""Experiment `routing`: routing policies on the paper's grid and on real logs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean
from typing import Any, Final

from research.federations.field import Routing, simulate
from research.federations.grid import SIZES, paper, side_by_side
from research.federations.measures import worth
from research.studies.pool import at_once
from research.studies.results import Results, present
from schedd.replay.workload import TraceError

NAME: Final = "routing"
ABOUT: Final = (
    "Policies of routing compared: on the grid of Pasquali and others (4 clusters, 225 machines, 4 streams, "
    "20 repetitions) by its five measures, and on real logs side by side, each log on a cluster of its own."
)
_SETUPS: Final[Mapping[str, tuple[Routing, str]]] = {
    "no heuristics": ("random", "easy"),
    "flexible": ("load as printed", "flexible"),
    "load": ("load", "conservative"),
    "random": ("random", "conservative"),
    "least loaded": ("least-loaded", "conservative"),
    "plan": ("plan", "conservative"),
}
"""By name: how jobs are routed, and the policy of each cluster."""
_STREAMS: Final = (0.0, 5.0, 10.0, 15.0)
_JOBS: Final = 5_000
_REPETITIONS: Final = 20
_LOGS: Final = ("KTH-SP2-1996-2.swf.gz", "SDSC-SP2-1998-4.2-cln.swf.gz", "CTC-SP2-1996-3.1-cln.swf.gz")
_OF_LOGS: Final[Mapping[str, Routing]] = {
    "at home": "home",
    "random": "random",
    "load": "load",
    "least loaded": "least-loaded",
    "plan": "plan",
}
_OF_EACH_LOG: Final = 2_000
_FROM: Final = 5_000  # a log's first jobs find an empty machine


def run_routing(
    logs: Path,
    out: Path,
    *,
    quick: bool,
    only: Sequence[str],
    workers: int | None = None,
    jobs: int | None = None,
    repetitions: int | None = None,
) -> None:
    """Write page and figures; ``only`` parts with names that begin with it: `paper`, `logs`. Raises
    TraceError and OSError.
    """
    wanted = tuple(only or ("paper", "logs"))
    parts = [part for part in ("paper", "logs") if part.startswith(wanted)]
    if not parts:
        raise TraceError(f"--only {' '.join(only)}: there are paper and logs")
    if "logs" in parts:
        present(_LOGS, logs)
    many, times = jobs or (300 if quick else _JOBS), repetitions or (1 if quick else _REPETITIONS)
    if min(many, times) < 1:
        raise TraceError("--jobs and --repetitions: at least 1")
    todo: list[tuple[str, tuple[Any, ...]]] = []
    if "logs" in parts:
        paths = [str(logs / name) for name in _LOGS]
        todo += [("logs", (name, paths, 300 if quick else _OF_EACH_LOG)) for name in _OF_LOGS]
    if "paper" in parts:
        todo += [
            ("paper", (name, every, many, seed))
            for seed in range(1, times + 1)
            for every in _STREAMS
            for name in _SETUPS
        ]
    options = [f"--only {part}" for part in only]
    options += [f"--jobs {jobs}"] if jobs else []
    options += [f"--repetitions {repetitions}"] if repetitions else []
    results = Results.of(NAME, ABOUT, out, *options, "--logs LOGS", quick=quick)
    rows = list(at_once(_one, todo, workers))
    rows.sort(key=lambda row: json.dumps(row, sort_keys=True))
    figures = {"jobs": many, "repetitions": times, "results": rows}
    results.write(figures, _page(rows, many, times), f"{len(rows)} runs")


def _one(part: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """One run, in a process of its own."""
    if part == "paper":
        name, every, jobs, seed = args
        clusters, stream = paper(jobs, every, seed)
        routing, local = _SETUPS[name]
        about = {"part": part, "setup": name, "every": every, "seed": seed}
    else:
        name, paths, jobs = args
        clusters, stream = side_by_side([Path(path) for path in paths], jobs, _FROM)
        routing, local = _OF_LOGS[name], "conservative"
        about = {"part": part, "setup": name}
    return {**about, **asdict(worth(clusters, stream, simulate(clusters, stream, routing, local)))}


# ---- the page --------------------------------------------------------------------------------------------


def _page(rows: Sequence[Mapping[str, Any]], jobs: int, times: int) -> str:
    lines: list[str] = []
    of_paper = [row for row in rows if row["part"] == "paper"]
    of_logs = [row for row in rows if row["part"] == "logs"]
    if of_paper:
        lines += _of_paper(of_paper, jobs, times)
    if of_logs:
        lines += _of_logs(of_logs)
    return "\n".join((*lines, ""))


def _of_paper(rows: Sequence[Mapping[str, Any]], jobs: int, times: int) -> list[str]:
    about = (
        f"Four streams of {jobs:,} jobs, one each 0 (all at once), 5, 10 or 15 s in the mean, {times} "
        "repetitions with fresh jobs and machines; means of them. Clusters 1 to 4 have 120, 60, 30 and 15 "
        "machines. Set-ups: *no heuristics* is routing at random and EASY; *flexible* is Load and Ordering "
        "with priorities as printed, and flexible backfilling at each cluster (the paper's heuristics); the "
        "others plan every job (conservative, gaps filled) at each cluster and differ in the routing; *load* "
        "compares loads by cpu of the cluster."
    )
    differs = (
        "What differs from the paper: its numbers of licence kinds are not printed (here 4, each cluster has "
        "its part of the copies), nor are values of weights; a job's run time is its estimate on every "
        "machine, since a PBS job may run for as long as it says, so benchmarks count in loads alone; loads "
        "are multiplied by cpus; priorities are made of deadlines and licences, all users are of one class; "
        "routing without heuristics is at random, since the paper does not say how it dispatches then."
    )
    lines = ["## The paper's grid", "", about, "", differs, ""]
    head = (
        "| set-up | workload, clusters 1 to 4, % | distance from optimal, points | past deadline, % "
        "| processors, % | licences, % | slowdown without deadline |"
    )
    for every in _STREAMS:
        some = [row for row in rows if row["every"] == every]
        lines += [
            f"### One job each {every:g} s",
            "",
            head,
            "|---|---|--:|--:|--:|--:|--:|",
        ]
        for name in _SETUPS:
            mine = [row for row in some if row["setup"] == name]
            if mine:
                lines.append(_paper_line(name, mine))
        lines.append("")
    return lines + _beside(rows)


_OPTIMAL: Final = {name: size / sum(SIZES.values()) for name, size in SIZES.items()}


def _paper_line(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    share = {place: mean(row["share"][place] for row in rows) for place in SIZES}
    cells = (
        name,
        " / ".join(f"{100 * share[place]:.1f}" for place in SIZES),
        f"{_off(rows):.1f}",
        f"{100 * _over(rows, 'late'):.1f}",
        f"{100 * _over(rows, 'processors'):.1f}",
        f"{100 * _over(rows, 'licences'):.1f}",
        f"{_over(rows, 'slowdown'):.2f}",
    )
    return f"| {' | '.join(cells)} |"


def _over(rows: Sequence[Mapping[str, Any]], what: str, where: str = "all") -> float:
    values: list[float] = [row[what][where] for row in rows if row[what][where] is not None]
    return float(mean(values)) if values else 0.0


def _off(rows: Sequence[Mapping[str, Any]]) -> float:
    """Mean distance of the clusters' shares from their parts of the machines, in points."""
    far = [abs(row["share"][place] - part) for row in rows for place, part in _OPTIMAL.items()]
    return 100.0 * float(mean(far))


def _beside(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The paper's statements, and the results here."""

    def of(name: str, every: float) -> list[Mapping[str, Any]]:
        return [row for row in rows if (row["setup"], row["every"]) == (name, every)]

    def late(name: str, every: float = 5.0) -> str:
        return f"{100 * _over(of(name, every), 'late'):.1f}"

    heads = [row for row in rows if row["setup"] == "flexible"]
    by_size = " / ".join(f"{_over(of('flexible', 5.0), 'slowdown', place):.2f}" for place in SIZES)
    of_one = " / ".join(
        f"{mean(row['late_jobs'][place] for row in of('flexible', 5.0)):.0f}" for place in SIZES
    )
    usage = ", ".join(f"{name} {100 * _over(of(name, 5.0), 'processors'):.1f}" for name in _SETUPS)
    several = " / ".join(f"{100 * _over(of('flexible', 0.0), 'share', place):.1f}" for place in SIZES)
    by_cpu = " / ".join(f"{100 * _over(of('load', 0.0), 'share', place):.1f}" for place in SIZES)
    nearest = min(_STREAMS, key=lambda every: _off([r for r in heads if r["every"] == every]))
    lates = (
        f"at Ta = 5, % of all jobs: none {late('no heuristics')}, *flexible* {late('flexible')}, "
        f"*load* {late('load')}, *plan* {late('plan')}"
    )
    table = (
        (
            "At Ta = 0 all clusters get the same workload (25 % each)",
            f"*flexible* {several}; *load*, by cpu of the cluster, {by_cpu}",
        ),
        ("Ta = 5 is nearest to the optimal shares", f"*flexible* is nearest at Ta = {nearest:g}"),
        (
            "Slowdown of jobs without deadline at Ta = 5 is above 1, and worse the smaller the cluster",
            f"*flexible*, clusters 1 to 4: {by_size}",
        ),
        ("Heuristics miss fewer deadlines than none", lates),
        ("Cluster 1 misses hundreds of deadlines, cluster 4 a few", f"*flexible* at Ta = 5: {of_one}"),
        ("Processors are used much alike by all set-ups", f"at Ta = 5, %: {usage}"),
    )
    lines = ["### Beside what the paper says", "", "Its figures are bars without numbers.", ""]
    lines += ["| the paper | here |", "|---|---|", *(f"| {said} | {found} |" for said, found in table), ""]
    return lines


def _of_logs(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    by_name = {row["setup"]: row for row in rows}
    places = list(rows[0]["share"])
    about = (
        f"A cluster for each of {', '.join(places)}, as large as its log says; their jobs from the 5,001st "
        "on come at the same time, under the walltimes that users stated, and end there; every cluster "
        "plans every job. *At home*: each job on its own cluster."
    )
    lines = [
        "## Logs side by side",
        "",
        about,
        "",
        "| routing | mean wait, s | bounded slowdown | mean wait by cluster, s | share of work, % |",
        "|---|--:|--:|---|---|",
    ]
    for name in _OF_LOGS:
        row = by_name[name]
        cells = (
            name,
            f"{row['wait']['all']:,.0f}",
            f"{row['bounded']['all']:.2f}",
            " / ".join(f"{row['wait'][place]:,.0f}" for place in places),
            " / ".join(f"{100 * row['share'][place]:.1f}" for place in places),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]
