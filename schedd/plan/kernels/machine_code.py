"""Machine code of the kernels that was compiled when a package was built.

A package brings one library per group of kernels and level of processors, in ``built`` next to this module;
``release/kernels.py`` writes them. A library's file name holds the digest of the kernels' source and the
release of Python; it is used if both are the running ones and this processor has its level. Without one,
numba compiles the kernels, if it is installed. ``SCHEDD_KERNELS`` names another folder of libraries, or is
``compile``.
"""

import hashlib
import os
import platform
from collections.abc import Callable, Mapping
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

_CHOICE: Final = os.environ.get("SCHEDD_KERNELS", "")
BUILT: Final = Path(_CHOICE) if "/" in _CHOICE else Path(__file__).parent / "built"
"""The folder of the libraries; it is not in the repository."""
GROUPS: Final = ("schedd.plan.kernels", "schedd.predict.kernels")
"""Packages and modules with kernels; each has one library."""
_ROOT: Final = Path(__file__).parents[3]
_LEVEL_FLAGS: Final = {
    "x86-64-v3": "avx avx2 bmi1 bmi2 f16c fma movbe abm xsave",
    "x86-64-v2": "cx16 popcnt ssse3 sse4_1 sse4_2",
}
"""Processor flags in /proc/cpuinfo that a level needs beyond the next one (x86-64 psABI, micro-architecture
levels), highest level first.
"""


@cache
def source_digest() -> str:
    """Return the digest of the source of all kernels and of the compiler's settings."""
    digest = hashlib.sha256()
    files = [*Path(__file__).parent.glob("*.py"), _ROOT / "schedd/predict/kernels.py"]
    for path in sorted(files):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def processor_levels() -> tuple[str, ...]:
    """Return the levels for which this processor can run code, best first."""
    machine = platform.machine()
    if machine != "x86_64":
        return (machine,)
    try:
        lines = Path("/proc/cpuinfo").read_text("ascii", "replace").splitlines()
    except OSError:
        return ()
    flags = next((set(line.partition(":")[2].split()) for line in lines if line.startswith("flags")), set())
    levels: list[str] = []
    for level, needed in reversed(_LEVEL_FLAGS.items()):
        if not flags.issuperset(needed.split()):
            break
        levels.insert(0, level)
    return tuple(levels)


def library_path(group: str, level: str) -> Path:
    """Return the place of the library of ``group`` for ``level``, this source, and this release of Python."""
    return BUILT / level / f"{group.replace('.', '_')}-{source_digest()}{EXTENSION_SUFFIXES[0]}"


@cache
def _library(group: str) -> Mapping[str, Callable[..., Any]]:
    """Return the kernels of the library of ``group`` that fits; empty if there is none."""
    if _compiled_instead():
        return {}
    for level in processor_levels():
        path = library_path(group, level)
        if not path.is_file():
            continue
        name = group.replace(".", "_")
        spec = spec_from_file_location(name, path, loader=ExtensionFileLoader(name, str(path)))
        assert spec is not None
        assert spec.loader is not None
        try:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
        except ImportError:  # made for another C library, or damaged
            continue
        _loaded[group] = path
        kernels: Mapping[str, Callable[..., Any]] = module.kernels
        return kernels
    return {}


def _compiled_instead() -> bool:
    """Return whether the environment asks numba for other code: with checked indices, or for a comparison."""
    asked = (os.environ.get(name, "0") for name in ("NUMBA_BOUNDSCHECK", "NUMBA_DISABLE_JIT"))
    return _CHOICE == "compile" or any(value not in {"", "0"} for value in asked)


_loaded: Final[dict[str, Path]] = {}


def loaded_libraries() -> Mapping[str, Path]:
    """Return the libraries in use, by group."""
    return dict(_loaded)


def has_library(module: str) -> bool:
    """Return whether the kernels of ``module`` come from a library."""
    group = _group(module)
    return group is not None and bool(_library(group))


def _group(module: str) -> str | None:
    return next((one for one in GROUPS if module == one or module.startswith(f"{one}.")), None)


def built_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the machine code of a kernel that Python calls. Raises KeyError if no library has it."""
    group = _group(function.__module__)
    return _library(group or "")[f"{function.__module__}.{function.__qualname__}"]
