"""Names of nodes folded to ranges."""

from hypothesis import given
from hypothesis import strategies as st

from schedd.api.node_selection import fold_names, select_nodes
from schedd.wire import NodeFacts


def test_consecutive_numbers_are_a_range() -> None:
    assert fold_names(["n3", "n1", "n2", "n9", "gpu1", "login"]) == "gpu1, login, n[1-3,9]"
    assert fold_names([f"n{number:03}-ib" for number in range(1, 21)]) == "n[001-020]-ib"
    assert fold_names(["n9", "n10"]) == "n9, n10"
    assert fold_names([]) == ""


@given(st.sets(st.from_regex(r"[a-c][0-9]{1,3}(x[0-9])?", fullmatch=True), min_size=1, max_size=40))
def test_folded_names_select_the_same_nodes(names: set[str]) -> None:
    nodes = {name: NodeFacts(name=name, cpus=4) for name in names | {"other"}}
    assert set(select_nodes(nodes, fold_names(names))) == names
