"""Worker processes of the test run: a run that has lost tests must not pass."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_CONFTEST = """
from tests.workers import ForkedWorkers

def pytest_configure(config):
    config.pluginmanager.register(ForkedWorkers(config, 2))
"""
_TESTS = """
import os
import signal

def test_before():
    pass

def test_that_ends_its_process():
    {act}

def test_after():
    pass
"""


def run_tests(folder: Path, act: str) -> tuple[int, str]:
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "test_one.py").write_text(_TESTS.format(act=act))
    (folder / "test_other.py").write_text("def test_other():\n    pass\n")
    (folder / "pytest.ini").write_text("[pytest]\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini", "."]
    done = subprocess.run(
        words,
        cwd=folder,
        env={"PYTHONPATH": str(_ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("act", "status", "told"),
    [
        ("pass", pytest.ExitCode.OK, "4 passed"),
        (
            "signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), signal.SIGINT)",
            pytest.ExitCode.INTERRUPTED,
            "the rest of its tests did not run",
        ),
        ("os.kill(os.getpid(), signal.SIGKILL)", pytest.ExitCode.TESTS_FAILED, "was killed by SIGKILL"),
        ("os._exit(0)", pytest.ExitCode.TESTS_FAILED, "ended with status 0"),
    ],
)
def test_run_that_lost_tests_does_not_pass(act: str, status: int, told: str, tmp_path: Path) -> None:
    found, output = run_tests(tmp_path, act)
    assert found == status, output
    assert told in output
