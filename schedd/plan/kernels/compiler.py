"""Compilation of all kernels of a package together, and the cache file of their machine code.

By default numba generates machine code of every kernel, and again in each kernel that calls it; it compiles a
kernel again for each constant argument, and keeps one file per kernel that Python calls. Here no kernel is
finished by itself. The first call of a kernel from Python compiles all kernels of its package for the types
of their annotations; their code is linked, optimised and finished once.

This depends on internals of numba. If a release differs, kernels are compiled by numba's default: with the
same result, only slower; ``tests/plan/test_compiler.py`` fails then.
"""

import contextlib
import functools
import gc
import hashlib
import importlib
import os
import pickle
import pkgutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Annotated, Any, Final, get_args, get_origin

import numba
import numpy as np
from numba.core import (
    codegen,
    compiler,
    compiler_lock,
    config,
    registry,
    serialize,
    targetconfig,
    types,
)
from numba.core.runtime import rtsys
from numba.np import arrayobj, numpy_support

_NEEDED: Final = (
    (
        codegen.CPUCodeLibrary,
        (
            "finalize",
            "_raise_if_finalized",
            "_linking_libraries",
            "_final_module",
            "_finalized",
            "_optimize_final_module",
            "_finalize_final_module",
            "_get_compiled_object",
            "_get_module_for_linking",
            "_reload_init",
            "_set_compiled_object",
            "_shared_module",
        ),
    ),
    (codegen.JITCPUCodegen, ("set_env", "magic_tuple", "_engine")),
    (codegen.JitEngine, ("is_symbol_defined", "_defined_symbols")),
    (registry.CPUDispatcher, ("compile", "get_call_template", "_compiler", "_insert", "overloads")),
    (targetconfig.TargetConfig, ("_values", "options", "__eq__", "__hash__")),
)
"""Internals of numba that are used here; fields of objects are looked up in the code of their class."""


def _known() -> bool:
    words = {
        name
        for kind, _ in _NEEDED
        for base in kind.__mro__[:-1]
        for function in vars(base).values()
        if (code := getattr(function, "__code__", None)) is not None
        for name in code.co_names
    }
    found = all(hasattr(kind, name) or name in words for kind, names in _NEEDED for name in names)
    return found and hasattr(arrayobj, "fix_integer_index")


KNOWN: Final = _known()  # whether this release of numba has the expected internals


def _machine() -> str:
    """Return the target of the machine code: processor, release of numba, and options that change the
    code.
    """
    target = registry.cpu_target.target_context.codegen().magic_tuple()
    wishes = (config.BOUNDSCHECK, config.OPT, config.LOOP_VECTORIZE, config.SLP_VECTORIZE)
    return repr((target, numba.__version__, sys.version, wishes, KNOWN))


# ---- what a kernel is compiled for ----------------------------------------------------------------


def _numba_type(hint: Any) -> Any:
    """Return numba's type of an annotation: a number, an array, or a named tuple of these."""
    if hint in (int, float, bool):
        return {int: types.int64, float: types.float64, bool: types.boolean}[hint]
    if hasattr(hint, "_fields"):
        return types.BaseTuple.from_types([_numba_type(hint.__annotations__[f]) for f in hint._fields], hint)
    dimensions = 1
    if get_origin(hint) is Annotated:
        hint, dimensions = get_args(hint)
    # Since NumPy 2.5, NDArray[dtype] is an alias with one argument, not ndarray[shape, numpy.dtype[dtype]].
    *shape, dtype = get_args(hint)
    if shape:
        (dtype,) = get_args(dtype)
    return types.Array(numpy_support.from_dtype(dtype), dimensions, "C")


@functools.cache
def declared_types(function: Callable[..., Any]) -> tuple[Any, ...]:
    """Return the types of a function's arguments from its annotations."""
    hints = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    return tuple(map(_numba_type, hints.values()))


# ---- kernels ---------------------------------------------------------------------------------------

_mode = threading.local()


