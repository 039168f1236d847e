"""Stored plan metrics and search records: pages, thinning and purges."""

import pytest

from schedd.store import NotLeader, RetentionLimits, Store
from schedd.store.leadership import Leadership
from schedd.store.records import PlanMetricsSample, SearchRecord, ShareSample, StoredShare

MOST = 2**62


def make_sample(time: int, wait: float = 1.5) -> PlanMetricsSample:
    return PlanMetricsSample(time, time // 10, 7, {"wait": wait, "makespan": 1e9 / 3})


@pytest.fixture
def cluster(store: Store) -> int:
    store.register_cluster("another", 1)
    return store.register_cluster("c", 1)


def test_plan_metrics_are_read_in_order_and_limited(store: Store, cluster: int) -> None:
    for time in (30, 10, 20, 40):
        store.save_plan_metrics(cluster, make_sample(time))
    store.save_plan_metrics(cluster - 1, make_sample(15))
    assert store.plan_metrics(cluster, 0, MOST, 9) == [make_sample(time) for time in (10, 20, 30, 40)]
    assert [one.time for one in store.plan_metrics(cluster, 20, 40, 9)] == [20, 30]
    assert [one.time for one in store.plan_metrics(cluster, 0, MOST, 2)] == [10, 20]


def test_last_sample_per_interval_is_read(store: Store, cluster: int) -> None:
    for time in (100, 130, 160, 240, 241):
        store.save_plan_metrics(cluster, make_sample(time))
    assert [one.time for one in store.plan_metrics(cluster, 0, MOST, 9, 60)] == [100, 160, 241]
    assert [one.time for one in store.plan_metrics(cluster, 0, 241, 9, 60)] == [100, 160, 240]


def test_last_sample_per_second_is_stored(store: Store, cluster: int) -> None:
    store.save_plan_metrics(cluster, make_sample(10, 1.0))
    store.save_plan_metrics(cluster, make_sample(10, 2.0))
    assert store.plan_metrics(cluster, 0, MOST, 9) == [make_sample(10, 2.0)]


def test_searches_are_listed_newest_first(store: Store, cluster: int) -> None:
    for number in range(1, 6):
        store.save_search(cluster, SearchRecord(number, 100 * number, f'{{"n": {number}}}'))
    store.save_search(cluster, SearchRecord(5, 500, '{"n": 5}'))  # the answer to the first try was lost
    assert [one.number for one in store.searches(cluster, None, 2)] == [5, 4]
    assert store.searches(cluster, 3, 9) == [
        SearchRecord(2, 200, '{"n": 2}'),
        SearchRecord(1, 100, '{"n": 1}'),
    ]
    assert store.searches(cluster - 1, None, 9) == []


def test_old_metrics_and_searches_are_purged(store: Store, cluster: int) -> None:
    for time in (100, 200, 300):
        store.save_plan_metrics(cluster, make_sample(time))
        store.save_search(cluster, SearchRecord(time, time, "{}"))
    assert store.purge(RetentionLimits(plan_metrics=50), 260) == {"evaluations": 2, "searches": 2}
    assert [one.time for one in store.plan_metrics(cluster, 0, MOST, 9)] == [300]
    assert [one.number for one in store.searches(cluster, None, 9)] == [300]


def test_only_the_leader_writes_samples(store: Store, cluster: int) -> None:
    first = Leadership(store.database, "a", seconds=1)
    assert first.try_acquire()
    with store.database.write() as connection:
        connection.exec_driver_sql("UPDATE leases SET holder = 'b', term = term + 1")
    with pytest.raises(NotLeader):
        store.save_plan_metrics(cluster, make_sample(10))
    with pytest.raises(NotLeader):
        store.save_search(cluster, SearchRecord(1, 1, "{}"))
    first.release()


def test_samples_of_fair_shares_are_read_in_order_thinned_and_purged(store: Store, cluster: int) -> None:
    def share_sample(time: int, received: float = 0.25) -> ShareSample:
        return ShareSample(time, (StoredShare("physics/ann", "ann", 0.5, received),))

    for time in (300, 100, 200, 260):
        store.save_share_sample(cluster, share_sample(time))
    store.save_share_sample(cluster, share_sample(200, 0.75))
    store.save_share_sample(cluster - 1, share_sample(150))
    assert store.share_samples(cluster, 100, 300, 9) == [
        share_sample(100),
        share_sample(200, 0.75),
        share_sample(260),
    ]
    assert [one.time for one in store.share_samples(cluster, 0, MOST, 9, 100)] == [100, 260, 300]
    assert [one.time for one in store.share_samples(cluster, 0, MOST, 2)] == [100, 200]
    assert store.purge(RetentionLimits(plan_metrics=50), 260) == {"share_samples": 3}
