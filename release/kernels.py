"""Compiles the kernels of the planner into libraries that a package brings (schedd/plan/kernels/built).

    python release/kernels.py [--level LEVEL]... [--out FOLDER]

Each group of kernels becomes one extension module per level of processors: x86-64-v2 and x86-64-v3, or the
generic level of another architecture. numba compiles and optimises them as it does at a first start; its code
is emitted as an object that can be placed anywhere, and linked with numba's run time (kernels.c). Needs numba
and a C and C++ compiler here; where the libraries are used, neither is needed.
"""

import argparse
import os
import pickle
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

LEVELS: Final = ("x86-64-v2", "x86-64-v3") if platform.machine() == "x86_64" else (platform.machine(),)
_C_LEVEL: Final = "x86-64" if platform.machine() == "x86_64" else ""
"""The level of numba's run time: the lowest, since it is not what takes time."""


def main() -> int:
    """Build the libraries of all levels that are asked for."""
    parser = argparse.ArgumentParser(description="Compiles the kernels of the planner into libraries.")
    parser.add_argument("--level", action="append", choices=LEVELS, help="only this level (can be repeated)")
    parser.add_argument("--here", action="store_true", help="only the best level of this processor")
    parser.add_argument("--group", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.environ["SCHEDD_KERNELS"] = "compile"
    if options.group:
        build_library(options.group, options.level[0])
        return 0
    from schedd.plan.kernels.machine_code import BUILT, GROUPS, processor_levels

    levels = processor_levels()[:1] if options.here else (options.level or LEVELS)
    if not levels:
        sys.exit("this processor has none of the levels " + ", ".join(LEVELS))
    if missing := missing_tools():
        sys.exit(missing)
    shutil.rmtree(BUILT, ignore_errors=True)
    for level in levels:
        for group in GROUPS:
            build_in_process(group, level)
    return 0


def missing_tools() -> str:
    """Return what this machine lacks to build libraries, as a sentence; empty if nothing."""
    missing = [tool for tool in ("cc", "c++") if shutil.which(tool) is None]
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        missing.append("Python.h")
    try:
        import numba  # noqa: F401
    except ModuleNotFoundError:
        missing.append("numba")
    return f"kernels are compiled with {', '.join(missing)}, which this machine lacks" if missing else ""


def build_in_process(group: str, level: str) -> None:
    """Build one library in a process of its own: numba's processor is fixed when it is imported."""
    processor = {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""} if level in ("x86-64-v2", "x86-64-v3") else {}
    command = [sys.executable, __file__, "--group", group, "--level", level]
    subprocess.run(command, check=True, env=os.environ | processor | {"SCHEDD_KERNELS": "compile"})


def build_library(group: str, level: str) -> None:
    """Compile, emit and link the library of ``group`` for ``level``."""
    import llvmlite.binding as llvm

    from schedd.plan.kernels.compiler import LinkedKernels, link_group
    from schedd.plan.kernels.machine_code import library_path

    linked: LinkedKernels = link_group(group)
    target = llvm.Target.from_triple(llvm.get_process_triple())
    processor = level if level.startswith("x86-64") else "generic"
    machine = target.create_target_machine(cpu=processor, opt=3, reloc="pic", codemodel="small")
    path = library_path(group, level)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "group.o").write_bytes(machine.emit_object(llvm.parse_assembly(_with_own_errors(linked.module))))
        (work / "table.h").write_text(_table(group, linked))
        _link(work, path)
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size:,} bytes  {len(linked.wrappers)} kernels")


def _with_own_errors(module: str) -> str:
    """Return the module with calls of kernels.c instead of Python's functions that set an exception."""
    return re.sub(r"@PyErr_(SetString|SetNone|Format)\b", r"@kernels_\1", module)


def _table(group: str, linked: "LinkedKernels") -> str:  # type: ignore[name-defined]  # noqa: F821
    """Return the group's part of the source: names and symbols of its kernels, constants of environments."""
    name = group.replace(".", "_")
    lines = [f'#define GROUP_NAME "{name}"', f"#define GROUP_INIT PyInit_{name}"]
    numbers = {symbol: number for number, symbol in enumerate(linked.constants)}
    lines += [f'extern void *env_{number} __asm__("{symbol}");' for symbol, number in numbers.items()]
    lines += [
        f'extern PyObject *wrapper_{number}(PyObject *, PyObject *, PyObject *) __asm__("{symbol}");'
        for number, symbol in enumerate(linked.wrappers.values())
    ]
    lines += ["static const struct entry ENTRIES[] = {"]
    lines += [
        f'    {{"{kernel}", wrapper_{number}, &env_{numbers[linked.environments[kernel]]}}},'
        for number, kernel in enumerate(linked.wrappers)
    ]
    lines += ["    {NULL}};", "static const struct constants CONSTANTS[] = {"]
    for symbol, number in numbers.items():
        pickled = pickle.dumps(linked.constants[symbol], protocol=4)
        lines.append(f'    {{&env_{number}, "{_c_string(pickled)}", {len(pickled)}}},')
    lines += ["    {NULL}};", ""]
    return "\n".join(lines)


def _c_string(value: bytes) -> str:
    return "".join(f"\\{byte:03o}" for byte in value)


def _link(work: Path, path: Path) -> None:
    """Compile numba's run time and the module's table, and link them with the kernels."""
    import numba
    import numpy as np

    numbas = Path(numba.__file__).parent
    flags = ["-O2", "-fPIC", "-fvisibility=hidden", "-w", f"-I{work}", f"-I{numbas}"]
    flags += [f"-I{sysconfig.get_paths()['include']}", f"-I{np.get_include()}"]
    flags += [f"-march={_C_LEVEL}"] if _C_LEVEL else []
    source = Path(__file__).with_name("kernels.c")
    subprocess.run(["cc", *flags, "-c", source, "-o", work / "module.o"], check=True)
    runtime = numbas / "core/runtime/nrt.cpp"
    subprocess.run(["c++", *flags, "-fno-exceptions", "-fno-rtti", "-c", runtime, "-o", work / "nrt.o"], check=True)
    objects = [work / name for name in ("module.o", "group.o", "nrt.o")]
    fixed = ["-Wl,--build-id=none", "-Wl,-z,relro,-z,now", "-s"]
    subprocess.run(["cc", "-shared", *fixed, "-o", path, *objects, "-lm"], check=True)


if __name__ == "__main__":
    sys.exit(main())
