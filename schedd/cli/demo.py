"""``schedd demo``: the daemon, an emulated pbs_server that it schedules, and the adapter between them."""

import argparse
import asyncio
import os
import signal
import sys
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from schedd.cli.arguments import Parser

__all__ = ["make_parser", "run"]

_NODES = 20
_CPUS = 16
_JOBS = 2_000
_WAITING = 60


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = Parser(
        prog="schedd demo",
        description="Start the daemon, an emulated pbs_server in scaled time, and pbs-adapter between them, "
        "all on loopback, and show the planned and the actual start of every job. Ctrl-C ends it.",
    )
    add = parser.add_argument
    add("--log", type=Path, help="jobs of an SWF or accounting log instead of Lublin and Feitelson's model")
    add("--speed", type=float, default=900.0, help="cluster seconds in a real one (900)")
    add("--exit-after", type=float, metavar="SECONDS", help="end by itself after so many real seconds")
    add("--port", type=int, help="port on loopback, 0 for any free one (8080, or any where that is taken)")
    add("--open", action="store_true", help="open the dashboard in a browser, where there is a screen")
    add("--seed", type=int, default=1, help="of the model (1)")
    return parser


def run(argv: Sequence[str]) -> int:
    """Play until Ctrl-C, the end of the jobs, or --exit-after; 0, or 2 for bad arguments, 1 for trouble."""
    args = make_parser().parse_args(argv)
    # As Ctrl-C, which the event loop takes as an order to end and not as an error of whatever runs just then.
    # A shell starts what is to run in the background with that ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
    try:
        return _play(args)
    except KeyboardInterrupt:
        print("\nEnded.")
        return 0
    except BrokenPipeError:  # whoever read the table has seen enough
        sys.stdout = None
        return 0


def _play(args: argparse.Namespace) -> int:
    from schedd.cli.arrivals import of_log, synthetic  # noqa: PLC0415
    from schedd.cli.demo_parts import DemoError, daemon  # noqa: PLC0415
    from schedd.cli.demo_run import play  # noqa: PLC0415
    from schedd.replay.read import read_traces  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415
    from schedd.service.clock import ScaledClock  # noqa: PLC0415

    try:
        clock = ScaledClock(int(time.time()), args.speed)
        if args.exit_after is not None and args.exit_after < 0:
            raise ValueError(f"--exit-after {args.exit_after}: must be at least 0")
        if args.log is not None:
            workload = of_log(read_traces([args.log])[0], _CPUS)
        else:
            workload = synthetic(_NODES, _CPUS, _JOBS, args.seed, _WAITING)
    except (TraceError, ValueError, OSError) as error:
        print(f"schedd demo: {error}", file=sys.stderr)
        return 2

    def say(line: str) -> None:
        print(line, flush=True)

    # The clock begins to count while the daemon compiles: jobs arrive only once it is ready.
    with TemporaryDirectory(prefix="schedd-demo-") as directory:
        part, token, key = daemon(clock, args.port, Path(directory))
        try:
            url = f"http://127.0.0.1:{part.greeting()}"
            _introduce(url, len(workload.nodes), workload.cpus, args.speed)
            _show_dashboard(f"{url}/dashboard/enter?key={key}", open_it=args.open)
            asyncio.run(play(part, url, token, clock, workload, say, args.exit_after))
        except DemoError as error:
            print(f"schedd demo: {error}", file=sys.stderr)
            return 1
        finally:
            part.end()
    return 0


def _introduce(url: str, nodes: int, procs: int, speed: float) -> None:
    base = f"{url}/v1/clusters/demo"
    question = '{"request": "nodes=4:ppn=16,walltime=02:00:00"}'
    print(
        f"An emulated pbs_server: {nodes} nodes, {procs} cpus; {speed:g} of its seconds pass in a real one."
    )
    print("pbs-adapter reads it and starts its jobs over TORQUE's own protocol, as schedd decides.")
    print("Look at it while it runs (no token is needed to read):")
    for link, about in (
        (f"{url}/docs", "all requests, to try out"),
        (base, "how it is doing"),
        (f"{base}/jobs?state=planned", "when and where each job starts"),
        (f"{base}/plan", "what runs and is planned, over time"),
        (f"{base}/gaps", "what is free, and until when"),
    ):
        print(f"  {link:{len(base) + 20}}  {about}")
    print("When would a job start, before you submit it?")
    print(f"  curl -s {base}/what-if -H 'Content-Type: application/json' -d '{question}'")
    print("Starting. The first start compiles the planner (2-3 minutes).")


def _show_dashboard(url: str, *, open_it: bool) -> None:
    print("The dashboard, with the rights of an admin for whoever opens this first:")
    print(f"  {url}", flush=True)
    # Without a screen a browser would be one of the terminal, over the table.
    screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if open_it and screen:
        webbrowser.open(url)
