"""``schedd release``: plan for nodes or queues again that were held."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.hold import HoldKind, add_target_options, change_each, named_targets
from schedd.client import ClientError
from schedd.client.answers import HoldView


def make_parser(name: str = "schedd release") -> argparse.ArgumentParser:
    about = "Release drained nodes or held queues: plan jobs there again. Needs the role operator or admin."
    return add_target_options(make_command_parser(name, about))


def run(argv: Sequence[str], name: str = "schedd release") -> int:
    return run_command(make_parser(name), _run_action, argv)


def _run_action(session: Session, args: argparse.Namespace) -> bool:
    names = named_targets(args)
    if not names:
        raise ClientError("name the target: -w NODE, -q QUEUE; `schedd hold` shows all holds")

    def release(kind: HoldKind, name: str) -> Sequence[HoldView]:
        held = session.client.release(kind, name)
        if not args.json:
            print(f"{kind} {name}: jobs are planned there again")
        return held

    held = change_each(names, release, "released")
    if args.json:
        show_json({"holds": held})
    return True
