"""The dispatcher of commands: its output, and imports that it must avoid."""

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec

import pytest

from schedd import __version__
from schedd.cli.main import BARE_COMMANDS, COMMANDS, main
from tests.cli.run_main import run_main
from tests.conftest import ROOT

SLOW = ("numpy", "numba", "pydantic", "fastapi", "sqlalchemy", "matplotlib", "rich")
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


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1"])
def test_terminals_without_utf8_get_question_marks_and_escaped_json(encoding: str) -> None:
    shown = run_in_terminal(encoding, "from schedd.cli.main import main; main(['submit', '--help'])")
    assert "--only CLUSTER,?" in shown
    name = "from schedd.cli.user.command_session import show_json; show_json({'name': 'long…'})"
    assert run_in_terminal(encoding, name) == '{"name": "long\\u2026"}\n'
    assert run_in_terminal("utf-8", name) == '{"name": "long…"}\n'


def run_in_terminal(encoding: str, code: str) -> str:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=environment)
    return done.stdout.decode(encoding)


def test_mistyped_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reply"]) == 2
    assert capsys.readouterr().err == "schedd: no command 'reply'; did you mean replay?\n"
    assert main(["status"]) == 2
    assert capsys.readouterr().err.endswith("did you mean doctor?\n")
    assert main(["xyzzy"]) == 2
    assert "schedd --help" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_usage_errors_are_single_lines(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_main([name, "--nonsense"])
    shown = capsys.readouterr()
    assert (code, shown.out) == (2, "")
    assert shown.err.startswith(f"schedd {name}: ")
    assert "--nonsense" in shown.err or "are required: " in shown.err
    assert shown.err.endswith(f"; `schedd {name} --help` shows the usage\n")
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("token",), "schedd token: the following arguments are required: ACTION; `schedd token --help`"),
        (("token", "make"), "schedd token: argument ACTION: invalid choice: 'make' (choose from"),
        (("config", "chek"), "schedd config: argument ACTION: invalid choice: 'chek' (choose from"),
        (
            ("token", "create", "a", "--role", "x"),
            "schedd token create: argument --role: invalid choice: 'x'",
        ),
        (("token", "revoke"), "schedd token revoke: the following arguments are required: TOKEN; "),
        (("replay", "--nodes"), "schedd replay: argument --nodes: expected one argument; "),
        (("replay", "--hold", "-1"), "schedd replay: argument --hold: '-1': a whole number of at least 0 is"),
        (
            ("audit", "--most", "many"),
            "schedd audit: argument --most: 'many': a whole number from 1 to 100,0",
        ),
        (("history",), "schedd history: name either a job or a node; "),
        (("shadow-report", "--days", "nan"), "schedd shadow-report: argument --days: 'nan': a number from 0"),
        (("reservation", "make"), "schedd reservation: argument ACTION: invalid choice: 'make' (choose from"),
    ],
)
def test_errors_name_their_location(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_main(arguments)
    shown = capsys.readouterr()
    assert (code, shown.out, shown.err.count("\n")) == (2, "", 1)
    assert shown.err.startswith(said)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert find_spec(COMMANDS[name][0]) is not None
    assert hasattr(import_module(COMMANDS[name][0]), "run")
    assert run_main([name, "--help"]) == 0
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


def test_help_of_replay_and_of_database_commands_loads_no_slow_library() -> None:
    """One process for all: a library that one of them loads is found in any order."""
    parsers = "; ".join(
        f"import schedd.cli.{name} as one; one.make_parser().format_help()"
        for name in ("audit", "replay", "token")
    )
    assert slow_libraries(f"{parsers}; import rich").intersection(SLOW) == {"rich"}  # the check detects it


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
