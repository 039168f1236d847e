"""The file of acknowledged deliveries: durable records, whatever write was the last."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.store import Store, delivery_file
from schedd.store.delivery_file import DeliveryFile
from schedd.store.errors import DatabaseUnavailable, DiskFull
from tests.property_examples import examples


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "db.deliveries"


@pytest.fixture(autouse=True)
def small_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_file, "_REGION", 8 * 512)


def read(path: Path, owner: str = "c 1") -> list[tuple[int, bytes]]:
    """The deliveries as the next process finds them."""
    file = DeliveryFile(path, owner)
    try:
        return list(file.deliveries())
    finally:
        file.close()


def test_deliveries_are_kept_until_they_are_logged(path: Path) -> None:
    file = DeliveryFile(path, "c 1", above=6)
    assert file.deliveries() == ()
    assert file.replace((), [5]) == ()
    assert not path.exists()
    assert list(file.replace([b"a", b""], ())) == [7, 8]
    assert path.stat().st_mode & 0o777 == 0o600
    assert read(path) == [(7, b"a"), (8, b"")]
    assert list(file.replace([b"c" * 600], [7])) == [9]
    assert read(path) == [(8, b""), (9, b"c" * 600)]
    file.replace((), [8, 9])
    assert read(path) == []
    assert list(file.replace([b"d"], ())) == [10], "numbers are not used again"
    file.close()
    again = DeliveryFile(path, "c 1")
    assert list(again.replace([b"e"], ())) == [11]
    assert read(path) == [(10, b"d"), (11, b"e")]
    again.close()


def test_deliveries_of_another_database_are_not_read(path: Path) -> None:
    file = DeliveryFile(path, "c 1")
    file.replace([b"a", b"b"], ())
    file.close()
    assert read(path, "c 2") == []
    file = DeliveryFile(path, "c 2")
    file.replace([b"of 2"], ())
    file.close()
    assert read(path, "c 2") == [(1, b"of 2")]


@pytest.mark.parametrize("kept", [0, 1, 5, 27, 28, 29, 600])
def test_a_torn_record_ends_the_records(path: Path, kept: int) -> None:
    file = DeliveryFile(path, "c 1")
    file.replace([b"first"], ())
    file.replace([b"x" * 700], ())
    file.close()
    data = path.read_bytes()
    at = 4096 + 512
    path.write_bytes(data[: at + kept] + bytes(1024 - kept) + data[at + 1024 :])
    assert read(path) == [(1, b"first")]


def test_a_full_file_takes_no_more_until_a_region_is_free(path: Path) -> None:
    file = DeliveryFile(path, "c 1")
    numbers = [number for _ in range(16) for number in file.replace([b"x"], ())]
    with pytest.raises(DiskFull, match="no room until earlier deliveries are handled"):
        file.replace([b"y"], ())
    assert [number for number, _ in read(path)] == numbers
    with pytest.raises(DiskFull):
        file.replace([b"y"], numbers[1:8])  # the first of the region is still there
    assert list(file.replace([b"y"], numbers[:1])) == [17]
    assert [number for number, _ in read(path)] == [*numbers[8:], 17]
    file.replace((), numbers)
    with pytest.raises(DiskFull):
        file.replace([b"z" * 9 * 512], ())
    file.close()


def test_a_failed_write_stores_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = DeliveryFile(path, "c 1")
    file.replace([b"a"], ())

    def fail(*_: Any) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fail)
        with pytest.raises(DatabaseUnavailable, match=r"db\.deliveries: Input/output error"):
            file.replace([b"b"], ())
        patch.setattr(os, "pwritev", lambda *_: 3)
        with pytest.raises(DatabaseUnavailable, match="cut short"):
            file.replace([b"b"], ())
    file.replace([b"c"], ())
    assert read(path) == [(1, b"a"), (2, b"c")]
    file.close()


_STEPS = st.lists(
    st.tuples(
        st.lists(st.binary(max_size=1_500), max_size=4),
        st.sets(st.integers(0, 12), max_size=6),
        st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=examples(100), deadline=None)
@given(steps=_STEPS)
def test_any_calls_leave_the_deliveries_that_are_not_logged(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[list[bytes], set[int], bool]]
) -> None:
    path = tmp_path_factory.mktemp("deliveries") / "f"
    file = DeliveryFile(path, "c 1")
    there: dict[int, bytes] = {}
    for new, logged, reopened in steps:
        gone = [number for i, number in enumerate(list(there)) if i in logged]
        try:
            numbers = file.replace(new, gone)
        except DiskFull:
            numbers = ()
        for number in gone:
            del there[number]
        assert not set(numbers) & set(there)
        there.update(zip(numbers, new, strict=bool(numbers)))
        if reopened:
            file.close()
            file = DeliveryFile(path, "c 1")
        assert list(file.deliveries()) == sorted(there.items())
    file.close()


def test_deliveries_left_at_the_end_are_moved_into_the_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/one.sqlite"
    store = Store.open(url)
    cluster = store.register_cluster("c", 1000)
    assert list(store.replace_deliveries(cluster, [b"a", b"b"])) == [1, 2]
    store.replace_deliveries(cluster, (), [1])
    store.move_deliveries(cluster)
    store.close()
    (tmp_path / "one.sqlite.c.deliveries").unlink()
    store = Store.open(url)
    assert store.deliveries(cluster) == [(2, b"b")]
    assert list(store.replace_deliveries(cluster, [b"c"])) == [3]
    assert store.deliveries(cluster) == [(2, b"b"), (3, b"c")]
    store.replace_deliveries(cluster, (), [2, 3])
    assert store.deliveries(cluster) == []
    store.close()
