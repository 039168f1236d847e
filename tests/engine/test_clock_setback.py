"""A clock that jumps: what the engine does when the shell says that it was set back, and before that."""

from dataclasses import replace
from random import Random

import pytest

from schedd.engine import Engine
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.power.state import NodePower, PowerState, shift_power
from schedd.features.preemption.state import PreemptionState, limit_moments
from schedd.features.reservations.state import reservation_records
from schedd.wire import BatchSkipped, ClockSet, Event, JobStarted, Run, RunAccepted, RunRefused, ShareFacts
from tests.engine.cluster import Cluster, T
from tests.property_examples import examples

DAY = 86_400


def last_run(cluster: Cluster, job_id: str) -> Run:
    return [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == job_id][-1]


def jump(cluster: Cluster, seconds: int) -> None:
    """The clock is set; a wake or an event follows."""
    cluster.server.now += seconds
    if cluster.engine.state.now - cluster.server.now > 60:
        cluster.send(ClockSet(id=cluster.server.event_id(), time=cluster.server.now))
        cluster.send(cluster.server.snapshot())
    else:
        cluster.send()


@pytest.mark.parametrize("seconds", [3_600, DAY, 30 * DAY])
def test_plan_is_unchanged_after_the_clock_was_set_forward_and_back(seconds: int) -> None:
    cluster = Cluster(nodes=2, slack=50)
    for number in "012345":
        cluster.submit(number, walltime=100)
    cluster.at(50)
    planned = [cluster.start(number) for number in "2345"]
    promised = [cluster.promise(number) for number in "2345"]
    jump(cluster, seconds)
    jump(cluster, -seconds)
    assert cluster.engine.state.now == cluster.server.now == T + 50
    assert [cluster.start(number) for number in "2345"] == planned == [100, 100, 200, 200]
    assert [cluster.promise(number) for number in "2345"] == promised  # though broken meanwhile
    assert [one.kind for one in publish_snapshot(cluster.engine.state).alerts] == ["clock"]
    cluster.at(250)
    assert [cluster.runs(number) for number in "012345"] == [[0], [0], [100], [100], [200], [200]]
    cluster.at(2_000)
    assert publish_snapshot(cluster.engine.state).alerts == ()


def test_job_that_arrived_while_the_clock_was_ahead_gets_a_new_promise() -> None:
    cluster = Cluster(slack=50)
    cluster.submit("1", walltime=1_000)
    jump(cluster, 3_600)
    cluster.submit("2", walltime=1_000)
    late = cluster.promise("2")
    jump(cluster, -3_600)
    assert late is not None
    assert late > 3_600
    assert (cluster.start("2"), cluster.promise("2")) == (1_000, 1_050)


def test_components_keep_no_moments_of_the_time_when_the_clock_was_ahead() -> None:
    power, preemptions = PowerState(), PreemptionState()
    power.nodes["n1"] = NodePower("n1", since=T + 900, again=T + 1_200)
    power.nodes["n2"] = NodePower("n2")
    power.meters_due = power.saved_until = T + 1_000
    shift_power(power, T, 1_000)
    assert [(one.since, one.again) for one in power.nodes.values()] == [(T - 100, T + 200), (0, 0)]
    assert (power.meters_due, power.saved_until) == (T, T)
    preemptions.preempted, preemptions.refused = {"1": T + 900, "2": T - 5}, {"3": T + 7}
    preemptions.exposed_until = T + 1_000
    limit_moments(preemptions, T, 1_000)
    assert (preemptions.preempted, preemptions.refused) == ({"1": T, "2": T - 5}, {"3": T})
    assert preemptions.exposed_until == T


