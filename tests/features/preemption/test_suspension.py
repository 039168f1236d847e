"""Victims that are suspended keep what they do not release, and go on after their preemptor."""

import random
from dataclasses import replace
from typing import Any

import pytest

from schedd.engine.facts.records import Cause
from schedd.engine.lasting_facts import dump_lasting_facts
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.preemption.candidates import declares_checkpoint
from schedd.features.preemption.state import preemption_state
from schedd.model import StartKnown
from schedd.service.questions.plan_fork import fork_plan
from schedd.wire import ClockSet, Event, JobFacts, NodeFacts, PreemptionDone, Resume, ServerFacts
from tests.engine.cluster import T
from tests.features.preemption.test_preemption import (
    PreemptingCluster,
    hypothetical_job,
    last_move,
    random_events,
)
from tests.property_examples import some

MEM = 1 << 20
"""1 GiB in KiB."""


class SuspendingCluster(PreemptingCluster):
    """A cluster that suspends jobs, and resumes them at once, unless ``resumes`` is False."""

    def __init__(self, nodes: int = 1, cpus: int = 4, **preemption: Any) -> None:
        self.resumes = True
        more = {"slack": 20_000} | preemption.pop("more", {})
        super().__init__(nodes, cpus, **{"methods": ["suspend"], "min_run": 0, "more": more} | preemption)
        for name in list(self.server.nodes):
            self.send(*self.server.change_node(NodeFacts(name=name, cpus=cpus, mem=8 * MEM)))

    def _handle(self, events: tuple[Event, ...]) -> None:
        before = len(self.decisions)
        super()._handle(events)
        for one in self.resumptions(before) if self.resumes else ():
            super()._handle((*self.resume_outcome(one), *self.server.resume(one.job_id)))

    def resumptions(self, first: int = 0) -> list[Resume]:
        return [one for one in self.decisions[first:] if isinstance(one, Resume)]

    def resume_outcome(self, order: Resume, refusal: str = "") -> tuple[PreemptionDone]:
        done = PreemptionDone(
            id=self.server.event_id(),
            time=self.server.now,
            decision_id=order.id,
            job_id=order.job_id,
            done=not refusal,
            text=refusal,
        )
        return (done,)

    def resumed_at(self, job: str) -> list[int]:
        return [one.time - T for one in self.resumptions() if one.job_id == job]

    def end(self, job: str) -> int:
        return self.engine.state.plan.end(self.record(job).slot) - T


def test_suspended_job_goes_on_after_its_preemptor_for_the_rest_of_its_walltime() -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.submit("next", "1:ppn=4", 1_000)
    cluster.at(1_000)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    (order,) = cluster.orders()
    assert (order.job_id, order.method) == ("long", "suspend")
    assert "suspends job long: 0 core-seconds of work lost" in cluster.view("now").why
    assert "it will be suspended for job now by" in cluster.view("long").why
    # The plan has the preemptor, the return of its victim, and the job behind it.
    assert (cluster.start("now"), cluster.start("next")) == (1_020, 10_100)
    cluster.server.now += 3
    cluster.send(*cluster.outcome(order), *cluster.server.suspend("long"))
    assert cluster.runs("now") == [1_003]
    assert last_move(cluster, "now") == "job long left its nodes for it"
    assert "it is suspended for job now since" in cluster.view("long").why
    assert (cluster.engine.state.plan.start(cluster.record("long").slot), cluster.end("long")) == (
        T + 1_103, 10_100)  # fmt: skip
    view = cluster.view("long")
    assert (view.planned_start, view.displayed_start, view.planned_end) == (T, T, T + 10_100)
    cluster.at(1_103)
    assert cluster.resumed_at("long") == [1_103]
    assert cluster.server.jobs["long"].state == "R"
    assert (cluster.end("long"), cluster.start("next")) == (10_100, 10_100)
    cluster.at(20_000)
    assert cluster.runs("next") == [10_100]
    part = preemption_state(cluster.engine.state)
    assert (part.count, part.lost, part.suspended, part.suspending) == (1, 0, {}, {})
    assert cluster.alerts("overrun") == []


