"""``schedd audit``: the audit entries."""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.installation import add_config_option, database_url, exit_on_error, open_store
from schedd.cli.user.audit_table import add_audit_options, format_audit

_OTHERWISE = "the page Admin of the dashboard has the same entries"


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd audit",
        description="Show what operators, admins and users did, and refused attempts with the reason, "
        "newest first.",
        allow_abbrev=False,
    )
    add_audit_options(parser)
    add_config_option(parser)
    parser.add_argument("--json", action="store_true", help="as JSON; times are seconds since the epoch")
    return parser


def run(argv: Sequence[str]) -> int:
    """Print the entries; 0, 2 for invalid settings, 1 if the database cannot be used."""
    args = make_parser().parse_args(argv)
    with exit_on_error("audit"), open_store(database_url(args.config), otherwise=_OTHERWISE) as store:
        entries = store.audit_entries(int(time.time() - args.days * 86_400), args.most)
    if args.json:
        print(json.dumps([asdict(entry) for entry in entries], indent=2))
        return 0
    if entries:
        print(format_audit(entries))
    return 0
