"""A forked program finds what a started program finds, has a state of its own, and ends like it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.forked_processes import ForkedProcess, run_program, start_program
from tests.waits import WAIT_S

PROGRAM = "tests.store.reporting_program"


def test_forked_program_finds_the_same_as_a_started_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    environment = {**os.environ, "TZ": "Asia/Tokyo", "SCHEDD_URL": "http://h"}
    # A test run in the background of a shell ignores it, and started programs inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    started = subprocess.run(
        [sys.executable, "-m", PROGRAM, "one", "ü"],
        cwd=tmp_path,
        env=environment,
        input="asked",
        capture_output=True,
        text=True,
        check=True,
    )
    with ForkedProcess(
        [PROGRAM, "one", "ü"],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        out, err = process.communicate("asked", timeout=WAIT_S)
    assert (process.returncode, err) == (0, started.stderr)
    assert json.loads(out) == json.loads(started.stdout)


def test_each_fork_has_its_own_process_id_random_numbers_and_file_names() -> None:
    found = [json.loads(run_program(PROGRAM, "values", timeout=WAIT_S).stdout) for _ in range(3)]
    assert [len(set(values)) for values in zip(*found, strict=True)] == [3] * 4


def test_exit_status_and_errors_are_those_of_a_started_program() -> None:
    ends = {
        words: (done.returncode, done.stderr.splitlines()[-1:])
        for words in (("exit", "0"), ("exit", "7"), ("exit", "no room"), ("raise",))
        for done in [run_program(PROGRAM, *words, timeout=WAIT_S)]
    }
    assert ends == {
        ("exit", "0"): (0, []),
        ("exit", "7"): (7, []),
        ("exit", "no room"): (1, ["no room"]),
        ("raise",): (1, ["ValueError: no reason"]),
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signals_and_waits_are_real(number: signal.Signals) -> None:
    with start_program(PROGRAM, "sleep", stdout=subprocess.PIPE) as process:
        assert isinstance(process, ForkedProcess)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait(WAIT_S) == -number
        assert process.poll() == -number
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.parametrize("name", ["NUMBA_DISABLE_JIT", "PYTHONOPTIMIZE", "SCHEDD_KERNEL_CACHE", "LD_PRELOAD"])
def test_program_is_started_if_a_variable_differs_that_is_read_at_import(name: str) -> None:
    process = start_program(PROGRAM, "exit", "0", env={**os.environ, name: ""})
    assert process.wait(WAIT_S) == 0
    assert not isinstance(process, ForkedProcess)
