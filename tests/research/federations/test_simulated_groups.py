"""Groups in simulated federations: they keep their start, shift or are mapped anew; the thesis' measures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from research.federations import worlds
from research.federations.field import ClusterSpec, FieldJob, FieldResult
from research.federations.group_measures import busy, fates, group_waits, local_waits, losses
from research.federations.groups import GroupJob, GroupRan, Moving, simulate_groups
from research.federations.worlds import Source, three_clusters
from research.studies import command
from research.studies import flexco as experiment_flexco
from schedd.replay.workload import TraceError
from schedd.wire import NodeFacts

LINE = "{id} {submit} 0 {run} {procs} -1 -1 {procs} {asked} -1 1 {user} 1 -1 1 -1 -1 -1\n"
NOTICE = 60
"""A start is planned so far ahead."""


def clusters(**cpus: int) -> list[ClusterSpec]:
    return [ClusterSpec(name, (NodeFacts(name=f"{name}1", cpus=of),)) for name, of in cpus.items()]


def job(submit: int, run: int, cpus: int, home: str, walltime: int = 0) -> FieldJob:
    asked = walltime or run
    words = {"procs": str(cpus), "walltime": str(asked)}
    return FieldJob(submit, run, asked, cpus, words, float(run * cpus), (home,), home=home)


def group(submit: int, run: int, *parts: int, walltime: int = 0, overhead: int = 20) -> GroupJob:
    return GroupJob(submit, run, walltime or run, parts, overhead)


def test_a_group_that_fits_nowhere_alone_starts_at_one_moment_and_runs_longer() -> None:
    local = [job(0, 500, 4, "a"), job(0, 900, 4, "b")]
    ran, (one,) = simulate_groups(clusters(a=4, b=4), local, [group(1, 1_000, 4, 4)], "remap")
    assert ran.start == (0, 0)
    assert (one.promised, one.start, one.end) == (900, 900, 900 + 1_200)
    assert (one.first, one.clusters) == (2, 2)


def test_a_group_on_one_cluster_has_no_overhead() -> None:
    local = [job(0, 10, 1, "a")]
    _, (one,) = simulate_groups(clusters(a=4, b=4), local, [group(100, 1_000, 2, 2)], "rigid")
    assert (one.start, one.end, one.clusters) == (100 + NOTICE, 100 + NOTICE + 1_000, 1)


@pytest.mark.parametrize(("moving", "start"), [("rigid", 5_000), ("shift", 1_000), ("remap", 1_000)])
def test_only_who_may_move_takes_the_hole_that_an_early_end_leaves(moving: Moving, start: int) -> None:
    local = [job(0, 1_000 - NOTICE, 4, "a", walltime=5_000)]
    some = [group(1, 2_000, 4, 4)]
    _, (one,) = simulate_groups(clusters(a=4, b=4), local, some, moving, again=1)
    assert (one.promised, one.start) == (5_000, start)
    assert one.shifts == (moving != "rigid")
    assert one.remaps == 0


@pytest.mark.parametrize(("moving", "where"), [("shift", 2), ("remap", 1)])
def test_only_who_may_be_mapped_anew_comes_to_one_cluster(moving: Moving, where: int) -> None:
    """On both a and b at 3,000; c is empty from 1,000 on, and has room for all of it."""
    local = [
        job(0, 3_000, 2, "a"),
        job(0, 3_000, 2, "b"),
        job(0, 1_000, 4, "c", walltime=9_000),
    ]
    some = [group(1, 2_000, 2, 2)]
    _, (one,) = simulate_groups(clusters(a=2, b=2, c=4), local, some, moving, again=1)
    assert (one.promised, one.first) == (3_000, 2)
    assert one.clusters == where
    if moving == "remap":
        assert (one.start, one.end, one.remaps) == (1_000 + NOTICE, 3_000 + NOTICE, 1)
    else:
        assert (one.start, one.end) == (3_000, 5_400)


def test_local_jobs_have_the_first_choice_of_a_hole() -> None:
    local = [
        job(0, 500, 4, "a", walltime=5_000),
        job(0, 400, 4, "b"),
        job(2, 2_000, 4, "a"),  # behind the group that was told 5,000
    ]
    ran, (one,) = simulate_groups(clusters(a=4, b=4), local, [group(1, 3_000, 4, 4)], "shift", again=1)
    assert ran.start[2] == 500
    assert one.promised == 5_000
    assert one.start == 2_500


def test_plans_are_asked_no_more_often_than_is_said() -> None:
    local = [job(0, 1_500, 4, "a", walltime=4_500), job(0, 1_000, 4, "b", walltime=5_000)]
    some = [group(1, 2_000, 4, 4)]
    _, (often,) = simulate_groups(clusters(a=4, b=4), local, some, "shift", again=1)
    _, (seldom,) = simulate_groups(clusters(a=4, b=4), local, some, "shift", again=900)
    assert often.promised == seldom.promised == 5_000
    assert (often.start, often.shifts) == (1_500 + NOTICE, 2)
    assert (seldom.start, seldom.shifts) == (4_500, 1)


def test_measures_are_those_of_the_thesis() -> None:
    ran = [
        GroupRan(100, 50, 250, 2, 1, 0, 1),
        GroupRan(100, 100, 300, 1, 2, 1, 0),
        GroupRan(9, 9, 10, 1, 1, 0, 0),
    ]
    found = fates(ran)
    assert (found.several, found.to_one, found.spread) == (1 / 3, 1.0, 1 / 3)
    assert (found.earlier, found.later) == (1 / 3, 0.0)
    assert found.gained == pytest.approx(50 / 3)
    assert found.clusters == pytest.approx(4 / 3)
    assert (found.shifts, found.remaps) == (1, 1)
    assert fates(ran[1:]).to_one == 0.0
    waits = group_waits([group(0, 200, 1)] * 3, ran)
    assert (waits.jobs, waits.longest) == (3, 300)
    assert waits.response == pytest.approx(560 / 3)
    assert waits.wait == pytest.approx(159 / 3)
    assert waits.slowdown == 1.0  # bounded at ten minutes
    local = [job(0, 1_000, 2, "a"), job(500, 100, 1, "a")]
    before, after = (
        FieldResult(("a", "a"), (0, 1_000), (1_000, 1_100)),
        FieldResult(("a", "a"), (200, 700), (1_200, 800)),
    )
    assert local_waits(local, before).slowdown == pytest.approx(1.0)
    assert local_waits(local, after).slowdown == pytest.approx((1.2 + 1.0) / 2)
    against = losses(after, before)
    assert (against.later, against.lost, against.earlier, against.gained) == (0.5, 200, 0.5, 300)
    assert losses(before, before).lost == 0.0
    used = busy(clusters(a=4), local, before, [group(0, 200, 1, 1)], ran[:1], 1_000)
    assert used == pytest.approx((2 * 1_000 + 2 * 200) / 4_000)


@pytest.fixture
def thesis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small logs and clusters in the place of the thesis' own."""
    path = tmp_path / "log.swf"
    lines = [
        LINE.format(
            id=n + 1,
            submit=600 * n,
            run=3_600 + 60 * (n % 7),
            procs=1 + n % 8,
            asked=9_000 + 60 * (n % 5),
            user=n % 3,
        )
        for n in range(900)
    ]
    path.write_text("; MaxProcs: 8\n" + "".join(lines))
    local = tuple(
        Source(name, "log.swf", cpus, 0.5, (1, 4), (1, 9_000), part)
        for name, cpus, part in (("ctc", 8, 0.0), ("hpc2n", 6, 0.3), ("sdsc", 4, 0.5))
    )
    outside = {
        load: Source("groups", "log.swf", 18, share, (6, 8), (1, 9_000), 0.1)
        for load, share in ((10, 0.15), (30, 0.3))
    }
    for where in (worlds, experiment_flexco):
        monkeypatch.setattr(where, "SITES", local)
        monkeypatch.setattr(where, "GROUPS", outside)
        monkeypatch.setattr(where, "GROUP_LOGS", ("log.swf",))
    monkeypatch.setattr(worlds, "_PART", 3)
    return tmp_path


