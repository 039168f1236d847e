"""Rows that are inserted in one statement are as if inserted one by one, on both databases."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, MetaData, Table, Text, select
from sqlalchemy.exc import IntegrityError

from schedd.store.bulk_rows import _KINDS, bulk_insert
from schedd.store.database import Database
from schedd.store.errors import StoreError
from schedd.store.tables import metadata
from tests.property_examples import examples
from tests.store.conftest import NewDatabase

_ROWS = Table(
    "bulk_rows",
    MetaData(),
    Column("cluster", Integer, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("start", BigInteger),
    Column("weak", Boolean),
    Column("body", LargeBinary),
    Column("why", Text),
)


@pytest.fixture
def database(new_database: NewDatabase) -> Iterator[Database]:
    found = Database(new_database())
    with found.write() as connection:
        _ROWS.create(connection)
    yield found
    found.close()


def row(name: str, start: int | None = 1, **more: Any) -> dict[str, Any]:
    return {"cluster": 1, "name": name, "start": start, "weak": None, "body": None, "why": None, **more}


def stored(database: Database) -> list[dict[str, Any]]:
    with database.read() as connection:
        found = connection.execute(select(_ROWS).order_by(_ROWS.c.start, _ROWS.c.name)).mappings()
        return [{str(key): value for key, value in one.items()} for one in found]


def test_existing_rows_are_errors_skipped_or_replaced(database: Database) -> None:
    with database.write() as connection:
        bulk_insert(connection, _ROWS, [])
        bulk_insert(connection, _ROWS, [row("a"), row("b", 2)])
    with pytest.raises(StoreError) as found, database.write() as connection:
        bulk_insert(connection, _ROWS, [row("c", 3), row("a", 4)])
    assert isinstance(found.value.__cause__, IntegrityError)
    assert stored(database) == [row("a"), row("b", 2)]
    with database.write() as connection:
        bulk_insert(connection, _ROWS, [row("c", 3), row("a", 4), row("c", 5)], "skip")
    assert stored(database) == [row("a"), row("b", 2), row("c", 3)]
    with database.write() as connection:
        bulk_insert(connection, _ROWS, [{"cluster": 1, "name": name, "start": 7} for name in "bd"], "replace")
    assert stored(database) == [row("a"), row("c", 3), row("b", 7), row("d", 7)]


_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
_STRANGE = st.sampled_from(["NULL", "null", "", '"', "{}", "\\", "a,b", "%s", "%b", ":a", "'"])
_VALUES = st.fixed_dictionaries(
    {
        "cluster": st.just(1),
        "name": _TEXTS | _STRANGE,
        "start": st.none() | st.integers(-(2**63), 2**63 - 1),
        "weak": st.none() | st.booleans(),
        "body": st.none() | st.binary(max_size=20),
        "why": st.none() | _TEXTS | _STRANGE,
    }
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(rows=st.lists(_VALUES, max_size=8, unique_by=lambda one: one["name"]))
def test_any_values_are_stored(database: Database, rows: list[dict[str, Any]]) -> None:
    with database.write() as connection:
        connection.execute(_ROWS.delete())
        bulk_insert(connection, _ROWS, rows)
    found = {one["name"]: one for one in stored(database)}
    assert found == {one["name"]: one for one in rows}


def test_every_type_of_column_is_known() -> None:
    columns = [column for table in metadata.tables.values() for column in table.columns]
    assert {type(column.type) for column in columns} <= set(_KINDS)
