"""``schedd hold``: hold nodes or queues; or show holds."""

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import Literal

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_table, format_time
from schedd.cli.user.preview_text import format_preview
from schedd.client import ClientError
from schedd.client.answers import HoldView

HoldKind = Literal["node", "queue"]


def make_parser(name: str = "schedd hold") -> argparse.ArgumentParser:
    found = add_target_options(
        make_command_parser(
            name,
            "Drain nodes or hold queues: plan nothing new there until `schedd release`. Without a "
            "name, show drained nodes and held queues. Running jobs go on. Needs the role operator or"
            " admin.",
        )
    )
    found.add_argument("--reason", metavar="TEXT", help="reason shown to users whose jobs wait for it")
    found.add_argument("--preview", action="store_true", help="only show the effects; change nothing")
    return found


def add_target_options(found: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """With the options that name nodes and queues."""
    about = "nodes: names, ranges (n[001-020]), patterns ('gpu*'), properties, states"
    found.add_argument(
        "-w", dest="nodes", metavar="NODE,…", type=split_outside_brackets, default=[], help=about
    )
    found.add_argument(
        "-q", dest="queues", metavar="QUEUE,…", type=split_outside_brackets, default=[], help="queues"
    )
    return found


def split_outside_brackets(text: str) -> list[str]:
    """Parts between commas that are not within brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text) if part]


def named_targets(args: argparse.Namespace) -> list[tuple[HoldKind, str]]:
    nodes: list[tuple[HoldKind, str]] = [("node", name) for name in args.nodes]
    return nodes + [("queue", name) for name in args.queues]


def change_each(
    names: Sequence[tuple[HoldKind, str]], change: Callable[[HoldKind, str], Sequence[HoldView]], done: str
) -> Sequence[HoldView]:
    """Change each target; return all holds after the last. Raises the first error, after a line on standard
    error with the targets that are ``done``.
    """
    held: Sequence[HoldView] = []
    changed: list[str] = []
    for kind, name in names:
        try:
            held = change(kind, name)
        except ClientError:
            if changed:
                print(f"{done} already: {', '.join(changed)}", file=sys.stderr)
            raise
        changed.append(f"{kind} {name}")
    return held


def run(argv: Sequence[str], name: str = "schedd hold") -> int:
    return run_command(make_parser(name), _run_action, argv)


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    client, names = session.client, named_targets(args)
    if args.reason and not names:
        raise ClientError("name nodes (-w) or queues (-q) to hold")
    if names and not args.reason and not args.preview:
        raise ClientError("give a --reason, which is shown to users whose jobs wait")
    if args.preview:
        if not names:
            raise ClientError("--preview needs nodes (-w) or queues (-q)")
        found = {
            f"{kind} {name}": client.preview_hold(kind, name, args.reason or "preview")
            for kind, name in names
        }
        if args.json:
            show_json(found)
        else:
            print("Effects of this hold; nothing was changed:")
            texts = [f"{what}: {format_preview(one, session.now)}" for what, one in found.items()]
            print("\n\n".join(texts))
        return True
    if not names:
        held = client.holds()
    else:
        held = change_each(names, lambda kind, name: client.hold(kind, name, args.reason), "held")
    if args.json:
        show_json({"holds": held})
    else:
        print(_holds_table(held, session.now) if held else "nothing is held")
    return True


def _holds_table(held: Sequence[HoldView], now: int) -> str:
    lines = [(one.kind, one.name, format_time(one.since, now), one.by, one.reason) for one in held]
    return format_table(("KIND", "NAME", "SINCE", "BY", "REASON"), lines, last=12)
