"""Partitions at engine level: requests, access, defaults, choice among several, changes of the policy."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.engine import Engine
from schedd.engine.component.job_hooks import charge_factor
from schedd.engine.facts.texts import LIMIT_TO_BE_RAISED
from schedd.engine.show.plan_snapshot import publish_snapshot
from schedd.features.accounts.state import account_book
from schedd.features.partitions.membership import OUTSIDE_ALL, PartitionTable
from schedd.features.partitions.rules import job_partition
from schedd.features.partitions.settings import PartitionRules
from schedd.features.partitions.state import partition_table
from schedd.model import Answer, Never, StartKnown
from schedd.plan.plan import Plan
from schedd.service.questions.plan_fork import fork_plan
from schedd.service.settings.site import SiteSettings
from schedd.wire import AccountSet, NodeFacts, PolicyChanged, Reserve, Run, RunFacts, RunsRead, ShareFacts
from tests.engine.cluster import Cluster, T
from tests.engine.policy_previews import previewed_moves
from tests.property_examples import examples
from tests.setting_faults import settings_fault

SETS: dict[str, Any] = {
    "gpu": {"properties": ["a100"]},
    "thin": {"nodes": ["n2", "n3"]},
    "wide": {"nodes": ["n1", "n2", "n3"]},
}


def cluster_with(rules: dict[str, Any], nodes: int = 4, **site: Any) -> Cluster:
    """Nodes n1 to n4 of four cpus; n1 has the property a100."""
    cluster = Cluster(nodes=nodes, site={"partitions": rules, **site})
    cluster.server.nodes["n1"] = NodeFacts(name="n1", cpus=4, properties=("a100",))
    cluster.send(cluster.server.snapshot())
    return cluster


def set_policy(cluster: Cluster, version: int, site: dict[str, Any]) -> None:
    event = PolicyChanged(id=cluster.server.event_id(), time=cluster.server.now, version=version, site=site)
    cluster.send(event)


def partition(cluster: Cluster, job: str) -> str:
    state = cluster.engine.state
    return job_partition(state, state.records[job].facts)


@pytest.mark.parametrize("resources", [{"partition": "thin"}, {"x.partition": "thin"}])
def test_a_job_runs_on_the_nodes_of_the_partition_that_it_names(resources: dict[str, str]) -> None:
    cluster = cluster_with({"sets": SETS})
    for job in "123":
        cluster.submit(job, resources=resources)
    assert [cluster.planned_node_names(job) for job in "123"] == [["n2"], ["n3"], ["n2"]]
    assert [cluster.start(job) for job in "123"] == [0, 0, 100]


def test_a_job_in_a_partition_of_a_later_policy_waits_for_its_node() -> None:
    """Which nodes could take a job when empty is known from before the partitions were changed."""
    cluster = cluster_with({"sets": {"left": {"nodes": ["n1"]}}})
    for name in ("n1", "n2"):
        cluster.node(name, state="drain")
    cluster.submit("1", resources={"partition": "left"})
    assert "node n1" in cluster.view("1").why
    set_policy(cluster, 1, {"partitions": {"sets": {"right": {"nodes": ["n2"]}}}})
    cluster.submit("2", resources={"partition": "right"})
    assert "node n2" in cluster.view("2").why
    assert "never" not in cluster.view("2").why


def test_an_openpbs_job_names_its_partition_by_the_resource_node_partition() -> None:
    for sets in (SETS, {}):
        cluster = cluster_with({"sets": sets})
        cluster.server.nodes["n3"] = NodeFacts(name="n3", cpus=4, properties=("thin",))
        cluster.send(cluster.server.snapshot())
        cluster.submit("0", walltime=50)
        cluster.submit("1", family="openpbs", resources={"node_partition": "thin"})
        assert cluster.planned_node_names("1") == (["n2"] if sets else ["n3"])
        cluster.submit("2", family="openpbs", resources={"node_partition": "big"})
        words = "name gpu, thin or wide (qalter -l node_partition=NAME)" if sets else "no node has"
        assert words in cluster.view("2").why


def test_a_job_waits_for_a_closed_node_outside_all_partitions() -> None:
    cluster = cluster_with({"sets": SETS})
    cluster.node("n4", state="drain")
    cluster.submit("1", "n4:ppn=4")
    assert "node n4" in cluster.view("1").why
    assert "never" not in cluster.view("1").why
    cluster.node("n4", state="up")
    assert cluster.planned_node_names("1") == ["n4"]


def test_a_job_that_is_too_large_is_told_only_of_partitions_that_are_open_to_it() -> None:
    sets = {**SETS, "wide": {**SETS["wide"], "users": ["bob"]}}
    cluster = cluster_with({"sets": sets})
    for job, owner in (("1", "ann@login"), ("2", "bob@login")):
        cluster.submit(job, "3:ppn=4", owner=owner, resources={"partition": "thin"})
    assert cluster.view("1").why.endswith("request less, or name another partition (gpu)")
    assert cluster.view("2").why.endswith("request less, or name another partition (gpu, wide)")


def test_nodes_belong_to_a_partition_by_property_and_leave_it_with_the_property() -> None:
    cluster = cluster_with({"sets": SETS})
    cluster.submit("0", walltime=50, resources={"partition": "gpu"})
    cluster.submit("1", walltime=100, resources={"partition": "gpu"})
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (50, ["n1"])
    cluster.server.nodes["n1"] = NodeFacts(name="n1", cpus=4)
    cluster.server.nodes["n4"] = NodeFacts(name="n4", cpus=4, properties=("a100", "new"))
    cluster.send(cluster.server.snapshot())
    assert cluster.planned_node_names("1") == ["n4"]


def test_a_property_with_an_ampersand_needs_both() -> None:
    cluster = cluster_with({"sets": {"both": {"properties": ["a100&new"]}}})
    cluster.submit("1", resources={"partition": "both"})
    assert "no node has partition both" in cluster.view("1").why
    cluster.server.nodes["n4"] = NodeFacts(name="n4", cpus=4, properties=("a100", "new"))
    cluster.send(cluster.server.snapshot())
    assert cluster.planned_node_names("1") == ["n4"]


def test_a_run_that_only_the_logs_show_is_charged_in_the_partition_of_its_nodes() -> None:
    sets = {"thin": {"nodes": ["n1"]}, "gpu": {"nodes": ["n2"], "charge": 3.0}}
    cluster = Cluster(nodes=2, site={"partitions": {"sets": sets}, "accounts": {"by": "user"}})
    cluster.send(AccountSet(id="made", time=T, name="ann", amount=100_000))
    cluster.at(1_000)
    shares = (ShareFacts("n2", 4),)
    run = RunFacts(id="1", owner="ann@login", start=T + 100, end=T + 200, queue="batch", shares=shares)
    cluster.send(RunsRead(id="logs", time=cluster.server.now, runs=(run,), until=cluster.server.now))
    assert account_book(cluster.engine.state).accounts["ann"].charged == 3 * 400


def test_an_unknown_or_forbidden_partition_is_never_planned_and_the_remedy_is_named() -> None:
    sets = {**SETS, "gpu": {"properties": ["a100"], "groups": ["physics"]}}
    cluster = cluster_with({"sets": sets})
    cluster.submit("1", resources={"partition": "big"})
    cluster.submit("2", resources={"partition": "gpu"})
    cluster.submit("3", resources={"partition": "gpu"}, group="physics")
    cluster.submit("4", resources={"partition": "thin:big"})
    assert [cluster.runs(job) for job in "124"] == [[], [], []]
    assert "there is no partition big: name thin or wide (qalter -l partition=NAME)" in cluster.view("1").why
    assert "partition gpu is not open to the job: name thin or wide" in cluster.view("2").why
    assert "there is no partition big" in cluster.view("4").why
    assert cluster.planned_node_names("3") == ["n1"]


def test_a_closed_partition_keeps_its_nodes_from_jobs_that_name_none() -> None:
    cluster = cluster_with({"sets": {"mine": {"nodes": ["n1", "n2", "n3"], "users": ["bob"]}}})
    cluster.submit("1")
    cluster.submit("2")
    cluster.submit("3", owner="bob@login")
    assert [cluster.planned_node_names(job) for job in "12"] == [["n4"], ["n4"]]
    assert cluster.start("2") == 100
    assert cluster.planned_node_names("3")[0] in ("n1", "n2", "n3")


def test_of_several_partitions_the_one_with_the_earliest_start_is_taken_and_a_job_never_spans_two() -> None:
    cluster = cluster_with({"sets": {"a": {"nodes": ["n1", "n2"]}, "b": {"nodes": ["n3", "n4"]}}})
    cluster.submit("1", "2:ppn=4", walltime=500, resources={"partition": "a"})
    cluster.submit("2", "1:ppn=4", walltime=300, resources={"partition": "b"})
    cluster.submit("3", "2:ppn=4", walltime=100, resources={"partition": "a:b"})
    assert (cluster.start("3"), cluster.planned_node_names("3")) == (300, ["n3", "n4"])
    cluster.submit("4", "3:ppn=4", walltime=100, resources={"partition": "a:b"})
    assert "none of its partitions (a, b) can hold it (it needs 3 nodes with " in cluster.view("4").why
    assert cluster.view("4").why.endswith("request less")


def test_a_planned_job_moves_to_another_partition_that_becomes_free_earlier() -> None:
    cluster = cluster_with({"sets": {"a": {"nodes": ["n1", "n2"]}, "b": {"nodes": ["n3", "n4"]}}})
    cluster.submit("1", "2:ppn=4", walltime=5000, runtime=1000, resources={"partition": "a"})
    cluster.submit("2", "2:ppn=4", walltime=3000, resources={"partition": "b"})
    cluster.submit("3", "2:ppn=4", walltime=100, resources={"partition": "a:b"})
    assert (cluster.start("3"), partition(cluster, "3")) == (3000, "b")
    cluster.at(1020)
    assert partition(cluster, "3") == "a"
    assert cluster.runs("3") == [pytest.approx(1000, abs=6)]


@pytest.mark.parametrize("ahead", [0, 60])
def test_free_nodes_of_another_partition_are_used_within_seconds(ahead: int) -> None:
    """Also with many jobs ahead that may not use them."""
    sets = {"a": {"nodes": ["n1", "n2"]}, "b": {"nodes": ["n3", "n4"], "users": ["ann", "bob"]}}
    cluster = cluster_with({"sets": sets})
    cluster.submit("1", "2:ppn=4", walltime=5000, runtime=1011, resources={"partition": "b"}, owner="ann@h")
    cluster.submit("2", "2:ppn=4", walltime=3000)
    for number in range(ahead):
        cluster.submit(f"x{number}", "2:ppn=4", walltime=10, owner="eve@h")
    cluster.submit("3", "2:ppn=4", walltime=100, owner="bob@h")
    assert partition(cluster, "3") == "a"
    for at in range(5, 1_030, 5):
        cluster.at(at)
    assert partition(cluster, "3") == "b"
    assert cluster.runs("3") == [pytest.approx(1011, abs=6)]


def test_free_nodes_of_another_partition_are_used_though_the_job_starts_within_a_minute_anyway() -> None:
    """A start that is near may move on again and again, behind a job that overruns its walltime."""
    cluster = cluster_with({"sets": {"a": {"nodes": ["n1", "n2"]}, "b": {"nodes": ["n3", "n4"]}}})
    cluster.submit("1", "2:ppn=4", walltime=5000, runtime=1011, resources={"partition": "b"})
    cluster.submit("2", "2:ppn=4", walltime=1050, runtime=3000, resources={"partition": "a"})
    cluster.submit("3", "2:ppn=4", walltime=100, resources={"partition": "a:b"})
    assert (partition(cluster, "3"), cluster.start("3")) == ("a", 1050)
    for at in range(5, 1_060, 5):
        cluster.at(at)
    assert partition(cluster, "3") == "b"
    assert cluster.runs("3") == [pytest.approx(1011, abs=6)]


def test_many_displaced_jobs_cost_a_bounded_number_of_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_with({"sets": {"a": {"nodes": ["n1", "n2"]}, "b": {"nodes": ["n3", "n4"]}}})
    for number in range(120):
        cluster.submit(f"{number}", "2:ppn=4", walltime=100)
    searched: list[int] = []

    def count(plan: Plan, slot: int, variants: Any, *more: int) -> tuple[int, int]:
        searched.extend([slot] * len(variants))
        return find(plan, slot, variants, *more)

    find = Plan.find_best_variant
    monkeypatch.setattr(Plan, "find_best_variant", count)
    cluster.server.now += 1
    cluster.send(
        Reserve(id="r", time=cluster.server.now, name="all", start=T + 300, end=T + 400, everywhere=True)
    )
    assert 0 < len(searched) <= 2 * 50  # two partitions; outside of both there is no node
    assert not [job for job in cluster.engine.state.records.values() if job.answer is not None]


def test_defaults_by_user_account_group_and_queue_and_the_name_of_the_queue() -> None:
    rules = {
        "sets": SETS,
        "default": ["wide"],
        "defaults": [
            {"who": "user", "name": "bob", "default": ["gpu"]},
            {"who": "account", "name": "chem", "default": ["thin"]},
        ],
    }
    cluster = cluster_with(rules)
    jobs: dict[str, dict[str, Any]] = {
        "1": {},
        "2": {"owner": "bob@login", "account": "chem"},
        "3": {"account": "chem"},
        "4": {"queue": "thin"},
        "5": {"queue": "thin", "owner": "bob@login"},
        "6": {"owner": "bob@login", "resources": {"partition": "thin"}},
    }
    for job, more in jobs.items():
        cluster.submit(job, **more)
    found = [partition(cluster, job) for job in "123456"]
    assert found == ["wide", "gpu", "thin", "thin", "gpu", "thin"]


def test_partitions_that_lists_allow_are_joined_and_nothing_else_is_open() -> None:
    rules = {
        "sets": SETS,
        "defaults": [
            {"who": "user", "name": "ann", "allowed": ["thin"]},
            {"who": "group", "name": "physics", "allowed": ["gpu"]},
            {"who": "user", "allowed": ["wide"]},
        ],
    }
    cluster = cluster_with(rules)
    cluster.submit("1", resources={"partition": "gpu"})
    cluster.submit("2", resources={"partition": "gpu"}, group="physics")
    cluster.submit("3", resources={"partition": "thin"}, owner="eve@login")
    cluster.submit("4", owner="eve@login")
    assert "partition gpu is not open to the job: name thin" in cluster.view("1").why
    assert partition(cluster, "2") == "gpu"
    assert "partition thin is not open" in cluster.view("3").why
    assert partition(cluster, "4") == "wide"


def test_a_limit_of_a_partition_counts_its_jobs_and_a_job_for_several_takes_one_with_room() -> None:
    limits = [{"amount": 1, "partition": "a"}, {"amount": 4, "what": "cpus", "who": "user", "partition": "b"}]
    sets = {"a": {"every_node": True}, "b": {"every_node": True}}
    cluster = cluster_with({"sets": sets, "default": ["a"]}, limits=limits)
    cluster.submit("1", walltime=500)
    cluster.submit("2", walltime=300)
    cluster.submit("3", walltime=200, resources={"partition": "a:b"})
    cluster.submit("4", "1:ppn=3", walltime=200, resources={"partition": "b"}, owner="bob@login")
    cluster.submit("5", walltime=100, resources={"partition": "b:a"})
    assert [cluster.start(job) for job in "12345"] == [0, 500, 0, 0, 200]
    assert [partition(cluster, job) for job in "12345"] == ["a", "a", "b", "b", "b"]
    assert "at most 1 job in partition a at once" in cluster.view("2").why


def test_a_limit_that_never_allows_a_job_in_one_partition_leaves_the_other() -> None:
    limits = [{"amount": 2, "what": "cpus", "partition": "a"}]
    cluster = cluster_with({"sets": {"a": {"nodes": ["n1"]}, "b": {"nodes": ["n2"]}}}, limits=limits)
    cluster.submit("1", resources={"partition": "a:b"})
    cluster.submit("2", resources={"partition": "a"})
    assert cluster.planned_node_names("1") == ["n2"]
    assert f"{LIMIT_TO_BE_RAISED}: at most 2 cpus in partition a" in cluster.view("2").why


def test_jobs_of_a_partition_cost_its_factor() -> None:
    sets = {"a": {"nodes": ["n1"], "charge": 2.5}, "b": {"nodes": ["n2"]}}
    cluster = cluster_with({"sets": sets})
    cluster.submit("1", resources={"partition": "a"})
    cluster.submit("2", resources={"partition": "b"})
    state = cluster.engine.state
    assert [charge_factor(state, cluster.record(job).facts) for job in "12"] == [2.5, 1.0]


def test_a_job_in_a_reservation_and_a_partition_keeps_to_both() -> None:
    cluster = cluster_with({"sets": {"a": {"nodes": ["n1", "n2"]}}})
    cluster.send(
        Reserve(
            id=cluster.server.event_id(),
            time=cluster.server.now,
            name="school",
            start=T + 500,
            end=T + 2000,
            nodes=("n2", "n3"),
            users=("ann",),
        )
    )
    cluster.submit("1", resources={"partition": "a", "advres": "school"})
    cluster.submit("2", "2:ppn=4", resources={"partition": "a", "advres": "school"})
    assert (cluster.start("1"), cluster.planned_node_names("1")) == (500, ["n2"])
    assert cluster.runs("2") == []


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"sets": {"a": {}}}, "it has no nodes: set nodes, properties or every_node"),
        ({"sets": {"all": {"nodes": ["n1"]}}}, "this name stands for any partition"),
        ({"default": ["a"]}, "there is no partition a in sets"),
        ({"defaults": [{"who": "user", "name": "ann"}]}, "it has no effect"),
        ({"defaults": [{"who": "user", "name": "ann", "allowed": ["b"]}]}, "there is no partition b in sets"),
        ({"sets": {"a": {"nodes": ["n1"], "price": 3}}}, "price"),
        ({"sets": {"a": {"nodes": ["n[1-3]"]}}}, "list the nodes, or use a property"),
    ],
)
def test_bad_settings_are_refused_with_the_reason(rules: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SiteSettings.model_validate({"partitions": rules})


def test_a_limit_of_an_unknown_partition_is_refused() -> None:
    settings = {"limits": [{"amount": 1, "partition": "b"}]}
    assert settings_fault(settings) == "limits.0.partition: there is no partition 'b' in partitions.sets"


def test_without_partitions_a_request_means_a_property_as_before() -> None:
    cluster = cluster_with({})
    cluster.submit("1", resources={"partition": "a100"})
    cluster.submit("2", resources={"partition": "big"})
    assert cluster.planned_node_names("1") == ["n1"]
    assert "no node has big" in cluster.view("2").why


def test_jobs_follow_changes_of_the_partitions() -> None:
    cluster = cluster_with({})
    cluster.submit("0", walltime=50, resources={"partition": "a100"})
    cluster.submit("1", walltime=100, resources={"partition": "big"})
    cluster.submit("2", walltime=100, resources={"partition": "a100"})
    set_policy(cluster, 1, {"partitions": {"sets": {"big": {"nodes": ["n4"]}}}})
    assert cluster.planned_node_names("1") == ["n4"]
    assert "there is no partition a100: name big" in cluster.view("2").why
    set_policy(cluster, 2, {"partitions": {"sets": {"big": {"nodes": ["n3"]}, "a100": {"nodes": ["n2"]}}}})
    assert cluster.runs("2") == [0]
    assert cluster.planned_node_names("2") == ["n2"]
    set_policy(cluster, 3, {})
    cluster.submit("3", resources={"partition": "a100"})
    assert cluster.planned_node_names("3") == ["n1"]


def test_the_choice_of_a_partition_survives_a_checkpoint_and_a_fork() -> None:
    cluster = cluster_with({"sets": {"a": {"nodes": ["n1"]}, "b": {"nodes": ["n2"]}}})
    cluster.submit("1", walltime=500, resources={"partition": "a"})
    cluster.submit("2", walltime=300, resources={"partition": "b"})
    cluster.submit("3", resources={"partition": "a:b"})
    assert partition(cluster, "3") == "b"
    for engine in (cluster.engine.fork(), Engine.restore(cluster.engine.checkpoint())):
        state = engine.state
        assert job_partition(state, state.records["3"].facts) == "b"
        assert (state.plan.start(state.records["3"].slot), engine.checkpoint()) == (
            T + 300,
            cluster.engine.checkpoint(),
        )


def test_a_hypothetical_job_is_placed_in_the_partition_with_the_earliest_start() -> None:
    cluster = cluster_with({"sets": {"a": {"nodes": ["n1"]}, "b": {"nodes": ["n2"]}}})
    cluster.submit("1", walltime=500, resources={"partition": "a"})
    cluster.submit("2", walltime=300, resources={"partition": "b"})
    facts = cluster.record("1").facts

    def what_if_in(name: str) -> Answer:
        fork = fork_plan(cluster.engine, publish_snapshot(cluster.engine.state))
        resources = {"nodes": "1:ppn=4", "walltime": "100", "partition": name}
        return fork.what_if(replace(facts, id="", state="Q", resources=resources, shares=()), T).answer

    both, single, unknown, unnamed = what_if_in("a:b"), what_if_in("a"), what_if_in("c"), what_if_in("")
    assert isinstance(unnamed, StartKnown)
    assert (unnamed.placement.start, unnamed.placement.shares[0].node) == (T, "n3"), "outside all partitions"
    assert isinstance(both, StartKnown)
    assert (both.placement.start, [share.node for share in both.placement.shares]) == (T + 300, ["n2"])
    assert isinstance(single, StartKnown)
    assert single.placement.start == T + 500
    assert isinstance(unknown, Never)
    assert "there is no partition c: name a or b" in unknown.requirement


def test_a_hypothetical_job_stays_inside_the_partitions_that_it_is_restricted_to() -> None:
    restricted = [{"who": "user", "name": "ann", "allowed": ["a", "b"]}]
    cluster = cluster_with({"sets": {"a": {"nodes": ["n1"]}, "b": {"nodes": ["n2"]}}, "defaults": restricted})
    for job in "123":
        cluster.submit(job)
    facts = cluster.record("1").facts
    for resources in ({}, {"partition": OUTSIDE_ALL}):
        fork = fork_plan(cluster.engine, publish_snapshot(cluster.engine.state))
        asked = {"nodes": "1:ppn=4", "walltime": "100", **resources}
        answer = fork.what_if(replace(facts, id="", state="Q", resources=asked, shares=()), T).answer
        if resources:
            assert isinstance(answer, Never)
        else:
            assert isinstance(answer, StartKnown)
            assert answer.placement.start == T + 100


_sets = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.fixed_dictionaries(
        {"nodes": st.lists(st.sampled_from(["n1", "n2", "n3", "n4", "n5"]), min_size=1, unique=True)},
        optional={"users": st.just(["bob"]), "groups": st.just(["staff"])},
    ),
    min_size=1,
)
_jobs = st.lists(
    st.tuples(
        st.sampled_from(["", "a", "b", "a:b", "c:a", "b:c:a"]),
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["staff", "guest"]),
        st.integers(1, 3),
        st.integers(1, 9),
    ),
    min_size=1,
    max_size=12,
)


def _allowed_nodes(sets: dict[str, Any], named: str, owner: str, group: str) -> list[set[str]]:
    """The sets of nodes that may each have the whole job, by a plain reading of the rules."""
    names = named.split(":") if named else list(sets)
    if any(name not in sets for name in names):
        return []
    found = []
    for name in names:
        users, groups = sets[name].get("users", []), sets[name].get("groups", [])
        if not (users or groups) or owner in users or group in groups:
            found.append(set(sets[name]["nodes"]))
    rest = {"n1", "n2", "n3", "n4", "n5"}.difference(*(one["nodes"] for one in sets.values()))
    return found if named else [*found, rest]


@given(_sets, _jobs)
@settings(max_examples=examples(15), deadline=None)
def test_each_job_runs_within_one_partition_that_is_open_to_it_or_never(
    sets: dict[str, Any], jobs: list[tuple[str, str, str, int, int]]
) -> None:
    cluster = Cluster(nodes=5, site={"partitions": {"sets": sets}})
    for i, (named, owner, group, nodes, length) in enumerate(jobs):
        resources = {"partition": named} if named else {}
        cluster.submit(
            str(i), f"{nodes}:ppn=4", 100 * length, resources=resources, owner=f"{owner}@x", group=group
        )
    cluster.at(20_000)
    runs = {decision.job_id: decision for decision in cluster.decisions if isinstance(decision, Run)}
    for i, (named, owner, group, nodes, _) in enumerate(jobs):
        allowed = _allowed_nodes(sets, named, owner, group)
        run = runs.get(str(i))
        assert (run is not None) == any(len(names) >= nodes for names in allowed), (named, owner, group)
        if run is not None:
            used = {share.node for share in run.shares}
            assert any(used <= names for names in allowed), (named, owner, group, used)


def test_the_table_of_partitions_follows_the_policy_also_in_a_fork() -> None:
    cluster = cluster_with({"sets": SETS})
    state = cluster.engine.state
    fork = state.fork()
    assert partition_table(state) is partition_table(state)
    set_policy(cluster, 1, {"partitions": {"sets": {"thin": {"nodes": ["n4"]}}}})
    for one, names in ((state, ("thin",)), (fork, tuple(SETS))):
        rules = one.site.part(PartitionRules)
        assert partition_table(one).rules is rules
        assert partition_table(one).names == PartitionTable(rules).names == names


def test_a_preview_of_partitions_names_the_jobs_that_start_later() -> None:
    cluster = Cluster(nodes=2)
    for job in "1234":
        cluster.submit(job)
    thin = {"partitions": {"sets": {"thin": {"nodes": ["n2"]}}, "default": ["thin"]}}
    moved = previewed_moves(cluster, thin)
    assert [(one.job, (one.before or 0) - T, (one.after or 0) - T) for one in moved.values()] == [
        ("3", 100, 200)
    ]
