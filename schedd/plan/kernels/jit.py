"""The one place that names numba: a typed decorator for kernels, and where their machine code is kept.

Kernels are compiled on first use, kept on disk, and run without the GIL, so that reads go on while the
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
    """Where compiled kernels of exactly this source are kept.

    Below ``SCHEDD_KERNEL_CACHE``, else systemd's ``CACHE_DIRECTORY``, else the user's cache directory. numba
    itself looks only at the file of a kernel, not at those of the kernels that it calls; so the directory's
    name is a digest of all of them.
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
    """Compile ``function`` to machine code on its first call; its types stay those it was written with."""
    return _compiled(function, counting=True, inner=False)


def lean(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A kernel that makes no arrays, and so need not count who refers to those that it is given.

    With some fifteen arrays handed from call to call, counting took half of the time of a repair.
    """
    return _compiled(function, counting=False, inner=False)


def inner(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A lean kernel that other kernels alone call; from Python it cannot be called.

    What takes the arguments of a call from Python is longer than most kernels, and costs as much to compile.
    """
    return _compiled(function, counting=False, inner=True)


def maker(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A kernel that makes arrays, and that other kernels alone call."""
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
    """A kernel that becomes part of its callers: passing all the tables costs more than a short search."""
    return _compiled(function, counting=False, inner=True, into_callers=True)
