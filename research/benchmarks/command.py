"""Command `python -m research bench`: one subcommand per benchmark."""

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from research.benchmarks import wire
from research.benchmarks.daemon import DaemonFailed
from research.benchmarks.engine_cost import bench_engine
from research.benchmarks.engine_cost import table_of as engine_table
from research.benchmarks.engine_cost import to_json as engine_to_json
from research.benchmarks.face import bench_face
from research.benchmarks.face import table_of as face_table
from research.benchmarks.face import to_json as face_to_json
from research.benchmarks.grow import CheckFailed, run_bench
from research.benchmarks.history import (
    Entry,
    compare_table,
    figures_of,
    load_history,
    measure_machine,
    save_history,
)
from research.benchmarks.imports import bench_imports
from research.benchmarks.imports import table_of as imports_table
from research.benchmarks.imports import to_json as imports_to_json
from research.benchmarks.load import Load, bench_events, bench_http, table_of
from research.benchmarks.load import to_json as load_to_json
from research.benchmarks.optimise import bench_optimise, parallel_table
from research.benchmarks.optimise import table_of as optimise_table
from research.benchmarks.optimise import to_json as optimise_to_json
from research.benchmarks.predict import bench_predict
from research.benchmarks.predict import table_of as predict_table
from research.benchmarks.predict import to_json as predict_to_json
from research.benchmarks.restart import bench_restart
from research.benchmarks.restart import table_of as restart_table
from research.benchmarks.restart import to_json as restart_to_json
from research.benchmarks.result import GrowthStep, step_table, summary_table, to_json
from research.benchmarks.size import bench_size
from research.benchmarks.size import table_of as size_table
from research.benchmarks.size import to_json as size_to_json
from research.benchmarks.users import bench_users
from research.benchmarks.users import table_of as users_table
from research.benchmarks.users import to_json as users_to_json
from research.benchmarks.workload import PROFILES
from research.federations.bench import bench_federation
from research.federations.bench_figures import table_of as federation_table
from research.federations.bench_figures import to_json as federation_to_json
from schedd.cli.arguments import OneLineErrorParser

