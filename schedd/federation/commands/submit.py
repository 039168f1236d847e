"""``schedd submit``: a job for the federation, with qsub's options."""

import argparse
import getpass
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.user.command_session import (
    add_federation_answer_options,
    describe_refusal,
    refusal_code,
    show_json,
)
from schedd.cli.user.formatting import (
    describe_file_error,
    format_duration,
    format_start_cells,
    format_table,
)
from schedd.cli.user.time_arguments import parse_coming_time
from schedd.client import ClientError, Refused
from schedd.client.answers import ClusterWhatIf
from schedd.federation.commands.jobs import connect_federation
from schedd.federation.federated_start import offered_start_facts
from schedd.start_sentence import describe_start, format_near_time

_DIRECTIVE: Final = re.compile(r"^#PBS\s+(.*)$")
_NO_SCRIPT: Final = "#!/bin/sh\n"
_RANGE: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_ATTRIBUTES: Final = {
    "N": "Job_Name",
    "A": "Account_Name",
    "p": "Priority",
    "m": "Mail_Points",
    "M": "Mail_Users",
    "j": "Join_Path",
    "k": "Keep_Files",
    "o": "Output_Path",
    "e": "Error_Path",
    "S": "Shell_Path_List",
    "r": "Rerunable",
    "c": "Checkpoint",
}
_W_ATTRIBUTES: Final = ("stagein", "stageout", "umask", "group_list")
_CODES: Final = """exit status:
  0 the job is accepted; with --where: a cluster has a start for it
  1  with --where: no cluster has a start for it
  2  wrong usage
  4  no federation answers, or it is not ready
  5  access denied
  6  no cluster can run the job; standard error has the reasons"""
_CHOICE_WAIT_S: Final = 15  # seconds to wait for the choice of a cluster
_O_VARIABLES: Final = ("HOME", "LANG", "LOGNAME", "PATH", "MAIL", "SHELL")
"""Variables that every job gets as PBS_O_…, as with qsub."""


