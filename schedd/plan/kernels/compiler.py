"""Keeps numba from doing twice what it does for kernels that call each other.

By itself numba makes machine code of every kernel, and then once more in each kernel that calls it; and it
compiles a kernel anew for each constant that it is called with. Here a kernel that other kernels alone call
is left unfinished: it becomes part of its callers, and is optimised there.

This rests on parts of numba that are its own affair. Where a release of it has other ones, kernels are
compiled as numba does by itself: they are the same, only later; ``tests/plan/test_compiler.py`` fails then.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from numba.core import codegen, registry, targetconfig, types

__all__ = ["KNOWN", "dispatcher"]

_NEEDED: Final = (
    (codegen.CPUCodeLibrary, ("finalize", "_raise_if_finalized", "_linking_libraries", "_final_module")),
    (codegen.JITCPUCodegen, ("set_env",)),
    (registry.CPUDispatcher, ("compile", "get_call_template")),
    (targetconfig.TargetConfig, ("_values", "values")),
)
"""What is used of numba; fields of objects are looked for in the code of their class."""


def _known() -> bool:
    words = {
        name
        for kind in codegen.CPUCodeLibrary.__mro__[:-1]
        for function in vars(kind).values()
        if (code := getattr(function, "__code__", None)) is not None
        for name in code.co_names
    }
    return all(hasattr(kind, name) or name in words for kind, names in _NEEDED for name in names)


KNOWN: Final = _known()
"""Whether this release of numba is as expected."""

_mode = threading.local()


@contextlib.contextmanager
def _unfinished(value: bool) -> Iterator[None]:
    """What this thread compiles meanwhile is left unfinished, or is not."""
    before = getattr(_mode, "unfinished", False)
    _mode.unfinished = value
    try:
        yield
    finally:
        _mode.unfinished = before


class _Kernel(registry.CPUDispatcher):  # type: ignore[misc]
    """A kernel that Python calls."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """For a call from another kernel: constants are as good as any value."""
        plain = tuple(types.unliteral(one) for one in args)
        return super().get_call_template(plain, {name: types.unliteral(one) for name, one in kws.items()})

    def compile(self, sig: Any) -> Any:
        """Compile it to its end, with all that it calls."""
        with _unfinished(False):
            entry = super().compile(sig)
        for found in self.overloads.values():
            for env in found._find_referenced_environments():
                found.library.codegen.set_env(env.env_name, env)
        return entry


class _Inner(_Kernel):
    """A kernel that other kernels alone call."""

    def compile(self, sig: Any) -> Any:
        """As far as its callers need it."""
        with _unfinished(True):
            return registry.CPUDispatcher.compile(self, sig)


def dispatcher(function: Callable[..., Any], options: dict[str, Any], inner: bool) -> Any:
    """The compiled form of ``function``, as ``numba.njit`` makes one."""
    made = (_Inner if inner else _Kernel)(py_func=function, targetoptions={"nopython": True, **options})
    if not inner:
        made.enable_caching()
    return made


def _finalize(self: Any) -> None:
    if not getattr(_mode, "unfinished", False):
        _numbas_finalize(self)
        return
    self._raise_if_finalized()
    seen = set()
    for library in self._linking_libraries:
        if library not in seen:
            self._reload_init.update(library._reload_init)
            seen.add(library)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
    self._finalized = True


def _set_env(self: Any, env_name: str, env: Any) -> None:
    if self._engine.is_symbol_defined(env_name) or not getattr(_mode, "unfinished", False):
        _numbas_set_env(self, env_name, env)


def _same_flags(self: Any, other: object) -> bool:
    """As numba compares flags, without making a dictionary of all of them twice; it does so at every call."""
    if not isinstance(other, targetconfig.TargetConfig):
        return NotImplemented
    if self._values.keys() == other._values.keys():
        return bool(self._values == other._values)
    return bool(self.values() == other.values())


if KNOWN:
    _numbas_finalize = codegen.CPUCodeLibrary.finalize
    _numbas_set_env = codegen.JITCPUCodegen.set_env
    codegen.CPUCodeLibrary.finalize = _finalize
    codegen.JITCPUCodegen.set_env = _set_env
    targetconfig.TargetConfig.__eq__ = _same_flags
