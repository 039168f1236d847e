"""Experiment `fairness`: the fairness criterion F in the search, after Klusáček's thesis (2011), 2.6.3."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time
from typing import Any, Final

import numpy as np
from rich.console import Console

from research.experiments.cells import Workload, busiest, prepared_workload
from research.studies.results import Results, chosen
from schedd.engine import EngineSettings
from schedd.optimize import SearchSettings
from schedd.plan.criteria import Criterion
from schedd.policy.site import site_policy
from schedd.policy.slack import Slack
from schedd.replay.comparison import warm_up
from schedd.replay.driver import run
from schedd.replay.metrics import measure, waits_by_area
from schedd.replay.prepared import Prepared
from schedd.replay.searches import SearchSchedule
from schedd.replay.simulation import PLANNING_POLICY
from schedd.replay.workload import TraceError

NAME: Final = "fairness"
ABOUT: Final = (
    "What the fairness criterion F of Klusáček, Event-based optimization of schedules for grid jobs (2011), "
    "does as a criterion of the search, over the waiting jobs alone and with a decayed history of the users' "
    "earlier jobs; and who is fair without it."
)
_LOGS: Final = (
    Workload(log="METACENTRUM-2009-2.swf.gz", procs=806),
    Workload(log="SDSC-SP2-1998-4.2-cln.swf.gz", estimates="user"),
    Workload(log="HPC2N-2002-2.1-cln.swf.gz", estimates="user"),
    Workload(log="SDSC-BLUE-2000-4.1-cln.swf.gz", estimates="user"),
    Workload(log="KTH-SP2-1996-2.swf.gz", estimates="user"),
    Workload(log="CTC-SP2-1996-3.1-cln.swf.gz", estimates="user"),
)
_JOBS: Final = 1_000
_QUICK: Final = 200
_HISTORY: Final = {"levels": ["user"], "interval": 86_400, "depth": 30, "decay": 0.9}


@dataclass(frozen=True, slots=True)
class _FairnessSetup:
    """A policy; a search where ``fair`` is not None, with that weight of F, over ``history`` if it is so."""

    policy: str
    fair: float | None = None
    history: bool = False


_SETUPS: Final[Mapping[str, _FairnessSetup]] = {
    "easy": _FairnessSetup("easy"),
    "multi-queue": _FairnessSetup("multi-queue"),
    "conservative": _FairnessSetup(PLANNING_POLICY),
    "search": _FairnessSetup(PLANNING_POLICY, 0.0),
    "search, F of waiting jobs": _FairnessSetup(PLANNING_POLICY, 1.0),
    "search, F with history": _FairnessSetup(PLANNING_POLICY, 1.0, history=True),
}


def run_fairness(logs: Path, out: Path, *, quick: bool, only: Sequence[str], jobs: int | None = None) -> None:
    """Write page, figures and picture. Raises TraceError, OSError and ReplayDefectError."""
    many = jobs if jobs is not None else _QUICK if quick else _JOBS
    if many < 1:
        raise TraceError("--jobs: at least 1")
    names = chosen([workload.log for workload in _LOGS], only, logs)
    options = [*(f"--only {log}" for log in only), *([f"--jobs {jobs}"] if jobs is not None else [])]
    results = Results.of(NAME, ABOUT, out, *options, "--logs LOGS", quick=quick)
    rows: list[dict[str, Any]] = []
    warm_up(search=True)
    with Console(stderr=True).status("reading") as status:
        for log in _LOGS:
            if log.log not in names:
                continue
            busy = replace(log, part="busiest")
            skip = busiest(prepared_workload(busy, str(logs)).jobs, many)
            prepared = prepared_workload(replace(busy, skip=skip, jobs=many), str(logs))
            for name, setup in _SETUPS.items():
                status.update(f"{log.title}, {name}")
                rows.append(
                    {"log": log.title, "estimates": log.estimates, "setup": name} | _run(prepared, setup)
                )
    _draw(rows, results.picture)
    results.write({"results": rows}, _page(rows, many, results.picture.name), f"{len(rows)} runs")


def _run(prepared: Prepared, setup: _FairnessSetup) -> dict[str, Any]:
    slack = Slack.parse("off")
    site = {"fair_share": _HISTORY} if setup.history else {}
    settings = EngineSettings(slack=str(slack), site=site_policy(site))
    searching = None
    if setup.fair is not None:
        search = SearchSettings()
        weights = {**search.weights, Criterion.UNFAIRNESS: setup.fair}
        searching = SearchSchedule(search=replace(search, weights=weights) if setup.fair else search)
        settings = searching.apply_to(settings)
    began = process_time()
    found = run(prepared, setup.policy, settings=settings, searching=searching)
    cpu = process_time() - began
    jobs = prepared.jobs
    submit, procs = [job.submit for job in jobs], [job.procs for job in jobs]
    users = [job.user for job in jobs]
    metrics = measure(submit, found.start, found.end, procs, users, prepared.site.procs)
    start, end = np.array(found.start), np.array(found.end)
    area = np.array(procs, np.float64) * (end - start)
    waits = np.sort(waits_by_area(start - np.array(submit), area, np.array(users)))
    return {
        "jobs": len(jobs),
        "users": len(waits),
        "avg_wait_s": metrics.avg_wait_s,
        "avg_bounded_slowdown": metrics.avg_bounded_slowdown,
        "avg_response_s": metrics.avg_response_s,
        "p999_wait_s": metrics.p999_wait_s,
        "max_wait_s": metrics.max_wait_s,
        "utilisation": metrics.utilisation,
        "fairness_nuwt_stddev": metrics.fairness_nuwt_stddev,
        "nuwt": [round(value, 6) for value in waits.tolist()],
        "cpu_ms_per_job": 1_000 * cpu / len(jobs),
    }


# ---- the page --------------------------------------------------------------------------------------------


def _page(rows: Sequence[Mapping[str, Any]], many: int, picture: str) -> str:
    words = (
        f"Of each log the {many:,} jobs in a row that need most of the machine, beyond the first third; "
        "users' estimates, exact ones where the log has none; no promises. `multi-queue` is the order of PBS "
        "by the processor time used (algorithm 3.7). The search has 200 moves every 300 s and the daemon's "
        "weights, F in addition with weight 1. History: a day counts 0.9 of the day after it, for 30 days."
    )
    means = (
        "NUWT of a user: seconds waited for each processor-second used. F is the number of users times the "
        "square of its standard deviation. *ms*: processor time of all decisions for each job (the thesis's "
        "AR)."
    )
    differs = (
        "What differs from the thesis: it has whole logs, six qualities of estimates, and F over all data; "
        "SDSC-BLUE, KTH-SP2 and CTC-SP2 stand in the places of MetaCentrum 2008 and DataStar, which cannot "
        "be had, and of Thunder, where nobody waits."
    )
    columns = (
        *("log", "set-up", "mean wait s", "slowdown", "p99.9 wait s", "longest s", "NUWT mean", "its median"),
        *("its 90th percentile", "its standard deviation", "ms"),
    )
    lines = [words, "", means, "", differs, "", f"| {' | '.join(columns)} |"]
    lines.append("|---|---|" + "--:|" * (len(columns) - 2))
    log = ""
    for row in rows:
        head = f"{row['log']} ({row['users']} users)" if row["log"] != log else ""
        log = row["log"]
        waits = np.array(row["nuwt"])
        cells = (
            head,
            row["setup"],
            f"{row['avg_wait_s']:,.0f}",
            f"{row['avg_bounded_slowdown']:,.1f}",
            f"{row['p999_wait_s']:,.0f}",
            f"{row['max_wait_s']:,}",
            f"{waits.mean():.3g}",
            f"{np.median(waits):.3g}",
            f"{np.percentile(waits, 90):.3g}",
            f"{row['fairness_nuwt_stddev']:.3g}",
            f"{row['cpu_ms_per_job']:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"![Distribution of NUWT over users, by set-up]({picture})", "", *_beside(rows)]
    return "\n".join((*lines, ""))


def _beside(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The thesis's statements, and the results here."""
    logs = list(dict.fromkeys(row["log"] for row in rows))
    spread = {(row["log"], row["setup"]): row["fairness_nuwt_stddev"] for row in rows}
    wait = {(row["log"], row["setup"]): row["avg_wait_s"] for row in rows}

    def least(names: Sequence[str]) -> str:
        best = [min(names, key=lambda name: spread[log, name]) for log in logs]
        return ", ".join(f"{name} on {best.count(name)}" for name in names if name in best)

    def ratios(values: Mapping[tuple[str, str], float], name: str) -> str:
        return ", ".join(
            f"{values[log, name] / values[log, 'search']:.2f}" for log in logs if values[log, "search"]
        )

    fair = [name for name, setup in _SETUPS.items() if setup.fair]
    table = (
        ("PBS (multi-queue) and the search are the fairest", f"least spread of NUWT: {least(list(_SETUPS))}"),
        (
            "F in the criteria makes the search fairer (not measured apart)",
            "spread over that of the search without F, by log: "
            + "; ".join(f"{name.removeprefix('search, ')} {ratios(spread, name)}" for name in fair),
        ),
        (
            "The search with F keeps waits low",
            "mean wait over that without F: "
            + "; ".join(f"{name.removeprefix('search, ')} {ratios(wait, name)}" for name in fair),
        ),
    )
    lines = ["## Beside what the thesis says", "", "Its figures are curves without numbers.", ""]
    return [*lines, "| the thesis | here |", "|---|---|", *(f"| {said} | {found} |" for said, found in table)]


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the distribution of NUWT over users: one picture for each log, one curve for each set-up."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    logs = list(dict.fromkeys(row["log"] for row in rows))
    across = min(3, len(logs))
    figure = Figure(figsize=(4.4 * across, 3.6 * -(-len(logs) // across)), layout="constrained")
    axes = figure.subplots(-(-len(logs) // across), across, squeeze=False).ravel()
    for row in rows:
        waits = np.array(row["nuwt"])
        at = axes[logs.index(row["log"])]
        shares = 100 * np.arange(1, len(waits) + 1) / len(waits)
        at.step(np.maximum(waits, 1e-4), shares, where="post", label=row["setup"], linewidth=1)
        at.set_title(row["log"], fontsize="small")
        at.set_xscale("log")
        at.grid(alpha=0.3)
        at.set_xlabel("NUWT")
        at.set_ylabel("users, %")
    axes[0].legend(fontsize="x-small")
    figure.savefig(path, dpi=110)