def test_suspended_job_keeps_its_memory() -> None:
    cluster = SuspendingCluster()
    mem = {"mem": "6gb"}
    cluster.submit("long", "1:ppn=4", 10_000, resources=mem)
    cluster.at(1_000)
    # It needs memory that a suspension does not free.
    cluster.submit("large", "1:ppn=1", 100, queue="urgent", resources={"mem": "3gb"})
    assert (cluster.orders(), cluster.start("large")) == ([], 10_000)
    cluster.submit("small", "1:ppn=1", 100, queue="urgent", resources={"mem": "2gb"})
    assert [one.job_id for one in cluster.orders()] == ["long"]
    assert cluster.runs("small") == [1_000]
    # Beside the preemptor there are cores, but no memory.
    cluster.submit("filler", "1:ppn=1", 50, resources={"mem": "1gb"})
    cluster.submit("lean", "1:ppn=1", 50)
    assert cluster.runs("filler") == []
    assert cluster.runs("lean") == [1_000]


@pytest.mark.parametrize(
    ("released", "server", "runs"),
    [
        (["ncpus"], "", False),
        (["ncpus", "mem"], "", True),
        (["ncpus"], "ncpus,mem", True),
        (["ncpus", "mem"], "ncpus", False),
    ],
)
def test_server_and_settings_say_what_a_suspended_job_releases(
    released: list[str], server: str, runs: bool
) -> None:
    cluster = SuspendingCluster(released=released)
    attributes = {"restrict_res_to_release_on_suspend": server} if server else {}
    cluster.send(*cluster.server.change_server(replace(ServerFacts(), attributes=attributes)))
    cluster.submit("long", "1:ppn=4", 10_000, resources={"mem": "6gb"})
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=1", 100, queue="urgent", resources={"mem": "3gb"})
    assert bool(cluster.runs("now")) is runs


def test_next_method_is_used_if_the_preemptor_cannot_start_by_a_suspension() -> None:
    cluster = SuspendingCluster(methods=["suspend", "requeue"])
    cluster.submit("long", "1:ppn=4", 10_000, resources={"mem": "6gb"})
    cluster.at(1_000)
    cluster.submit("large", "1:ppn=1", 100, queue="urgent", resources={"mem": "3gb"})
    assert [(one.job_id, one.method) for one in cluster.orders()] == [("long", "requeue")]
    cluster.at(1_100)
    cluster.submit("b", "1:ppn=4", 10_000)


@pytest.mark.parametrize(
    ("methods", "facts", "method"),
    [
        (["checkpoint", "requeue"], {"checkpoint": "c=10"}, "checkpoint"),
        (["checkpoint", "requeue"], {"checkpoint": "u"}, "requeue"),
        (["checkpoint", "requeue"], {"checkpoint": "enabled", "rerunnable": False}, "checkpoint"),
        (["checkpoint", "requeue"], {"checkpoint": "n", "rerunnable": False}, ""),
        (["suspend"], {"rerunnable": False}, "suspend"),
    ],
)
def test_method_is_the_first_one_that_the_job_permits(
    methods: list[str], facts: dict[str, Any], method: str
) -> None:
    cluster = SuspendingCluster(methods=methods)
    cluster.submit("long", "1:ppn=4", 10_000, **facts)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert [one.method for one in cluster.orders()] == ([method] if method else [])
    lost = preemption_state(cluster.engine.state).lost
    assert lost == (4_000 if method == "requeue" else 0)
    after = {"requeue": "its work is lost", "checkpoint": "goes on from its checkpoint"}.get(method, "")
    assert after in cluster.view("long").why
    assert ("is lost" in cluster.view("long").why) == (method == "requeue")


def test_suspended_job_goes_on_early_if_its_preemptor_ends_early() -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.submit("next", "1:ppn=2", 1_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 1_000, queue="urgent", runtime=200)
    cluster.at(1_200)
    assert cluster.resumed_at("long") == [1_200]
    assert (cluster.end("long"), cluster.runs("next")) == (10_200, [])


def test_suspended_job_waits_for_a_preemptor_that_runs_longer_than_planned() -> None:
    cluster = SuspendingCluster(more={"end_allowance": 0})
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent", runtime=500)
    cluster.at(1_400)
    assert cluster.resumed_at("long") == []
    cluster.at(1_600)
    assert cluster.resumed_at("long") == [1_500]


def test_refused_resume_raises_an_alert_and_is_tried_again() -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    cluster.resumes = False
    cluster.at(1_100)
    (order,) = cluster.resumptions()
    cluster.send(*cluster.resume_outcome(order, "no such signal"))
    assert cluster.alerts("suspension") == [
        "job long could not be resumed: no such signal; it is tried again"
    ]
    cluster.resumes = True
    cluster.at(1_300)
    assert cluster.resumed_at("long") == [1_100, 1_160]
    assert cluster.server.jobs["long"].state == "R"