def test_three_clusters_have_jobs_of_their_own_and_groups_from_outside(thesis: Path) -> None:
    specs, jobs, groups = three_clusters(thesis, 2.0, 30, 0, 1)
    assert {spec.name: spec.cpus for spec in specs} == {"ctc": 8, "hpc2n": 6, "sdsc": 4}
    for spec in specs:
        work = sum(one.load for one in jobs if one.home == spec.name)
        assert work / (spec.cpus * 2 * 86_400) == pytest.approx(0.5, abs=0.1)
    assert {one.parts for one in groups} == {(3, 3), (3, 3, 1), (3, 3, 2)}
    assert max(one.overhead for one in groups) == 25
    assert min(one.overhead for one in groups) < 20
    better = three_clusters(thesis, 2.0, 30, 50, 1)
    assert [one.run for one in better[1]] == [one.run for one in jobs]
    for exact, one in zip(better[1], jobs, strict=True):
        assert exact.walltime == one.run + (one.walltime - one.run) // 2
    fewer = three_clusters(thesis, 2.0, 10, 0, 1)
    assert [one.submit for one in fewer[1]] == [one.submit for one in jobs]
    assert len(fewer[2]) < len(groups)
    with pytest.raises(TraceError, match="has not enough"):
        three_clusters(thesis, 60.0, 30, 0, 1)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("moving", ["rigid", "shift", "remap"])
