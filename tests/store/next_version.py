"""A second version of the tables, added by tests: one more table and column, new types of records."""

import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from schedd.engine.checkpoint import FORMAT
from schedd.store import database, downgrade_checks, schema_version

FIRST: Final = "0001"
NEXT: Final = "0002"
_MIGRATION: Final = """
import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade():
    op.create_table("example", sa.Column("id", sa.Integer(), primary_key=True))
    op.add_column("clusters", sa.Column("example", sa.Integer()))


def downgrade():
    op.drop_column("clusters", "example")
    op.drop_table("example")
"""


def add_next_version(migrations: Path) -> None:
    """Add the second version to a folder of migrations."""
    (migrations / "versions" / "0002_example.py").write_text(_MIGRATION)


def use_next_version(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *,
    new_records: Iterable[str] = (),
    new_format: bool = False,
) -> None:
    """Make the program need version ``NEXT``, which introduced ``new_records``, and the state format."""
    copy = _copied_migrations(folder)
    new = frozenset(new_records)
    known = frozenset().union(*downgrade_checks.RECORDS.values())
    assert new <= known
    monkeypatch.setattr(schema_version, "scripts", lambda: copy)
    monkeypatch.setattr(database, "NEEDED_VERSION", NEXT)
    monkeypatch.setattr(downgrade_checks, "RECORDS", {FIRST: known - new, NEXT: new})
    formats = {FIRST: FORMAT - 1, NEXT: FORMAT} if new_format else {FIRST: FORMAT}
    monkeypatch.setattr(downgrade_checks, "STATE_FORMATS", formats)


@contextmanager
def next_version_in_this_process() -> Iterator[None]:
    """Make this process, and its forks, need version ``NEXT``."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        use_next_version(monkeypatch, Path(folder))
        yield


def _copied_migrations(folder: Path) -> Path:
    copy = folder / "migrations"
    shutil.copytree(schema_version.scripts(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    add_next_version(copy)
    return copy


if __name__ == "__main__":  # the command `schedd` of that version
    from schedd.cli.main import main

    with next_version_in_this_process():
        sys.exit(main())
