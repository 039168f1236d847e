"""Migrations create the declared tables and can be reverted, from a checkout and from a wheel."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from schedd.store import connections, schema_version, tables_version
from schedd.store.database import Database
from schedd.store.errors import SchemaNewer, SchemaOlder
from schedd.store.tables import metadata
from schedd.store.tables_version import NEEDED_VERSION
from tests.conftest import ROOT
from tests.store.next_version import FIRST, NEXT, add_next_version


def test_migrations_create_the_declared_tables(url: str) -> None:
    engine = connections.create_writer(connections.parse_database_url(url))
    with engine.begin() as connection:
        schema_version.upgrade(connection)
        assert (
            compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)
            == []
        )
        schema_version.check(connection)
    engine.dispose()


def test_every_migration_can_be_reverted_and_repeated(url: str) -> None:
    engine = connections.create_writer(connections.parse_database_url(url))
    with engine.begin() as connection:
        schema_version.upgrade(connection)
    with engine.begin() as connection:
        schema_version.downgrade(connection, "base")
        assert inspect(connection).get_table_names() == ["alembic_version"]
        assert tables_version.revision(connection) is None
    with engine.begin() as connection:
        schema_version.upgrade(connection)
        assert tables_version.revision(connection) == schema_version.head() == NEEDED_VERSION
    engine.dispose()


def test_failed_migration_leaves_no_changes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = connections.create_writer(connections.parse_database_url(url))

    def fail() -> None:
        with engine.begin() as connection:
            schema_version.upgrade(connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with engine.begin() as connection:
        assert inspect(connection).get_table_names() == []
    engine.dispose()


def test_other_schema_versions_are_refused_with_a_remedy(url: str) -> None:
    engine = connections.create_writer(connections.parse_database_url(url))
    with engine.begin() as connection:
        with pytest.raises(SchemaOlder, match=r"no tables yet.*schedd migrate"):
            schema_version.check(connection)
        schema_version.upgrade(connection)
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        with pytest.raises(SchemaNewer, match=r"9999.*newer schedd"):
            schema_version.check(connection)
    engine.dispose()


@pytest.mark.parametrize("version", ["0016", "0001"])
def test_tables_from_before_the_first_release_are_refused_with_a_remedy(url: str, version: str) -> None:
    engine = connections.create_writer(connections.parse_database_url(url))
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num TEXT NOT NULL)"))
        connection.execute(text(f"INSERT INTO alembic_version VALUES ('{version}')"))
        connection.execute(text("CREATE TABLE told (cluster INTEGER)"))
    engine.dispose()
    with pytest.raises(
        SchemaOlder, match=f"{version} from before the first release.*empty database"
    ) as error:
        Database.open(url)
    assert "downgrade" not in str(error.value)


def test_a_checkout_has_its_migrations_in_sql() -> None:
    assert schema_version.scripts() == ROOT / "sql"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The files of a wheel, with one more migration."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    add_next_version(folder / "installed" / "schedd" / "store" / "migrations")
    return folder / "installed"


MIGRATE_REPEATEDLY = """
import sys
from schedd.cli.main import main
from schedd.store import schema_version

url, first = sys.argv[1:]
print(schema_version.scripts())
for words in ([], ["downgrade", "--to", first], []):
    assert main(["migrate", *words, "--database", url]) == 0
"""


def test_a_wheel_brings_its_migrations_and_goes_up_and_down_with_them(
    url: str, installed: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MIGRATE_REPEATEDLY, url, FIRST],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        check=True,
        capture_output=True,
        text=True,
    )
    where, *changes = done.stdout.splitlines()
    assert where == str(installed / "schedd" / "store" / "migrations")
    assert [line.partition(": ")[2] for line in changes] == [
        f"from version none to {NEXT}",
        f"from version {NEXT} to {FIRST}",
        f"from version {FIRST} to {NEXT}",
    ]
