"""``schedd optimise``: look for a better plan now, or show what the latest searches did."""

import argparse
from collections.abc import Sequence
from itertools import islice

from schedd.cli.user.asking import Session, answer, parser, show_json
from schedd.cli.user.text import amount, moment, rows, span, table
from schedd.client.answers import CriterionChange, SearchView

__all__ = ["changes", "make_parser", "objectives", "run"]

_NAMED = 8


def make_parser(name: str = "schedd optimise") -> argparse.ArgumentParser:
    """Its options."""
    found = parser(
        name,
        "Look for a better plan now, take it over, and say what it gained; no promise is broken by it. Needs "
        "the role operator or admin.",
    )
    found.add_argument("--list", action="store_true", dest="show", help="list the latest searches instead")
    return found


def run(argv: Sequence[str], name: str = "schedd optimise") -> int:
    """The command."""
    return answer(make_parser(name), _act, argv)


def _act(session: Session, args: argparse.Namespace) -> bool:
    if args.show:
        found = list(islice(session.client.searches(), _NAMED))
        if args.json:
            show_json({"searches": found})
        else:
            print(_list(found, session.now) if found else "there were no searches yet")
        return True
    run = session.client.optimise()
    if args.json:
        show_json({"search": run})
    elif run is None:
        print("there is nothing to search: fewer than two jobs could be moved")
    else:
        print(rows(list(_rows(run))))
    return True


def _rows(run: SearchView) -> list[tuple[str, str]]:
    lines = [
        ("search", f"{run['kind']}, {run['seconds']:.1f} s, {run['tried']} moves tried; {run['ended']}"),
        ("moved", f"{run['taken']} of {run['jobs']} jobs in the plan"),
    ]
    return lines + changes(run) + objectives(run)


def objectives(run: SearchView) -> list[tuple[str, str]]:
    """What the plan itself gained or lost by objectives that are no criteria."""
    named = {one["criterion"] for one in run["criteria"]}
    return [
        (one["objective"], f"{amount(one['before'], one['unit'])} -> {amount(one['after'], one['unit'])}")
        for one in run["objectives"]
        if one["objective"] not in named and one["before"] != one["after"]
    ]


def changes(run: SearchView) -> list[tuple[str, str]]:
    """The criteria that a search changed, as rows."""
    return [(one["criterion"], _change(one)) for one in run["criteria"] if one["before"] != one["after"]]


def _change(one: CriterionChange) -> str:
    if one["unit"] == "s":
        return f"{span(round(one['before']))} -> {span(round(one['after']))}"
    return f"{one['before']:.3f} -> {one['after']:.3f}"


def _list(found: list[SearchView], now: int) -> str:
    return table(
        ("STARTED", "KIND", "SECONDS", "JOBS", "MOVED", "GAIN", "WHY"),
        [
            (
                moment(one["started"], now),
                one["kind"],
                f"{one['seconds']:.1f}",
                str(one["jobs"]),
                str(one["taken"]),
                f"{100 * one['gain']:.1f} %",
                one["why"],
            )
            for one in found
        ],
        right="2345",
    )
