"""Typed decorators for kernels, and the location of their machine code.

Kernels come as machine code with a package (``machine_code``), or numba compiles them on first use and caches
them on disk. They run without the GIL, so that reads continue while the planner works.
"""

import os
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from schedd.plan.kernels.machine_code import built_kernel, has_library, source_digest

_NO_CODE = (
    "this installation has no machine code of the planner for this processor and release of Python, and no "
    "numba to compile it: install schedd[compile]"
)
_P = ParamSpec("_P")
_R = TypeVar("_R")


def cache_dir() -> Path:
    """Return the cache directory of the kernels compiled from exactly this source.

    It is below ``SCHEDD_KERNEL_CACHE``, else systemd's ``CACHE_DIRECTORY``, else the user's cache directory.
    numba checks only the file of a kernel, not the files of kernels that it calls; so the directory's name
    holds a digest of all of them, and numba's release.
    """
    base = os.environ.get("SCHEDD_KERNEL_CACHE") or os.environ.get("CACHE_DIRECTORY", "").split(":")[0]
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        base = str(Path(home) / "schedd")
    return Path(base) / "kernels" / f"{source_digest()}-{_numba_release()}"


@cache
def _numba_release() -> str:
    try:
        return version("numba")
    except PackageNotFoundError:
        return "none"


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
    if has_library(function.__module__):
        # Kernels that only kernels call are part of the code of their callers.
        return function if inner else cast("Callable[_P, _R]", built_kernel(function))
    try:
        import numba  # noqa: PLC0415 (a package with machine code comes without it)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(_NO_CODE, name=error.name) from None
    from schedd.plan.kernels import compiler  # noqa: PLC0415 (imports numba)

    numba.config.CACHE_DIR = str(cache_dir())  # type: ignore[attr-defined]
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