def test_no_group_starts_later_than_it_was_told_and_nothing_is_run_over(
    thesis: Path, moving: Moving, seed: int
) -> None:
    specs, jobs, groups = three_clusters(thesis, 1.0, 30, 0, seed)
    ran, of_groups = simulate_groups(specs, jobs, groups, moving, again=60)
    assert all(one.start <= one.promised for one in of_groups)
    assert all(one.start >= spec.submit + NOTICE for one, spec in zip(of_groups, groups, strict=True))
    for one, spec in zip(of_groups, groups, strict=True):
        longer = 0 if one.clusters == 1 else spec.run * spec.overhead // 100
        assert one.end - one.start == spec.run + longer
    moved = sum(one.shifts + one.remaps for one in of_groups)
    assert (moved == 0) == (moving == "rigid")
    assert moving == "remap" or not any(one.remaps or one.clusters != one.first for one in of_groups)
    assert all(end - start == one.run for start, end, one in zip(ran.start, ran.end, jobs, strict=True))
    assert all(start >= one.submit for start, one in zip(ran.start, jobs, strict=True))


def _here(run: Callable[..., Any], todo: Sequence[Any], _: int | None) -> list[Any]:
    """In this process: the figures are the same, and no worker has to begin."""
    return [run(*args) for args in todo]


def test_the_experiment_writes_a_page_beside_what_the_thesis_says(
    thesis: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("structlog.configure", lambda **_: None)  # the tests after this one look at logs
    monkeypatch.setattr(experiment_flexco, "at_once", _here)
    monkeypatch.setattr(experiment_flexco, "_PRECISIONS", (0, 50))
    monkeypatch.setattr(
        experiment_flexco, "three_clusters", lambda logs, _, *more: three_clusters(logs, 0.3, *more)
    )
    experiment_flexco.run_flexco(thesis, thesis, quick=True, only=(), repetitions=2)
    page = (thesis / "flexco-quick.md").read_text()
    assert "python -m research experiment flexco --quick --repetitions 2 --logs LOGS" in page
    assert [page.count(f"| {way} |") for way in ("alone", "rigid", "shift", "remap")] == [4, 8, 12, 12]
    assert "| About 15 % of jobs on several clusters end on one" in page
    assert "| None starts later | later: shift 10 %: 0.0, 0.0; 30 %: 0.0, 0.0; remap" in page
    with pytest.raises(TraceError, match=r"it has no log\.swf"):
        experiment_flexco.run_flexco(thesis / "none", thesis, quick=True, only=())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["flexco", "--jobs", "5"], "--jobs is for routing, modes, fairness, repair_order alone"),
        (["flexco", "--part", "rest"], "no --part"),
        (["flexco", "--dask", "tcp://127.0.0.1:1"], "no --part, --dask"),
        (["flexco"], "it has no CTC-SP2-1996-3.1-cln.swf.gz, HPC2N-2002-2.1-cln.swf.gz"),
    ],
)
def test_what_makes_no_sense_is_said(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run([*words, "--logs", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("option", "said"), [("--repetitions", "at least 1"), ("--workers", "at least 1")])
def test_none_at_all_makes_no_sense(
    thesis: Path, option: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["flexco", "--quick", option, "0", "--logs", str(thesis), "--out", str(thesis / "out")]
    assert command.run(words) == 2
    assert said in capsys.readouterr().err
