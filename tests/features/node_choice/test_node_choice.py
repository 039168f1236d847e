"""Node choice: points and arrangements at engine level, compared with plain choices."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.engine import Engine
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.node_choice import rules
from schedd.features.node_choice.arrangement import contiguous_nodes, first_nodes, spread_units
from schedd.model import StartKnown
from schedd.plan.columns import CPUS, MEM
from schedd.plan.plan import Plan
from schedd.service.questions.plan_fork import fork_plan
from schedd.service.settings.site import SiteSettings
from schedd.wire import JobFacts, NodeFacts, PolicyChanged, Run
from tests.engine.cluster import Cluster, T
from tests.engine.policy_previews import previewed_moves
from tests.property_examples import examples

MIB = 1 << 10


def cluster_of(nodes: list[NodeFacts], choice: dict[str, Any], **site: Any) -> Cluster:
    cluster = Cluster(nodes=0, site={"node_choice": choice, **site})
    cluster.server.nodes = {node.name: node for node in nodes}
    cluster.send(cluster.server.snapshot())
    return cluster


def job_facts(job: str) -> JobFacts:
    resources = {"nodes": "2:ppn=4", "walltime": "1000"}
    return JobFacts(id=job, owner="user@host", queue="batch", submitted=T, resources=resources)


def plain_nodes(count: int, **more: Any) -> list[NodeFacts]:
    return [NodeFacts(name=f"n{i}", cpus=4, **more) for i in range(1, count + 1)]


def test_nodes_with_more_points_are_used_first_and_no_job_starts_later() -> None:
    nodes = [
        NodeFacts(name="n1", cpus=4, properties=("old",)),
        NodeFacts(name="n2", cpus=4, properties=("epyc",)),
        NodeFacts(name="n3", cpus=4),
        NodeFacts(name="n4", cpus=4, properties=("epyc",)),
    ]
    cluster = cluster_of(nodes, {"prefer": {"epyc": 10, "n4": 5, "old": -5}})
    for job in "12345":
        cluster.submit(job)
    assert [cluster.planned_node_names(job)[0] for job in "12345"] == ["n4", "n2", "n3", "n1", "n4"]
    assert [cluster.start(job) for job in "12345"] == [0, 0, 0, 0, 100]


def test_priorities_of_vnodes_and_other_numbers_of_nodes_are_terms() -> None:
    nodes = [
        NodeFacts(name="n1", cpus=4, properties=("sort_priority=-2", "memspeed=3200", "memspeed=2400")),
        NodeFacts(name="n2", cpus=4, properties=("sort_priority=5", "memspeed=2400")),
        NodeFacts(name="n3", cpus=4),
    ]
    for expression, wanted in (("sort_priority", "n2 n3 n1"), ("memspeed", "n1 n2 n3")):
        cluster = cluster_of(nodes, {"expression": expression})
        for job in "123":
            cluster.submit(job)
        assert [cluster.planned_node_names(job)[0] for job in "123"] == wanted.split()


def test_points_precede_scarcity_and_among_equal_ones_scarcity_decides() -> None:
    nodes = [
        NodeFacts(name="n1", cpus=4, gpus=2, properties=("good",)),
        NodeFacts(name="n2", cpus=4, properties=("good",)),
        NodeFacts(name="n3", cpus=4),
    ]
    cluster = cluster_of(nodes, {"prefer": {"good": 1}})
    for job in "123":
        cluster.submit(job)
    assert [cluster.planned_node_names(job)[0] for job in "123"] == ["n2", "n1", "n3"]


def test_points_by_a_formula_with_amounts_properties_and_texts() -> None:
    nodes = [
        NodeFacts(name="n1", cpus=16, properties=("switch=s1",)),
        NodeFacts(name="n2", cpus=8, properties=("switch=s2", "ib")),
        NodeFacts(name="n3", cpus=4, properties=("switch=s1",)),
    ]
    text = '100 * (switch == "s1") - cpus + 200 * ib * (name == "n9")'
    cluster = cluster_of(nodes, {"expression": text})
    for job in "123":
        cluster.submit(job)
    assert [cluster.planned_node_names(job)[0] for job in "123"] == ["n3", "n1", "n1"]


def test_a_partition_has_its_own_choice() -> None:
    site = {"partitions": {"sets": {"a": {"every_node": True}, "b": {"every_node": True}}, "default": ["a"]}}
    choice = {"prefer": {"n1": 1}, "partitions": {"b": {"prefer": {"n3": 1}}}}
    cluster = cluster_of(plain_nodes(3), choice, **site)
    cluster.submit("1")
    cluster.submit("2", resources={"partition": "b"})
    assert (cluster.planned_node_names("1"), cluster.planned_node_names("2")) == (["n1"], ["n3"])


def test_a_changed_policy_and_new_nodes_are_followed_and_a_checkpoint_keeps_the_order() -> None:
    cluster = cluster_of(plain_nodes(3), {})
    site = {"node_choice": {"prefer": {"n2": 1, "big": 5}}}
    event = PolicyChanged(id=cluster.server.event_id(), time=cluster.server.now, version=1, site=site)
    cluster.send(event)
    cluster.submit("1", walltime=50)
    assert cluster.planned_node_names("1") == ["n2"]
    cluster.node("n4", properties=("big",))
    cluster.submit("2", walltime=50)
    assert cluster.planned_node_names("2") == ["n4"]
    cluster.at(60)
    for engine in (Engine.restore(cluster.engine.checkpoint()), cluster.engine.fork()):
        plan = engine.state.plan
        assert plan.node_ranks("site") == cluster.engine.state.plan.node_ranks("site") != {}
    cluster.submit("3", walltime=50)
    fork = fork_plan(cluster.engine, publish_snapshot(cluster.engine.state))
    answer = fork.what_if(cluster.record("3").facts, T + 60, instead_of="3").answer
    assert isinstance(answer, StartKnown)
    assert [share.node for share in answer.placement.shares] == cluster.planned_node_names("3") == ["n4"]


@pytest.mark.parametrize(
    ("arrange", "nodes"),
    [
        ("pack", [["n1"], ["n1"], ["n2", "n3"]]),
        ("spread", [["n1"], ["n2"], ["n3", "n4"]]),
        ("contiguous", [["n1"], ["n1"], ["n2", "n3"]]),
    ],
)
def test_arrangements_of_small_jobs(arrange: str, nodes: list[list[str]]) -> None:
    cluster = cluster_of(plain_nodes(4), {"arrange": arrange})
    cluster.submit("1", "1:ppn=1")
    cluster.submit("2", "1:ppn=1")
    cluster.submit("3", "2:ppn=3")
    assert [cluster.planned_node_names(job) for job in "123"] == nodes


def test_least_memory_leaves_nodes_with_much_memory_free() -> None:
    memory = (64, 16, 32)
    nodes = [NodeFacts(name=f"n{i}", cpus=4, mem=m << 20) for i, m in enumerate(memory, 1)]
    cluster = cluster_of(nodes, {"arrange": "least_memory"}, spare_scarce=False)
    for job in "123":
        cluster.submit(job, resources={"mem": "8gb"})
    assert [cluster.planned_node_names(job)[0] for job in "123"] == ["n2", "n3", "n1"]


def test_units_of_one_job_are_spread_over_nodes() -> None:
    cluster = Cluster(nodes=3, cpus=4, node_rule="pack", site={"node_choice": {"arrange": "spread"}})
    cluster.submit("1", "1:ppn=2")
    cluster.submit("2", "5:ppn=1")
    (run,) = [one for one in cluster.decisions if isinstance(one, Run) and one.job_id == "2"]
    used: dict[str, int] = {}
    for share in run.shares:
        used[share.node] = used.get(share.node, 0) + share.cpus
    assert used == {"n2": 2, "n3": 2, "n1": 1}


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"expression": "cpus +"}, "expression"),
        ({"arrange": "random"}, "arrange"),
        ({"partitions": {"x": {"arrange": "spread"}}}, "there is no partition 'x' in partitions.sets"),
        ({"weights": {}}, "weights"),
        ({"levels": {"switch": {}}}, "at least 1"),
        ({"levels": {"switch": {"a": []}}}, "at least 1"),
    ],
)
def test_bad_settings_are_refused(choice: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SiteSettings.model_validate({"node_choice": choice})


# ---- compared with plain choices -----------------------------------------------------------------

_jobs = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=10)
_points = st.dictionaries(st.sampled_from([f"n{i}" for i in range(1, 6)]), st.integers(-3, 3))


@given(_jobs, _points, st.sampled_from(["pack", "spread", "contiguous", "least_memory"]))
@settings(max_examples=examples(12), deadline=None)
def test_jobs_start_when_they_would_without_a_choice_and_get_nodes_with_the_most_points(
    jobs: list[tuple[int, int, int]], points: dict[str, int], arrange: str
) -> None:
    plain = Cluster(nodes=5)
    chosen = Cluster(nodes=5, site={"node_choice": {"prefer": points, "arrange": arrange}})
    nodes, ppn, length = jobs[0]
    for cluster in (plain, chosen):
        cluster.submit("0", f"{nodes}:ppn={ppn}", 100 * length)
    best = sorted((points.get(f"n{i}", 0) for i in range(1, 6)), reverse=True)[:nodes]
    got = sorted((points.get(name, 0) for name in chosen.planned_node_names("0")), reverse=True)
    assert (chosen.start("0"), got) == (plain.start("0"), best)
    for i, (nodes, ppn, length) in enumerate(jobs[1:], 1):
        before = chosen.engine.fork()
        chosen.submit(str(i), f"{nodes}:ppn={ppn}", 100 * length)
        fork = fork_plan(before, publish_snapshot(before.state))
        answer = fork.what_if(chosen.record(str(i)).facts, chosen.server.now).answer
        assert isinstance(answer, StartKnown)
        assert chosen.start(str(i)) == answer.placement.start - T
        plan, slot = chosen.engine.state.plan, chosen.record(str(i)).slot
        rows, start, end = np.array([4, 0, 2]), plan.start(slot), plan.end(slot)
        free = [
            [min(plan.timeline(row).at(t)[column] for t in range(start, end, 50)) for row in rows]
            for column in (CPUS, MEM)
        ]
        assert plan.free_amounts(rows, start, end)[[CPUS, MEM]].tolist() == free


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1, max_size=12), _points)
@settings(max_examples=examples(12), deadline=None)
def test_a_job_of_one_unit_stays_only_where_the_arrangement_would_place_it(
    jobs: list[tuple[int, int]], points: dict[str, int]
) -> None:
    site = {"node_choice": {"prefer": points, "arrange": "contiguous"}}
    quick, whole = Cluster(nodes=5, site=site), Cluster(nodes=5, site=site)
    for i, (ppn, length) in enumerate(jobs):
        quick.submit(str(i), f"1:ppn={ppn}", 100 * length)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Plan, "is_on_first_row", lambda *_: False)
            whole.submit(str(i), f"1:ppn={ppn}", 100 * length)
        assert quick.planned_node_names(str(i)) == whole.planned_node_names(str(i))


_room = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=7)


@given(_room, st.integers(1, 6))
@settings(max_examples=examples(200), deadline=None)
def test_contiguous_nodes_have_the_shortest_span(room: list[tuple[int, int]], count: int) -> None:
    units, ranks = (np.array(column, np.int64) for column in zip(*room, strict=True))
    found = contiguous_nodes(units, ranks, count)
    if units.sum() < count:
        assert found == []
        return
    most = next(rank for rank in range(3) if units[ranks <= rank].sum() >= count)
    before = {i for i in range(len(room)) if units[i] and ranks[i] < most}
    usable = [i for i in range(len(room)) if units[i] and ranks[i] == most]
    left = count - sum(int(units[i]) for i in before)
    spans = [
        some[-1] - some[0]
        for size in range(1, len(usable) + 1)
        for some in combinations(usable, size)
        if sum(int(units[i]) for i in some) >= left
    ]
    last = [i for i in found if i not in before]
    assert sum(int(units[i]) for i in last) >= left
    assert (set(found) - set(last), set(last) <= set(usable)) == (before, True)
    assert last[-1] - last[0] == min(spans)


@given(_room, st.integers(1, 6))
@settings(max_examples=examples(200), deadline=None)
def test_spread_units_fit_and_leave_the_fullest_node_as_free_as_possible(
    room: list[tuple[int, int]], count: int
) -> None:
    units, ranks = (np.array(column, np.int64) for column in zip(*room, strict=True))
    found = spread_units(units, units * 2, 2, np.zeros_like(ranks), count)
    assert (found <= units).all()
    assert found.sum() == min(count, units.sum())
    left = units - found
    for i in np.flatnonzero(found).tolist():
        assert all(left[i] + 1 >= left[j] for j in range(len(room))), "a unit would better be elsewhere"
    ordered = first_nodes(units, list(range(len(room))), count)
    assert sum(int(units[i]) for i in ordered[:-1]) < count


def test_a_job_of_very_many_units_is_not_spread_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def count_units(*wanted: Any) -> Any:
        counts.append(wanted[-1])
        return spread_units(*wanted)

    monkeypatch.setattr(rules, "spread_units", count_units)
    cluster = Cluster(2, site={"node_choice": {"arrange": "spread"}})
    for job, units in (("1", 20_000), ("2", 1_000_000)):
        cluster.submit(job, family="openpbs", resources={"select": f"{units}:ncpus=0"})
    assert counts == [20_000]
    assert [cluster.start(job) for job in "12"] == [0, 0]


@pytest.mark.parametrize("arrange", ["contiguous", "least_memory", "spread"])
def test_arrangement_of_an_arriving_job_leaves_nothing_to_repair(arrange: str) -> None:
    cluster = cluster_of(plain_nodes(4), {"arrange": arrange})
    for job in range(4):
        cluster.submit(str(job), "2:ppn=4", walltime=1000)
    plan = cluster.engine.state.plan
    for job in range(4, 8):
        cluster.engine.handle(cluster.server.submit(job_facts(str(job)), 1000), T)
        assert cluster.start(str(job)) == 1000 * (job // 2)
        assert not plan.freed
        assert plan.searched_from == T


def test_a_preview_of_a_node_choice_moves_no_start() -> None:
    cluster = Cluster(nodes=3)
    for job in "1234":
        cluster.submit(job)
    assert previewed_moves(cluster, {"node_choice": {"prefer": {"n3": 5}}}) == {}
    cluster.submit("5")
    assert cluster.planned_node_names("5") == ["n3"], "it is in force"
