"""Experiment `forecasts`: expected starts and probabilities of ends by a deadline, against what happened."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from research.studies.results import Results, chosen
from schedd.optimize import SearchSettings
from schedd.policy.slack import Slack
from schedd.replay.comparison import Comparison, warm_up
from schedd.replay.driver import BACKFILL_POLICY, replay
from schedd.replay.prepared import Prepared
from schedd.replay.searches import SearchSchedule
from schedd.replay.simulation import PLANNING_POLICY
from schedd.replay.start_estimates import StartEstimateFigures

NAME: Final = "forecasts"
ABOUT: Final = (
    "How well forecasts come true in the three planning modes: the starts expected for half and for nine "
    "tenths of the cases (P50 and P90), and the probability that a job ends by a deadline, which is drawn. "
    "Users' estimates, the default slack, no failures of nodes."
)
_WINDOWS: Final[Mapping[str, int]] = {
    "KTH-SP2-1996-2.swf.gz": 15_000,
    "CTC-SP2-1996-3.1-cln.swf.gz": 50_000,
    "SDSC-SP2-1998-4.2-cln.swf.gz": 45_000,
    "SDSC-BLUE-2000-4.1-cln.swf.gz": 150_000,
    "HPC2N-2002-2.1-cln.swf.gz": 120_000,
}  # first job of the window, by log
_JOBS: Final = 3_000
_QUICK: Final = 300
_SLACK: Final = Slack(3_600, 0.5)
_MODES: Final = {"repair": PLANNING_POLICY, "shortest": BACKFILL_POLICY, "search": PLANNING_POLICY}


def run_forecasts(logs: Path, out: Path, *, quick: bool, only: Sequence[str]) -> None:
    """Write page, figures and picture; with ``only`` the rows of other logs stay. Raises TraceError, OSError
    and ReplayDefectError.
    """
    results = Results.of(NAME, ABOUT, out, "--logs LOGS", quick=quick)
    rows: list[dict[str, Any]] = []
    warm_up(search=True)
    with Console(stderr=True).status("reading") as status:
        for name in chosen(_WINDOWS, only, logs):
            wanted = Comparison(
                logs=[logs / name], estimates="user", skip=_WINDOWS[name], jobs=_QUICK if quick else _JOBS
            )
            for ready in wanted.ready():
                for mode in _MODES:
                    status.update(f"{ready.prepared.name}, {mode}")
                    found = asdict(_run(ready.prepared, mode))
                    rows.append(
                        {"log": ready.prepared.name, "mode": mode, "sources": results.sources, **found}
                    )
    rows += results.rows_of_others("log", {row["log"] for row in rows})
    rows.sort(key=lambda row: [log.partition(".swf")[0] for log in _WINDOWS].index(row["log"]))
    _draw(rows, results.picture)
    figures = {"sources": _sources(rows), "results": rows}
    results.write(figures, _page(rows, results.picture.name), f"{len(rows)} runs")


def _sources(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the version of the sources; if logs have different ones, with the logs of each."""
    logs: dict[str, dict[str, None]] = {}
    for row in rows:
        logs.setdefault(row["sources"], {})[row["log"]] = None
    if len(logs) == 1:
        return next(iter(logs))
    return "; ".join(f"{version} ({', '.join(names)})" for version, names in logs.items())


def _run(prepared: Prepared, mode: str) -> StartEstimateFigures:
    searching = SearchSchedule(search=SearchSettings(moves=200)) if mode == "search" else None
    found = replay(prepared, _MODES[mode], slack=_SLACK, searching=searching, expected_starts=True).accuracy
    assert found is not None
    return found


