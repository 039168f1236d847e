"""Builds the library of one group of kernels for one level of processors; kernels.py calls it.

    python release/kernel_library.py GROUP LEVEL FILE

numba compiles and optimises the kernels as it does at a first start. Its code is emitted as an object that
can be loaded at any address, and linked with numba's run time (kernels.c).
"""

import os
import pickle
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import types
from numba.np import numpy_support

from schedd.plan.kernels.compiler import LinkedKernels, link_group


def build_library(group: str, level: str, path: Path) -> None:
    """Compile, emit and link the library of ``group`` for ``level``. Raises CalledProcessError."""
    linked = link_group(group)
    target = llvm.Target.from_triple(llvm.get_process_triple())
    processor = level if level.startswith("x86-64") else "generic"
    machine = target.create_target_machine(cpu=processor, opt=3, reloc="pic", codemodel="small")
    module = llvm.parse_assembly(_with_own_errors(linked.module))
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "group.o").write_bytes(machine.emit_object(module))
        (work / "table.h").write_text(_table(group, linked))
        _link(work)
        part = path.with_suffix(f".{os.getpid()}")
        shutil.copyfile(work / "library", part)
        part.replace(path)


def _with_own_errors(module: str) -> str:
    """Return the module with calls of kernels.c instead of Python's functions that set an exception."""
    return re.sub(r"@PyErr_(SetString|SetNone|Format)\b", r"@kernels_\1", module)


def _table(group: str, linked: LinkedKernels) -> str:
    """Return the group's part of the source: names and symbols of its kernels, constants of environments."""
    name = group.replace(".", "_")
    lines = [f'#define GROUP_NAME "{name}"', f"#define GROUP_INIT PyInit_{name}"]
    numbers = {symbol: number for number, symbol in enumerate(linked.constants)}
    lines += [f'extern void *env_{number} __asm__("{symbol}");' for symbol, number in numbers.items()]
    lines += [
        f'extern PyObject *wrapper_{number}(PyObject *, PyObject *, PyObject *) __asm__("{symbol}");'
        for number, symbol in enumerate(linked.wrappers.values())
    ]
    for number, (kernel, arguments) in enumerate(linked.types.items()):
        short, signature = kernel.rpartition(".")[2], "".join(map(_signature, arguments))
        lines += [
            f"static PyObject *checked_{number}(PyObject *self, PyObject *given, PyObject *named) {{",
            f'    return arguments_match("{short}", "{signature}", given, named)',
            f"        ? wrapper_{number}(self, given, named) : NULL;",
            "}",
        ]
    lines += ["static const struct entry ENTRIES[] = {"]
    lines += [
        f'    {{"{kernel}", checked_{number}, &env_{numbers[linked.environments[kernel]]}}},'
        for number, kernel in enumerate(linked.wrappers)
    ]
    lines += ["    {NULL}};", "static const struct constants CONSTANTS[] = {"]
    for symbol, number in numbers.items():
        pickled = pickle.dumps(linked.constants[symbol], protocol=4)
        text = "".join(f"\\{byte:03o}" for byte in pickled)
        lines.append(f'    {{&env_{number}, "{text}", {len(pickled)}}},')
    lines += ["    {NULL}};", ""]
    return "\n".join(lines)


def _signature(kind: Any) -> str:
    """Return a type of an argument as kernels.c reads it."""
    if isinstance(kind, types.BaseTuple):
        return f"({''.join(map(_signature, kind.types))})"
    if isinstance(kind, types.Array):
        dtype = numpy_support.as_dtype(kind.dtype)
        return f"a{dtype.kind}{dtype.itemsize}{kind.ndim}"
    return {types.int64: "i", types.float64: "f", types.boolean: "b"}[kind]


def _link(work: Path) -> None:
    """Compile numba's run time and the table, and link them with the kernels."""
    source, numbas = Path(__file__).with_name("kernels.c"), Path(numba.__file__).parent
    folders = (work, numbas, sysconfig.get_paths()["include"], np.get_include())
    flags = ["-O2", "-fPIC", "-fvisibility=hidden", "-w", *(f"-I{folder}" for folder in folders)]
    plain = ["-fno-exceptions", "-fno-rtti"]
    subprocess.run(["cc", *flags, "-c", source, "-o", work / "module.o"], check=True)
    subprocess.run(
        ["c++", *flags, *plain, "-c", numbas / "core/runtime/nrt.cpp", "-o", work / "nrt.o"], check=True
    )
    objects = [work / name for name in ("module.o", "group.o", "nrt.o")]
    fixed = ["-Wl,--build-id=none", "-Wl,-z,relro,-z,now", "-s"]
    subprocess.run(["cc", "-shared", *fixed, "-o", work / "library", *objects, "-lm"], check=True)


if __name__ == "__main__":
    build_library(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
