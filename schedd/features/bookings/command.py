"""``schedd book``: cores for oneself at some moment within a window: asked for, moved, taken, given back.

With ``--federation`` at whichever cluster of a federation has them.
"""

import argparse
import re
from collections.abc import Sequence
from typing import Any, cast

from schedd.cli.user.command_session import (
    Session,
    add_federation_option,
    make_command_parser,
    run_command,
    run_with_exit_code,
    show_json,
)
from schedd.cli.user.formatting import format_duration, format_table, format_time
from schedd.cli.user.time_arguments import parse_coming_time
from schedd.client import ClientError, Refused
from schedd.client.answers import BookingOptionView, BookingView
from schedd.federation.commands import bookings as federation_bookings
from schedd.name_list import shorten_list

_SPAN = re.compile(r"(?:(\d+):)?(\d+):(\d\d):(\d\d)|(\d+)([smhd])")
_TASK_LIST = re.compile(r"\btrl=")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def make_parser(name: str = "schedd book") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Book cores for your jobs, for a time within a window. A booking goes into a gap of the plan;"
        " without one in the window, offers before and after it are shown, and `accept` accepts one. "
        "A job runs in a booking with `qsub -W x=advres:NAME`, in one of a federation with `schedd "
        "submit --booking NAME`. The site limits how much may be booked.",
        "times:\n  2026-12-01T08:00   in local time; 08:00 is today's\n  +2h, +30m, +7d     from now on",
        one="refused: the window has no gap; the offers are shown",
    )
    add_federation_option(found, "bookings")
    acts = found.add_subparsers(dest="act", metavar="ACTION", title="actions")
    acts.add_parser("list", help="show your bookings (default)", allow_abbrev=False)
    make = acts.add_parser("add", help="book cores", allow_abbrev=False)
    add = make.add_argument
    add("name", metavar="NAME", help="name of the new booking")
    add(
        "-l",
        dest="request",
        metavar="REQUEST",
        required=True,
        help="requested resources, as for qsub: nodes=2:ppn=4",
    )
    add(
        "--for",
        dest="duration",
        metavar="LENGTH",
        help="length of the booking: 2:00:00, 90m; not with trl=8@1800:4@3600 (each has its own)",
    )
    add("--at", dest="start", metavar="WHEN", help="exact start")
    add("--after", dest="ready", metavar="WHEN", help="earliest start (default: now)")
    add("--by", dest="deadline", metavar="WHEN", help="latest end")
    add(
        "--freeze",
        metavar="PERCENT",
        type=int,
        help="share of its wait after which its place is final (default: 50)",
    )
    add("--account", metavar="NAME", default="", help="account that pays, if the site has accounts")
    add("--owner", metavar="USER", default="", help="owner of the booking (operators)")
    add(
        "--only",
        metavar="CLUSTER,…",
        default="",
        help="with --federation: clusters to choose from (default: all)",
    )
    add(
        "--by-speed",
        action="store_true",
        help="with --federation: LENGTH is for speed 1; each cluster divides it by its own",
    )
    for act, about in (
        ("show", "show a booking and its moves"),
        ("freeze", "fix its place in the plan"),
        ("cancel", "cancel a booking"),
    ):
        acts.add_parser(act, help=about, allow_abbrev=False).add_argument(
            "name", metavar="NAME", help="name of the booking"
        )
    accept = acts.add_parser("accept", help="accept an offer of a refused booking", allow_abbrev=False)
    accept.add_argument("name", metavar="NAME", help="name of the booking")
    accept.add_argument("option", metavar="NUMBER", type=int, help="number of the offer")
    return found


def run(argv: Sequence[str], name: str = "schedd book") -> int:
    found = make_parser(name)
    if "--federation" in argv:
        return run_with_exit_code(
            found,
            lambda args: federation_bookings.run_federated_action(
                args, lambda now: _booking_terms(args, now)
            ),
            argv,
        )
    return run_command(found, _run_action, argv)


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    client, now = session.client, session.now
    if args.act in (None, "list"):
        found = client.bookings()
        if args.json:
            show_json({"bookings": found})
        else:
            print(_bookings_table(found, now) if found else "you have no bookings")
        return True
    try:
        match args.act:
            case "add":
                done = client.book(args.name, _booking_terms(args, now))
            case "show":
                done = client.booking(args.name)
            case "accept":
                done = client.accept_option(args.name, args.option)
            case "freeze":
                done = client.do_with_booking(args.name, "freeze")
            case _:
                done = client.cancel_booking(args.name)
    except Refused as error:
        if error.kind != "no-room":
            raise
        if args.json:
            show_json({"refused": error.detail, "options": [dict(one) for one in error.options]})
        else:
            print(_refusal_text(args.name, error, now))
        return False
    if args.json:
        show_json(done)
    elif args.act == "cancel":
        print(f"booking {args.name} is cancelled")
    elif args.act == "show":
        print("\n\n".join((_bookings_table([done], now), *federation_bookings.moves_table(done.moves, now))))
    else:
        print(_bookings_table([done], now))
    return True


def _booking_terms(args: argparse.Namespace, now: int) -> dict[str, Any]:
    body: dict[str, Any] = {"request": args.request}
    if args.duration is not None:
        body["duration"] = _parse_duration(args.duration)
    elif not _TASK_LIST.search(args.request):
        raise ClientError("say how long: --for")
    for name in ("start", "ready", "deadline"):
        text = getattr(args, name)
        if text is not None:
            body[name] = parse_coming_time(text, now)
    if args.start is None and args.deadline is None:
        raise ClientError("say when: --at, or --by (and --after)")
    if args.only and not args.federation:
        raise ClientError("--only is for bookings of a federation: say --federation, too")
    if args.by_speed and not args.federation:
        raise ClientError("--by-speed is for bookings of a federation: say --federation, too")
    more = {"freeze": args.freeze, "account": args.account or None, "owner": args.owner or None}
    return body | {name: value for name, value in more.items() if value is not None}


def _parse_duration(text: str) -> int:
    """A length in seconds. Raises ClientError."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ClientError(f"{text}: not a duration; write 2:00:00 or 90m")
    if found[6]:
        return int(found[5]) * _UNITS[found[6]]
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _bookings_table(found: Sequence[BookingView], now: int) -> str:
    return format_table(
        ("NAME", "PHASE", "FROM", "UNTIL", "CORES", "MAY MOVE", "ON"),
        [
            (
                one.name,
                one.phase,
                format_time(one.start, now) if one.start is not None else "-",
                format_time(one.end, now) if one.end is not None else "-",
                str(one.cpus),
                _format_flexibility(one),
                one.text or shorten_list([share.node for share in one.nodes]),
            )
            for one in found
        ],
        last=34,
    )


def _format_flexibility(one: BookingView) -> str:
    """By how much it may still be moved."""
    return format_duration(one.spare) if one.phase == "flexible" and one.spare else "no"


def _refusal_text(name: str, error: Refused, now: int) -> str:
    """Why not, and what could be had."""
    if not error.options:
        return f"not booked: {error.detail}"
    rows = [_offer_cells(one, now) for one in cast("Sequence[BookingOptionView]", error.options)]
    return (
        f"not booked: {error.detail}\n\n"
        + format_table(("OFFER", "FROM", "UNTIL", "OFF BY"), rows, last=12)
        + f"\n\nschedd book accept {name} NUMBER takes one"
    )


def _offer_cells(one: BookingOptionView, now: int) -> tuple[str, str, str, str]:
    off = federation_bookings.format_stretch(one)
    return str(one.option), format_time(one.start, now), format_time(one.end, now), off
