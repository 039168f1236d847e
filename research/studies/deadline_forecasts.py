"""Experiment `deadline_forecasts`: predicted probabilities of ends by a deadline against observed shares."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from research.studies.results import Results, chosen
from schedd.policy.slack import Slack
from schedd.replay.comparison import Comparison, warm_up
from schedd.replay.driver import replay

NAME: Final = "deadline_forecasts"
ABOUT: Final = (
    "How well the predicted probability that a job ends by a deadline comes true. Each waiting job is "
    "forecast at submission, for a deadline of a drawn probability. Users' estimates, the default slack, no "
    "failures of nodes."
)
_WINDOWS: Final[Mapping[str, int]] = {
    "KTH-SP2-1996-2.swf.gz": 12_000,
    "SDSC-SP2-1998-4.2-cln.swf.gz": 20_000,
    "CTC-SP2-1996-3.1-cln.swf.gz": 30_000,
}  # first job of the window, by log
_JOBS: Final = 1_000
_QUICK: Final = 60
_SLACK: Final = Slack(3_600, 0.5)


def run_deadline_forecasts(logs: Path, out: Path, *, quick: bool, only: Sequence[str]) -> None:
    """Write page, figures and picture. Raises TraceError, OSError and ReplayDefectError."""
    results = Results.of(NAME, ABOUT, out, "--logs LOGS", quick=quick)
    rows: list[dict[str, Any]] = []
    warm_up(search=False)
    with Console(stderr=True).status("reading") as status:
        for name in chosen(_WINDOWS, only, logs):
            wanted = Comparison(
                logs=[logs / name], estimates="user", skip=_WINDOWS[name], jobs=_QUICK if quick else _JOBS
            )
            for ready in wanted.ready():
                status.update(ready.prepared.name)
                found = replay(ready.prepared, "conservative", slack=_SLACK, expected_starts=True).accuracy
                assert found is not None
                rows += [
                    {
                        "log": ready.prepared.name,
                        "low": one.low,
                        "high": one.high,
                        "jobs": one.count,
                        "predicted": round(one.predicted, 4),
                        "observed": round(one.observed, 4),
                    }
                    for one in found.expected_ends or ()
                ]
    rows += results.rows_of_others("log", {row["log"] for row in rows})
    rows.sort(key=lambda row: [log.partition(".swf")[0] for log in _WINDOWS].index(row["log"]))
    _draw(rows, results.picture)
    results.write({"results": rows}, _page(rows, results.picture.name), f"{len(rows)} rows")


def _page(rows: Sequence[dict[str, Any]], picture: str) -> str:
    words = (
        f"{_JOBS:,} jobs of each log, without the first tenth. *Gap*: mean of the difference between "
        "predicted and observed shares, weighted by jobs."
    )
    lines = [
        words,
        "",
        "| log | forecast % | jobs | mean predicted % | ended in time % |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in rows:
        between = f"{100 * row['low']:.0f} to {100 * row['high']:.0f}"
        shares = f"{100 * row['predicted']:.1f} | {100 * row['observed']:.1f}"
        lines.append(f"| {row['log']} | {between} | {row['jobs']:,} | {shares} |")
    lines += ["", "| log | jobs | gap, percentage points |", "|---|--:|--:|"]
    for log in dict.fromkeys(row["log"] for row in rows):
        mine = [row for row in rows if row["log"] == log]
        jobs = sum(row["jobs"] for row in mine)
        gap = sum(row["jobs"] * abs(row["predicted"] - row["observed"]) for row in mine) / max(1, jobs)
        lines.append(f"| {log} | {jobs:,} | {100 * gap:.1f} |")
    return "\n".join(
        (*lines, "", f"![Predicted and observed shares of jobs that end in time]({picture})", "")
    )


def _draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the observed share over the predicted probability, one panel for each log."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    logs = list(dict.fromkeys(row["log"] for row in rows))
    figure = Figure(figsize=(4 * max(1, len(logs)), 4), layout="constrained")
    panels = figure.subplots(1, max(1, len(logs)), squeeze=False)[0]
    for log, at in zip(logs, panels, strict=False):
        mine = [row for row in rows if row["log"] == log]
        at.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        at.plot([row["predicted"] for row in mine], [row["observed"] for row in mine], marker="o")
        at.set_title(log, fontsize="small")
        at.set_xlabel("predicted probability")
        at.grid(alpha=0.3)
    panels[0].set_ylabel("share that ended in time")
    figure.savefig(path, dpi=110)
