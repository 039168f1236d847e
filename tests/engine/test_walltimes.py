"""How much of their walltimes jobs use, and what room counts as having come back early."""

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts.job_requests import RequestReader
from schedd.engine.facts.walltimes import WalltimeUse
from schedd.wire import JobDeleted, JobFacts
from tests.engine.cluster import Cluster


def test_before_anything_ran_and_where_all_is_used_the_share_is_one() -> None:
    assert WalltimeUse().share == 1.0
    use = WalltimeUse()
    for run in (100, 100, 101):  # past its walltime a run counts as all of it
        use = use.after(4, 100, run)
    assert use.share == 1.0


def test_large_jobs_count_for_more_and_few_runs_for_little() -> None:
    use = WalltimeUse().after(3, 100, 0).after(1, 100, 100)
    assert use.used / use.asked == pytest.approx(0.25, rel=1e-2)
    assert use.share == pytest.approx((2 * 0.25 + 50) / 52, rel=1e-2)
    for _ in range(5000):
        use = use.after(1, 1000, 400)
    assert use.share == pytest.approx((400 + 50) / 1050, rel=1e-2), "as of the last 1,000 runs"


def test_old_runs_decay_and_the_share_has_a_minimum() -> None:
    use = WalltimeUse()
    for _ in range(10_000):
        use = use.after(1, 1000, 1000)
    for _ in range(20_000):
        use = use.after(8, 1000, 0)
    assert use.used / use.asked < 1e-6
    assert use.share == 0.1


def walltime_use(cluster: Cluster) -> WalltimeUse:
    return cluster.engine.state.walltime_use


def test_ended_and_deleted_runs_count_unless_the_walltime_was_assumed() -> None:
    cluster = Cluster(nodes=3, default_walltime=500)
    cluster.submit("1", walltime=100, runtime=40)
    cluster.submit("2", walltime=1000)
    cluster.submit("3", walltime=None, runtime=10)
    cluster.at(60)
    assert walltime_use(cluster) == (1.0, 400.0, 160.0)
    server = cluster.server
    cluster.send(JobDeleted(id=server.event_id(), time=server.now, job_id="2"))
    assert walltime_use(cluster) == pytest.approx((1.999, 400 * 0.999 + 4000, 160 * 0.999 + 240))


def test_it_outlives_a_checkpoint() -> None:
    cluster = Cluster()
    cluster.submit("1", walltime=100, runtime=40)
    cluster.at(60)
    again = Engine.restore(cluster.engine.checkpoint())
    assert again.state.walltime_use == walltime_use(cluster)
    assert again.state.walltime_use.share == walltime_use(cluster).share


def test_room_counts_as_early_only_before_the_plan_had_it_free() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1", walltime=100, runtime=100)
    cluster.submit("2", walltime=100, runtime=99)
    cluster.at(99)
    assert cluster.engine.state.frees == 1
    cluster.at(200)
    assert cluster.engine.state.frees == 1
    cluster.submit("3", "2:ppn=4", walltime=100)
    cluster.submit("4", walltime=100)
    server = cluster.server
    cluster.send(JobDeleted(id=server.event_id(), time=server.now, job_id="4"))
    assert cluster.engine.state.frees == 2, "it had a place that nobody else could have"


def test_a_job_with_a_soft_walltime_is_planned_for_that_long_whatever_was_read_before() -> None:
    intake = RequestReader(EngineSettings())
    for soft, wanted in (("", 36_000), ("01:00:00", 3_600), ("00:30:00", 1_800)):
        resources = {"select": "1:ncpus=1", "walltime": "10:00:00"} | (
            {"soft_walltime": soft} if soft else {}
        )
        facts = JobFacts(id="1", owner="ann", queue="q", submitted=0, family="openpbs", resources=resources)
        assert intake.read(facts, None, {}).walltime == wanted
