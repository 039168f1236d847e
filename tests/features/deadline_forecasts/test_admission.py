"""Admission by probability: forecasts judge deadlines, and outcomes calibrate the forecasts."""

from dataclasses import replace
from typing import Any

import pytest

from schedd.engine import Engine, PlanSnapshot
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.deadline_forecasts.forecast_round import (
    begin_round,
    is_forecast_needed,
    is_forecast_urgent,
)
from schedd.features.deadline_forecasts.metrics import collect_metrics
from schedd.features.deadline_forecasts.state import DeadlineForecastsState, PublishedForecasts
from schedd.features.prediction.expected_starts import (
    compute_expected_starts,
    compute_near_starts,
    expected_starts_input,
)
from schedd.features.prediction.state import find_predictor
from schedd.policy.site import site_policy
from schedd.predict import JobFeatures
from schedd.wire import DeadlineForecastFacts, DeadlinesForecast, JobEnded, PolicyChanged
from tests.engine.cluster import Cluster, T

DAY = 86_400


def busy_cluster(**settings: Any) -> Cluster:
    """One node, taken for an hour by walltime; the jobs of ann are known to run for a minute or so."""
    cluster = Cluster(**{"predict": True, "slack": 10_000, **settings})
    predictor = find_predictor(cluster.engine.state)
    assert predictor is not None
    for i in range(100):
        begin = T - 20_000 + 100 * i
        predictor.learner.predict_job(f"old{i}", JobFeatures("ann", 3_600, 4), begin)
        predictor.learner.record_start(f"old{i}", begin)
        predictor.learner.record_end(f"old{i}", begin + 50 + i % 20)
    cluster.submit("0", walltime=3_600, runtime=60)
    return cluster


def submit(cluster: Cluster, job: str, deadline: str, **more: Any) -> None:
    cluster.submit(job, walltime=3_600, resources={"x.deadline": deadline}, **{"runtime": 60, **more})


def run_round(cluster: Cluster, *, near: bool = False) -> None:
    """A round of forecasts, as the daemon makes it: of all starts, or of the ``near`` ones."""
    state = cluster.engine.state
    given, follower = expected_starts_input(state), begin_round(state)
    assert given is not None
    found = compute_near_starts(given, 1) if near else compute_expected_starts(given)
    name = cluster.server.event_id()
    cluster.send(*found.events(name))
    if follower is not None:
        cluster.send(*follower.events(given, found, name))


def judged(cluster: Cluster, job: str) -> tuple[str, float | None]:
    view = cluster.view(job)
    return view.deadline_state, view.deadline_probability


def forecasts_state(cluster: Cluster) -> DeadlineForecastsState:
    return cluster.engine.state.part(DeadlineForecastsState)


def snapshot(cluster: Cluster) -> PlanSnapshot:
    return publish_snapshot(cluster.engine.state)


def test_forecast_accepts_what_the_plan_cannot_guarantee_and_promises_nothing() -> None:
    cluster = busy_cluster()
    submit(cluster, "1", "+0:30:00@80%")
    submit(cluster, "2", "+0:02:00@80%")
    cluster.submit("3", walltime=3_600, runtime=60)
    assert (judged(cluster, "1"), cluster.view("1").deadline_required) == (("wished", None), 0.8)
    assert "not judged yet" in cluster.view("1").why
    promised = cluster.promise("1")
    run_round(cluster)
    state, probability = judged(cluster, "1")
    assert state == "accepted"
    assert probability is not None
    assert 0.8 <= probability < 1.0
    assert cluster.promise("1") == promised, "a forecast is no promise"
    assert "is accepted at 80 % (9" in cluster.view("1").why
    assert "a forecast, no guarantee" in cluster.view("1").why
    state, probability = judged(cluster, "2")
    earliest = cluster.view("2").earliest_deadline
    assert (state, probability is not None and probability < 0.5) == ("wished", True)
    assert earliest is not None
    assert f"qalter -W x=deadline:{earliest}@80%" in cluster.view("2").why
    assert judged(cluster, "3") == ("", None)
    assert forecasts_state(cluster).counts == {"accepted": 1, "refused": 1}
    cluster.alter_request("2", **{"x.deadline": f"{earliest}@80%"})
    assert judged(cluster, "2") == ("wished", None)
    run_round(cluster)
    assert judged(cluster, "2")[0] == "accepted"
    samples = {
        (one.name, tuple(one.labels.values())): one.value
        for family in collect_metrics({"main": snapshot(cluster)})
        for one in family.samples
    }
    assert samples["schedd_deadline_forecasts_total", ("main", "accepted")] == 2


