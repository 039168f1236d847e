"""Libraries of compiled kernels: built as for a package, compared with numba's code in memory."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from schedd.plan.kernels.machine_code import GROUPS, processor_levels
from tests.conftest import ROOT

GROUP = "schedd.predict.kernels"

pytestmark = pytest.mark.skipif(
    which("cc") is None
    or which("c++") is None
    or not Path(sysconfig.get_paths()["include"], "Python.h").is_file()
    or not processor_levels(),
    reason="needs a C and C++ compiler, Python's headers, and a processor of a level that packages support",
)


def run_python(code: str, kernels: str | Path) -> Any:
    """Run ``code`` with the given kernels; return what it prints as JSON."""
    environment = os.environ | {"SCHEDD_KERNELS": str(kernels), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library of one group for this processor."""
    folder = tmp_path_factory.mktemp("kernels")
    path = run_python(
        "import json; from schedd.plan.kernels.machine_code import library_path, processor_levels;"
        f"print(json.dumps(str(library_path({GROUP!r}, processor_levels()[0]))))",
        folder,
    )
    level = Path(path).parent.name
    environment = os.environ | {"SCHEDD_KERNELS": "compile", "PYTHONPATH": str(ROOT)}
    environment |= {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""} if level.startswith("x86") else {}
    command = [sys.executable, str(ROOT / "release/kernel_library.py"), GROUP, level, path]
    subprocess.run(command, check=True, env=environment)
    return folder


LEARN = """
import json
from schedd.plan.kernels.machine_code import loaded_libraries
from schedd.predict import RunTimes
from tests.predict.test_run_times import draw_jobs, learn_jobs

jobs = draw_jobs(1, 600)
run_times = learn_jobs(RunTimes(), jobs)
run_times.grow()
predicted = [run_times.predict(job).quantiles for job, _ in jobs]
print(json.dumps([sorted(loaded_libraries()), [list(map(int, one)) for one in predicted]]))
"""


@pytest.mark.soak
def test_library_computes_what_numba_computes(libraries: Path) -> None:
    (loaded, predicted), (none, expected) = run_python(LEARN, libraries), run_python(LEARN, "compile")
    assert (loaded, none) == ([GROUP], [])
    assert predicted == expected
    assert len({tuple(one) for one in predicted}) > 100


WRONG = """
import json
import numpy as np
from schedd.predict.kernels import Templates, learn_end

errors = []
zeros = np.zeros(16, np.int64)
table = Templates(zeros, zeros.copy(), zeros.copy(), np.zeros(16), np.zeros((16, 32), np.float32))
keys = np.zeros(6, np.int64)
wrong = [(), (table, keys, 1.0), (1, 2, 3, 4), (table[1:], keys, 1.0, 0), (table, None, 1.0, 0)]
wrong += [(table, keys.astype(np.int32), 1.0, 0), (table, np.zeros(12, np.int64)[::2], 1.0, 0)]
wrong += [(table, keys, "x", 0), (table, keys, 1.0, 0.5), (table, keys.reshape(2, 3), 1.0, 0)]
for one in wrong:
    try:
        learn_end(*one)
    except TypeError as error:
        errors.append(str(error))
assert learn_end(table, keys, 1.0, 0) == learn_end(table, keys, np.float64(1), np.int64(0)) == 0
print(json.dumps([type(learn_end).__name__, errors]))
"""


@pytest.mark.soak
def test_library_refuses_arguments_of_other_types(libraries: Path) -> None:
    kind, errors = run_python(WRONG, libraries)
    assert kind == "builtin_function_or_method"
    assert errors[:2] == [f"learn_end expected 4 arguments, got {n}" for n in (0, 3)]
    numbers = [1, 1, 2, 2, 2, 3, 4, 2]
    assert errors[2:] == [f"learn_end: argument {n} has another type than declared" for n in numbers]


@pytest.mark.soak
def test_library_of_another_source_is_not_used(libraries: Path, tmp_path: Path) -> None:
    (built,) = libraries.rglob("*.so")
    digest = built.name.partition("-")[2].partition(".")[0]
    other = tmp_path / built.parent.name / built.name.replace(digest, "0" * len(digest))
    other.parent.mkdir()
    other.write_bytes(built.read_bytes())
    code = "from schedd.predict.kernels import learn_end; import json; "
    code += "print(json.dumps(type(learn_end).__name__))"
    assert run_python(code, libraries) == "builtin_function_or_method"
    assert run_python(code, tmp_path) == "_Entry"


def test_installation_without_machine_code_and_numba_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import json, sys; sys.modules['numba'] = None\n"
        "try:\n import schedd.predict.kernels\n"
        "except ModuleNotFoundError as error:\n print(json.dumps(str(error)))"
    )
    message = run_python(code, tmp_path)
    assert message.endswith("numba to compile it: install schedd[compile]")


def test_groups_are_those_of_the_packages_with_kernels() -> None:
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "schedd").rglob("*.py")
        if "kernels.jit import" in path.read_text("utf-8")
    }
    assert {next((one for one in GROUPS if name.startswith(one)), name) for name in found} == {
        *GROUPS,
        "schedd.plan.kernel_status",
    }
