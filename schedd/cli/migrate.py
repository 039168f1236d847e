"""``schedd migrate``: bring the database's tables to this program's version, or back to an older one."""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from schedd.cli.arguments import OneLineErrorParser
from schedd.cli.installation import (
    add_config_option,
    add_database_option,
    database_url,
    exit_on_error,
    invoking_user,
    preserving_owner,
)
from schedd.store import AuditRecord, Leadership, Store, StoreError
from schedd.store.database import Database


def make_parser() -> argparse.ArgumentParser:
    """Its options."""
    parser = OneLineErrorParser(
        prog="schedd migrate",
        description="Upgrade the database's tables to this program's version, or downgrade them.",
        epilog="Stop the daemon first, and keep a copy of the database. A downgrade is refused if the older "
        "version could not continue from the present data. Acknowledged events that a killed daemon left in "
        "the file CLUSTER.deliveries next to an SQLite database are moved to the database first.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "action",
        metavar="ACTION",
        nargs="?",
        choices=("upgrade", "downgrade", "current"),
        default="upgrade",
        help="what to do with the tables: upgrade, downgrade, or current to show their version "
        "(default: upgrade)",
    )
    add_database_option(parser)
    add_config_option(parser)
    about = "version to go to: the newest when upgrading; `base` removes all tables"
    parser.add_argument("--to", default="", help=about)
    return parser


def run(argv: Sequence[str]) -> int:
    """Migrate; 0, 2 for invalid arguments or settings, 1 if the database cannot be migrated."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.action == "downgrade" and not args.to:
        parser.error("argument --to: give the version, or `base` for an empty database")
    with exit_on_error("migrate"):
        url = database_url(args.config, args.database)
        with preserving_owner(url):
            opened = Database(url)
            try:
                _migrate(opened, args.action, args.to)
            finally:
                opened.close()
    return 0


def _migrate(database: Database, action: str, to: str) -> None:
    present, needed = database.versions()
    if action == "current":
        print(f"{database.name}: version {present or 'none'}; this program needs {needed}")
        return
    with _exclusive_lease(database, present):
        if present is not None:
            _move_deliveries(database)
        before, after = database.migrate(to or "head", back=action == "downgrade")
    if before == after:
        print(f"{database.name}: version {after or 'none'} as before")
    else:
        change = f"from version {before or 'none'} to {after or 'none'}"
        print(f"{database.name}: {change}")
        if after == needed:
            Store(database).audit(AuditRecord(int(time.time()), invoking_user(), "migrate", change))


def _move_deliveries(database: Database) -> None:
    """Move the acknowledged events that a killed daemon left in files into the database, which has a table
    for them in each version.
    """
    store = Store(database)
    for file in store.delivery_files():
        if file.cluster is not None and file.waiting:
            store.move_deliveries(file.cluster)
            print(f"{file.path}: acknowledged deliveries moved to the database: {file.waiting}")


@contextmanager
def _exclusive_lease(database: Database, present: str | None) -> Iterator[None]:
    """While no daemon leads, nor begins to. Raises StoreError when one does."""
    lead = Leadership(database, "schedd migrate")
    if present is not None and not lead.try_acquire():
        raise StoreError(f"{database.name}: a daemon uses it; stop that (its lease may last for seconds)")
    try:
        yield
    finally:
        lead.release()
