"""Limits that hold in windows of time (quotas), and a site's policy that is changed."""

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.engine import Engine, EngineSettings
from schedd.engine.facts.pools import PLENTY, free_amounts
from schedd.engine.show.job_view import job_view
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.policy.limits import Limit
from schedd.policy.site import site_policy
from tests.engine.cluster import Cluster, T
from tests.property_examples import examples

HOUR = 3600
DAY = 24 * HOUR


def wall(seconds: int) -> str:
    """Return the UTC time this long after the beginning."""
    return (datetime.fromtimestamp(T, UTC) + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()


def quota(amount: int, first: int, last: int, rule: str = "FREQ=DAILY", **more: Any) -> dict[str, Any]:
    window = {"first": wall(first), "last": wall(last), "rule": rule}
    return {"limits": [{"what": "cpus", "who": "user", "amount": amount, **window, **more}]}


def test_a_quota_holds_in_its_windows_and_not_outside() -> None:
    """Four cpus from hour 2 to hour 4 of each day. A job of two hours and eight cpus must wait for hour 4."""
    cluster = Cluster(nodes=2, site=quota(4, 2 * HOUR, 4 * HOUR))
    cluster.submit("1", "1:ppn=4", walltime=HOUR)
    cluster.submit("2", "1:ppn=4", walltime=2 * HOUR)
    assert (cluster.start("1"), cluster.start("2")) == (0, 0)
    cluster.submit("3", "1:ppn=4", walltime=2 * HOUR)
    assert cluster.start("3") == HOUR, "in the window it is alone by then"
    cluster.submit("4", "2:ppn=4", walltime=HOUR)
    assert cluster.start("4") == 4 * HOUR
    cluster.submit("5", "2:ppn=4", walltime=21 * HOUR)
    assert cluster.start("5") == 5 * HOUR
    cluster.submit("6", "2:ppn=4", walltime=23 * HOUR)
    view = cluster.view("6")
    assert view.planned_start is None, "no night is that long"


def test_each_user_has_a_quota_of_its_own_and_the_answer_names_it() -> None:
    cluster = Cluster(nodes=2, site=quota(4, 0, 4 * HOUR))
    cluster.submit("1", walltime=HOUR)
    cluster.submit("2", walltime=HOUR)
    cluster.submit("3", walltime=HOUR, owner="bob")
    assert [cluster.start(job) for job in "123"] == [0, HOUR, 0]
    (words,) = cluster.view("2").limited_by
    assert words.startswith("at most 4 cpus of user ann at once from ")
    assert words.endswith("UTC, FREQ=DAILY")


def test_by_day_less_and_by_night_more() -> None:
    """Two limits on the same cpus, each in its own half of the day."""
    site = {"limits": quota(4, 0, 12 * HOUR)["limits"] + quota(8, 12 * HOUR, DAY)["limits"]}
    cluster = Cluster(nodes=3, site=site)
    for job in "1234":
        cluster.submit(job, walltime=12 * HOUR)
    assert [cluster.start(job) for job in "1234"] == [0, 12 * HOUR, 12 * HOUR, DAY]


def test_queues_with_a_prefix_are_closed_and_no_job_runs_across_a_change() -> None:
    """The limits that an import makes of prime time."""
    closed = quota(0, 0, 2 * HOUR, what="jobs", who="all", queue="np_*")["limits"]
    edge = quota(0, 2 * HOUR - 1, 2 * HOUR, what="jobs", who="all")["limits"]
    cluster = Cluster(nodes=2, site={"limits": closed + edge})
    cluster.submit("1", walltime=HOUR, queue="np_long")
    cluster.submit("2", walltime=HOUR, queue="np")
    cluster.submit("3", walltime=3 * HOUR, queue="batch")
    assert [cluster.start(job) for job in "123"] == [2 * HOUR, 0, 2 * HOUR]
    assert cluster.view("1").limited_by[0].startswith("at most 0 jobs in queues np_* at once from ")


def test_a_slightly_late_job_does_not_run_across_a_change() -> None:
    edge = quota(0, 2 * HOUR - 1, 2 * HOUR, what="jobs", who="all")
    cluster = Cluster(nodes=2, site=edge, end_allowance=120)
    cluster.engine.pause("maintenance")
    cluster.submit("1", walltime=2 * HOUR - 1)
    cluster.at(40)
    cluster.engine.resume()
    cluster.send()
    assert (cluster.runs("1"), cluster.start("1")) == ([], 2 * HOUR)


def test_the_horizon_moves_on_with_time() -> None:
    cluster = Cluster(nodes=2, site=quota(4, 0, HOUR))
    for day in range(0, 200, 20):
        cluster.server.now = T + day * DAY + 2 * HOUR
        cluster.send()
        cluster.submit(f"a{day}", "2:ppn=4", walltime=HOUR)
        assert cluster.start(f"a{day}") == day * DAY + 2 * HOUR
        cluster.at(day * DAY + 2 * HOUR + HOUR + 1)


def test_windows_outlive_a_checkpoint() -> None:
    cluster = Cluster(nodes=2, site=quota(4, 2 * HOUR, 4 * HOUR))
    cluster.submit("1", "2:ppn=4", walltime=2 * HOUR)
    cluster.submit("2", "2:ppn=4", walltime=HOUR)
    again = Engine.restore(cluster.engine.checkpoint())
    assert again.state.limits.opened == cluster.engine.state.limits.opened != {}
    assert again.checkpoint() == cluster.engine.checkpoint()
    assert cluster.start("2") == 4 * HOUR


@given(
    st.lists(st.tuples(st.integers(0, 30 * HOUR), st.integers(1, 10 * HOUR), st.integers(1, 8)), max_size=8),
    st.integers(1, 23),
    st.integers(0, 23),
)
@settings(max_examples=examples(40))
def test_a_quota_is_never_exceeded_in_a_window(
    jobs: list[tuple[int, int, int]], length: int, first: int
) -> None:
    """Moment by moment, against the clock on the wall."""
    cluster = Cluster(nodes=2, site=quota(5, first * HOUR, (first + length) * HOUR))
    for i, (at, walltime, cpus) in enumerate(sorted(jobs)):
        cluster.at(at)
        half = f"1:ppn={-(-cpus // 2)}+1:ppn={cpus // 2}" if cpus > 4 else f"1:ppn={cpus}"
        cluster.submit(str(i), half, walltime=walltime)
    plan = cluster.engine.state.plan
    planned = [
        (plan.start(r.slot) - T, plan.end(r.slot) - T, r.understood.request.cpus)
        for r in cluster.engine.state.records.values()
        if r.understood.request is not None and plan.start(r.slot) >= 0
    ]
    edges = {moment for start, end, _ in planned for moment in (start, end)}
    edges |= {day * DAY + first * HOUR for day in range(60)}
    for moment in edges:
        used = sum(cpus for start, end, cpus in planned if start <= moment < end)
        assert used <= (5 if moment >= first * HOUR and (moment - first * HOUR) % DAY < length * HOUR else 8)


def test_room_as_readers_see_it_is_that_of_the_plan() -> None:
    cluster = Cluster(nodes=2, site=quota(4, 2 * HOUR, 4 * HOUR))
    cluster.submit("1", walltime=3 * HOUR)
    state = cluster.engine.state
    (pool,) = state.limits.pools
    published = publish_snapshot(state)
    moments, free = free_amounts(
        state.limits.pools[pool], *published.pool_use(state.plan.pools[pool]), T, T + 10 * HOUR
    )
    found = dict(zip((moments - T).tolist(), free.tolist(), strict=True))
    assert {at: found[at] for at in (0, 2 * HOUR, 3 * HOUR, 4 * HOUR)} == {
        0: PLENTY,
        2 * HOUR: 0,
        3 * HOUR: 4,
        4 * HOUR: 4 + PLENTY,
    }


# ---- a policy that is changed -------------------------------------------------------------------


def restored(cluster: Cluster, **settings_: Any) -> Engine:
    chosen = {"validate": True, "publish_starts": False, "end_allowance": 0, **settings_}
    engine = Engine.restore(cluster.engine.checkpoint(), EngineSettings(**chosen))
    wake = engine.next_wake
    assert wake == cluster.server.now
    engine.handle([], wake)
    return engine


def starts(engine: Engine, *jobs: str) -> list[int]:
    views = [job_view(publish_snapshot(engine.state), job) for job in jobs]
    return [view.planned_start - T for view in views if view is not None and view.planned_start is not None]


def test_jobs_are_planned_under_a_policy_that_is_new() -> None:
    cluster = Cluster(nodes=3)
    for job in "123":
        cluster.submit(job, walltime=100)
    for job in "456":
        cluster.submit(job, walltime=100)
    assert [cluster.start(job) for job in "456"] == [100, 100, 100]
    one = {"limits": [{"what": "jobs", "who": "user", "amount": 2}]}
    engine = restored(cluster, site=one)
    assert sorted(starts(engine, "4", "5", "6")) == [100, 100, 200]
    assert Engine.restore(engine.checkpoint()).next_wake != T, "it is dealt with once"
    cluster.engine = engine
    assert starts(restored(cluster, site={}), "4", "5", "6") == [100, 100, 100]


def test_a_licence_that_the_policy_counts_from_now_on_is_one_for_jobs_that_wait() -> None:
    cluster = Cluster(nodes=3)
    for job in "123":
        cluster.submit(job, walltime=100, resources={"matlab": "1"})
    for job in "45":
        cluster.submit(job, walltime=100, resources={"matlab": "1"})
    engine = restored(cluster, site={"limits": [{"what": "matlab", "amount": 1}]})
    assert sorted(starts(engine, "4", "5")) == [100, 200]


def test_the_zone_is_the_sites() -> None:
    plain = {"zone": "Asia/Tokyo", **quota(4, 0, HOUR)}
    assert " Asia/Tokyo" in site_policy(plain).limits[0].during
    assert Limit(amount=1, during="").during == ""
