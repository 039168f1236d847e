"""``schedd partitions``: free capacity and jobs of each partition."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.command_session import Session, make_command_parser, run_command, show_json
from schedd.cli.user.formatting import format_table

_HEADS = ("PARTITION", "NODES", "UP", "CPUS", "FREE", "GPUS", "FREE", "RUNNING", "WAITING", "CHARGE")


def make_parser(name: str = "schedd partitions") -> argparse.ArgumentParser:
    return make_command_parser(
        name, "Show the partitions: nodes, free cpus and gpus, running and waiting jobs, charge factor."
    )


def run(argv: Sequence[str], name: str = "schedd partitions") -> int:
    return run_command(make_parser(name), _show, argv)


def _show(session: Session, args: argparse.Namespace) -> bool:
    found = session.client.partitions()
    if args.json:
        show_json(found)
    elif not found:
        print("this cluster has no partitions")
    else:
        rows = [
            (
                one.name or "(none)",
                *map(str, (one.nodes, one.nodes_up, one.cpus, one.free_cpus)),
                *map(str, (one.gpus, one.free_gpus, one.running, one.waiting)),
                f"{one.charge:g}",
            )
            for one in found
        ]
        print(format_table(_HEADS, rows))
    return True
