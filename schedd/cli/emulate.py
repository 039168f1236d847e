"""``schedd emulate``: an emulated pbs_server over a simulated cluster, with or without a workload."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schedd.cli.arguments import OneLineErrorParser, parse_within
from schedd.cli.demo.arrivals import arrivals
from schedd.replay.lublin import generate
from schedd.replay.trace_reader import read_traces
from schedd.replay.workload import TraceError
from server_adapter.emulator import OPENPBS, Arrival, NodeSpec, read_nodes
from server_adapter.emulator.command import serve
from server_adapter.emulator.versions import VERSIONS

_HOST = "127.0.0.1"


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineErrorParser(
        prog="schedd emulate",
        description="Run an emulated pbs_server on loopback, for our adapter and for TORQUE's own clients.",
    )
    add = parser.add_argument
    add(
        "--nodes",
        action="append",
        metavar="SPEC",
        help="nodes, may be repeated: COUNT[:ppn=CORES][:mem=SIZE][:PROPERTY…] (default: 4:ppn=4)",
    )
    add(
        "--version",
        choices=[*sorted(VERSIONS), OPENPBS.name],
        default="6.1",
        help="version of TORQUE to emulate, or openpbs (default: 6.1)",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--workload", type=Path, metavar="LOG", help="jobs from an SWF or accounting log")
    source.add_argument("--lublin", type=int, metavar="JOBS", help="this many jobs from Lublin's model")
    add("--jobs", type=int, help="with --workload: only the first N jobs that ran")
    add("--seed", type=int, default=1, help="random seed of the model (default: 1)")
    add(
        "--load",
        type=float,
        default=0.8,
        help="share of the cluster that the model's jobs need (default: 0.8)",
    )
    add(
        "--time-scale",
        type=parse_within(float, 0),
        default=1.0,
        help="simulated seconds per real second (default: 1)",
    )
    add(
        "--compress",
        type=parse_within(float, 1e-9),
        default=1.0,
        help="shorten the workload by this factor instead (default: 1)",
    )
    port = parse_within(int, 0, 65_535)
    add("--port", type=port, default=15001, help="port on loopback, 0 for any (default: 15001)")
    add(
        "--scheduler-port",
        type=port,
        default=15004,
        help="port of the scheduler, on loopback (default: 15004)",
    )
    add(
        "--auth-socket",
        type=Path,
        metavar="PATH",
        help="also act as trqauthd for unmodified clients, on this socket",
    )
    add(
        "--privileged-ports",
        action="store_true",
        help="trust only privileged ports, as a real server (default: trust everybody)",
    )
    add(
        "--credential-lifetime",
        type=parse_within(float, 0),
        default=0.0,
        metavar="S",
        help="seconds after which an authenticated connection is refused; 0: never (default: 0)",
    )
    add("--no-scheduling", action="store_true", help="start with scheduling=False")
    add("--until-finished", action="store_true", help="stop when the workload's last job has ended")
    return parser


def run(argv: Sequence[str]) -> int:
    """Runs until a signal, or until the workload is over; 0, or 2 for bad arguments, 1 for a taken port."""
    args = make_parser().parse_args(argv)
    try:
        nodes = read_nodes(args.nodes or ["4:ppn=4"])
        if args.until_finished and args.workload is None and args.lublin is None:
            raise ValueError("--until-finished needs --workload or --lublin")
        workload = _workload(args, nodes)
    except (TraceError, ValueError) as error:
        print(f"schedd emulate: {error}", file=sys.stderr)
        return 2
    options: dict[str, Any] = {
        "version": args.version,
        "time_scale": args.time_scale,
        "compress": args.compress,
        "host": _HOST,
        "port": args.port,
        "privileged_ports": args.privileged_ports,
        "credential_lifetime": args.credential_lifetime,
        "scheduling": not args.no_scheduling,
    }
    if args.version != OPENPBS.name:
        options |= {"scheduler": (_HOST, args.scheduler_port), "auth_socket": args.auth_socket}
    try:
        asyncio.run(serve(nodes, workload, options, until_finished=args.until_finished))
    except OSError as error:
        print(f"schedd emulate: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _workload(args: argparse.Namespace, nodes: Sequence[NodeSpec]) -> list[Arrival]:
    """Jobs submitted automatically; jobs wider than the cluster, and jobs that never ran, are left out."""
    if args.lublin is not None:
        trace = generate(args.lublin, sum(node.slots for node in nodes), args.seed, load=args.load)
    elif args.workload is not None:
        trace = read_traces([args.workload])[0]
    else:
        return []
    found, skipped = arrivals(trace, nodes, args.jobs)
    if skipped:
        count = "1 job is" if skipped == 1 else f"{skipped} jobs are"
        print(f"{count} wider than the cluster and left out", file=sys.stderr)
    return found
