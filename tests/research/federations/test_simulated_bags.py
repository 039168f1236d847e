"""Bags of tasks in simulated federations: shared out by what plans offer, measured as in the thesis."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from research.federations import worlds
from research.federations.bag_measures import delays, spreads
from research.federations.bags import Sharing, simulate_bags
from research.federations.field import ClusterSpec, FieldJob, FieldResult
from research.federations.worlds import SCHEMAS, Source, five_clusters, four_clusters
from research.studies import arrays as experiment_arrays
from research.studies import command
from research.studies import offers as experiment_offers
from research.studies.pool import at_once, how_often
from schedd.replay.workload import TraceError
from schedd.wire import NodeFacts

LINE = "{id} {submit} 0 {run} {procs} -1 -1 {procs} {run} -1 1 {user} 1 -1 1 -1 -1 -1\n"


def cluster(name: str, cpus: int) -> ClusterSpec:
    return ClusterSpec(name, (NodeFacts(name=f"{name}1", cpus=cpus),))


def job(submit: int, run: int, cpus: int, home: str, **more: Any) -> FieldJob:
    asked = {"procs": str(cpus), "walltime": str(more.get("walltime", run))}
    walltime = more.pop("walltime", run)
    return FieldJob(submit, run, walltime, cpus, asked, float(run * cpus), (home,), home=home, **more)


def bag(
    submit: int, run: int, tasks: int, names: str = "ab", name: str = "1[]", **more: Any
) -> list[FieldJob]:
    one = job(submit, run, 1, "", **more)
    return [
        FieldJob(
            **{field: getattr(one, field) for field in FieldJob.__slots__}
            | {"clusters": tuple(names), "array": name}
        )
    ] * tasks


def tasks_by_cluster(jobs: Sequence[FieldJob], ran: FieldResult) -> Mapping[str, int]:
    return Counter(at for one, at in zip(jobs, ran.cluster, strict=True) if one.array)


@pytest.mark.parametrize(
    ("sharing", "shares"),
    [
        ("none", {"a": 8}),  # as few clusters as can be: a has the larger offer
        ("offers", {"a": 4, "b": 4}),  # both could end the whole bag in time
        ("power", {"a": 6, "b": 2}),
        ("free slots", {"a": 6, "b": 2}),  # all at once
    ],
)
def test_a_bag_is_shared_by_what_the_plans_offer(sharing: Sharing, shares: Mapping[str, int]) -> None:
    jobs = bag(0, 100, 8, deadline=1_000)
    ran = simulate_bags([cluster("a", 6), cluster("b", 2)], jobs, sharing)
    assert tasks_by_cluster(jobs, ran) == shares
    assert max(ran.end) <= 1_000
    assert all(end - start == 100 for start, end in zip(ran.start, ran.end, strict=True))


def test_who_waits_less_gets_more_by_load() -> None:
    busy = [job(0, 500, 2, "a"), *(job(0, 500, 2, "a") for _ in range(7))]
    jobs = [*busy, *bag(1, 100, 8, deadline=9_000)]
    clusters = [cluster("a", 2), cluster("b", 2)]
    assert tasks_by_cluster(jobs, simulate_bags(clusters, jobs, "power")) == {"a": 4, "b": 4}
    found = tasks_by_cluster(jobs, simulate_bags(clusters, jobs, "load"))
    assert found["b"] == 7


def test_a_bag_that_cannot_meet_its_deadline_ends_as_early_as_can_be() -> None:
    jobs = [job(0, 500, 2, "a"), *bag(1, 100, 4, deadline=150)]
    ran = simulate_bags([cluster("a", 2), cluster("b", 2)], jobs, "none")
    assert tasks_by_cluster(jobs, ran) == {"b": 4}
    assert max(ran.end[1:]) == 201


def test_without_a_deadline_it_ends_as_early_as_can_be() -> None:
    jobs = bag(0, 100, 8)
    ran = simulate_bags([cluster("a", 4), cluster("b", 4)], jobs, "none")
    assert tasks_by_cluster(jobs, ran) == {"a": 4, "b": 4}
    assert set(ran.end) == {100}


@pytest.mark.parametrize(
    ("sharing", "edf", "end"), [("none", False, 300), ("none", True, 200), ("free slots", True, 300)]
)
def test_a_bag_goes_before_later_deadlines_where_its_cluster_knows_its_own(
    sharing: Sharing, edf: bool, end: int
) -> None:
    local = [job(0, 100, 2, "a"), job(1, 100, 2, "a", deadline=1_000)]
    jobs = [*local, *bag(2, 100, 2, "a", deadline=290)]
    ran = simulate_bags([cluster("a", 2)], jobs, sharing, edf=edf)
    assert ran.end == (100, 500 - end, end, end)


def test_offers_contain_the_time_of_jobs_with_later_deadlines_where_clusters_plan_by_deadline() -> None:
    """Cluster a is full until 200 s, half of that for a job due in 1,000 s; b is full until 150 s."""
    local = [job(0, 100, 2, "a"), job(1, 100, 2, "a", deadline=1_000), job(1, 150, 2, "b")]
    jobs = [*local, *bag(2, 100, 2, deadline=290)]
    clusters = [cluster("a", 2), cluster("b", 2)]
    assert tasks_by_cluster(jobs, simulate_bags(clusters, jobs, "none")) == {"b": 2}
    ran = simulate_bags(clusters, jobs, "none", edf=True)
    assert (tasks_by_cluster(jobs, ran), ran.end[3:]) == ({"a": 2}, (200, 200))


def test_clusters_coordinate_the_tasks_that_they_know_to_be_of_one_bag() -> None:
    long = [job(0, 100, 1, "a", walltime=1_000), job(0, 2_000, 1, "a")]
    jobs = [*long, *bag(1, 500, 3, names="a"), job(2, 400, 1, "a")]
    site = {"coordinate_arrays": True}
    clusters = [cluster("a", 2)]
    known = simulate_bags(clusters, jobs, "none", site)
    alone = simulate_bags(clusters, jobs, "none", site, known=False)
    assert known.start[-1] < alone.start[-1]
    assert max(known.end[2:5]) <= 2_000


def test_measures_are_those_of_the_thesis() -> None:
    clusters = [cluster("a", 2), cluster("b", 2)]
    jobs = [*bag(0, 600, 2, deadline=1_000), job(0, 100, 2, "a", deadline=400), job(1_000, 10, 1, "b")]
    ran = FieldResult(("a", "b", "a", "b"), (0, 600, 600, 1_000), (600, 1_200, 700, 1_010))
    found = spreads(clusters, jobs, ran)
    assert (found.bags, found.longest) == (3, 1_200)
    assert found.response == pytest.approx((1_200 + 700 + 10) / 3)
    assert found.slowdown == pytest.approx((2.0 + 700 / 600 + 1.0) / 3)
    assert found.stretch_s == pytest.approx(600 / 3)
    assert found.several == pytest.approx(1 / 3)
    assert found.stretch_of_several == 0.5
    assert found.utilisation == pytest.approx((600 + 400 + 200) / (4 * 1_000))
    local, bags, each, _ = delays(clusters, jobs, ran)
    assert (local.jobs, local.delayed, bags.jobs, bags.delayed, each) == (2, 1, 1, 1, 2)
    assert local.tw_delay == pytest.approx(2 * (700 / 400 - 1) * 100)
    assert bags.tw_delay == pytest.approx(2 * (1_200 / 1_000 - 1) * 100)
    assert local.work_delayed == pytest.approx(200 / 210)


def test_four_clusters_have_the_load_that_was_asked_for() -> None:
    clusters, jobs = four_clusters(10.0, 100, 3, procs=50)
    assert [spec.cpus for spec in clusters] == [50] * 4
    over = np.array([one.walltime / one.run for one in jobs])
    assert over.min() >= 1.0
    assert over.max() <= 3.0
    whole = {one.array: one for one in jobs}
    assert np.mean([one.walltime / one.run for one in whole.values()]) == pytest.approx(2.0, abs=0.15)
    used = sum(one.run for one in jobs) / (200 * 10 * 86_400)
    assert 0.3 < used < 1.2


@pytest.fixture
def thesis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small logs and clusters in the place of the thesis' own."""
    path = tmp_path / "log.swf"
    lines = [
        LINE.format(id=n + 1, submit=600 * n, run=3_600 + 60 * (n % 7), procs=1 + n % 4, user=n % 3)
        for n in range(900)
    ]
    path.write_text("; MaxProcs: 8\n" + "".join(lines))
    inside = Source("one", "log.swf", 8, 0.5, (1, 4), (3_600, 7_200), 0.0)
    outside = Source("external", "log.swf", 16, 0.5, (3, 4), (3_600, 7_200), 0.0)
    local = (inside, Source("two", "log.swf", 8, 0.5, (1, 4), (3_600, 7_200), 0.5))
    for where in (worlds, experiment_offers):
        monkeypatch.setattr(where, "LOCAL", local)
        monkeypatch.setattr(where, "EXTERNAL", outside)
        monkeypatch.setattr(where, "LOGS", ("log.swf",))
    return tmp_path


