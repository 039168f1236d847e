"""``schedd report``: how work was balanced over clusters, and how well it went, over a period."""

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from schedd.cli.user.command_session import (
    EXIT_CODES,
    add_daemon_address,
    add_federation_option,
    make_described_parser,
    run_with_exit_code,
    show_json,
)
from schedd.cli.user.formatting import format_duration, format_table, format_time
from schedd.cli.user.time_arguments import parse_time
from schedd.client import Client, ClientError, find_endpoint
from schedd.client.answers import BalanceView, ClusterReports
from schedd.client.json_object import json_members
from schedd.federation.commands.jobs import connect_federation
from schedd.start_sentence import NO_HISTORY

_DAY: Final = 86_400
_HEADS: Final = ("CLUSTER", "WORK", "OPTIMAL", "CPUS", "USED", "LICENCES", "ENDED", "LATE", "SLOWDOWN")
_QUEUES: Final = ("CLUSTER", "QUEUE", "ENDED", "LATE", "MEAN WAIT", "LONGEST", "WAITING", "LONGEST NOW")


def make_parser(name: str = "schedd report") -> argparse.ArgumentParser:
    found = make_described_parser(
        name,
        "Show for each cluster over a period: its share of the work and of the cpus, the use of its "
        "cpus and licences relative to capacity and demand, the share of jobs with a deadline that "
        "missed it, and the mean slowdown of the others; and waits by queue.",
        "TIME is 2026-12-01T08:00 or 08:00; a future period has no report.",
        {**EXIT_CODES, 1: "answered, but there is no data for this period"},
    )
    add = found.add_argument
    add("--since", metavar="TIME", help="start of the period (default: a day before its end)")
    add("--until", metavar="TIME", help="end of the period (default: now)")
    add("--cluster", metavar="NAME", default="", help="only this cluster")
    add_federation_option(found, "clusters")
    add("--json", action="store_true", help="print the answer as JSON")
    add_daemon_address(found)
    return found


def run(argv: Sequence[str]) -> int:
    return run_with_exit_code(make_parser(), _show_report, argv)


def _show_report(args: argparse.Namespace) -> bool:
    now = int(time.time())
    since = parse_time(args.since, now) if args.since else None
    until = parse_time(args.until, now) if args.until else None
    if since is None and until is not None:
        since = until - _DAY
    found: BalanceView | ClusterReports
    if args.federation:
        with connect_federation(args.url) as federation:
            found = federation.balance(since=since, until=until)
    else:
        endpoint = find_endpoint()
        with Client(endpoint._replace(url=args.url or endpoint.url, cluster="")) as client:
            found = client.quality_report(since=since, until=until, cluster=args.cluster)
    rows = [json_members(one) for one in found.clusters if args.cluster in ("", one.cluster)]
    if args.cluster and not rows:
        raise ClientError(f"the federation has no cluster {args.cluster}")
    if args.json:
        show_json({**json_members(found), "clusters": rows})
        return True
    print(f"{format_time(found.since, now)} to {format_time(found.until, now)}\n")
    reports = [one for one in rows if not one.get("why")]
    if reports:
        print(format_table(_HEADS, [_cluster_cells(one) for one in reports], right="12345678"))
    for one in rows:
        if one.get("why"):
            print(f"{one['cluster']}: {one['why']}")
        elif not one["kept"]:
            print(f"{one['cluster']}: {NO_HISTORY}")
    queues = [_queue_cells(one["cluster"], queue) for one in reports for queue in one["queues"]]
    if queues:
        print()
        print(format_table(_QUEUES, queues, right="234567"))
    return bool(reports)


def _cluster_cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    licences = [f"{licence['name']} {_format_share(licence['share'])}" for licence in one["licences"]]
    slowdown = one["slowdown"]
    return (
        one["cluster"],
        _format_share(one["share"]),
        _format_share(one["optimal"]),
        f"{one['cpus']:.0f}",
        _format_share(one["processors"]),
        ", ".join(licences) or "-",
        str(one["ended"]),
        _format_ratio(one["late"], one["with_deadline"]),
        f"{slowdown:.2f}" if slowdown is not None else "-",
    )


def _queue_cells(cluster: str, one: Mapping[str, Any]) -> tuple[str, ...]:
    mean, longest = one["mean_wait"], one["longest_wait"]
    return (
        cluster,
        one["queue"],
        str(one["ended"]),
        _format_ratio(one["late"], one["with_deadline"]),
        format_duration(round(mean)) if mean is not None else "-",
        format_duration(longest) if longest is not None else "-",
        str(one["waiting"]),
        format_duration(one["longest_waiting"]) if one["waiting"] else "-",
    )


def _format_share(part: float | None) -> str:
    return f"{100 * part:.1f} %" if part is not None else "-"


def _format_ratio(late: int, of: int) -> str:
    return f"{late} of {of}, {_format_share(late / of)}" if of else "-"
