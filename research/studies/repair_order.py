"""Experiment `repair_order`: bags and other jobs of real logs, by the order of repairs of the plan."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Final

import numpy as np
from rich.console import Console
from typing_extensions import override

from research.experiments.cells import prepared_workload
from research.experiments.named import WINDOWS
from research.studies.results import Results, chosen
from schedd.engine import SITE_SLACK
from schedd.replay.comparison import warm_up
from schedd.replay.driver import run
from schedd.replay.prepared import Prepared
from schedd.replay.simulation import PLANNING_POLICY, Schedule
from schedd.replay.workload import TraceError, TraceJob
from schedd.wire import JobFacts

NAME: Final = "repair_order"
ABOUT: Final = (
    "What bags of tasks gain, and what all other jobs gain or lose, where a plan is repaired by the ends of "
    "whole bags (coordinate_arrays, algorithm 7 of Netto 2009) and not by age: windows of real logs with "
    "users' estimates and the default slack."
)
_ORDERS: Final = {"by age": False, "by ends of bags": True}
_MOST_WINDOWS: Final = 2
_JOBS: Final = 10_000
_QUICK: Final = 300
_GAP_S: Final = 60
_SMALLEST: Final = 3


@dataclass(frozen=True, slots=True)
class _WithBags(Prepared):
    """Jobs, some of them subjobs of arrays; ``arrays`` has the name of each job's array, or nothing."""

    arrays: tuple[str, ...] = ()

    @override
    def facts(self, i: int) -> JobFacts:
        """Return job number ``i`` as a server would describe it on arrival."""
        return replace(Prepared.facts(self, i), array=self.arrays[i])


def bags_of(jobs: Sequence[TraceJob]) -> tuple[str, ...]:
    """Return the name of each job's bag; nothing for other jobs.

    A bag has at least three jobs of one user with equal processors and walltime, each submitted at most a
    minute after the one before.
    """
    open_bags: dict[tuple[str, int, int], list[int]] = {}
    found = [""] * len(jobs)
    for i, job in enumerate(jobs):
        bag = open_bags.setdefault((job.user, job.procs, job.estimate), [])
        if bag and job.submit - jobs[bag[-1]].submit > _GAP_S:
            bag.clear()
        bag.append(i)
        if len(bag) >= _SMALLEST:
            for one in bag if len(bag) == _SMALLEST else (i,):
                found[one] = f"bag{bag[0]}[]"
    return tuple(found)


def run_repair_order(
    logs: Path, out: Path, *, quick: bool, only: Sequence[str], jobs: int | None = None
) -> None:
    """Write page and figures. Raises TraceError, OSError and ReplayDefectError."""
    many = jobs if jobs is not None else _QUICK if quick else _JOBS
    if many < 1:
        raise TraceError("--jobs: at least 1")
    names = chosen([workload.log for workload, _ in WINDOWS], only, logs)
    options = [*(f"--only {log}" for log in only), *([f"--jobs {jobs}"] if jobs is not None else [])]
    results = Results.of(NAME, ABOUT, out, *options, "--logs LOGS", quick=quick)
    rows: list[dict[str, Any]] = []
    warm_up()
    with Console(stderr=True).status("reading") as status:
        for log, skips in WINDOWS:
            for skip in skips[: 1 if quick else _MOST_WINDOWS] if log.log in names else ():
                window = replace(log, estimates="user", skip=skip, jobs=many)
                prepared = prepared_workload(window, str(logs))
                with_bags = _with_bags(prepared)
                for order, coordinate in _ORDERS.items():
                    status.update(f"{prepared.name}, {order}")
                    found = _run(with_bags, coordinate=coordinate)
                    rows.append({"log": log.title, "skip": skip, "order": order, **found})
    results.write({"results": rows}, _page(rows, many), f"{len(rows)} runs")


def _with_bags(prepared: Prepared) -> _WithBags:
    fields = {name: getattr(prepared, name) for name in Prepared.__slots__}
    return _WithBags(**fields, arrays=bags_of(prepared.jobs))


def _run(prepared: _WithBags, *, coordinate: bool) -> dict[str, Any]:
    slack = SITE_SLACK
    site = {"coordinate_arrays": coordinate}
    return _figures(prepared, run(prepared, PLANNING_POLICY, site=site, slack=slack))


def _figures(prepared: _WithBags, found: Schedule) -> dict[str, Any]:
    submit = np.array([job.submit for job in prepared.jobs])
    wait, ran = found.start - submit, found.end - found.start
    slowdown = np.maximum(1.0, (wait + ran) / np.maximum(10, ran))
    names = np.array(prepared.arrays)
    others = names == ""
    bags = {name: np.flatnonzero(names == name) for name in np.unique(names[~others])}
    responses = [int(found.end[at].max() - submit[at].min()) for at in bags.values()]
    spreads = [int(found.end[at].max() - found.end[at].min()) for at in bags.values()]
    return {
        "jobs": len(names),
        "bags": len(bags),
        "tasks": int((~others).sum()),
        "bag_response_s": float(np.mean(responses)) if responses else None,
        "bag_spread_s": float(np.mean(spreads)) if spreads else None,
        "others_wait_s": float(wait[others].mean()),
        "others_slowdown": float(slowdown[others].mean()),
        "others_p999_s": float(np.percentile(wait[others], 99.9)),
        "others_longest_s": int(wait[others].max()),
        "promise_breaches": found.promise_breaches,
    }


# ---- the page --------------------------------------------------------------------------------------------

_COLUMNS: Final = {
    "bag_response_s": "response of bags",
    "bag_spread_s": "first to last end of a bag",
    "others_wait_s": "mean wait of other jobs",
    "others_slowdown": "their bounded slowdown",
    "others_p999_s": "their 99.9th percentile",
    "others_longest_s": "their longest wait",
}


def _page(rows: Sequence[Mapping[str, Any]], many: int) -> str:
    words = (
        f"Windows of {many:,} jobs, at most {_MOST_WINDOWS} of each log, beyond its first third. A bag: at "
        "least three jobs of one user with equal processors and walltime, each submitted at most a minute "
        "after the one before. Figures are ratios, by ends of bags over by age: below 1 repair by the ends "
        "of bags is better."
    )
    lines = [words, "", f"| window | bags | tasks % | {' | '.join(_COLUMNS.values())} |"]
    lines.append(f"|---|--:|--:|{'--:|' * len(_COLUMNS)}")
    found: dict[str, list[float]] = {field: [] for field in _COLUMNS}
    for age, ends in _pairs(rows):
        ratios = {field: _ratio(ends[field], age[field]) for field in _COLUMNS}
        for field, ratio in ratios.items():
            found[field] += [ratio] if ratio else []
        told = " | ".join(f"{ratio:.2f}" if ratio else "" for ratio in ratios.values())
        share = 100 * age["tasks"] / age["jobs"]
        lines.append(
            f"| {age['log']}, from job {age['skip'] + 1:,} | {age['bags']:,} | {share:.0f} | {told} |"
        )
    means = " | ".join(f"{geometric_mean(values):.3f}" if values else "" for values in found.values())
    worst = " | ".join(f"{max(values):.2f}" if values else "" for values in found.values())
    broken = sum(row["promise_breaches"] for row in rows)
    lines += [f"| **geometric mean** | | | {means} |", f"| **worst** | | | {worst} |", ""]
    return "\n".join((*lines, f"Broken promises in all runs: {broken}.", ""))


def _pairs(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The two runs of each window."""
    yield from zip(rows[::2], rows[1::2], strict=True)


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None
