"""What users and admins rely on outlives a checkpoint that cannot be read."""

import json
from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Cause, Engine
from schedd.engine.facts.carried_jobs import CarriedJob
from schedd.engine.facts.records import Risk
from schedd.engine.lasting_facts import sections
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.engine.validate import check
from schedd.features.accounts.state import account_book
from schedd.features.bookings.settings import BookingSettings
from schedd.features.bookings.state import booking_table
from schedd.features.fair_share.state import fair_share_state
from schedd.features.node_trials.state import trial_records
from schedd.features.prediction.state import find_predictor
from schedd.features.reservations.state import reservation_records
from schedd.features.transfers.state import transfer_state
from schedd.model import FOREVER
from schedd.policy.site import site_policy
from schedd.wire import (
    AccountMoved,
    AccountSet,
    Book,
    JobEnded,
    PlanningHeld,
    PolicyChanged,
    ResourceCounted,
    SubmissionFacts,
    TransferRequest,
)
from tests.engine.cluster import Cluster, T


def facts_of(engine: Engine) -> bytes:
    return b"".join(engine.freeze().facts())


def rebuild(cluster: Cluster, change: Any = None) -> list[str]:
    """Rebuild the cluster's engine only from its facts; ``change`` alters them before."""
    data = facts_of(cluster.engine)
    if change is not None:
        found = json.loads(data)
        change(found)
        data = json.dumps(found).encode()
    state = cluster.engine.state
    settings = (
        state.settings.with_changes(site=site_policy(dict(state.configured)))
        if state.policy_version
        else state.settings
    )
    cluster.engine, unread = Engine.from_facts(data, settings)
    check(cluster.engine.state)
    return unread


def event_id(cluster: Cluster) -> dict[str, Any]:
    return {"id": cluster.server.event_id(), "time": cluster.server.now}


def test_promises_and_ages_and_starts_stay_as_they_were_when_the_plan_is_rebuilt() -> None:
    cluster = Cluster(nodes=2, slack=500, publish_starts=True)
    names = [str(number) for number in range(1, 9)]
    for number, name in enumerate(names):
        cluster.submit(name, f"{1 + number % 2}:ppn=4", walltime=300 + 40 * number)
    cluster.at(100)
    waiting = [name for name in names if cluster.view(name).state == "planned"]
    assert len(waiting) >= 5

    def known() -> list[tuple[Any, ...]]:
        state = cluster.engine.state
        slots = [cluster.record(name).slot for name in waiting]
        return [
            (
                cluster.promise(name),
                cluster.record(name).eligible_since,
                cluster.start(name),
                int(state.published_start[slot]),
                int(state.published_at[slot]),
            )
            for name, slot in zip(waiting, slots, strict=True)
        ]

    before = known()
    assert not rebuild(cluster)
    assert (cluster.engine.state.records, cluster.engine.state.stale) == ({}, "the plan is rebuilt")
    cluster.send(*reversed_jobs(cluster))
    assert known() == before
    cluster.at(10_000)
    assert cluster.engine.state.breaches == 0
    assert not cluster.alerts("foreign")


def reversed_jobs(cluster: Cluster) -> list[Any]:
    """A snapshot that lists the jobs the other way round."""
    snapshot = cluster.server.snapshot()
    return [replace(snapshot, jobs=snapshot.jobs[::-1])]


def test_a_promise_that_cannot_be_kept_after_a_rebuild_is_broken_with_an_outage_as_its_cause() -> None:
    cluster = Cluster(nodes=1, slack=10)
    cluster.submit("1", walltime=100)
    cluster.submit("2", walltime=100)
    assert cluster.promise("2") == 110
    assert not rebuild(cluster)
    cluster.server.now = T + 60  # the daemon was away
    cluster.server.nodes["n1"] = replace(cluster.server.nodes["n1"], state="down")
    cluster.send(cluster.server.snapshot())
    cluster.at(300)
    assert cluster.breaches("2") == [Cause.OUTAGE]


def test_the_first_cause_of_a_risk_survives_a_rebuild() -> None:
    cluster = Cluster(nodes=1, slack=10)
    cluster.submit("1", walltime=100)
    cluster.submit("2", walltime=100)
    cluster.at(50)
    cluster.node("n1", cpus=2)
    risk = cluster.record("2").risk
    assert risk is not None
    assert risk.cause is Cause.ADMIN
    assert not rebuild(cluster)
    cluster.send(cluster.server.snapshot())
    assert cluster.record("2").risk == risk
    cluster.at(300)
    assert cluster.breaches("2") == [Cause.ADMIN]
    assert not rebuild(cluster)
    cluster.send(cluster.server.snapshot())
    assert cluster.breaches("2") == [Cause.ADMIN]


