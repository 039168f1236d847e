"""``schedd import``: what the command prints, and how it ends."""

from pathlib import Path

import pytest

from schedd.cli.main import main
from schedd.policy.site import site_policy
from schedd.service.settings import ClusterSettings
from tests.cli.importing import EXAMPLES, settings_in


@pytest.mark.parametrize("file", ["maui.cfg", "torque/sched_config", "openpbs/sched_config"])
def test_what_is_printed_is_a_part_of_schedd_toml(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(EXAMPLES / file), "--cluster", "east"]) == 3
    printed = capsys.readouterr()
    table = settings_in(printed.out, "east")
    assert site_policy(ClusterSettings(**table).site.plain).fair_share is not None
    assert "as far as each of them still starts by its promise" in printed.err
    assert printed.err.startswith("Blockers: not supported, and it matters who runs (")
    blockers = [line for line in printed.out.splitlines() if line.startswith("# BLOCKER")]
    assert len(blockers) == int(printed.err.partition("(")[2].partition(")")[0])


def test_a_file_without_blockers_is_done_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "maui.cfg").write_text("QUEUETIMEWEIGHT 1\nUSERCFG[a-b] MAXJOB=4\n")
    out = tmp_path / "part.toml"
    assert main(["import", str(tmp_path / "maui.cfg"), "-o", str(out)]) == 0
    assert settings_in(out.read_text())["site"]["limits"] == [
        {"amount": 4, "what": "jobs", "who": "user", "name": "a-b"}
    ]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("moab.cfg", "QUEUETIMEWEIGHT 1\n"),
        ("site.cfg", "SCHEDCFG[Moab] SERVER=head:42559\nQUEUETIMEWEIGHT 1\n"),
        ("site.cfg", "POWERPOLICY ONDEMAND\nQUEUETIMEWEIGHT 1\n"),
    ],
)
def test_a_moab_cfg_is_known_as_one(
    tmp_path: Path, name: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    main(["import", str(tmp_path / name)])
    assert "this is Moab's configuration" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "more", "said"),
    [
        ("notes.txt", "hello\n", [], "say which with --from"),
        ("maui.cfg", "USERCFG[a] MAXJOB=1\n", ["--cluster", "a b"], "a name has letters"),
        (
            "maui.cfg",
            "FSPOLICY DEDICATEDPS\nFSUSERWEIGHT 1\nFSDECAY 9\nUSERCFG[a] FSTARGET=1\n",
            [],
            "nothing was written",
        ),
        ("maui.cfg", "USERCFG[a] MAXJOB=1\n", ["-o", "/nowhere/x"], "/nowhere/x: No such file"),
    ],
)
def test_what_cannot_be_done_is_said(
    tmp_path: Path, name: str, text: str, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["import", str(tmp_path / name), *more]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "/nowhere/maui.cfg"]) == 2
    assert "/nowhere/maui.cfg: No such file" in capsys.readouterr().err
