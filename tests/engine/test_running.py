"""Jobs that run: early ends, the end allowance, overruns, and the server's second thoughts."""

from itertools import pairwise

import pytest

from schedd.engine import Cause
from schedd.engine.facts.texts import RUNS_PAST_WALLTIME
from schedd.wire import JobAltered
from tests.engine.cluster import Cluster, T


def test_an_early_end_moves_everybody_up_and_breaks_nothing() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=1000, runtime=10)
    for job in "234":
        cluster.submit(job)
    cluster.at(10)
    assert cluster.runs("2") == [10]
    assert [cluster.start(job) for job in "34"] == [110, 210]
    assert cluster.engine.state.breaches == 0


def test_published_starts_use_walltimes_without_end_allowances() -> None:
    cluster = Cluster(end_allowance=120)
    for job in range(10):
        cluster.submit(f"{job}", walltime=60)
    assert [cluster.start(f"{job}") for job in range(10)] == [60 * job for job in range(10)]
    cluster.at(1000)
    assert [cluster.runs(f"{job}") for job in range(10)] == [[60 * job] for job in range(10)]


def test_job_past_its_walltime_uses_its_end_allowance_in_steps() -> None:
    cluster = Cluster(end_allowance=150, slack=600)
    cluster.submit("1", walltime=100, runtime=10_000)
    cluster.submit("2")
    seen = []
    for moment in (99, 100, 160, 220, 250, 310):
        cluster.at(moment)
        seen.append((cluster.start("2"), cluster.record("1").run.overruns))
    # 60 and 60 s, the rest of the allowance; only then it counts as an overrun.
    assert seen == [(100, 0), (160, 0), (220, 0), (250, 0), (310, 1), (430, 2)]
    assert (cluster.runs("2"), cluster.at_risk("2"), cluster.breaches("2")) == ([], "", [])
    cluster.server.runtime["1"] = 315
    cluster.at(315)
    assert cluster.runs("2") == [315]


def test_a_job_that_is_displaced_keeps_its_age() -> None:
    cluster = Cluster(nodes=2, end_allowance=0, slack=3600)
    cluster.submit("overruns", walltime=100, runtime=10_000)
    cluster.submit("ends early", walltime=200, runtime=150)
    cluster.at(1)
    cluster.submit("old", walltime=40)
    cluster.at(2)
    cluster.submit("young", "n2:ppn=4", walltime=10)
    cluster.at(149)
    assert [cluster.start(job) for job in ("old", "young")] == [160, 200]
    cluster.at(150)
    assert cluster.runs("old") == [150]
    assert cluster.runs("young") == []


def test_many_that_come_to_their_end_together_make_others_move_once() -> None:
    cluster = Cluster(nodes=12, end_allowance=120)
    for i in range(12):
        cluster.submit(f"{i}", f"n{i + 1}:ppn=4", walltime=100, runtime=103)
    cluster.submit("wide", "12:ppn=4", walltime=50)
    for i in range(12):
        cluster.submit(f"later{i}", "1:ppn=4", walltime=50)
    before = len(cluster.engine.state.changes)
    cluster.at(100)
    changes = list(cluster.engine.state.changes)[before:]
    assert [(one.cause.value, one.slots.shape[0]) for one in changes] == [(Cause.OVERRUN, 13)]
    assert changes[0].words == f"job 0 {RUNS_PAST_WALLTIME} (11 more jobs, too)"
    assert cluster.start("wide") == 160
    assert {cluster.start(f"later{i}") for i in range(12)} == {210}
    cluster.at(103)
    assert cluster.runs("wide") == [103]


def test_a_job_that_is_exiting_still_holds_its_resources() -> None:
    cluster = Cluster(end_allowance=120)
    cluster.submit("1", walltime=100, runtime=10_000)
    cluster.at(101)
    cluster.send(*cluster.server.alter("1", state="E"))
    cluster.submit("2")
    assert cluster.start("2") == 160
    cluster.at(200)
    assert (cluster.start("2"), cluster.runs("2")) == (220, [])
    assert cluster.view("1").state == "running"


def test_overrun_steps_double_from_a_minute_up_to_an_hour() -> None:
    cluster = Cluster(overrun_blocked=10**6, end_allowance=0)
    cluster.submit("1", walltime=100, runtime=10**6)
    cluster.submit("2")
    starts = []
    for _ in range(9):
        starts.append(cluster.start("2"))
        cluster.at(starts[-1] or 0)
    steps = [b - a for a, b in pairwise(starts)]  # type: ignore[operator]
    assert steps == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert set(cluster.breaches("2")) == {Cause.OVERRUN}