def test_a_recorded_risk_keeps_its_cause_and_is_gone_once_the_promise_can_be_kept() -> None:
    cluster = Cluster(nodes=1, slack=10)
    cluster.submit("1", walltime=100)
    cluster.submit("2", walltime=100)
    kept = CarriedJob(promised=T + 50, eligible_since=T, risk=Risk(T, "e:1", Cause.QUEUE))
    cluster.engine.restore_promises({"2": kept})
    assert cluster.record("2").risk == kept.risk
    cluster.engine.restore_promises({"2": replace(kept, promised=T + 150)})
    assert cluster.record("2").risk is None


def test_breaches_and_quarantine_and_returns_are_remembered() -> None:
    cluster = Cluster(nodes=1, slack=10, validate=False)
    cluster.submit("1", walltime=1_000)
    cluster.submit("2", walltime=100)
    cluster.submit("3", walltime=100)
    cluster.node("n1", state="down")
    cluster.at(2_000)
    state = cluster.engine.state
    state.records["3"] = state.store_record(replace(cluster.record("3"), quarantine="it was too hard"))
    broken = cluster.record("2").breaches
    assert broken
    assert not rebuild(cluster)
    cluster.send(cluster.server.snapshot())
    assert cluster.record("2").breaches == broken
    assert cluster.record("3").quarantine == "it was too hard"
    assert "too hard" in str(cluster.view("3").why)


def test_job_enlarged_or_replaced_during_an_outage_loses_its_promise() -> None:
    cluster = Cluster(nodes=1, slack=10)
    cluster.submit("1", walltime=1_000)
    for name in "2345":
        cluster.submit(name, walltime=100)
    assert not rebuild(cluster)
    jobs = cluster.server.jobs
    jobs["2"] = replace(jobs["2"], resources={"nodes": "1:ppn=4", "walltime": "200"})
    jobs["3"] = replace(jobs["3"], owner="bob@login")
    jobs["4"] = replace(jobs["4"], state="H", holds="u")
    jobs["5"] = replace(jobs["5"], resources={"nodes": "1:ppn=2", "walltime": "50"})
    cluster.send(cluster.server.snapshot())
    ended = cluster.record("2").ended
    assert ended is not None
    assert "asks for more" in ended.words
    assert cluster.record("3").ended is None
    assert (cluster.promise("4"), cluster.record("4").eligible_since) == (None, -1)
    assert cluster.promise("5") == 1_310  # a job that shrank keeps its promise


def test_job_altered_to_need_a_licence_during_an_outage_loses_its_promise() -> None:
    cluster = Cluster(nodes=1, slack=10)
    cluster.send(ResourceCounted(id="c", time=T, name="sw", amount=2))
    cluster.submit("1", walltime=1_000)
    cluster.submit("2", walltime=100)
    cluster.submit("3", walltime=100, resources={"sw": "2"})
    assert not rebuild(cluster)
    jobs = cluster.server.jobs
    jobs["2"] = replace(jobs["2"], resources={**jobs["2"].resources, "sw": "1"})
    jobs["3"] = replace(jobs["3"], resources={**jobs["3"].resources, "sw": "1"})
    cluster.send(cluster.server.snapshot())
    ended = cluster.record("2").ended
    assert ended is not None
    assert "asks for more" in ended.words
    assert (cluster.record("3").ended, cluster.promise("3")) == (None, 1_110)


def test_job_postponed_during_an_outage_loses_its_waiting_time() -> None:
    """Nothing had been promised to it, since there was no node for it; nor is it while it may not start."""
    cluster = Cluster(nodes=2, slack=10)
    cluster.node("n1", state="down")
    cluster.submit("1", "2:ppn=4", walltime=100)
    assert cluster.record("1").eligible_since == T
    assert cluster.promise("1") is None
    assert not rebuild(cluster)
    cluster.server.now = T + 50
    cluster.server.jobs["1"] = replace(cluster.server.jobs["1"], state="W", not_before=T + 200)
    cluster.server.nodes["n1"] = replace(cluster.server.nodes["n1"], state="up")
    cluster.send(cluster.server.snapshot())
    assert (cluster.start("1"), cluster.promise("1"), cluster.record("1").eligible_since) == (200, None, -1)
    cluster.at(500)  # the server has not released it: the promise is not broken
    assert cluster.breaches("1") == []


def test_no_second_start_is_decided_while_the_first_may_still_be_carried_out() -> None:
    cluster = Cluster(decision_expiry=60, answer_grace=30)
    cluster.obeys = False
    cluster.submit("1")
    assert cluster.runs("1") == [0]
    assert not rebuild(cluster)
    cluster.send(cluster.server.snapshot())
    cluster.at(90)
    assert cluster.runs("1") == [0]
    cluster.at(200)
    assert cluster.runs("1")[1:]


