"""``schedd power``: list switched nodes and draws, switch a node, report readings."""

import argparse
import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Final

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import describe_file_error, format_table, format_time
from schedd.client import ClientError
from schedd.client.answers import PowerView
from schedd.name_list import shorten_list


def make_parser(name: str = "schedd power") -> argparse.ArgumentParser:
    found = make_command_parser(
        name,
        "Show which nodes are switched off or being switched, and the energy saved. Or set the mode of "
        "nodes: on, off, hold (no change) or auto (as the plan needs them); running jobs are never ended; "
        "needs the role operator or admin. Or record measured power: lines 'NODE WATTS' from a file or "
        "standard input; needs the role adapter.",
    )
    found.add_argument(
        "wish",
        metavar="MODE",
        nargs="?",
        choices=("on", "off", "hold", "auto", "record"),
        help="on, off, hold or auto; record: store measured watts",
    )
    found.add_argument("nodes", nargs="*", metavar="NODE", help="nodes; for record: a file (default: -)")
    found.add_argument("--reason", metavar="TEXT", default="", help="shown to all users")
    found.add_argument("--measured", action="store_true", help="also what each node draws, as measured")
    return found


def run(argv: Sequence[str], name: str = "schedd power") -> int:
    return run_command(make_parser(name), _run_action, argv)


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    client = session.client
    if args.wish == "record":
        answer = client.record_power(_drop_unknown_nodes(session, _parse_readings(args.nodes)))
        if args.json:
            show_json(answer)
        return True
    if args.wish and not args.nodes:
        raise ClientError(f"name the nodes: schedd power {args.wish} NODE")
    found = client.power() if not args.nodes else None
    for node in args.nodes:
        found = client.set_power(node, args.wish, args.reason)
    assert found is not None
    if args.json:
        show_json(found)
    else:
        print(_power_text(found, session.now))
        if args.measured:
            print(_measurements_table(found, session.now))
    return True


def _parse_readings(files: Sequence[str]) -> dict[str, float]:
    """Return watts by node from lines ``NODE WATTS``; empty lines and lines that begin with # are skipped."""
    if len(files) > 1:
        raise ClientError("schedd power record takes one file, or none for standard input")
    name = files[0] if files else "-"
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(describe_file_error(error)) from error
    found: dict[str, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            node, watts = words[0], float(words[1])
            if len(words) != 2 or not isfinite(watts) or watts < 0:
                raise ValueError
        except (IndexError, ValueError):
            raise ClientError(
                f"{name}, line {number}: {line.strip()[:80]!r} is not 'NODE WATTS', such as: n1 212.5"
            ) from None
        found[node] = watts
    if not found:
        raise ClientError(f"{name}: the file has no readings")
    return found


def _drop_unknown_nodes(session: Session, watts: dict[str, float]) -> dict[str, float]:
    """Remove nodes that the cluster does not have; prints one line about them."""
    known = {one.name for one in session.client.nodes()}
    strange = sorted(watts.keys() - known)
    if strange:
        print(f"not nodes of this cluster: {shorten_list(strange)}", file=sys.stderr)
    if len(strange) == len(watts):
        raise ClientError("the cluster has none of these nodes: nothing was recorded")
    return {name: value for name, value in watts.items() if name in known}


_MODES: Final = {"off": "off", "dry": "dry run, nothing is switched", "on": "on"}


def _power_text(found: PowerView, now: int) -> str:
    off = "1 node is" if found.off == 1 else f"{found.off} nodes are"
    lines = [f"power saving: {_MODES[found.mode]}; {off} off; {found.saved:g} kWh saved"]
    if found.would:
        lines.append(f"would be off: {', '.join(found.would)}")
    if found.nodes:
        rows = [
            (
                one.node,
                one.phase,
                format_time(one.since, now) if one.since else "-",
                format_time(one.back, now) if one.back is not None else "-",
                f"{one.wish} by {one.by}" if one.by else one.wish,
                "; ".join(filter(None, (one.reason, one.text))),
            )
            for one in found.nodes
        ]
        lines += ["", format_table(("NODE", "POWER", "SINCE", "JOBS FROM", "WISH", "NOTES"), rows, last=12)]
    return "\n".join(lines)


def _measurements_table(found: PowerView, now: int) -> str:
    if not found.measured:
        return "\nno readings yet: schedd power record stores them"
    rows = [
        (
            one.node,
            f"{one.watts:g}",
            format_time(one.at, now),
            *(f"{value:g}" if value is not None else "-" for value in (one.idle, one.core, one.off)),
        )
        for one in found.measured
    ]
    return "\n" + format_table(("NODE", "WATTS", "READ", "IDLE", "PER CORE", "OFF"), rows)