def test_victim_of_an_undone_suspension_goes_on_at_once() -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    (order,) = cluster.orders()
    cluster.send(*cluster.server.delete("now"))
    cluster.at(1_010)
    cluster.send(*cluster.outcome(order), *cluster.server.suspend("long"))
    assert cluster.resumed_at("long") == [1_010]
    assert cluster.end("long") == 10_000


@pytest.mark.parametrize("kind", ["checkpoint", "lasting"])
def test_suspended_job_goes_on_after_the_daemon_was_restarted(kind: str) -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000, resources={"mem": "6gb"})
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    engine = cluster.engine
    settings = engine.state.settings
    if kind == "checkpoint":
        cluster.engine = type(engine).restore(engine.checkpoint(), settings)
        assert preemption_state(cluster.engine.state) == preemption_state(engine.state)
    else:
        cluster.engine, unread = type(engine).from_facts(b"".join(dump_lasting_facts(engine.state)), settings)
        assert unread == []
        cluster.send(cluster.server.snapshot())
    cluster.at(2_000)
    assert cluster.resumed_at("long") == [1_100]
    assert cluster.end("long") == 10_100
    cluster.at(10_100)
    assert "long" not in cluster.server.jobs
    assert not preemption_state(cluster.engine.state).suspended


def test_suspended_job_that_is_deleted_leaves_nothing_in_the_plan() -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000, resources={"mem": "6gb"})
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=1", 100, queue="urgent")
    cluster.send(*cluster.server.delete("long"))
    cluster.submit("next", "1:ppn=3", 100, resources={"mem": "8gb"})
    assert cluster.runs("next") == [1_000]


def test_altered_walltime_of_a_suspended_job_keeps_its_return() -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 500, queue="urgent")
    cluster.alter_request("long", walltime="5000")
    assert (cluster.resumed_at("long"), cluster.end("long")) == ([], 5_500)
    cluster.at(1_500)
    assert (cluster.resumed_at("long"), cluster.end("long")) == ([1_500], 5_500)


def test_what_if_names_the_jobs_that_would_be_suspended() -> None:
    cluster = SuspendingCluster()
    cluster.submit("a", "1:ppn=4", 10_000)
    cluster.at(2_000)
    state = cluster.engine.state
    found = fork_plan(cluster.engine, publish_snapshot(state)).what_if(hypothetical_job("urgent"), T + 2_000)
    assert found.notes == ("would suspend job a: 0 core-seconds of work lost",)


@pytest.mark.parametrize(
    ("text", "declared"),
    [("", False), ("u", False), ("n", False), ("none", False), ("c", True), ("c=5", True), ("s", True),
     ("enabled,shutdown", True), ("w", True)],
)  # fmt: skip
def test_jobs_declare_checkpoints_by_the_words_of_both_families(text: str, declared: bool) -> None:
    assert declares_checkpoint(text) is declared


def test_whole_node_job_does_not_use_a_node_on_which_a_suspended_job_keeps_memory() -> None:
    cluster = SuspendingCluster(nodes=2)
    cluster.submit("long", "2:ppn=4", 10_000, resources={"mem": "4gb"})
    cluster.at(100)
    cluster.submit("now", "1:ppn=4", 1_000, queue="urgent")
    assert [one.job_id for one in cluster.orders()] == ["long"]
    cluster.submit("whole", "1:ppn=1", 100, exclusive=True)
    cluster.submit("shared", "1:ppn=4", 100)
    assert cluster.start("shared") == 100
    assert cluster.start("whole") == cluster.end("long")


@pytest.mark.parametrize("seed", some([0, 2, 3, 5]))
def test_random_events_break_no_invariant_and_no_promise_by_a_suspension(seed: int) -> None:
    draw = random.Random(seed)
    methods = draw.choice((["suspend"], ["suspend", "requeue"]))
    cluster = SuspendingCluster(
        nodes=3,
        min_run=draw.choice((0, 300)),
        rest=2_000,
        methods=methods,
        more={"slack": draw.choice((600, 5_000))},
    )
    random_events(cluster, draw)
    causes = {cause for job in cluster.engine.state.records for cause in cluster.breaches(job)}
    assert Cause.PRIORITY.value not in causes
    assert any(one.method == "suspend" for one in cluster.orders()) or seed
    # In the end every suspended job goes on.
    cluster.preempts = cluster.resumes = True
    for name in cluster.server.nodes:
        cluster.node(name, state="up")
    cluster.at(60_000)
    assert [job.id for job in cluster.server.jobs.values() if job.state == "S"] == []
    assert preemption_state(cluster.engine.state).suspended == {}