def _page(rows: Sequence[dict[str, Any]], picture: str) -> str:
    words = (
        f"{_JOBS:,} jobs of each log; the first tenth is not counted. A forecast is made for each job that "
        "waits, at its submission. *Half*, *hour*: the P90 forecast at half of the wait, and an hour before "
        "the start. *Error*: median difference between start and P50, in seconds and as a multiple of the "
        "error of starts planned with walltimes. `search`: 200 moves every 300 s; forecasts do not simulate "
        "it."
    )
    head = (
        "| log | mode | jobs | P50 covers % | P90 covers % | half % | hour % | error s | of walltimes' "
        "| P90 / P50 | run times: P90 covers % | median error s |"
    )
    lines = [
        words,
        "",
        head,
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [" | ".join((f"| {row['log']} | {row['mode']}", *_start_figures(row))) + " |" for row in rows]
    lines += [
        "",
        "Shares that P90 covers in parts of the log, least to most, in the mode `repair`:",
        "",
        "| log | 30 days each | tenths of the users with 30 jobs or more |",
        "|---|---|---|",
    ]
    planned = [row for row in rows if row["mode"] == "repair"]
    lines += [
        f"| {row['log']} | {_parts(row['expected_months'])} | {_parts(row['expected_tenths'])} |"
        for row in planned
    ]
    words = (
        "Ends by a deadline, in the mode `repair`. *Gap*: mean of the difference between predicted and "
        "observed shares, weighted by jobs, in percentage points."
    )
    lines += [
        "",
        words,
        "",
        "| log | forecast % | jobs | mean predicted % | ended in time % | gap |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for row in planned:
        ends = row["expected_ends"] or ()
        jobs = sum(one["count"] for one in ends)
        gap = sum(one["count"] * abs(one["predicted"] - one["observed"]) for one in ends) / max(1, jobs)
        for one in ends:
            between = f"{100 * one['low']:.0f} to {100 * one['high']:.0f}"
            shares = f"{100 * one['predicted']:.1f} | {100 * one['observed']:.1f}"
            lines.append(f"| {row['log']} | {between} | {one['count']:,} | {shares} | |")
        lines.append(f"| {row['log']} | all | {jobs:,} | | | {100 * gap:.1f} |")
    lines += _accepted(planned)
    return "\n".join(
        (*lines, "", f"![Predicted and observed shares of jobs that end in time]({picture})", "")
    )


def _accepted(planned: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of deadlines that were accepted with a requested probability."""
    of_all = [row.get("expected_deadlines") or () for row in planned]
    required = sorted({one["required"] for of_log in of_all for one in of_log})
    if not required:
        return []
    words = (
        "Admission by probability, in the mode `repair`: the share of jobs that ended by the earliest "
        "deadline that was accepted with the requested probability."
    )
    lines = [
        "",
        words,
        "",
        "| log | " + " | ".join(f"{100 * one:g} %" for one in required) + " |",
        "|---|" + "--:|" * len(required),
    ]
    for row, of_log in zip(planned, of_all, strict=True):
        met = {one["required"]: f"{100 * one['met']:.1f}" for one in of_log}
        lines.append(f"| {row['log']} | " + " | ".join(met.get(one, "-") for one in required) + " |")
    return lines


def _start_figures(row: Mapping[str, Any]) -> list[str]:
    """The columns of a row; a dash where no job was forecast."""

    def shown(name: str, form: str, scale: float = 1.0) -> str:
        value = row[name]
        return "-" if value is None else format(scale * value, form)

    return [
        shown("expected_jobs", ",.0f"),
        shown("expected_p50_coverage", ".1f", 100),
        shown("expected_p90_coverage", ".1f", 100),
        shown("expected_half_p90_coverage", ".1f", 100),
        shown("expected_hour_p90_coverage", ".1f", 100),
        shown("expected_error_s", ",.0f"),
        shown("expected_error_ratio", ".2f"),
        shown("expected_sharpness", ".1f"),
        shown("runtime_p90_coverage", ".1f", 100),
        shown("runtime_median_error_s", ",.0f"),
    ]


def _parts(parts: Sequence[Mapping[str, Any]] | None) -> str:
    shares = [100 * one["p90_coverage"] for one in parts or ()]
    return f"{min(shares):.1f} to {max(shares):.1f} % in {len(shares)}" if shares else "-"


def _draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the observed share over the predicted probability, one panel for each log."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    planned = [row for row in rows if row["mode"] == "repair"]
    figure = Figure(figsize=(3.2 * max(1, len(planned)), 3.4), layout="constrained")
    panels = figure.subplots(1, max(1, len(planned)), squeeze=False, sharey=True)[0]
    for row, at in zip(planned, panels, strict=False):
        ends = row["expected_ends"] or ()
        at.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        at.plot([one["predicted"] for one in ends], [one["observed"] for one in ends], marker="o")
        at.set_title(row["log"], fontsize="small")
        at.set_xlabel("predicted probability")
        at.grid(alpha=0.3)
    panels[0].set_ylabel("share that ended in time")
    figure.savefig(path, dpi=110)
