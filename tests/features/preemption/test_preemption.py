"""Preemptions are planned with their victims, ordered in time, and undone without effects on other jobs."""

import random
from dataclasses import replace
from typing import Any

import pytest

from schedd.engine.facts.records import Cause
from schedd.engine.preview import preview_moves
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.fair_share.state import fair_share_state, share_tree
from schedd.features.preemption.metrics import collect_metrics
from schedd.features.preemption.state import preemption_state
from schedd.model import FOREVER, StartKnown
from schedd.policy.site import site_policy
from schedd.service.questions.expectations import hypothetical_promise
from schedd.service.questions.explain import explain
from schedd.service.questions.plan_fork import fork_plan
from schedd.wire import Event, JobAltered, JobFacts, PolicyChanged, Preempt, PreemptionDone, QueueFacts, Run
from tests.engine.cluster import Cluster, T
from tests.property_examples import some

URGENT = {
    "preemptors": {"queues": ["urgent"]},
    "targets": {"queues": ["batch"]},
    "scavengers": {"queues": ["scavenger"]},
    "release_time": 20,
    "min_run": 600,
}


class PreemptingCluster(Cluster):
    """A cluster with an urgent queue. It carries out preemptions at once, unless ``preempts`` is False. A
    setting of None has its default.
    """

    def __init__(self, nodes: int = 1, cpus: int = 4, **preemption: Any) -> None:
        self.preempts = True
        more = preemption.pop("more", {})
        settings = {name: value for name, value in (URGENT | preemption).items() if value is not None}
        super().__init__(nodes, cpus, site={"preemption": settings}, **more)
        for name in ("urgent", "scavenger", "other"):
            self.send(*self.server.change_queue(QueueFacts(name=name)))

    def _handle(self, events: tuple[Event, ...]) -> None:
        before = len(self.decisions)
        super()._handle(events)
        while self.preempts and (orders := self.orders(before)):
            before = len(self.decisions)
            for one in orders:
                stops = self.server.suspend if one.method == "suspend" else self.server.requeue
                super()._handle((*self.outcome(one), *stops(one.job_id)))

    def requeue(self, job: str) -> None:
        self.send(*self.server.requeue(job))

    def outcome(self, order: Preempt, refusal: str = "", *, outage: bool = False) -> tuple[PreemptionDone]:
        done = PreemptionDone(
            id=self.server.event_id(),
            time=self.server.now,
            decision_id=order.id,
            job_id=order.job_id,
            done=not refusal,
            text=refusal,
            outage=outage,
        )
        return (done,)

    def orders(self, first: int = 0) -> list[Preempt]:
        return [one for one in self.decisions[first:] if isinstance(one, Preempt)]

    def planned(self, job: str) -> list[str]:
        """The jobs that are to be preempted for this one."""
        one = preemption_state(self.engine.state).planned.get(job)
        return sorted(victim.job for victim in one.victims) if one is not None else []


def last_move(cluster: PreemptingCluster, job: str) -> str:
    """Return the reason of the job's last move."""
    state = cluster.engine.state
    slot = cluster.record(job).slot
    return next(one.words for one in reversed(state.changes) if slot in one.slots)


def test_urgent_job_starts_as_soon_as_its_victim_is_requeued() -> None:
    cluster = PreemptingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.submit("next", "1:ppn=4", 1_000)
    cluster.at(1_000)
    promised = cluster.promise("next")
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert cluster.start("now") == 1_020
    (order,) = cluster.orders()
    assert (order.job_id, order.preemptor, order.method, order.started) == ("long", "now", "requeue", T)
    assert "preempts job long: 4,080 core-seconds of work lost" in cluster.view("now").why
    assert "it will be preempted for job now by" in cluster.view("long").why
    assert cluster.runs("now") == []
    cluster.server.now += 3
    cluster.send(*cluster.outcome(order))
    assert cluster.runs("now") == []
    cluster.send(*cluster.server.requeue("long"))
    assert cluster.runs("now") == [1_003]
    assert last_move(cluster, "now") == "job long left its nodes for it"
    assert "it was preempted at" in cluster.view("long").why
    assert cluster.promise("next") == promised
    assert cluster.record("long").back_off.returns == 0
    assert (cluster.start("next"), cluster.start("long")) == (1_103, 2_103)
    part = preemption_state(cluster.engine.state)
    assert (part.count, part.lost) == (1, 4 * 1_003)
    families = collect_metrics({"main": publish_snapshot(cluster.engine.state)})
    found = {one.name: (one.labels, one.value) for family in families for one in family.samples}
    assert found == {
        "schedd_preempted_runs_total": ({"cluster": "main"}, 1),
        "schedd_preempted_core_seconds_total": ({"cluster": "main"}, 4_012),
    }


def test_victims_are_those_with_the_least_lost_work() -> None:
    cluster = PreemptingCluster(nodes=3, cpus=4)
    for name in ("a", "b"):
        cluster.submit(name, "1:ppn=4", 10_000)
    cluster.at(500)
    cluster.submit("c", "1:ppn=2", 10_000)
    cluster.at(600)
    cluster.submit("d", "1:ppn=2", 10_000)
    cluster.at(2_000)
    cluster.submit("small", "1:ppn=1", 100, queue="urgent")
    assert [one.job_id for one in cluster.orders()] == ["d"]
    cluster.at(2_100)
    cluster.submit("next", "1:ppn=2", 100, queue="urgent")
    assert [one.job_id for one in cluster.orders()] == ["d", "c"]


