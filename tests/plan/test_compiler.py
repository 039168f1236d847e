"""Kernels that are only called by kernels are compiled once and linked into their callers."""

import os
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numba
import numpy as np
import pytest

from schedd.plan.kernels import compiler
from schedd.plan.kernels.jit import inlined, inner, kernel, maker
from schedd.plan.kernels.layout import Ints
from tests.conftest import ROOT


def test_this_numba_is_as_expected() -> None:
    assert compiler.KNOWN, "kernels are compiled as numba does by itself: see kernels/compiler.py"


@inlined
def _twice(a: int) -> int:
    return 2 * a


@inner
def _sum(a: int, b: int) -> int:
    if b < 0:
        raise ValueError("below zero")
    return _twice(a) + b


@maker
def _filled(n: int, value: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    found = np.empty(n, np.int64)
    for i in range(n):
        found[i] = _sum(i, 1) + value  # with a constant
    return found


@kernel
def _called(n: int) -> int:
    return int(_filled(n, _sum(n, n)).sum())  # with a variable


def _plainly(n: int) -> int:
    return sum(2 * i + 1 + 3 * n for i in range(n))


def test_a_kernel_is_compiled_once_whatever_it_is_called_with() -> None:
    assert [_called(n) for n in (0, 1, 7)] == [_plainly(n) for n in (0, 1, 7)]
    called: Any = _called
    assert len(called.overloads) == 1
    kernels: list[Any] = [_twice, _sum, _filled]
    for one in kernels:
        assert len(one.overloads) <= 1  # none where the caller came from the disk
        for found in one.overloads.values():
            # There is no machine code of its own.
            assert found.library.get_pointer_to_function(found.fndesc.llvm_func_name) == 0


@kernel
def _element(a: Ints, i: int) -> int:
    return int(a[i])


def test_an_index_is_not_counted_from_the_end() -> None:
    """A negative one is an error where indices are checked, and otherwise takes no time."""
    numbers = np.arange(5)
    assert [_element(numbers[1:], i) for i in range(4)] == [1, 2, 3, 4]
    if numba.config.BOUNDSCHECK:  # type: ignore[attr-defined]
        with pytest.raises(IndexError):
            _element(numbers[1:], -1)
    else:
        assert _element(numbers[1:], -1) == 0  # before the array that was given


def test_an_error_within_reaches_the_caller() -> None:
    with pytest.raises(ValueError, match="below zero"):
        _called(-1)


def test_with_another_numba_kernels_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "KNOWN", False)
    known: Any = _twice
    twice = inner(known.py_func)

    def called(n: int) -> int:
        return int(twice(n) + 1)

    assert kernel(called)(4) == 9


class _Shelf:
    """A kernel in a temporary module, with its compiled code in ``folder``."""

    def __init__(self, folder: Path) -> None:
        def thrice(n: int) -> int:
            return 3 * n

        thrice.__module__ = f"shelf{id(self)}"
        self.kernel = compiler.dispatcher(thrice, {"nogil": True, "_nrt": False}, False, lambda: folder)
        family = self.kernel.family
        self.compiled = 0
        compile_all = family._compile

        def counted(entries: Any) -> bytes:
            self.compiled += 1
            return bytes(compile_all(entries))

        family._compile = counted
        family.name = "shelf"
        family.entries = {"thrice": self.kernel}


def test_machine_code_is_read_from_the_disk(tmp_path: Path) -> None:
    first, second = _Shelf(tmp_path), _Shelf(tmp_path)
    assert (first.kernel(2), second.kernel(3)) == (6, 9)
    assert (first.compiled, second.compiled) == (1, 0)
    assert [file.name.startswith("shelf-") for file in tmp_path.iterdir()] == [True]


def test_a_process_that_has_compiled_nothing_reads_it() -> None:
    assert _called(7) == 196
    code = "from tests.plan.test_compiler import _called; print(_called(7))"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("196\n", 0), run.stderr


def test_loaded_kernels_are_linked_into_others(tmp_path: Path) -> None:
    _Shelf(tmp_path).kernel(1)
    thrice = _Shelf(tmp_path).kernel
    assert thrice(1) == 3

    def more(n: int) -> int:
        return int(thrice(n) + 1)

    assert kernel(more)(2) == 7


def _cut(code: bytes) -> bytes:
    return code[: len(code) // 2]


def _zeroed(code: bytes) -> bytes:
    """Return a file after a power failure, with unwritten pages."""
    return code[:-800] + bytes(400) + code[-400:]


def _flipped(code: bytes) -> bytes:
    at = len(code) // 2
    return code[:at] + bytes([code[at] ^ 1]) + code[at + 1 :]


@pytest.mark.parametrize(
    "damaged", [lambda _: b"", lambda _: b"no pickle", lambda _: b"\x80\x05N.", _cut, _zeroed, _flipped]
)
def test_damaged_file_is_replaced(tmp_path: Path, damaged: Callable[[bytes], bytes]) -> None:
    _Shelf(tmp_path).kernel(1)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damaged(file.read_bytes()))
    second, third = _Shelf(tmp_path), _Shelf(tmp_path)
    assert (second.kernel(2), third.kernel(2)) == (6, 6)
    assert (second.compiled, third.compiled) == (1, 0)


def test_unwritable_cache_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(RuntimeWarning, match=r"compiled kernels cannot be kept.*file"):
        assert _Shelf(tmp_path / "file").kernel(2) == 6