def test_five_clusters_have_jobs_of_their_own_and_bags_from_outside(thesis: Path) -> None:
    clusters, jobs = five_clusters(thesis, 2.0, "tight", 1)
    assert [spec.name for spec in clusters] == ["one", "two"]
    for name in ("one", "two"):
        work = sum(one.load for one in jobs if one.home == name)
        assert work / (8 * 2 * 86_400) == pytest.approx(0.5, abs=0.05)
    assert sum(one.load for one in jobs if one.array) / (16 * 2 * 86_400) == pytest.approx(0.5, abs=0.05)
    assert {one.cpus for one in jobs if one.array} == {1}
    later = {(one.deadline or 0) - one.submit - one.run for one in jobs}
    assert later == set(SCHEMAS["tight"])
    assert max(one.submit for one in jobs) <= 2 * 86_400
    with pytest.raises(TraceError, match="has not enough"):
        five_clusters(thesis, 60.0, "tight", 1)


def _here(run: Callable[..., Any], todo: Sequence[Any], _: int | None) -> list[Any]:
    """In this process: the figures are the same, and no worker has to begin."""
    return [run(*args) for args in todo]


def test_the_experiments_write_pages_beside_the_printed_figures(
    thesis: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where in (experiment_arrays, experiment_offers):
        monkeypatch.setattr(where, "at_once", _here)
    small = four_clusters
    monkeypatch.setattr(
        experiment_arrays, "four_clusters", lambda _, over, seed: small(1.0, over, seed, procs=20, load=1.5)
    )
    experiment_arrays.run_arrays(thesis, thesis, quick=True, only=(), repetitions=2)
    page = (thesis / "arrays-quick.md").read_text()
    assert "python -m research experiment arrays --quick --repetitions 2" in page
    assert "| 100 | response shorter by, % | 4.95 ± 0.74 | 6.94 |" in page
    assert page.count("| by ends of bags |") == 3
    experiment_offers.run_offers(thesis, thesis, quick=True, only=())
    page = (thesis / "offers-quick.md").read_text()
    assert page.count("| FreeTimeSlots |") == 4
    assert page.count("| OffersWithPLB |") == 2, "not with earliest deadline first"
    assert "LPC-EGEE" in page
    with pytest.raises(TraceError, match="it has no"):
        experiment_offers.run_offers(thesis / "none", thesis, quick=True, only=())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["arrays", "--jobs", "5"], "--jobs is for routing, modes, fairness, repair_order alone"),
        (["energy", "--repetitions", "2"], "--repetitions is for"),
        (["arrays", "--part", "rest"], "no --part"),
        (["arrays", "--repetitions", "0"], "--repetitions: at least 1"),
        (["arrays", "--quick", "--workers", "0"], "--workers 0: at least 1"),
    ],
)
def test_what_makes_no_sense_is_said(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.run([*words, "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


def test_runs_are_repeated_as_often_as_is_asked_for() -> None:
    assert [how_often(None, 5, quick=False), how_often(None, 5, quick=True)] == [5, 1]
    assert how_often(7, 5, quick=True) == 7
    assert sorted(at_once(dict, [([("a", 1)],), ([("a", 2)],)], 1), key=str) == [{"a": 1}, {"a": 2}]