def test_overrun_keeps_the_order_of_later_jobs() -> None:
    cluster = Cluster(overrun_step=60)
    cluster.submit("1", walltime=100, runtime=110)
    for job in "234":
        cluster.submit(job, walltime=1000)
    cluster.at(100)
    assert [cluster.start(job) for job in "234"] == [160, 1160, 2160]
    cluster.at(110)
    assert [cluster.start(job) for job in "234"] == [110, 1110, 2110]


def test_node_counts_as_blocked_after_six_hours_with_an_alert() -> None:
    cluster = Cluster(nodes=2, end_allowance=0)
    cluster.submit("1", "n1:ppn=2", walltime=100, runtime=10**6)
    cluster.submit("2", "n2:ppn=4", walltime=50_000)
    cluster.submit("3", "n1:ppn=4")
    cluster.at(100 + 6 * 3600 - 1)
    assert cluster.alerts("overrun") == []
    cluster.at(100 + 6 * 3600)
    assert cluster.alerts("overrun") == ["job 1 is 21600 s past its walltime: n1 counts as blocked"]
    assert cluster.view("3").why == "waiting for node n1, which is blocked by job 1, long past its walltime"
    cluster.submit("4", "1:ppn=2", 10)
    assert cluster.planned_node_names("4") == ["n2"]
    cluster.at(30_000)
    assert len(cluster.alerts("overrun")) == 1
    cluster.server.runtime["1"] = 0
    cluster.at(30_001)
    assert cluster.view("3").state == "running"


def test_a_job_without_walltime_never_blocks_its_node() -> None:
    cluster = Cluster(default_walltime=100)
    cluster.submit("1", walltime=None)
    cluster.submit("2")
    cluster.at(100 + 7 * 3600)
    assert cluster.alerts("overrun") == []
    assert cluster.breaches("2")


def test_longer_walltime_of_a_running_job_moves_later_jobs() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=100, runtime=300)
    cluster.submit("2")
    cluster.alter_request("1", walltime="300")
    assert cluster.start("2") == 300
    assert cluster.at_risk("2") == Cause.ADMIN
    cluster.alter_request("1", walltime="150")
    assert cluster.start("2") == 150


def test_a_suspended_job_keeps_the_nodes_it_still_has() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=100, runtime=500)
    facts = cluster.server.jobs["1"]
    cluster.send(*cluster.server.alter("1", state="S"))
    cluster.submit("2")
    assert (cluster.view("1").state, cluster.start("2")) == ("running", 100)
    assert cluster.view("1").why == "it is suspended"
    assert cluster.view("1").headline.startswith("Suspended, started ")
    assert facts.shares


@pytest.mark.parametrize(("late", "told"), [(5, 1000), (40, 1040)])
def test_late_job_holds_its_nodes_for_its_whole_walltime(late: int, told: int) -> None:
    cluster = Cluster(end_allowance=120)
    cluster.obeys = False
    cluster.submit("1", walltime=1000)
    cluster.submit("2")
    cluster.server.now = T + late
    run = cluster.decisions[0]
    cluster.send(*cluster.server.run(run))  # type: ignore[arg-type]
    # A few seconds move no job before they are needed.
    assert (cluster.start("2"), cluster.breaches("2")) == (told, [])
    cluster.at(1000)
    assert (cluster.start("2"), cluster.runs("2")) == (1000 + late, [])


@pytest.mark.parametrize(("walltime", "moved"), [(1000, 1000), (400, 400), (390, 430)])
def test_jobs_behind_a_slightly_late_start_move_only_when_its_planned_end_has_passed(
    walltime: int, moved: int
) -> None:
    cluster = Cluster(end_allowance=120)
    cluster.obeys = False
    cluster.engine.pause("maintenance")
    cluster.submit("1", walltime=walltime)
    cluster.submit("2")
    cluster.at(40)
    cluster.engine.resume()
    cluster.send()
    cluster.at(45)
    run = cluster.decisions[-1]
    cluster.send(*cluster.server.run(run))  # type: ignore[arg-type]
    assert (cluster.runs("1"), cluster.start("2")) == ([40], moved)
    cluster.at(walltime + 44)
    assert (cluster.runs("2"), cluster.start("2")) == ([], walltime + 45)
    cluster.at(walltime + 45)
    assert (cluster.runs("2"), cluster.alerts("no_room")) == ([walltime + 45], [])


def test_the_first_letter_of_a_job_unknown_so_far_may_be_an_alteration() -> None:
    cluster = Cluster()
    cluster.submit("1")
    facts = cluster.server.jobs["1"]
    other = Cluster(alone=False)
    other.send(JobAltered(id="x", time=T, job=facts))
    assert other.view("1").state == "running"
