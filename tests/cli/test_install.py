"""Bare names, man pages, completion, and the reference in the documentation."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.scripts.build import commands_page
from schedd.cli.main import BARE_COMMANDS, COMMANDS, main
from schedd.cli.manual import bash_completion, command_parsers, man_page, render_completion, render_man_page
from schedd.cli.user.command_session import EXIT_CODES
from schedd.feature_list import feature_commands
from server_adapter.main import make_parser
from tests.conftest import ROOT


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "venv" / "schedd"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def install(prefix: Path, program: Path) -> int:
    return main(["install", "--prefix", str(prefix), "--program", str(program)])


def test_bare_names_become_links_without_replacing_existing_files(
    tmp_path: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "usr"
    (prefix / "bin").mkdir(parents=True)
    mauis = prefix / "bin" / "showq"
    mauis.write_text("Maui's")
    (prefix / "bin" / "checkjob").symlink_to("/opt/maui/bin/checkjob")
    page = prefix / "share" / "man" / "man1" / "showq.1"
    page.parent.mkdir(parents=True)
    page.write_text(".TH showq 1 Maui")
    assert install(prefix, program) == 1
    shown = capsys.readouterr().out
    assert (mauis.read_text(), page.read_text()) == ("Maui's", ".TH showq 1 Maui")
    assert (prefix / "bin" / "checkjob").readlink() == Path("/opt/maui/bin/checkjob")
    assert shown.count("something else is there") == 3
    assert (prefix / "bin" / "showstart").readlink() == program
    assert (prefix / "bin" / "schedd").readlink() == program
    assert (prefix / "share" / "bash-completion" / "completions" / "showbf").exists()
    # Its own files are found and updated.
    own = prefix / "share" / "man" / "man1" / "showstart.1"
    own.write_text(man_page("showstart").replace("OPTIONS", "CHOICES"))
    assert install(prefix, program) == 1
    assert own.read_text() == man_page("showstart")


def test_unwritable_files_and_links_are_reported(
    tmp_path: Path, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert install(tmp_path / "file", program) == 2
    assert "Not a directory" in capsys.readouterr().err
    assert install(tmp_path, tmp_path / "none") == 2
    assert "is no program to link to" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["schedd", *BARE_COMMANDS])
def test_a_man_page_names_every_option(name: str) -> None:
    page = man_page(name)
    found = (
        [name] if name in BARE_COMMANDS else [one for one in command_parsers() if one not in BARE_COMMANDS]
    )
    assert found
    for option in (
        o for one in found for action in command_parsers()[one]._actions for o in action.option_strings
    ):
        assert option.replace("-", "\\-") in page
    if name == "schedd":
        assert all(f".B {command}".replace("-", "\\-") in page for command in COMMANDS)
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww"], input=page, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""
        # Bold is written by overstriking, or by escape sequences.
        assert "EXIT STATUS" in re.sub(r".\x08|\x1b\[\d+m", "", done.stdout)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["schedd", "showb"], ["showbf"]),
        (["schedd", "showq", "--j"], ["--json"]),
        (["/usr/local/bin/showplan", "--h"], ["--help", "--hours"]),
        (["showq", "1"], []),
        (["schedd", "reservation", "a"], ["add"]),
        (["schedd", "reservation", "add", "--every"], []),
        (["schedd", "policy", ""], ["show", "preview", "set", "withdraw"]),
        (["schedd", "hold", "--r"], ["--reason"]),
        (["schedd", "token", "rev"], ["revoke"]),
        (["schedd", "config", "ch"], ["check"]),
        (["schedd", "shadow-report", "--d"], ["--days"]),
        (["showq", "--sort", "l"], ["likely"]),
        (["showq", "-u", ""], ["user-1", "user-2"]),
        (["schedd", "hold", "-w", "node-2"], ["node-2"]),
        (["schedd", "release", "-w", ""], ["held-node-1", "held-node-2"]),
        (["schedd", "checkjob", "j"], ["job-1", "job-2"]),
        (["schedd", "checkjob", "1", "j"], []),
        (["schedd", "reservation", "remove", ""], ["reservation-1", "reservation-2"]),
    ],
)
def test_the_shell_completes_commands_options_and_values(
    words: list[str], expected: list[str], tmp_path: Path
) -> None:
    if not (bash := shutil.which("bash")):
        pytest.skip("there is no bash")
    script = tmp_path / "completion"
    script.write_text(bash_completion())
    array = " ".join(f"'{word}'" for word in words)
    code = (
        'schedd() { [ "$1" = __values ] && echo "$2-1 $2-2"; }; '
        f"source {script}; COMP_WORDS=({array}); COMP_CWORD={len(words) - 1}; _schedd; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run([bash, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (expected, "")


def test_the_adapter_has_a_man_page_and_completion_for_its_package() -> None:
    parser = make_parser()
    page, script = render_man_page(parser, "joins a pbs_server to schedd"), render_completion(parser)
    assert ".TH PBS-ADAPTER 1" in page
    for option in (option for action in parser._actions for option in action.option_strings):
        assert option.replace("-", "\\-") in page
    if bash := shutil.which("bash"):
        code = f"{script}\ncomplete -p pbs-adapter"
        done = subprocess.run([bash, "-c", code], capture_output=True, text=True, check=True)
        assert "--record-qrun" in done.stdout


def test_the_reference_matches_the_commands() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    assert "SUPPRESS" not in page, "options without help are left out"
    assert page == commands_page(), "run `make docs`"


def test_the_reference_includes_feature_commands() -> None:
    page = commands_page()
    names = feature_commands()
    assert names
    assert [name for name in names if f"\n## schedd {name}\n" not in page] == []


def test_the_exit_codes_are_on_the_page() -> None:
    page = (ROOT / "docs" / "users" / "commands.md").read_text("utf-8")
    assert "\n".join(f"| {code} | {words} |" for code, words in EXIT_CODES.items()) in page


def test_every_bare_name_is_a_command() -> None:
    assert set(BARE_COMMANDS) <= set(COMMANDS)
