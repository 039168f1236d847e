"""Limits on eligible and submitted jobs and on use over time, and soft limits."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schedd.engine import Engine
from schedd.engine.facts.texts import LIMIT_TO_BE_RAISED
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.limits.admission import wait_in_what_if
from schedd.features.limits.state import limit_state
from schedd.features.limits.tallies import UseMeter
from schedd.model import FOREVER, WaitingFor
from schedd.service.settings.site import SiteSettings
from schedd.wire import ClockSet, JobFacts, PolicyChanged
from tests.engine.cluster import Cluster, T


class Limited(Cluster):
    """A cluster with these limits of the site."""

    def __init__(self, *limits: dict[str, Any], nodes: int = 1) -> None:
        qos: dict[str, Any] = {"levels": {"low": {}, "high": {}}}
        super().__init__(nodes=nodes, slack=100_000, site={"limits": list(limits), "qos": qos})

    def hold(self, job: str) -> None:
        self.send(*self.server.hold(job))

    def release(self, job: str) -> None:
        self.send(*self.server.release(job))

    def delete(self, job: str) -> None:
        self.send(*self.server.delete(job))


def starts(cluster: Cluster, jobs: str) -> list[int | None]:
    return [cluster.start(job) for job in jobs]


def waits(cluster: Cluster, job: str) -> str:
    answer = cluster.record(job).answer
    return answer.what if isinstance(answer, WaitingFor) else ""


def check_tallies(cluster: Cluster) -> None:
    """Compare the counts with a plain count of the jobs."""
    part = limit_state(cluster.engine.state)
    for pool, tally in part.tallies.items():
        assert tally.total == sum(tally.inside.values())
        assert not tally.inside.keys() & tally.outside.keys()
        assert {*tally.inside, *tally.outside} <= cluster.engine.state.records.keys()
        if part.limits[pool].counts == "eligible":
            assert tally.total <= part.limits[pool].amount


def test_jobs_beyond_the_eligible_ones_wait_for_a_start() -> None:
    cluster = Limited({"counts": "eligible", "who": "user", "amount": 2})
    for job in "12345":
        cluster.submit(job)
    cluster.submit("6", owner="bob@x")
    assert starts(cluster, "123456") == [0, 100, 200, None, None, 300]  # 1 runs
    assert waits(cluster, "4") == (
        "another of these jobs to start: at most 2 jobs of user ann eligible at once"
    )
    cluster.at(100)
    assert starts(cluster, "3456") == [200, 400, None, 300]
    check_tallies(cluster)


def test_own_priority_decides_which_job_becomes_eligible() -> None:
    cluster = Limited({"counts": "eligible", "amount": 1})
    for job, priority in (("1", 0), ("2", 0), ("3", 0), ("4", 10)):
        cluster.submit(job, priority=priority)
    cluster.at(100)
    assert starts(cluster, "34") == [None, 200]


def test_a_hold_makes_room_and_a_release_waits_for_room() -> None:
    cluster = Limited({"counts": "eligible", "amount": 1})
    for job in "123":
        cluster.submit(job)
    cluster.hold("2")
    assert starts(cluster, "23") == [None, 100]
    cluster.release("2")
    assert waits(cluster, "2").startswith("another of these jobs to start")
    cluster.delete("3")
    assert cluster.start("2") == 100
    check_tallies(cluster)


def test_submitted_jobs_count_until_they_are_gone() -> None:
    cluster = Limited({"counts": "submitted", "qos": "low", "amount": 2}, nodes=4)
    for job in "123":
        cluster.submit(job, resources={"qos": "low"})
    cluster.submit("4")
    assert starts(cluster, "1234") == [0, 0, None, 0]
    assert waits(cluster, "3") == (
        "another of these jobs to end: at most 2 jobs in QOS low submitted at once; delete some, or wait"
    )
    cluster.at(100)
    assert cluster.start("3") == 100


def test_a_job_on_hold_counts_as_submitted() -> None:
    cluster = Limited({"counts": "submitted", "amount": 1}, nodes=4)
    cluster.submit("1", state="H", holds="u")
    cluster.submit("2")
    assert cluster.start("2") is None
    cluster.delete("1")
    assert cluster.start("2") == 0


def test_jobs_beyond_a_soft_limit_go_after_all_others() -> None:
    cluster = Limited({"who": "user", "soft": 1, "amount": 3})
    for job in "123":
        cluster.submit(job)
    cluster.submit("4", owner="bob@x")
    assert starts(cluster, "1234") == [0, 200, 300, 100]
    note = "planned after all other jobs, since at most 1 job of user ann at once while others wait"
    assert note in cluster.view("2").why
    cluster.at(100)  # 1 is gone: 2 counts as any other job
    cluster.submit("5", owner="cyd@x")
    assert starts(cluster, "2345") == [200, 400, 100, 300]
    assert note not in cluster.view("2").why


def test_a_soft_limit_leaves_no_node_idle() -> None:
    cluster = Limited({"soft": 1, "amount": 2}, nodes=4)
    for job in "1234":
        cluster.submit(job)
    assert starts(cluster, "1234") == [0, 0, 100, 100]


def test_use_within_a_period_is_limited_and_forgotten() -> None:
    use = {"counts": "used", "what": "cpu_seconds", "period": 6400, "amount": 1000}
    cluster = Limited(use, nodes=2)
    cluster.submit("1")
    cluster.submit("2", runtime=50)
    cluster.submit("3")
    assert starts(cluster, "123") == [0, 0, None]
    assert waits(cluster, "3") == (
        "use to fall: at most 0.28 core-hours within 6400s; 0 core-hours are used, "
        "0.22 core-hours are held for planned and running jobs, and it may take 0.11 core-hours"
    )
    cluster.at(50)  # job 2 used 200 of its 400
    assert cluster.start("3") == 50
    cluster.at(200)
    cluster.submit("4")
    assert cluster.start("4") is None
    assert "not before 2023-11-1" in waits(cluster, "4")
    cluster.at(7000)
    assert cluster.runs("4") == [6600]  # the parts of a period are 100 s long; job 1 ended in the second
    check_tallies(cluster)


def test_use_of_many_runs_counts_for_the_whole_period() -> None:
    use = {"counts": "used", "what": "cpu_seconds", "period": 6400, "amount": 40 * 400, "who": "user"}
    cluster = Limited(use)
    jobs = [str(number) for number in range(1, 42)]
    for job in jobs:
        cluster.submit(job)  # one ends in each part of the period
    cluster.at(4000)
    assert [cluster.runs(job) for job in jobs[:40]] == [[start] for start in range(0, 4000, 100)]
    assert cluster.start("41") is None
    assert "4.44 core-hours are used, 0 core-hours are held" in cluster.view("41").why
    cluster.at(7000)
    assert cluster.runs("41") == [6600]  # the use of job 1, which ended at 100, is forgotten
    check_tallies(cluster)


def test_use_decays_by_its_half_life() -> None:
    use = {"counts": "used", "what": "cpu_seconds", "half_life": 1000, "amount": 500, "who": "user"}
    cluster = Limited(use)
    cluster.submit("1")
    cluster.at(100)
    cluster.submit("2")  # 400 are used, and 400 more must fit: 100 are left after two half-lives
    cluster.at(3000)
    assert cluster.runs("2") == [2101]


@pytest.mark.parametrize(("how", "latest"), [({"period": 6400}, 8_500), ({"half_life": 1000}, 4_000)])
def test_use_from_before_the_clock_was_set_back_is_forgotten_like_that_of_now(
    how: dict[str, int], latest: int
) -> None:
    cluster = Limited({"counts": "used", "what": "cpu_seconds", "amount": 500, **how})
    cluster.at(100_000)
    cluster.submit("1")
    cluster.at(100_100)
    cluster.server.now -= 99_000
    cluster.send(ClockSet(id="back", time=cluster.server.now), cluster.server.snapshot())
    cluster.submit("2")
    assert cluster.start("2") is None
    cluster.at(latest)
    assert len(cluster.runs("2")) == 1


def test_use_is_kept_when_the_amount_is_changed() -> None:
    use = {"counts": "used", "what": "walltime", "amount": 150}
    cluster = Limited(use)
    cluster.submit("1")
    cluster.at(100)
    cluster.submit("2")
    assert cluster.start("2") is None
    site = {"limits": [{**use, "amount": 200}]}
    cluster.send(PolicyChanged(id="p", time=cluster.server.now, version=1, site=site))
    assert cluster.start("2") == 100


def test_a_changed_limit_removes_and_plans_jobs() -> None:
    cluster = Limited()
    for job in "1234":
        cluster.submit(job)
    one = {"limits": [{"counts": "eligible", "amount": 1}]}
    cluster.send(PolicyChanged(id="p1", time=cluster.server.now, version=1, site=one))
    assert starts(cluster, "1234") == [0, 100, None, None]
    two = {"limits": [{"counts": "eligible", "amount": 2}]}
    cluster.send(PolicyChanged(id="p2", time=cluster.server.now, version=2, site=two))
    assert starts(cluster, "1234") == [0, 100, 200, None]
    cluster.send(PolicyChanged(id="p3", time=cluster.server.now, version=3, site={}))
    assert starts(cluster, "1234") == [0, 100, 200, 300]
    assert not limit_state(cluster.engine.state).tallies


def test_an_amount_beyond_a_limit_must_wait_for_a_higher_limit() -> None:
    cluster = Limited({"counts": "eligible", "what": "cpus", "amount": 3})
    cluster.submit("1")
    assert waits(cluster, "1") == (
        f"{LIMIT_TO_BE_RAISED}: at most 3 cpus eligible at once; it asks for 4 cpus"
    )
    cluster.alter_request("1", nodes="1:ppn=2")
    assert cluster.start("1") == 0


def test_a_job_that_is_altered_to_less_makes_room() -> None:
    cluster = Limited({"counts": "eligible", "what": "cpus", "amount": 4})
    for job, cpus in (("1", 4), ("2", 4), ("3", 2)):
        cluster.submit(job, nodes=f"1:ppn={cpus}")
    assert starts(cluster, "123") == [0, 100, None]
    cluster.alter_request("2", nodes="1:ppn=2")
    assert starts(cluster, "123") == [0, 100, 100]


def test_a_job_that_is_altered_to_more_than_there_is_room_for_makes_room() -> None:
    cluster = Limited({"counts": "eligible", "what": "cpus", "amount": 4})
    for job, cpus in (("1", 4), ("2", 2), ("3", 1), ("4", 2)):
        cluster.submit(job, nodes=f"1:ppn={cpus}")
    assert starts(cluster, "1234") == [0, 100, 100, None]
    cluster.alter_request("3", nodes="1:ppn=4")
    assert starts(cluster, "1234") == [0, 100, None, 100]


def test_a_job_that_may_use_the_whole_limit_starts_after_the_decay_of_past_use() -> None:
    use = {"counts": "used", "what": "cpu_seconds", "half_life": 1000, "amount": 400, "who": "user"}
    cluster = Limited(use)
    cluster.submit("1")
    cluster.at(100)
    cluster.submit("2")
    assert "not before 2023-11-15" in waits(cluster, "2")
    cluster.at(20_000)
    assert cluster.runs("2") == [8744]  # 400 * 0.5 ** (8644 / 1000) < 1


def test_a_planned_job_keeps_its_room_when_a_run_used_more_than_was_held_for_it() -> None:
    use = {"qos": "low", "counts": "used", "what": "walltime", "half_life": 3000, "amount": 200}
    site = {"limits": [use], "qos": {"levels": {"low": {}, "high": {}}}}
    cluster = Cluster(slack=10, site=site)
    cluster.submit("1", runtime=150, resources={"qos": "low"})
    cluster.submit("2", walltime=500, resources={"qos": "high"})
    cluster.submit("3", walltime=90, resources={"qos": "low"})
    assert starts(cluster, "123") == [0, 100, 600]
    cluster.at(170)
    before = cluster.start("3")
    cluster.alter_request("3", walltime="80")  # 150 were used and 80 more are wanted
    assert cluster.start("3") == before
    published, record = publish_snapshot(cluster.engine.state), cluster.record("3")
    assert wait_in_what_if(published, record.facts, record.understood, "3") is None
    cluster.alter_request("3", walltime="85")  # more than it has room for
    assert "use to fall" in waits(cluster, "3")
    cluster.at(3000)
    assert len(cluster.runs("3")) == 1


def test_jobs_on_hold_count_as_submitted_after_a_change_of_the_policy() -> None:
    limit = {"counts": "submitted", "amount": 1}
    cluster = Limited(limit, nodes=4)
    cluster.submit("1", state="H", holds="u")
    site = {"limits": [limit], "zone": "Europe/Berlin"}
    cluster.send(PolicyChanged(id="p", time=cluster.server.now, version=1, site=site))
    cluster.submit("2")
    assert cluster.start("2") is None
    cluster.delete("1")
    assert cluster.start("2") == 0


def test_a_job_that_left_a_soft_limit_without_a_place_goes_last_no_longer() -> None:
    cluster = Limited({"qos": "low", "soft": 1})
    for job in "12":
        cluster.submit(job, resources={"qos": "low"})
    cluster.submit("3", owner="bob@x")
    assert starts(cluster, "123") == [0, 200, 100]
    cluster.alter_request("2", qos="high")
    rank = cluster.engine.state.rank
    assert rank[cluster.record("2").slot] == rank[cluster.record("3").slot]


def test_a_soft_limit_counts_licences() -> None:
    cluster = Limited({"what": "matlab", "soft": 1, "amount": 9})
    for job in "12":
        cluster.submit(job, resources={"matlab": "1"})
    cluster.submit("3")
    assert starts(cluster, "123") == [0, 200, 100]


def test_a_limit_of_a_qos_does_not_lower_the_copies_of_a_licence() -> None:
    cluster = Limited({"what": "matlab", "amount": 10}, {"what": "matlab", "qos": "low", "amount": 2})
    assert cluster.engine.state.limits.copies == {"matlab": 10}


def test_a_what_if_answers_with_the_limit() -> None:
    cluster = Limited({"counts": "submitted", "who": "user", "amount": 2})
    cluster.submit("1")
    cluster.submit("2")
    state = cluster.engine.state
    published = publish_snapshot(state)
    facts = JobFacts(id="x", owner="ann@x", queue="batch", submitted=0, resources={"nodes": "1"})
    understood = state.requests.read(facts, None, {})
    found = wait_in_what_if(published, facts, understood, "")
    assert found is not None
    assert "at most 2 jobs of user ann submitted at once" in found.what
    assert wait_in_what_if(published, facts, understood, "2") is None
    cluster.submit("3")  # it waits, and does not count
    cluster.hold("2")  # it counts, though it is not planned
    published = publish_snapshot(state)
    assert wait_in_what_if(published, facts, understood, "3") is not None
    assert wait_in_what_if(published, facts, understood, "2") is None


def test_counts_survive_a_restart() -> None:
    cluster = Limited(
        {"counts": "eligible", "who": "user", "amount": 2},
        {"counts": "used", "what": "cpu_seconds", "period": 6400, "amount": 100_000},
        {"soft": 2},
    )
    for job in "12345":
        cluster.submit(job)
    cluster.at(100)
    part = limit_state(cluster.engine.state)
    cluster.engine = Engine.restore(cluster.engine.checkpoint(), cluster.engine.state.settings)
    after = limit_state(cluster.engine.state)
    assert after is not part
    assert (after.tallies, after.limits, after.meters) == (part.tallies, part.limits, part.meters)
    assert ({job: set(pools) for job, pools in after.pools.items()}, after.last) == (
        {job: set(pools) for job, pools in part.pools.items()},
        part.last,
    )
    cluster.at(1000)
    assert [cluster.runs(job) for job in "2345"] == [[100], [200], [300], [400]]


@pytest.mark.parametrize(
    ("limit", "fault"),
    [
        ({}, "amount or soft must be set"),
        ({"amount": 1, "soft": 2}, "must not be more than amount"),
        ({"amount": 2, "soft": 1, "counts": "eligible"}, "soft is for counts = running"),
        ({"amount": 2, "counts": "used"}, "use over time is counted in"),
        ({"amount": 2, "counts": "eligible", "what": "mem"}, "is for jobs, cpus, nodes or gpus"),
        ({"amount": 2, "period": "1d"}, "are for counts = used"),
        (
            {"amount": 2, "counts": "used", "what": "walltime", "period": "1d", "half_life": "1d"},
            "not both",
        ),
        (
            {"soft": 1, "first": "2026-01-05T08:00:00", "last": "2026-01-05T18:00:00"},
            "a limit with first and last",
        ),
    ],
)
def test_bad_limits_are_refused(limit: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        SiteSettings.model_validate({"limits": [limit]})


@given(
    charges=st.lists(
        st.tuples(st.integers(0, 150) | st.integers(0, 5000), st.integers(0, 3000), st.integers(1, 1000)),
        max_size=100,
    ),
    kind=st.sampled_from([(0, 0), (6400, 0), (0, 3000)]),
    most=st.integers(1, 2000),
)
@example(charges=[(100, 0, 10)] * 64, kind=(6400, 0), most=300)  # use in each part of the period
def test_meters_agree_with_the_definition(
    charges: list[tuple[int, int, int]], kind: tuple[int, int], most: int
) -> None:
    period, half_life = kind
    meter, now = UseMeter(period, half_life), 0
    ends: list[tuple[int, int]] = []
    for wait, delay, amount in charges:
        now += wait
        meter.charge(amount, now - delay, now)
        ends.append((now - delay, amount))

    def used(at: int) -> float:
        if period:  # use ends in parts of a sixty-fourth of the period
            return sum(amount for end, amount in ends if (end // 100 + 1) * 100 + period > at)
        return sum(amount * (0.5 ** ((at - end) / half_life) if half_life else 1) for end, amount in ends)

    for at in (now, now + 999, now + 10_000):
        assert meter.used(at) == pytest.approx(used(at))
    at = meter.below_at(most, now)
    if at == FOREVER:
        assert not period
        assert not half_life
    else:
        assert used(at) <= most + 1e-6
        assert at == now or used(at - 2) > most - 1e-6


STEPS = ("submit", "hold", "release", "delete", "wait", "alter", "policy")


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 9)),
        max_size=30,
    )
)
def test_counts_agree_with_the_jobs_after_any_events(steps: list[tuple[str, int]]) -> None:
    limits: list[dict[str, Any]] = [
        {"counts": "eligible", "who": "user", "what": "cpus", "amount": 8},
        {"counts": "submitted", "amount": 5},
        {"counts": "used", "what": "walltime", "half_life": 500, "amount": 800},
        {"soft": 1},
    ]
    cluster = Limited(*limits, nodes=2)
    number = 0
    for what, which in steps:
        known = sorted(cluster.server.jobs)
        job = known[which % len(known)] if known else ""
        if what == "submit":
            number += 1
            cluster.submit(f"{number}", owner=("ann@x", "bob@x")[which % 2], priority=which)
        elif what == "wait":
            cluster.at(cluster.server.now - T + 40 * which)
        elif what == "policy":
            site = {"limits": limits, "zone": ("UTC", "Europe/Berlin")[which % 2]}
            cluster.send(PolicyChanged(id="p", time=cluster.server.now, version=number, site=site))
        elif job and cluster.server.jobs[job].state in ("Q", "H"):
            if what == "alter":
                cluster.alter_request(job, nodes=f"1:ppn={which % 4 + 1}", walltime=f"{which * 50 + 50}")
            else:
                getattr(cluster, what)(job)
        check_tallies(cluster)
        _check_nobody_waits_for_free_room(cluster)
        _check_all_jobs_are_submitted(cluster)


def _check_nobody_waits_for_free_room(cluster: Cluster) -> None:
    part, now = limit_state(cluster.engine.state), cluster.engine.state.now
    for pool, tally in part.tallies.items():
        used = part.meters[pool].used(now) if pool in part.meters else 0
        room = part.limits[pool].amount - tally.total - int(used)
        assert all(amount > room for amount in tally.outside.values()), pool


def _check_all_jobs_are_submitted(cluster: Cluster) -> None:
    part = limit_state(cluster.engine.state)
    # A limit without running jobs has no tally.
    tallies = [tally for pool, tally in part.tallies.items() if part.limits[pool].counts == "submitted"]
    counted = [job for tally in tallies for job in (*tally.inside, *tally.outside)]
    assert sorted(counted) == sorted(cluster.engine.state.records)


def test_a_limit_on_use_counts_the_altered_walltime_of_a_run() -> None:
    cluster = Limited({"what": "cpu_seconds", "amount": 1_000, "counts": "used", "period": 86_400}, nodes=2)
    cluster.submit("1", walltime=100, runtime=300)
    cluster.at(50)
    cluster.alter_request("1", walltime="200")
    cluster.submit("2", walltime=100)
    assert "use to fall" in waits(cluster, "2")
    cluster.at(60)
    cluster.alter_request("1", walltime="100")
    assert cluster.runs("2") == [60]
