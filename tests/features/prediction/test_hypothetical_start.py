"""The expected start of a hypothetical job equals the one published after its submission."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.engine import Engine
from schedd.engine.show.job_view import JobView, job_view
from schedd.features.prediction.background import ExpectedStartWorker
from schedd.features.prediction.hypothetical_start import ExpectationSource
from schedd.features.prediction.state import find_predictor
from schedd.model import FOREVER, StartKnown
from schedd.predict import JobFeatures
from schedd.service.cluster.plan_loop import PlanLoop
from schedd.service.questions.expectations import (
    UNKNOWN,
    Expectation,
    hypothetical_promise,
)
from schedd.service.questions.what_if import WhatIfAnswer
from schedd.wire import JobFacts, PolicyChanged, QueueChanged, QueueFacts, ShareFacts
from tests.property_examples import examples
from tests.service.planner_harness import T, event_id, job, node, planner
from tests.waits import WAIT_S


def learn_one_minute_runs(loop: PlanLoop, *users: str) -> None:
    """Learn a hundred jobs of each user that ran one minute of their hour."""

    def teach(engine: Engine) -> None:
        outlook = find_predictor(engine.state)
        assert outlook is not None
        for user in users:
            for i in range(100):
                outlook.learner.predict_job(f"{user}{i}", JobFeatures(user, 3_600, 4), T - 10_000 + 61 * i)
                outlook.learner.record_start(f"{user}{i}", T - 10_000 + 61 * i)
                outlook.learner.record_end(f"{user}{i}", T - 10_000 + 61 * i + 60)

    loop.call_between_batches(teach).result(WAIT_S)


def hypothetical_job(user: str = "ann", **resources: str) -> JobFacts:
    return job("x", user=user, **resources).job


def run_what_if(
    loop: PlanLoop, latest: ExpectationSource, facts: JobFacts, instead_of: str = ""
) -> tuple[WhatIfAnswer, Expectation]:
    copy = loop.fork().result(WAIT_S)
    asked = copy.what_if(facts, T, instead_of=instead_of)
    return asked, latest.expect_start(
        facts, asked, hypothetical_promise(copy, asked, facts), instead_of=instead_of
    )


def view(loop: PlanLoop, name: str) -> JobView:
    found = job_view(loop.published, name)
    assert found is not None
    return found


@settings(max_examples=examples(16), deadline=None)
@given(
    lengths=st.lists(st.integers(600, 7_200), min_size=1, max_size=6),
    cpus=st.integers(1, 4),
    walltime=st.integers(600, 7_200),
    user=st.sampled_from(("ann", "bob")),
    backfill=st.sampled_from(("oldest", "shortest")),
)
def test_hypothetical_start_equals_the_start_at_submission(
    lengths: list[int], cpus: int, walltime: int, user: str, backfill: str
) -> None:
    with planner(end_allowance=0, publish_starts=False, predict=True, backfill=backfill) as loop:
        learn_one_minute_runs(loop, "ann")
        loop.submit([node("n1"), job("0")]).result(WAIT_S)
        for i, length in enumerate(lengths):
            loop.submit([job(str(i + 1), walltime=str(length))]).result(WAIT_S)
        worker = ExpectedStartWorker(loop)
        worker.run_once()
        assert worker.latest_forecast is not None
        assert (worker.latest_forecast.found.sampler.rule is not None) == (backfill == "shortest")
        resources = {"nodes": f"1:ppn={cpus}", "walltime": str(walltime)}
        asked, found = run_what_if(loop, worker.latest_forecast, hypothetical_job(user, **resources))
        loop.submit([job("new", user=user, **resources)]).result(WAIT_S)
        worker.run_once()
        new = view(loop, "new")
        assert isinstance(asked.answer, StartKnown)
        assert asked.answer.placement.start == new.planned_start
        assert new.promised_start is not None
        by = found.by if found.by < new.promised_start else None
        assert (found.start, by) == (new.expected_start, new.expected_by)
        assert found.as_of == T
        assert (
            hypothetical_promise(loop.fork().result(WAIT_S), asked, hypothetical_job(user, **resources))
            == new.promised_start
        )


def test_hypothetical_job_is_backfilled_like_jobs_with_equal_priority() -> None:
    with planner(end_allowance=0, publish_starts=False, predict=True, backfill="shortest") as loop:
        learn_one_minute_runs(loop, "ann")
        queue = QueueFacts(name="batch", priority=100)
        loop.submit([QueueChanged(id="queue", time=T, queue=queue), node("n1"), job("0")]).result(WAIT_S)
        for i, length in enumerate(("7000", "6000", "5000")):
            loop.submit([job(str(i + 1), user="bob", walltime=length)]).result(WAIT_S)
        worker = ExpectedStartWorker(loop)
        worker.run_once()
        assert worker.latest_forecast is not None
        _, found = run_what_if(
            loop, worker.latest_forecast, hypothetical_job(nodes="1:ppn=4", walltime="600")
        )
        loop.submit([job("new", walltime="600")]).result(WAIT_S)
        worker.run_once()
        # It is by far the shortest, and goes next.
        assert found.start == view(loop, "new").expected_start == T + 60


def test_predicted_run_times_belong_to_the_requesting_user() -> None:
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        learn_one_minute_runs(loop, "ann")
        loop.submit([node("n1"), job("1"), job("2")]).result(WAIT_S)
        worker = ExpectedStartWorker(loop)
        worker.run_once()
        assert worker.latest_forecast is not None
        asked, found = run_what_if(loop, worker.latest_forecast, hypothetical_job())
        assert isinstance(asked.answer, StartKnown)
        assert asked.answer.placement.start == T + 7_200
        assert 50 <= found.run_time <= 75
        # Before it are two that run for a minute.
        assert T + 100 <= found.start <= T + 150
        # Instead of a queued job, only the running job is ahead.
        _, found = run_what_if(loop, worker.latest_forecast, view_facts(loop, "2"), instead_of="2")
        assert T + 50 <= found.start <= T + 75


def view_facts(loop: PlanLoop, name: str) -> JobFacts:
    facts: JobFacts = loop.call_between_batches(lambda engine: engine.state.records[name].facts).result(
        WAIT_S
    )
    return facts


def test_expectations_for_immediate_impossible_and_unpredicted_jobs() -> None:
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        loop.submit([node("n1"), node("n2"), job("1")]).result(WAIT_S)
        worker = ExpectedStartWorker(loop)
        worker.run_once()
        assert worker.latest_forecast is not None
        _, found = run_what_if(loop, worker.latest_forecast, hypothetical_job())
        assert (found.start, found.by) == (T, T)
        asked, found = run_what_if(loop, worker.latest_forecast, hypothetical_job(nodes="1:ppn=5"))
        assert found == UNKNOWN
        assert (
            hypothetical_promise(loop.fork().result(WAIT_S), asked, hypothetical_job(nodes="1:ppn=5"))
            == FOREVER
        )


def test_a_job_that_would_preempt_others_is_expected_to_start_when_they_make_room() -> None:
    """The draws let the victims run on: it was expected at the end of its promise."""
    site = {"preemption": {"preemptors": {"queues": ["urgent"]}, "targets": {"queues": ["batch"]}, "wait": 0}}
    with planner(end_allowance=0, publish_starts=False, predict=True, mode="scheduler") as loop:
        policy = PolicyChanged(id=event_id(), time=T, version=1, site=site, by="root")
        queue = QueueChanged(id=event_id(), time=T, queue=QueueFacts(name="urgent"))
        loop.submit([policy, queue, node("n1")]).result(WAIT_S)
        for name, where, seconds in (("1", "urgent", "1000"), ("2", "batch", "7200")):
            waiting = job(name, queue=where, nodes="1:ppn=2", walltime=seconds)
            running = replace(waiting.job, state="R", started=T, shares=(ShareFacts("n1", 2),))
            loop.submit([replace(waiting, job=running)]).result(WAIT_S)
        worker = ExpectedStartWorker(loop)
        worker.run_once()
        assert worker.latest_forecast is not None
        urgent = job("x", queue="urgent").job
        asked, found = run_what_if(loop, worker.latest_forecast, urgent)
        assert isinstance(asked.answer, StartKnown)
        assert any("would preempt job 2" in note for note in asked.notes)
        assert T < found.start <= asked.answer.placement.start < T + 1100


def test_walltime_replaces_an_unavailable_prediction() -> None:
    with planner(end_allowance=0, publish_starts=False, predict=True) as loop:
        loop.submit([node("n1"), job("1")]).result(WAIT_S)
        worker = ExpectedStartWorker(loop)
        worker.run_once()
        assert worker.latest_forecast is not None
        busy = replace(worker.latest_forecast, predict=lambda _: None)
        _, found = run_what_if(loop, busy, hypothetical_job())
        assert found.run_time == -1
        assert found.start > T


def test_slack_off_gives_no_promise() -> None:
    with planner(end_allowance=0, publish_starts=False, slack="off") as loop:
        loop.submit([node("n1"), job("1")]).result(WAIT_S)
        copy = loop.fork().result(WAIT_S)
        asked = copy.what_if(hypothetical_job(), T)
        assert isinstance(asked.answer, StartKnown)
        assert hypothetical_promise(copy, asked, hypothetical_job()) == FOREVER
