"""``python -m research experiment prediction``: how good predicted run times are, on whole logs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from research.experiments.run_times import LOGS, METHODS, Fared, fared, methods
from research.studies.results import Results, chosen
from schedd.replay.comparison import Comparison

NAME: Final = "prediction"
ABOUT: Final = (
    "Run times predicted for every job of five logs at its submission, from the jobs that had ended by "
    "then. Jobs start and end as the log says; a job that ran longer than its walltime counts as killed then."
)
_QUICK: Final = 300


def run_prediction(logs: Path, out: Path, *, quick: bool, only: Sequence[str]) -> None:
    """Write page, figures and picture. Raises TraceError and OSError for logs that cannot be read."""
    names = chosen(LOGS, only, logs)
    results = Results.of(NAME, ABOUT, out, *(f"--only {log}" for log in only), "--logs LOGS", quick=quick)
    found: list[Fared] = []
    usable = methods()
    for method in METHODS.keys() - set(usable):
        print(f"{method} is not installed and left out: pip install 'schedd[experiments]'")
    wanted = Comparison(
        logs=[logs / name for name in names], estimates="user", kill=True, jobs=_QUICK if quick else None
    )
    with Console(stderr=True).status("reading") as status:
        for ready in wanted.ready():
            for method in usable:
                status.update(f"{ready.prepared.name} {method}")
                found.append(fared(ready.prepared.name, ready.prepared.jobs, method))
    _picture(found, results.picture)
    page = _page(found, results.picture.name)
    results.write({"results": [one.as_row() for one in found]}, page, f"{len(found)} results")


def _page(found: Sequence[Fared], picture: str) -> str:
    words = (
        "`walltime` is what users asked for, `last two` the mean of the user's last two runs, `LightGBM` "
        "boosted trees (two models, calibrated, fitted again after 1,000 ends to the latest 10,000), "
        "`templates` schedd's prediction. Errors are of P50. A coverage is the share of jobs that ran no "
        "longer than the quantile says. By month (200 jobs or more) and by tenth of the users with 30 jobs "
        "or more it is given without the cold start: the first tenth of the log, and the first three jobs of "
        "each user; the picture shows the templates. *Apart*: outside of 88 to 92 %. µs are processor time "
        "for each job, on a loaded machine."
    )
    columns = (
        *("log", "method", "jobs", "mean error s", "median error s", "P50 covers %", "P90 covers %"),
        *("months %", "apart", "tenths of users %", "apart", "µs/job"),
    )
    lines = [words, ""]
    lines += [f"| {' | '.join(columns)} |", "|---|---|" + "--:|" * (len(columns) - 2)]
    for at, one in enumerate(found):
        log = one.log if not at or found[at - 1].log != one.log else ""
        cells = (
            log,
            one.method,
            f"{one.jobs:,}",
            f"{one.mae_s:,.0f}",
            f"{one.median_error_s:,.0f}",
            f"{100 * one.p50_coverage:.1f}",
            "-" if one.p90_coverage is None else f"{100 * one.p90_coverage:.1f}",
            _range(one.months),
            "" if one.months_apart is None else f"{one.months_apart} of {len(one.months)}",
            _range(one.tenths),
            "" if one.tenths_apart is None else f"{one.tenths_apart} of {len(one.tenths)}",
            f"{one.us_per_job:.1f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join((*lines, "", f"![Coverage by month and by tenth of the users]({picture})", ""))


def _range(shares: Sequence[float]) -> str:
    return f"{100 * min(shares):.1f} to {100 * max(shares):.1f}" if shares else ""


def _picture(found: Sequence[Fared], path: Path) -> None:
    """Coverage by month, and by tenth of the users."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (slow to import)

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for one in found:
        if one.method != "templates":
            continue
        for axes, shares in ((left, one.months), (right, one.tenths)):
            axes.plot(range(1, len(shares) + 1), [100 * share for share in shares], marker=".", label=one.log)
    for axes, label in ((left, "month of the log"), (right, "tenth of the users, fewest jobs first")):
        axes.axhspan(88, 92, color="0.9", zorder=0)
        axes.set_xlabel(label)
        axes.grid(alpha=0.3)
    left.set_ylabel("run no longer than their P90, %")
    right.legend(fontsize="small")
    figure.savefig(path, dpi=110)
