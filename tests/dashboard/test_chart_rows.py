"""Rows of the plan chart: node filters, groups, and limits on the data sent."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.api.node_selection import match_nodes, select_nodes
from schedd.dashboard.node_rows import build_rows, list_groupings
from schedd.dashboard.plan_columns import MAX_JOBS, PlanViewport, plan_columns
from schedd.model import NodeSets
from schedd.store.records import JobHistory
from schedd.wire import NodeFacts
from tests.property_examples import examples
from tests.service.planner_harness import T, job, node, planner
from tests.waits import WAIT_S

NODES = {
    name: NodeFacts(name=name, cpus=cpus, state=state, properties=properties)  # type: ignore[arg-type]
    for name, cpus, state, properties in (
        *((f"n{i:03}", 16, "up", (f"rack=r{i // 10}", "ib")) for i in range(1, 31)),
        ("gpu1", 32, "up", ("rack=r9", "gpu")),
        ("gpu2", 32, "down", ("rack=r9", "gpu")),
        ("gpu10", 32, "drain", ("rack=r9", "gpu", "big")),
    )
}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[001-003]", ["n001", "n002", "n003"]),
        ("n[001,010-011]", ["n001", "n010", "n011"]),
        ("gpu*", ["gpu1", "gpu2", "gpu10"]),
        ("gpu?", ["gpu1", "gpu2"]),
        ("gpu1", ["gpu1"]),
        ("gpu", ["gpu1", "gpu2", "gpu10"]),
        ("GPU down", ["gpu2"]),
        ("down, draining", ["gpu2", "gpu10"]),
        ("rack=r0", [f"n{i:03}" for i in range(1, 10)]),
        ("n02 up", [f"n{i:03}" for i in range(20, 30)]),
        ("big", ["gpu10"]),
        ("nothing", []),
        ("n[", []),
        ("n[1-99999999999999]", []),
        ("n[001-002", []),
    ],
)
def test_nodes_match_by_name_range_glob_property_and_state(text: str, names: list[str]) -> None:
    assert match_nodes(NODES, text) == names


@pytest.mark.parametrize("text", ["", "  ", ",", " , "])
def test_an_empty_filter_keeps_all_nodes_in_natural_order(text: str) -> None:
    assert match_nodes(NODES, text)[:4] == ["gpu1", "gpu2", "gpu10", "n001"]
    assert len(match_nodes(NODES, text)) == len(NODES)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[001-003]", ["n001", "n002", "n003"]),
        ("gpu*, n001", ["gpu1", "gpu2", "gpu10", "n001"]),
        ("gpu1, GPU1", ["gpu1"]),
        ("gpu down", ["gpu2"]),
        ("rack=r0", [f"n{i:03}" for i in range(1, 10)]),
    ],
)
def test_actions_select_nodes_by_name(text: str, names: list[str]) -> None:
    assert select_nodes(NODES, text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n0", "no node, property or state n0"),
        ("n001, gpu3", "no node, property or state gpu3"),
        ("x*", "no node fits x*"),
        ("n[900-901]", "no node fits"),
        ("ib gpu", "no node fits ib gpu"),
        ("n[", "no node fits"),
        ("  , ", "name nodes"),
        ("gpu1 " * 201, "at most 200 words"),
    ],
)
def test_actions_need_exact_node_names(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        select_nodes(NODES, text)


@settings(max_examples=examples(200), deadline=None)
@given(st.text(alphabet="n0123[]-,*? gpu=r", max_size=30))
def test_any_filter_text_gives_known_nodes(text: str) -> None:
    found = match_nodes(NODES, text)
    assert set(found) <= set(NODES)


def test_closed_groups_replace_their_nodes() -> None:
    names = match_nodes(NODES, "")
    sets = NodeSets(named=(("island", frozenset({"ib"})),))
    assert list_groupings(NODES.values(), sets) == ["rack", "set", "property", "class", "state"]
    rows, groups = build_rows(names, NODES, "rack", ("rack=r9",), sets)
    assert rows == [
        ("group", "rack=r0"),
        ("group", "rack=r1"),
        ("group", "rack=r2"),
        ("group", "rack=r3"),
        ("group", "rack=r9"),
        ("node", "gpu1"),
        ("node", "gpu2"),
        ("node", "gpu10"),
    ]
    assert sum(map(len, groups.values())) == len(NODES)
    assert [name for _, name in build_rows(names, NODES, "set", (), sets)[0]] == ["island", "none"]
    assert [name for _, name in build_rows(names, NODES, "class", (), None)[0]] == ["16 cpus", "32 cpus"]
    assert [name for _, name in build_rows(names, NODES, "state", (), None)[0]] == ["down", "draining", "up"]
    assert [name for _, name in build_rows(names, NODES, "nonsense", (), None)[0]] == ["none"]


# ---- columns -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def published() -> object:
    with planner(publish_starts=False, end_allowance=0) as loop:
        nodes = [node(f"n{i:02}", properties=(f"rack=r{i // 4}",)) for i in range(12)]
        loop.submit([*nodes, node("old", state="down")]).result(WAIT_S)
        jobs = [
            job(
                f"{i}.s",
                user=f"user{i % 3}",
                nodes=f"{1 + i % 3}:ppn={1 + i % 4}",
                walltime=str(600 + 60 * i),
            )
            for i in range(40)
        ]
        loop.submit(jobs).result(WAIT_S)
        return loop.published


def test_a_viewport_contains_only_its_rows(published) -> None:  # type: ignore[no-untyped-def]
    whole = plan_columns(published, lambda _: True)
    part = plan_columns(published, lambda _: True, PlanViewport(first=3, count=4))
    assert (whole["rows"], whole["count"], part["rows"], part["first"], part["count"]) == (13, 13, 13, 3, 4)
    assert part["nodes"]["name"] == ["n03", "n04", "n05", "n06"]
    assert part["nodes"]["row"] == [0, 1, 2, 3]

    def bars(columns: dict) -> set[tuple[str, str]]:  # type: ignore[type-arg]
        pairs = zip(columns["shares"]["job"], columns["shares"]["node"], strict=True)
        return {(columns["jobs"]["id"][j], columns["nodes"]["name"][n]) for j, n in pairs}

    assert bars(part) == {one for one in bars(whole) if one[1] in part["nodes"]["name"]}
    assert part["use"] == whole["use"], "what is below the chart is of all nodes that fit"
    assert plan_columns(published, lambda _: True, PlanViewport(first=999, count=4))["first"] == 9


def test_group_load_is_the_sum_over_its_nodes(published) -> None:  # type: ignore[no-untyped-def]
    columns = plan_columns(published, lambda _: True, PlanViewport(group="rack"))
    assert [one["name"] for one in columns["groups"]] == ["rack=r0", "rack=r1", "rack=r2", "none"]
    assert [one["cpus"] for one in columns["groups"]] == [16, 16, 16, 0]
    assert columns["jobs"]["id"] == [], "closed groups have no bars"
    for moment in range(0, columns["horizon"], 301):
        of_groups = [
            one["used"][np.searchsorted(one["time"], moment, "right") - 1] for one in columns["groups"]
        ]
        wanted = 0
        for slot in np.flatnonzero(published.starts >= 0).tolist():
            start, length = int(published.starts[slot]) - T, int(published.durations[slot])
            if start <= moment < start + length:
                wanted += sum(entry.amounts[0] for entry in published.held_by(slot) if not entry.is_pool)
        assert sum(of_groups) == wanted
    opened = plan_columns(published, lambda _: True, PlanViewport(group="rack", opened=("rack=r1",)))
    assert opened["nodes"]["name"] == ["n04", "n05", "n06", "n07"]
    assert [one["row"] for one in opened["groups"]] == [0, 1, 6, 7]


def test_the_overview_map_matches_the_plan(published) -> None:  # type: ignore[no-untyped-def]
    columns = plan_columns(published, lambda _: True)
    rows = columns["map"]["rows"]
    assert len(rows) == 13
    assert set(rows[-1]) == {"0"}, "nothing runs on the node that is down"
    assert any("9" in row for row in rows)
    assert columns["map"]["to"] == columns["horizon"]


def test_the_viewport_moves_to_the_requested_job(published) -> None:  # type: ignore[no-untyped-def]
    for name in ("0.s", "17.s", "39.s"):
        columns = plan_columns(published, lambda _: True, PlanViewport(count=2, job=name))
        assert name in columns["jobs"]["id"]
    closed = plan_columns(published, lambda _: True, PlanViewport(count=2, job="39.s", group="rack"))
    assert closed["groups"]
    hidden = plan_columns(published, lambda _: False, PlanViewport(count=2, job="39.s"))
    assert hidden["first"] == 0, "where a job of others is, is not told"


def test_exact_matches_precede_partial_matches(published) -> None:  # type: ignore[no-untyped-def]
    def matching_ids(text: str) -> list[str]:
        return [name for name, _ in plan_columns(published, lambda _: True, PlanViewport(find=text))["found"]]

    assert matching_ids("1") == ["1.s"], "job 1, not 10 to 19"
    assert len(matching_ids("user1")) == 13
    assert len(matching_ids("user")) == 40
    assert matching_ids("nobody") == []
    starts = [
        start for _, start in plan_columns(published, lambda _: True, PlanViewport(find="user"))["found"]
    ]
    assert all(a <= b for a, b in pairwise(starts))
    assert plan_columns(published, lambda _: False, PlanViewport(find="user"))["found"] == []


def test_ended_jobs_stay_on_their_nodes(published) -> None:  # type: ignore[no-untyped-def]
    def past(name: str, on: str) -> JobHistory:
        return JobHistory(
            id=name,
            owner="eve@x",
            queue="batch",
            name="",
            resources={},
            submitted=T - 900,
            state="C",
            runs=1,
            started=T - 600,
            held=((on, 2),),
            ended=T - 60,
            exit_status=0,
            how="ended",
        )

    ended = [(past("90.s", "n01"), True), (past("91.s", "n02"), False), (past("92.s", "gone"), True)]
    columns = plan_columns(published, lambda _: True, PlanViewport(), ended)
    of = [i for i, state in enumerate(columns["jobs"]["state"]) if state == 3]
    assert [columns["jobs"]["id"][i] for i in of] == ["90.s", None]
    assert [(columns["jobs"]["start"][i], columns["jobs"]["length"][i]) for i in of] == [(-600, 540)] * 2
    assert columns["jobs"]["user"][of[1]] is None
    assert "eve" in columns["users"]


def test_chart_data_is_limited_to_max_jobs(monkeypatch: pytest.MonkeyPatch, published) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("schedd.dashboard.plan_columns.MAX_JOBS", 10)
    columns = plan_columns(published, lambda _: True)
    assert len(columns["jobs"]["id"]) == 10
    assert columns["left_out"] == 30
    assert MAX_JOBS == 20_000


def test_boolean_resources_of_openpbs_are_properties_without_their_value() -> None:
    """Each rack of the OpenPBS demo was a grouping of its own, with the group `rack1=True`."""
    nodes = {
        f"n{i}": NodeFacts(name=f"n{i}", cpus=16, properties=(f"rack{i}=True", "arch=x86")) for i in (1, 2)
    }
    assert list_groupings(nodes.values(), None) == ["arch", "property", "class", "state"]
    rows, groups = build_rows(list(nodes), nodes, "property", ("rack1",), None)
    assert rows == [("group", "rack1"), ("node", "n1"), ("group", "rack2")]
    assert groups == {"rack1": ["n1"], "rack2": ["n2"]}
    assert match_nodes(nodes, "rack1") == match_nodes(nodes, "rack1=True") == ["n1"]
    assert select_nodes(nodes, "rack2") == ["n2"]
