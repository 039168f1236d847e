"""``schedd release``: plan for nodes or queues again that were held."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.asking import Session, answer, parser, show_json
from schedd.cli.user.hold import named, with_names
from schedd.client import ClientError
from schedd.client.answers import HoldView

__all__ = ["make_parser", "run"]


def make_parser(name: str = "schedd release") -> argparse.ArgumentParser:
    """Its options."""
    about = "Plan for nodes or queues again that `schedd hold` held. Needs the role operator or admin."
    return with_names(parser(name, about))


def run(argv: Sequence[str], name: str = "schedd release") -> int:
    """The command."""
    return answer(make_parser(name), _act, argv)


def _act(session: Session, args: argparse.Namespace) -> bool:
    names = named(args)
    if not names:
        raise ClientError("name what to release: -w NODE, -q QUEUE; `schedd hold` shows what is held")
    held: list[HoldView] = []
    for kind, name in names:
        held = session.client.release(kind, name)
        if not args.json:
            print(f"{kind} {name} is planned for again")
    if args.json:
        show_json({"holds": held})
    return True
