"""How many examples a property test tries, and how many combinations of parameters a run has."""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

import pytest

__all__ = ["alternate", "examples", "find_covered_tests", "some"]

_T = TypeVar("_T")

_SHARE_OF_SHORT_RUN: Final = 0.2


def examples(full: int) -> int:
    """Return ``full``, or a fifth of it in the short run, which has no HYPOTHESIS_PROFILE."""
    if os.environ.get("HYPOTHESIS_PROFILE", "schedd") != "schedd":
        return full
    return max(1, round(_SHARE_OF_SHORT_RUN * full))


def some(cases: Sequence[_T], first: int = 0) -> Sequence[_T]:
    """Return ``cases``, or in the short run every third of them, from ``first`` modulo 3 on."""
    return cases if examples(3) == 3 else cases[first % 3 :: 3]


def alternate(cases: Sequence[_T], *, odd: bool) -> Sequence[_T]:
    """Return ``cases``, or in the short run every second of them; both values of ``odd`` give all."""
    return cases if examples(2) == 2 else cases[odd::2]


def find_covered_tests(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return the tests that the short run leaves out. They are marked ``covering``, and other tests of the
    same function have each value of their parameters.

    The test with the most values that no kept test has is kept next.
    """
    if examples(3) == 3:
        return []
    by_function: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("covering") and hasattr(item, "callspec"):
            by_function.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [item for left in by_function.values() for item in _find_covered(left)]


def _find_covered(left: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of one function with values of parameters that the others have."""
    values = {item: set(enumerate(item.callspec._idlist)) for item in left}  # type: ignore[attr-defined]
    covered: set[tuple[int, str]] = set()
    while left and values[best := max(left, key=lambda item: len(values[item] - covered))] - covered:
        covered |= values[best]
        left = [item for item in left if item is not best]
    return left
