"""``schedd demo``: the daemon, an emulated pbs_server that it schedules, and the adapter between them."""

import argparse
import asyncio
import os
import signal
import sys
import time
import webbrowser
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.demo import change_job
from schedd.cli.demo.qsub import make_parser as make_qsub_parser
from schedd.cli.demo.qsub import run as run_qsub
from schedd.cli.user.formatting import describe_file_error

if TYPE_CHECKING:
    from schedd.cli.demo.processes import DemoLogins
    from schedd.cli.demo.run import DemoCluster

_NODES = 20
_CPUS = 16
_JOBS = 60
_SPEED = 60.0
_MOST_NODES = 20_000
_MOST_JOBS = 100_000
_FAMILIES = {"torque": ("TORQUE", "nodes=4:ppn=16"), "openpbs": ("OpenPBS", "select=4:ncpus=16")}
"""How each kind of server is called, and a request in its notation."""
_CLUSTER_NAMES = ("north", "south", "east", "west", "centre")  # names of a federation's clusters
_OTHER_SEED = 1_000  # difference between the seeds of two clusters


def make_parser() -> argparse.ArgumentParser:
    parser = OneLineErrorParser(
        prog="schedd demo",
        description="Start the daemon, an emulated pbs_server in scaled time, and pbs-adapter between them, "
        "all on loopback, and show the planned and the actual start of every job. Ctrl-C ends it.",
    )
    add = parser.add_argument
    add("--nodes", type=int, help=f"nodes of {_CPUS} cores (default: {_NODES})")
    add(
        "--jobs",
        type=int,
        help=f"jobs kept in the queue (default: {_JOBS}); with --log, the number of jobs to read",
    )
    add("--log", type=Path, help="jobs of an SWF or accounting log instead of Lublin and Feitelson's model")
    add(
        "--speed",
        type=float,
        help=f"cluster seconds per real second (default: {_SPEED:g}, less on a slow or busy machine)",
    )
    add("--exit-after", type=float, metavar="SECONDS", help="stop after this many real seconds")
    add(
        "--port",
        type=int,
        help="port on loopback, 0 for any free one (default: 8080, or any free one if that is taken)",
    )
    add("--open", action="store_true", help="open the dashboard in a browser, if there is a screen")
    add(
        "--federation",
        type=int,
        metavar="CLUSTERS",
        help=f"that many clusters, up to {len(_CLUSTER_NAMES)}, and a federation over them",
    )
    add("--server", choices=list(_FAMILIES), default="torque", help="server to emulate (default: torque)")
    add("--seed", type=int, default=1, help="random seed of the workload model (default: 1)")
    acts = parser.add_subparsers(dest="act", metavar="ACTION", title="actions")
    make_qsub_parser(acts)
    for act in change_job.ACTS:
        change_job.make_parser(act, acts)
    return parser


def run(argv: Sequence[str]) -> int:
    """Play until Ctrl-C, the end of the jobs, or --exit-after; 0, or 2 for bad arguments, 1 for trouble."""
    if argv[:1] == ["qsub"]:
        return run_qsub(argv[1:])
    if argv and argv[0] in change_job.ACTS:
        return change_job.run(argv[0], argv[1:])
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.act is not None:
        parser.error(f"{args.act} has its own options: schedd demo {args.act} …")
    # As Ctrl-C, which the event loop takes as an order to end and not as an error of whatever runs just then.
    # A shell starts background processes with this signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda _number, _frame: signal.raise_signal(signal.SIGINT))
    try:
        return _run_demo_command(args)
    except KeyboardInterrupt:
        print("\nEnded.")
        return 0
    except BrokenPipeError:  # the reader of the table has ended
        sys.stdout = None
        return 0


def _run_demo_command(args: argparse.Namespace) -> int:
    from schedd.cli.demo.arrivals import workload_from_log  # noqa: PLC0415
    from schedd.cli.demo.processes import USUAL_PORT, DemoError, start_daemon  # noqa: PLC0415
    from schedd.cli.demo.run import DemoCluster, DemoOutput, DemoRun  # noqa: PLC0415
    from schedd.cli.demo.steady import SteadyWorkload  # noqa: PLC0415
    from schedd.replay.trace_reader import read_traces  # noqa: PLC0415
    from schedd.replay.workload import TraceError  # noqa: PLC0415
    from schedd.service.cluster.clock import ScaledClock  # noqa: PLC0415

    try:
        _check_arguments(args)
        if args.log is not None:
            log = workload_from_log(read_traces([args.log])[0], _CPUS, args.jobs)
            clusters = [DemoCluster("demo", log)]
            speed = _SPEED if args.speed is None else args.speed
        else:
            names = _CLUSTER_NAMES[: args.federation] if args.federation else ("demo",)
            size = args.nodes or _NODES, _CPUS, args.jobs or _JOBS
            workloads = [
                SteadyWorkload(*size, args.seed + _OTHER_SEED * number) for number in range(len(names))
            ]
            clusters = [DemoCluster(*one) for one in zip(names, workloads, strict=True)]
            cores = _free_cores() / len(clusters)
            speed = min(workload.speed(_SPEED, cores) for workload in workloads)
            speed = speed if args.speed is None else args.speed
        clock = ScaledClock(int(time.time()), speed)
    except (TraceError, ValueError, OSError) as error:
        print(f"schedd demo: {describe_file_error(error)}", file=sys.stderr)
        return 2

    say = DemoOutput(sys.stdout)
    # The clock begins to count while the daemon compiles: jobs arrive only once it is ready.
    with TemporaryDirectory(prefix="schedd-demo-") as directory:
        say.step("starting the daemon")
        endless = {
            one.name: one.workload if isinstance(one.workload, SteadyWorkload) else None for one in clusters
        }
        part, logins = start_daemon(clock, args.port, Path(directory), endless, args.server)
        try:
            port = int(part.greeting())
            if args.port is None and port != USUAL_PORT:
                say.step(f"port {USUAL_PORT} is taken: using port {port}")
            url = f"http://127.0.0.1:{port}"
            say(_introduction(url, clusters, speed, logins, args.server))
            if args.open:
                _open_browser(f"{url}/dashboard/enter?key={logins.key}")
            describe = partial(_federation_introduction, token=logins.user)
            demo = DemoRun(part, url, logins, clock, args.server, say, describe)
            asyncio.run(demo.run(clusters, args.exit_after))
        except DemoError as error:
            say.end()
            print(f"schedd demo: {describe_file_error(error)}", file=sys.stderr)
            return 1
        finally:
            part.end()
    return 0


