"""Names of nodes folded to ranges."""

from hypothesis import given
from hypothesis import strategies as st

from schedd.api.node_selection import (
    fold_hundreds,
    fold_names,
    match_nodes,
    name_nodes,
    narrow_selection,
    natural_key,
    select_nodes,
)
from schedd.wire import NodeFacts


def test_consecutive_numbers_are_a_range() -> None:
    assert fold_names(["n3", "n1", "n2", "n9", "gpu1", "login"]) == "gpu1, login, n[1-3,9]"
    assert fold_names([f"n{number:03}-ib" for number in range(1, 21)]) == "n[001-020]-ib"
    assert fold_names(["n8", "n9", "n10", "n12"]) == "n[8-10,12]"
    assert fold_names(["n08", "n9", "n10"]) == "n[08,9-10]"
    assert fold_names(["n098", "n099", "n100"]) == "n[098-100]"
    assert fold_names(["n99", "n0100"]) == "n[99,0100]"
    assert fold_names([]) == ""


@given(st.sets(st.from_regex(r"[a-c][0-9]{1,3}(x[0-9])?", fullmatch=True), min_size=1, max_size=40))
def test_folded_names_select_the_same_nodes(names: set[str]) -> None:
    nodes = {name: NodeFacts(name=name, cpus=4) for name in names | {"other"}}
    assert set(select_nodes(nodes, fold_names(names))) == names


def test_names_are_folded_by_hundreds() -> None:
    names = [f"n{number:04}" for number in range(95, 105)] + ["login", "n7", "n17", "n107-ib"]
    assert {search: len(found) for search, found in fold_hundreds(names).items()} == {
        "login": 1,
        "n[0-9]": 1,
        "n[00-99]": 1,
        "n[0000-0099]": 5,
        "n[0100-0199]": 5,
        "n[100-199]-ib": 1,
    }


@given(st.sets(st.from_regex(r"[a-c][0-9]{1,4}(x[0-9])?", fullmatch=True), min_size=1, max_size=40))
def test_each_hundred_is_a_search_for_its_nodes(names: set[str]) -> None:
    nodes = {name: NodeFacts(name=name, cpus=4) for name in names}
    folded = fold_hundreds(sorted(names, key=natural_key))
    assert {name for found in folded.values() for name in found} == names
    for search, found in folded.items():
        assert match_nodes(nodes, search) == found


def test_a_narrowed_search_finds_a_part_of_each_alternative() -> None:
    nodes = {
        name: NodeFacts(name=name, cpus=4, properties=properties)
        for name, properties in {"n1": ("gpu", "r=1"), "n2": ("gpu",), "n3": ("r=1",), "n4": ("r=1",)}.items()
    }
    assert match_nodes(nodes, narrow_selection("gpu, n[3-9]", "n[1-3]")) == ["n1", "n2", "n3"]
    assert match_nodes(nodes, narrow_selection("n[1-3], gpu", "r=1")) == ["n1", "n3"]
    assert match_nodes(nodes, narrow_selection(" , ", "r=1")) == ["n1", "n3", "n4"]


def test_many_nodes_are_named_in_brief() -> None:
    assert name_nodes(["n1", "n2"]) == "n1, n2"
    assert name_nodes([f"n{i}" for i in range(901, 1001)]) == "n[901-1000] (100 nodes)"
    scattered = [f"n{i * i:05}" for i in range(50)]
    assert name_nodes(scattered, 2) == "n00000, n00001 and 48 more"
