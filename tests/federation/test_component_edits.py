"""Adding, substituting and deleting components of a booked co-allocation."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from schedd.features.bookings.state import booking_table
from schedd.federation.bookings.decisions import LIVE
from schedd.federation.coallocation.coallocations import NO_REQUIRED_COMPONENT, CoAllocation, ComponentEdit
from schedd.federation.state.coallocation_operations import EditImpossibleError
from schedd.start_sentence import NEVER
from tests.engine.cluster import T
from tests.federation.federation_harness import FederationHarness
from tests.federation.simulated_federation import SimulatedFederation, seeds

WHOLE = {"nodes": "2:ppn=4"}


@pytest.fixture
def simulation(tmp_path: Path) -> Iterator[SimulatedFederation]:
    made = SimulatedFederation(tmp_path, "abc")
    yield made
    made.close()


def _component(nodes: str = "1:ppn=4", walltime: int = 100, **more: Any) -> dict[str, Any]:
    submission = {"script": "sleep 1", "resources": {"nodes": nodes}}
    return {"submission": submission, "walltime": walltime, "clusters": (), "optional": False, **more}


def _edit(
    simulation: SimulatedFederation,
    name: str,
    request: Mapping[str, Any] | None,
    component: int | None = None,
    *,
    later: bool = False,
) -> None:
    simulation.federation.coallocation_operations.edit(name, "ann@org", request, component, later)


def _latest(group: CoAllocation) -> ComponentEdit:
    return group.edits[-1]


def _booked_pair(simulation: SimulatedFederation) -> str:
    """Two components at a and b, of a whole cluster each, that start at 300."""
    simulation.busy("a", 2, 300)
    simulation.busy("b", 2, 300)
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]})
    simulation.go(5)
    assert simulation.group(name).promised == (T + 300, T + 400)
    return name


def _bookings(simulation: SimulatedFederation) -> dict[str, int]:
    """Number of reserved bookings by cluster."""
    return {
        name: sum(one.phase in LIVE for one in booking_table(at.engine.state).values())
        for name, at in simulation.clusters.items()
    }


def test_an_added_component_keeps_start_and_places_of_the_others(simulation: SimulatedFederation) -> None:
    name = _booked_pair(simulation)
    before = simulation.group(name).attempts
    _edit(simulation, name, _component())
    assert _latest(simulation.group(name)).phase == "pending"
    simulation.go(10)
    group = simulation.group(name)
    edit = _latest(group)
    assert (edit.act, edit.component, edit.phase) == ("add", 2, "made")
    assert group.committed is not None
    assert [place.cluster for place in group.committed.places] == ["a", "b", "c"]
    assert group.promised == (T + 300, T + 400)
    assert [one.attempt for one in group.committed.places] == [1, 2, 3], "the held jobs are kept"
    assert [one.server_job for one in group.attempts[:2]] == [one.server_job for one in before]
    assert group.moves == 0
    assert _bookings(simulation) == {"a": 1, "b": 1, "c": 1}
    simulation.go(600, 5)
    assert simulation.starts(name) == {0: [300], 1: [300], 2: [300]}
    assert (simulation.group(name).over, simulation.group(name).settled) == ("ended", True)


def test_a_deleted_component_frees_its_cores_and_the_others_keep_their_numbers(
    simulation: SimulatedFederation,
) -> None:
    name = _booked_pair(simulation)
    _edit(simulation, name, None, 0)
    simulation.go(10)
    group = simulation.group(name)
    assert (_latest(group).act, _latest(group).phase) == ("delete", "made")
    assert _bookings(simulation) == {"a": 0, "b": 1, "c": 0}
    assert [one.phase for one in group.attempts] == ["withdrawn", "held"]
    simulation.go(600, 5)
    assert simulation.starts(name) == {1: [300]}
    assert simulation.group(name).over == "ended"


def test_a_substituted_component_uses_the_cores_of_the_old_one(simulation: SimulatedFederation) -> None:
    name = _booked_pair(simulation)
    _edit(simulation, name, _component("2:ppn=2", 80, clusters=("a",)), 0)
    simulation.go(10)
    group = simulation.group(name)
    assert (_latest(group).act, _latest(group).phase) == ("substitute", "made")
    assert group.promised == (T + 300, T + 400)
    assert [one.phase for one in group.attempts] == ["withdrawn", "held", "held"]
    job = simulation.clusters["a"].server.jobs[group.attempts[2].server_job]
    assert job.resources["nodes"] == "2:ppn=2"
    simulation.go(600, 5)
    assert simulation.starts(name) == {0: [300], 1: [300]}


def test_a_component_that_no_cluster_can_run_is_named_with_the_reason(
    simulation: SimulatedFederation,
) -> None:
    name = _booked_pair(simulation)
    _edit(simulation, name, _component("9:ppn=4", clusters=("c",)))
    simulation.go(10)
    why = _latest(simulation.group(name)).text
    assert f"c cannot run component 3: {NEVER}: it needs 9 nodes" in why, why
    _edit(simulation, name, _component("2:ppn=4", clusters=("b",)), 0)
    simulation.go(10)
    why = _latest(simulation.group(name)).text
    assert f"b cannot run components 1 and 2 together: {NEVER}: it needs 4 nodes" in why, why
    fresh = simulation.submit({"nodes": "1:ppn=9"}, {"nodes": "1:ppn=4"})
    simulation.go(5)
    notes = simulation.federation.coallocation_operations.notes[fresh]
    assert notes.count(f"cannot run component 1: {NEVER}: 9 cpus on a node") == 3


def test_a_longer_component_lengthens_all(simulation: SimulatedFederation) -> None:
    name = _booked_pair(simulation)
    _edit(simulation, name, _component("2:ppn=4", 250, clusters=("b",)), 1)
    simulation.go(10)
    group = simulation.group(name)
    assert _latest(group).phase == "made"
    assert group.promised == (T + 300, T + 550)
    assert [(one.phase, one.length) for one in group.attempts if one.live] == [("held", 250), ("held", 250)]


def test_a_change_that_needs_a_later_start_is_refused_unless_it_may_be_later(
    simulation: SimulatedFederation,
) -> None:
    name = _booked_pair(simulation)
    simulation.busy("c", 2, 1000)
    before = simulation.group(name)
    wide = _component("2:ppn=4", clusters=("c",))
    _edit(simulation, name, wide)
    simulation.go(10)
    group = simulation.group(name)
    assert (_latest(group).phase, _latest(group).text[:34]) == (
        "refused",
        "the start would be 00:11:45 later;",
    )
    assert (group.components, group.committed) == (before.components, group.rounds[0])
    assert _bookings(simulation) == {"a": 1, "b": 1, "c": 0}
    _edit(simulation, name, wide, later=True)
    simulation.go(10)
    group = simulation.group(name)
    assert _latest(group).phase == "made"
    assert group.promised == (T + 1005, T + 1105)
    simulation.go(1300, 5)
    assert simulation.starts(name) == {0: [1005], 1: [1005], 2: [1005]}


def test_an_impossible_component_is_refused_with_the_reason(simulation: SimulatedFederation) -> None:
    name = _booked_pair(simulation)
    _edit(simulation, name, _component("9:ppn=4"))
    simulation.go(10)
    group = simulation.group(name)
    assert _latest(group).phase == "refused"
    assert _latest(group).text.startswith("there is no time at which all components can start: a cannot run ")
    simulation.go(600, 5)
    assert simulation.starts(name) == {0: [300], 1: [300]}


def test_a_change_before_the_first_round_is_made_at_once(simulation: SimulatedFederation) -> None:
    name = simulation.submit(WHOLE)
    _edit(simulation, name, _component())
    assert _latest(simulation.group(name)).phase == "made"
    simulation.go(5)
    group = simulation.group(name)
    assert group.committed is not None
    assert len(group.committed.places) == 2


def test_a_change_without_time_before_the_start_is_refused(simulation: SimulatedFederation) -> None:
    name = _booked_pair(simulation)
    simulation.go(220)  # 75 s before the start: 60 s of notice and 20 s for the release are too much
    _edit(simulation, name, _component())
    simulation.go(5)
    assert _latest(simulation.group(name)).text == "there was no time for it before the start"
    simulation.go(600, 5)
    assert simulation.starts(name) == {0: [300], 1: [300]}


def test_without_remap_only_the_changed_component_changes_its_cluster(
    simulation: SimulatedFederation,
) -> None:
    simulation.busy("a", 2, 300)
    name = simulation.submit({**WHOLE, "clusters": ["a"]}, {**WHOLE, "clusters": ["b"]}, remap=False)
    simulation.go(5)
    _edit(simulation, name, _component("2:ppn=4", clusters=("c",)), 1)
    simulation.go(10)
    group = simulation.group(name)
    assert group.committed is not None
    assert [place.cluster for place in group.committed.places] == ["a", "c"]


def test_a_lost_booking_makes_the_pending_change_part_of_the_next_round(
    simulation: SimulatedFederation,
) -> None:
    name = _booked_pair(simulation)
    _edit(simulation, name, _component())
    group = simulation.group(name)
    committed = group.committed
    assert committed is not None
    simulation.clusters["a"].server.delete(group.attempts[0].server_job)
    simulation.federation.coallocation_operations.refuse_component(name, 1, "it was deleted there")
    simulation.go(30)
    group = simulation.group(name)
    assert [one.phase for one in group.edits] == ["made"]
    assert len(group.components) == 3


@pytest.mark.parametrize(
    ("component", "request_", "why"),
    [
        (0, None, NO_REQUIRED_COMPONENT),
        (5, None, "it has no component 6"),
        (7, _component(), "it has no component 8"),
    ],
)
def test_an_invalid_change_is_not_logged(
    simulation: SimulatedFederation, component: int, request_: Any, why: str
) -> None:
    name = simulation.submit({}, {"optional": True})
    with pytest.raises(EditImpossibleError, match=why):
        _edit(simulation, name, request_, component)
    assert not simulation.group(name).edits


def test_one_change_at_a_time_and_none_at_the_end(simulation: SimulatedFederation) -> None:
    name = _booked_pair(simulation)
    _edit(simulation, name, _component())
    with pytest.raises(EditImpossibleError, match="is not settled yet"):
        _edit(simulation, name, None, 0)
    simulation.go(600, 5)
    with pytest.raises(EditImpossibleError, match="it is over"):
        _edit(simulation, name, None, 0)


@pytest.mark.parametrize("seed", seeds(1, 60))
def test_random_changes_with_lost_answers_and_kills_leave_all_or_nothing(tmp_path: Path, seed: int) -> None:
    """Whatever was changed, all required components of the last state start together, each once."""
    chance = random.Random(seed)
    simulation = SimulatedFederation(tmp_path, "abc")
    try:
        for cluster in "abc":
            simulation.busy(cluster, 2, chance.randrange(200, 500))
        names = [simulation.submit({}, {"nodes": "1:ppn=2"}) for _ in range(3)]
        simulation.go(10)
        for _ in range(8):
            name = chance.choice(names)
            group = simulation.group(name)
            live = [i for i, one in enumerate(group.components) if not one.deleted]
            component = chance.choice([None, *live])
            nodes = f"{chance.randrange(1, 3)}:ppn={chance.randrange(1, 5)}"
            request = _component(nodes, chance.randrange(60, 150))
            wanted = None if component is not None and chance.random() < 0.4 else request
            with suppress(EditImpossibleError):
                _edit(simulation, name, wanted, component, later=chance.random() < 0.5)
            simulation.after["booking_step"] = chance.randrange(2)
            simulation.go(chance.randrange(1, 12))
            if chance.random() < 0.3:
                simulation.begin()  # the federation is killed and starts again from its log
        simulation.finish(2500)
        for name in names:
            group = simulation.group(name)
            assert (group.over, group.settled, group.pending_edit) == ("ended", True, None), group.text
            starts = simulation.starts(name)
            required = {i for i, one in enumerate(group.components) if not one.deleted}
            assert {i: len(moments) for i, moments in starts.items()} == dict.fromkeys(required, 1)
            assert len({moments[0] for moments in starts.values()}) == 1
        assert not any(_bookings(simulation).values())
    finally:
        simulation.close()


# ---- API and command -------------------------------------------------------------------------------

GROUPS = "/v1/federation/coallocations"
PART = {"script": "sleep 1", "request": "nodes=1:ppn=4,walltime=100"}


def test_changes_over_http(harness: FederationHarness) -> None:
    ann = harness.client("ann@org")
    name = ann.post(GROUPS, json={"components": [PART], "deadline": harness.now + 500}).json()["id"]
    there = f"{GROUPS}/{name}/components"
    row = ann.post(there, json={"component": PART, "later": True}).json()
    assert [one["component"] for one in row["components"]] == [1, 2]
    assert row["edits"] == [
        {
            "component": 2,
            "act": "add",
            "by": "ann@org",
            "since": harness.now,
            "later": True,
            "phase": "made",
            "text": "",
        }
    ]
    other = {**PART, "request": "nodes=2:ppn=2,walltime=50"}
    assert ann.put(f"{there}/1", json={"component": other}).status_code == 200
    assert harness.federation.coallocations[name].components[0].submission["resources"]["nodes"] == "2:ppn=2"
    row = ann.delete(f"{there}/1").json()
    assert [one["component"] for one in row["components"]] == [2]
    harness.log.close()
    harness.begin()
    assert [one["component"] for one in ann.get(f"{GROUPS}/{name}").json()["components"]] == [2]
    for number, status in ((1, 409), (9, 409), (0, 422), (2, 409)):
        assert ann.delete(f"{there}/{number}").status_code == status
    assert harness.client("bob@org").delete(f"{there}/2").status_code == 404
    assert harness.client("eyes").delete(f"{there}/2").status_code == 403
    for component, said in (
        ({**PART, "cores": 8}, "must be the only one"),
        ({**PART, "clusters": ["west"]}, "no cluster west"),
        ({**PART, "request": "nodes=1,walltime=2000000000"}, "and ends later"),
        ({**PART, "request": "nodes=1:ppn=x"}, "ppn"),
    ):
        answer = ann.post(there, json={"component": component})
        assert (answer.status_code, said in answer.text) == (422, True), answer.text


def test_an_admins_change_keeps_the_owner(harness: FederationHarness) -> None:
    name = harness.client("ann@org").post(GROUPS, json={"components": [PART]}).json()["id"]
    row = harness.client("root").post(f"{GROUPS}/{name}/components", json={"component": PART}).json()
    assert (row["owner"], row["edits"][0]["by"]) == ("ann@org", "root")


def test_commands_change_components(
    harness: FederationHarness,
    shell: Callable[..., int],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "c.sh").write_text("#!/bin/sh\necho c\n")
    (tmp_path / "group.json").write_text(json.dumps({"components": [PART]}))
    (tmp_path / "c.json").write_text(json.dumps({"request": PART["request"], "script_file": "c.sh"}))
    assert shell("coallocate", "submit", str(tmp_path / "group.json")) == 0
    name = capsys.readouterr().out.split()[-1]
    assert shell("coallocate", "add", name, str(tmp_path / "c.json"), "--later") == 0
    assert capsys.readouterr().out.endswith(f"co-allocation {name}: component 2 is added\n")
    assert harness.federation.coallocations[name].components[1].submission["script"] == "#!/bin/sh\necho c\n"
    assert shell("coallocate", "substitute", name, "1", str(tmp_path / "c.json")) == 0
    assert capsys.readouterr().out.endswith("component 1 is substituted\n")
    assert shell("coallocate", "delete", name, "1") == 0
    assert capsys.readouterr().out.endswith("component 1 is deleted\n")
    assert shell("coallocate", "show", name) == 1
    assert "latest change  component 1 is deleted" in capsys.readouterr().out
    assert shell("coallocate", "delete", name, "2") == 6
    assert NO_REQUIRED_COMPONENT in capsys.readouterr().err
    (tmp_path / "c.json").write_text("[5]")
    assert shell("coallocate", "add", name, str(tmp_path / "c.json")) != 0
    assert "not a component" in capsys.readouterr().err
    (tmp_path / "c.json").write_text('{"request": ')
    assert shell("coallocate", "add", name, str(tmp_path / "c.json")) != 0
    assert (
        "c.json: not a component: line 1, column 13 is no JSON: Expecting value;" in capsys.readouterr().err
    )
