"""Replays of a log under a priority formula."""

import json
from pathlib import Path

import pytest

from schedd.cli.main import main


def line(job: int, submitted: int, seconds: int) -> str:
    return f"{job} {submitted} -1 {seconds} 4 -1 -1 4 {seconds} -1 1 {job % 3} 1 1 1 -1 -1 -1"


def mean_wait(log: Path, formula: str, capsys: pytest.CaptureFixture[str], *said: str) -> float:
    file = log.with_name("schedd.toml")
    site = f"[clusters.main.site.formula]\nexpression = '{formula}'\n"
    file.write_text(f"[clusters.main]\nsearch_every = 0\n{site}", encoding="utf-8")
    out = log.with_name("rows.json")
    assert main(["replay", str(log), "--policy-file", str(file), "--json", str(out)]) == 0
    noted = capsys.readouterr().err
    assert "formula" in noted
    absent = f"terms that logs do not have count as 0: {', '.join(said)};"
    assert (absent in noted) is bool(said)
    rows = json.loads(out.read_text(encoding="utf-8"))
    return float(rows[-1]["avg_wait_s"])


def test_a_formula_orders_the_jobs_of_a_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.swf"
    jobs = [line(job, job, 4000 if job % 2 else 400) for job in range(1, 13)]
    log.write_text("; MaxProcs: 4\n; MaxNodes: 1\n" + "\n".join(jobs) + "\n", encoding="utf-8")
    assert mean_wait(log, "-walltime", capsys) < mean_wait(log, "walltime", capsys)
    own = "job_priority + queue_priority + server.max_run - walltime"
    terms = ("job_priority", "queue_priority", "server.max_run")
    assert mean_wait(log, own, capsys, *terms) == mean_wait(log, "-walltime", capsys)
