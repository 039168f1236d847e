"""What-if on a copy of the plan."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.model import Never, StartKnown, WaitingFor
from schedd.plan.work_limits import WorkSpent
from schedd.service.questions import open_questions
from schedd.service.questions.plan_fork import PlanFork, fork_plan
from schedd.wire import JobFacts, NodeChanged, NodeFacts
from tests.waits import WAIT_S

T = 1_000_000


def run_what_if(copy: PlanFork, nodes: str) -> object:
    facts = JobFacts(id="x", owner="u", queue="q", submitted=T, resources={"nodes": nodes, "walltime": "60"})
    return copy.what_if(facts, T).answer


def make_fork(*nodes: NodeFacts) -> PlanFork:
    engine = Engine(EngineSettings(), T)
    engine.handle([NodeChanged(id=node.name, time=T, node=node) for node in nodes], T)
    return fork_plan(engine, publish_snapshot(engine.state))


def test_chunks_that_only_fit_separately_are_never_planned() -> None:
    copy = make_fork(NodeFacts(name="a", cpus=8, properties=("big",)), NodeFacts(name="b", cpus=2))
    answer = run_what_if(copy, "1:ppn=5:big+1:ppn=4:big")
    assert isinstance(answer, Never)
    assert "together" in answer.requirement
    assert isinstance(run_what_if(copy, "1:ppn=8:big+1:ppn=2"), StartKnown)


def test_job_that_needs_a_down_node_waits_for_it() -> None:
    copy = make_fork(NodeFacts(name="a", cpus=8, state="down"), NodeFacts(name="b", cpus=8))
    answer = run_what_if(copy, "2:ppn=8")
    assert isinstance(answer, WaitingFor)
    assert answer.kind == "node"


@pytest.mark.parametrize(("kinds", "nodes"), [(16, 1), (40, 4), (64, 8)])
def test_question_with_many_chunk_types_is_answered(kinds: int, nodes: int) -> None:
    copy = make_fork(*(NodeFacts(name=f"n{i}", cpus=128, mem=1 << 30) for i in range(nodes)))
    select = "+".join(f"1:ncpus=1:mem={100 + i}mb" for i in range(kinds))
    resources = {"select": select, "walltime": "60"}
    facts = JobFacts(id="x", owner="u", queue="q", family="openpbs", submitted=T, resources=resources)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(copy.what_if, facts, T).result(WAIT_S).answer
    assert isinstance(answer, StartKnown)


def test_question_beyond_the_work_limit_ends_and_the_next_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = make_fork(*(NodeFacts(name=f"n{i}", cpus=2) for i in range(20)))
    monkeypatch.setattr(open_questions, "QUESTION_WORK", 1)
    with pytest.raises(WorkSpent, match="more segments"):
        run_what_if(copy, "20:ppn=2+1:ppn=1")
    plan = copy.copy()
    monkeypatch.undo()
    assert isinstance(run_what_if(copy, "20:ppn=2"), StartKnown)
    assert plan.work < 1000
