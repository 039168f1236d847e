"""Background prediction of starts: when rounds begin, their results, and their end."""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.show.job_view import job_view
from schedd.features.prediction import background
from schedd.features.prediction.background import ExpectedStartWorker, _RoundTimes
from schedd.features.prediction.expected_starts import (
    ExpectedStarts,
    compute_expected_starts,
    compute_near_starts,
    expected_starts_input,
)
from schedd.features.prediction.state import find_predictor
from schedd.plan.columns import PLANNED
from schedd.service.cluster.deliveries import DeliveryResult
from schedd.service.cluster.errors import PlannerStopped
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.objectives import known_values, measure_fork
from schedd.supervision import Supervisor
from schedd.wire import Event, JobEnded, JobStarted, ShareFacts, StartsExpected
from tests.service.planner_harness import StillClock, T, job, node, planner
from tests.waits import WAIT_S, wait_until


def fill(loop: PlanLoop) -> None:
    loop.submit([node("n1"), job("1")]).result(WAIT_S)
    loop.submit([job("2"), job("3", user="bob")]).result(WAIT_S)


def expected_start(loop: PlanLoop, name: str) -> int | None:
    found = job_view(loop.published, name)
    assert found is not None
    return found.expected_start


def test_prediction_round_publishes_through_the_engine() -> None:
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        fill(loop)
        before = loop.published.generation
        found = ExpectedStartWorker(loop).run_once()
        assert found is not None
        assert {job: one.expected.p50 for job, one in found.starts.items()} == {"2": T + 3600, "3": T + 7200}
        assert (expected_start(loop, "2"), expected_start(loop, "3")) == (T + 3600, T + 7200)
        changed, _ = loop.feed.changes_since(loop.published, before, lambda *_: True) or ([], [])
        assert {record.id for record in changed} == {"2", "3"}


def test_first_forecast_is_announced() -> None:
    """A round may begin after ten times the last one's duration, at least after 5 s, and lasts as long."""
    rests = [_RoundTimes(ended=100.0, took=took).rest(now) for took, now in ((0.2, 101), (2, 101), (2, 160))]
    assert rests == [4, 19, 0]
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        fill(loop)
        worker = ExpectedStartWorker(loop)
        assert worker.seconds_to_forecast() is None
        worker.run_once()
        worker._all.took, worker._all.lasted, worker._all.ended = 1.0, 2.0, time.monotonic() - 60
        assert worker.seconds_to_forecast() == 2
    with planner(predict=False) as loop:
        worker = ExpectedStartWorker(loop)
        worker._all.took = worker._all.lasted = 1.0
        assert worker.seconds_to_forecast() is None


