"""Coordinated arrays: freed capacity goes to the job with the earlier end of its array."""

from typing import Any

import pytest

from schedd.engine import Engine
from schedd.engine.facts.arrays import hash_array
from schedd.wire import BagEndReported, PolicyChanged
from tests.engine.cluster import Cluster, T

JOBS = ("x[1]", "x[2]", "x[3]", "small")


def story(site: dict[str, Any]) -> Cluster:
    """Two nodes. A job on the first ends at 100 instead of 1000; the array's last job needs the second."""
    cluster = Cluster(nodes=2, site=site)
    cluster.submit("a", "n1:ppn=4", 1000, runtime=100)
    cluster.submit("b", "n2:ppn=4", 2000)
    for number, nodes in enumerate(("1:ppn=4", "1:ppn=4", "n2:ppn=4"), 1):
        cluster.submit(f"x[{number}]", nodes, 500, array="x[]")
    cluster.at(10)
    cluster.submit("small", walltime=400)
    assert [cluster.start(job) for job in JOBS] == [1000, 1500, 2000, 2000]
    return cluster


def starts(cluster: Cluster) -> list[int | None]:
    return [cluster.start(job) for job in JOBS]


def test_off_the_array_goes_first_for_it_waits_longest() -> None:
    cluster = story({})
    cluster.at(101)
    assert starts(cluster) == [100, 600, 2000, 1100]


def test_on_the_small_job_goes_first_and_the_array_ends_when_it_would_have() -> None:
    cluster = story({"coordinate_arrays": True})
    cluster.at(101)
    assert starts(cluster) == [500, 1000, 2000, 100]
    cluster.at(3000)
    assert [cluster.runs(job) for job in JOBS] == [[500], [1000], [2000], [100]]
    assert not any(cluster.breaches(job) for job in JOBS if job in cluster.engine.state.records)


@pytest.mark.parametrize("on", [False, True])
def test_it_is_switched_while_the_daemon_runs(*, on: bool) -> None:
    cluster = story({"coordinate_arrays": not on})
    now = cluster.server.now
    site = {"coordinate_arrays": on}
    cluster.send(PolicyChanged(id=cluster.server.event_id(), time=now, version=2, site=site, by="root"))
    cluster.at(101)
    assert starts(cluster) == ([500, 1000, 2000, 100] if on else [100, 600, 2000, 1100])


@pytest.mark.parametrize("older", [False, True])
def test_a_restored_engine_knows_the_arrays(*, older: bool) -> None:
    cluster = story({"coordinate_arrays": True})
    state = cluster.engine.state
    known = state.array_hash.copy()
    if older:  # saved before arrays had numbers
        state.array_hash[:] = 0
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    assert cluster.engine.state.array_hash.tolist() == known.tolist()
    cluster.at(101)
    assert starts(cluster) == [500, 1000, 2000, 100]


def test_arrays_have_one_number_each() -> None:
    names = [f"{number}[].server" for number in range(2000)]
    assert hash_array("") == 0
    assert len({hash_array(name) for name in names}) == 2000
    assert all(0 < hash_array(name) < 1 << 63 for name in names)
    assert hash_array("17[].server") == 6832625573852148541  # the same in every process


def share(*, reported_end: int = 0, late: bool = False) -> Cluster:
    """Return one node. A job ends at 100 instead of 1000; after it an array of a larger bag waits, and a
    younger, smaller job. ``late``: the end of the bag is reported after the array's arrival.
    """
    cluster = Cluster(nodes=1, site={"coordinate_arrays": True})

    def report_bag_end() -> None:
        now = cluster.server.now
        cluster.send(
            BagEndReported(id=cluster.server.event_id(), time=now, array="x[]", end=T + reported_end)
        )

    cluster.submit("a", "1:ppn=4", 1000, runtime=100)
    if reported_end and not late:
        report_bag_end()
    cluster.submit("x[1]", "1:ppn=4", 500, array="x[]")
    if reported_end and late:
        report_bag_end()
    cluster.at(10)
    cluster.submit("small", walltime=400)
    assert [cluster.start(job) for job in ("x[1]", "small")] == [1000, 1500]
    return cluster


def test_share_of_a_bag_without_a_reported_end_uses_its_own_end() -> None:
    cluster = share()
    cluster.at(101)
    assert [cluster.start(job) for job in ("x[1]", "small")] == [100, 600]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("restored", [False, True])
def test_share_of_a_bag_that_ends_later_leaves_the_gap_to_others(*, late: bool, restored: bool) -> None:
    cluster = share(reported_end=5000, late=late)
    if restored:
        cluster.engine = Engine.restore(cluster.engine.checkpoint())
    cluster.at(101)
    assert [cluster.start(job) for job in ("x[1]", "small")] == [500, 100]


def test_share_that_outlasts_its_bag_uses_its_own_end() -> None:
    cluster = share(reported_end=50)
    cluster.at(101)
    assert [cluster.start(job) for job in ("x[1]", "small")] == [100, 600]
