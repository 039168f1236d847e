"""``schedd rerun``: the decisions of an incident, once more."""

import json
from pathlib import Path

import pytest

from schedd.cli.main import main
from schedd.engine import Engine, EngineSettings
from schedd.engine.incident import dump_incident
from schedd.wire import Decision, JobFacts, JobQueued, NodeFacts, Snapshot

T = 1_700_000_000


def _incident(path: Path, settings: EngineSettings) -> list[Decision]:
    engine = Engine(settings, T)
    nodes = (NodeFacts(name="n1", cpus=4),)
    decisions = [*engine.handle([Snapshot(id="a:1", time=T, jobs=(), nodes=nodes)], T).decisions]
    engine.checkpoint()
    for i in range(3):
        job = JobFacts(id=str(i), owner="ann", queue="q", submitted=T, resources={"nodes": "1:ppn=4"})
        decisions += engine.handle([JobQueued(id=f"a:{2 + i}", time=T, job=job)], T + i).decisions
    path.write_text("\n".join(dump_incident(engine.incident())), encoding="utf-8")
    return decisions


def _rerun(path: Path) -> int:
    return main(["rerun", str(path)])


def test_a_rerun_prints_the_decisions_that_were_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "incident.jsonl"
    decisions = _incident(path, EngineSettings())
    assert _rerun(path) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["id"] for line in printed] == [decision.id for decision in decisions]
    assert printed[0]["type"] == "run"


def test_an_incident_that_lost_batches_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "incident.jsonl"
    _incident(path, EngineSettings(log_batches=2))
    assert _rerun(path) == 1
    assert "1 oldest batches are lost" in capsys.readouterr().err


def test_another_file_is_refused_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello\n", encoding="utf-8")
    assert _rerun(path) == 1
    assert "line 1: this is no incident" in capsys.readouterr().err
