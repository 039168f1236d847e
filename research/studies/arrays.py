"""Experiment `arrays`: bags of tasks repaired as wholes, after Netto's thesis (2009), 7.5."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from time import process_time
from typing import Any, Final

from research.federations.bag_measures import spreads
from research.federations.bags import simulate_bags
from research.federations.worlds import four_clusters
from research.studies.pool import at_once, how_often
from research.studies.results import Results

NAME: Final = "arrays"
ABOUT: Final = (
    "What a bag of tasks gains where clusters repair their plans by the ends of whole bags, and not task by "
    "task: the tables of Netto, Adaptive co-allocation of distributed resources (2009), 7.5 (four clusters "
    "of 300 processors). Needs no logs: jobs are drawn by Lublin and Feitelson's model."
)
_OVER: Final = (50, 100, 150)
_DAYS: Final = 10.0
_ORDERS: Final[Mapping[str, tuple[dict[str, Any], bool]]] = {
    "by age": ({"coordinate_arrays": False}, True),
    "by ends": ({"coordinate_arrays": True}, False),
    "by ends of bags": ({"coordinate_arrays": True}, True),
}
"""By name: the policy of each cluster, and whether it knows which tasks are of one bag."""
_PRINTED: Final = {
    50: ("2.92", "2.59", "3.14 ± 0.55", "6.66 ± 0.79", "3.05 / 2.65", "3.84", "6.74"),
    100: ("2.86", "2.53", "4.95 ± 0.74", "8.48 ± 0.92", "2.81 / 2.42", "6.94", "10.4"),
    150: ("2.81", "2.49", "5.68 ± 0.74", "8.88 ± 1.29", "2.69 / 2.56", "5.99", "10.07"),
}
"""Stretch factor uncoordinated and coordinated, response and slowdown reductions; the same on Grid'5000."""


def run_arrays(
    logs: Path,
    out: Path,
    *,
    quick: bool,
    only: Sequence[str],
    workers: int | None = None,
    repetitions: int | None = None,
) -> None:
    """Write page and figures. Raises TraceError and OSError."""
    del logs, only
    times = how_often(repetitions, 3, quick=quick)
    days = 2.0 if quick else _DAYS
    todo: list[tuple[Any, ...]] = [
        (order, over, days, seed) for seed in range(1, times + 1) for over in _OVER for order in _ORDERS
    ]
    todo += [("exact", 0, days, seed) for seed in range(1, times + 1)]
    options = [f"--repetitions {repetitions}"] if repetitions else []
    results = Results.of(NAME, ABOUT, out, *options, quick=quick)
    rows = sorted(at_once(_one, todo, workers), key=lambda row: (row["over"], row["order"], row["seed"]))
    figures = {"days": days, "repetitions": times, "results": rows}
    results.write(figures, _page(rows, days, times), f"{len(rows)} runs")


def _one(order: str, over: int, days: float, seed: int) -> dict[str, Any]:
    clusters, jobs = four_clusters(days, over, seed)
    site, known = _ORDERS["by ends" if order == "exact" else order]
    began = process_time()
    ran = simulate_bags(clusters, jobs, "none", site, known=known)
    row = {"order": order, "over": over, "seed": seed, "tasks": len(jobs), "cpu_s": process_time() - began}
    return row | asdict(spreads(clusters, jobs, ran))


# ---- the page --------------------------------------------------------------------------------------------


