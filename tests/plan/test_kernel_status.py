"""Counting compiled kernels while other threads import modules."""

import gc
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from schedd.plan.kernel_status import count_compiled


@pytest.fixture
def imports_at_each_collection() -> Iterator[None]:
    """A module is imported whenever garbage is collected, which is after each allocation."""
    before = gc.get_threshold()
    names: list[str] = []

    def add_module(phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            names.append(f"imported_meanwhile_{len(names)}")
            sys.modules[names[-1]] = ModuleType(names[-1])

    gc.callbacks.append(add_module)
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(add_module)
    for name in names:
        del sys.modules[name]


@pytest.mark.usefixtures("imports_at_each_collection")
def test_kernels_are_counted_while_modules_are_imported() -> None:
    count_compiled()