@contextlib.contextmanager
def _unfinished(value: bool) -> Iterator[None]:
    """Within this context, leave kernels that this thread compiles unfinished, or not."""
    before = getattr(_mode, "unfinished", False)
    _mode.unfinished = value
    try:
        yield
    finally:
        _mode.unfinished = before


@contextlib.contextmanager
def _seldom_collected() -> Iterator[None]:
    """Reduce garbage collections, which take a seventh of the compiler's time: most of its objects live to
    the end.
    """
    before = gc.get_threshold()
    gc.set_threshold(200_000, 10, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def _without_wraparound() -> Iterator[None]:
    """Within this context, compile ``a[i]`` for ``i >= 0`` only.

    Python counts a negative index from the end, which takes a comparison and an addition for each access: a
    tenth to a quarter of a kernel's time. No kernel needs it. Where indices are checked, one is an error.
    """

    def to_machine_integer(context: Any, builder: Any, kind: Any, index: Any, _: Any) -> Any:
        return context.cast(builder, index, kind, types.intp if kind.signed else types.uintp)

    before = arrayobj.fix_integer_index
    arrayobj.fix_integer_index = to_machine_integer
    try:
        yield
    finally:
        arrayobj.fix_integer_index = before


class _Kernel(registry.CPUDispatcher):  # type: ignore[misc]
    """A kernel that other kernels call."""

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile for a call from another kernel, treating constants as any other value."""
        plain = tuple(types.unliteral(one) for one in args)
        named = {name: types.unliteral(one) for name, one in kws.items()}
        with _unfinished(True):
            return super().get_call_template(plain, named)

    def compile(self, sig: Any) -> Any:
        """Compile it as far as its callers need it."""
        args = tuple(getattr(sig, "args", sig))
        with compiler_lock.global_compiler_lock, _unfinished(True), self._compiling_counter:
            found: Any = self.overloads.get(args)
            if found is None or getattr(found.library, "of_disk", False):
                found = self.overloads[args] = self._compiler.compile(args, None)
        return found.entry_point


class _Entry(_Kernel):
    """A kernel that Python, and other kernels, may call."""

    family: "_Family"

    def compile(self, sig: Any) -> Any:
        """Compile it with all of its family. Raises TypeError for other than the declared types.

        numba would compile a variant for a reversed array. The machine code of a package has none, and would
        read such an array as if it were contiguous.
        """
        if getattr(_mode, "unfinished", False):
            return super().compile(sig)
        args = tuple(getattr(sig, "args", sig))
        declared = declared_types(self.py_func)
        if args != declared:
            pairs = zip(self.py_func.__annotations__, args, declared, strict=False)
            wrong = [f"{name} is {given}, not {one}" for name, given, one in pairs if given != one]
            raise TypeError(f"{self.py_func.__name__}: " + ("; ".join(wrong) or "too few arguments"))
        self.family.make()
        return self.overloads[args].entry_point


def dispatcher(
    function: Callable[..., Any], options: dict[str, Any], inner: bool, folder: Callable[[], Path]
) -> Any:
    """Return the compiled form of ``function``, like ``numba.njit``; its code is cached in the ``folder``."""
    made = (_Kernel if inner else _Entry)(py_func=function, targetoptions={"nopython": True, **options})
    if isinstance(made, _Entry):
        module = function.__module__
        name = module.rpartition(".")[0] if module.startswith(__package__) else module
        made.family = _families.setdefault(name, _Family(name, folder))
        made.family.entries[f"{module}.{function.__qualname__}"] = made
    return made


class _Family:
    """The kernels of this package, or of another module."""

    def __init__(self, name: str, folder: Callable[[], Path]) -> None:
        self.name = name
        self.entries: dict[str, _Entry] = {}
        self._folder = folder
        self._made: set[str] = set()

    def make(self) -> None:
        """Load or compile the machine code of all of them."""
        with compiler_lock.global_compiler_lock:
            _import_all(self.name)
            entries = {name: self.entries[name] for name in sorted(self.entries.keys() - self._made)}
            if entries:
                path = self._folder() / f"{self.name}-{_digest(entries)}.kernels"
                if not self._load(path, entries):
                    with _seldom_collected():
                        _write_file(path, self._compile(entries))
                self._made |= entries.keys()

    def link(self) -> "LinkedKernels":
        """Compile all of them into one module of LLVM, for a library."""
        with compiler_lock.global_compiler_lock, _seldom_collected():
            entries = dict(sorted(self.entries.items()))
            library, results = self._linked(entries)
            module = str(library._final_module)
            environments = [*next(iter(results.values()))._find_referenced_environments()]
            environments += [one.environment for one in results.values()]
            used = {one.env_name: list(one.consts) for one in environments}
            return LinkedKernels(
                module,
                {name: one.fndesc.llvm_cpython_wrapper_name for name, one in results.items()},
                {name: declared_types(entry.py_func) for name, entry in entries.items()},
                {name: one.fndesc.env_name for name, one in results.items()},
                {name: used[name] for name in sorted(used) if name in module},
            )

    def _compile(self, entries: Mapping[str, _Entry]) -> bytes:
        library, results = self._linked(entries)
        for name, one in results.items():
            results[name] = self._finish(name, one, library)
        environments = next(iter(results.values()))._find_referenced_environments()
        _register_environments(environments)
        kept = {}
        for name, one in results.items():
            one.fndesc.typemap = one.fndesc.calltypes = None  # of no use any more, and no bytes can be made
            kept[name] = (one.fndesc, one.environment, one.signature)
        code = library._get_compiled_object()
        saved: bytes = serialize.dumps((code, list(library._reload_init), kept, environments))
        return saved

    def _linked(self, entries: Mapping[str, _Entry]) -> tuple[Any, dict[str, Any]]:
        """Return one finished library with the code of all entries, and numba's result for each."""
        results = {}
        with _without_wraparound():
            for name, entry in entries.items():
                args = declared_types(entry.py_func)
                _Kernel.compile(entry, args)
                results[name] = entry.overloads[args]
        library = _context().codegen().create_library(self.name)
        library.enable_object_caching()
        library.called_by_python = {
            one.library: one.fndesc.llvm_cpython_wrapper_name for one in results.values()
        }
        for one in results.values():
            library.add_linking_library(one.library)
        library.finalize()
        return library, results

    def _load(self, path: Path, entries: Mapping[str, _Entry]) -> bool:
        """Load the machine code from a file. Return False if there is no usable file."""
        try:
            code, inits, kept, environments = pickle.loads(_checked(path.read_bytes()))
        except Exception:  # a damaged file may raise anything
            return False
        if kept.keys() != entries.keys():
            return False
        # Whatever is compiled later makes the context know all of numba's library first. Machine code needs
        # its run time alone, which loads in a tenth of the time and without SciPy.
        rtsys.initialize(_context())
        for init in inits:
            init()
        codes = _context().codegen()
        library = codes.create_library(self.name)
        library.enable_object_caching()
        library._set_compiled_object(code)
        library._finalize_final_module()
        library.of_disk = True
        library.environments = environments  # kept alive: the machine code holds their addresses
        codes._engine._defined_symbols |= {one.llvm_cpython_wrapper_name for one, _, _ in kept.values()}
        for name, (fndesc, environment, signature) in kept.items():
            result = compiler.CompileResult(
                **dict.fromkeys(compiler.CR_FIELDS)
                | {
                    "typing_context": _context().typing_context,
                    "target_context": _context(),
                    "signature": signature,
                    "objectmode": False,
                    "fndesc": fndesc,
                    "environment": environment,
                }
            )
            self._finish(name, result, library)
        _register_environments(environments)
        return True

    def _finish(self, name: str, result: Any, library: Any) -> Any:
        """Assign its code, which is in ``library``, to an entry."""
        cfunc = _context().get_executable(library, result.fndesc, result.environment)
        _context().insert_user_function(cfunc, result.fndesc, [library])
        finished = result._replace(library=library, entry_point=cfunc)
        self.entries[name].add_overload(finished)
        return finished


_families: dict[str, _Family] = {}


@dataclass(frozen=True, slots=True)
class LinkedKernels:
    """All kernels of a group as one optimised module of LLVM.

    ``module`` is its text; ``wrappers`` has the symbol of each kernel that Python calls, by the kernel's full
    name; ``types`` numba's types of its arguments; ``environments`` the symbol of its environment;
    ``constants`` the constants of each environment.
    """

    module: str
    wrappers: Mapping[str, str]
    types: Mapping[str, tuple[Any, ...]]
    environments: Mapping[str, str]
    constants: Mapping[str, list[Any]]


def link_group(name: str) -> LinkedKernels:
    """Compile the kernels of a package or module into one module of LLVM. Raises KeyError if it has none."""
    importlib.import_module(name)
    _import_all(name)
    return _families[name].link()


def _import_all(name: str) -> None:
    """Import the modules of an imported package."""
    for module in pkgutil.iter_modules(getattr(sys.modules.get(name), "__path__", [])):
        importlib.import_module(f"{name}.{module.name}")


_COMPILER: Final = hashlib.sha256(Path(__file__).read_bytes()).digest()
"""Digest of this module, which decides how kernels are compiled."""


def _digest(entries: Mapping[str, _Entry]) -> str:
    """Return the file name of the machine code of these kernels: a digest of the kernels, of everything they
    use, and of the target.

    It uses what this process has in memory. The source on disk may have changed meanwhile (an upgrade, an
    editor): its digest would let later processes load machine code of the former source.
    """
    digest = hashlib.sha256(_COMPILER + _machine().encode())
    known: dict[FunctionType, int] = {}
    for name, entry in entries.items():
        digest.update(f"{name} {declared_types(entry.py_func)}".encode())
        for text in _content(entry, known):
            digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _content(value: Any, known: dict[FunctionType, int]) -> Iterator[str]:
    """Yield what a value that kernels use means for their machine code; each function only once."""
    if isinstance(value, registry.CPUDispatcher):
        yield repr(sorted(value.targetoptions.items()))
        value = value.py_func
    if isinstance(value, FunctionType):
        first = value not in known
        yield f"function {known.setdefault(value, len(known))}"
        if first:
            yield from _content(value.__defaults__, known)
            for cell in value.__closure__ or ():
                yield from _content(cell.cell_contents, known)
            yield from _code_content(value.__code__, value.__globals__, known)
    elif isinstance(value, tuple | list):
        yield f"{type(value).__qualname__} {len(value)}"
        for one in value:
            yield from _content(one, known)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    elif isinstance(value, frozenset):
        yield repr(sorted(map(repr, value)))
    elif isinstance(value, type):
        yield f"{value.__module__}.{value.__qualname__} {getattr(value, '_fields', '')}"
    elif isinstance(value, bool | int | float | complex | str | bytes | Enum | np.generic | np.dtype | None):
        yield repr(value)
    else:
        yield type(value).__qualname__


def _code_content(code: CodeType, names: Mapping[str, Any], known: dict[FunctionType, int]) -> Iterator[str]:
    variables = (code.co_varnames, code.co_freevars, code.co_cellvars, code.co_argcount, code.co_flags)
    yield f"{code.co_code.hex()} {code.co_exceptiontable.hex()} {code.co_names} {variables}"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_content(constant, names, known)
        else:
            yield from _content(constant, known)
    for name in code.co_names:
        if name in names:
            used = names[name]
            yield from _content(used, known)
            if isinstance(used, ModuleType):
                for one in code.co_names:
                    yield from _content(getattr(used, one, None), known)


def _context() -> Any:
    return registry.cpu_target.target_context


def _register_environments(found: Any) -> None:
    for one in found:
        _context().codegen().set_env(one.env_name, one)


def _checked(saved: bytes) -> bytes:
    """Return the content of a cache file, without its checksum. Raises ValueError if it is damaged."""
    checksum, content = saved[:_CHECKSUM], saved[_CHECKSUM:]
    if hashlib.sha256(content).digest() != checksum:
        raise ValueError("the machine code is damaged")
    return content


_CHECKSUM: Final = hashlib.sha256().digest_size
"""Bytes at the beginning of a file. A power failure may leave a file of the right length with zeros in it,
and damaged machine code would be run.
"""


def _write_file(path: Path, saved: bytes) -> None:
    """Write a cache file that other processes may write at the same time.

    Each process writes a temporary file of its own name: processes in containers with a common cache may have
    equal process ids.
    """
    part = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, part = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, 0o644)  # as a file that is written without a temporary one
            file.write(hashlib.sha256(saved).digest() + saved)
        Path(part).replace(path)
    except OSError as error:
        if part:
            Path(part).unlink(missing_ok=True)
        words = f"compiled kernels cannot be kept, so that every start compiles them anew: {error}"
        warnings.warn(words, RuntimeWarning, stacklevel=2)


