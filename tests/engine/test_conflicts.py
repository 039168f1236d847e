"""Jobs in conflict with a job that ends or starts later: each is delayed by that time at most."""

from random import Random

import pytest

from schedd.engine import Cause
from tests.engine.cluster import Cluster


def test_a_wide_job_keeps_its_place_behind_a_run_that_lasts_longer() -> None:
    """A new place for the wide job only would be behind the long job on its other node."""
    cluster = Cluster(nodes=2, slack="900")
    cluster.submit("1")
    cluster.submit("2")
    cluster.submit("wide", "2:ppn=4", walltime=1_000)
    cluster.submit("3", walltime=10_000)
    cluster.submit("4", walltime=10_000)
    assert [cluster.start(job) for job in ("wide", "3", "4")] == [100, 1_100, 1_100]
    cluster.alter_request("1", walltime="160")
    assert [cluster.start(job) for job in ("wide", "3", "4")] == [160, 1_160, 1_160]
    assert not any(cluster.at_risk(job) for job in ("wide", "3", "4"))


def test_a_delayed_job_takes_a_gap_on_other_nodes() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1")
    cluster.submit("2", walltime=90)
    cluster.submit("3")
    cluster.submit("4")
    assert [cluster.start(job) for job in "34"] == [90, 100]
    cluster.alter_request("1", walltime="1000")
    assert [cluster.start(job) for job in "34"] == [90, 190]


def test_jobs_behind_a_late_start_are_delayed_as_they_are() -> None:
    cluster = Cluster(nodes=2, slack="900", end_allowance="0s")
    cluster.submit("1", "2:ppn=4")
    cluster.submit("wide", "2:ppn=4", walltime=1_000)
    cluster.submit("3", walltime=10_000)
    cluster.submit("4", walltime=10_000)
    cluster.engine.pause("an outage")
    cluster.at(400)
    cluster.engine.resume()
    cluster.at(401)
    assert cluster.runs("wide") == [401]
    assert [cluster.start(job) for job in "34"] == [1_401, 1_401]
    assert not any(cluster.at_risk(job) for job in "34")


def test_a_reservation_behind_one_late_job_does_not_prevent_the_delay_of_others() -> None:
    cluster = Cluster(nodes=3, slack="900", end_allowance="0s")
    for job in "125":
        cluster.submit(job)
    cluster.submit("wide", "2:ppn=4", walltime=1_000)
    cluster.submit("6")
    cluster.submit("3", walltime=10_000)
    cluster.submit("4", walltime=10_000)
    cluster.reserve("r", "n3", start=250, end=300)
    assert [cluster.start(job) for job in ("wide", "6", "3", "4")] == [100, 100, 300, 1_100]
    cluster.engine.pause("an outage")
    cluster.at(170)
    assert [cluster.start(job) for job in ("wide", "4")] == [161, 1_161]
    cluster.engine.resume()
    cluster.at(171)
    assert cluster.runs("wide") == [171]
    assert not any(cluster.at_risk(job) for job in ("wide", "3", "4"))


@pytest.mark.parametrize("seed", range(8))
def test_a_pause_delays_no_planned_job_by_more_than_its_length(seed: int) -> None:
    """Short jobs end while no jobs are started: jobs behind them, and behind those, come too late."""
    dice = Random(seed)
    cluster = Cluster(nodes=5, slack="1h", end_allowance="0s")
    jobs = [str(number) for number in range(40)]
    for job in jobs:
        nodes = f"{dice.choice([1, 1, 1, 2, 3, 5])}:ppn={dice.choice([1, 2, 4, 4])}"
        cluster.submit(job, nodes, walltime=dice.randrange(1, 40) * 60)
    before = {job: cluster.start(job) for job in jobs if not cluster.runs(job)}
    cluster.engine.pause("an outage")
    pause = dice.randrange(300, 3_000)
    for moment in range(10, pause, 45):
        cluster.at(moment)
    cluster.engine.resume()
    cluster.at(pause)
    for job, start in before.items():
        now = cluster.start(job)
        assert start is not None
        assert now is not None
        assert now <= start + pause
        assert not cluster.at_risk(job)


def test_a_promise_broken_in_a_pause_names_the_order_of_the_admin() -> None:
    cluster = Cluster(slack="60", end_allowance="0s")
    cluster.submit("1")
    cluster.submit("2")
    cluster.engine.pause("cooling fault")
    cluster.at(400)
    assert set(cluster.breaches("2")) == {Cause.ADMIN}
    assert "paused: cooling fault" in str(cluster.view("2").last_change)


def test_a_delay_ends_at_a_reservation() -> None:
    cluster = Cluster(nodes=1)
    cluster.submit("1")
    cluster.submit("2")
    cluster.reserve("r", "n1", start=200, end=300)
    assert cluster.start("2") == 100
    cluster.alter_request("1", walltime="150")
    assert cluster.start("2") == 300


def test_a_dependent_job_stays_behind_a_delayed_job() -> None:
    cluster = Cluster(nodes=2)
    cluster.submit("1")
    cluster.submit("2", walltime=90)
    cluster.submit("3", "2:ppn=4")
    cluster.submit("4", depend="afterok:3")
    assert [cluster.start(job) for job in "34"] == [100, 200]
    cluster.alter_request("1", walltime="150")
    assert [cluster.start(job) for job in "34"] == [150, 250]


@pytest.mark.parametrize("seed", range(12))
def test_no_job_is_delayed_by_more_than_the_run_ahead(seed: int) -> None:
    """The engine checks after each batch that no node is over-committed (``validate``)."""
    dice = Random(seed)
    cluster = Cluster(nodes=5, slack="1h")
    jobs = [str(number) for number in range(40)]
    for job in jobs:
        nodes = f"{dice.choice([1, 1, 1, 2, 3, 5])}:ppn={dice.choice([1, 2, 4, 4])}"
        cluster.submit(job, nodes, walltime=dice.randrange(1, 40) * 100)
    running = [job for job in jobs if cluster.runs(job)]
    for job in running:
        before = {one: cluster.start(one) for one in jobs if one not in running}
        more = dice.randrange(1, 1_500)
        walltime = int(cluster.record(job).facts.resources["walltime"]) + more
        cluster.alter_request(job, walltime=str(walltime))
        for one, start in before.items():
            now = cluster.start(one)
            assert start is not None
            assert now is not None
            assert now <= start + more
