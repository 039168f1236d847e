"""``schedd doctor``: look at a site from the settings to the server, and say what to do."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.diagnosis import ADAPTER_SETTINGS, CheckResult, check_adapter_files, check_daemon, check_host
from schedd.cli.installation import add_config_option
from schedd.cli.user.command_session import show_json
from schedd.cli.user.formatting import localise_times

_CODES: Final = {"good": 0, "warn": 1, "bad": 2}


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd doctor",
        description="Check a site, from its settings to the server, and name what to do.",
        epilog="It checks the settings, rights, the port, the database, its files of acknowledged events and "
        "its disk, the compiled kernels, the adapter's settings, and what the daemon says: versions, clocks, "
        "the adapter's age, whether jobs are started, the server's attributes that matter, names of nodes in "
        "the policy, open alerts. Nothing is changed. The exit status is made for monitoring: 0 all is good, "
        "1 something should be looked at, 2 something does not work.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add_config_option(parser)
    add(
        "--adapter",
        type=Path,
        default=ADAPTER_SETTINGS,
        help=f"the adapter's settings file, if it runs on this host (default: {ADAPTER_SETTINGS})",
    )
    add("--url", default="", help="address of the daemon (default: from the client's settings)")
    add("--cluster", default="", help="check only this cluster")
    add("--quiet", "-q", action="store_true", help="show only problems")
    add("--json", action="store_true", help="the findings as one JSON list")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the findings; 0 if all is good, 1 for warnings, 2 for faults."""
    args = make_parser().parse_args(argv)
    found = [
        *check_host(args.config),
        *check_adapter_files(args.adapter),
        *check_daemon(args.url, args.cluster),
    ]
    shown = [one for one in found if one.state != "good"] if args.quiet else found
    if args.json:
        show_json([asdict(one) for one in shown])
    else:
        for one in shown:
            print(_format_result(one))
        counts = ", ".join(f"{sum(one.state == state for one in found)} {state}" for state in _CODES)
        print(counts)
    return max((_CODES[one.state] for one in found), default=0)


def _format_result(one: CheckResult) -> str:
    text = f"{one.state:4}  {one.part:18}  {one.message}"
    text = localise_times(text)
    return f"{text}\n{'':26}-> {one.remedy}" if one.remedy else text
