"""``schedd notify``: mail or a site's command when a start moves or is near, a deadline is lost, or a tighter
walltime would start a job sooner.
"""

import argparse
import re
from collections.abc import Sequence

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_duration, format_table
from schedd.client import ClientError
from schedd.client.answers import NoticesView, NoticeView

_UNITS = {"": 60, "m": 60, "h": 3_600, "d": 86_400}
_SPAN = re.compile(r"(\d+)([mhd]?)")


def make_parser(name: str = "schedd notify") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Get a notice when the start of a job has moved by more than a given time, or is near, or when the "
        "job can no longer end by its deadline, or when it would start sooner with a tighter walltime: by "
        "mail, or by a command that the site offers. Without such a request nobody gets a notice. A notice "
        "about one job ends with the job.",
        "examples:\n  schedd notify add --job 123 --moved 30m --before 15m\n"
        "  schedd notify add --all --before 1h --mail ann@example.org",
    )
    acts = found.add_subparsers(dest="act", metavar="ACTION", title="actions")
    acts.add_parser("list", help="list your notices (default)", allow_abbrev=False)
    make = acts.add_parser("add", help="add a notice", allow_abbrev=False)
    which = make.add_mutually_exclusive_group(required=True)
    which.add_argument("--job", metavar="JOB", default="", help="only this job")
    which.add_argument("--all", dest="everything", action="store_true", help="all your jobs")
    add = make.add_argument
    add("--moved", metavar="SPAN", help="when the start moves by more than this (30m, 2h, 1d)")
    add("--before", metavar="SPAN", help="this long before the likely start (15m, 1h)")
    add(
        "--lost",
        action="store_true",
        help="when its deadline is lost or, if accepted, at risk, with the planned end",
    )
    add("--tighter", action="store_true", help="when a tighter walltime would start it sooner, with the risk")
    ways = make.add_mutually_exclusive_group()
    ways.add_argument(
        "--mail",
        metavar="ADDRESS",
        nargs="?",
        const="",
        default="",
        help="by mail (default: your own address)",
    )
    ways.add_argument("--command", metavar="NAME", help="by this command of the site")
    stop = acts.add_parser("remove", help="remove a notice", allow_abbrev=False)
    stop.add_argument("number", metavar="NUMBER", type=int, help="number in the list")
    return found


def run(argv: Sequence[str], name: str = "schedd notify") -> int:
    return run_command(make_parser(name), _run_action, argv)


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    client = session.client
    if args.act == "remove":
        found = client.remove_notice(args.number)
    elif args.act == "add":
        if args.moved is None and args.before is None and not (args.lost or args.tighter):
            raise ClientError("give one or more of --moved SPAN, --before SPAN, --lost and --tighter")
        found = client.add_notice(
            job=args.job,
            moved=_parse_span("--moved", args.moved),
            ahead=_parse_span("--before", args.before),
            lost=args.lost,
            tighter=args.tighter,
            way="command" if args.command is not None else "mail",
            to=args.command if args.command is not None else args.mail,
        )
    else:
        found = client.notices()
    if args.json:
        show_json(found)
    else:
        print(_notices_table(found.notices) if found.notices else _no_notices_text(found))
    return True


def _parse_span(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    read = _SPAN.fullmatch(text)
    if read is None:
        raise ClientError(f"{option} {text}: not a length of time; write 30m, 2h or 1d")
    return int(read[1]) * _UNITS[read[2]]


def _no_notices_text(found: NoticesView) -> str:
    offered = [f"mail to {domain}" for domain in found.domains] + [*found.commands]
    return f"you have no notices; this site offers: {', '.join(offered) or 'nothing'}"


def _notices_table(found: Sequence[NoticeView]) -> str:
    lines = [
        (
            str(one.number),
            one.job or "all own",
            format_duration(one.moved) if one.moved is not None else "-",
            format_duration(one.ahead) if one.ahead is not None else "-",
            "lost" if one.lost else "-",
            "tighter" if one.tighter else "-",
            one.to if one.way == "mail" else f"command {one.to}",
        )
        for one in found
    ]
    heads = ("NUMBER", "JOBS", "MOVED BY", "BEFORE", "DEADLINE", "WALLTIME", "TO")
    return format_table(heads, lines, right="0", last=12)
