"""The dispatcher of commands: its output, and imports that it must avoid."""

import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

from schedd import __version__
from schedd.cli.main import BARE_COMMANDS, COMMANDS, main
from tests.conftest import ROOT

SLOW = ("numpy", "numba", "pydantic", "fastapi", "sqlalchemy", "matplotlib", "typer", "rich")
"""Libraries that a command for users must not load."""
COSTLY = ("dataclasses", "inspect", "subprocess", "asyncio", "tokenize")
"""Modules of Python that take a tenth to a fifth of the import of a command."""


def slow_libraries(code: str) -> set[str]:
    """The slow libraries loaded in a fresh interpreter after `code`."""
    script = f"import sys\n{code}\nprint('loaded', *(set({SLOW + COSTLY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert main([]) == 2


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"schedd {__version__}\n"


def test_mistyped_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reply"]) == 2
    assert capsys.readouterr().err == "schedd: no command 'reply'; did you mean replay?\n"
    assert main(["xyzzy"]) == 2
    assert "schedd --help" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_usage_errors_are_single_lines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main([name, "--nonsense"])
    except SystemExit as end:  # argparse ends the process itself
        code = end.code
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    assert shown.err.startswith(f"schedd {name}: ")
    assert "--nonsense" in shown.err or "are required: " in shown.err
    assert shown.err.endswith(f"; `schedd {name} --help` says what there is\n")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("token",), "schedd token: missing command; there is create, list, revoke; "),
        (("token", "make"), "schedd token: no such command 'make'; there is create, list, revoke; "),
        (("config", "chek"), "schedd config: no such command 'chek'. Did you mean 'check'?; "),
        (("token", "create", "a", "--role", "x"), "schedd token create: invalid value for --role: no role"),
        (("token", "revoke"), "schedd token revoke: missing argument 'token'; `schedd token revoke --help`"),
        (("replay", "--nodes"), "schedd replay: option '--nodes' requires an argument; "),
        (("reservation", "make"), "schedd reservation: argument ACTION: invalid choice: 'make' (choose from"),
    ],
)
def test_errors_name_their_location(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(arguments)
    except SystemExit as end:
        code = end.code
    shown = capsys.readouterr()
    assert (code, shown.out, shown.err.count("\n")) == (2, "", 1)
    assert shown.err.startswith(said)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_spec(COMMANDS[name][0]) is not None
    module = import_module(COMMANDS[name][0])
    assert any(hasattr(module, entry) for entry in ("command", "app", "run"))
    try:
        assert main([name, "--help"]) == 0
    except SystemExit as end:  # argparse ends the process itself
        assert end.code == 0
    assert f"schedd {name}" in capsys.readouterr().out


def test_user_commands_load_no_slow_library() -> None:
    assert slow_libraries("import schedd.cli.main") == set()
    assert slow_libraries("from schedd.cli.main import main; main(['--help']); main(['--version'])") == set()
    assert slow_libraries("import schedd, schedd.wire").isdisjoint(SLOW)


@pytest.mark.parametrize("name", BARE_COMMANDS)
def test_a_users_command_loads_no_slow_library(name: str) -> None:
    args = [name, "--url", "http://127.0.0.1:9", *(["1"] if name in ("showstart", "checkjob") else [])]
    assert slow_libraries(f"from schedd.cli.main import main; assert main({args}) == 4") == set()


def test_commands_about_jobs_of_a_federation_load_no_slow_library() -> None:
    commands = ", ".join(f"schedd.federation.commands.{name}" for name in ("bag", "cancel", "submit"))
    assert slow_libraries(f"import schedd.cli.main, {commands}") == set()


def test_replay_help_loads_no_numeric_library() -> None:
    loaded = slow_libraries("from schedd.cli.main import main; assert main(['replay', '--help']) == 0")
    assert {"typer", "dataclasses"} <= loaded  # the check can detect them
    assert loaded.isdisjoint({"numpy", "numba", "matplotlib"})


@pytest.mark.parametrize(
    "name", [*BARE_COMMANDS, "cost", "objectives", "optimise", "alternatives", "reservation"]
)
def test_user_command_help_fits_the_terminal(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([name, "--help"])
    assert all(len(line) <= 80 for line in capsys.readouterr().out.splitlines())


def test_commands_are_in_alphabetical_order() -> None:
    assert list(COMMANDS) == sorted(COMMANDS)


@pytest.mark.parametrize("arguments", ["--help", "replay --help", "config reference"])
def test_a_closed_pipe_is_no_error(arguments: str) -> None:
    pipe = f"{sys.executable} -m schedd.cli.main {arguments} | head -1"
    shown = subprocess.run(pipe, shell=True, check=True, capture_output=True, text=True, cwd=ROOT)
    assert shown.stdout
    assert shown.stderr == ""
