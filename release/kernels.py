"""Compiles the kernels of the planner into libraries that a package brings (schedd/plan/kernels/built).

    python release/kernels.py [--here | --level LEVEL ...]

Each group of kernels becomes one extension module per level of processors: x86-64-v2 and x86-64-v3, or the
generic level of another architecture. Libraries of this source that are there are kept, others are removed.
Needs numba, Python's headers, and a C and C++ compiler; where the libraries are used, none of them is needed.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from schedd.plan.kernels.machine_code import BUILT, GROUPS, library_path, processor_levels

LEVELS: Final = ("x86-64-v2", "x86-64-v3") if platform.machine() == "x86_64" else (platform.machine(),)


def main() -> int:
    """Build the libraries of all levels that are wanted."""
    parser = argparse.ArgumentParser(description="Compiles the kernels of the planner into libraries.")
    parser.add_argument("--level", action="append", choices=LEVELS, help="only this level (can be repeated)")
    parser.add_argument("--here", action="store_true", help="only the best level of this processor")
    options = parser.parse_args()
    levels = processor_levels()[:1] if options.here else (options.level or LEVELS)
    if not levels:
        sys.exit(f"this processor has none of the levels {', '.join(LEVELS)}")
    if missing := missing_tools():
        sys.exit(f"kernels are compiled with {', '.join(missing)}, which this machine lacks")
    wanted = [(group, level, library_path(group, level)) for level in levels for group in GROUPS]
    for path in BUILT.rglob("*.so"):
        if path not in {path for _, _, path in wanted}:
            path.unlink()
    for group, level, path in wanted:
        if not path.is_file():
            build(group, level, path)
            print(f"{level}/{path.name}  {path.stat().st_size:,} bytes")
    return 0


def missing_tools() -> list[str]:
    """Return what this machine lacks to build libraries."""
    missing = [tool for tool in ("cc", "c++") if shutil.which(tool) is None]
    if not (Path(sysconfig.get_paths()["include"]) / "Python.h").is_file():
        missing.append("Python.h")
    return missing + ["numba"] * (find_spec("numba") is None)


def build(group: str, level: str, path: Path) -> None:
    """Build one library in a process of its own: numba's processor is fixed when it is imported.

    Raises CalledProcessError.
    """
    command = [sys.executable, str(Path(__file__).with_name("kernel_library.py")), group, level, str(path)]
    environment = os.environ | {"SCHEDD_KERNELS": "compile"}
    if level.startswith("x86-64"):
        environment |= {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}
    subprocess.run(command, check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
