"""How many examples a property test tries."""

import os
from collections.abc import Sequence
from typing import Final, TypeVar

__all__ = ["examples", "some"]

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
