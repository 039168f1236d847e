"""``schedd bench plan | wire``: how quick the planner and the adapter are on this computer."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from schedd.bench.grow import CheckFailed, run_bench
from schedd.bench.result import Step, step_table, summary_table, to_json
from schedd.bench.workload import PROFILES
from server_adapter import bench_wire

__all__ = ["run"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="schedd bench", description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    plan = what.add_parser("plan", help="grow a plan and measure every operation")
    plan.add_argument("--nodes", type=int, required=True)
    plan.add_argument("--jobs", type=int, required=True, help="so many are planned in the end, at least 10")
    plan.add_argument("--profile", choices=PROFILES, default="metacentrum", help="shapes of nodes and jobs")
    plan.add_argument("--seed", type=int, default=1)
    plan.add_argument("--json", type=Path, help="write the result there")
    bench_wire.add_arguments(what.add_parser("wire", help="read a whole server over a socket"))
    return parser


def run(argv: Sequence[str]) -> int:
    """Measure as the arguments say; 0, 2 for bad arguments, 3 when the planner is found to be wrong."""
    args = _parser().parse_args(argv)
    if args.what == "wire":
        return bench_wire.run(args)
    console = Console()
    try:
        with Progress(console=Console(stderr=True), transient=True) as progress:
            task = progress.add_task("planning", total=args.jobs)

            def tell(step: Step) -> None:
                progress.update(task, completed=step.jobs)

            result = run_bench(args.profile, args.nodes, args.jobs, args.seed, tell)
    except ValueError as error:
        print(f"schedd bench: {error}", file=sys.stderr)
        return 2
    except CheckFailed as failure:
        print(f"schedd bench: a defect of the planner: {failure}", file=sys.stderr)
        return 3
    console.print(step_table(result))
    console.print(summary_table(result))
    if args.json is not None:
        args.json.write_text(to_json(result), encoding="utf-8")
    return 0
