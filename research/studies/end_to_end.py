"""Command `python -m research end_to_end`: the same jobs in a replay and on a real OpenPBS server."""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np

from research.studies.results import Results
from research.versions import version_of
from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.replay_options import SiteRun, load_site_run
from schedd.plan.columns import Ints
from schedd.replay.accounting import read_accounting
from schedd.replay.driver import run as run_replay
from schedd.replay.machine_state import ReplayDefectError
from schedd.replay.prepared import prepare
from schedd.replay.simulation import PLANNING_POLICY
from schedd.replay.site import equal_node_site
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import Selection, Trace, TraceError, TraceJob, select

NAME: Final = "end_to_end"
ABOUT: Final = (
    "Do jobs start in a replay when they start on a real server? The same window of a log, with all times "
    "divided, ran in `schedd replay` and, as `sleep`, through `pbs-adapter` and `schedd serve` on an "
    "unmodified OpenPBS server at real time, with the same policy, walltimes and cores."
)
_MARGIN_S: Final = 15
"""The least that a walltime exceeds the run time: a real job needs time to start and to end."""
_MOVES: Final = 200
"""Moves of each search of a replay, as in `schedd replay`; the daemon's searches are bounded by time."""
_SEEDS: Final = 8
"""Replays with searches that differ in nothing but the searches' seed: so far apart is chance alone."""


@dataclass(frozen=True, slots=True)
class RealRun:
    """A run on a real server: its settings, and the job of the log behind each ended job."""

    title: str
    settings: Path
    jobs: Mapping[int, TraceJob]


def run(argv: Sequence[str]) -> int:
    """Run the chosen step of three; 2 for input that cannot be used, 3 if a replay broke an invariant."""
    args = make_parser().parse_args(argv)
    try:
        args.step(args)
    except (TraceError, OSError, subprocess.CalledProcessError) as error:
        print(f"python -m research end_to_end: {error}", file=sys.stderr)
        return 2
    except ReplayDefectError as error:
        print(f"python -m research end_to_end: the engine broke a rule: {error}", file=sys.stderr)
        return 3
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineErrorParser(prog="python -m research end_to_end", description=ABOUT)
    steps = parser.add_subparsers(required=True, metavar="STEP")
    window = steps.add_parser("window", help="write a window of a log with divided times")
    window.set_defaults(step=_write_window)
    window.add_argument("log", type=Path)
    window.add_argument("out", type=Path)
    window.add_argument("--skip", type=int, default=0, metavar="N", help="skip the first N jobs")
    window.add_argument("--jobs", type=int, default=360, metavar="N")
    window.add_argument("--divisor", type=float, default=32.0, metavar="D", help="of all times")
    submit = steps.add_parser("submit", help="submit each job at its time, and print the time of the first")
    submit.set_defaults(step=_submit)
    submit.add_argument("log", type=Path, help="from the step window")
    submit.add_argument("--qsub", default="qsub", metavar="PATH")
    submit.add_argument("--user", help="owner of the jobs (default: the caller)")
    compare = steps.add_parser(
        "compare", help="replay the jobs, compare the starts, and write page and figures"
    )
    compare.set_defaults(step=_compare)
    compare.add_argument("--nodes", type=int, required=True, metavar="N")
    compare.add_argument("--cpus-per-node", type=int, required=True, metavar="C")
    compare.add_argument(
        "--run", nargs=5, action="append", required=True,
        metavar=("TITLE", "WINDOW", "BEGIN", "ACCOUNTING", "SETTINGS"),
        help="a run: the log of the step window, the time that `submit` printed, the server's accounting "
        "log, the daemon's schedd.toml; repeatable",
    )  # fmt: skip
    compare.add_argument("--out", type=Path, default=Path("research/results/servers"), metavar="DIR")
    return parser


# ---- the jobs --------------------------------------------------------------------------------------------


def _write_window(args: argparse.Namespace) -> None:
    trace = read_traces([args.log])[0]
    jobs = select(trace, estimates="user", jobs=args.jobs, skip=args.skip).jobs
    args.out.write_text(
        "\n".join(scale_window(jobs, trace.max_procs or 0, args.divisor)) + "\n", encoding="ascii"
    )


