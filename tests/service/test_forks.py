"""What-if on a copy of the plan."""

from schedd.engine import Engine, EngineSettings
from schedd.engine.view import publish
from schedd.model import Never, StartKnown, WaitingFor
from schedd.service.forks import Fork, fork
from schedd.wire import JobFacts, NodeChanged, NodeFacts

T = 1_000_000


def ask(copy: Fork, nodes: str) -> object:
    facts = JobFacts(id="x", owner="u", queue="q", submitted=T, resources={"nodes": nodes, "walltime": "60"})
    return copy.what_if(facts, T).answer


def copy_of(*nodes: NodeFacts) -> Fork:
    engine = Engine(EngineSettings(), T)
    engine.handle([NodeChanged(id=node.name, time=T, node=node) for node in nodes], T)
    return fork(engine.state, publish(engine.state))


def test_parts_that_fit_one_by_one_but_never_together_are_never_planned() -> None:
    copy = copy_of(NodeFacts(name="a", cpus=8, properties=("big",)), NodeFacts(name="b", cpus=2))
    answer = ask(copy, "1:ppn=5:big+1:ppn=4:big")
    assert isinstance(answer, Never)
    assert "together" in answer.requirement
    assert isinstance(ask(copy, "1:ppn=8:big+1:ppn=2"), StartKnown)


def test_what_fits_when_a_node_returns_waits_for_it() -> None:
    copy = copy_of(NodeFacts(name="a", cpus=8, state="down"), NodeFacts(name="b", cpus=8))
    answer = ask(copy, "2:ppn=8")
    assert isinstance(answer, WaitingFor)
    assert answer.kind == "node"