def test_other_types_than_those_declared_are_refused(tmp_path: Path) -> None:
    """Also for numbers: machine code of a package would read their bits as those of the declared type."""
    shelf = _Shelf(tmp_path)
    with pytest.raises(TypeError, match=r"float64, not int64"):
        shelf.kernel(1.5)
    assert shelf.kernel(2) == 6
    with pytest.raises(TypeError, match=r"numbers is array\(int64, 1d, A\), not array\(int64, 1d, C\)"):
        read_beyond(np.arange(8)[::-1], 2)


def test_change_of_a_sibling_module_recompiles_kernels(tmp_path: Path) -> None:
    """Compiled code includes the kernels and constants of other modules."""
    sources, kept = tmp_path / "sources", tmp_path / "kept"
    sources.mkdir()
    (sources / "much.py").write_text("MUCH = 3\n")
    (sources / "more.py").write_text(
        "from pathlib import Path\n"
        "from much import MUCH\n"
        "from schedd.plan.kernels import compiler\n"
        "def more(n: int) -> int:\n"
        "    return n + MUCH\n"
        "options = {'nogil': True, '_nrt': False}\n"
        f"print(compiler.dispatcher(more, options, False, lambda: Path({str(kept)!r}))(4))\n"
    )

    def ran() -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{sources}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        run = subprocess.run(
            [sys.executable, "-m", "more"], env=environment, capture_output=True, text=True, check=True
        )
        return run.stdout.strip()

    assert (ran(), ran()) == ("7", "7")
    assert len(list(kept.iterdir())) == 1
    (sources / "much.py").write_text("MUCH = 5\n")
    assert ran() == "9"
    assert len(list(kept.iterdir())) == 2


_MODULE = """
from pathlib import Path
from schedd.plan.kernels import compiler
def more(n: int) -> int:
    return n + {much}
made = compiler.dispatcher(more, {{"nogil": True, "_nrt": False}}, False, lambda: Path({kept!r}))
{then}
print(made(4))
"""


def _run_module(sources: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{sources}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    run = subprocess.run(
        [sys.executable, "-m", "more"], env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_machine_code_is_named_after_the_kernels_in_memory_not_after_their_source_on_disk(
    tmp_path: Path,
) -> None:
    """An upgrade, or an editor, may change the source between the import of a kernel and its first call."""
    kept = str(tmp_path / "kept")
    newer = _MODULE.format(much=5, kept=kept, then="")
    change = f"Path(__file__).write_text({newer!r})"
    (tmp_path / "more.py").write_text(_MODULE.format(much=3, kept=kept, then=change))
    assert _run_module(tmp_path) == "7"
    assert (tmp_path / "more.py").read_text() == newer
    assert _run_module(tmp_path) == "9", "it ran the machine code of the former source"


def test_several_processes_may_fill_an_empty_cache_at_once(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (tmp_path / "more.py").write_text(_MODULE.format(much=3, kept=str(kept), then=""))
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    runs = [
        subprocess.Popen([sys.executable, "-m", "more"], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [run.communicate()[0].strip() for run in runs] == ["7"] * 2
    assert len(list(kept.iterdir())) == 1, "no unfinished file is left"
    assert _run_module(tmp_path) == "7"


def test_writers_with_the_same_process_number_do_not_mix_their_files(tmp_path: Path) -> None:
    """Containers that share a cache number their processes each from 1 on."""
    path = tmp_path / "some.kernels"

    def write(content: bytes) -> None:
        for _ in range(30):
            compiler._write_file(path, content)
            assert set(compiler._checked(path.read_bytes())) in ({1}, {2})

    with warnings.catch_warnings(record=True) as errors:
        warnings.simplefilter("always")
        writers = [threading.Thread(target=write, args=(bytes([i]) * 1_000_000,)) for i in (1, 2)]
        for one in writers:
            one.start()
        for one in writers:
            one.join()
    assert not errors
    assert [file.name for file in tmp_path.iterdir()] == ["some.kernels"]


@pytest.mark.soak
@pytest.mark.timeout(0)  # with an empty cache all kernels are compiled first, with checks
def test_no_kernel_reads_or_writes_beyond_an_array() -> None:
    """Property tests of the plan and random lives of an engine, by kernels that check each index.

    Without the check such a kernel damages memory, and the process ends later and elsewhere.
    """
    environment = {
        **os.environ,
        "NUMBA_BOUNDSCHECK": "1",
        "NUMBA_OPT": "0",
        "PYTHONPATH": str(ROOT),
    }
    code = (
        "from random import Random\n"
        "from tests.plan.test_compiler import read_beyond\n"
        "import numpy as np\n"
        "try:\n"
        "    read_beyond(np.arange(3), 5)\n"
        "except IndexError:\n"
        "    print('indices are checked')\n"
        "from tests.engine.chaos.streams import KINDS, stream\n"
        "for seed, kind in enumerate(KINDS):\n"
        "    stream(kind(Random(900 + seed), every_call=False), 25)\n"
        "print('done')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.returncode) == ("indices are checked\ndone\n", 0), run.stderr[-3000:]


@kernel
def read_beyond(numbers: Ints, at: int) -> int:
    """Read one number; of an array that is too short, some other memory."""
    return int(numbers[at])


@pytest.mark.parametrize("of_numpy_2_5", [False, True])
def test_arrays_of_every_numpy_are_understood(*, of_numpy_2_5: bool) -> None:
    """Its alias NDArray has one argument since 2.5, which Python 3.12 and later get by the lock files."""
    former = np.ndarray[Any, np.dtype[np.int64]]
    hint = types.GenericAlias(np.ndarray, (np.int64,)) if of_numpy_2_5 else former

    def rows(_table: Any, n: int) -> int:
        return n

    rows.__annotations__["_table"] = Annotated[hint, 2]
    assert compiler.declared_types(rows) == (numba.types.Array(numba.int64, 2, "C"), numba.int64)
