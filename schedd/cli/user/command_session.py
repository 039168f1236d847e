"""What all commands for users share: options, where the daemon is, errors as one line and an exit code."""

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.user.formatting import localise_times
from schedd.client import Client, ClientError, Refused, Unreachable, find_endpoint
from schedd.client.answers import ClusterView

EXIT_CODES: Final = {
    0: "answered",
    1: "answered, but the job has no planned start: it waits, or can never run here",
    2: "wrong usage",
    3: "no such job, cluster or reservation",
    4: "no daemon answers, or it is not ready",
    5: "access denied",
    6: "refused as things are now; nothing was changed",
}
_NO_START: Final = 1
NO_START_CODE: Final = EXIT_CODES[_NO_START]
_USAGE, _UNKNOWN, _UNREACHABLE, _NOT_ALLOWED, _REFUSED = 2, 3, 4, 5, 6
_CONFLICT: Final = 409
_CODE_BY_KIND: Final = {
    "unknown-job": _UNKNOWN,
    "unknown-cluster": _UNKNOWN,
    "unknown-reservation": _UNKNOWN,
    "unknown-booking": _UNKNOWN,
    "unknown-plan": _UNKNOWN,
    "invalid": _USAGE,
    "bad-request": _USAGE,
    "too-hard": _USAGE,
    "too-large": _USAGE,
    "no-token": _NOT_ALLOWED,
    "not-allowed": _NOT_ALLOWED,
    "too-often": _NOT_ALLOWED,
}
_TOKEN_HINT: Final = "put a token into SCHEDD_TOKEN or ~/.config/schedd/token"
_PLACE: Final = re.compile(r"^(?:path\.\w+: |body\.request: |body\.|query\.)")
"""The place of a fault in a request, which the user did not write."""
_FIRST_TIMEOUT_S: Final = 8.0
"""For the first response, which a daemon that works has at hand: a frozen one is noticed soon."""
_TIMEOUT_S: Final = 60.0  # for later ones: a search takes most of it


class Session:
    """One command's connection, and what the cluster says of itself."""

    def __init__(self, client: Client) -> None:
        self.client = client
        client.set_timeout(_FIRST_TIMEOUT_S)
        self.cluster: ClusterView = client.cluster()
        client.set_timeout(_TIMEOUT_S)

    @property
    def now(self) -> int:
        """The present time by the cluster's clock, in seconds."""
        return self.cluster.now


Command = Callable[[Session, argparse.Namespace], bool]
"""Asks and prints; whether a start is known, where one was asked for."""


def make_command_parser(
    name: str, about: str, more: str = "", *, of_cluster: bool = False, one: str = ""
) -> argparse.ArgumentParser:
    """A parser with the options of all commands; with ``of_cluster`` the cluster is an argument. ``one``: the
    meaning of exit status 1; empty: the command never ends with it.
    """
    codes = {code: text for code, text in {**EXIT_CODES, _NO_START: one}.items() if text}
    found = make_described_parser(name, about, more, codes)
    add = found.add_argument
    add("--json", action="store_true", help="print the daemon's answer as JSON")
    if of_cluster:
        add("cluster", nargs="?", metavar="CLUSTER", help="cluster, if the daemon has more than one")
    else:
        add("--cluster", metavar="NAME", help="cluster, if the daemon has more than one")
    add_daemon_address(found)
    return found


def add_daemon_address(found: argparse.ArgumentParser) -> None:
    """Add ``--url`` of the daemon."""
    address = "address of the daemon: http://HOST:PORT, https://HOST or unix:/PATH"
    found.add_argument("--url", metavar="URL", help=address)


def add_federation_answer_options(found: argparse.ArgumentParser) -> None:
    """Add the options of all commands that only a federation answers."""
    found.add_argument("--json", action="store_true", help="print the federation's answer as JSON")
    found.add_argument("--url", metavar="URL", help="address of the federation (default: SCHEDD_FEDERATION)")