HISTORY = Path("docs/reference/performance.json")


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineErrorParser(prog="python -m research bench", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    plan = what.add_parser("plan", help="grow a plan and measure every operation")
    plan.add_argument("--nodes", type=int, required=True)
    plan.add_argument("--jobs", type=int, required=True, help="so many are planned in the end, at least 10")
    engine = what.add_parser("engine", help="an arrival in the engine, and a batch with nothing to do")
    engine.add_argument("--nodes", type=int, default=219, help="(default: %(default)s)")
    engine.add_argument("--jobs", type=int, required=True, help="queued before the arrivals")
    engine.add_argument("--arrivals", type=int, default=300, help="measured ones (default: %(default)s)")
    optimise = what.add_parser("optimise", help="search a plan: moves a second, and what they gain")
    optimise.add_argument("--nodes", type=int, default=219, help="(default: %(default)s)")
    optimise.add_argument("--jobs", type=int, required=True, help="so many wait, at least 10")
    predict = what.add_parser("predict", help="predicted run times, and the starts of a whole queue")
    predict.add_argument("--nodes", type=int, default=219, help="(default: %(default)s)")
    predict.add_argument("--jobs", type=int, required=True, help="so many wait, at least 10")
    predict.add_argument(
        "--ended", type=int, default=100_000, help="learn from so many jobs (default: %(default)s)"
    )
    predict.add_argument("--users", type=int, default=1_000, help="of so many users (default: %(default)s)")
    plan.add_argument(
        "--policy",
        action="store_true",
        help="measure the engine again, with priorities and limits on and two slacks",
    )
    events = what.add_parser(
        "events", help="events at a real daemon: how many, and how long until it decides"
    )
    http = what.add_parser("http", help="reads of planned starts at a real daemon, alone and under events")
    http.add_argument("--reads", type=float, default=1_500, help="reads a second (default: %(default)s)")
    restart = what.add_parser("restart", help="a real daemon from its start until it leads")
    restart.add_argument("--cold", action="store_true", help="also without any kernel in the cache: minutes")
    size = what.add_parser("size", help="one snapshot of a whole large cluster, and what goes on meanwhile")
    face = what.add_parser("face", help="pages, their data and commands at a real daemon; in a browser, too")
    users = what.add_parser(
        "users", help="events at a real daemon while a user reads and books as much as possible"
    )
    for one in (events, http, restart, size, face, users):
        one.add_argument("--nodes", type=int, default=219, help="(default: %(default)s)")
        one.add_argument("--jobs", type=int, default=10_000, help="queued throughout (default: %(default)s)")
        one.add_argument(
            "--database", default="", metavar="URL", help="an empty one; default: a new SQLite file in TMPDIR"
        )
    for one in (events, http, restart, users):
        one.add_argument(
            "--rate", type=float, default=500, help="events a second, 0: as many as it takes (default: 500)"
        )
        seconds = 10 if one is restart else 30
        one.add_argument("--seconds", type=float, default=seconds, help="of each part (default: %(default)s)")
    events.add_argument("--events", type=int, default=0, help="end the storm after so many")
    events.add_argument(
        "--keep",
        type=float,
        default=0,
        metavar="DAYS",
        help="keep all for so long, as by keep_*",
    )
    imports = what.add_parser("imports", help="processor time in which a user's command is loaded")
    imports.add_argument("--rounds", type=int, default=25, help="(default: %(default)s)")
    imports.add_argument("--json", type=Path, help="write the result there")
    federation = what.add_parser("federation", help="routing decisions over many clusters, and their traffic")
    for name, kind, default, words in (
        ("clusters", int, 100, "so many"),
        ("nodes", int, 1_000, "of each cluster"),
        ("jobs", int, 100_000, "of the federation wait already"),
        ("routed", int, 1_000, "jobs are routed and measured"),
        ("rate", float, 5.0, "of these come in a second"),
        ("shapes", int, 40, "different requests among the jobs"),
        ("poll", float, 5.0, "seconds between two looks at a cluster"),
        ("new", float, 0.0, "share of the routed jobs that ask for what nobody did before"),
    ):
        federation.add_argument(
            f"--{name}", type=kind, default=default, help=f"{words} (default: %(default)s)"
        )
    federation.add_argument("--apart", action="store_true", help="the clusters have a process of their own")
    for one in (plan, engine, optimise, predict, events, http, restart, size, face, users, federation):
        one.add_argument(
            "--profile", choices=PROFILES, default="metacentrum", help="shapes of nodes and jobs"
        )
        one.add_argument("--seed", type=int, default=1)
        one.add_argument("--json", type=Path, help="write the result there")
    compared = what.add_parser("compare", help="compare results with the last entry that has such figures")
    compared.add_argument(
        "results", nargs="+", type=Path, help="JSON of bench engine, plan, events and imports"
    )
    compared.add_argument("--history", type=Path, default=HISTORY, help="(default: %(default)s)")
    compared.add_argument("--record", metavar="VERSION", help="add the results as an entry of this name")
    wire.add_arguments(what.add_parser("wire", help="read a whole server over a socket"))
    return parser


def run(argv: Sequence[str]) -> int:
    """Measure as the arguments say; 0, 1 when the daemon fails, 2 for bad arguments, 3 when the planner is
    found to be wrong.
    """
    args = make_parser().parse_args(argv)
    others = {"wire": wire.run, "plan": _plan, "compare": _compare}
    try:
        return others[args.what](args) if args.what in others else _measure(_BENCHMARKS[args.what], args)
    except ValueError as error:
        print(f"python -m research bench: {error}", file=sys.stderr)
        return 2
    except DaemonFailed as failure:
        print(f"python -m research bench: {failure}", file=sys.stderr)
        return 1
    except CheckFailed as failure:
        print(f"python -m research bench: a defect of the planner: {failure}", file=sys.stderr)
        return 3


def _measure(benchmark: "_Benchmark", args: argparse.Namespace) -> int:
    """Run a benchmark under a line of progress, print its tables, and write its result."""
    with Console(stderr=True).status("") as status:
        result = benchmark.run(args, lambda words: status.update(f"{words} ..."))
    console = Console() if sys.stdout.isatty() else Console(width=200)  # in a file no heading is broken
    for table in benchmark.tables:
        console.print(table(result))
    if args.json is not None:
        args.json.write_text(benchmark.to_json(result), encoding="utf-8")
    return 0


def _plan(args: argparse.Namespace) -> int:
    console = Console()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("planning", total=args.jobs)

        def tell(step: GrowthStep) -> None:
            progress.update(task, completed=step.jobs)

        result = run_bench(args.profile, args.nodes, args.jobs, args.seed, tell, policy=args.policy)
    console.print(step_table(result))
    console.print(summary_table(result))
    if args.json is not None:
        args.json.write_text(to_json(result), encoding="utf-8")
    return 0


def _compare(args: argparse.Namespace) -> int:
    entries = load_history(args.history)
    figures: dict[str, float] = {}
    for path in args.results:
        try:
            figures |= figures_of(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: {error}") from None
    now = Entry(args.record or "now", measure_machine(), figures)
    alike = [one for one in entries if one.figures.keys() & figures.keys()]
    if alike:
        Console().print(compare_table(alike[-1], now))
    else:
        print(f"{args.history} has no entry to compare with")
    if args.record:
        save_history(args.history, [*entries, now])
    return 0


def _predict(args: argparse.Namespace, tell: Callable[[str], None]) -> Any:
    return bench_predict(
        args.profile, args.nodes, args.jobs, args.seed, ended=args.ended, users=args.users, tell=tell
    )


def _federation(args: argparse.Namespace, tell: Callable[[str], None]) -> Any:
    # A federation logs each step of each job to the journal; the speed of a terminal is not measured here.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    return bench_federation(
        args.clusters,
        args.nodes,
        args.jobs,
        args.routed,
        args.rate,
        args.shapes,
        args.seed,
        args.profile,
        args.poll,
        args.apart,
        args.new,
        tell,
    )


def _load(args: argparse.Namespace) -> Load:
    return Load(
        profile=args.profile,
        nodes=args.nodes,
        jobs=args.jobs,
        rate=getattr(args, "rate", 0),
        seconds=getattr(args, "seconds", 0),
        seed=args.seed,
        database=args.database,
        events=getattr(args, "events", 0),
        keep=getattr(args, "keep", 0),
    )


@dataclass(frozen=True, slots=True)
class _Benchmark:
    """How a benchmark is run, its result shown, and written."""

    run: Callable[[argparse.Namespace, Callable[[str], None]], Any]
    tables: tuple[Callable[[Any], Table], ...]
    to_json: Callable[[Any], str]


_BENCHMARKS: Final = {
    "engine": _Benchmark(
        lambda args, tell: bench_engine(args.profile, args.nodes, args.jobs, args.seed, args.arrivals, tell),
        (engine_table,),
        engine_to_json,
    ),
    "optimise": _Benchmark(
        lambda args, tell: bench_optimise(args.profile, args.nodes, args.jobs, args.seed, tell=tell),
        (optimise_table, parallel_table),
        optimise_to_json,
    ),
    "predict": _Benchmark(_predict, (predict_table,), predict_to_json),
    "federation": _Benchmark(_federation, (federation_table,), federation_to_json),
    "events": _Benchmark(lambda args, tell: bench_events(_load(args), tell), (table_of,), load_to_json),
    "http": _Benchmark(
        lambda args, tell: bench_http(_load(args), args.reads, tell), (table_of,), load_to_json
    ),
    "imports": _Benchmark(
        lambda args, tell: bench_imports(args.rounds, tell), (imports_table,), imports_to_json
    ),
    "restart": _Benchmark(
        lambda args, tell: bench_restart(_load(args), cold=args.cold, tell=tell),
        (restart_table,),
        restart_to_json,
    ),
    "size": _Benchmark(lambda args, tell: bench_size(_load(args), tell), (size_table,), size_to_json),
    "face": _Benchmark(lambda args, tell: bench_face(_load(args), tell), (face_table,), face_to_json),
    "users": _Benchmark(lambda args, tell: bench_users(_load(args), tell), (users_table,), users_to_json),
}
