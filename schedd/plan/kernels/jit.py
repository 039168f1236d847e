"""The one place that names numba: a typed decorator for kernels.

Kernels are compiled on first use, cached on disk (``NUMBA_CACHE_DIR`` or ``set_cache_dir``) and run without
the GIL, so that reads go on while the planner works.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import numba

__all__ = ["kernel", "set_cache_dir"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile ``function`` to machine code on its first call; its types stay those it was written with."""
    return cast("Callable[_P, _R]", numba.njit(cache=True, nogil=True)(function))


def set_cache_dir(path: Path) -> None:
    """Where compiled kernels are kept; must be called before the first kernel module is imported."""
    os.environ["NUMBA_CACHE_DIR"] = str(path)
    numba.config.CACHE_DIR = str(path)