# ---- what numba does otherwise ---------------------------------------------------------------------


def _finalize(self: Any) -> None:
    """Link the code of all called, unfinished libraries into this one; leave it unfinished itself if
    requested.
    """
    self._raise_if_finalized()
    if getattr(_mode, "unfinished", False):
        self.unfinished = self._finalized = True
        return
    called = _called(self)
    if not any(getattr(one, "unfinished", False) for one in called):
        _numbas_finalize(self)
        return
    wanted = getattr(self, "called_by_python", {})
    for library in called:
        self._reload_init.update(library._reload_init)
        module = library._get_module_for_linking()
        if library in wanted:
            # linking would omit functions without a caller
            module = module.clone()
            module.get_function(wanted[library]).linkage = "external"
        self._final_module.link_in(module, preserve=True)
    if wanted:
        for function in self._final_module.functions:
            if not function.is_declaration and function.name not in wanted.values():
                function.linkage = "internal"
    self._optimize_final_module()
    self._final_module.verify()
    self._finalize_final_module()


def _called(library: Any) -> list[Any]:
    """Return the libraries that this one, or an unfinished one, calls; callers precede callees, since linking
    omits functions without an earlier caller.
    """
    found: dict[Any, None] = {}

    def visit(one: Any) -> None:
        for other in one._linking_libraries:
            if other not in found:
                if getattr(other, "unfinished", False):
                    visit(other)
                found[other] = None

    visit(library)
    return list(found)[::-1]


def _set_env(self: Any, env_name: str, env: Any) -> None:
    if self._engine.is_symbol_defined(env_name) or not getattr(_mode, "unfinished", False):
        _numbas_set_env(self, env_name, env)


def _same_flags(self: Any, other: object) -> bool:
    """Compare flags as numba does, at every call, without creating two dictionaries."""
    if not isinstance(other, targetconfig.TargetConfig):
        return NotImplemented
    mine, others = self._values, other._values
    if mine == others:
        return True
    options = self.options
    if options.keys() != other.options.keys():
        return False
    return all(
        mine.get(name, options[name].default) == others.get(name, options[name].default)
        for name in mine.keys() | others.keys()
    )


def _hash_flags(self: Any) -> int:
    """Return a hash without numba's sorting of the names of all flags at every call."""
    return hash(type(self))


if KNOWN:
    _numbas_finalize = codegen.CPUCodeLibrary.finalize
    _numbas_set_env = codegen.JITCPUCodegen.set_env
    codegen.CPUCodeLibrary.finalize = _finalize
    codegen.JITCPUCodegen.set_env = _set_env
    targetconfig.TargetConfig.__eq__ = _same_flags
    targetconfig.TargetConfig.__hash__ = _hash_flags
