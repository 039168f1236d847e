"""``showbf``: idle capacity and its duration: the backfill windows."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_duration, format_table, natural_key
from schedd.client import ClientError
from schedd.client.answers import Gap
from schedd.name_list import shorten_list

_HORIZON_S = 30 * 86_400  # seconds; capacity free for this long counts as free without limit


def make_parser(name: str = "showbf") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show idle capacity and its duration: a job whose request and walltime fit into a line starts"
        " at once. Each line counts everything that is free for at least that long.",
    )
    add = found.add_argument
    add(
        "-n",
        dest="nodes",
        type=_parse_count,
        default=1,
        metavar="NODES",
        help="only windows with at least this many nodes (default: 1)",
    )
    add(
        "-p",
        dest="cpus",
        type=_parse_count,
        default=1,
        metavar="PPN",
        help="only nodes with at least this many free cpus (default: 1)",
    )
    add("-f", dest="feature", metavar="FEATURE", help="only nodes with this feature")
    return found


def _parse_count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= 10**9:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number from 1 on")
    return int(text)


def _describe_filter(args: argparse.Namespace) -> str:
    """The filter in words; empty without one."""
    if (args.nodes, args.cpus, args.feature) == (1, 1, None):
        return ""
    nodes = "at least 1 node" if args.nodes == 1 else f"at least {args.nodes} nodes"
    cpus = "1 free cpu" if args.cpus == 1 else f"{args.cpus} free cpus"
    feature = f" and the feature {args.feature}" if args.feature is not None else ""
    return f"{nodes} with at least {cpus}{' each' * (args.nodes > 1)}{feature}"


def run(argv: Sequence[str], name: str = "showbf") -> int:
    return run_command(make_parser(name), _show_free, argv)


def _show_free(session: Session, args: argparse.Namespace) -> bool:
    client, begin = session.client, session.cluster.as_of
    gaps: Iterable[Gap] = client.gaps(begin=begin, end=begin + _HORIZON_S, cpus=args.cpus, from_begin=True)
    if args.feature is not None:
        has = {node.name for node in client.nodes() if args.feature in node.properties}
        if not has:
            raise ClientError(f"no node has the feature {args.feature}")
        gaps = (gap for gap in gaps if gap.node in has)
    windows = [
        {**line, "walltime": None if line["until"] >= begin + _HORIZON_S else line["until"] - begin}
        for line in free_windows(gaps, begin)
        if line["nodes"] >= args.nodes and line["until"] > begin
    ]
    if args.json:
        asked = {"nodes": args.nodes, "cpus": args.cpus, "feature": args.feature}
        show_json({"as_of": begin, "asked": asked, "windows": windows})
        return True
    understood = _describe_filter(args)
    if not windows:
        fits = sum(
            node.cpus >= args.cpus and args.feature in (None, *node.properties) for node in client.nodes()
        )
        if understood and fits < args.nodes:
            print(f"never here: {understood}; the cluster has {fits} such node{'s' * (fits != 1)}")
        else:
            print(f"nothing is free now{f': {understood}' if understood else ''}")
        return True
    if understood:
        print(f"{understood}:")
    print(
        format_table(
            ("CPUS", "NODES", "PER NODE", "WALLTIME", "ON"),
            [
                (
                    str(one["cpus"]),
                    str(one["nodes"]),
                    one["per_node"],
                    "no limit" if one["walltime"] is None else format_duration(one["walltime"]),
                    shorten_list(one["names"]),
                )
                for one in windows
            ],
            right="0123",
        )
    )
    return True


def free_windows(gaps: Iterable[Gap], begin: int) -> list[dict[str, Any]]:
    """Free capacity from ``begin`` on and its end, longest first."""
    # A node's gaps follow each other; the capacity free until a time is the least of those before it.
    until: dict[int, dict[str, int]] = {}
    node, free, reached = "", 0, 0
    for gap in gaps:
        if gap.node != node:
            node, free, reached = gap.node, gap.cpus, begin
        if gap.start != reached:
            continue
        free, reached = min(free, gap.cpus), gap.end
        until.setdefault(reached, {})[node] = free
    found: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    for end in sorted(until, reverse=True):
        before = dict(seen)
        for name, cpus in until[end].items():
            seen[name] = max(cpus, seen.get(name, 0))
        if seen != before:
            most, least = max(seen.values()), min(seen.values())
            found.append(
                {
                    "cpus": sum(seen.values()),
                    "nodes": len(seen),
                    "per_node": str(most) if least == most else f"{least}-{most}",
                    "until": end,
                    "names": sorted(seen, key=natural_key),
                }
            )
    return found