def scale_window(jobs: Sequence[TraceJob], procs: int, divisor: float) -> Iterator[str]:
    """Yield the lines of a log with all times of ``jobs`` divided; the first is submitted at 0."""
    begin = jobs[0].submit
    yield f"; MaxProcs: {procs}"
    for number, job in enumerate(jobs, 1):
        submit, ran = round((job.submit - begin) / divisor), max(1, round(job.run / divisor))
        walltime = max(round(job.estimate / divisor), ran + _MARGIN_S)
        yield f"{number} {submit} -1 {ran} {job.procs} -1 -1 {job.procs} {walltime}" + " -1" * 9


def _submit(args: argparse.Namespace) -> None:
    begin = int(time.time()) + 2
    print(begin, flush=True)
    for job in read_traces([args.log])[0].jobs:
        time.sleep(max(0.0, begin + job.submit - time.time()))
        limits = f"select={job.procs}:ncpus=1,walltime={job.estimate}"
        subprocess.run(
            [args.qsub, "-N", f"j{job.id}", "-l", limits, "-koe", "-"],
            input=f"sleep {job.run}\n", text=True, check=True, user=args.user, cwd="/",
            stdout=subprocess.DEVNULL,
        )  # fmt: skip


# ---- the comparison --------------------------------------------------------------------------------------


