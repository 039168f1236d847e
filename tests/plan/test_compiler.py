"""Kernels that other kernels alone call are compiled once, and become part of their callers."""

from typing import Any

import numpy as np
import pytest

from schedd.plan.kernels import compiler
from schedd.plan.kernels.jit import inlined, inner, kernel, maker


def test_this_numba_is_as_expected() -> None:
    assert compiler.KNOWN, "kernels are compiled as numba does by itself: see kernels/compiler.py"


@inlined
def _twice(a: int) -> int:
    return 2 * a


@inner
def _sum(a: int, b: int) -> int:
    if b < 0:
        raise ValueError("below zero")
    return _twice(a) + b


@maker
def _filled(n: int, value: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found = np.empty(n, np.int64)
    for i in range(n):
        found[i] = _sum(i, 1) + value  # with a constant
    return found


@kernel
def _called(n: int) -> int:
    return int(_filled(n, _sum(n, n)).sum())  # with a variable


def _plainly(n: int) -> int:
    return sum(2 * i + 1 + 3 * n for i in range(n))


def test_a_kernel_is_compiled_once_whatever_it_is_called_with() -> None:
    assert [_called(n) for n in (0, 1, 7)] == [_plainly(n) for n in (0, 1, 7)]
    called: Any = _called
    assert len(called.overloads) == 1
    kernels: list[Any] = [_twice, _sum, _filled]
    for one in kernels:
        assert len(one.overloads) <= 1  # none where the caller came from the disk
        for found in one.overloads.values():
            # There is no machine code of its own.
            assert found.library.get_pointer_to_function(found.fndesc.llvm_func_name) == 0


def test_an_error_within_reaches_the_caller() -> None:
    with pytest.raises(ValueError, match="below zero"):
        _called(-1)


def test_with_another_numba_kernels_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "KNOWN", False)
    known: Any = _twice
    twice = inner(known.py_func)

    def called(n: int) -> int:
        return int(twice(n) + 1)

    assert kernel(called)(4) == 9
