"""The only module that imports numba: a typed decorator for kernels, and the location of their machine code.

Kernels are compiled on first use, cached on disk, and run without the GIL, so that reads continue while the
planner works.
"""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba

from schedd.plan.kernels import compiler

__all__ = ["cache_dir", "inlined", "inner", "kernel", "lean", "maker"]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def cache_dir() -> Path:
    """Return the cache directory of the kernels compiled from exactly this source.

    It is below ``SCHEDD_KERNEL_CACHE``, else systemd's ``CACHE_DIRECTORY``, else the user's cache directory.
    numba checks only the file of a kernel, not the files of kernels that it calls; so the directory's name is
    a digest of all of them.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(source.read_bytes())
    base = os.environ.get("SCHEDD_KERNEL_CACHE") or os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        base = str(Path(home) / "schedd")
    return Path(base) / "kernels" / digest.hexdigest()[:16]


numba.config.CACHE_DIR = str(cache_dir())  # type: ignore[attr-defined]


def kernel(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile ``function`` to machine code on its first call; its type annotations stay valid."""
    return _compiled(function, counting=True, inner=False)


def lean(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a kernel that creates no arrays, so that reference counting can be omitted.

    With about fifteen arrays passed from call to call, counting took half of the time of a repair.
    """
    return _compiled(function, counting=False, inner=False)


def inner(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a lean kernel that only other kernels call; it cannot be called from Python.

    Unpacking arguments of a Python call is longer than most kernels, and takes as long to compile.
    """
    return _compiled(function, counting=False, inner=True)


def maker(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a kernel that creates arrays, and that only other kernels call."""
    return _compiled(function, counting=True, inner=True)


def _compiled(
    function: Callable[_P, _R], *, counting: bool, inner: bool, into_callers: bool = False
) -> Callable[_P, _R]:
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    # numba's stubs leave out the options that its own library uses for this.
    options: dict[str, Any] = {"nogil": True, "_nrt": counting}
    options |= {"no_cpython_wrapper": inner, "no_cfunc_wrapper": True, "forceinline": into_callers}
    if compiler.KNOWN:
        return cast("Callable[_P, _R]", compiler.dispatcher(function, options, inner, cache_dir))
    return cast("Callable[_P, _R]", numba.njit(cache=True, **options)(function))


def inlined(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Compile a kernel that is inlined into its callers: passing all tables costs more than a short
    search.
    """
    return _compiled(function, counting=False, inner=True, into_callers=True)
