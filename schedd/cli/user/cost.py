"""``schedd cost``: what a job costs and draws."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.asking import Session, answer, parser, show_json
from schedd.cli.user.text import amount, rows, table
from schedd.cli.user.words import when
from schedd.client.answers import JobCostView

__all__ = ["make_parser", "run"]


def make_parser(name: str = "schedd cost") -> argparse.ArgumentParser:
    """Its options."""
    found = parser(
        name,
        "Say what a job costs and draws from its start, actual or planned, to the end of its walltime, node "
        "by node, by the site's prices and watts.",
    )
    found.add_argument("job", metavar="JOB", help="123, 123.server or 123[4]")
    return found


def run(argv: Sequence[str], name: str = "schedd cost") -> int:
    """The command."""
    return answer(make_parser(name), _show, argv)


def _show(session: Session, args: argparse.Namespace) -> bool:
    found: JobCostView = session.client.cost(args.job)
    if args.json:
        show_json(found)
    else:
        print(rows(list(_rows(found, session.now))))
        if found["nodes"]:
            print("\n" + _nodes(found))
    return found["planned_start"] is not None


def _rows(found: JobCostView, now: int) -> list[tuple[str, str]]:
    start, unit = found["planned_start"], found["currency"]
    lines = [("job", found["job"])]
    if start is None:
        lines.append(("start", "not known, so nothing is known of its cost"))
    else:
        lines.append(("start", when(start, now)))
        cost = found["cost"]
        lines.append(("cost", amount(cost, unit) if cost is not None else "the site has no prices"))
        drawn = found["kwh"]
        lines.append(("energy", amount(drawn, "kWh") if drawn is not None else "the site names no watts"))
        if found["loss"]:
            lines.append(("expected loss", f"{found['loss']:.3g} core-hours, since nodes fail"))
    if found["limit"] is not None:
        over = ", less than it costs" if found["over"] else ""
        lines.append(("limit", amount(found["limit"], unit) + over))
    return lines


def _nodes(found: JobCostView) -> str:
    return table(
        ("NODE", "CPUS", "GPUS", "COST", "ENERGY"),
        [
            (
                one["node"],
                str(one["cpus"]),
                str(one["gpus"]),
                amount(one["cost"], found["currency"]),
                amount(one["kwh"], "kWh"),
            )
            for one in found["nodes"]
        ],
        right="1234",
    )
