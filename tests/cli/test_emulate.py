"""`schedd emulate` as a process: its input, output and errors."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from schedd.cli.emulate import run
from tests.cli.run_main import run_main
from tests.waits import WAIT_S

LOG = """; MaxProcs: 64
1 0 -1 30 2 -1 -1 2 60 -1 1 3 1 -1 -1 -1 -1 -1
2 5 -1 30 64 -1 -1 64 60 -1 1 4 1 -1 -1 -1 -1 -1
"""


def test_a_log_is_played_until_a_signal(tmp_path: Path) -> None:
    log = tmp_path / "small.swf"
    log.write_text(LOG)
    arguments = ["--workload", str(log), "--port", "0", "--scheduler-port", "9", "--nodes", "2:ppn=2"]
    command = [sys.executable, "-c", "import sys; from schedd.cli.main import main; sys.exit(main())"]
    with subprocess.Popen(
        [*command, "emulate", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        said = ""
        while not said.endswith("control-C ends it\n"):
            line = process.stdout.readline()
            assert line, said
            said += line
        process.stdin.write("skip 10\n")
        process.stdin.flush()
        assert process.stdout.readline() == "Q:1; nodes free:2\n"
        process.terminate()
        counted, complained = process.communicate(timeout=WAIT_S)
    assert counted == "1 submitted, 1 waiting; 0 runs accepted\n"
    assert process.returncode == 0, complained
    assert "1 job is wider than the cluster" in complained
    assert said.startswith("emulated pbs_server 6.1-dev on 127.0.0.1:")
    assert "2 nodes, 4 cores" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nodes", "many"],
        ["--until-finished"],
        ["--workload", "/nowhere/log.swf"],
        ["--lublin", "0"],
    ],
)
def test_bad_arguments_end_with_2_and_a_reason(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--port", "0"]) == 2
    assert capsys.readouterr().err.startswith("schedd emulate: ")


@pytest.mark.parametrize(
    "arguments", [["--compress", "0"], ["--compress", "nan"], ["--time-scale", "-1"], ["--port", "65536"]]
)
def test_numbers_out_of_bounds_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_main(["emulate", *arguments]) == 2
    assert f"argument {arguments[0]}: '{arguments[1]}': a " in capsys.readouterr().err


def test_a_busy_port_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert run(["--port", str(other.getsockname()[1])]) == 1
    assert "address already in use" in capsys.readouterr().err