def test_failures_and_an_outage_while_the_clock_was_ahead_are_not_in_the_future() -> None:
    cluster = Cluster()
    jump(cluster, 3_600)
    cluster.obeys = False
    cluster.submit("1")
    cluster.send(*cluster.server.refuse(last_run(cluster, "1"), 15043, "no"))
    cluster.send(*cluster.server.delete("1"))
    cluster.submit("2")
    (refused,) = cluster.server.refuse(last_run(cluster, "2"), 0, "no")
    assert isinstance(refused, RunRefused)
    cluster.send(replace(refused, outage=True))
    assert list(cluster.engine.state.failures) == ["n1"]
    jump(cluster, -3_600)
    assert cluster.engine.state.refused_since <= cluster.engine.state.now
    cluster.obeys = True
    cluster.at(300)
    assert cluster.engine.state.failures == {}, "job 2 has succeeded since"


def test_job_started_while_the_clock_was_ahead_holds_its_nodes() -> None:
    cluster = Cluster()
    jump(cluster, DAY)
    cluster.submit("1", walltime=500)
    jump(cluster, -DAY)
    cluster.submit("2", walltime=500)
    assert cluster.engine.state.records["1"].run.started == T
    cluster.at(100)
    cluster.send(cluster.server.snapshot())
    assert cluster.start("2") == 500  # not together with a running job, nor a day later
    assert cluster.runs("2") == []


@pytest.mark.parametrize("accepted", [False, True])
def test_open_run_decision_stays_the_only_one_during_its_validity(*, accepted: bool) -> None:
    cluster = Cluster(decision_expiry=60, answer_grace=30, start_wait=300)
    cluster.obeys = False
    jump(cluster, DAY)
    cluster.submit("1", walltime=500)
    (run,) = [one for one in cluster.decisions if isinstance(one, Run)]
    if accepted:
        name = cluster.server.event_id()
        cluster.send(RunAccepted(id=name, time=cluster.server.now, decision_id=run.id, job_id="1"))
    jump(cluster, -DAY)
    back = cluster.server.now - T
    until = (300 if accepted else 60) + 30
    for moment in range(back, back + until + 1, 5):
        cluster.at(moment)
        cluster.send(cluster.server.snapshot())
    assert len(cluster.runs("1")) == 1
    cluster.at(back + until + 10)
    assert len(cluster.runs("1")) == 2


