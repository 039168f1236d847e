"""``schedd cancel``: cancel jobs of the federation."""

import argparse
from collections.abc import Sequence

from schedd.cli.user.command_session import EXIT_CODES, add_federation_answer_options, make_described_parser
from schedd.federation.commands.jobs import cancel_jobs


def make_parser(name: str = "schedd cancel") -> argparse.ArgumentParser:
    about = (
        "Cancel jobs of the federation: waiting jobs are deleted. Running jobs go on; `qdel` at the "
        "cluster ends them."
    )
    codes = {code: words for code, words in EXIT_CODES.items() if code != 1}
    found = make_described_parser(name, about, "", codes)
    found.add_argument(
        "jobs", nargs="+", metavar="JOB", help="number that `schedd submit` printed, for example 12"
    )
    add_federation_answer_options(found)
    return found


def run(argv: Sequence[str], name: str = "schedd cancel") -> int:
    return cancel_jobs(make_parser(name), argv)
