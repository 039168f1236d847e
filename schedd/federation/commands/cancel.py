"""``schedd cancel``: take jobs back from the federation."""

import argparse
import textwrap
from collections.abc import Sequence

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.user.command_session import EXIT_CODES
from schedd.federation.commands.jobs import cancel_jobs


def make_parser(name: str = "schedd cancel") -> argparse.ArgumentParser:
    about = (
        "Cancel jobs of the federation: waiting jobs are deleted. Running jobs go on; `qdel` at the "
        "cluster ends them."
    )
    codes = "\n".join(f"  {code}  {words}" for code, words in EXIT_CODES.items() if code != 1)
    found = OneLineErrorParser(
        prog=name,
        description=textwrap.fill(about, 79),
        epilog=f"exit status:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    found.add_argument(
        "jobs", nargs="+", metavar="JOB", help="number that `schedd submit` printed, for example 12"
    )
    found.add_argument("--json", action="store_true", help="print the federation's answer as JSON")
    found.add_argument("--url", metavar="URL", help="address of the federation (default: SCHEDD_FEDERATION)")
    return found


def run(argv: Sequence[str], name: str = "schedd cancel") -> int:
    return cancel_jobs(make_parser(name), argv)
