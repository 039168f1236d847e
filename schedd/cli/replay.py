"""``schedd replay``: logs under one policy or several, compared in a table, as JSON and in a picture."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console

from schedd.policy.queue import QUEUE_POLICIES
from schedd.replay.driver import PLANNING_POLICY, Defect, replay
from schedd.replay.machines import read_machines
from schedd.replay.plot import save
from schedd.replay.prepare import prepare
from schedd.replay.read import read_traces
from schedd.replay.report import quality_table, speed_table, to_json
from schedd.replay.result import ReplayResult
from schedd.replay.site import Site, equal_nodes, of_groups, one_node
from schedd.replay.workload import Estimates, TraceError, select

__all__ = ["run"]

_POLICIES = (PLANNING_POLICY, *QUEUE_POLICIES)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="schedd replay", description=__doc__)
    parser.add_argument("log", nargs="+", type=Path, help="SWF (plain or gzip) or accounting logs")
    parser.add_argument("--policy", action="append", choices=_POLICIES, help="may be given several times")
    parser.add_argument("--estimates", choices=get_args(Estimates), default="exact")
    parser.add_argument("--jobs", type=int, help="the first so many jobs that ran")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many first")
    parser.add_argument("--procs", type=int, help="one node of so many cpus (default: the log's MaxProcs)")
    parser.add_argument("--nodes", type=int, help="so many equal nodes, with --cpus-per-node")
    parser.add_argument("--cpus-per-node", type=int)
    parser.add_argument("--mem-per-node", type=int, default=0, help="KiB; 0: memory is ignored")
    parser.add_argument("--machines", type=Path, help="file of the nodes' shapes")
    parser.add_argument("--kill", action="store_true", help="end jobs at their estimate")
    parser.add_argument("--strict", action="store_true", help="a malformed line is fatal")
    parser.add_argument("--validate", action="store_true", help="check all invariants at every step; slow")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--plot", type=Path, help="write a picture there (png, svg or pdf)")
    return parser


def _site(args: argparse.Namespace) -> Site | None:
    """The machine that the options name; None when they name none."""
    if args.machines is not None:
        return of_groups(read_machines(args.machines))
    if (args.nodes is None) != (args.cpus_per_node is None):
        raise TraceError("--nodes and --cpus-per-node go together")
    if args.nodes is not None:
        return equal_nodes(args.nodes, args.cpus_per_node, args.mem_per_node)
    return None


def run(argv: Sequence[str]) -> int:
    """Replay as the arguments say; 0, or 2 for bad input."""
    args = _parser().parse_args(argv)
    console = Console()
    results: list[ReplayResult] = []
    try:
        site = _site(args)
        for trace in read_traces(args.log, strict=args.strict):
            for fault in trace.faults:
                print(f"schedd replay: {trace.name}: {fault}", file=sys.stderr)
            procs = site.procs if site is not None else args.procs
            chosen = select(
                trace, estimates=args.estimates, jobs=args.jobs, skip=args.skip, procs=procs, kill=args.kill
            )
            prepared = prepare(chosen, site or one_node(chosen.procs), trace.unix_start_time)
            results += [
                replay(prepared, policy, validate=args.validate)
                for policy in args.policy or [PLANNING_POLICY]
            ]
    except (TraceError, OSError, ValueError) as error:
        print(f"schedd replay: {error}", file=sys.stderr)
        return 2
    except Defect as defect:
        print(f"schedd replay: a defect of the planner: {defect}", file=sys.stderr)
        return 3
    console.print(quality_table(results))
    console.print(speed_table(results))
    if args.json is not None:
        args.json.write_text(to_json(results), encoding="utf-8")
    if args.plot is not None:
        save(results, args.plot)
    return 0
