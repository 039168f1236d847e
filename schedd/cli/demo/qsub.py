"""``schedd demo qsub``: submit a job to a running demo."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.demo.qsub_options import add_qsub_options, qsub_arguments
from schedd.cli.user.command_session import run_with_exit_code
from schedd.cli.user.formatting import describe_file_error
from schedd.client import Client, ClientError, Endpoint, find_endpoint
from schedd.client.http import HttpConnection

_KNOWN_TRIES: Final = 50
_ABOUT: Final = "submit a job to a running demo, like qsub"
_EPILOG: Final = """The job belongs to the user of the token in SCHEDD_TOKEN, which the demo prints. The
script may have options in #PBS lines. Its program runs as long as it sleeps
(sleep 600), or for 60 % of its walltime.

exit status:
  0  the job was submitted
  2  wrong usage
  3  no such cluster
  4  no demo answers, or it is not ready
  5  access denied
  6  the server refused the job"""


def make_parser(acts: "argparse._SubParsersAction[OneLineErrorParser] | None" = None) -> OneLineErrorParser:
    """Return the parser, added to ``acts`` if given. Its `-h` is qsub's, so only `--help` shows the help."""
    make = OneLineErrorParser if acts is None else partial(acts.add_parser, "qsub", help=_ABOUT)
    parser = make(
        prog="schedd demo qsub",
        add_help=False,
        allow_abbrev=False,
        description=f"{_ABOUT[0].upper()}{_ABOUT[1:]}. Prints the job's id.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_qsub_options(parser)
    add_demo_options(parser)
    add = parser.add_argument
    add("--help", action="help", help="show this help message and exit")
    add("script", nargs="?", default="-", metavar="SCRIPT", help="job script (default: standard input)")
    return parser


def add_demo_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a running demo and its cluster."""
    add = parser.add_argument
    add("--cluster", metavar="NAME", help="cluster, if the demo has more than one")
    add("--url", metavar="URL", help="address of the demo (default: SCHEDD_URL, then http://127.0.0.1:8080)")


@contextmanager
def demo_submissions(args: argparse.Namespace) -> Iterator[Callable[[str, Any], Any]]:
    """Give a function that posts to a path below the demo's submissions, and returns the answer."""
    endpoint = _demo_endpoint(args)
    with Client(endpoint) as client:
        cluster = client.cluster().name
    http = HttpConnection(endpoint, timeout=30)
    try:
        yield lambda path, body: http.request("POST", f"/v1/clusters/{cluster}/submissions{path}", body=body)
    finally:
        http.close()


def _demo_endpoint(args: argparse.Namespace) -> Endpoint:
    endpoint = find_endpoint()
    return endpoint._replace(url=args.url or endpoint.url, cluster=args.cluster or endpoint.cluster)


def await_job(client: Client, job: str, pause: Callable[[float], None] = time.sleep) -> None:
    """Wait until the daemon knows the job, 10 s at most: the next command may ask for it."""
    for _ in range(_KNOWN_TRIES):
        try:
            (client.array if "[]" in job else client.job)(job)
        except ClientError:
            pause(0.2)
        else:
            return


def run(argv: Sequence[str]) -> int:
    """Submit the job; return the exit status."""

    def submit(args: argparse.Namespace) -> bool:
        try:
            script = sys.stdin.read() if args.script == "-" else Path(args.script).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ClientError(describe_file_error(error)) from None
        name = "" if args.script == "-" else Path(args.script).name[:15]
        with demo_submissions(args) as post:
            found = post("", {"options": qsub_arguments(args), "script": script, "name": name})
        with Client(_demo_endpoint(args)) as client:
            await_job(client, found["id"])
        if not args.flag_z:
            print(found["id"])
        if found["without_effect"]:
            print(f"without effect in the demo: {' '.join(found['without_effect'])}", file=sys.stderr)
        return True

    return run_with_exit_code(make_parser(), submit, argv)
