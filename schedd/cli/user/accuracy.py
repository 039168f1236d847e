"""``schedd accuracy``: accuracy of start estimates."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_duration, format_table, format_time
from schedd.cli.user.time_arguments import parse_time
from schedd.client import ClientError
from schedd.client.answers import DeadlineAccuracy, HorizonAccuracy
from schedd.client.json_object import json_members

_DAY = 86_400
_KINDS = {"submission": "at submission", "waiting": "half-way", "hour": "last hour"}


def make_parser(name: str = "schedd accuracy") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show the accuracy of expected starts: the share of jobs that started by the estimates for "
        "50 % and for 90 %, the errors of expected and planned starts, and predicted against observed "
        "probabilities of ends by a deadline.",
        "TIME is 2026-12-01T08:00 or 08:00, in the past. Of the expected starts published in the "
        "period the latest 100,000 count.",
        one="answered, but there is no expected start to compare",
    )
    add = found.add_argument
    add("--since", metavar="TIME", help="start of the period (default: 30 days before its end)")
    add("--until", metavar="TIME", help="end of the period (default: now)")
    add("-q", dest="queue", metavar="QUEUE", default="", help="only jobs in this queue")
    add("-u", dest="user", metavar="USER", default="", help="only this user's jobs")
    add("--horizon", choices=tuple(_KINDS), help="only predictions made at this point")
    return found


def run(argv: Sequence[str], name: str = "schedd accuracy") -> int:
    return run_command(make_parser(name), _show_accuracy, argv)


def _show_accuracy(session: Session, args: argparse.Namespace) -> bool:
    now = session.now
    until = parse_time(args.until, now) if args.until else None
    end = until if until is not None else now
    since = parse_time(args.since, now) if args.since else end - 30 * _DAY
    if since >= end:
        what = "--since has to be before --until" if until is not None else "--since lies ahead"
        raise ClientError(f"{what}: {format_time(since, now)} to {format_time(end, now)}")
    found = session.client.accuracy(since=since, until=until, queue=args.queue, user=args.user)
    wanted = [one for one in found.expected if args.horizon in (None, one.kind)]
    if args.json:
        show_json({**json_members(found), "expected": wanted})
        return True
    if not found.kept:
        print("without a database estimates are not kept")
        print_deadline_accuracy(found.deadlines)
        return False
    period = f"{format_time(since, now)} to {format_time(end, now)}"
    if args.queue:
        period += f", jobs in queue {args.queue}"
    if args.user:
        period += f", jobs of {args.user}"
    if not any(one.figures.count for one in wanted):
        print(f"no expected start published {period} can be compared yet")
        print_deadline_accuracy(found.deadlines)
        return False
    heads = ("MADE", "AHEAD", "JOBS", "LIKELY", "90 %", "ERROR", "PLAN'S", "SPREAD")
    print(f"expected starts published {period}\n")
    print(
        format_table(
            heads, [horizon_cells(one) for one in wanted if one.figures.count], right="1234567", last=6
        )
    )
    print()
    for one in wanted:
        if (row := describe_losses(one)) and one.lead is None:
            print(row)
    if halted := sum(getattr(one, "halted", 0) for one in wanted):
        print(f"{halted} more are not counted: no jobs were started during a part of their wait")
    if (first := found.expected_since) is not None:
        print(f"only the latest 100,000 count: those published from {format_time(first, now)} on")
    print(f"broken promises: {found.breaches}")
    print_deadline_accuracy(found.deadlines)
    return True


def print_deadline_accuracy(rows: Sequence[DeadlineAccuracy]) -> None:
    """Print predicted and observed probabilities of ends in time, if there are any."""
    if not rows:
        return
    cells = [
        (
            f"{one.jobs} jobs",
            f"{100 * one.low:.0f} to {100 * one.high:.0f} %",
            str(one.count),
            _format_share(one.predicted),
            _format_share(one.observed),
        )
        for one in rows
    ]
    print("\nends by a deadline: the latest forecasts, and what came of them\n")
    print(format_table(("MADE OF", "FORECAST", "JOBS", "PREDICTED", "OBSERVED"), cells, right="234", last=5))


def horizon_cells(one: HorizonAccuracy) -> tuple[str, ...]:
    """One row of the table."""
    row, lead = one.figures, one.lead
    ahead = "any" if lead is None else "< 1 h" if lead == 0 else f"≥ {lead // 3600} h"
    errors = (row.median_error, row.plan_median_error)
    return (
        _KINDS[one.kind].removeprefix("at ") if lead is None else "",
        ahead,
        str(row.count),
        *(_format_share(part) for part in (row.p50_coverage, row.p90_coverage)),
        *(format_duration(round(error)) if error is not None else "-" for error in errors),
        f"{row.sharpness:.2f}" if row.sharpness is not None else "-",
    )


def describe_losses(one: HorizonAccuracy) -> str:
    """The mean pinball loss of both numbers; empty where nothing has started yet."""
    half, nine = one.figures.pinball_50, one.figures.pinball_90
    if half is None or nine is None:
        return ""
    p50, p90 = format_duration(round(half)), format_duration(round(nine))
    return f"pinball loss {_KINDS[one.kind]}: {p50} for 50 %, {p90} for 90 %"


def _format_share(part: float | None) -> str:
    return f"{100 * part:.1f} %" if part is not None else "-"