def test_no_forecast_counts_on_a_start_before_the_requested_one() -> None:
    cluster = busy_cluster()
    requested = T + 50_000
    submit(cluster, "1", f"{requested + 1}@50%", state="W", not_before=requested)
    run_round(cluster)
    assert forecasts_state(cluster).judged["1"].probability == 0


def test_a_round_of_near_starts_judges_the_deadlines_of_its_jobs() -> None:
    cluster = busy_cluster()
    for job in ("1", "2"):
        submit(cluster, job, "+0:30:00@80%")
    run_round(cluster, near=True)
    assert judged(cluster, "1")[0] == "accepted"
    assert judged(cluster, "2") == ("wished", None), "its start is not in the round"


def test_lower_probability_is_a_risk_and_a_late_end_a_miss_also_after_a_restore() -> None:
    cluster = busy_cluster()
    cluster.server.runtime["0"] = 3_000
    submit(cluster, "1", "+0:45:00@60%")
    run_round(cluster)
    assert judged(cluster, "1")[0] == "accepted"
    cluster.at(2_000)
    run_round(cluster)
    before = judged(cluster, "1")
    assert before[0] == "at_risk", "the job ahead runs unusually long"
    assert "is at risk: accepted at 60 %, " in cluster.view("1").why
    saved = forecasts_state(cluster)
    cluster.engine = Engine.restore(cluster.engine.checkpoint())
    assert judged(cluster, "1") == before
    assert forecasts_state(cluster).waiting.save() == saved.waiting.save()
    assert (forecasts_state(cluster).judged, forecasts_state(cluster).requested) == (
        saved.judged,
        saved.requested,
    )
    cluster.at(2_701)
    assert judged(cluster, "1") == ("missed", None)
    cluster.at(10_000)
    assert forecasts_state(cluster).counts == {"accepted": 1, "missed": 1}
    assert not forecasts_state(cluster).requested


def test_outcomes_calibrate_forecasts_also_of_jobs_without_deadlines() -> None:
    cluster = busy_cluster()
    for job in "123456":
        cluster.submit(job, walltime=3_600, runtime=60)
    run_round(cluster)
    assert 3 <= len(forecasts_state(cluster).waiting.open) <= 6
    forecasts = dict(forecasts_state(cluster).waiting.open)
    cluster.at(100)
    run_round(cluster)
    assert forecasts_state(cluster).running.open, "forecasts of running jobs count apart"
    cluster.at(20 * DAY)
    outcomes = forecasts_state(cluster).waiting.outcomes
    assert len(outcomes) == len(forecasts)
    accuracy = snapshot(cluster).part(PublishedForecasts).accuracy
    assert sum(one.count for one in accuracy["waiting"]) == len(outcomes)
    assert accuracy["running"]


def test_failing_nodes_lower_the_probability_until_no_deadline_has_it() -> None:
    cluster = busy_cluster()
    submit(cluster, "1", "+9:00:00@95%")
    run_round(cluster)
    assert judged(cluster, "1")[0] == "accepted"
    state = cluster.engine.state
    often = replace(state.lives["n1"], failures=5_000.0, up=10_000.0)
    state.lives["n1"] = often
    cluster.at(1)
    run_round(cluster)
    state_now, probability = judged(cluster, "1")
    assert (state_now, probability is not None and probability < 0.5) == ("at_risk", True)
    submit(cluster, "2", "+9:00:00@95%")
    run_round(cluster)
    assert "none has 95 %, since nodes may fail" in cluster.view("2").why
    assert cluster.view("2").earliest_deadline is None


