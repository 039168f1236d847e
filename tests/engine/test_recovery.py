"""Recovery of the engine after a skipped call."""

from dataclasses import fields

import pytest

from schedd.engine.facts.state import EngineState
from schedd.engine.recovery import CARRIED
from schedd.features.licences.state import licence_counts
from schedd.features.prediction.state import find_predictor
from schedd.features.reservations.state import reservation_records
from schedd.model import NodeState
from schedd.wire import (
    BatchSkipped,
    ClockSet,
    Event,
    JobFacts,
    JobStarted,
    LogLost,
    ResourceCounted,
    ShareFacts,
)
from tests.engine.cluster import Cluster, T

ADAPTED = frozenset({"carried_jobs", "limits", "requests", "stale", "parts"})
"""Fields that are kept in part: see ``rebuild_state``."""
REBUILT = frozenset(
    {
        *("plan", "records", "numbers", "by_slot", "slotless", "unexplained", "ranking", "applicants"),
        *(
            "promise",
            "bound",
            "published_start",
            "published_at",
            "written_at",
            "update_due",
            "changed",
            "last_move",
            "first_change",
            "expected",
        ),
        *("expected_by", "rank", "waits_since", "due_by", "bag_end", "array_hash", "owner_number"),
        *("array_members", "dependents"),
        *(
            "chained",
            "without_place",
            "queue",
            "assumed",
            "dispatched",
            "risks",
            "ends",
            "capped",
            "cost_check_due",
        ),
        *("node_facts", "counted", "uncounted", "queues", "server", "gates"),
        *("down_since", "blocked"),
        *(
            "arriving",
            "to_reevaluate",
            "doubted_loss",
            "first_snapshot",
            "adapter_run",
            "adapter_returned",
            "server_restarted",
            "requeued_by_restart",
            "halt_published_until",
        ),
        *("changes", "changes_kept", "backfilled", "last_backfill", "backfill_due", "freed_by", "next_due"),
        *("idle_hooks", "first_start_ahead", "next_updated", "updates_marked", "event_lag"),
        *(
            "failure_rates",
            "row_watts",
            "economy_in_force",
            "tariff",
            "nevers",
            "bare",
            "site_changed",
            "awaited_ends",
        ),
    }
)
"""All other fields: plan, jobs, nodes and derived values, which the next snapshot provides."""


def passed(cluster: Cluster, **more: object) -> None:
    event = BatchSkipped(
        id=cluster.server.event_id(),
        time=cluster.server.now,
        batch=7,
        why="it did not return",
        **more,  # type: ignore[arg-type]
    )
    cluster.send(event)


def test_rebuilt_plan_keeps_user_settings_and_promises() -> None:
    cluster = Cluster(nodes=2, slack=500)
    cluster.reserve("mine", "n2", start=5_000)
    for number in "123":
        cluster.submit(number, "2:ppn=4", walltime=1_000)
    cluster.engine.pause("upgrade")
    promised = [cluster.promise(number) for number in "23"]
    cluster.engine.state.breaches = 5
    passed(cluster, anew=True, decided=40)
    state = cluster.engine.state
    assert (state.records, state.paused, state.stale) == ({}, "upgrade", "the plan is made anew")
    assert state.decision_number >= 40
    cluster.send(cluster.server.snapshot())
    assert state.stale == ""
    assert [cluster.start(number) for number in "123"] == [0, 1_000, 2_000]
    assert [cluster.promise(number) for number in "23"] == promised
    assert list(reservation_records(state)["mine"].nodes) == ["n2"]
    cluster.submit("4", "2:ppn=4", walltime=2_500)
    assert cluster.start("4") is None  # the reservation has no end
    assert state.breaches == 5


def test_every_state_field_has_a_rule_for_rebuilds() -> None:
    names = [field.name for field in fields(EngineState)]
    said = sorted([*CARRIED, *ADAPTED, *REBUILT])
    assert said == sorted(names)


def test_rebuilt_plan_keeps_learned_run_times_bad_nodes_and_licences() -> None:
    cluster = Cluster(nodes=2, predict=True, slack=500)
    state = cluster.engine.state
    for number in range(30):
        cluster.submit(f"{number}.s", walltime=1_000, runtime=10)
    cluster.at(400)
    state.black_holes["n2"] = "jobs fail there"
    cluster.send(ResourceCounted(id="c", time=cluster.server.now, name="sw", amount=3, number=5))
    cluster.submit("a", walltime=1_000)
    predictor = find_predictor(state)
    assert predictor is not None
    expected = predictor.learner.prediction("a").p50
    passed(cluster, anew=True)
    cluster.send(cluster.server.snapshot())
    cluster.submit("b", walltime=1_000)
    predictor = find_predictor(state)
    assert predictor is not None
    assert predictor.learner.prediction("b").p50 == expected < 100
    assert state.plan.nodes["n2"].state is NodeState.DRAIN
    counts = licence_counts(state)
    assert (counts.counted["sw"][0], counts.lent) == (3, {"sw": 5})
    cluster.submit("c", resources={"sw": "1"})
    assert state.plan.pool_amounts(cluster.record("c").slot)


