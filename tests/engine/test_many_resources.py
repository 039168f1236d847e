"""Nodes with more kinds of resources than the plan can count."""

import pytest

from schedd.engine import Engine, EngineSettings
from schedd.wire import Alert, Decision, JobFacts, JobQueued, NodeChanged, NodeFacts, Run, Snapshot

NOW = 1_000_000
GIB = 1 << 20


def node(name: str, count: int, prefix: str = "res") -> NodeFacts:
    return NodeFacts(name=name, cpus=4, mem=8 * GIB, resources={f"{prefix}{i:03}": 5 for i in range(count)})


def queue_job(number: int, resource: str, amount: int = 1) -> JobQueued:
    select = f"1:ncpus=1:{resource}={amount}" if resource else "1:ncpus=1"
    facts = JobFacts(
        id=f"{number}.s",
        owner="ann",
        queue="q",
        submitted=NOW,
        family="openpbs",
        resources={"select": select, "walltime": "60"},
    )
    return JobQueued(id=f"j:{number}", time=NOW, job=facts)


def alerts(made: tuple[Decision, ...]) -> list[str]:
    return [one.text for one in made if isinstance(one, Alert)]


@pytest.mark.parametrize("count", [59, 63, 80, 400])
def test_node_with_too_many_resources_is_used_with_an_alert(count: int) -> None:
    one = Engine(EngineSettings(validate=True, slack="0"), NOW)
    made = one.handle([NodeChanged(id="n", time=NOW, node=node("n1", count))], NOW).decisions
    (told,) = alerts(made)
    assert "n1" in told
    assert f"{count - 40} of its {count}" in told
    made = one.handle(
        [queue_job(1, "res000"), queue_job(2, f"res{count - 1:03}"), queue_job(3, "")], NOW
    ).decisions
    assert {d.job_id for d in made if isinstance(d, Run)} == {"1.s", "3.s"}
    assert one.state.records["2.s"].answer is not None
    assert not alerts(one.handle([NodeChanged(id="m", time=NOW, node=node("n1", count))], NOW + 1).decisions)


def test_other_nodes_of_the_snapshot_are_used_also_after_a_checkpoint() -> None:
    one = Engine(EngineSettings(validate=True, slack="0"), NOW)
    nodes = (node("n1", 30, "a"), node("n2", 30, "b"), node("n3", 0))
    made = one.handle([Snapshot(id="s", time=NOW, jobs=(), nodes=nodes)], NOW).decisions
    (told,) = alerts(made)
    assert "n2" in told
    assert set(one.state.plan.nodes) == {"n1", "n2", "n3"}
    other = Engine.restore(one.checkpoint())
    more = [NodeChanged(id="x", time=NOW, node=node("n4", 5, "c"))]
    for engine in (one, other):
        made = engine.handle(more, NOW + 1).decisions
        assert "n4" in alerts(made)[0]
        made = engine.handle(
            [queue_job(1, "a029"), queue_job(2, "b009"), queue_job(3, "b010"), queue_job(4, "c000")], NOW + 1
        ).decisions
        assert {d.job_id for d in made if isinstance(d, Run)} == {"1.s", "2.s"}
    made = one.handle(
        [Snapshot(id="t", time=NOW + 2, nodes=(*nodes, more[0].node), jobs=())], NOW + 2
    ).decisions
    assert not [text for text in alerts(made) if "not counted" in text]