def make_parser(name: str = "schedd submit", *, of_script: bool = False) -> argparse.ArgumentParser:
    """Return the parser of its options; with ``of_script``, only those permitted in `#PBS` lines."""
    found = OneLineErrorParser(
        prog="#PBS" if of_script else name,
        add_help=not of_script,
        allow_abbrev=False,
        description="Submit a job to the federation. It goes to the cluster with the earliest planned end.",
        epilog="" if of_script else _CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_script_options(found)
    add = found.add_argument
    add("-t", "-J", dest="array", metavar="FIRST-LAST", help="a job array of these indices, as one job")
    if not of_script:
        add_destination_options(found)
        add("--data", metavar="NAME,…", default="", help="data sets that it reads")
        add("--booking", metavar="NAME", default="", help="run it in this booking (schedd book --federation)")
        add("--key", default="", help="idempotency key: submitting the same key again creates no second job")
        add("--where", action="store_true", help="only show its start on each cluster; submit nothing")
        add_federation_answer_options(found)
        add(
            "script",
            metavar="SCRIPT",
            nargs="?",
            default=None,
            help="job script (default: standard input; with --where and -l: none)",
        )
    return found


def add_destination_options(found: argparse.ArgumentParser) -> None:
    """Add the options that say where and until when a job or a bag runs."""
    add = found.add_argument
    add("--only", metavar="CLUSTER,…", default="", help="clusters it may run on (default: all)")
    add("--by", metavar="WHEN", default="", help="deadline: 2026-12-01T08:00, 08:00 or +6h")


def add_script_options(found: argparse.ArgumentParser) -> None:
    """Add the options about the script and its resources, as in qsub."""
    add = found.add_argument
    add("-l", dest="request", action="append", metavar="LIST", help="requested resources, as qsub -l")
    add("-q", dest="queue", metavar="QUEUE@CLUSTER", action="append", help="queue on a cluster")
    add(
        "-v", dest="variables", action="append", metavar="LIST", help="environment variables: NAME=VALUE,NAME"
    )
    add("-V", dest="all_variables", action="store_true", help="pass the whole environment")
    add("-W", dest="more", action="append", metavar="LIST", help=f"{', '.join(_W_ATTRIBUTES)}: NAME=VALUE")
    add("-d", dest="directory", metavar="PATH", help="working directory")
    for letter, attribute in _ATTRIBUTES.items():
        add(f"-{letter}", dest=attribute, metavar=attribute.upper(), help=f"as qsub -{letter}")


def run(argv: Sequence[str]) -> int:
    """Run the command; return the exit status, as in its help."""
    args = make_parser().parse_args(argv)
    # A question about -l needs no script: do not wait for standard input.
    without = args.where and args.script is None and bool(args.request)
    args.script = "-" if args.script is None else args.script
    try:
        script = _NO_SCRIPT if without else read_script(args.script)
        with connect_federation(args.url) as federation:
            body = read_submission(args, script, os.environ, federation.now)
            if args.where:
                rows = federation.what_if(
                    body["request"], body["clusters"], body["array"], body.get("deadline")
                )
                if args.json:
                    show_json(rows)
                else:
                    print(_cluster_table(rows, federation.now()))
                return 0 if any(row.start is not None for row in rows) else 1
            found = federation.submit(body, _CHOICE_WAIT_S)
        if args.json:
            show_json(found)
        if found.over == "refused":
            print(f"schedd submit: no cluster can run this job: {found.text}", file=sys.stderr)
            return 6
        if not args.json:
            print(found.id)
        if not found.over and not found.attempts:
            hint = f"no cluster is chosen yet; see checkjob --federation {found.id}"
            print(f"schedd submit: job {found.id} waits for a cluster: {hint}", file=sys.stderr)
    except Refused as error:
        print(f"schedd submit: {describe_refusal(error)}", file=sys.stderr)
        return 2 if error.places or error.kind == "not-now" else refusal_code(error)
    except (ClientError, OSError, UnicodeDecodeError, ValueError) as error:
        print(f"schedd submit: {describe_file_error(error)}", file=sys.stderr)
        return 2 if isinstance(error, ValueError | OSError) or "where is" in str(error) else 4
    return 0


def read_submission(
    args: argparse.Namespace,
    script: str,
    environment: Mapping[str, str],
    now: Callable[[], int] = lambda: int(time.time()),
) -> dict[str, Any]:
    """Return the job as a request to the federation; options of the command precede those in the script. A
    deadline such as `+6h` counts from ``now``.

    Raises ValueError.
    """
    work = read_script_options(args, script, environment)
    if not work["request"]:
        raise ValueError("the request is missing: give -l, such as -l nodes=1:ppn=4,walltime=1:00:00")
    return {
        **work,
        "clusters": [one for one in args.only.split(",") if one],
        "data": [one for one in args.data.split(",") if one],
        **({"booking": args.booking} if args.booking else {}),
        **({"deadline": _parse_deadline(args.by, now())} if args.by else {}),
    }


def _parse_deadline(text: str, now: int) -> int:
    """Return the time that `--by` names. Raises ValueError."""
    try:
        return parse_coming_time(text, now)
    except ClientError as error:
        raise ValueError(f"--by {error}") from None


def _parse_indices(text: str) -> str:
    """Return the first and the last index of a requested array. Raises ValueError."""
    found = _RANGE.fullmatch(text)
    if found is None:
        more = "; a step, a list and a limit (%) cannot be transferred" if set(text) & set(":,%") else ""
        raise ValueError(f"-t {text}: give the first and the last index, such as 0-99{more}")
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first:
        raise ValueError(f"-t {text}: the last index is before the first")
    return f"{first}-{last}"


def read_script(name: str) -> str:
    """Return the script of that name; `-`: standard input. Raises OSError and UnicodeDecodeError."""
    return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")


def read_script_options(
    args: argparse.Namespace, script: str, environment: Mapping[str, str]
) -> dict[str, Any]:
    """The script and its request, which may be empty (``request``); the indices of an ``array``, empty
    without one. Raises ValueError.
    """
    if not script:
        raise ValueError("the script is empty")
    found = _SubmitOptions(environment)
    for words in _parse_directives(script):
        found.merge(make_parser(of_script=True).parse_args(words))
    found.merge(args)
    directory = found.directory or environment.get("PWD") or "/"
    variables = {f"PBS_O_{name}": environment[name] for name in _O_VARIABLES if name in environment}
    variables |= {"PBS_O_WORKDIR": directory, "PBS_O_HOST": socket.gethostname()}
    attributes = {"init_work_dir": directory, "submit_host": socket.gethostname(), **found.attributes}
    if "Job_Name" not in attributes and args.script not in (None, "-"):
        attributes["Job_Name"] = Path(args.script).name[:15]
    return {
        "script": script,
        "request": ",".join(found.request),
        "attributes": attributes,
        "variables": {**variables, **found.variables},
        "queues": found.queues,
        "array": found.array,
        "key": args.key or f"{getpass.getuser()}.{socket.gethostname()}.{os.getpid()}.{os.urandom(6).hex()}",
    }


def parse_queues(words: Sequence[str]) -> dict[str, str]:
    """Return the queues by cluster, from `-q QUEUE@CLUSTER`. Raises ValueError."""
    found = {}
    for queue in words:
        name, at, cluster = queue.partition("@")
        if not at or not cluster:
            raise ValueError(f"-q {queue}: name the cluster, too: QUEUE@CLUSTER")
        found[cluster] = name
    return found


class _SubmitOptions:
    """Options of the script and of the command; later ones replace earlier ones."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.request: list[str] = []
        self.queues: dict[str, str] = {}
        self.attributes: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        self.directory = ""
        self.array = ""

    def merge(self, args: argparse.Namespace) -> None:
        self.request += args.request or ()
        self.directory = args.directory or self.directory
        self.queues |= parse_queues(args.queue or ())
        if getattr(args, "array", None) is not None:
            self.array = _parse_indices(args.array)
        for name in _ATTRIBUTES.values():
            value = getattr(args, name)
            if value is not None:
                self.attributes[name] = value
        if args.all_variables:
            self.variables |= self._environment
        for words in args.variables or ():
            for word in words.split(","):
                name, equals, value = word.partition("=")
                self.variables[name] = value if equals else self._environment.get(name, "")
        for words in args.more or ():
            name, equals, value = words.partition("=")
            if name not in _W_ATTRIBUTES or not equals:
                there = ", ".join(f"{one}=" for one in _W_ATTRIBUTES)
                raise ValueError(f"-W {words}: a federation does not support it; it supports {there}")
            self.attributes[name] = value


def _parse_directives(script: str) -> Iterator[list[str]]:
    """The options in the `#PBS` lines at the script's beginning, as qsub reads them."""
    import shlex  # noqa: PLC0415

    for line in script.splitlines():
        found = _DIRECTIVE.match(line)
        if found is not None:
            yield shlex.split(found.group(1))
        elif line.strip() and not line.startswith(("#", ":")):
            return


def _cluster_table(rows: Sequence[ClusterWhatIf], now: int) -> str:
    """A line per cluster: start, end, or the reason; deadline and costs if the job has them."""
    heads = ["CLUSTER", "PLANNED END"]
    dated, priced = any(row.late_by is not None for row in rows), any(row.cost is not None for row in rows)
    heads += [*["DEADLINE"] * dated, *["COST"] * priced, "LIKELY", "90 % BY", "AT THE LATEST"]
    lines = []
    reasons = []
    for row in rows:
        if row.start is None:
            why = row.why if row.never else f"no start: {row.why}"
            reasons.append(f"{row.cluster}: {why}")
            continue
        start = format_start_cells(describe_start(offered_start_facts(row), now), now, planned=True)
        end = format_near_time(row.end, now) if row.end is not None else "not known"
        more = [_format_lateness(row.late_by)] * dated
        more += ["-" if row.cost is None else f"{row.cost:,.2f}"] * priced
        lines.append((row.cluster, end, *more, *start))
    table = [format_table(tuple(heads), lines)] if lines else []
    return "\n\n".join([*table, "\n".join(reasons)] if reasons else table)


def _format_lateness(late: int | None) -> str:
    """Return whether the deadline is met; empty without one."""
    if late is None:
        return "-"
    return f"{format_duration(late)} late" if late else "in time"