SITE = {
    "bookings": {"most": 5, "cpus": 8},
    "fair_share": {"interval": 3600, "depth": 4, "shares": {"ann": 1, "bob": 1}},
}


def furnished() -> Cluster:
    """A cluster about which people have said all that they can say."""
    cluster = Cluster(nodes=4, site=SITE, slack=500, publish_starts=True)
    cluster.submit("0", "1:ppn=4", walltime=50)
    cluster.at(60)
    more = event_id(cluster)
    cluster.send(
        PlanningHeld(**event_id(cluster), kind="node", name="n4", reason="new disk"),
        PlanningHeld(**event_id(cluster), kind="queue", name="night", reason="not yet"),
        AccountSet(**event_id(cluster), name="physics", by="root", unit="money"),
        AccountMoved(**event_id(cluster), source="", target="physics", amount=1_000_000, by="root"),
        TransferRequest(
            **event_id(cluster),
            transfer="fed.1.1",
            by="fed",
            submission=SubmissionFacts("ann", "#!/bin/sh\n"),
        ),
        Book(
            **more,
            name="demo",
            owner="ann@login",
            by="ann",
            resources={"nodes": "2:ppn=4"},
            duration=600,
            ready=T + 1_000,
            deadline=T + 1_600,
        ),
    )
    cluster.reserve("service", "n3", start=5_000, end=6_000)
    cluster.engine.pause("upgrade")
    return cluster


def test_all_orders_of_users_survive_a_rebuild() -> None:
    cluster = furnished()
    before = cluster.engine.state
    assert booking_table(before)["demo"].phase in ("flexible", "frozen"), booking_table(before)["demo"].text
    assert account_book(before).accounts["physics"].balance == 1_000_000
    assert not rebuild(cluster)
    after = cluster.engine.state
    assert (after.paused, after.holds, account_book(after).accounts) == (
        "upgrade",
        before.holds,
        account_book(before).accounts,
    )
    assert account_book(after).entries == account_book(before).entries
    assert transfer_state(after).transfers == transfer_state(before).transfers
    booking, known = booking_table(after)["demo"], booking_table(before)["demo"]
    assert (booking.start, booking.held, booking.phase) == (known.start, known.held, known.phase)
    assert booking.slots
    assert reservation_records(after)["service"].nodes == ("n3",)
    after_usage, before_usage = fair_share_state(after).usage, fair_share_state(before).usage
    assert after_usage is not None
    assert before_usage is not None
    assert after_usage.saved() == before_usage.saved()
    assert before_usage.saved()["owners"]
    assert after.node_facts == before.node_facts
    assert after.decision_number == before.decision_number
    cluster.send(cluster.server.snapshot())
    cluster.submit("late", "4:ppn=4", walltime=900)
    assert cluster.start("late") is None  # a node's planning is held
    check(after)


def test_policy_set_at_run_time_survives_a_rebuild() -> None:
    cluster = Cluster()
    cluster.send(PolicyChanged(**event_id(cluster), version=3, site={"bookings": {"most": 2}}))
    assert not rebuild(cluster)
    state = cluster.engine.state
    assert (state.policy_version, state.site.part(BookingSettings).most, state.configured) == (3, 2, {})


def taught() -> Cluster:
    """A cluster that has learned that ann's jobs take a tenth of their walltimes."""
    cluster = Cluster(nodes=2, predict=True)
    for number in range(30):
        cluster.submit(f"past{number}", walltime=1_000, runtime=100)
        cluster.at(150 * (number + 1))
    return cluster


def predicted(cluster: Cluster, job: str) -> list[int]:
    outlook = find_predictor(cluster.engine.state)
    assert outlook is not None
    return list(outlook.learner.prediction(job).quantiles)


def test_learned_run_times_outlive_a_rebuild() -> None:
    cluster = taught()
    cluster.submit("before", walltime=1_000)
    learned = predicted(cluster, "before")
    assert min(learned) < 300, "as earlier jobs ran"
    ends = find_predictor(cluster.engine.state)
    assert ends is not None
    assert not rebuild(cluster)
    outlook = find_predictor(cluster.engine.state)
    assert outlook is not None
    assert outlook.learner.run_times.ends == ends.learner.run_times.ends == 30
    cluster.send(cluster.server.snapshot())
    assert predicted(cluster, "before") == learned
    fresh = Cluster(nodes=2, predict=True)
    fresh.submit("before", walltime=1_000)
    assert predicted(fresh, "before") != learned


