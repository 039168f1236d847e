"""``schedd fair-share``: target against received share, now or over time."""

import argparse
from collections.abc import Sequence
from typing import Final

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_table, format_time
from schedd.client import ClientError
from schedd.client.answers import FairShareEntry, FairShareHistory
from schedd.client.json_object import json_members

_DAY_S: Final = 86_400
_MAX_ROWS: Final = 40


def make_parser(name: str = "schedd fair-share") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show the target share and the received share of each account and user that you may see in the "
        "fair-share tree. With --days, show one place over time.",
    )
    found.add_argument(
        "place", metavar="PLACE", nargs="?", default="", help="only this place, such as physics/ann"
    )
    found.add_argument("--days", type=int, metavar="N", help="show PLACE over the last N days, 1 to 366")
    return found


def run(argv: Sequence[str], name: str = "schedd fair-share") -> int:
    return run_command(make_parser(name), _run_action, argv)


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    client, place = session.client, args.place
    if args.days is not None:
        if not place:
            raise ClientError("name a place for its history: schedd fair-share PLACE --days N")
        if not 1 <= args.days <= 366:
            raise ClientError(f"--days {args.days}: from 1 to 366")
        history = client.fair_share_history(since=max(0, session.now - args.days * _DAY_S), path=place)
        if args.json:
            show_json(history)
        else:
            print(_history_text(history, place, session.now))
        return True
    found = client.fair_share()
    shown = found.places
    if place:
        below = f"{place}/"
        shown = tuple(one for one in found.places if one.path == place or one.path.startswith(below))
        if not shown and found.levels:
            raise ClientError(f"there is no place {place}, or you may not see it")
    if args.json:
        show_json({**json_members(found), "places": shown})
    else:
        print(_tree_text(found.levels, shown))
    return True


def _tree_text(levels: Sequence[str], places: Sequence[FairShareEntry]) -> str:
    if not levels:
        return "this site has no fair share"
    if not places:
        return "no jobs and no usage so far"
    rows = [
        (
            one.path,
            f"{100 * one.target:.1f} %",
            f"{100 * one.usage:.1f} %",
            f"{one.factor:.2f}",
            f"{one.used / 3600:.1f}",
            f"{one.waited:.3g}",
        )
        for one in places
    ]
    head = (" / ".join(levels).upper(), "TARGET", "RECEIVED", "FACTOR", "CPU-HOURS", "WAIT")
    return format_table(head, rows) + "\nfactor: 1 without usage, 0.5 at the target; wait per cpu-second"


def _history_text(history: FairShareHistory, place: str, now: int) -> str:
    if not history.places:
        return f"no samples of {place} in this period: one an hour is recorded, of the 300 largest places"
    course = history.places[0]
    known = [
        (time, target, received)
        for time, target, received in zip(history.times, course.target, course.received, strict=True)
        if target is not None and received is not None
    ]
    step = -(-len(known) // _MAX_ROWS)
    rows = [
        (format_time(time, now), f"{100 * target:.1f} %", f"{100 * received:.1f} %", _bar(target, received))
        for time, target, received in known[::-1][::step][::-1]
    ]
    return format_table(("TIME", "TARGET", "RECEIVED", "RECEIVED (#), TARGET (|)"), rows)


def _bar(target: float, received: float) -> str:
    width = 40
    cells = ["#" if n < round(width * received) else "." for n in range(width + 1)]
    cells[round(width * min(1.0, target))] = "|"
    return "".join(cells)