def test_forecasts_of_a_busy_machine_are_as_fresh_as_its_processor_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The round takes half a minute, mostly without the processor: at 60 times real time the next one began
    after five hours of the cluster.
    """
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        fill(loop)
        worker = ExpectedStartWorker(loop)
        moments = count(1_000, 30)
        clock = SimpleNamespace(monotonic=lambda: float(next(moments)), thread_time=lambda: 0.1)
        monkeypatch.setattr(background, "time", clock)
        assert worker.run_once() is not None
        assert worker._all.lasted >= 30
        assert worker._all.rest(worker._all.ended) == 5


def test_estimates_without_a_reader_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """During the round job 2 starts, and the P90 of job 3 passes; that of job 4 does not."""
    sent: list[StartsExpected] = []
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        fill(loop)
        loop.submit([job("4")]).result(WAIT_S)
        submit = loop.submit

        def submit_noting(events: Sequence[Event]) -> Future[DeliveryResult]:
            sent.extend(event for event in events if isinstance(event, StartsExpected))
            return submit(events)

        def compute_long(*given: Any) -> ExpectedStarts:
            found = compute_expected_starts(*given)
            starts = JobStarted(id="s", time=T, job_id="2", shares=(ShareFacts("n1", 4),))
            submit([JobEnded(id="e", time=T, job_id="1"), starts]).result(WAIT_S)
            early = {"2": T + 3600, "3": T, "4": T + 7200}
            return replace(
                found, expected=tuple(replace(one, by=early[one.job_id]) for one in found.expected)
            )

        monkeypatch.setattr(background, "compute_expected_starts", compute_long)
        monkeypatch.setattr(loop, "submit", submit_noting)
        ExpectedStartWorker(loop).run_once()
        (event,) = sent
        assert {one.job_id: one.kind for one in event.jobs} == {"2": "", "3": "", "4": "submission"}


def test_prediction_rounds_start_after_submissions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_LOOK_S", 0.02)
    monkeypatch.setattr(background, "_SOON_S", 0.1)
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        worker = ExpectedStartWorker(loop)
        worker.start()
        try:
            fill(loop)
            wait_until(lambda: expected_start(loop, "3") is not None)
            loop.submit([job("4")]).result(WAIT_S)
            wait_until(lambda: expected_start(loop, "4") is not None)
            rounds = worker._rounds
            time.sleep(0.3)
            assert worker._rounds == rounds, "no job came since"
        finally:
            worker.stop()
        assert not worker._thread.is_alive()


def test_no_round_without_prediction_or_queued_jobs() -> None:
    with planner(predict=False) as loop:
        fill(loop)
        worker = ExpectedStartWorker(loop)
        assert not worker._next_round_kind(time.monotonic())
        assert worker.run_once() is None
        assert worker.latest_forecast is None
    with planner(predict=True) as loop:
        loop.submit([node("n1"), job("1")]).result(WAIT_S)
        assert not ExpectedStartWorker(loop)._next_round_kind(time.monotonic())


def test_prediction_rounds_take_at_most_a_tenth() -> None:
    with planner(predict=True) as loop:
        fill(loop)
        worker = ExpectedStartWorker(loop)
        worker._all.took, worker._all.ended = 30.0, 1000.0
        assert not worker._next_round_kind(1299.0)
        assert worker._next_round_kind(1301.0) == "all"


def test_no_round_begins_while_jobs_of_a_snapshot_arrive() -> None:
    with planner(predict=True) as loop:
        fill(loop)
        worker = ExpectedStartWorker(loop)
        arriving = SimpleNamespace(
            published=replace(loop.published, arriving=1), on_standby=False, now=loop.now
        )
        assert worker._next_round_kind(time.monotonic()) == "all"
        worker._loop = cast("PlanLoop", arriving)
        assert worker._next_round_kind(time.monotonic()) == ""


def test_running_prediction_round_ends_with_the_daemon() -> None:
    with planner(predict=True, publish_starts=False) as loop:
        fill(loop)
        worker = ExpectedStartWorker(loop)
        worker.stop()
        assert worker.run_once() is None
        assert expected_start(loop, "2") is None
    with pytest.raises(PlannerStopped):
        worker.run_once()


def test_learned_run_times_are_rebuilt_from_the_log() -> None:
    """A restarted daemon reaches the same state, from its log and from a checkpoint."""
    settings = EngineSettings(end_allowance=0, publish_starts=False).with_changes(predict=True)
    engines = [Engine(settings, T), Engine(settings, T)]
    calls = []
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        fill(loop)
        ExpectedStartWorker(loop).run_once()
        calls = loop.call_between_batches(lambda engine: list(engine.log)).result(WAIT_S)
        live = loop.call_between_batches(saved_predictor).result(WAIT_S)
    for i, call in enumerate(calls):
        for engine in engines:
            engine.handle(call.events, call.now)
        if i == len(calls) // 2:
            engines[1] = Engine.restore(engines[1].checkpoint())
    assert saved_predictor(engines[0]) == saved_predictor(engines[1]) == live


def saved_predictor(engine: Engine) -> object:
    outlook = find_predictor(engine.state)
    assert outlook is not None
    plain, arrays = outlook.save()
    return plain, {name: array.tolist() for name, array in arrays.items()}


def test_expected_plan_metrics_use_predicted_run_times() -> None:
    """Jobs of ann run a tenth of their walltime, so the expected last end is much earlier."""
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        loop.submit([node("n1")]).result(WAIT_S)
        for i in range(30):
            at = T - 20_000 + 400 * i
            loop.submit([job(f"past{i}", walltime="3600")]).result(WAIT_S)
            share = (ShareFacts("n1", 4),)
            loop.submit([JobStarted(id=f"s{i}", time=at, job_id=f"past{i}", shares=share)]).result(WAIT_S)
            loop.submit([JobEnded(id=f"e{i}", time=at + 360, job_id=f"past{i}")]).result(WAIT_S)
        loop.submit([job("1"), job("2"), job("3")]).result(WAIT_S)
        worker = ExpectedStartWorker(loop)
        assert worker.run_once() is not None
        assert worker.latest_forecast is not None
        expected_ = known_values(measure_fork(worker.latest_forecast.medians))
        planned = known_values(measure_fork(loop.fork().result(WAIT_S)))
        assert expected_["makespan"] < 0.3 * planned["makespan"]
        assert expected_["wait"] < 0.3 * planned["wait"]


def test_near_starts_are_refreshed_more_often_and_have_their_own_age(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(background, "_NEAREST", 2)
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        loop.submit([node("n1"), *(job(str(number)) for number in range(1, 6))]).result(WAIT_S)
        worker = ExpectedStartWorker(loop)
        assert worker._next_round_kind(time.monotonic()) == "all"
        assert worker.run_once() is not None
        clock = loop._clock
        assert isinstance(clock, StillClock)
        worker._all.took, worker._near.took = 1.9, 0.5
        assert worker._next_round_kind(worker._all.ended + 18) == "", "a round of all starts follows soon"
        worker._all.took = 100.0
        clock.moment = T + 100
        loop.submit([node("n2", state="down")]).result(WAIT_S)
        assert worker._next_round_kind(worker._all.ended + 4.9) == "", "not yet"
        assert worker._next_round_kind(worker._all.ended + 5.1) == "near", "by the cluster's clock"
        near = worker.run_near()
        assert near is not None
        assert (near.as_of, near.until) == (T + 100, T + 7200)
        waiting = [job_view(loop.published, str(number)) for number in range(1, 6)]
        ages = {view.id: view.expected_as_of for view in waiting if view and view.state == "planned"}
        assert [ages[name] for name in "2345"] == [T + 100, T + 100, T, T]


def test_a_round_of_near_starts_agrees_with_a_round_of_all() -> None:
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        jobs = [job(str(number), user=f"u{number % 3}", walltime=str(600 * number)) for number in range(1, 9)]
        loop.submit([node("n1"), node("n2"), *jobs]).result(WAIT_S)
        given = loop.call_between_batches(lambda engine: expected_starts_input(engine.state)).result(WAIT_S)
        assert given is not None
        every = {one.job_id: one for one in compute_expected_starts(given).expected}
        near = {one.job_id: one for one in compute_near_starts(given, 3).expected}
        assert 3 <= len(near) < len(every)
        assert near == {name: every[name] for name in near}


@pytest.mark.parametrize(("whole", "near"), [(0.4, 0.1), (8.0, 0.6), (40.0, 2.0), (120.0, 6.0)])
def test_the_age_of_forecasts_is_bounded_with_10000_waiting_jobs(
    whole: float, near: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds are counted in two simulated hours: those of all starts take ``whole`` seconds, those of the
    nearest ones ``near``.
    """
    monkeypatch.setattr(background, "_is_any_forecast_needed", lambda _: False)
    monkeypatch.setattr(background, "_is_urgent", lambda _: False)
    waiting = np.zeros(10_000, np.int64)
    published = SimpleNamespace(
        settings=EngineSettings().with_changes(predict=True),
        arriving=0,
        states=waiting + PLANNED,
        expected=waiting - 1,  # new jobs come all the time
        changed=waiting + 1,
    )
    now, all_at, near_at = 0.0, 0.0, 0.0
    loop: Any = SimpleNamespace(
        name="main", published=published, on_standby=False, now=lambda: T + int(now), supervisor=Supervisor()
    )
    worker = ExpectedStartWorker(loop)
    worker.latest_forecast = cast("Any", object())
    rounds: list[str] = []
    oldest_all = oldest_near = 0.0
    while now < 7_200:
        kind = worker._next_round_kind(now)
        begun, now = now, now + {"all": whole, "near": near, "": 1.0}[kind]
        oldest_all, oldest_near = max(oldest_all, now - all_at), max(oldest_near, now - near_at)
        done = {"all": (worker._all, worker._near), "near": (worker._near,), "": ()}[kind]
        for times in done:
            times.ended, times.moment = now, T + int(begun)
        if kind == "all":
            worker._all.took, all_at, near_at = whole, begun, begun
        elif kind == "near":
            worker._near.took, near_at = near, begun
        rounds += [kind] if kind else []
    rest = max(10 * whole, 5)
    assert oldest_all <= 2 * whole + rest + near + 2
    assert oldest_near <= max(60, 10 * near) + 2 * whole + 2 * near + 2
    assert rounds.count("all") >= 7_200 // (rest + whole + near + 2)
    assert ("near" in rounds) is (rest > 60), "a round of all starts comes soon enough by itself"
