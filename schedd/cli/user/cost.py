"""``schedd cost``: what a job costs and draws."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.command_session import (
    NO_START_CODE,
    Session,
    make_command_parser,
    run_command,
    show_json,
)
from schedd.cli.user.formatting import format_amount, format_rows, format_table
from schedd.cli.user.job_text import format_time_and_distance
from schedd.client.answers import JobCostView


def make_parser(name: str = "schedd cost") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show a job's cost and energy on each node, by the site's prices and watts: from its start, actual "
        "or planned, to the end of its walltime.",
        one=NO_START_CODE,
    )
    found.add_argument("job", metavar="JOB", help="123, 123.server or 123[4]")
    return found


def run(argv: Sequence[str], name: str = "schedd cost") -> int:
    return run_command(make_parser(name), _show, argv)


def _show(session: Session, args: argparse.Namespace) -> bool:
    found: JobCostView = session.client.cost(args.job)
    if args.json:
        show_json(found)
    else:
        print(format_rows(list(_rows(found, session.now))))
        if found.nodes:
            print("\n" + _nodes(found))
    return found.planned_start is not None


def _rows(found: JobCostView, now: int) -> list[tuple[str, str]]:
    start, unit = found.planned_start, found.currency
    lines = [("job", found.job)]
    if start is None:
        lines.append(("start", "not known, so its cost is not known either"))
    else:
        lines.append(("start", format_time_and_distance(start, now)))
        cost = found.cost
        lines.append(("cost", format_amount(cost, unit) if cost is not None else "the site has no prices"))
        drawn = found.kwh
        lines.append(
            ("energy", format_amount(drawn, "kWh") if drawn is not None else "the site names no watts")
        )
        if found.loss:
            lines.append(("expected loss", f"{found.loss:.3g} core-hours, since nodes fail"))
    if found.limit is not None:
        over = ", less than it costs" if found.over else ""
        lines.append(("limit", format_amount(found.limit, unit) + over))
    return lines


def _nodes(found: JobCostView) -> str:
    return format_table(
        ("NODE", "CPUS", "GPUS", "COST", "ENERGY"),
        [
            (
                one.node,
                str(one.cpus),
                str(one.gpus),
                format_amount(one.cost, found.currency),
                format_amount(one.kwh, "kWh"),
            )
            for one in found.nodes
        ],
        right="1234",
    )
