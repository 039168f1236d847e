"""``schedd objectives``: what the plan is worth by each objective."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_amount, format_rows
from schedd.client.answers import ObjectivesView, ObjectiveValue


def make_parser(name: str = "schedd objectives") -> argparse.ArgumentParser:
    return make_command_parser(
        name,
        "Show the plan's value by each objective, over all running and planned jobs: times, lateness, "
        "energy, cost, fairness. Less is better.",
    )


def run(argv: Sequence[str], name: str = "schedd objectives") -> int:
    return run_command(make_parser(name), _show_objectives, argv)


def _show_objectives(session: Session, args: argparse.Namespace) -> bool:
    found: ObjectivesView = session.client.objectives()
    if args.json:
        show_json(found)
        return True
    lines = [
        (
            one.objective,
            _format_value(one),
        )
        for one in found.objectives
    ]
    print(format_rows(lines))
    return True


def _format_value(one: ObjectiveValue) -> str:
    if one.value is None:
        return f"not known: {one.why}"
    text = format_amount(one.value, one.unit)
    if one.expected is None:
        return text
    return f"{text}, {format_amount(one.expected, one.unit)} expected"
