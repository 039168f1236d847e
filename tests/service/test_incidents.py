"""Incident files: failed calls of the planner, which can be rerun."""

from pathlib import Path

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.incident import read_incident, rerun_incident
from schedd.engine.show.job_view import job_view
from schedd.plan.kernels.layout import DUR
from schedd.plan.plan import Plan
from schedd.service.cluster.incidents import IncidentFiles
from schedd.service.clusters import new_engine
from schedd.wire import Run
from tests.service.planner_harness import T, job, node, planner
from tests.waits import WAIT_S


def test_failed_call_is_written_as_an_incident_and_reruns(tmp_path: Path) -> None:
    folder = tmp_path / "incidents"
    with planner(incidents=IncidentFiles(folder, most=2)) as loop:
        loop.submit([node("n1"), job("1")]).result(WAIT_S)

        def broken(engine: Engine) -> None:
            def fail(*_: object) -> None:
                raise RuntimeError("broken on purpose")

            engine.handle = fail  # type: ignore[assignment, method-assign]

        loop.call_between_batches(broken).result(WAIT_S)
        assert loop.submit([job("2")]).result(WAIT_S).accepted == 1
        assert loop.alive
    (file,) = folder.iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == (f"main-{T}-passed-over.jsonl", 0o600)
    incident = read_incident(file.read_text().splitlines())
    decisions = [d for made in rerun_incident(incident.checkpoint, incident.batches) for d in made]
    assert [d.job_id for d in decisions if isinstance(d, Run)] == ["1"]


def test_failing_job_writes_an_incident_at_most_every_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Plan.place

    def fail(plan: Plan, slot: int, *rest: int) -> int:
        if plan.slabs.tb.jobs[DUR, slot] == 13:
            raise RuntimeError("broken on purpose")
        return place(plan, slot, *rest)

    monkeypatch.setattr(Plan, "place", fail)
    with planner(incidents=IncidentFiles(tmp_path), end_allowance=0) as loop:
        loop.submit([node("n1"), job("1", walltime="13")]).result(WAIT_S)
        loop.submit([job("2", walltime="13"), job("3")]).result(WAIT_S)
        answers = [job_view(loop.published, number) for number in "123"]
    assert [file.name for file in tmp_path.iterdir()] == [f"main-{T}-quarantine.jsonl"]
    assert [view.answer for view in answers if view is not None] == [
        "waiting",
        "waiting",
        "start_known",
    ]


def test_unwritable_folder_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    incident = new_engine(EngineSettings(), T).incident()
    assert IncidentFiles(tmp_path / "file").write("main", "stopped", incident, T) is None


def test_oldest_incidents_are_deleted(tmp_path: Path) -> None:
    incidents, incident = IncidentFiles(tmp_path, most=2), new_engine(EngineSettings(), T).incident()
    kept = [incidents.write("main", "stopped", incident, T + i) for i in range(4)]
    assert (
        {file for file in kept if file is not None and file.exists()}
        == set(tmp_path.iterdir())
        == set(kept[2:])
    )
