"""The driver: schedules worked out by hand, and random ones against a slow and obvious simulator."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from research.experiments.random_outages import random_outages
from schedd.engine import EngineSettings
from schedd.policy.queue_policies import QUEUE_POLICIES
from schedd.policy.site import site_policy
from schedd.policy.slack import Slack
from schedd.replay.driver import replay, run
from schedd.replay.failures import Outage, check_outages
from schedd.replay.limits import jobs_within_limits, peak_usage
from schedd.replay.machine_state import ReplayDefectError, ReplayMachine, check_capacity
from schedd.replay.prepared import Prepared, prepare
from schedd.replay.report import to_json
from schedd.replay.result import TIMINGS
from schedd.replay.simulation import Progress, Schedule, Simulation
from schedd.replay.site import ReplaySite, equal_node_site, single_node_site
from schedd.replay.workload import Trace, TraceError, TraceJob, select
from schedd.wire import NodeFacts, ShareFacts
from tests.property_examples import examples
from tests.replay.oracle import Each, Job, promises_held, simulate

POLICIES = ("conservative", *QUEUE_POLICIES)
OF_EACH_SORT = ("conservative", "fcfs", "easy", "aggressive", "easy-xf-24h")


def prepared(jobs: Sequence[Job], procs: int, **how: bool) -> Prepared:
    trace = Trace(
        "t",
        tuple(
            TraceJob(
                id=i,
                submit=job.submit,
                run=job.run,
                procs=job.procs,
                estimate=job.limit,
                user=f"u{i % 3}",
                deadline=job.due,
            )
            for i, job in enumerate(jobs, 1)
        ),
    )
    return prepare(select(trace, estimates="user", procs=procs, **how), single_node_site(procs))


def starts(jobs: Sequence[Job], procs: int, policy: str) -> list[int]:
    found: list[int] = run(prepared(jobs, procs), policy, validate=True).start.tolist()
    return found


def test_job_that_never_fits_is_excluded() -> None:
    # Each part fits the one large node, but not both; the other job runs.
    site = ReplaySite(
        (NodeFacts(name="a", cpus=8, properties=("big",)), NodeFacts(name="b", cpus=2)), shaped=True
    )
    jobs = tuple(
        TraceJob(id=i, submit=i, run=10, procs=10, estimate=10, nodes_spec=spec)
        for i, spec in enumerate(["1:ppn=5:big+1:ppn=4:big", "1:ppn=8+1:ppn=2"], 1)
    )
    ready = prepare(select(Trace("t", jobs), procs=10), site)
    assert (len(ready.jobs), ready.skipped) == (1, 1)
    assert run(ready, "conservative", validate=True).start.tolist() == [2]


# Four processors. A holds three of them; B needs all; C fits together with A but ends after it; D is short
# and fits together with A; E is the shortest but needs all.
A, B, C, D, E = Job(0, 10, 3, 10), Job(1, 10, 4, 10), Job(2, 20, 1, 20), Job(3, 5, 1, 5), Job(4, 2, 4, 2)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        # Strictly in order: B after A, C and D when B ends, E when C ends.
        ("fcfs", [0, 10, 20, 20, 40]),
        # E is the shortest waiting job and goes first, though it needs all: at 10. Then D, B, C; but D was
        # the only candidate before E's arrival, and started at once.
        ("sjf", [0, 12, 22, 3, 10]),
        # B is reserved at 10. C would run into it, D would not. At 10 B; at 20 C; E waits for C.
        ("easy", [0, 10, 20, 3, 40]),
        # Fitting jobs start: C at 2 together with A, then none until A ends; D at 10; B only after the end of
        # C, because it precedes E.
        ("aggressive", [0, 22, 2, 10, 32]),
        # B at 10, C after it at 20, D in the gap together with A. E after C: 40.
        ("conservative", [0, 10, 20, 3, 40]),
    ],
)
def test_schedules_worked_out_by_hand(policy: str, expected: list[int]) -> None:
    assert starts([A, B, C, D, E], 4, policy) == expected


def test_easy_lets_a_long_narrow_job_use_processors_that_the_reservation_leaves_over() -> None:
    # The head needs 3 of 4 at 10; the fourth stays free, so a job of any length may have it now.
    jobs = [Job(0, 10, 3, 10), Job(1, 10, 3, 10), Job(2, 99, 1, 99)]
    assert starts(jobs, 4, "easy") == [0, 10, 2]


def test_easy_may_delay_the_second_in_line_and_conservative_may_not() -> None:
    # The head needs 2 of 3 at 10. The last job fits on the third from now on, to the cost of the second
    # in line, which needs all three.
    jobs = [Job(0, 10, 2, 10), Job(1, 10, 2, 10), Job(2, 10, 3, 10), Job(3, 60, 1, 60)]
    assert starts(jobs, 3, "easy") == [0, 10, 63, 3]
    assert starts(jobs, 3, "conservative") == [0, 10, 20, 30]


def test_early_end_compacts_the_plan_without_delaying_any_job() -> None:
    # Planned with limits: A [0,100), B [100,150), C [150,160). A ends at 30.
    jobs = [Job(0, 30, 2, 100), Job(1, 50, 2, 50), Job(2, 10, 2, 10)]
    assert starts(jobs, 2, "conservative") == [0, 30, 80]


def test_a_freed_hole_goes_to_the_job_planned_first_that_fits_it() -> None:
    # X runs on one cpu until 100. A [0,100) of one cpu ends at 30; B needs both at 100; C (70 s, planned
    # behind B) just fits the hole until 100, and B is not delayed by it.
    jobs = [Job(0, 100, 1, 100), Job(0, 30, 1, 100), Job(1, 10, 2, 10), Job(2, 70, 1, 70)]
    assert starts(jobs, 2, "conservative") == [0, 0, 100, 30]
    longer = [*jobs[:3], Job(2, 71, 1, 71)]
    assert starts(longer, 2, "conservative") == [0, 0, 100, 110]


@pytest.mark.parametrize("policy", OF_EACH_SORT)
def test_end_and_arrival_in_the_same_second_meet(policy: str) -> None:
    assert starts([Job(0, 10, 2, 10), Job(10, 5, 2, 5)], 2, policy) == [0, 10]


@pytest.mark.parametrize("policy", OF_EACH_SORT)
def test_a_log_may_begin_before_its_own_origin_and_pause_for_years(policy: str) -> None:
    jobs = [Job(-500, 10, 1, 10), Job(-495, 10, 1, 10), Job(10**9, 10, 1, 20)]
    assert starts(jobs, 1, policy) == [-500, -490, 10**9]


_JOBS = st.lists(
    st.builds(
        lambda gap, run, procs, spare: (gap, run, procs, spare),
        gap=st.one_of(st.just(0), st.integers(0, 400)),
        run=st.integers(1, 900),
        procs=st.integers(1, 7),
        spare=st.one_of(st.just(0), st.integers(0, 2000)),
    ),
    min_size=1,
    max_size=28,
)


# Rivals by age differ only by waits of hours: their times are stretched.
_STRETCH = {name: 60 if name.startswith("easy-") else 1 for name in POLICIES}


@pytest.mark.parametrize("policy", POLICIES)
@given(raw=_JOBS, exact=st.booleans(), lax=st.lists(st.integers(-3, 9), min_size=28, max_size=28))
@settings(max_examples=examples(60))
def test_random_traces_run_as_in_a_slow_and_obvious_simulator(
    policy: str, raw: list[tuple[int, int, int, int]], exact: bool, lax: list[int]
) -> None:
    jobs, at, by = [], 0, _STRETCH[policy]
    for (gap, length, procs, spare), late in zip(raw, lax, strict=False):
        at += gap
        limit = length + (0 if exact else spare)
        due = None if late < 0 else at + limit * (1 + late) // 2
        jobs.append(Job(by * at, by * length, procs, by * limit, due=None if due is None else by * due))
    expected = simulate(jobs, 7, policy)
    found = run(prepared(jobs, 7), policy, validate=True)
    assert found.promise_breaches == 0
    event(f"clear: {expected.clear}")
    if expected.clear:
        assert tuple(found.start.tolist()) == expected.start
    else:
        # Two planned starts fell together: their order is the plan's own affair, but not its promises.
        assert _peak(jobs, found) <= 7
        assert all(a >= job.submit for a, job in zip(found.start.tolist(), jobs, strict=True))


def _user_limits(jobs: Sequence[Job], procs: int) -> Prepared:
    traced = tuple(
        TraceJob(id=i, submit=j.submit, run=j.run, procs=j.procs, estimate=j.limit, user=f"u{j.user}")
        for i, j in enumerate(jobs, 1)
    )
    return prepare(select(Trace("t", traced), estimates="user", procs=procs), single_node_site(procs))


def _limits(each: Each) -> dict[str, object]:
    amounts = {"jobs": each.jobs, "cpus": each.procs}
    return {"limits": [{"amount": most, "what": what, "who": "user"} for what, most in amounts.items()]}


@given(raw=_JOBS, users=st.lists(st.integers(0, 2), min_size=28, max_size=28), most=st.integers(1, 4))
@settings(max_examples=examples(120))
def test_user_limits_match_the_reference_simulator(
    raw: list[tuple[int, int, int, int]], users: list[int], most: int
) -> None:
    jobs, at = [], 0
    each = Each(most, 5)
    for (gap, length, procs, spare), user in zip(raw, users, strict=False):
        at += gap
        jobs.append(Job(at, length, min(procs, each.procs), length + spare, user))
    expected = simulate(jobs, 7, "conservative", each)
    found = run(_user_limits(jobs, 7), "conservative", site=_limits(each), validate=True)
    start = found.start.tolist()
    assert found.promise_breaches == 0
    assert promises_held(jobs, start, each)
    assert _peak(jobs, found) <= 7
    event(f"clear: {expected.clear}")
    if expected.clear:
        assert tuple(start) == expected.start


def test_violated_limits_are_detected_independently() -> None:
    """Without the limit the two jobs of one user run at once: the check must say so, or it is none."""
    jobs = [Job(0, 10, 1, 10), Job(0, 10, 1, 10)]
    ready = _user_limits(jobs, 2)
    limit = _limits(Each(1, 1))
    schedule = run(ready, "conservative")
    seen = peak_usage(site_policy(limit), ready, ready.jobs, schedule.start.tolist(), schedule.end.tolist())
    assert [(peak.used, peak.amount, peak.by) for peak in seen] == [(2, 1, "u0"), (2, 1, "u0")]
    assert not promises_held(jobs, schedule.start.tolist(), Each(1, 1))
    result = replay(ready, "conservative", site=limit)
    assert [(peak.used, peak.by) for peak in result.limits] == [(1, "u0"), (1, "u0")]
    assert result.metrics.max_wait_s == 10


def test_named_limit_overrides_generic_limit_in_the_check() -> None:
    jobs = [Job(0, 10, 1, 10, user) for user in (0, 0, 1, 1)]
    site = {"limits": [{"amount": 1, "who": "user"}, {"amount": 2, "who": "user", "name": "u1"}]}
    result = replay(_user_limits(jobs, 4), "conservative", site=site)
    assert [(peak.used, peak.by) for peak in result.limits] == [(1, "u0"), (2, "u1")]


def test_limits_of_accounts_and_projects_count_the_jobs_of_each() -> None:
    ready = _user_limits([Job(0, 10, 1, 10) for _ in range(6)], 6)
    names = [("a", "p"), ("a", ""), ("b", "p"), ("b", ""), ("", ""), ("", "")]
    jobs = [
        replace(job, account=account, project=project)
        for job, (account, project) in zip(ready.jobs, names, strict=True)
    ]
    site = {"limits": [{"amount": 1, "who": "account"}, {"amount": 1, "who": "project"}]}
    ready, left_out = jobs_within_limits(replace(ready, jobs=tuple(jobs)), site_policy(site))
    schedule = run(ready, "conservative", site=site)
    assert (left_out, sorted(schedule.start.tolist())) == (0, [0, 0, 0, 0, 10, 10])
    seen = peak_usage(site_policy(site), ready, ready.jobs, schedule.start.tolist(), schedule.end.tolist())
    assert [peak.used for peak in seen] == [1, 1]
    unlimited = run(ready, "conservative")
    seen = peak_usage(site_policy(site), ready, ready.jobs, unlimited.start.tolist(), unlimited.end.tolist())
    assert [peak.used for peak in seen] == [2, 2]


def test_jobs_that_a_limit_never_allows_are_left_out_and_counted() -> None:
    ready = _user_limits([Job(0, 10, 3, 10, 0), Job(0, 10, 1, 10, 1)], 4)
    site = {"limits": [{"amount": 2, "what": "cpus", "who": "user"}]}
    left, count = jobs_within_limits(ready, site_policy(site))
    assert (len(left.jobs), left.skipped, count) == (1, 1, 1)
    assert jobs_within_limits(ready, site_policy({})) == (ready, 0)
    with pytest.raises(TraceError, match="allow none of its jobs"):
        jobs_within_limits(ready, site_policy({"limits": [{"amount": 0}]}))
    with pytest.raises(TraceError, match="lack the data for the limit 'at most 1 gpu at once'"):
        jobs_within_limits(ready, site_policy({"limits": [{"amount": 1, "what": "gpus"}]}))


def _peak(jobs: Sequence[Job], schedule: Schedule) -> int:
    return max(
        sum(
            job.procs for job, s, e in zip(jobs, schedule.start, schedule.end, strict=True) if s <= moment < e
        )
        for moment in schedule.start
    )


@pytest.mark.parametrize("policy", OF_EACH_SORT)
@given(raw=_JOBS)
@settings(max_examples=examples(25))
def test_several_nodes_are_never_over_committed(policy: str, raw: list[tuple[int, int, int, int]]) -> None:
    at, jobs = 0, []
    for i, (gap, length, procs, spare) in enumerate(raw):
        at += gap
        jobs.append(TraceJob(i, at, length, procs, length + spare, mem_kib_per_proc=procs * 280))
    chosen = select(Trace("t", tuple(jobs)), estimates="user", procs=9)
    # `validate` adds up the use of every node at every moment; the driver does so for the whole machine.
    result = replay(prepare(chosen, equal_node_site(3, 3, 6000)), policy, validate=True)
    assert result.jobs == len(jobs)
    assert result.promise_breaches == 0


@pytest.mark.parametrize("policy", OF_EACH_SORT)
def test_replays_are_equal_except_timings(policy: str) -> None:
    jobs = [Job(7 * i % 97 + 3 * i, 1 + 37 * i % 211, 1 + i % 5, 300) for i in range(200)]
    ordered = sorted(jobs, key=lambda job: job.submit)
    rows = [json.loads(to_json([replay(prepared(ordered, 5), policy)]))[0] for _ in range(2)]
    for row in rows:
        for name in TIMINGS:
            del row[name]
    assert rows[0] == rows[1]


def test_with_kill_a_job_ends_at_its_limit() -> None:
    over = [Job(0, 50, 2, 20), Job(1, 5, 2, 5)]
    assert run(prepared(over, 2), "fcfs").start.tolist() == [0, 50]
    killed = run(prepared(over, 2, kill=True), "fcfs")
    assert killed.start.tolist() == [0, 20]
    assert killed.end.tolist() == [20, 25]


def test_progress_is_monotonic_and_complete() -> None:
    seen: list[Progress] = []
    jobs = [Job(10 * i, 5, 1, 5) for i in range(700)]
    replay(prepared(jobs, 1), "easy", on_progress=seen.append)
    assert len(seen) > 2
    assert seen[-1].ended == seen[-1].jobs == 700
    assert seen == sorted(seen, key=lambda p: (p.time, p.ended, p.events))


def test_early_ends_count_repairs() -> None:
    jobs = [Job(i, 10, 1, 50) for i in range(5)]
    assert replay(prepared(jobs, 1), "conservative").repairs >= 4
    exact = [replace(job, limit=job.run) for job in jobs]
    assert replay(prepared(exact, 1), "conservative").repairs == 0


def test_overcommitment_is_detected_independently() -> None:
    schedule = run(prepared([Job(0, 10, 2, 10), Job(0, 10, 2, 10)], 2), "fcfs")
    check_capacity(schedule.start, schedule.end, [2, 2], 2)
    with pytest.raises(ReplayDefectError, match="4 processors are in use at"):
        check_capacity(schedule.start * 0, schedule.start * 0 + 10, [2, 2], 2)


def test_start_on_a_full_node_is_detected_independently() -> None:
    floor = ReplayMachine([NodeFacts(name="a", cpus=4, mem=100), NodeFacts(name="b", cpus=4)])
    assert not floor.enter(1, [ShareFacts("a", 2, 60), ShareFacts("b", 4, 999)])
    assert floor.enter(2, [ShareFacts("b", 1)]).startswith("b,")
    assert floor.enter(3, [ShareFacts("a", 1, 50)]).startswith("a,")
    for job in (1, 2, 3):
        floor.leave(job)
    assert not floor.enter(4, [ShareFacts("a", 4, 100), ShareFacts("b", 4)])
    assert floor.fail("b") == [4]
    floor.leave(4)
    assert floor.enter(5, [ShareFacts("b", 1)]) == "b, which is down"
    floor.restore("b")
    assert not floor.enter(6, [ShareFacts("b", 1)])


def test_a_start_after_its_promise_counts_as_a_breach_though_the_engine_saw_none() -> None:
    settings = EngineSettings(end_allowance=0, publish_starts=False)
    simulation = Simulation(prepared([Job(0, 10, 1, 10), Job(1, 10, 1, 10)], 1), settings)
    for _ in range(2):
        moment = simulation._next_moment()
        assert moment is not None
        simulation._second(moment)
    state = simulation._engine.state
    state.promise[state.records["1"].slot] -= 1
    simulation.run(None)
    assert simulation.schedule().promise_breaches == 1


def on_nodes(jobs: Sequence[Job], nodes: int) -> Prepared:
    """Nodes of one cpu."""
    traced = tuple(TraceJob(i, job.submit, job.run, job.procs, job.limit) for i, job in enumerate(jobs, 1))
    return prepare(select(Trace("t", traced), estimates="user", procs=nodes), equal_node_site(nodes, 1))


@pytest.mark.parametrize("policy", OF_EACH_SORT)
def test_failed_node_kills_its_jobs_and_starts_none_until_restored(
    policy: str,
) -> None:
    jobs = [Job(0, 100, 2, 100), Job(0, 100, 1, 100), Job(1, 10, 3, 10)]
    found = run(on_nodes(jobs, 3), policy, outages=[Outage(50, 200, 0)], validate=True)
    # Whichever of the first two held node 0 is killed at 50; all three are free again at 200.
    assert found.killed.sum() == 1
    killed = int(found.killed.argmax())
    assert found.end[killed] == 50
    assert found.end[1 - killed] == 100
    assert found.start[2] >= 200
    result = replay(on_nodes(jobs, 3), policy, outages=[Outage(50, 200, 0)])
    assert (result.jobs, result.killed_jobs) == (3, 1)
    assert result.metrics.max_wait_s == found.start[2] - 1


@pytest.mark.parametrize("policy", OF_EACH_SORT)
@given(raw=_JOBS, seed=st.integers(0, 99))
@settings(max_examples=examples(20))
def test_jobs_run_once_and_for_their_time_though_nodes_fail(
    policy: str, raw: list[tuple[int, int, int, int]], seed: int
) -> None:
    at, jobs = 0, []
    for gap, length, procs, spare in raw:
        at += gap
        jobs.append(Job(at, length, procs, length + spare))
    ready = on_nodes(jobs, 7)
    outages = random_outages(ready, 0.2, 0.1, seed)
    # A start on a node that is down, or on one without room, would be a Defect.
    found = run(ready, policy, outages=outages, validate=True)
    for i, job in enumerate(jobs):
        ran = found.end[i] - found.start[i]
        assert ran < job.run if found.killed[i] else ran == job.run
        assert not found.killed[i] or any(outage.begin == found.end[i] for outage in outages)


def test_outages_that_make_no_sense_are_refused() -> None:
    ready = on_nodes([Job(0, 1, 1, 1)], 2)
    with pytest.raises(ValueError, match="does not end after its begin"):
        Outage(5, 5, 0)
    with pytest.raises(ValueError, match="there are only 2"):
        check_outages([Outage(0, 5, 2)], 2)
    with pytest.raises(ValueError, match="while it is down"):
        check_outages([Outage(3, 9, 1), Outage(0, 5, 1)], 2)
    with pytest.raises(ValueError, match="above 0"):
        random_outages(ready, 0, 1, 1)
    far = on_nodes([Job(0, 1, 1, 1), Job(10**6, 1, 1, 1)], 2)
    check_outages(random_outages(far, 10, 1, 1), 2)
    assert random_outages(far, 10, 1, 1) == random_outages(far, 10, 1, 1) != random_outages(far, 10, 1, 2)


def test_deadlines_reach_the_engine_and_are_judged() -> None:
    jobs = tuple(TraceJob(i, 0, 10, 1, 10, deadline=due) for i, due in enumerate([10, 15, None]))
    ready = prepare(select(Trace("t", jobs), procs=1), single_node_site(1))
    assert ready.facts(1).resources["deadline"].startswith("1970-01-01T00:00:16")
    result = replay(ready, "fcfs")
    assert (result.late_jobs, result.tardiness_s) == (1, 2.5)
    assert replay(prepared([Job(0, 1, 1, 1)], 1), "fcfs").late_jobs is None


def test_start_estimate_at_arrival_is_compared_with_the_real_start() -> None:
    jobs = [Job(0, 30, 2, 100), Job(1, 50, 2, 50)]
    found = run(prepared(jobs, 2), "conservative")
    assert (found.estimated_starts.tolist(), found.start.tolist()) == ([0, 100], [0, 30])
    result = replay(prepared(jobs, 2), "conservative")
    assert (result.held_share, result.start_delay_s) == (1.0, 0.0)
    assert replay(prepared(jobs, 2), "easy").held_share is None


@pytest.mark.parametrize(("slack", "inversions"), [(0, 1), (100_000, 0)])
def test_start_before_a_fitting_higher_priority_job_is_an_inversion(slack: int, inversions: int) -> None:
    """The short job comes last: without slack the long one before it keeps its place."""
    jobs = [Job(0, 10, 4, 10), Job(1, 100, 4, 100), Job(2, 5, 4, 5)]
    result = replay(
        prepared(jobs, 4),
        "conservative",
        site={"priority": {"short": 1000.0}},
        slack=Slack(slack),
        validate=True,
    )
    assert (result.inversions, result.promise_breaches) == (inversions, 0)
    assert result.as_row()["inversions"] == inversions
    assert replay(prepared(jobs, 4), "conservative").inversions is None
