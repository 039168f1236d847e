"""``schedd optimise``: look for a better plan now, or show what the latest searches did."""

import argparse
from collections.abc import Sequence
from itertools import islice

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_amount, format_duration, format_rows, format_table, format_time
from schedd.client.answers import CriterionChange, SearchView

_MAX_SEARCHES = 8


def make_parser(name: str = "schedd optimise") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Search for a better plan now, apply it, and show the gain; no promise is broken. Needs the "
        "role operator or admin.",
    )
    found.add_argument("--list", action="store_true", dest="show", help="list the latest searches instead")
    return found


def run(argv: Sequence[str], name: str = "schedd optimise") -> int:
    return run_command(make_parser(name), _run_action, argv)


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    if args.show:
        found = list(islice(session.client.searches(), _MAX_SEARCHES))
        if args.json:
            show_json({"searches": found})
        else:
            print(_searches_table(found, session.now) if found else "there were no searches yet")
        return True
    run = session.client.optimise()
    if args.json:
        show_json({"search": run})
    elif run is None:
        print("there is nothing to search: fewer than two jobs could be moved")
    else:
        print(format_rows(list(_search_rows(run))))
    return True


def _search_rows(run: SearchView) -> list[tuple[str, str]]:
    lines = [
        ("search", f"{run.kind}, {run.seconds:.1f} s, {run.tried} moves tried; {run.ended}"),
        ("moved", f"{run.taken} of {run.jobs} jobs in the plan"),
    ]
    return lines + criterion_rows(run) + objective_rows(run)


def objective_rows(run: SearchView) -> list[tuple[str, str]]:
    """What the plan itself gained or lost by objectives that are no criteria."""
    named = {one.criterion for one in run.criteria}
    return [
        (
            one.objective,
            f"{format_amount(one.before, one.unit)} -> {format_amount(one.after, one.unit)}",
        )
        for one in run.objectives
        if one.objective not in named and one.before != one.after
    ]


def criterion_rows(run: SearchView) -> list[tuple[str, str]]:
    """The criteria that a search changed, as rows."""
    return [(one.criterion, _format_change(one)) for one in run.criteria if one.before != one.after]


def _format_change(one: CriterionChange) -> str:
    if one.unit == "s":
        return f"{format_duration(round(one.before))} -> {format_duration(round(one.after))}"
    return f"{one.before:.3f} -> {one.after:.3f}"


def _searches_table(found: list[SearchView], now: int) -> str:
    return format_table(
        ("STARTED", "KIND", "SECONDS", "JOBS", "MOVED", "GAIN", "WHY"),
        [
            (
                format_time(one.started, now),
                one.kind,
                f"{one.seconds:.1f}",
                str(one.jobs),
                str(one.taken),
                f"{100 * one.gain:.1f} %",
                one.why,
            )
            for one in found
        ],
        right="2345",
    )