@pytest.mark.parametrize("seed", [17, 24, 64])
def test_what_if_of_an_urgent_job_agrees_with_its_start_after_random_events(seed: int) -> None:
    draw = random.Random(seed)
    cluster = SuspendingCluster(
        nodes=3,
        min_run=draw.choice((0, 300)),
        rest=2_000,
        methods=draw.choice((["requeue"], ["suspend"], ["suspend", "requeue"])),
        more={"slack": draw.choice((0, 600, 5_000))},
    )
    random_events(cluster, draw, draw.randrange(10, 50))
    now, state = cluster.server.now, cluster.engine.state
    resources = {
        "nodes": f"{draw.choice((1, 1, 2))}:ppn={draw.choice((1, 2, 4))}",
        "walltime": str(draw.choice((100, 500, 3_000))),
        "mem": f"{draw.choice((1, 3, 6))}gb",
    }
    facts = JobFacts(id="", owner="ann@login", queue="urgent", submitted=now, resources=resources)
    found = fork_plan(cluster.engine, publish_snapshot(state)).what_if(facts, now)
    assert isinstance(found.answer, StartKnown)
    cluster.preempts = cluster.obeys = False
    cluster.send(*cluster.server.submit(replace(facts, id="x"), 100))
    assert cluster.start("x") == found.answer.placement.start - T


@pytest.mark.parametrize("moment", [1_400, 1_800])
def test_suspended_time_is_no_walltime_after_the_state_was_rebuilt(moment: int) -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 500, queue="urgent")
    cluster.at(moment)
    engine = cluster.engine
    facts = b"".join(dump_lasting_facts(engine.state))
    cluster.engine, unread = type(engine).from_facts(facts, engine.state.settings)
    assert unread == []
    cluster.send(cluster.server.snapshot())
    cluster.at(2_000)
    assert (cluster.resumed_at("long"), cluster.end("long")) == ([1_500], 10_500)


def test_job_that_goes_on_in_the_second_of_its_suspension_holds_its_nodes() -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=2", 500, queue="urgent")
    cluster.send(*cluster.server.resume("long"))
    plan, slot = cluster.engine.state.plan, cluster.record("long").slot
    assert (plan.start(slot), cluster.end("long")) == (T, 10_000)


def test_refused_resume_is_tried_again_when_the_clock_was_set_back() -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    cluster.resumes = False
    cluster.at(1_100)
    (order,) = cluster.resumptions()
    cluster.send(*cluster.resume_outcome(order, "no such signal"))
    cluster.server.now -= 1_000
    cluster.send(ClockSet(id="c", time=cluster.server.now))
    cluster.send(cluster.server.snapshot())
    cluster.at(400)
    assert len(cluster.resumptions()) > 1


def test_an_order_without_an_outcome_is_forgotten_so_that_an_administrators_suspension_stays_his() -> None:
    cluster = SuspendingCluster()
    cluster.submit("long", "1:ppn=4", 10_000)
    cluster.at(1_000)
    cluster.preempts = False
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    assert [one.job_id for one in cluster.orders()] == ["long"]
    part = preemption_state(cluster.engine.state)
    assert "long" in part.suspending
    cluster.server.jobs.pop("now")
    cluster.send(cluster.server.snapshot())
    cluster.at(2_500)
    assert part.suspending == {}
    cluster.send(*cluster.server.suspend("long"))
    cluster.at(5_000)
    assert (part.suspended, cluster.resumptions()) == ({}, [])


def test_a_suspension_before_the_first_end_of_a_run_counts_in_the_risk() -> None:
    cluster = SuspendingCluster(nodes=2)
    cluster.submit("long", "1:ppn=4", 100_000)
    cluster.submit("apart", "1:ppn=4", 200_000, queue="other")
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 100, queue="urgent")
    cluster.at(100_200)
    part = preemption_state(cluster.engine.state)
    assert (part.count, round(part.exposed_runs, 1), part.exposed_s > 86_400) == (1, 0.9, True)
    cluster.submit("next", "1:ppn=4", 50_000)
    cluster.at(100_300)
    assert any("of being preempted before its end" in note for note in cluster.view("next").notes)
