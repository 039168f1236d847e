"""The package as a whole: what importing it costs and says."""

import subprocess
import sys

import schedd


def test_the_package_says_its_version() -> None:
    assert schedd.__version__.count(".") >= 2


def test_importing_the_package_loads_no_numeric_library() -> None:
    code = "import sys, schedd; print(sorted({'numpy', 'numba', 'pydantic', 'fastapi'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