def make_described_parser(
    name: str, about: str, more: str, codes: Mapping[int, str]
) -> argparse.ArgumentParser:
    """Return a parser without options; its help has ``about``, ``more``, and the exit status."""
    statuses = "\n".join(f"  {code}  {message}" for code, message in codes.items())
    return OneLineErrorParser(
        prog=name,
        description=textwrap.fill(about, 79),
        epilog=f"{more}\n\nexit status:\n{statuses}".strip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_federation_option(found: argparse.ArgumentParser, what: str) -> None:
    """The option that asks the federation instead of a cluster."""
    found.add_argument(
        "--federation",
        action="store_true",
        help=f"{what} of the federation at SCHEDD_FEDERATION or --url",
    )


def run_command(
    found: argparse.ArgumentParser,
    command: Command,
    argv: Sequence[str],
    *,
    acts: bool = False,
    adjust: Callable[[argparse.Namespace], None] | None = None,
) -> int:
    """Run ``command``; returns the exit code. ``acts`` omits the warning that no jobs are started. ``adjust``
    completes the arguments before the cluster is chosen.
    """

    def call_cluster(args: argparse.Namespace) -> bool:
        endpoint = find_endpoint()
        if adjust is not None:
            adjust(args)
        endpoint = endpoint._replace(url=args.url or endpoint.url, cluster=args.cluster or endpoint.cluster)
        with Client(endpoint, timeout=_TIMEOUT_S) as client:
            session = _open_session(client, args)
            for line in cluster_warnings(session.cluster, acts=acts):
                _print_error(found, line)
            return command(session, args)

    return run_with_exit_code(found, call_cluster, argv)


def _open_session(client: Client, args: argparse.Namespace) -> Session:
    """Return the session; an unknown cluster is refused with the command's own remedy, if it has one."""
    try:
        return Session(client)
    except Refused as error:
        hint = getattr(args, "unknown_cluster_hint", "")
        if error.kind != "unknown-cluster" or not hint:
            raise
        raise Refused(error.kind, error.status, error.detail, hint) from None


def run_with_exit_code(
    found: argparse.ArgumentParser, run: Callable[[argparse.Namespace], bool], argv: Sequence[str]
) -> int:
    """Call ``run``, which returns whether a start is known; its errors become one line and an exit code."""
    args = found.parse_args(argv)
    try:
        return 0 if run(args) else _NO_START
    except Refused as error:
        _print_error(found, _PLACE.sub("", describe_refusal(error)))
        return refusal_code(error)
    except Unreachable as error:
        _print_error(found, str(error))
        return _UNREACHABLE
    except ClientError as error:
        _print_error(found, str(error))
        return _USAGE
    except KeyboardInterrupt:
        return 130


def describe_refusal(error: Refused) -> str:
    """Return the error, its place, and the remedy."""
    if error.kind == "no-token" and "Authorization" in error.hint:  # no hint for a command's user
        return f"{error.detail}; {_TOKEN_HINT}"
    return error.places[0] if error.places else str(error)


def refusal_code(error: Refused) -> int:
    """Return the exit code, as in ``EXIT_CODES``."""
    return _CODE_BY_KIND.get(error.kind, _REFUSED if error.status == _CONFLICT else _UNREACHABLE)


def cluster_warnings(cluster: ClusterView, *, acts: bool = False) -> Iterator[str]:
    """Warnings about the plan for every user."""
    stale, halted = cluster.stale, cluster.halted
    # An adapter that is to start nothing is what the site chose.
    halted = "" if acts or cluster.mode != "scheduler" else halted
    if clocks := cluster.clocks:
        yield f"times may be wrong: {clocks}"
    if stale and stale in halted:
        yield f"no jobs are started, and the plan may be out of date: {stale}"
        return
    if stale:
        yield f"the plan may be out of date: {stale}"
    if halted:
        yield f"no jobs are started: {halted}"
    elif cluster.starts_refused:
        yield cluster.starts_refused
    elif not (acts or stale) and cluster.job_starts.state != "good":
        yield f"no jobs are started: {cluster.job_starts.reason}"


def _print_error(found: argparse.ArgumentParser, message: str) -> None:
    print(f"{found.prog}: {localise_times(message)}", file=sys.stderr)


def show_json(value: Any) -> None:
    """Print it; a terminal without UTF-8 gets its other characters escaped."""
    print(json.dumps(value, ensure_ascii=(sys.stdout.encoding or "utf-8").lower() != "utf-8"))
