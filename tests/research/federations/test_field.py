"""Simulated federations: what is routed runs once, within what there is; measures; the commands."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from research.benchmarks.command import run as run_bench
from research.federations.bench import bench_federation
from research.federations.bench_figures import to_json
from research.federations.field import ClusterSpec, FieldJob, FieldResult, Routing, simulate
from research.federations.grid import KINDS, SIZES, paper, side_by_side
from research.federations.measures import worth
from research.studies import modes as experiment_modes
from research.studies import routing as experiment_routing
from schedd.replay.workload import TraceError
from schedd.wire import NodeFacts

SWF = "; MaxProcs: {procs}\n"
LINE = "{id} {submit} 0 {run} {procs} -1 -1 {procs} {limit} -1 1 {user} 1 -1 1 -1 -1 -1\n"


def job(submit: int, run: int = 100, cpus: int = 1, **more: object) -> FieldJob:
    found = {"clusters": ("a", "b"), "load": float(run * cpus), **more}
    resources = {"nodes": f"1:ppn={cpus}", "walltime": str(run)}
    return FieldJob(submit, run, run, cpus, resources, **found)  # type: ignore[arg-type]


def two(**licences: int) -> list[ClusterSpec]:
    return [
        ClusterSpec("a", (NodeFacts(name="a1", cpus=2),), licences),
        ClusterSpec("b", (NodeFacts(name="b1", cpus=1),), licences),
    ]


def test_jobs_go_where_the_plan_ends_them_first() -> None:
    ran = simulate(two(), [job(0), job(0), job(0), job(1)], "plan")
    assert Counter(ran.cluster) == {"a": 3, "b": 1}
    assert ran.start[:3] == (0, 0, 0)
    assert ran.start[3] == 100


def test_at_home_every_job_stays() -> None:
    ran = simulate(two(), [job(0, home="b"), job(0, home="b")], "home")
    assert (ran.cluster, ran.start) == (("b", "b"), (0, 100))


@pytest.mark.parametrize("routing", ["plan", "least-loaded", "load", "load as printed", "random"])
def test_every_job_of_the_papers_grid_runs_once_within_what_there_is(routing: Routing) -> None:
    clusters, jobs = paper(60, 5.0, 1)
    assert [len(spec.nodes) for spec in clusters] == list(SIZES.values())
    ran = simulate(clusters, jobs, routing)
    for spec in clusters:
        mine = [i for i, at in enumerate(ran.cluster) if at == spec.name]
        for what, most in (("cpus", spec.cpus), *spec.licences.items()):
            amount = [jobs[i].cpus if what == "cpus" else int(what in jobs[i].licences) for i in mine]
            for moment in {ran.start[i] for i in mine}:
                used = sum(
                    n for n, i in zip(amount, mine, strict=True) if ran.start[i] <= moment < ran.end[i]
                )
                assert used <= most, (spec.name, what)
    assert all(end - start == one.run for start, end, one in zip(ran.start, ran.end, jobs, strict=True))
    assert all(start >= one.submit for start, one in zip(ran.start, jobs, strict=True))


def test_the_papers_jobs_are_drawn_as_it_says() -> None:
    _, jobs = paper(2_000, 10.0, 3)
    assert {one for job in jobs for one in job.licences} == set(KINDS)
    assert np.mean([bool(one.licences) for one in jobs]) == pytest.approx(0.3, abs=0.04)
    assert np.mean([one.deadline is None for one in jobs]) == pytest.approx(0.3, abs=0.04)
    assert jobs[-1].submit / len(jobs) == pytest.approx(10, rel=0.1)
    margins = [one.deadline - one.submit - one.run for one in jobs if one.deadline is not None]
    assert 1_500 <= min(margins) < 1_600
    assert 5_400 < max(margins) <= 5_500
    assert {one.submit for one in paper(5, 0.0, 1)[1]} == {0}
    with pytest.raises(ValueError, match="one each"):
        paper(0, 1.0, 1)


def test_measures_are_those_of_the_paper() -> None:
    clusters = two(l1=1)
    jobs = [
        job(0, 100, 2, deadline=150, licences=("l1",)),
        job(0, 100, 2, licences=("l1",)),
        job(0, 50, 1, deadline=40),
    ]
    found = worth(clusters, jobs, FieldResult(("a", "a", "b"), (0, 100, 0), (100, 200, 50)))
    assert found.share == {"a": 400 / 450, "b": 50 / 450}
    assert found.late == {"a": 0.0, "b": 1.0, "all": pytest.approx(1 / 3)}
    assert found.late_jobs == {"a": 0, "b": 1, "all": 1}
    assert found.slowdown == {"a": 2.0, "b": None, "all": 2.0}
    assert found.processors["a"] == 1.0  # two of two cpus, all the time that any is asked for
    assert found.licences == {"a": 1.0, "b": None, "all": 1.0}
    assert found.wait["a"] == 50.0
    # Half of the time one cpu of the three stands empty though two jobs want it.
    assert found.processors["all"] == pytest.approx((3 * 50 + 2 * 150) / (3 * 100 + 2 * 100))


def logs(directory: Path) -> list[Path]:
    found = []
    for name, procs in (("one", 4), ("two", 2)):
        lines = [
            LINE.format(id=n + 1, submit=100 + 10 * n, run=50, procs=1 + n % procs, limit=80, user=n % 3)
            for n in range(12)
        ]
        path = directory / f"{name}.swf"
        path.write_text(SWF.format(procs=procs) + "".join(lines))
        found.append(path)
    return found


def test_logs_side_by_side_begin_together(tmp_path: Path) -> None:
    paths = logs(tmp_path)
    clusters, jobs = side_by_side(paths, 10, 1)
    assert [(spec.name, spec.cpus) for spec in clusters] == [("one", 4), ("two", 2)]
    assert [one.submit for one in jobs[:2]] == [0, 0]
    assert {one.clusters for one in jobs if one.cpus > 2} == {("one",)}
    assert len(simulate(clusters, jobs, "plan").cluster) == 20
    with pytest.raises(TraceError, match="defined twice"):
        side_by_side([paths[0], paths[0]], 5, 0)


def test_the_experiment_writes_a_page_and_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [path.name for path in logs(tmp_path)]
    monkeypatch.setattr(experiment_routing, "_LOGS", names)
    monkeypatch.setattr(experiment_routing, "_FROM", 0)
    monkeypatch.setattr(experiment_routing, "_OF_EACH_LOG", 12)
    monkeypatch.setattr(experiment_routing, "_STREAMS", (0.0, 5.0))
    # In this process: the figures are the same, and no worker has to begin.
    monkeypatch.setattr(experiment_routing, "at_once", lambda run, todo, _: [run(*args) for args in todo])
    experiment_routing.run_routing(tmp_path, tmp_path, quick=False, only=(), jobs=12, repetitions=1)
    page = (tmp_path / "routing.md").read_text()
    assert "| plan |" in page
    assert "Beside what the paper says" in page
    assert "at home" in page
    document = json.loads((tmp_path / "routing.json").read_text())
    assert len(document["results"]) == 2 * 6 + 5
    with pytest.raises(TraceError, match="there are paper and logs"):
        experiment_routing.run_routing(tmp_path, tmp_path, quick=True, only=("x",))
    with pytest.raises(TraceError, match="it has no"):
        experiment_routing.run_routing(tmp_path / "none", tmp_path, quick=True, only=("logs",))


def test_light_and_full_mode_are_compared_by_deadlines_and_cycles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experiment_modes, "_STREAMS", (5.0,))
    monkeypatch.setattr(experiment_modes, "at_once", lambda run, todo, _: [run(*args) for args in todo])
    experiment_modes.run_modes(tmp_path, tmp_path, quick=False, only=(), jobs=400, repetitions=1)
    document = json.loads((tmp_path / "modes.json").read_text())
    rows = {row["setup"]: row for row in document["results"]}
    assert set(rows) == {"no heuristics", "no priorities", "light", "full"}
    # What full mode has more is going through all jobs again and again.
    assert rows["light"]["cycles"] < 0.95 * rows["full"]["cycles"]
    assert rows["light"]["planner_s"] < rows["full"]["planner_s"]
    assert 0 < rows["light"]["late"]["all"] < 1
    assert "| light | " in (tmp_path / "modes.md").read_text()
    with pytest.raises(TraceError, match="has no parts"):
        experiment_modes.run_modes(tmp_path, tmp_path, quick=True, only=("x",))
    with pytest.raises(TraceError, match="at least 1"):
        experiment_modes.run_modes(tmp_path, tmp_path, quick=True, only=(), jobs=-1)


def test_a_bench_routes_through_real_planners_and_states_the_traffic() -> None:
    found = bench_federation(3, 4, 12, routed=6, rate=50.0, shapes=2, poll=0.3)
    document = json.loads(to_json(found))
    assert found.known + found.asked == 6
    assert document["decision_ms"]["p50"] > 0
    assert found.known == 0 or 0 < found.decision_cpu_ms["p50"] <= found.known_ms["longest"]
    assert found.requests["PUT transfers"] >= 1
    assert found.sent["PUT transfers"] > 500  # a script goes with every job
    assert found.received["GET transfers"] > 0
    found = bench_federation(2, 22, 8, routed=4, rate=50.0, shapes=8, poll=0.3, profile="metacentrum")
    assert found.known + found.asked == 4  # some of these shapes ask for nodes with a property
    with pytest.raises(ValueError, match="a cluster, a node"):
        bench_federation(0)


def test_jobs_that_ask_for_something_new_wait_for_all_clusters_answers() -> None:
    found = bench_federation(2, 4, 8, routed=4, rate=50.0, shapes=2, poll=0.3, new=1.0)
    assert (found.known, found.asked) == (0, 4)
    assert found.asked_ms["p50"] > 0
    assert found.decision_ms == found.asked_ms
    assert found.requests["POST what-if"] >= 2, "each asks both clusters"
    with pytest.raises(ValueError, match=r"1.5 of the jobs ask for something new: .* from 0 to 1"):
        bench_federation(2, new=1.5)


def test_clusters_in_a_process_of_their_own_are_measured_alike() -> None:
    found = bench_federation(2, 4, 8, routed=4, rate=50.0, shapes=2, poll=0.3, apart=True)
    assert found.known + found.asked == 4
    assert found.requests["PUT transfers"] >= 1
    assert found.sent["PUT transfers"] > 500
    assert found.received["GET transfers"] > 0
    assert found.cpu_ms > 0


def _ends(*_: object) -> None:
    """A process that ends at once."""


def test_clusters_that_do_not_come_up_are_an_error_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("research.federations.apart._serve", _ends)
    monkeypatch.setattr("structlog.configure", lambda **_: None)  # the tests after this one look at logs
    small = ["--clusters", "2", "--nodes", "2", "--jobs", "4", "--routed", "2", "--profile", "uniform"]
    assert run_bench(["federation", "--apart", *small]) == 1
    assert "ended before they were full" in capsys.readouterr().err
