"""``schedd demo qalter``, ``qdel``, ``qhold`` and ``qrls``: change or delete jobs of a running demo."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Final

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.demo.qsub import add_demo_options, demo_submissions
from schedd.cli.user.command_session import run_with_exit_code

ACTS: Final = {
    "qalter": "change the request of a job in a running demo",
    "qdel": "delete jobs of a running demo",
    "qhold": "hold jobs of a running demo",
    "qrls": "release held jobs of a running demo",
}
_EPILOG: Final = """The jobs must belong to the user of the token in SCHEDD_TOKEN, or the token must be the
admin's. The demo prints both.

exit status:
  0  done
  2  wrong usage
  3  no such job or cluster
  4  no demo answers, or it is not ready
  5  access denied
  6  the server refused it"""


def make_parser(
    act: str, acts: "argparse._SubParsersAction[OneLineErrorParser] | None" = None
) -> OneLineErrorParser:
    """Return the parser of one of ACTS, added to ``acts`` if given."""
    about = ACTS[act]
    make = OneLineErrorParser if acts is None else partial(acts.add_parser, act, help=about)
    parser = make(
        prog=f"schedd demo {act}",
        allow_abbrev=False,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    if act == "qalter":
        add("-l", dest="request", metavar="LIST", required=True, help="what changes: walltime=0:30:00")
    add_demo_options(parser)
    add("jobs", nargs="+", metavar="JOB", help="id of a job, such as 152")
    return parser


def run(act: str, argv: Sequence[str]) -> int:
    """Change the jobs, one after the other; return the exit status."""

    def change(args: argparse.Namespace) -> bool:
        with demo_submissions(args) as post:
            for job in args.jobs:
                post("/changes", {"act": act, "job": job, "request": getattr(args, "request", "")})
        return True

    return run_with_exit_code(make_parser(act), change, argv)