def test_job_that_starts_at_once_is_judged_while_it_runs() -> None:
    cluster = busy_cluster()
    cluster.at(100)
    assert not is_forecast_needed(snapshot(cluster))
    submit(cluster, "1", "+2:00:00@90%", runtime=3_000)
    assert cluster.runs("1") == [100]
    assert is_forecast_needed(snapshot(cluster))
    assert is_forecast_urgent(snapshot(cluster))
    run_round(cluster)
    assert not is_forecast_urgent(snapshot(cluster))
    assert judged(cluster, "1")[0] == "accepted"
    cluster.at(5_000)
    assert forecasts_state(cluster).counts == {"accepted": 1, "kept": 1}
    assert not is_forecast_needed(snapshot(cluster))


def test_hold_withdraws_the_judgement_and_deleted_jobs_teach_nothing() -> None:
    cluster = busy_cluster()
    submit(cluster, "1", "+0:30:00@60%")
    run_round(cluster)
    cluster.send(*cluster.server.hold("1"))
    assert judged(cluster, "1") == ("wished", None)
    assert "1" not in forecasts_state(cluster).waiting.open
    cluster.send(*cluster.server.release("1"))
    run_round(cluster)
    assert judged(cluster, "1")[0] == "accepted"
    cluster.send(*cluster.server.delete("1"))
    assert not forecasts_state(cluster).waiting.open
    assert forecasts_state(cluster).counts == {"accepted": 2}


def test_job_that_ends_with_its_node_is_a_miss() -> None:
    cluster = busy_cluster()
    submit(cluster, "1", "+0:30:00@60%", runtime=600)
    run_round(cluster)
    cluster.at(100)
    cluster.server.jobs.pop("1")
    cluster.send(JobEnded(id="e1", time=T + 100, job_id="1", exit_status=-1))
    cluster.at(5_000)
    assert [one.met for one in forecasts_state(cluster).waiting.outcomes][:1] == [False]


def test_site_without_such_admission_forecasts_nothing() -> None:
    cluster = busy_cluster(site={"deadline_forecasts": {"admission": False}})
    submit(cluster, "1", "+0:30:00@60%")
    run_round(cluster)
    assert judged(cluster, "1") == ("wished", None)
    assert "this site accepts no deadlines with a probability" in cluster.view("1").why
    facts = DeadlineForecastFacts(job_id="1", deadline=T + 1_800, raw=0.9, probability=0.9, required=0.6)
    cluster.send(DeadlinesForecast(id="late", time=T, jobs=(facts,)))
    assert not forecasts_state(cluster).judged
    site = site_policy({}).plain
    cluster.send(PolicyChanged(id="p1", time=T, version=1, site=site))
    run_round(cluster)
    assert judged(cluster, "1")[0] == "accepted"
    closed = {"deadline_forecasts": {"admission": False}}
    cluster.send(PolicyChanged(id="p2", time=T, version=2, site=closed))
    assert judged(cluster, "1") == ("wished", None)


def test_forecast_for_a_former_deadline_judges_nothing() -> None:
    cluster = busy_cluster()
    submit(cluster, "1", "+0:30:00@60%")
    facts = DeadlineForecastFacts(job_id="1", deadline=T + 99, raw=0.9, probability=0.9, required=0.6)
    cluster.send(DeadlinesForecast(id="old", time=T, jobs=(facts, replace(facts, job_id="unknown"))))
    assert not forecasts_state(cluster).judged


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("+0:30:00@high%", "its probability 'high%' is not understood: a percentage above 0 and below 100"),
        ("tomorrow@95%", "is not understood: seconds since the epoch, a date with an offset"),
    ],
)
def test_wrong_deadline_is_explained_with_place_and_allowed_forms(value: str, fault: str) -> None:
    cluster = busy_cluster()
    submit(cluster, "1", value)
    assert "in -W x=deadline: deadline '" in cluster.view("1").why
    assert fault in cluster.view("1").why
    assert cluster.view("1").deadline is None


def test_deadline_with_a_probability_is_not_held_as_lost() -> None:
    cluster = busy_cluster(site={"priority": {"deadline_lost": "hold"}})
    submit(cluster, "1", "+0:30:00@60%")
    submit(cluster, "2", "+0:30:00")
    cluster.at(1)
    assert [cluster.view(job).waiting_for for job in "12"] == ["", "deadline"]
