"""Open questions can be cancelled while they search."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.model import Never, StartKnown
from schedd.plan.work_limits import WorkSpent
from schedd.service.questions.open_questions import OpenQuestions
from schedd.service.questions.plan_fork import PlanFork, fork_plan
from schedd.wire import JobFacts, NodeChanged, NodeFacts
from tests.waits import WAIT_S

T = 1_000_000


def make_fork(*nodes: NodeFacts) -> PlanFork:
    engine = Engine(EngineSettings(), T)
    engine.handle([NodeChanged(id=node.name, time=T, node=node) for node in nodes], T)
    return fork_plan(engine, publish_snapshot(engine.state))


def run_what_if(copy: PlanFork, select: str = "1:ncpus=1") -> object:
    resources = {"select": select, "walltime": "60"}
    facts = JobFacts(id="x", owner="u", queue="q", family="openpbs", submitted=T, resources=resources)
    return copy.what_if(facts, T).answer


def test_cancelled_question_stops_and_the_next_is_answered() -> None:
    copy, questions = make_fork(NodeFacts(name="a", cpus=8)), OpenQuestions()
    with questions.open_question() as question:
        assert isinstance(run_what_if(copy), StartKnown)
        question.end()
        with pytest.raises(WorkSpent, match="the question was cancelled"):
            run_what_if(copy)
    assert isinstance(run_what_if(copy), StartKnown)


def test_cancelled_question_ends_at_its_next_search() -> None:
    copy, questions = make_fork(NodeFacts(name="a", cpus=8)), OpenQuestions()
    working, go_on = threading.Event(), threading.Event()

    def work() -> object:
        with questions.open_question():
            run_what_if(copy)
            working.set()
            assert go_on.wait(WAIT_S)
            return run_what_if(copy)

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(work)
        assert working.wait(WAIT_S)
        questions.end()
        go_on.set()
        with pytest.raises(WorkSpent, match="the question was cancelled"):
            found.result(WAIT_S)
        with pytest.raises(WorkSpent, match="was cancelled"):  # the daemon stops: no more questions
            pool.submit(work).result(WAIT_S)


def test_resource_beyond_the_countable_kinds_is_never_available() -> None:
    kinds = tuple(f"kind{i}" for i in range(70))
    copy = make_fork(NodeFacts(name="a", cpus=8, resources=dict.fromkeys(kinds, 4)))
    assert isinstance(run_what_if(copy, "1:ncpus=1:kind0=1"), StartKnown)
    never = run_what_if(copy, "1:ncpus=1:kind69=1")
    assert isinstance(never, Never)
    assert "too many kinds of resources" in never.requirement