def _page(rows: Sequence[Mapping[str, Any]], days: float, times: int) -> str:
    bags, tasks = (mean(row[what] for row in rows) for what in ("bags", "tasks"))
    setup = (
        f"Four clusters of 300 processors, load 70 %, {days:g} days, {times} drawn workloads of {bags:,.0f} "
        f"bags and {tasks:,.0f} tasks in the mean. Each job of the model is a bag of as many tasks of its "
        "run time as it has processors, up to the whole grid. As a bag comes, each cluster's plan says when "
        "it would have ended 10, 25, 50, 75 and 100 % of the tasks, and the federation's composing takes the "
        "split that ends earliest. Users ask for 50, 100 or 150 % more time than tasks need in the mean "
        "(uniform, from 0 to twice that, one for each bag). When tasks end early, each cluster repairs its "
        "plan: *by age*, the oldest job first (schedd's default); *by ends*, by the "
        "planned end of each task (what the thesis calls uncoordinated); *by ends of bags* "
        "(`coordinate_arrays`, algorithm 7: coordinated). *Exact*: walltimes are the run times, by ends. All "
        "is the production code: engines, questions to copies of their plans, composing of offers."
    )
    differs = (
        "What differs from the thesis: it has 15 days, 15 workloads and 20 values of estimates for each; "
        "here each cluster coordinates its own tasks, and does not know when the bag's tasks elsewhere end; "
        "the thesis does not define a stretch factor in percent: here it is relative to the bag's response; "
        "after every early end all plans are repaired, and a task may go before its turn if it delays no "
        "other."
    )
    head = (
        "| too long, % | order | response, s | slowdown | first to last end, s | stretch, % "
        "| on several clusters, % | stretch of these, % | longest response, s | utilisation, % |"
    )
    lines = [setup, "", differs, ""]
    lines += [head, f"|--:|---|{'--:|' * 8}"]
    cells = [(0, "exact"), *((over, order) for over in _OVER for order in _ORDERS)]
    for over, order in cells:
        some = [row for row in rows if (row["over"], row["order"]) == (over, order)]

        def of(what: str, some: Sequence[Mapping[str, Any]] = some) -> float:
            return float(mean(row[what] for row in some))

        told = (
            f"{of('response'):,.0f} | {of('slowdown'):,.2f} | {of('stretch_s'):,.0f} "
            f"| {100 * of('stretch'):.2f} | {100 * of('several'):.1f} | {100 * of('stretch_of_several'):.2f} "
            f"| {of('longest'):,.0f} | {100 * of('utilisation'):.1f}"
        )
        lines.append(f"| {over} | {order} | {told} |")
    return "\n".join((*lines, "", *_beside(rows), ""))


def _beside(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    about = (
        "Reductions are of the means over all bags, from *by ends* to *by ends of bags*; in brackets from "
        "*by age*. ± is the standard deviation between workloads. The stretch is that of bags on several "
        "clusters."
    )
    lines = [
        "## Beside the printed figures",
        "",
        about,
        "",
        "| too long, % | | printed, simulated | printed, on Grid'5000 | here |",
        "|--:|---|--:|--:|--:|",
    ]
    for over in _OVER:
        before, after, response, slowdown, real, real_response, real_slowdown = _PRINTED[over]
        stretch = [100 * _mean(rows, over, order, "stretch_of_several") for order in _ORDERS]
        rows_of = (
            (
                "stretch factor, not coordinated / coordinated, %",
                f"{before} / {after}",
                real,
                f"{stretch[1]:.2f} / {stretch[2]:.2f} ({stretch[0]:.2f})",
            ),
            (
                "response shorter by, %",
                response,
                real_response,
                _less(rows, over, "response"),
            ),
            (
                "slowdown smaller by, %",
                slowdown,
                real_slowdown,
                _less(rows, over, "slowdown"),
            ),
        )
        lines += [f"| {over} | {' | '.join(cells)} |" for cells in rows_of]
    return lines


def _mean(rows: Sequence[Mapping[str, Any]], over: int, order: str, what: str) -> float:
    return float(mean(row[what] for row in rows if (row["over"], row["order"]) == (over, order)))


def _less(rows: Sequence[Mapping[str, Any]], over: int, what: str) -> str:
    """Relative reduction by coordination, against repair by ends and by age."""
    by_seed = {(row["order"], row["seed"]): row[what] for row in rows if row["over"] == over}
    seeds = sorted({seed for _, seed in by_seed})

    def cut(order: str) -> list[float]:
        return [100 * (1 - by_seed["by ends of bags", seed] / by_seed[order, seed]) for seed in seeds]

    off, age = cut("by ends"), cut("by age")
    spread = f" ± {stdev(off):.2f}" if len(off) > 1 else ""
    return f"{mean(off):.2f}{spread} ({mean(age):.2f})"
