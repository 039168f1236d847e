"""What the engine's state keeps when the site's policy changes, and words and order that hang on counts."""

from schedd.engine import EngineSettings
from schedd.engine.facts.event_order import _sorted
from schedd.engine.facts.state import EngineState
from schedd.engine.machine.nodes import _are
from schedd.policy.fair_share import Held
from schedd.policy.site import site_policy
from schedd.wire import JobEnded, NodeChanged, NodeFacts


def tree(interval: int, decay: float = 0.9) -> dict[str, object]:
    return {"fair_share": {"levels": ["user"], "interval": interval, "decay": decay}}


def test_usage_is_kept_as_long_as_its_windows_are_as_long() -> None:
    state = EngineState.empty(EngineSettings(site=tree(3600)), 0)
    usage = state.usage
    assert usage is not None
    usage.book(Held(("ann",), 1, 0, 60))
    state.set_site(site_policy(tree(3600, 0.5)), tree(3600, 0.5))
    assert state.usage is usage
    state.set_site(site_policy(tree(7200)), tree(7200))
    assert state.usage is not None
    assert state.usage is not usage
    assert state.usage.saved()["leaves"] == []
    state.set_site(site_policy({}), {})
    assert state.usage is None


def test_ends_precede_other_events_of_a_batch() -> None:
    changed = NodeChanged(id="e:1", time=5, node=NodeFacts(name="n1", cpus=4))
    ended = JobEnded(id="e:2", time=5, job_id="1", exit_status=0)
    assert _sorted([changed, ended]) == [ended, changed]
    assert _sorted([changed]) == [changed]


def test_one_node_is_named_and_several_are_counted() -> None:
    assert _are(["n1"]) == "node n1 was"
    assert _are(["n1", "n2"], "has", "have") == "2 nodes have"
