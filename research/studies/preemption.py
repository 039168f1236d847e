"""Experiment `preemption`: urgent jobs by planned preemption, and by rules of other schedulers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.console import Console

from research.experiments.preemption import PreemptionFigures, compare_rules, mark_urgent
from research.studies.results import Results, chosen
from schedd.replay.prepared import prepare
from schedd.replay.site import single_node_site
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import select

NAME: Final = "preemption"
ABOUT: Final = (
    "A tenth of the jobs of a log is urgent, and the others may be requeued for them. Compared are the waits "
    "of urgent and of other jobs and the lost work: with planned preemption, and with EASY backfilling and "
    "preemption at the last moment, by the default orders of OpenPBS and Slurm."
)
_LOGS: Final = {
    "KTH-SP2-1996-2.swf.gz": 100,
    "SDSC-SP2-1998-4.2-cln.swf.gz": 128,
    "CTC-SP2-1996-3.1-cln.swf.gz": 338,
}
"""With processors, all alike."""
_SHARE: Final = 0.1
_SEED: Final = 1
_JOBS: Final = 2_000
_QUICK: Final = 150


def run_preemption(logs: Path, out: Path, *, quick: bool, only: Sequence[str]) -> None:
    """Write page and figures. Raises TraceError and OSError for logs that cannot be read."""
    names = chosen(_LOGS, only, logs)
    results = Results.of(NAME, ABOUT, out, *(f"--only {log}" for log in only), "--logs LOGS", quick=quick)
    jobs = _QUICK if quick else _JOBS
    found: list[PreemptionFigures] = []
    with Console(stderr=True).status("reading") as status:
        for name in names:
            (trace,) = read_traces([logs / name])
            ran = sum(job.run > 0 and job.procs > 0 for job in trace.jobs)
            part = select(
                trace,
                estimates="user",
                skip=ran // 3,
                jobs=jobs,
                procs=_LOGS[name],
                kill=True,
            )
            part = replace(part, jobs=mark_urgent(part.jobs, _SHARE, _SEED))
            prepared = prepare(part, single_node_site(_LOGS[name]), trace.unix_start_time)

            def note(one: PreemptionFigures) -> None:
                found.append(one)
                status.update(f"{one.log}: {one.rule}")

            compare_rules(prepared, note)
            figures = {
                "jobs": jobs,
                "urgent": _SHARE,
                "seed": _SEED,
                "results": [one.as_row() for one in found],
            }
            results.write(figures, _page(found, jobs), f"{len(found)} results")  # a log may take an hour


def _page(found: Sequence[PreemptionFigures], jobs: int) -> str:
    words = (
        f"{jobs:,} jobs of each log from the end of its first third on, with users' estimates, on a machine "
        "of equal processors. A job is urgent by a random draw, whatever its size. *EASY*: urgent jobs go "
        "first, and if the first one cannot start, running jobs are requeued: *latest start* first (OpenPBS "
        "`preempt_sort = min_time_since_start`), or *latest submission* first (Slurm's lowest priority, if "
        "priority is age). Jobs that turn out not to be needed go on. *planned* is schedd with its default "
        "slack: no promise of a waiting job is broken; *protected*: victims have run for ten minutes, and "
        "none is preempted twice within 6 h; *unprotected*: without these two; *planned, none*: without "
        "preemption. Waits are from the submission to the start of the last run, in minutes; *at once* is "
        "the share of urgent jobs that start within a minute."
    )
    columns = (
        *("log", "rule", "urgent: mean", "95 %", "at once %", "others: mean", "95 %", "slowdown"),
        *("preempted runs", "lost core-hours", "broken promises"),
    )
    lines = [words, ""]
    lines += [f"| {' | '.join(columns)} |", "|---|---|" + "--:|" * (len(columns) - 2)]
    for at, one in enumerate(found):
        cells = (
            one.log if not at or found[at - 1].log != one.log else "",
            one.rule,
            f"{one.urgent_wait_mean / 60:,.1f}",
            f"{one.urgent_wait_p95 / 60:,.0f}",
            f"{100 * one.urgent_soon:.0f}",
            f"{one.others_wait_mean / 60:,.0f}",
            f"{one.others_wait_p95 / 60:,.0f}",
            f"{one.others_slowdown:,.1f}",
            f"{one.preempted_runs:,}",
            f"{one.lost_core_hours:,.0f}",
            "" if one.promise_breaches is None else f"{one.promise_breaches}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
