"""``schedd pause``: start no jobs until ``schedd resume``."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json

_MORE = "The pause survives restarts. Needs the role operator or admin; on the daemon's socket root is one."


def make_parser(name: str = "schedd pause") -> argparse.ArgumentParser:
    about = "Stop starting jobs on a cluster until `schedd resume`; planning continues."
    found = make_command_parser(name, about, _MORE, of_cluster=True)
    found.add_argument(
        "why",
        metavar="REASON",
        nargs="?",
        help='reason shown to all users; with spaces it may stand alone: schedd pause "cooling fault"',
    )
    found.add_argument("--reason", help="the same as REASON")
    return found


def run(argv: Sequence[str], name: str = "schedd pause") -> int:
    """Pause; returns the exit code."""
    return run_command(make_parser(name), _pause, argv, acts=True, adjust=_find_reason)


def _find_reason(args: argparse.Namespace) -> None:
    """A single argument with spaces is the reason: names of clusters have none."""
    args.reason = args.reason or args.why
    if not args.reason and " " in (args.cluster or "").strip():
        args.cluster, args.reason = None, args.cluster
    elif args.cluster and not args.reason:
        args.unknown_cluster_hint = f"if it is the reason: schedd pause --reason {args.cluster}"


def _pause(session: Session, args: argparse.Namespace) -> bool:
    done = session.client.pause(args.reason or "an admin's order")
    if args.json:
        show_json(done)
    else:
        print(f"{session.cluster.name}: no jobs are started: {done.paused}")
    return True
