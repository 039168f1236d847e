"""``schedd audit``: the audit entries."""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from schedd.cli.arguments import OneLineErrorParser, parse_within
from schedd.cli.installation import add_config_option, database_url, exit_on_error, open_store
from schedd.cli.user.formatting import one_line


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd audit",
        description="Show who paused, resumed, created or revoked tokens, or changed settings, newest first.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--days", type=parse_within(float, 0, 36_600), default=30, help="show the last N days (default: 30)")
    add(
        "--most",
        type=parse_within(int, 1, 100_000),
        default=1000,
        help="maximum number of entries (default: 1000)",
    )
    add_config_option(parser)
    add("--json", action="store_true", help="as JSON; times are seconds since the epoch")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the entries; 0, 2 for invalid settings, 1 if the database cannot be used."""
    args = make_parser().parse_args(argv)
    with exit_on_error("audit"), open_store(database_url(args.config)) as store:
        entries = store.audit_entries(int(time.time() - args.days * 86_400), args.most)
    if args.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=2))
        return 0
    lines = [(_format_date(one.time), one.who, one.act, one.cluster or "", one.detail) for one in entries]
    widths = [max(map(len, column)) for column in zip(("",) * 5, *lines, strict=True)]
    for line in lines:
        row = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        print(one_line(row).rstrip())
    return 0


def _format_date(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M:%S}"
