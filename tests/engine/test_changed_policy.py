"""Order of events in a batch, and wording of counts."""

from schedd.engine.facts.event_order import _sorted
from schedd.engine.machine.nodes import _are
from schedd.wire import JobEnded, NodeChanged, NodeFacts


def test_ends_precede_other_events_of_a_batch() -> None:
    changed = NodeChanged(id="e:1", time=5, node=NodeFacts(name="n1", cpus=4))
    ended = JobEnded(id="e:2", time=5, job_id="1", exit_status=0)
    assert _sorted([changed, ended]) == [ended, changed]
    assert _sorted([changed]) == [changed]


def test_one_node_is_named_and_several_are_counted() -> None:
    assert _are(["n1"]) == "node n1 was"
    assert _are(["n1", "n2"], "has", "have") == "2 nodes have"
