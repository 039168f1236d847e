"""Experiment `slips`: how often published starts get later within minutes, with and without a hold."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from research.experiments.displayed_starts import AGES_S, DisplayedStarts
from research.studies.results import Results, chosen
from schedd.engine import EngineSettings
from schedd.optimize import SearchSettings
from schedd.policy.slack import Slack
from schedd.replay.comparison import Comparison, warm_up
from schedd.replay.driver import BACKFILL_POLICY, walk
from schedd.replay.metrics import measure
from schedd.replay.prepared import Prepared
from schedd.replay.searches import SearchSchedule
from schedd.replay.simulation import PLANNING_POLICY

NAME: Final = "slips"
ABOUT: Final = (
    "How often a published start gets later within its first minutes, and by how much, if searches, "
    "backfilling and newcomers may not delay a start that was published less than publish_hold seconds ago. "
    "Users' estimates, the default slack, publications as in the daemon."
)
_WINDOWS: Final[Mapping[str, int]] = {
    "SDSC-SP2-1998-4.2-cln.swf.gz": 20_000,
    "KTH-SP2-1996-2.swf.gz": 12_000,
    "CTC-SP2-1996-3.1-cln.swf.gz": 30_000,
}
"""First job of the window, by log."""
_JOBS: Final = 1_200
_QUICK: Final = 60
_HOLDS_S: Final = (0, 120, 300, 600)
_SLACK: Final = Slack(3_600, 0.5)
_PAUSE_S: Final = 60
_MODES: Final = {"search": PLANNING_POLICY, "shortest": BACKFILL_POLICY}


def run_slips(logs: Path, out: Path, *, quick: bool, only: Sequence[str]) -> None:
    """Write page, figures and picture; with ``only`` the rows of other logs stay. Raises TraceError, OSError
    and ReplayDefectError.
    """
    names = chosen(_WINDOWS, only, logs)
    results = Results.of(NAME, ABOUT, out, "--logs LOGS", quick=quick)
    rows: list[dict[str, Any]] = []
    warm_up(search=True)
    with Console(stderr=True).status("reading") as status:
        for name in names:
            wanted = Comparison(
                logs=[logs / name], estimates="user", skip=_WINDOWS[name], jobs=_QUICK if quick else _JOBS
            )
            for ready in wanted.ready():
                for mode in _MODES:
                    for hold in _HOLDS_S:
                        status.update(f"{ready.prepared.name} {mode}, hold {hold} s")
                        rows.append(_run(ready.prepared, mode, hold))
    rows = _merged(results, rows)
    _draw(rows, results.picture)
    results.write({"results": rows}, _page(rows, results.picture.name), f"{len(rows)} runs")


def _run(prepared: Prepared, mode: str, hold: int) -> dict[str, Any]:
    settings = EngineSettings(slack=str(_SLACK), publish_pause=_PAUSE_S, publish_hold=hold)
    watch = DisplayedStarts(settings.publish_threshold)
    searching = SearchSchedule(search=SearchSettings(moves=200)) if mode == "search" else None
    simulation = walk(
        prepared, _MODES[mode], settings=settings, searching=searching, observer=watch, publishes=True
    )
    simulation.run()
    found, jobs = simulation.schedule(), prepared.jobs
    metrics = measure(
        [job.submit for job in jobs],
        found.start,
        found.end,
        [job.procs for job in jobs],
        [job.user for job in jobs],
        prepared.site.procs,
    )
    return {
        "log": prepared.name,
        "mode": mode,
        "hold_s": hold,
        **watch.figures().as_row(),
        "avg_wait_s": metrics.avg_wait_s,
        "avg_bounded_slowdown_10s": metrics.avg_bounded_slowdown_10s,
        "p999_wait_s": metrics.p999_wait_s,
        "max_wait_s": metrics.max_wait_s,
        "promise_breaches": found.promise_breaches,
    }


def _merged(results: Results, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows, and the rows of other logs that this version wrote before."""
    path = results.out / f"{results.stem}.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known = before.get("results", []) if before.get("sources") == results.sources else []
    fresh = {row["log"] for row in rows}
    return sorted(
        [row for row in known if row["log"] not in fresh] + list(rows),
        key=lambda row: (row["log"], row["mode"], row["hold_s"]),
    )


def _page(rows: Sequence[dict[str, Any]], picture: str) -> str:
    columns = (
        *("log", "mode", "hold s", "published", "later in 1 min %", "in 5 min %", "in 10 min %"),
        *("mean delay s", "jobs with a first start that got later %"),
        *("mean wait s", "slowdown", "p99.9 s", "longest s"),
    )
    words = (
        f"{_JOBS:,} jobs of each log. *Later*: share of published starts that a "
        "later one replaced within that time. *Mean delay*: of those within ten minutes. `search`: 200 "
        'moves every 300 s; `shortest`: `backfill = "shortest"`. Where nothing optimises the plan, no '
        "start gets later in a replay."
    )
    lines = [
        words,
        "",
        f"| {' | '.join(columns)} |",
        "|---|---|" + "--:|" * (len(columns) - 2),
    ]
    for row in rows:
        shares = [f"{100 * row['later'][age] / max(1, row['published']):.2f}" for age in ("60", "300", "600")]
        cells = (
            row["log"],
            row["mode"],
            f"{row['hold_s']}",
            f"{row['published']:,}",
            *shares,
            f"{row['mean_delay_s']:,.0f}",
            f"{100 * row['jobs_delayed'] / max(1, row['jobs']):.1f}",
            f"{row['avg_wait_s']:,.0f}",
            f"{row['avg_bounded_slowdown_10s']:.1f}",
            f"{row['p999_wait_s']:,.0f}",
            f"{row['max_wait_s']:,}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join((*lines, "", f"![Published starts that got later, by age]({picture})", ""))


def _draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the share of published starts that got later, by age, one curve for each hold."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    logs = sorted({row["log"] for row in rows})
    figure = Figure(figsize=(4 * len(logs), 6), layout="constrained")
    axes = figure.subplots(len(_MODES), len(logs), squeeze=False, sharex=True)
    for row in rows:
        at = axes[list(_MODES).index(row["mode"])][logs.index(row["log"])]
        shares = [100 * row["later"][str(age)] / max(1, row["published"]) for age in AGES_S]
        at.plot([age / 60 for age in AGES_S], shares, marker=".", label=f"hold {row['hold_s']} s")
        at.set_title(f"{row['log']}, {row['mode']}", fontsize="small")
        at.set_xscale("log")
        at.grid(alpha=0.3)
    for at in axes[-1]:
        at.set_xlabel("minutes since publication")
    for line in axes:
        line[0].set_ylabel("got later, %")
    axes[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=110)
