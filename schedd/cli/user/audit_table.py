"""The audit as a table: time, name, action, cluster and reason; with refused actions."""

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from schedd.cli.arguments import add_days_option, parse_within
from schedd.cli.user.formatting import strip_controls

if TYPE_CHECKING:
    from schedd.client.answers import AuditRecord


def add_audit_options(parser: argparse.ArgumentParser) -> None:
    """``--days`` and ``--most``."""
    add_days_option(parser, 30, "show")
    parser.add_argument(
        "--most",
        type=parse_within(int, 1, 100_000),
        default=1000,
        metavar="N",
        help="maximum number of entries (default: 1000)",
    )


def format_audit(entries: "Sequence[AuditRecord]") -> str:
    """Return one line per entry: time, name, action, cluster, object and reason."""
    lines = [(_format_date(one.time), one.who, one.act, one.cluster or "", one.detail) for one in entries]
    widths = [max(map(len, column)) for column in zip(("",) * 5, *lines, strict=True)]
    rows = ("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True) if w) for line in lines)
    return "\n".join(strip_controls(row).rstrip() for row in rows)


def _format_date(moment: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
