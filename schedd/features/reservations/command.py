"""``schedd reservation``: list, create and remove reservations of nodes."""

import argparse
import re
from collections.abc import Sequence
from typing import Final

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_duration, format_table, format_time
from schedd.cli.user.hold import split_outside_brackets
from schedd.cli.user.preview_text import format_preview
from schedd.cli.user.time_arguments import parse_coming_time
from schedd.client import ClientError
from schedd.client.answers import ReservationView
from schedd.client.client import Reserved
from schedd.name_list import shorten_list

_ACCESS = ("users", "groups", "accounts", "queues")
_WINDOW: Final = re.compile(r"@\d{4}-\d\d-\d\dT\d\d:\d\dZ$")
"""End of the name of each window of a standing reservation."""


def make_parser(name: str = "schedd reservation") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show, create or delete reservations: nodes, or some of their cores, on which no job is planned for "
        "a time (maintenance), or only jobs of some users. Changes need the role operator or admin.",
        "times:\n  2026-12-01T08:00   in local time; 08:00 is today's\n  +2h, +30m, +7d     from now on",
    )
    acts = found.add_subparsers(dest="act", metavar="ACTION", title="actions")
    shown = "list all reservations; of a standing one, its next window (default)"
    acts.add_parser("list", help=shown, allow_abbrev=False)
    make = acts.add_parser("add", help="create a reservation, or replace one", allow_abbrev=False)
    add = make.add_argument
    add("name", metavar="NAME", help="name of the reservation")
    about = "nodes: names, ranges (n[001-020]), patterns ('gpu*'), properties, states"
    add("-w", dest="nodes", metavar="NODE,…", type=split_outside_brackets, default=[], help=about)
    add(
        "-f",
        dest="features",
        metavar="FEATURE,…",
        type=_split_list,
        default=[],
        help="nodes that have all of these features",
    )
    add("--all", dest="everywhere", action="store_true", help="all nodes")
    add("--start", metavar="WHEN", help="start (default: now)")
    add("--end", metavar="WHEN", help="end (default: none, until it is removed)")
    add("--reason", metavar="TEXT", default="", help="shown to all users")
    for who in _ACCESS:
        add(f"--{who}", metavar="NAME,…", type=_split_list, default=[], help=f"{who} that may use the nodes")
    add(
        "--shorter",
        metavar="MINUTES",
        type=int,
        default=0,
        help="jobs with a walltime up to this may use the nodes (default: 0, none)",
    )
    for unit in ("cores", "gpus"):
        words = f"reserve only N {unit} of each node (default: all)"
        add(f"--{unit}", metavar="N", type=int, default=0, help=words)
    words = "reserve only KIB of memory of each node (default: all)"
    add("--mem", metavar="KIB", type=int, default=0, help=words)
    add(
        "--total", action="store_true", help="these amounts are totals of all nodes, not amounts of each node"
    )
    add("--preview", action="store_true", help="only show the effects; change nothing")
    lift = acts.add_parser("remove", help="remove a reservation", allow_abbrev=False)
    lift.add_argument("name", metavar="NAME", help="name of the reservation")
    return found


def run(argv: Sequence[str], name: str = "schedd reservation") -> int:
    return run_command(make_parser(name), _run_action, argv)


def _split_list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    client = session.client
    if args.act in (None, "list"):
        found = client.reservations()
        if args.json:
            show_json({"reservations": found})
        else:
            print(_reservations_table(found, session.now) if found else "there are no reservations")
        return True
    if args.act == "remove":
        done = client.unreserve(args.name)
    else:
        wanted = _read_reservation(args, session.now)
        if args.preview:
            effects = client.preview_reservation(args.name, **wanted)
            if args.json:
                show_json(effects)
            else:
                print(f"Effects of reservation {args.name}; nothing was changed:")
                print(format_preview(effects, session.now))
            return True
        done = client.reserve(args.name, **wanted)
    if args.json:
        show_json(done)
        return True
    made = done.reservation
    if args.act == "remove":
        print(f"reservation {args.name} is removed")
    elif made is None:
        raise ClientError(f"reservation {args.name} was not made; the daemon's log says why")
    else:
        print(_reservations_table([made], session.now))
    if done.at_risk:
        print(f"promises put at risk by it: {done.at_risk}")
    return True


def _read_reservation(args: argparse.Namespace, now: int) -> Reserved:
    """Return the reservation that the options name. Raises ClientError."""
    return {
        "nodes": args.nodes,
        "features": args.features,
        "everywhere": args.everywhere,
        "start": parse_coming_time(args.start, now) if args.start is not None else None,
        "end": parse_coming_time(args.end, now) if args.end is not None else None,
        "reason": args.reason,
        "access": {who: getattr(args, who) for who in _ACCESS},
        "shorter": 60 * args.shorter,
        "cores": args.cores,
        "gpus": args.gpus,
        "mem": args.mem,
        "total": args.total,
    }


def _reservations_table(found: Sequence[ReservationView], now: int) -> str:
    windows: dict[str, list[ReservationView]] = {}
    for one in sorted(found, key=lambda one: one.start):
        windows.setdefault(_WINDOW.sub("", one.name), []).append(one)
    table = format_table(
        ("NAME", "FROM", "UNTIL", "NODES", "REASON"),
        [
            (
                one.name,
                format_time(one.start, now),
                format_time(one.end, now) if one.end is not None else "none",
                "all" if one.everywhere else shorten_list([*one.nodes, *one.features]),
                _describe_use(one),
            )
            for one, *_ in windows.values()
        ],
        last=12,
    )
    lines = [
        f"{name}: {len(later)} more, the last from {format_time(later[-1].start, now)}"
        for name, (_, *later) in windows.items()
        if later
    ]
    return "\n".join([table, *lines])


def _describe_use(one: ReservationView) -> str:
    """The reason, the kept amounts and the access list."""
    names = [*one.users, *one.groups, *one.accounts, *one.queues]
    if one.shorter:
        names.append(f"jobs up to {format_duration(one.shorter)}")
    use = [one.amounts] if one.amounts else []
    use += [f"for {shorten_list(names)}"] if names else []
    return f"{one.reason} ({', '.join(use)})".lstrip() if use else one.reason