def test_by_default_a_run_that_has_just_begun_may_be_preempted() -> None:
    cluster = PreemptingCluster(nodes=2, min_run=None)
    cluster.submit("old", "1:ppn=4", 10_000)
    cluster.at(5_000)
    cluster.submit("new", "1:ppn=4", 10_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert [(one.job_id, one.time - T) for one in cluster.orders()] == [("new", 5_000)]


def test_scavengers_are_preempted_before_targets_and_get_no_promise() -> None:
    cluster = PreemptingCluster(nodes=2, cpus=4)
    cluster.submit("scavenger", "1:ppn=4", 10_000, queue="scavenger")
    cluster.at(5_000)
    cluster.submit("target", "1:ppn=4", 10_000)
    cluster.submit("waits", "1:ppn=4", 10_000, queue="scavenger")
    cluster.submit("normal", "1:ppn=4", 10_000)
    assert cluster.promise("waits") is None
    assert cluster.start("normal") == 10_000
    cluster.at(6_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert [one.job_id for one in cluster.orders()] == ["scavenger"]


def test_preemption_waits_until_the_victim_has_run_long_enough() -> None:
    cluster = PreemptingCluster(min_run=600)
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(100)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert cluster.start("now") == 620
    assert cluster.planned("now") == ["long"]
    assert cluster.orders() == []
    assert "will preempt job long: 2,480 core-seconds of work lost" in cluster.view("now").why
    cluster.at(599)
    assert cluster.orders() == []
    cluster.at(600)
    assert [one.time - T for one in cluster.orders()] == [600]
    assert cluster.runs("now") == [600]


def test_planned_preemption_is_undone_without_effects_when_the_preemptor_is_deleted() -> None:
    cluster = PreemptingCluster(nodes=1, cpus=8, min_run=1_000)
    cluster.submit("long", "1:ppn=8", 10_000)
    cluster.submit("next", "1:ppn=8", 1_000)
    cluster.at(10)
    assert cluster.start("next") == 10_000
    cluster.submit("now", "1:ppn=4", 500, queue="urgent")
    assert cluster.planned("now") == ["long"]
    # What the victim leaves is blocked: no other job is planned there.
    cluster.submit("filler", "1:ppn=4", 100)
    assert cluster.start("filler") == 11_000
    cluster.send(*cluster.server.delete("now"))
    assert cluster.planned("now") == []
    state = cluster.engine.state
    assert state.plan.end(cluster.record("long").slot) == T + 10_000
    assert (cluster.start("next"), cluster.start("filler")) == (10_000, 11_000)
    cluster.at(2_000)
    assert cluster.orders() == []


def test_preemption_breaks_no_promise_of_a_waiting_job() -> None:
    cluster = PreemptingCluster(more={"slack": 0})
    cluster.submit("long", "1:ppn=4", 2_000)
    cluster.submit("next", "1:ppn=4", 1_000)
    cluster.at(1_000)
    assert cluster.promise("next") == 2_000
    cluster.submit("now", "1:ppn=4", 5_000, queue="urgent")
    assert cluster.orders() == []
    assert cluster.start("now") == 3_000
    cluster.submit("short", "1:ppn=4", 900, queue="urgent")
    assert [one.preemptor for one in cluster.orders()] == ["short"]
    assert cluster.start("next") == 1_900


def test_planned_jobs_move_for_a_preemptor_before_any_is_preempted() -> None:
    cluster = PreemptingCluster(nodes=2, targets={"queues": ["other"]}, more={"slack": 5_000})
    cluster.submit("a", "1:ppn=4", 2_000)
    cluster.submit("b", "1:ppn=4", 10_000, queue="other")
    cluster.submit("next", "1:ppn=4", 1_000)
    cluster.at(1_990)
    # The target would be free 10 s later than the end of the job that runs.
    cluster.submit("now", "1:ppn=4", 500, queue="urgent")
    assert (cluster.start("now"), cluster.start("next"), cluster.planned("now")) == (2_000, 2_500, [])
    assert cluster.orders() == []
    state = cluster.engine.state
    found = fork_plan(cluster.engine, publish_snapshot(state)).what_if(hypothetical_job("urgent"), T + 1_990)
    assert isinstance(found.answer, StartKnown)
    cluster.at(2_100)
    assert (cluster.runs("now"), cluster.breaches("next")) == ([2_000], [])


def test_preemptor_planned_before_others_keeps_its_promise_when_a_halt_delays_it() -> None:
    cluster = PreemptingCluster(nodes=2, targets={"queues": ["other"]}, more={"slack": 5_000})
    cluster.submit("a", "1:ppn=4", 2_000)
    cluster.submit("b", "1:ppn=4", 10_000, queue="other")
    cluster.submit("next", "1:ppn=4", 1_000)
    cluster.at(1_990)
    cluster.submit("now", "1:ppn=4", 500, queue="urgent")
    assert (cluster.start("now"), cluster.planned("now")) == (2_000, [])
    promised = cluster.promise("now")
    assert promised is not None
    assert promised > 2_500
    cluster.engine.pause("an upgrade")
    cluster.at(2_399)  # late jobs are moved on meanwhile
    cluster.engine.resume()
    cluster.at(2_500)
    assert cluster.runs("now") == [2_400]
    assert (cluster.promise("now"), cluster.breaches("now")) == (promised, [])


def test_job_is_not_preempted_twice_within_the_rest() -> None:
    cluster = PreemptingCluster(rest=5_000, min_run=0)
    cluster.submit("long", "1:ppn=4", 20_000)
    cluster.at(1_000)
    cluster.submit("first", "1:ppn=4", 100, queue="urgent")
    assert cluster.runs("first") == [1_000]
    cluster.at(1_500)
    assert cluster.record("long").phase.value == "running"
    cluster.submit("second", "1:ppn=4", 100, queue="urgent")
    assert cluster.start("second") == 6_020
    cluster.at(7_000)
    assert cluster.runs("second") == [6_000]


def test_refused_preemption_is_undone_and_another_victim_found() -> None:
    cluster = PreemptingCluster(nodes=2)
    cluster.submit("a", "1:ppn=4", 10_000)
    cluster.at(100)
    cluster.submit("b", "1:ppn=4", 10_000)
    cluster.at(2_000)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    (order,) = cluster.orders()
    assert order.job_id == "b"
    cluster.send(*cluster.outcome(order, "job not rerunnable"))
    assert [one.job_id for one in cluster.orders()] == ["b", "a"]
    assert cluster.engine.state.plan.end(cluster.record("b").slot) == T + 10_100
    assert cluster.alerts("preemption") == [
        "job b could not be preempted: job not rerunnable; job now is planned again"
    ]


def test_outage_blames_no_victim_and_the_same_one_is_chosen_later() -> None:
    cluster = PreemptingCluster(nodes=2)
    cluster.submit("a", "1:ppn=4", 10_000)
    cluster.at(100)
    cluster.submit("b", "1:ppn=4", 10_000)
    cluster.at(2_000)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    (order,) = cluster.orders()
    cluster.send(*cluster.outcome(order, "decided in term 1, but term 2 rules", outage=True))
    part = preemption_state(cluster.engine.state)
    assert (part.preempted, part.ordered, part.refused, part.planned) == ({}, {}, {}, {})
    assert cluster.engine.state.plan.end(cluster.record("b").slot) == T + 10_100
    cluster.at(2_020)
    assert cluster.orders() == [order]
    cluster.at(2_060)
    assert [one.job_id for one in cluster.orders()] == ["b", "b"]
    assert cluster.alerts("preemption") == [
        "job b could not be preempted: decided in term 1, but term 2 rules; job now is planned again"
    ]


def test_late_victims_postpone_the_preemptor_until_it_is_given_up() -> None:
    cluster = PreemptingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    cluster.at(1_200)
    start = cluster.start("now")
    assert start is not None
    assert 1_200 < start <= 1_220
    cluster.send(*cluster.server.requeue("long"))
    assert cluster.runs("now") == [1_200]
    cluster.at(8_000)
    cluster.submit("again", "1:ppn=4", 100, queue="urgent")
    cluster.at(9_000)
    assert len(cluster.orders()) <= 2


def test_planned_preemption_goes_on_with_the_victims_that_still_run() -> None:
    cluster = PreemptingCluster(nodes=2, min_run=1_000)
    cluster.submit("a", "1:ppn=4", 10_000)
    cluster.submit("b", "1:ppn=4", 10_000)
    cluster.submit("now", "2:ppn=4", 100, queue="urgent")
    assert cluster.planned("now") == ["a", "b"]
    cluster.at(500)
    cluster.send(*cluster.server.delete("a"))
    assert (cluster.planned("now"), cluster.start("now")) == (["b"], 1_020)
    cluster.at(1_000)
    assert [one.job_id for one in cluster.orders()] == ["b"]
    assert cluster.runs("now") == [1_000]


def test_late_victim_that_reaches_its_walltime_is_no_victim_any_more() -> None:
    cluster = PreemptingCluster(cpus=8)
    cluster.submit("long", "1:ppn=8", 1_100, runtime=2_000)
    cluster.at(1_000)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    cluster.submit("next", "1:ppn=4", 100)
    assert cluster.planned("now") == ["long"]
    assert cluster.start("next") == 1_100
    cluster.at(1_095)
    assert cluster.planned("now") == []
    assert cluster.engine.state.plan.end(cluster.record("long").slot) == T + 1_100
    cluster.at(2_000)
    assert (cluster.runs("now"), cluster.runs("next")) == ([2_000], [2_000])


def test_preemption_of_a_victim_that_ends_by_itself_is_over() -> None:
    cluster = PreemptingCluster(min_run=1_000)
    cluster.submit("long", "1:ppn=4", 10_000, runtime=700)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert cluster.planned("now") == ["long"]
    cluster.at(700)
    assert cluster.orders() == []
    assert cluster.runs("now") == [700]
    assert last_move(cluster, "now") == "job long ended before the preemption"


def test_jobs_that_cannot_be_requeued_and_other_queues_are_not_preempted() -> None:
    cluster = PreemptingCluster(nodes=2)
    cluster.submit("kept", "1:ppn=4", 10_000, rerunnable=False)
    cluster.submit("other", "1:ppn=4", 10_000, queue="other")
    cluster.at(2_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert cluster.start("now") == 10_000
    assert cluster.orders() == []


@pytest.mark.parametrize(
    ("targets", "victim"),
    [("queue=other", None), ("queue=batch", "a"), ("NONE", None), ("Resource_List.site=x,queue=none", None),
     ("Resource_List.site=b", "b")],
)  # fmt: skip
def test_preempt_targets_of_a_job_restrict_its_victims(targets: str, victim: str | None) -> None:
    cluster = PreemptingCluster(nodes=2)
    cluster.submit("b", "1:ppn=4", 10_000, resources={"site": "b"})
    cluster.at(1_000)
    cluster.submit("a", "1:ppn=4", 10_000)
    cluster.at(2_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent", resources={"preempt_targets": targets})
    assert [one.job_id for one in cluster.orders()] == ([victim] if victim is not None else [])


def test_preemptions_begin_only_within_their_windows() -> None:
    window = "2023-11-15T00:00/2023-11-15T06:00 FREQ=DAILY UTC"
    cluster = PreemptingCluster(windows=[window])
    cluster.submit("long", "1:ppn=4", 50_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    midnight = 1_700_006_400 - T
    assert cluster.start("now") == midnight + 20
    cluster.at(midnight + 1)
    assert [one.time - T for one in cluster.orders()] == [midnight]


def test_several_victims_on_several_nodes_with_limits_are_restored_or_preempted_together() -> None:
    cluster = PreemptingCluster(nodes=4, cpus=4, more={"slack": 100_000})
    cluster.send(*cluster.server.change_queue(QueueFacts(name="batch", limits={"max_running": "4"})))
    for number in range(4):
        cluster.submit(f"r{number}", "1:ppn=3", 10_000 + number)
        cluster.at(10 * (number + 1))
    for number in range(6):
        cluster.submit(f"w{number}", "1:ppn=3", 3_000)
    cluster.at(2_000)
    cluster.submit("wide", "3:ppn=4", 500, queue="urgent")
    assert sorted(one.job_id for one in cluster.orders()) == ["r1", "r2", "r3"]
    assert cluster.runs("wide") == [2_000]
    cluster.at(60_000)
    assert {f"r{n}" for n in range(4)} | {f"w{n}" for n in range(6)} <= {
        one.job_id for one in cluster.decisions if isinstance(one, Run)
    }


def test_preemption_under_way_survives_a_restored_checkpoint() -> None:
    cluster = PreemptingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    (order,) = cluster.orders()
    engine = cluster.engine
    cluster.engine = type(engine).restore(engine.checkpoint(), engine.state.settings)
    assert preemption_state(cluster.engine.state) == preemption_state(engine.state)
    cluster.send(*cluster.outcome(order), *cluster.server.requeue("long"))
    assert cluster.runs("now") == [1_000]


def test_victim_that_is_altered_is_not_preempted_by_the_old_plan() -> None:
    cluster = PreemptingCluster(min_run=1_000)
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert cluster.start("now") == 1_020
    facts = replace(cluster.server.jobs["long"], resources={"nodes": "1:ppn=4", "walltime": "800"})
    cluster.server.jobs["long"] = facts
    cluster.send(JobAltered(id="altered", time=cluster.server.now, job=facts))
    assert cluster.planned("now") == []
    assert cluster.start("now") == 800


def test_victim_of_an_undone_preemption_returns_without_blame() -> None:
    cluster = PreemptingCluster(min_run=0, more={"returns_within": 300})
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(100)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    (order,) = cluster.orders()
    cluster.send(*cluster.server.delete("now"))
    engine = cluster.engine
    cluster.engine = type(engine).restore(engine.checkpoint(), engine.state.settings)
    cluster.send(*cluster.outcome(order), *cluster.server.requeue("long"))
    part = preemption_state(cluster.engine.state)
    assert cluster.record("long").back_off.returns == 0
    assert (part.count, part.lost) == (1, 400)


def test_other_victims_of_a_refused_preemption_return_without_blame() -> None:
    cluster = PreemptingCluster(nodes=2, min_run=0, more={"returns_within": 300})
    cluster.submit("a", "1:ppn=4", 10_000)
    cluster.submit("b", "1:ppn=4", 10_000)
    cluster.at(100)
    cluster.preempts = False
    cluster.submit("now", "2:ppn=4", 100, queue="urgent")
    refused, carried_out = cluster.orders()
    cluster.send(*cluster.outcome(refused, "no"))
    cluster.send(*cluster.outcome(carried_out), *cluster.server.requeue(carried_out.job_id))
    assert cluster.record(carried_out.job_id).back_off.returns == 0
    assert preemption_state(cluster.engine.state).count == 1


def test_refusal_after_an_undone_preemption_ends_the_rest_of_the_victim() -> None:
    cluster = PreemptingCluster(min_run=0, more={"returns_within": 300})
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(100)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    (order,) = cluster.orders()
    cluster.send(*cluster.server.delete("now"))
    cluster.send(*cluster.outcome(order, "no"))
    part = preemption_state(cluster.engine.state)
    assert (part.preempted, part.ordered, part.refused) == ({}, {}, {"long": T + 100})
    cluster.send(*cluster.server.requeue("long"))
    assert cluster.record("long").back_off.returns == 1  # it returned by itself


@pytest.mark.parametrize(
    ("site", "ordered"),
    [
        ({}, []),
        ({"preemption": URGENT | {"targets": {"queues": ["other"]}}}, []),
        ({"preemption": URGENT | {"preemptors": {"queues": ["other"]}}}, []),
        ({"preemption": URGENT | {"min_run": 3_000}}, [3_000]),
    ],
)
def test_planned_preemption_follows_changed_settings(site: dict[str, Any], ordered: list[int]) -> None:
    cluster = PreemptingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(100)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert cluster.planned("now") == ["long"]
    cluster.send(PolicyChanged(id="p", time=cluster.server.now, version=1, site=site))
    assert cluster.engine.state.plan.end(cluster.record("long").slot) == T + (3_020 if ordered else 10_000)
    cluster.at(5_000)
    assert [one.time - T for one in cluster.orders()] == ordered


def test_planned_victim_that_may_not_be_rerun_any_more_goes_on() -> None:
    cluster = PreemptingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(100)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    cluster.alter("long", rerunnable=False)
    cluster.at(5_000)
    assert (cluster.orders(), cluster.start("now")) == ([], 10_000)


def test_late_victim_goes_on_in_the_plan_if_the_preemptor_finds_no_place() -> None:
    cluster = PreemptingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    cluster.at(1_005)
    cluster.reserve("r", "n1", start=1_125, end=2_000)
    cluster.at(1_060)
    assert cluster.planned("now") == []
    assert cluster.engine.state.plan.end(cluster.record("long").slot) == T + 10_000


def test_promise_that_a_lost_node_breaks_names_the_node_though_a_preemption_was_planned_there() -> None:
    cluster = PreemptingCluster(nodes=1, more={"slack": 0})
    cluster.submit("long", "1:ppn=4", 2_000)
    cluster.at(100)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert (cluster.planned("now"), cluster.promise("now")) == (["long"], 2_000)
    cluster.node("n1", state="down")
    cluster.at(4_000)
    assert cluster.planned("now") == []
    assert cluster.breaches("now") == [Cause.NODE_LOST.value]


def hypothetical_job(queue: str) -> JobFacts:
    resources = {"nodes": "1:ppn=4", "walltime": "100"}
    return JobFacts(id="", owner="ann", queue=queue, submitted=T + 2_000, resources=resources)


def test_what_if_of_an_urgent_job_names_its_victims_and_changes_nothing() -> None:
    cluster = PreemptingCluster(nodes=2)
    cluster.submit("a", "1:ppn=4", 10_000)
    cluster.at(100)
    cluster.submit("b", "1:ppn=4", 10_000)
    cluster.submit("next", "1:ppn=4", 1_000)
    cluster.at(2_000)
    state = cluster.engine.state
    fork = fork_plan(cluster.engine, publish_snapshot(state))
    for _ in range(2):
        found = fork.what_if(hypothetical_job("urgent"), T + 2_000)
        assert isinstance(found.answer, StartKnown)
        assert found.answer.placement.start == T + 2_020
        assert [share.node for share in found.answer.placement.shares] == ["n2"]
        assert found.notes == ("would preempt job b: 7,680 core-seconds of work lost",)
        other = fork.what_if(hypothetical_job("batch"), T + 2_000)
        assert isinstance(other.answer, StartKnown)
        assert (other.answer.placement.start, other.notes) == (T + 10_100, ())


def waiting_preemptor(**preemption: Any) -> PreemptingCluster:
    """Return a cluster with an urgent job behind a run of ten minutes."""
    resources = preemption.pop("resources", {})
    cluster = PreemptingCluster(**preemption)
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(600)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent", resources=resources)
    return cluster


@pytest.mark.parametrize(
    ("preemption", "words"),
    [
        ({"resources": {"preempt_targets": "NONE"}}, ", as it requests (preempt_targets=NONE)"),
        ({"windows": ["2023-11-15T00:00/2023-11-15T06:00 FREQ=DAILY UTC"], "gain": 9_000},
         ": preemptions are not permitted at this time until 2023-11-15 00:00:00 UTC"),
        ({"targets": {"queues": ["other"]}}, ": no running job may be preempted"),
        ({"methods": ["checkpoint"]}, "1 that permits none of the methods (checkpoint)"),
        ({"resources": {"preempt_targets": "queue=other"}}, "1 outside its preempt_targets"),
        ({"min_run": 9_990}, "1 with a run of less than 3 h"),
        ({"gain": 9_900}, "1 that would not let it start 3 h earlier without a broken promise"),
    ],
)  # fmt: skip
def test_a_waiting_preemptor_says_by_which_rules_it_preempts_nothing(
    preemption: dict[str, Any], words: str
) -> None:
    cluster = waiting_preemptor(**preemption)
    assert (cluster.start("now"), cluster.orders()) == (10_000, [])
    (note,) = [one for one in cluster.view("now").notes if "preempts nothing" in one]
    assert note.startswith("preempts nothing")
    assert note.endswith(words)
    assert not any("preempts nothing" in note for note in cluster.view("long").notes)


def test_a_preempted_job_rests_and_the_next_preemptor_says_so() -> None:
    cluster = waiting_preemptor()
    cluster.at(1_500)
    assert cluster.runs("long") == [0, 700]
    cluster.submit("next", "1:ppn=4", 100, queue="urgent")
    assert "may be preempted: 1 preempted within the last 6 h" in cluster.view("next").why


@pytest.mark.parametrize(
    ("min_run", "words"), [(3_000, " (a run is preempted after 50 min at the earliest)"), (0, "")]
)
def test_a_preemptor_that_waits_for_its_preemption_names_the_rule(min_run: int, words: str) -> None:
    cluster = waiting_preemptor(min_run=min_run)
    state = cluster.engine.state
    published = publish_snapshot(state)
    found = explain(fork_plan(cluster.engine, published), "now", state.now)
    if min_run:
        assert found is not None
        assert found.earliest_why == f"job long is not preempted for it{words}"
        assert found.why == f"{found.earliest_why} before 2023-11-14 23:03:40 UTC"
    else:
        assert cluster.runs("now") == [600]


def test_a_victim_and_what_is_kept_for_it_are_one_blocker() -> None:
    """They were named as two. Without the preemptor the victim would go on."""
    cluster = PreemptingCluster(min_run=3_000)
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(600)
    cluster.submit("now", "1:ppn=2", 100, queue="urgent")
    cluster.submit("behind", "1:ppn=4", 5_000)
    state = cluster.engine.state
    published = publish_snapshot(state)
    assert "preemption for now" in published.blocks.values()
    found = explain(fork_plan(cluster.engine, published), "behind", state.now)
    assert found is not None
    assert sorted((one.name, one.sooner) for one in found.blockers) == [("long", True), ("now", False)]


def test_a_hypothetical_scavenger_is_promised_nothing() -> None:
    cluster = waiting_preemptor()
    state = cluster.engine.state
    fork = fork_plan(cluster.engine, publish_snapshot(state))
    for queue, promised in (("scavenger", False), ("batch", True)):
        facts = hypothetical_job(queue)
        found = fork.what_if(facts, state.now)
        assert isinstance(found.answer, StartKnown)
        assert (hypothetical_promise(fork, found, facts) < FOREVER) is promised


def test_targets_of_a_preemptor_are_no_resource_that_is_not_planned() -> None:
    assert not any(
        "not planned" in note
        for note in waiting_preemptor(resources={"preempt_targets": "NONE"}).view("now").notes
    )
    cluster = PreemptingCluster(preemptors={})
    cluster.submit("now", "1:ppn=4", 100, queue="urgent", resources={"preempt_targets": "NONE"})
    assert "not planned: preempt_targets=NONE" in cluster.view("now").notes


def test_policy_preview_names_the_jobs_that_would_be_preempted() -> None:
    cluster = PreemptingCluster(targets={"queues": ["other"]})
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.submit("next", "1:ppn=4", 1_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    policy = PolicyChanged(id="p", time=cluster.server.now, version=1, site={"preemption": URGENT})
    found = preview_moves(cluster.engine.fork(), [policy], cluster.server.now)
    assert [(run.job, run.preemptor, run.time - T, run.lost) for run in found.preempted] == [
        ("long", "now", 1_020, 4_080)
    ]
    assert {one.job: one.after for one in found.moved}["now"] == T + 1_020
    assert cluster.planned("now") == []
    # The policy in force preempts it, and a further preview has nothing new.
    cluster.preempts = False
    cluster.send(policy)
    assert [one.job_id for one in cluster.orders()] == ["long"]
    again = preview_moves(cluster.engine.fork(), [], cluster.server.now)
    assert again.preempted == ()


def test_running_jobs_show_their_risk_of_preemption_by_the_past_rate() -> None:
    cluster = PreemptingCluster(nodes=4)
    for number in range(3):
        cluster.submit(f"past{number}", "1:ppn=4", 40_000)
    cluster.at(40_000)
    cluster.submit("long", "1:ppn=4", 40_000)
    assert "risk" not in cluster.view("long").why  # none was ever preempted
    for number in range(3):
        cluster.submit(f"more{number}", "1:ppn=4", 50_000)
    cluster.at(41_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    (order,) = cluster.orders()
    cluster.at(41_200)
    (risk,) = [note for note in cluster.view("more0").notes if "risk" in note]
    # One preemption in 3 * 40,000 + 1,000 s of ended runs and 3 * 1,200 s of others, and 48,800 s to go:
    # 1 - exp(-0.39).
    assert risk == "its risk of being preempted before its end is 32 %, by the rate of the past week"
    assert order.job_id not in ("now", "more0")


def test_preemptors_and_targets_are_selected_by_qos() -> None:
    site = {
        "preemption": {"preemptors": {"qos": ["high"]}, "targets": {"qos": ["low"]}, "release_time": 20},
        "qos": {"levels": {"high": {}, "low": {}}, "default": "low"},
    }
    cluster = Cluster(nodes=2, site=site)
    cluster.submit("a", "1:ppn=4", 10_000, resources={"qos": "high"})
    cluster.submit("b", "1:ppn=4", 10_000)
    cluster.at(2_000)
    cluster.submit("plain", "1:ppn=4", 100)
    assert not [one for one in cluster.decisions if isinstance(one, Preempt)]
    cluster.submit("now", "1:ppn=4", 100, resources={"qos": "high"})
    assert [one.job_id for one in cluster.decisions if isinstance(one, Preempt)] == ["b"]


@pytest.mark.parametrize(
    ("charged", "method", "used"),
    [
        ("owner", "requeue", {"ann": 4_000, "bob": 0}),
        ("preemptor", "requeue", {"ann": 0, "bob": 4_000}),
        ("nobody", "requeue", {"ann": 0, "bob": 0}),
        ("preemptor", "checkpoint", {"ann": 4_000, "bob": 0}),
    ],
)
def test_lost_work_is_charged_to_the_chosen_party(charged: str, method: str, used: dict[str, int]) -> None:
    settings = URGENT | {"charged": charged, "methods": [method]}
    cluster = Cluster(site={"preemption": settings, "fair_share": {"levels": ["user"], "shares": {}}})
    cluster.send(*cluster.server.change_queue(QueueFacts(name="urgent")))
    cluster.submit("first", "1:ppn=4", 10, owner="zoe@x")
    cluster.submit("long", "1:ppn=4", 10_000, owner="ann@x", checkpoint="c=10")
    cluster.at(1_010)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent", owner="bob@x")
    assert [one.job_id for one in cluster.decisions if isinstance(one, Preempt)] == ["long"]
    usage = fair_share_state(cluster.engine.state).usage
    tree = share_tree(cluster.engine.state)
    assert usage is not None
    assert tree is not None
    cluster.send(*cluster.server.requeue("long"))
    found = usage.decayed(tree, cluster.server.now)
    assert {name: round(sum(found.get((name,), (0,))[:1])) for name in used} == used
    assert found["ann",][1] == 10, "her wait is hers, whoever pays"


def random_events(cluster: PreemptingCluster, draw: random.Random, number_of_events: int = 70) -> None:
    """Let random things happen to a cluster of three nodes."""
    moment = 0
    for number in range(number_of_events):
        act = draw.random()
        waiting = [job.id for job in cluster.server.jobs.values() if job.state in "QH"]
        running = [job.id for job in cluster.server.jobs.values() if job.state in "RS"]
        cluster.preempts = draw.random() < 0.8
        if act < 0.55 or not waiting:
            queue = draw.choices(("batch", "urgent", "scavenger", "other"), (4, 3, 2, 1))[0]
            nodes = f"{draw.choice((1, 1, 2))}:ppn={draw.choice((1, 2, 4))}"
            walltime = draw.choice((100, 500, 1_000, 3_000))
            more: dict[str, Any] = {"not_before": T + moment + 900} if draw.random() < 0.1 else {}
            if cluster.server.nodes["n1"].mem:
                more["resources"] = {"mem": f"{draw.choice((1, 3, 6))}gb"}
            ran = walltime if draw.random() < 0.5 else draw.randrange(50, walltime)
            more["exclusive"] = number % 9 == 8
            cluster.submit(f"j{number}", nodes, walltime, queue=queue, runtime=ran, **more)
        elif act < 0.65:
            cluster.send(*cluster.server.delete(draw.choice(waiting)))
        elif act < 0.72:
            job = draw.choice(waiting)
            held = cluster.server.jobs[job].state == "H"
            cluster.send(*(cluster.server.release(job) if held else cluster.server.hold(job)))
        elif act < 0.78 and running:
            cluster.alter_request(draw.choice(running), walltime=str(draw.choice((200, 2_000, 5_000))))
        elif act < 0.84:
            cluster.node(f"n{draw.randrange(1, 4)}", state=draw.choice(("up", "up", "drain")))
        elif act < 0.9 and running:
            cluster.requeue(draw.choice(running))
        elif 0.9 <= act < 0.94:
            cluster.engine.pause("an upgrade")
        elif act >= 0.94:
            cluster.engine.resume()
        moment += draw.choice((0, 10, 60, 400))
        cluster.at(moment)
        orders = cluster.orders()
        for one in orders[-3:] if not cluster.preempts else ():
            if draw.random() < 0.5:
                cluster.send(*cluster.outcome(one, draw.choice(("", "no"))))
    cluster.engine.resume()
    cluster.at(moment)


@pytest.mark.parametrize("seed", some([0, 1, 2, 55, 75]))
def test_random_events_break_no_invariant_and_no_promise_by_a_preemption(seed: int) -> None:
    draw = random.Random(seed)
    cluster = PreemptingCluster(
        nodes=3,
        cpus=4,
        min_run=draw.choice((0, 300)),
        rest=2_000,
        more={"slack": draw.choice((0, 600, 5_000))},
    )
    random_events(cluster, draw)
    causes = {cause for job in cluster.engine.state.records for cause in cluster.breaches(job)}
    assert Cause.PRIORITY.value not in causes
    assert any(cluster.orders()) or seed != 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"preemptors": {"queue": ["urgent"]}}, "queue"),
        ({"signal": "kill -9"}, "signal"),
        ({"windows": ["every day"]}, "FREQ=DAILY"),
        ({"release_time": 0}, "release_time"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        site_policy({"preemption": wrong})


def test_a_victim_that_an_administrator_suspends_keeps_its_nodes_in_the_plan() -> None:
    cluster = PreemptingCluster(min_run=5_000)
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert (cluster.planned("now"), cluster.start("now")) == (["long"], 5_020)
    cluster.send(*cluster.server.suspend("long"))
    assert (cluster.planned("now"), cluster.start("now")) == ([], 10_000)
    cluster.at(6_000)
    assert cluster.alerts("no_room") == []


@pytest.mark.parametrize("policy", ["conservative", "easy"])
def test_preemptors_wake_nobody_while_none_can_be_examined(policy: str) -> None:
    cluster = PreemptingCluster(min_run=50_000, more={"policy": policy})
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    cluster.engine.pause("maintenance")
    cluster.server.now += 200
    cluster.send()
    assert (cluster.engine.next_wake or 0) - cluster.server.now > 1


def test_a_class_that_breaks_promises_does_not_take_what_running_jobs_are_preempted_for() -> None:
    """It was planned on nodes that only the preemptor frees, and the plan kept a preemption for nobody."""
    boss = {"points": 100.0, "users": ["bob"], "breaks_promises": True}
    site = {"preemption": URGENT, "classes": {"boss": boss}}
    cluster = Cluster(1, site=site, slack=0)
    cluster.send(*cluster.server.change_queue(QueueFacts(name="urgent")))
    cluster.submit("1", walltime=2000)
    cluster.at(700)
    cluster.submit("2", queue="urgent")
    start = cluster.start("2")
    assert (list(preemption_state(cluster.engine.state).planned), start) == (["2"], 720)
    state, facts = cluster.engine.state, JobFacts(id="3", owner="bob@login", queue="batch", submitted=T + 700)
    facts = replace(facts, resources={"nodes": "1:ppn=4", "walltime": "100"})
    expected = fork_plan(cluster.engine, publish_snapshot(state)).what_if(facts, T + 700).answer
    cluster.submit("3", owner="bob@login")
    assert (cluster.start("2"), cluster.at_risk("2")) == (start, "")
    assert isinstance(expected, StartKnown)
    assert cluster.start("3") == expected.placement.start - T


def test_an_altered_preemptor_gets_a_new_promise() -> None:
    """Its former place may be taken since it was planned by a preemption, and no cause that may break its
    promise applied.
    """
    cluster = PreemptingCluster(more={"slack": 0})
    cluster.preempts = False
    cluster.submit("1", walltime=1000)
    cluster.at(700)
    cluster.submit("2", queue="urgent", walltime=200)
    assert (cluster.start("2"), cluster.promise("2")) == (720, 1000)
    cluster.submit("3", walltime=100)
    cluster.alter_request("2", walltime="150")
    ended = cluster.record("2").ended
    assert ended is not None
    assert ended.words == "it was altered while jobs were to be preempted for it"


def test_the_rest_of_a_preempted_run_is_seen_by_whole_node_jobs() -> None:
    """Its share of the node was left to the preemptor."""
    cluster = PreemptingCluster()
    cluster.preempts = False
    cluster.submit("1", walltime=2000)
    cluster.at(700)
    cluster.submit("2", queue="urgent", resources={"nodes": "1:ppn=2"})
    (one,) = preemption_state(cluster.engine.state).planned.values()
    plan = cluster.engine.state.plan
    assert [take.amounts[:2] for block in one.blocks for take in plan.takes(block)] == [(2, 1), (4, 1)]


def test_jobs_behind_a_postponed_preemptor_stay_clear_of_the_rest_of_its_victims() -> None:
    """One of them was delayed while nothing was blocked for the victim, and over-committed the node."""
    cluster = PreemptingCluster()
    cluster.preempts = False
    for job in "12":
        cluster.submit(job, "1:ppn=2", 2000)
    cluster.at(700)
    cluster.submit("3", queue="urgent", walltime=100)
    assert (cluster.start("3"), cluster.planned("3")) == (720, ["1", "2"])
    cluster.at(702)
    cluster.send(*cluster.server.delete("1"))
    for job in "45":
        cluster.submit(job, "1:ppn=2", 300)
    cluster.at(719)
    assert [cluster.start(job) for job in "345"] == [729, 829, 1129]
    cluster.at(728)
    assert [cluster.start(job) for job in "345"] == [738, 838, 1138]