@pytest.mark.parametrize("anew", [True, False])
def test_nodes_of_an_unresolved_start_are_not_reused(anew: bool) -> None:
    cluster = Cluster(decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.submit("1", walltime=20)
    assert cluster.runs("1") == [0]
    more = {"anew": True} if anew else {"jobs": ("1",)}
    passed(cluster, out={"1": T + 60}, **more)
    cluster.send(cluster.server.snapshot())
    cluster.submit("2", walltime=20)
    cluster.at(60)
    assert cluster.runs("2") == []
    cluster.at(70)
    assert len(cluster.runs("2")) == 1


def test_no_second_start_while_a_lost_decision_may_be_carried_out() -> None:
    cluster = Cluster(decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.submit("1")
    passed(cluster, out={"1": T + 60})
    assert cluster.runs("1") == [0]
    fresh = Cluster(decision_expiry=60, answer_grace=30)
    fresh.engine.pause("for now")
    fresh.submit("1")
    passed(fresh, out={"1": T + 60})
    fresh.engine.resume()
    fresh.at(200)
    assert fresh.runs("1") == [91]


@pytest.mark.parametrize("anew", [True, False])
def test_a_job_that_arrived_in_a_lost_batch_is_not_started_while_its_lost_start_may_be_carried_out(
    anew: bool,
) -> None:
    cluster = Cluster(decision_expiry=60, answer_grace=30)
    facts = JobFacts(id="1", owner="ann@login", queue="batch", submitted=T, resources={"nodes": "1:ppn=4"})
    cluster.server.submit(facts, 100)
    passed(cluster, out={"1": T + 60}, anew=anew)
    cluster.send(cluster.server.snapshot())
    cluster.at(200)
    assert cluster.runs("1") == [91]


def test_a_step_that_fails_again_is_left_out_for_longer() -> None:
    cluster = Cluster()
    state = cluster.engine.state
    waits = []
    for _ in range(8):
        passed(cluster, steps=("priorities",))
        until, wait = state.skipped_steps["priorities"]
        assert until == cluster.server.now + wait
        waits.append(wait)
        cluster.server.now = until
    assert waits == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    cluster.server.now += 7_201
    passed(cluster, steps=("priorities",))
    assert state.skipped_steps["priorities"][1] == 60


def test_starting_jobs_is_tried_again_after_a_minute_however_often_it_failed() -> None:
    cluster = Cluster()
    for _ in range(5):
        passed(cluster, steps=("dispatch",))
        assert cluster.engine.state.skipped_steps["dispatch"] == (cluster.server.now + 60, 60)
        cluster.server.now += 60


def test_nodes_of_a_quarantined_running_job_are_blocked_until_its_end() -> None:
    cluster = Cluster(nodes=2)
    passed(cluster, jobs=("9",))
    facts = cluster.server
    cluster.engine.pause("for now")
    cluster.submit("9", "1:ppn=1", walltime=50)
    cluster.send(*facts.start("9", cluster.engine.state.records["9"].facts.shares or ()))
    cluster.engine.resume()
    assert cluster.view("9").answer == "waiting"
    assert "the planner did not come back from it" in cluster.view("9").why
    cluster.at(50)
    assert "9" not in cluster.engine.state.records
    assert cluster.engine.state.aside == {}


def test_quarantined_job_is_examined_again_when_altered_after_an_hour() -> None:
    cluster = Cluster()
    cluster.engine.pause("for now")
    cluster.submit("1")
    passed(cluster, jobs=("1",))
    cluster.alter_request("1", walltime="200")
    assert cluster.view("1").answer == "waiting"
    cluster.at(3_600)
    cluster.alter_request("1", walltime="300")
    assert cluster.view("1").answer == "start_known"


def _start(cluster: Cluster, numbers: str, at: int) -> None:
    for number in numbers:
        shares = (ShareFacts(f"n{number}", 4),)
        cluster.send(JobStarted(id=cluster.server.event_id(), time=T + at, job_id=number, shares=shares))


@pytest.mark.parametrize(
    "word",
    [
        BatchSkipped(id="w", time=T, batch=7, why="it did not return"),
        BatchSkipped(id="w", time=T, batch=7, why="it did not return", anew=True),
        LogLost(id="w", time=T, why="a file was cut", decided=9),
    ],
    ids=["passed over", "made anew", "lost"],
)
def test_unknown_starts_after_a_recovery_are_not_foreign(word: Event) -> None:
    """They were decided in a batch that was passed over, or is lost; three of them stopped the cluster."""
    cluster = Cluster(nodes=6, decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.engine.pause("so that nothing is decided here")
    for number in "123456":
        cluster.submit(number, walltime=1_000)
    cluster.at(10)
    cluster.send(word)
    cluster.send(cluster.server.snapshot())
    _start(cluster, "123", 90)
    assert cluster.alerts("by_hand") == cluster.alerts("foreign") == []
    assert not cluster.engine.state.foreign
    cluster.at(200)
    _start(cluster, "456", 200)
    assert len(cluster.alerts("by_hand")) == 3
    assert cluster.engine.state.foreign


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("way", ["anew", "clock"])
def test_a_decision_of_a_lost_batch_stays_the_only_one_through_further_rebuilds(
    way: str, listed: bool
) -> None:
    cluster = Cluster(decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.engine.pause("for now")
    cluster.submit("1", walltime=500)
    passed(cluster, anew=not listed, out={"1": T + 100}, decided=1)
    if listed:
        cluster.send(cluster.server.snapshot())
    cluster.at(20)
    ahead = 0
    if way == "anew":
        passed(cluster, anew=True)
    else:
        ahead = 400
        cluster.server.now -= ahead
        cluster.send(ClockSet(id="c", time=cluster.server.now))
    cluster.engine.resume()
    for moment in range(20 - ahead, 100 + 30 - ahead, 10):
        cluster.at(moment)
        cluster.send(cluster.server.snapshot())
    assert cluster.runs("1") == []
    cluster.at(100 + 31 + 10 - ahead)
    assert len(cluster.runs("1")) == 1
