"""``schedd objectives``: what the plan is worth by each objective."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.asking import Session, answer, parser, show_json
from schedd.cli.user.text import amount, rows
from schedd.client.answers import ObjectivesView, ObjectiveValue

__all__ = ["make_parser", "run"]


def make_parser(name: str = "schedd objectives") -> argparse.ArgumentParser:
    """Its options."""
    return parser(
        name,
        "Say what the plan is worth by each objective, over all that runs or is planned: times, lateness, "
        "energy, cost, fairness. Less is better.",
    )


def run(argv: Sequence[str], name: str = "schedd objectives") -> int:
    """The command."""
    return answer(make_parser(name), _show, argv)


def _show(session: Session, args: argparse.Namespace) -> bool:
    found: ObjectivesView = session.client.objectives()
    if args.json:
        show_json(found)
        return True
    lines = [
        (
            one["objective"],
            _told(one),
        )
        for one in found["objectives"]
    ]
    print(rows(lines))
    return True


def _told(one: ObjectiveValue) -> str:
    if one["value"] is None:
        return f"not known: {one['why']}"
    told = amount(one["value"], one["unit"])
    if one["expected"] is None:
        return told
    return f"{told}, {amount(one['expected'], one['unit'])} expected"
