"""The component protocol: what each feature declares, and that the engine works without any."""

import subprocess
import sys
from dataclasses import MISSING, fields, replace
from typing import Any, get_args

import pytest

from schedd.engine import handlers
from schedd.engine.component.declaration import Component
from schedd.engine.component.parts import lasting_fields
from schedd.engine.component.registry import (
    BatchHook,
    component_calls,
    component_handlers,
    components,
    find_idle_hooks,
    hook_work_fields,
    job_calls,
    working_calls,
)
from schedd.engine.facts.alerts import alert_kinds
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.plan.schema import field_rule
from schedd.wire import AccountSet, Event, NodeChanged, PlanningHeld, PlanningReleased
from tests.engine.calls import calls_of_idle_batch
from tests.engine.cluster import Cluster

WITHOUT_FEATURES = """
import schedd.feature_list
schedd.feature_list.FEATURES = ()
from tests.engine.cluster import Cluster
from schedd.engine import Engine
from schedd.wire import Unreserve
cluster = Cluster(nodes=2)
cluster.submit("1", walltime=100)
cluster.submit("2", "2:ppn=4", walltime=100)
starts = cluster.start("1"), cluster.start("2")
for number in range(2):
    cluster.send(Unreserve(id=f"u{number}", time=120, name="r"))
assert [(alert.kind, alert.about, alert.times) for alert in cluster.engine.state.alerts.values()] == [
    ("feature", "unreserve", 1)
]
cluster.at(150)
engine = Engine.restore(cluster.engine.checkpoint())
assert engine.state.parts == {}
print(*starts)
"""


def test_each_type_of_event_has_one_handler() -> None:
    of_components = component_handlers()
    own = handlers._HANDLERS
    assert not own.keys() & of_components.keys()
    kinds = set(get_args(Event)) - {NodeChanged, PlanningHeld, PlanningReleased}
    assert own.keys() | of_components.keys() >= kinds


@pytest.mark.parametrize("one", components(), ids=lambda one: one.name)
def test_component_fields_declare_their_copying_and_defaults(one: Component[Any]) -> None:
    for each in fields(one.state):
        assert field_rule(one.state, each.name) is not None
        assert each.default is not MISSING or each.default_factory is not MISSING, each.name
    assert all(field_rule(one.state, name).saved for name in lasting_fields(one))


def test_names_of_components_and_alerts_are_unique() -> None:
    names = [one.name for one in components()]
    assert len(set(names)) == len(names)
    kinds = [kind for one in components() for kind in one.alerts]
    assert len(set(kinds)) == len(kinds)
    assert set(kinds) <= alert_kinds().keys()


def test_the_engine_works_without_features() -> None:
    run = [sys.executable, "-c", WITHOUT_FEATURES]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.split()
    assert int(second) >= int(first)


def test_calls_of_a_hook_leave_out_components_without_it() -> None:
    for hook in ("time_passed", "next_wake", "must_wait", "settle"):
        found = dict(component_calls(hook))
        assert found == {one.name: getattr(one, hook) for one in components() if getattr(one, hook)}
        assert list(found) == [one.name for one in components() if one.name in found]


def test_components_without_work_are_not_called() -> None:
    cluster = Cluster()
    state = cluster.engine.state
    hooks = dict.fromkeys((*get_args(BatchHook), *(hook for one in components() for hook in one.hook_fields)))
    for hook in hooks:
        having = {one.name: one for one in components() if getattr(one, hook) is not None}
        declared = {name: one for name, one in having.items() if hook_work_fields(one, hook)}
        assert declared
        names = {name for name, _ in working_calls(state, hook)}
        assert not names & declared.keys()
        assert names == having.keys() - declared.keys()
        for name, one in declared.items():
            for field in hook_work_fields(one, hook):
                fork = state.fork()
                assert not getattr(fork.part(one.state), field), "work is empty at first"
                setattr(fork.part(one.state), field, {"1": 1})
                assert names | {name} == {name for name, _ in working_calls(fork, hook)}


def test_idle_components_are_called_only_for_jobs_that_name_them() -> None:
    cluster = Cluster()
    cluster.submit("1")
    state = cluster.engine.state
    facts = state.records["1"].facts
    idle = {(one.name, hook) for one in components() if one.idle_hooks for hook in one.idle_hooks(state)}
    assert {name for name, _ in idle} > {one.name for one in components() if one.named_by} - {
        "deadline_forecasts"
    }
    for hook in {hook for _, hook in idle}:
        having = [one for one in components() if getattr(one, hook) is not None]
        busy = [one.name for one in having if (one.name, hook) not in idle]
        assert [name for name, _ in job_calls(state, hook, facts)] == busy
        for one in having:
            for resource in one.named_by:
                naming = replace(facts, resources={**facts.resources, f" {resource.upper()}": "1"})
                names = {name for name, _ in job_calls(state, hook, naming)}
                assert {one.name, *busy} <= names <= {each.name for each in having}


def test_idle_hooks_are_found_again_after_changes() -> None:
    cluster = Cluster()
    cluster.submit("1")
    state = cluster.engine.state
    waits = ("accounts", "must_wait")
    assert state.idle_hooks is not None
    assert waits in state.idle_hooks
    cluster.send(AccountSet(id="a", time=0, name="x", amount=1))
    assert waits not in find_idle_hooks(state)
    cluster.submit("2")
    assert state.idle_hooks is not None
    assert waits not in state.idle_hooks
    assert publish_snapshot(state).idle_hooks == state.idle_hooks
    again = Cluster()
    again.submit("1")
    again.send(AccountSet(id="a", time=0, name="x", amount=1))
    again.submit("2")
    assert again.engine.state.idle_hooks is state.idle_hooks, "equal sets are compared member by member"


def test_batch_without_work_calls_few_functions() -> None:
    """The cost of a batch follows what changed, not the number of jobs, nodes or features: a feature that a
    site does not use has one or two calls in it.
    """
    counts = []
    for jobs in (5, 60):
        cluster = Cluster(nodes=2, publish_starts=True, validate=False)
        for i in range(jobs):
            cluster.submit(str(i), walltime=1000 + i)
        cluster.at(60)
        counts.append(calls_of_idle_batch(cluster))
    assert counts[0] == counts[1]
    assert counts[0] < 6 * len(components()), counts
