"""The short run has each value of each parameter of a marked test, the long run all combinations."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tests import property_examples
from tests.property_examples import alternate, find_covered_tests


class _Item(SimpleNamespace):
    """A test as pytest collects it."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def get_closest_marker(self, name: str) -> object:
        return self.marked and name == "covering"


def _items(*values: tuple[str, ...], marked: bool = True) -> list[Any]:
    return [
        _Item(nodeid=f"test_it[{'-'.join(ids)}]", callspec=SimpleNamespace(_idlist=ids), marked=marked)
        for ids in product(*values)
    ]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYPOTHESIS_PROFILE", raising=False)


@pytest.mark.parametrize("values", [(("a", "b"), ("1", "2", "3")), (("a",), ("1", "2")), (("a", "b"),) * 4])
@pytest.mark.usefixtures("short")
def test_short_run_has_each_value_of_each_parameter(values: tuple[tuple[str, ...], ...]) -> None:
    items = _items(*values)
    covered = find_covered_tests(items)
    kept = [item.callspec._idlist for item in items if item not in covered]
    assert len(kept) == max(map(len, values))
    assert [{ids[i] for ids in kept} for i in range(len(values))] == [set(one) for one in values]


@pytest.mark.usefixtures("short")
def test_short_run_leaves_out_only_marked_tests() -> None:
    assert find_covered_tests(_items(("a", "b"), ("1", "2"), marked=False)) == []


def test_long_run_has_all_tests_and_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYPOTHESIS_PROFILE", "explore")
    assert find_covered_tests(_items(("a", "b"), ("1", "2"))) == []
    assert alternate("abc", odd=True) == "abc"


@pytest.mark.usefixtures("short")
def test_short_runs_alternate_between_two_halves() -> None:
    assert (alternate("abc", odd=False), alternate("abc", odd=True)) == ("ac", "b")
    assert property_examples.some("abcdef", 1) == "be"