def test_a_start_seen_after_the_clock_was_set_back_is_no_stranger_s() -> None:
    cluster = Cluster(decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    jump(cluster, DAY)
    cluster.submit("1", walltime=500)
    (run,) = [one for one in cluster.decisions if isinstance(one, Run)]
    jump(cluster, -DAY)
    cluster.at(10)
    cluster.send(*cluster.server.run(run))
    assert [one.kind for one in publish_snapshot(cluster.engine.state).alerts] == ["clock"]
    assert cluster.start("1") == 10


def test_late_reports_of_starts_by_the_fast_clock_are_not_foreign() -> None:
    """Several would indicate another scheduler, and stop all starts until an admin resumes them."""
    cluster = Cluster(nodes=3, decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    jump(cluster, DAY)
    for number in "123":
        cluster.submit(number, walltime=500)
    runs = [one for one in cluster.decisions if isinstance(one, Run)]
    assert len(runs) == 3
    before = cluster.server.snapshot()
    late = [event for one in runs for event in cluster.server.run(one)]  # by the clock that is ahead
    cluster.server.now -= DAY
    cluster.send(ClockSet(id=cluster.server.event_id(), time=cluster.server.now))
    cluster.send(replace(before, time=cluster.server.now))
    cluster.at(50)
    cluster.send(*late)
    assert {one.kind for one in publish_snapshot(cluster.engine.state).alerts} & {
        "by_hand",
        "foreign",
    } == set()
    assert not cluster.engine.state.halted


@pytest.mark.parametrize("stamped", [DAY - 5, 5])
def test_unknown_starts_after_a_clock_setback_are_not_foreign(
    stamped: int,
) -> None:
    cluster = Cluster(nodes=3, decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    jump(cluster, DAY)
    cluster.server.now -= DAY
    cluster.send(ClockSet(id=cluster.server.event_id(), time=cluster.server.now))
    cluster.engine.pause("so that nothing is decided")
    for number in "123":
        cluster.submit(number, walltime=500)
    cluster.at(10)
    for number in "123":
        started = JobStarted(
            id=f"s{number}", time=T + stamped, job_id=number, shares=(ShareFacts(f"n{number}", 4),)
        )
        cluster.send(started)
    assert {one.kind for one in publish_snapshot(cluster.engine.state).alerts} & {
        "by_hand",
        "foreign",
    } == set()
    assert cluster.engine.state.foreign == ""


def test_user_settings_survive_a_clock_setback_and_a_replay_agrees() -> None:
    cluster = Cluster(nodes=2)
    cluster.reserve("mine", "n2", start=5_000)
    cluster.submit("1", walltime=100)
    before = Engine.restore(cluster.engine.checkpoint())
    cluster.engine.pause("upgrade")
    before.pause("upgrade")
    told: list[tuple[tuple[Event, ...], int]] = [
        ((), T + DAY),
        ((ClockSet(id="set", time=T + 20),), T + DAY),
        ((cluster.server.snapshot(),), T + 21),
        ((), T + 30),
    ]
    made = [[one.handle(events, now).decisions for events, now in told] for one in (cluster.engine, before)]
    assert made[0] == made[1]
    assert cluster.engine.checkpoint() == before.checkpoint()
    state = cluster.engine.state
    assert (state.now, state.paused, list(reservation_records(state))) == (T + 30, "upgrade", ["mine"])


@pytest.mark.parametrize("seed", range(examples(6)))
def test_no_job_is_started_twice_and_all_end_whatever_the_clock_does(seed: int) -> None:
    random = Random(seed)
    cluster = Cluster(nodes=3, decision_expiry=60)
    submitted = 0
    for _ in range(60):
        what = random.random()
        if what < 0.5:
            submitted += 1
            walltime = random.randint(20, 400)
            nodes = f"{random.randint(1, 3)}:ppn={random.randint(1, 4)}"
            cluster.submit(str(submitted), nodes, walltime, runtime=random.randint(1, walltime))
        elif what < 0.65:
            jump(cluster, random.choice([1, -1, 45, -45, 3_600, -3_600, DAY, -DAY]))
        else:
            cluster.at(cluster.server.now - T + random.randint(1, 60))
    last = max((job.started or 0 for job in cluster.server.jobs.values()), default=0)
    cluster.at(max(cluster.server.now, last) - T + 2 * DAY)
    assert {str(number): len(cluster.runs(str(number))) for number in range(1, submitted + 1)} == {
        str(number): 1 for number in range(1, submitted + 1)
    }
    assert cluster.server.jobs == {}


def test_batch_skipped_while_the_clock_was_ahead_does_not_hide_another_scheduler() -> None:
    cluster = Cluster(nodes=3, decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.engine.pause("so that nothing is decided here")
    for number in "123":
        cluster.submit(number, walltime=1_000)
    jump(cluster, DAY)
    cluster.send(BatchSkipped(id="w", time=cluster.server.now, batch=7, why="it did not return"))
    jump(cluster, -DAY)
    cluster.at(200)
    for number in "123":
        shares = (ShareFacts(f"n{number}", 4),)
        cluster.send(JobStarted(id=cluster.server.event_id(), time=T + 200, job_id=number, shares=shares))
    assert cluster.engine.state.foreign


def test_starts_published_before_are_published_again_at_once() -> None:
    cluster = Cluster(publish_starts=True)
    cluster.submit("1", walltime=50_000)
    cluster.at(100)
    jump(cluster, 36_000)
    cluster.submit("2")
    jump(cluster, -36_000)
    cluster.alter_request("1", walltime="40000")
    cluster.at(200)
    assert cluster.view("2").displayed_start == T + 40_000
    assert cluster.attribute_writes("2")[-1].planned_start == T + 40_000