def _check_arguments(args: argparse.Namespace) -> None:
    """Raises ValueError."""
    if args.exit_after is not None and args.exit_after < 0:
        raise ValueError(f"--exit-after {args.exit_after}: must be at least 0")
    if args.speed is not None and not args.speed > 0:
        raise ValueError(f"--speed {args.speed}: must be above 0")
    if args.log is not None and args.nodes is not None:
        raise ValueError("--nodes: the log has the size of its machine; leave out --nodes or --log")
    if args.federation is not None:
        if args.log is not None or args.server != "torque":
            raise ValueError("--federation: leave out --log and --server; its clusters run TORQUE")
        if not 2 <= args.federation <= len(_CLUSTER_NAMES):
            raise ValueError(f"--federation {args.federation}: must be from 2 to {len(_CLUSTER_NAMES)}")
    for name, value, most in (("nodes", args.nodes, _MOST_NODES), ("jobs", args.jobs, _MOST_JOBS)):
        if value is not None and not 1 <= value <= most:
            raise ValueError(f"--{name} {value}: must be from 1 to {most:,}")


def _free_cores() -> float:
    """Cores of this machine, minus those used by others in the last minute; a quarter at least."""
    cores = os.cpu_count() or 1
    return max(cores / 4, cores - os.getloadavg()[0])


def _introduction(
    url: str, clusters: "Sequence[DemoCluster]", speed: float, logins: "DemoLogins", server: str
) -> str:
    first = clusters[0]
    base = f"{url}/v1/clusters/{first.name}"
    protocol, size = _FAMILIES[server]
    servers, its = "An emulated pbs_server", "its"
    several = ""
    if len(clusters) > 1:
        servers, its = f"{len(clusters)} emulated pbs_servers", "their"
        several = f" SCHEDD_CLUSTER={first.name}"
    return f"""\
{servers}: {len(first.workload.nodes):,} nodes, {first.workload.cpus:,} cpus{" each" * bool(several)}; \
{speed:g} s pass there in 1 s.
pbs-adapter starts {its} jobs over {protocol}'s protocol, as schedd decides.

Dashboard, logged in as admin (the link works until the demo ends):
  {url}/dashboard/enter?key={logins.key}
Tokens to log in with, or for the API:
  admin            {logins.admin}
  user1 (a user)   {logins.user}
As user1, in another shell: submit a job (or on the page Submit), and see when
it starts, why not sooner, and what would start it at once:
  export SCHEDD_URL={url}{several} \\
    SCHEDD_TOKEN={logins.user}
  JOB=$(echo 'sleep 1800' |
    {_command_name()} demo qsub -l {size},walltime=1:00:00)
  {_command_name()} showstart $JOB
  {_command_name()} demo qalter -l walltime=0:30:00 $JOB
  {_command_name()} demo qdel $JOB
Mail to user1 is on the page Mailbox.
API, to read without a token:
  {url}/docs
  {base}/jobs?state=planned
When would a job start, before you submit it?
  curl -s {base}/what-if \\
    -H 'Content-Type: application/json' \\
    -d '{{"request": "{size},walltime=02:00:00"}}'
Ctrl-C ends the demo.
"""


def _federation_introduction(url: str, token: str) -> str:
    return f"""\
A federation of all clusters; log in with a token from above:
  {url}/
Submit a job to it as user1, and see where it goes:
  export SCHEDD_FEDERATION={url} \\
    SCHEDD_TOKEN={token}
  echo 'sleep 1800' | {_command_name()} submit -l nodes=2:ppn=8,walltime=1:00:00
  {_command_name()} showq --federation
"""


def _command_name() -> str:
    """Return the command as it was called, where it was."""
    called = Path(sys.argv[0])
    return sys.argv[0] if called.name == "schedd" else "schedd"


def _open_browser(url: str) -> None:
    # Without a screen a text browser would cover the table.
    if sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
