"""Promises: at risk while the plan cannot keep them, broken only when the job has not started by then."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Cause, Engine
from schedd.engine.facts.texts import REQUEST_ENLARGED
from schedd.engine.place.placement import replan
from schedd.wire import Alert, ContactChanged, JobDeleted, ResourceCounted, Run, RunRefused, ShareFacts
from tests.engine.cluster import Cluster, T


def cluster_with_promised_job(slack: int = 100, **settings: Any) -> Cluster:
    """Job 1 runs until 100; job 2 is planned behind it, and promised to start within ``slack`` of that."""
    cluster = Cluster(slack=slack, **settings)
    cluster.submit("1")
    cluster.submit("2")
    assert (cluster.start("2"), cluster.promise("2"), cluster.at_risk("2")) == (100, 100 + slack, "")
    return cluster


def test_a_promise_that_the_plan_cannot_keep_is_at_risk_with_its_cause_and_no_breach() -> None:
    cluster = cluster_with_promised_job()
    cluster.at(10)
    cluster.reserve("r", "n1", start=100, end=400)
    assert (cluster.start("2"), cluster.promise("2")) == (400, 200)
    assert (cluster.at_risk("2"), cluster.breaches("2")) == (Cause.RESERVATION, [])
    risk = cluster.view("2").at_risk
    assert risk is not None
    assert risk.time == T + 10
    assert cluster.engine.state.breaches == 0


@pytest.mark.parametrize(("until", "cause"), [(165, Cause.OVERRUN), (400, Cause.RESERVATION)])
def test_a_promise_is_put_down_to_the_cause_that_delays_the_job_most(until: int, cause: Cause) -> None:
    """It kept its first cause, though the second one delayed the job by hours."""
    cluster = cluster_with_promised_job(slack=50, end_allowance=0, overrun_step=60)
    cluster.server.runtime["1"] = 1_000
    cluster.at(100)
    assert (cluster.start("2"), cluster.at_risk("2")) == (160, Cause.OVERRUN)
    cluster.reserve("r", "n1", start=160, end=until)
    cluster.at(140)
    assert (cluster.start("2"), cluster.at_risk("2")) == (until, cause)
    cluster.at(151)
    assert cluster.breaches("2") == [cause]


def test_it_goes_back_when_the_plan_recovers_and_is_never_counted() -> None:
    cluster = cluster_with_promised_job()
    cluster.reserve("r", "n1", start=100, end=400)
    assert cluster.at_risk("2")
    cluster.unreserve("r")
    assert (cluster.start("2"), cluster.promise("2"), cluster.at_risk("2")) == (100, 200, "")
    assert cluster.view("2").at_risk is None
    cluster.at(150)
    assert (cluster.runs("2"), cluster.breaches("2"), cluster.engine.state.breaches) == ([100], [], 0)


def test_it_is_broken_when_its_moment_has_passed_and_the_new_start_is_promised_then() -> None:
    cluster = cluster_with_promised_job()
    cluster.reserve("r", "n1", start=100, end=400)
    cluster.at(200)
    assert (cluster.at_risk("2"), cluster.breaches("2")) == (Cause.RESERVATION, [])
    assert cluster.engine.next_wake == T + 201
    cluster.at(201)
    assert (cluster.at_risk("2"), cluster.breaches("2")) == ("", [Cause.RESERVATION])
    (breach,) = cluster.record("2").breaches
    assert (breach.time, breach.promised, breach.planned) == (T + 201, T + 200, T + 400)
    assert (cluster.promise("2"), cluster.engine.state.breaches) == (500, 1)
    cluster.at(450)
    assert (cluster.runs("2"), cluster.engine.state.breaches) == ([400], 1)


def test_while_at_risk_only_an_allowed_cause_takes_it_further() -> None:
    """A job of higher priority may delay it only to its postponed start plus slack."""
    cluster = Cluster(slack=0, site={"priority": {"wish": 1.0}})
    cluster.submit("1")
    cluster.submit("2")
    cluster.reserve("r", "n1", start=100, end=400)
    assert (cluster.start("2"), cluster.at_risk("2")) == (400, Cause.RESERVATION)
    cluster.submit("3", priority=1000)
    assert (cluster.start("2"), cluster.start("3")) == (400, 500)


def cluster_with_job_at_risk(slack: int) -> Cluster:
    """Job 1 holds its node a minute longer than planned: job 2 is planned ten seconds after its promise."""
    cluster = Cluster(slack=slack, end_allowance=0, site={"priority": {"wish": 1.0}})
    cluster.submit("1", runtime=155)
    cluster.submit("2")
    state, record = cluster.engine.state, cluster.record("2")
    state.promise[record.slot] = state.bound[record.slot] = T + 150
    cluster.at(100)
    assert (cluster.start("2"), cluster.at_risk("2")) == (160, Cause.OVERRUN)
    return cluster


def test_a_job_at_risk_is_not_delayed_by_the_plan_itself_whatever_the_slack() -> None:
    """Bound to its late start plus slack, it was delayed by all the slack for a job of higher priority, and
    its breach was put down to the overrun of a minute.
    """
    cluster = cluster_with_job_at_risk(slack=3600)
    cluster.submit("3", walltime=1000, priority=1000)
    assert (cluster.start("2"), cluster.start("3")) == (160, 260)
    cluster.at(160)
    assert (cluster.runs("2"), cluster.breaches("2")) == ([155], [Cause.OVERRUN])


def test_a_job_at_risk_is_bound_to_its_present_start_and_not_to_the_latest_that_it_had() -> None:
    cluster = cluster_with_promised_job(slack=1000, site={"priority": {"wish": 1.0}})
    cluster.reserve("r", "n1", start=100, end=4000)
    cluster.reserve("r", "n1", start=100, end=1200)
    assert (cluster.start("2"), cluster.at_risk("2")) == (1200, Cause.RESERVATION)
    cluster.submit("3", walltime=1000, priority=1000)
    assert (cluster.start("2"), cluster.start("3")) == (1200, 1300)


@pytest.mark.parametrize(
    ("slack", "before_it"), [("1000", 88), ("240", 18), ("0.001w+1000", 88), ("40", 3), ("3", 0)]
)
def test_the_plan_itself_keeps_a_margin_before_a_promise_for_late_ends_and_starts(
    slack: str, before_it: int
) -> None:
    """Searches and priorities used the slack to its last second; then each job that was ended at its walltime
    broke promises.
    """
    cluster = Cluster(slack=slack, end_allowance=120, site={"priority": {"wish": 1.0}})
    cluster.submit("1")
    cluster.submit("2")
    for number in range(100):
        cluster.submit(f"p{number}", walltime=10, priority=1000)
    assert ((cluster.start("2") or 0) - 100) // 10 == before_it
    assert cluster.breaches("2") == []


def test_job_without_a_start_is_at_risk_and_gets_a_new_promise_with_its_next_start() -> None:
    cluster = cluster_with_promised_job(slack=50, node_grace=10)
    cluster.at(20)
    cluster.node("n1", state="down")
    cluster.at(31)
    assert (cluster.start("2"), cluster.promise("2"), cluster.at_risk("2")) == (None, 150, Cause.NODE_LOST)
    cluster.at(300)
    assert (cluster.promise("2"), cluster.breaches("2")) == (None, [Cause.NODE_LOST])
    (breach,) = cluster.record("2").breaches
    assert (breach.time, breach.planned) == (T + 151, -1)
    cluster.node("n1", state="up")
    assert cluster.start("2") is not None
    assert (cluster.promise("2"), cluster.at_risk("2")) == ((cluster.start("2") or 0) + 50, "")
    assert cluster.engine.state.breaches == 1


def test_a_refused_start_is_no_breach_when_the_job_is_deleted_before_its_promise() -> None:
    cluster = Cluster(slack=60)
    cluster.obeys = False
    cluster.submit("1")
    (run,) = [d for d in cluster.decisions if d.type == "run"]
    cluster.send(RunRefused(id="r", time=T, decision_id=run.id, job_id="1", code=0, text="it is gone"))
    cluster.send(JobDeleted(id="d", time=T, job_id="1"))
    assert cluster.engine.state.breaches == 0


def test_runs_that_were_to_end_during_an_outage_are_no_overruns() -> None:
    """The first call after an outage of hours came before the ends of that time: their nodes were blocked,
    with an alert, and promises were broken by an overrun.
    """
    cluster = Cluster(slack=50, overrun_blocked=6 * 3600)
    cluster.submit("1")
    cluster.submit("2")
    cluster.server.now = T + 36_000
    before = cluster.engine.handle((), T + 36_000).decisions
    assert not [decision for decision in before if isinstance(decision, Alert)]
    assert cluster.breaches("2") == [Cause.OUTAGE]
    cluster.at(36_000)
    assert cluster.runs("2") == [36_000]


def test_a_run_that_goes_on_after_an_outage_blocks_its_nodes_a_step_later() -> None:
    cluster = Cluster(slack=50, overrun_blocked=6 * 3600)
    cluster.submit("1", runtime=100_000)
    cluster.submit("2")
    cluster.server.now = T + 36_000
    cluster.send()
    assert not cluster.engine.state.blocked
    cluster.at(36_060)
    assert list(cluster.engine.state.blocked) == ["n1"]


def test_runs_that_end_while_the_adapter_is_silent_are_no_overruns() -> None:
    """Only the adapter was down: the engine was called at each end, and broke promises by an overrun."""
    cluster = Cluster(slack=50, overrun_blocked=600)
    cluster.submit("1")
    cluster.submit("2")
    cluster.at(80)
    cluster.send(ContactChanged(id="c:1", time=T + 80, silent=True))
    cluster.server.runtime["1"] = 100_000
    cluster.at(7_200)
    assert cluster.breaches("2") == [Cause.OUTAGE] * len(cluster.breaches("2"))
    assert cluster.breaches("2")
    assert cluster.alerts("overrun") == []
    assert cluster.record("1").run.overruns == 0
    cluster.send(ContactChanged(id="c:2", time=T + 7_200, silent=False))
    cluster.at(7_225)
    assert not cluster.engine.state.blocked, "the events of the outage may follow"
    cluster.at(7_400)
    assert list(cluster.engine.state.blocked) == ["n1"]


@pytest.mark.parametrize(
    ("outage", "code", "cause"), [(True, 0, Cause.OUTAGE), (False, 15001, Cause.REFUSED)]
)
def test_a_start_that_an_outage_refused_is_late_by_the_outage(outage: bool, code: int, cause: Cause) -> None:
    cluster = Cluster(slack=0, check_wait=5)
    cluster.obeys = False
    cluster.submit("1")
    (run,) = [decision for decision in cluster.decisions if isinstance(decision, Run)]
    cluster.at(1)
    (refused,) = cluster.server.refuse(run, code, "the server cannot be reached")
    assert isinstance(refused, RunRefused)
    cluster.send(replace(refused, outage=outage))
    cluster.server.now = T + 10
    cluster.submit("2")
    assert cluster.breaches("1") == [cause]
    # The newcomer whose event is handled then has nothing to do with it.
    assert cluster.record("1").breaches[0].event == (f"clock:{T + 10}" if outage else refused.id)


def test_a_wide_job_keeps_its_place_when_its_run_decision_came_too_late_to_the_adapter() -> None:
    """On a busy machine the adapter read a decision after its expiry. It counted as a refusal of the job,
    which was planned five seconds later than before, thus behind all narrow jobs, days after its promise.
    """
    cluster = Cluster(nodes=2, slack=1000)
    cluster.obeys = False
    cluster.submit("1", "2:ppn=4", walltime=500)
    cluster.submit("2", walltime=3000)
    cluster.submit("3", walltime=3000)
    (run,) = [decision for decision in cluster.decisions if isinstance(decision, Run)]
    cluster.at(75)
    (refused,) = cluster.server.refuse(run, 0, "the decision expired 15 s ago")
    assert isinstance(refused, RunRefused)
    cluster.send(replace(refused, outage=True))
    cluster.at(85)
    assert (cluster.start("2"), cluster.start("3"), cluster.at_risk("1")) == (580, 580, "")
    assert cluster.runs("1") == [0, 80]


@pytest.mark.parametrize(("gone_at", "broken"), [(1, []), (5, []), (None, [Cause.REFUSED])])
def test_refused_start_of_a_job_in_deletion_is_no_breach_without_slack(
    gone_at: int | None, broken: list[str]
) -> None:
    cluster = Cluster(slack=0, check_wait=5, refusal_wait=30)
    cluster.obeys = False
    cluster.submit("1")
    (run,) = [decision for decision in cluster.decisions if isinstance(decision, Run)]
    cluster.send(*cluster.server.refuse(run, 15001, "Unknown Job Id"))
    if gone_at is None:
        cluster.at(5)
        assert cluster.breaches("1") == []
        cluster.at(6)
        assert cluster.breaches("1") == broken
        return
    cluster.at(gone_at)
    cluster.send(JobDeleted(id="gone", time=T + gone_at, job_id="1"))
    cluster.at(60)
    assert cluster.engine.state.breaches == len(broken)


def test_a_start_decided_in_time_keeps_the_promise_though_it_is_seen_later() -> None:
    cluster = Cluster(slack=0)
    cluster.obeys = False
    cluster.submit("1")
    (run,) = [d for d in cluster.decisions if d.type == "run"]
    cluster.at(5)
    cluster.send(*cluster.server.run(run))
    assert (cluster.record("1").run.started, cluster.engine.state.breaches) == (T + 5, 0)


@pytest.mark.parametrize(("moment", "broken"), [(190, []), (230, [Cause.RESERVATION])])
def test_a_start_by_hand_keeps_or_breaks_it_by_its_own_moment(moment: int, broken: list[str]) -> None:
    cluster = cluster_with_promised_job(alone=False)
    cluster.reserve("r", "n1", start=100, end=400)
    cluster.at(110)
    cluster.engine.state.stale = "nobody knows"  # so that its first event is the start
    cluster.server.now = T + 250
    started = cluster.server.start("2", (ShareFacts("n1", 4),))
    cluster.engine.state.stale = ""
    cluster.send(*(replace(one, time=T + moment) for one in started))
    assert cluster.breaches("2") == broken
    assert cluster.engine.state.breaches == len(broken)


def test_no_promise_is_broken_while_the_server_state_is_unknown() -> None:
    cluster = cluster_with_promised_job()
    cluster.reserve("r", "n1", start=100, end=400)
    cluster.at(150)
    cluster.engine.state.stale = "a snapshot that is not credible"
    cluster.at(300)
    assert (cluster.breaches("2"), cluster.at_risk("2")) == ([], Cause.RESERVATION)
    cluster.engine.state.stale = ""
    cluster.at(301)
    assert cluster.breaches("2") == [Cause.RESERVATION]


def test_risks_and_bounds_survive_a_checkpoint() -> None:
    cluster = cluster_with_promised_job()
    cluster.reserve("r", "n1", start=100, end=400)
    engine = Engine.restore(cluster.engine.checkpoint())
    state, before = engine.state, cluster.engine.state
    assert state.records["2"].risk == before.records["2"].risk is not None
    assert list(state.risks) == ["2"]
    assert state.bound.tolist() == before.bound.tolist()
    assert engine.next_wake == cluster.engine.next_wake


def test_job_that_leaves_while_at_risk_is_removed_from_the_risks() -> None:
    cluster = cluster_with_promised_job()
    cluster.reserve("r", "n1", start=100, end=400)
    cluster.send(JobDeleted(id="d", time=T, job_id="2"))
    cluster.at(300)
    assert (cluster.engine.state.risks, cluster.engine.state.breaches) == ({}, 0)


def test_job_that_is_altered_to_need_a_licence_loses_its_promise() -> None:
    """The licence is no part of a chunk of nodes."""
    cluster = cluster_with_promised_job(slack=50)
    cluster.send(ResourceCounted(id="c", time=T, name="sw", amount=0))
    cluster.alter_request("2", sw="1")
    assert (cluster.start("2"), cluster.promise("2"), cluster.at_risk("2")) == (None, None, "")
    ended = cluster.record("2").ended
    assert ended is not None
    assert ended.words == REQUEST_ENLARGED
    cluster.at(300)
    assert cluster.breaches("2") == []
    cluster.alter_request("2", sw="0")
    promised = cluster.promise("2")
    assert promised is not None
    cluster.send(ResourceCounted(id="d", time=cluster.server.now, name="sw", amount=1))
    cluster.alter_request("2", sw="0", nodes="1:ppn=3")
    assert cluster.promise("2") == promised
    assert cluster.breaches("2") == []


def test_lowered_cost_limit_ends_a_promise_only_where_limits_are_hard() -> None:
    prices = {"prices": [{"core_hour": 36.0}], "cost_limits": "hard"}
    for site, promised in ((prices, None), ({**prices, "cost_limits": "soft"}, 150)):
        cluster = cluster_with_promised_job(slack=50, site=site)
        cluster.alter_request("2", **{"x.cost_limit": "3"})  # it costs 4.00
        assert (cluster.promise("2"), cluster.at_risk("2")) == (promised, "")
        cluster.at(300)
        assert cluster.engine.state.breaches == 0


def test_job_that_is_altered_to_need_one_set_of_nodes_loses_its_promise() -> None:
    cluster = Cluster(nodes=3, slack=50)
    for name, rack in (("n1", "a"), ("n2", "b"), ("n3", "b")):
        cluster.node(name, properties=(f"rack={rack}",))
    cluster.submit("1", "n2:ppn=4", 300)
    cluster.submit("2", "n1:ppn=4", 100)
    spread = {"select": "2:ncpus=4", "place": "scatter", "nodes": ""}
    cluster.submit("3", resources=spread, family="openpbs")
    assert (cluster.start("3"), cluster.promise("3")) == (100, 150)
    cluster.alter("3", resources={**cluster.server.jobs["3"].resources, "place": "scatter:group=rack"})
    assert (cluster.start("3"), cluster.promise("3"), cluster.at_risk("3")) == (300, 350, "")
    cluster.alter("3", resources={**cluster.server.jobs["3"].resources, "place": "scatter"})
    assert (cluster.start("3"), cluster.promise("3")) == (100, 350)
    assert cluster.engine.state.breaches == 0


def test_no_better_gap_is_worth_a_broken_promise() -> None:
    """A job that was planned again waited for faster nodes beyond its promise."""
    site = {"placement": "best_gap_edf", "speeds": {"n1": 4.0}, "criteria": {"weighted_utilisation": 6.0}}
    cluster = Cluster(nodes=2, site=site)
    for job, walltime in (("1", 300), ("2", 200), ("3", 400)):
        cluster.submit(job, walltime=walltime)
    assert (cluster.start("3"), cluster.planned_node_names("3")) == (300, ["n1"])
    state, record = cluster.engine.state, cluster.record("3")
    state.promise[record.slot] = state.bound[record.slot] = T + 250
    replan(state, record, "test", Cause.FREED, "planned again")
    assert (cluster.start("3"), cluster.planned_node_names("3")) == (200, ["n2"])