def test_predictions_may_be_turned_on_when_the_plan_is_rebuilt() -> None:
    cluster = Cluster(nodes=2)
    data = facts_of(cluster.engine)
    assert "prediction.predictor" not in json.loads(data), "an earlier version would report it"
    engine, unread = Engine.from_facts(data, cluster.engine.state.settings.with_changes(predict=True))
    assert unread == []
    assert engine.blank_components == {"prediction"}


def test_run_times_of_another_version_are_named_and_nothing_else_is_lost() -> None:
    cluster = taught()

    def later(found: dict[str, Any]) -> None:
        found["prediction.predictor"]["plain"]["version"] = 99

    unread = rebuild(cluster, later)
    assert [one.partition(" ")[0] for one in unread] == ["prediction.predictor"]
    assert cluster.engine.blank_components == {"prediction"}
    cluster.send(cluster.server.snapshot())
    cluster.submit("next", walltime=1_000)
    assert predicted(cluster, "next")


@pytest.mark.parametrize("damage", ["", "!", "AAAA"])
def test_damaged_run_times_are_named(damage: str) -> None:
    cluster = taught()

    def damaged(found: dict[str, Any]) -> None:
        found["prediction.predictor"]["arrays"]["run_times.keys"][1] = damage

    assert [one.partition(" ")[0] for one in rebuild(cluster, damaged)] == ["prediction.predictor"]


@pytest.mark.parametrize("section", sections())
def test_unreadable_section_is_reported_and_the_others_are_used(section: str) -> None:
    cluster = furnished()
    unread = rebuild(cluster, lambda found: found.update({section: {"": 7.5}, "weather": "rain"}))
    assert "weather (not known to this version)" in unread
    number_like = (
        "decision_number",
        "change_number",
        "generation",
        "breaches",
        "paused_since",
        "unscheduled_since",
        "power.saved_until",
        "power.saved_joules",
    )
    plain = (
        *number_like,
        "paused",
        "foreign",
        "adapter_mode",
        "lost",
        "preemption.ordered",
        "preemption.preempted",
        "preemption.suspending",
        "preemption.checkpoints",
        "transfers.by_job",
        "transfers.kept_places",
    )
    if section not in (
        *plain,
        "transfers.bag_ends",
        "black_holes",
        "aside",
        "power.boots",
        "lives",
        "fair_share.usage",
        "jobs",
        "prediction.predictor",
        "walltime_use",
    ):
        assert len(unread) == 2, unread
        assert any(one.startswith(section) for one in unread)
    assert ("node", "n4") in cluster.engine.state.holds or section == "holds"


def test_fields_of_another_version_are_left_out() -> None:
    cluster = furnished()
    cluster.submit("1")

    def later(found: dict[str, Any]) -> None:
        for name in (
            "holds",
            "bookings.bookings",
            "transfers.transfers",
            "nodes",
            "queues",
            "reservations.records",
        ):
            for one in found[name]:
                one["colour"] = "red"
        found["server"]["colour"] = "red"
        for one in found["jobs"].values():
            one["colour"] = "red"
        found["bookings.bookings"][0]["event"]["colour"] = "red"
        found["accounts.accounts"][0]["colour"] = "red"

    assert rebuild(cluster, later) == []
    assert set(booking_table(cluster.engine.state)) == {"demo"}
    assert cluster.engine.state.carried_jobs["1"].promised < FOREVER


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"now": "soon"}', b"\xff\xfe"])
def test_data_without_lasting_facts_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"facts of an engine|JSON|Expecting|codec"):
        Engine.from_facts(data, Cluster().engine.state.settings)


def test_nodes_that_were_closed_for_failing_jobs_stay_closed_with_their_trials_and_alerts() -> None:
    cluster = Cluster(nodes=2)
    for number in range(5):
        cluster.submit(f"{number}", "n1:ppn=4", 1000, owner=f"{'ann' if number else 'bob'}@x")
        cluster.server.now += 5
        cluster.server.jobs.pop(f"{number}")
        cluster.send(JobEnded(id=f"end{number}", time=cluster.server.now, job_id=f"{number}", exit_status=1))
    trials = dict(trial_records(cluster.engine.state))
    assert list(trials) == ["n1"]
    assert not rebuild(cluster)
    state = cluster.engine.state
    assert (list(state.black_holes), trial_records(state)) == (["n1"], trials)
    assert [len(one) for one in state.failures.values()] == [5]
    cluster.send(cluster.server.snapshot())
    assert [alert.about for alert in publish_snapshot(state).alerts if alert.kind == "black_hole"] == ["n1"]
    cluster.submit("next")
    assert cluster.planned_node_names("next") == ["n2"]
