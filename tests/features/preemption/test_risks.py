"""The risk of jobs that may be preempted is part of their expected start and end."""

from schedd.engine import Engine
from schedd.engine.facts.texts import RUNS_PAST_WALLTIME
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.deadline_forecasts.forecast_round import EndForecasts
from schedd.features.prediction.expected_starts import (
    ExpectedStarts,
    compute_expected_starts,
    expected_starts_input,
)
from schedd.features.prediction.run_times import expected_end
from schedd.features.preemption.risks import delay_risk
from schedd.features.preemption.state import PublishedPreemptions, preemption_state
from tests.features.preemption.test_preemption import PreemptingCluster

DAY = 86_400
END = 150_000


def displaced_cluster() -> PreemptingCluster:
    """Return a cluster in which an urgent job preempted a running job and displaced the next one, and whose
    jobs waited and ran for more than a day together.
    """
    cluster = PreemptingCluster(nodes=2, min_run=0, more={"predict": True, "slack": 10 * DAY})
    cluster.submit("other", "1:ppn=4", 4 * DAY, queue="other")
    cluster.submit("runs", "1:ppn=4", 5_000)
    for number in range(5):
        cluster.submit(f"waits{number}", "1:ppn=4", 20_000)
    cluster.at(4_000)
    cluster.submit("now", "1:ppn=4", 2_000, queue="urgent")
    cluster.at(END)
    return cluster


def forecast(cluster: PreemptingCluster, *, with_risk: bool) -> ExpectedStarts:
    state = cluster.engine.state
    given = expected_starts_input(state, publish_snapshot(state) if with_risk else None)
    assert given is not None
    return compute_expected_starts(given)


def test_displaced_waits_and_returns_are_learned() -> None:
    cluster = displaced_cluster()
    part = preemption_state(cluster.engine.state)
    assert part.displaced > 0.5
    assert part.displaced_s > 0
    assert part.waited_s > DAY
    assert part.returns > 0.5


def test_expected_start_of_a_job_that_may_be_preempted_includes_its_displacement() -> None:
    cluster = displaced_cluster()
    for number in range(3):
        cluster.submit(f"fills{number}", "1:ppn=4", 20_000)
    cluster.submit("next", "1:ppn=4", 1_000)
    cluster.submit("apart", "1:ppn=4", 1_000, queue="other")
    published = publish_snapshot(cluster.engine.state)
    assert delay_risk(published, cluster.record("apart").facts, False) is None
    risk = delay_risk(published, cluster.record("next").facts, False)
    assert risk is not None
    assert (risk.repeats, risk.delay > 0, risk.rate > 0) == (False, True, True)
    plain, risky = (forecast(cluster, with_risk=one) for one in (False, True))
    before, after = ({one.job_id: one for one in each.expected} for each in (plain, risky))
    assert after["next"].late > before["next"].late
    assert after["apart"].late == before["apart"].late
    assert any("being displaced" in note for note in cluster.view("next").notes)


def test_end_of_a_running_job_includes_the_work_that_a_preemption_repeats() -> None:
    cluster = displaced_cluster()
    cluster.submit("runs2", "1:ppn=4", DAY)
    cluster.at(END + 10_000)
    found = forecast(cluster, with_risk=True)
    published = publish_snapshot(cluster.engine.state)
    record = cluster.record("runs2")
    risk = delay_risk(published, record.facts, True)
    assert risk is not None
    assert risk.repeats
    end = expected_end(published, record, found)
    assert end is not None
    prediction = found.predictions["runs2"]
    assert end[1] > record.run.started + prediction.p90


def test_forecast_of_an_end_includes_the_risk_of_a_preemption() -> None:
    cluster = displaced_cluster()
    cluster.submit("runs2", "1:ppn=4", DAY)
    cluster.at(END + 10_000)
    state, record = cluster.engine.state, cluster.record("runs2")
    found = []
    for published in (None, publish_snapshot(state)):
        given = expected_starts_input(state, published)
        assert given is not None
        forecast = EndForecasts(given, compute_expected_starts(given), {}, 0.0).find(record)
        assert forecast is not None
        found.append(forecast.probability(record.run.started + DAY, 0.0))
    assert found[0] == 1, f"no job {RUNS_PAST_WALLTIME}"
    assert found[1] < 1, "a preempted one does its work again"


def test_runs_that_go_on_count_in_the_rate_of_preemptions() -> None:
    cluster = PreemptingCluster(nodes=4, min_run=0, more={"slack": 10 * DAY})
    for number in range(3):
        cluster.submit(f"long{number}", "1:ppn=4", 10 * DAY)
    cluster.submit("short", "1:ppn=4", 5_000)
    cluster.at(1_000)
    cluster.submit("now", "1:ppn=4", 2_000, queue="urgent")
    cluster.at(2 * DAY)
    part = preemption_state(cluster.engine.state)
    assert part.exposed_s < DAY, "the runs that ended would not be enough"
    rate = publish_snapshot(cluster.engine.state).part(PublishedPreemptions).rate
    ran = 3 * 2 * DAY + part.exposed_s
    assert abs(rate / (part.exposed_runs / ran) - 1) < 0.01


def test_risks_survive_a_checkpoint() -> None:
    cluster = displaced_cluster()
    before = preemption_state(cluster.engine.state)
    after = preemption_state(Engine.restore(cluster.engine.checkpoint()).state)
    for name in ("waited_s", "displaced", "displaced_s", "returns", "returns_s", "waits_until", "away"):
        assert getattr(after, name) == getattr(before, name), name