def _compare(args: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = []
    for title, window, begin, accounting, settings in args.run:
        trace = read_traces([Path(window)])[0]
        chosen = select(trace, estimates="user", procs=args.nodes * args.cpus_per_node)
        ended = read_runs(read_accounting([Path(accounting)], title), int(begin))
        rows += compare_run(RealRun(title, Path(settings), ended), chosen, args.nodes, args.cpus_per_node)
    command = (
        "python -m research end_to_end compare "
        f"--nodes {args.nodes} --cpus-per-node {args.cpus_per_node} "
        "--run TITLE WINDOW BEGIN ACCOUNTING SETTINGS …"
    )
    results = Results(args.out, NAME, ABOUT, command, version_of(f"research.studies.{NAME}"))
    args.out.mkdir(parents=True, exist_ok=True)
    results.write({"results": rows}, make_page(rows), f"{len(args.run)} runs")


def read_runs(trace: Trace, begin: int) -> dict[int, TraceJob]:
    """Return the ended jobs of an accounting log by number in the window, with times since ``begin``."""
    return {
        int(job.name[1:]): replace(job, submit=job.submit - begin)
        for job in trace.jobs
        if job.submit >= begin and job.name[:1] == "j" and job.name[1:].isdigit()
    }


def compare_run(real: RealRun, chosen: Selection, nodes: int, cpus: int) -> list[dict[str, Any]]:
    """Return the figures of a run against two replays: with the window's times, and the recorded ones."""
    site_run = load_site_run(real.settings, {"moves": _MOVES})
    assert site_run is not None
    if not any(job.id in real.jobs for job in chosen.jobs):
        raise TraceError(f"{real.title}: the accounting log has no job of the window")
    recorded = [_as_recorded(job, real.jobs[int(job.id)]) for job in chosen.jobs if job.id in real.jobs]
    recorded.sort(key=lambda job: job.submit)
    rows: list[dict[str, Any]] = []
    for times, jobs in (("of the window", chosen.jobs), ("as recorded", recorded)):
        found = [_replay(replace(chosen, jobs=tuple(jobs)), one, nodes, cpus) for one in _seeded(site_run)]
        by_seed = [_figures(starts, jobs, real.jobs) for starts in found]
        row = {"run": real.title, "times": times} | by_seed[0]
        if len(found) > 1:
            row["response_seeds_s"] = [one["response_replay_s"] for one in by_seed]
            row["apart_mean_seeds_s"] = [one["apart_mean_s"] for one in by_seed]
            apart = [float(np.abs(a - b).mean()) for a, b in combinations(found, 2)]
            row["replays_apart_mean_s"] = [min(apart), max(apart)]
        rows.append(row)
    return rows


def _seeded(site_run: SiteRun) -> list[SiteRun]:
    """Return the run with each seed of its searches; without searches it is the only one."""
    schedule = site_run.searching
    if schedule is None:
        return [site_run]
    return [
        site_run._replace(searching=replace(schedule, search=replace(schedule.search, seed=seed)))
        for seed in range(_SEEDS)
    ]


def _as_recorded(job: TraceJob, real: TraceJob) -> TraceJob:
    return replace(job, submit=real.submit, run=max(1, real.run), estimate=max(job.estimate, real.run))


def _replay(chosen: Selection, site_run: SiteRun, nodes: int, cpus: int) -> Ints:
    """Return the start of each job in a replay with the daemon's settings."""
    prepared = prepare(chosen, equal_node_site(nodes, cpus))
    return run_replay(
        prepared, PLANNING_POLICY, settings=site_run.settings, searching=site_run.searching
    ).start


def _figures(starts: Ints, jobs: Sequence[TraceJob], real: Mapping[int, TraceJob]) -> dict[str, Any]:
    """Return differences between the real starts of ``jobs`` and the starts of a replay, in seconds."""
    did_end = np.array([job.id in real for job in jobs])
    not_ended, starts = len(jobs) - int(did_end.sum()), starts[did_end]
    jobs = [job for job in jobs if job.id in real]
    ended = [real[int(job.id)] for job in jobs]
    submit, ran = np.array([job.submit for job in jobs]), np.array([job.run for job in jobs])
    start = np.array([job.submit + (job.wait or 0) for job in ended])
    end = start + np.array([job.run for job in ended])
    apart = np.abs(start - starts)
    makespans = int(end.max() - submit.min()), int((starts + ran).max() - submit.min())
    responses = float((end - submit).mean()), float((starts + ran - submit).mean())
    return {
        "jobs": len(jobs),
        "not_ended": not_ended,
        "waited": int((starts > submit).sum()),
        "apart_median_s": float(np.median(apart)),
        "apart_p90_s": float(np.percentile(apart, 90)),
        "apart_max_s": int(apart.max()),
        "apart_mean_s": float(apart.mean()),
        "later_mean_s": float((start - starts).mean()),
        "makespan_s": makespans[0],
        "makespan_replay_s": makespans[1],
        "response_s": responses[0],
        "response_replay_s": responses[1],
    }


# ---- the page --------------------------------------------------------------------------------------------

_SET_UP: Final = (
    "The jobs come from `python -m research end_to_end window LOG WINDOW --skip N --jobs N --divisor D`, and",
    "`python -m research end_to_end submit WINDOW --user USER` hands them to the server. A replay takes the",
    "times *of the window*, or the submissions and run times *as recorded* by the server, which include what",
    "server and nodes need for each start and end. Differences are of the real run from the replay. The last",
    "column is what Chlumský, Klusáček and Ruda (2012) compare between their simulator and TORQUE: the mean",
    "response (1,002 jobs of HPC2N: 0.19 % for FCFS, 0.33 % for conservative backfilling).",
    "",
)


_BY_SEED: Final = (
    "run", "times of the replay", "mean response, real [s]", "in the replays",
    "starts apart: real from a replay, mean [s]", "two replays",
)  # fmt: skip


def make_page(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the set-up and a table with a line for each run and replay."""
    columns = (
        "run", "times of the replay", "jobs (waited)", "starts apart: median, p90, max [s]",
        "mean [s], of the makespan", "makespan, replay [s]", "mean response, replay [s]", "difference",
    )  # fmt: skip
    lines = [*_SET_UP, f"| {' | '.join(columns)} |", "|---|---|--:|--:|--:|--:|--:|--:|"]
    for row in rows:
        share = row["apart_mean_s"] / row["makespan_s"]
        more = row["response_s"] / row["response_replay_s"] - 1
        lines.append(
            f"| {row['run']} | {row['times']} | {row['jobs']} ({row['waited']}) "
            f"| {row['apart_median_s']:.0f}, {row['apart_p90_s']:.0f}, {row['apart_max_s']} "
            f"| {row['apart_mean_s']:.1f}, {share:.2%} "
            f"| {row['makespan_s']:,}, {row['makespan_replay_s']:,} "
            f"| {row['response_s']:,.1f}, {row['response_replay_s']:,.1f} | {more:+.2%} |"
        )
    searched = [row for row in rows if "response_seeds_s" in row]
    if searched:
        lines += [
            "",
            f"{_SEEDS} replays of each run with searches, which differ only in the seed of the searches:",
            "",
            f"| {' | '.join(_BY_SEED)} |",
            "|---|---|--:|--:|--:|--:|",
            *(
                f"| {row['run']} | {row['times']} | {row['response_s']:,.1f} "
                f"| {_range(row['response_seeds_s'])} | {_range(row['apart_mean_seeds_s'])} "
                f"| {_range(row['replays_apart_mean_s'])} |"
                for row in searched
            ),
        ]
    missing = {row["run"]: row["not_ended"] for row in rows if row["not_ended"]}
    lines += [
        "",
        *(f"{run}: {many} jobs had not ended and are not compared." for run, many in missing.items()),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):,.1f} to {max(values):,.1f}"
