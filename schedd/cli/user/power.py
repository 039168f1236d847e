"""``schedd power``: nodes that are switched off and on; switch one, or leave it to the plan again."""

import argparse
from collections.abc import Sequence
from typing import Final

from schedd.cli.user.asking import Session, answer, parser, show_json
from schedd.cli.user.text import moment, table
from schedd.client import ClientError
from schedd.client.answers import PowerView

__all__ = ["make_parser", "run"]


def make_parser(name: str = "schedd power") -> argparse.ArgumentParser:
    """Its options."""
    found = parser(
        name,
        "Show which nodes are switched off or on their way, and what that saves; or decide over some: on or "
        "off (and they stay so), hold (they stay as they are), auto (as the plan needs them). To decide "
        "needs the role operator or admin. What runs on a node is never ended.",
    )
    found.add_argument(
        "wish", nargs="?", choices=("on", "off", "hold", "auto"), help="what to do with the nodes"
    )
    found.add_argument("nodes", nargs="*", metavar="NODE", help="nodes")
    found.add_argument("--reason", metavar="TEXT", default="", help="shown to all users")
    return found


def run(argv: Sequence[str], name: str = "schedd power") -> int:
    """The command."""
    return answer(make_parser(name), _act, argv)


def _act(session: Session, args: argparse.Namespace) -> bool:
    client = session.client
    if args.wish and not args.nodes:
        raise ClientError(f"name the nodes: schedd power {args.wish} NODE")
    found = client.power() if not args.nodes else None
    for node in args.nodes:
        found = client.set_power(node, args.wish, args.reason)
    assert found is not None
    if args.json:
        show_json(found)
    else:
        print(_text(found, session.now))
    return True


_MODES: Final = {"off": "off", "dry": "a dry run, nothing is switched", "on": "on"}


def _text(found: PowerView, now: int) -> str:
    lines = [
        f"power saving: {_MODES[found['mode']]}; {found['off']} nodes are off; {found['saved']:g} kWh saved"
    ]
    if found["would"]:
        lines.append(f"would be off: {', '.join(found['would'])}")
    if found["nodes"]:
        rows = [
            (
                one["node"],
                one["phase"],
                moment(one["since"], now) if one["since"] else "-",
                moment(one["back"], now) if one["back"] is not None else "-",
                f"{one['wish']} by {one['by']}" if one["by"] else one["wish"],
                "; ".join(filter(None, (one["reason"], one["text"]))),
            )
            for one in found["nodes"]
        ]
        lines += ["", table(("NODE", "POWER", "SINCE", "JOBS FROM", "WISH", "NOTES"), rows, last=12)]
    return "\n".join(lines)
