"""``schedd replay`` as a user calls it."""

import json
from pathlib import Path

import pytest

from schedd.cli.main import COMMANDS, main

_LINE = "{n} {submit} -1 {run} {procs} -1 -1 {procs} {run} -1 1 {n} 1 1 1 1 -1 -1\n"


def test_policies_are_compared_on_one_log(tmp_path: Path) -> None:
    log = tmp_path / "small.swf"
    jobs = [(0, 100, 3), (1, 100, 4), (2, 50, 1), (3, 10, 4)]
    log.write_text(
        "".join(_LINE.format(n=i + 1, submit=s, run=r, procs=p) for i, (s, r, p) in enumerate(jobs))
    )
    out = tmp_path / "out.json"
    args = ["replay", str(log), "--procs", "4", "--policy", "fcfs", "--policy", "conservative", "--validate"]
    assert main([*args, "--json", str(out)]) == 0
    waits = {row["policy"]: row["avg_wait_s"] for row in json.loads(out.read_text())}
    assert waits == {"fcfs": (0 + 99 + 198 + 247) / 4, "conservative": (0 + 99 + 0 + 197) / 4}


def test_a_missing_log_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(tmp_path / "none.swf"), "--procs", "4"]) == 2
    assert "none.swf" in capsys.readouterr().err


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)
