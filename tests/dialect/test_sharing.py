"""Vnodes with a `sharing` attribute, which overrides the job's request for exclusive nodes."""

from dataclasses import replace
from itertools import product

import pytest

from schedd.dialect import node_kinds, parse_openpbs
from schedd.model import Node, Request

GIB = 1 << 20


def node(name: str, sharing: str = "", *, cpus: int = 8, gpus: int = 0, **more: str) -> Node:
    features = {f"host-{name}", *(f"{key}={value}" for key, value in more.items())}
    if sharing:
        features.add(f"sharing={sharing}")
    return Node(name, cpus, 16 * GIB, gpus=gpus, features=frozenset(features))


def parse_request(select: str, place: str, *nodes: Node) -> Request:
    return parse_openpbs({"select": select, "place": place}, kinds=node_kinds(nodes))


def test_nodes_without_sharing_attribute_have_no_kinds() -> None:
    assert node_kinds([node("a"), node("b", cpus=16)]) == ()
    assert parse_request("1:ncpus=1", "free", node("a")).exclusive is False


@pytest.mark.parametrize(
    ("sharing", "place", "exclusive"),
    [
        ("default_excl", "free", True),
        ("default_excl", "free:shared", False),
        ("default_excl", "free:excl", True),
        ("default_exclhost", "free", True),
        ("default_exclhost", "free:shared", False),
        ("force_excl", "free:shared", True),
        ("force_exclhost", "free", True),
        ("ignore_excl", "free:excl", False),
        ("ignore_excl", "free", False),
    ],
)
def test_common_sharing_overrides_the_request(sharing: str, place: str, exclusive: bool) -> None:
    request = parse_request("2:ncpus=2", place, node("a", sharing), node("b", sharing))
    assert request.exclusive is exclusive
    assert request.chunks[0].features == (), "any of them will do"


PLACES = ("free:shared", "free:excl", "free:exclhost", "free")
FIRST = (*PLACES, "vscatter", "vscatter:shared", "vscatter:excl")
SHARED_BY: dict[str, set[tuple[str, str]]] = {
    "default_excl": {("free:shared", "free:shared"), ("vscatter:shared", "free:shared")},
    "default_exclhost": {("free:shared", "free:shared"), ("vscatter:shared", "free:shared")},
    "force_excl": set(),
    "force_exclhost": set(),
    "ignore_excl": set(product(FIRST, PLACES)),
}
"""By the `sharing` of a host with one vnode: for which places pbs_sched 23.06 ran two jobs there at once, of
these 28 pairs."""


@pytest.mark.parametrize("sharing", SHARED_BY)
def test_jobs_share_a_host_with_one_vnode_as_with_the_servers_scheduler(sharing: str) -> None:
    found = {
        pair
        for pair in product(FIRST, PLACES)
        if not any(parse_request("1:ncpus=1", place, node("a", sharing)).exclusive for place in pair)
    }
    assert found == SHARED_BY[sharing]


def test_job_is_restricted_to_nodes_with_suitable_sharing() -> None:
    nodes = (node("a"), node("g", "force_excl"))
    request = parse_request("1:ncpus=2", "free", *nodes)
    assert (request.exclusive, request.chunks[0].features) == (False, (frozenset({"!sharing=force_excl"}),))
    nodes = (node("a", "ignore_excl"), node("g", "default_excl"))
    request = parse_request("1:ncpus=2", "excl", *nodes)
    assert (request.exclusive, request.chunks[0].features) == (True, (frozenset({"sharing=default_excl"}),))


@pytest.mark.parametrize(
    "select", ["1:ncpus=2:ngpus=1", "1:ncpus=32", "1:vnode=g", "1:host=host-g", "1:big=True"]
)
def test_job_that_fits_only_on_exclusive_nodes_has_them_exclusively(select: str) -> None:
    nodes = (node("a"), node("g", "force_excl", cpus=64, gpus=2, big="True"))
    request = parse_request(select, "free", *nodes)
    assert request.exclusive
    assert frozenset({"sharing=force_excl"}) in request.chunks[0].features


def test_job_that_needs_both_kinds_is_exclusive_and_has_a_note() -> None:
    nodes = (node("a", cpus=64), node("g", "force_excl", gpus=2))
    request = parse_request("1:ncpus=32+1:ngpus=1", "free", *nodes)
    assert request.exclusive
    assert "only together" in request.notes[0]


def test_job_whose_chunks_need_a_resource_of_both_kinds_together_uses_both() -> None:
    """Each chunk by itself fits on the exclusive node, both together only if the first goes elsewhere."""
    blue = (("blue", 2),)
    nodes = (replace(node("a"), resources=blue), replace(node("g", "default_exclhost"), resources=blue))

    def parse(select: str) -> Request:
        return parse_openpbs({"select": select}, kinds=node_kinds(nodes), generic=["blue"])

    request = parse("1:ncpus=1:blue=1+2:ncpus=1:vnode=g:blue=1")
    assert (request.exclusive, request.chunks[0].features) == (True, ())
    assert "only together" in request.notes[0]
    request = parse("1:ncpus=1:blue=1+1:ncpus=1:vnode=g:blue=1")
    assert request.chunks[0].features == (frozenset({"sharing=default_exclhost"}),)


@pytest.mark.parametrize("place", ["scatter", "free"])
def test_job_with_more_chunks_than_one_kind_has_nodes_uses_both(place: str) -> None:
    """It was *never*: each chunk by itself fits on the shared nodes, all of them do not."""
    nodes = (node("a"), node("b"), node("g", "force_excl"))
    request = parse_request("3:ncpus=5", place, *nodes)
    assert (request.exclusive, request.chunks[0].features) == (True, ())
    assert "only together" in request.notes[0]
    assert parse_request("1:ncpus=8+1:ncpus=7+1:ncpus=6", place, *nodes).exclusive
    assert not parse_request("2:ncpus=5", place, *nodes).exclusive
    assert parse_request("2:ncpus=2:host=host-a", "scatter", *nodes).notes == (), "there is one such node"


def test_job_that_fits_nowhere_has_no_note_about_sharing() -> None:
    nodes = (node("a"), node("g", "force_excl"))
    request = parse_request("1:ncpus=500", "free", *nodes)
    assert (request.exclusive, request.chunks[0].features, request.notes) == (False, (), ())


def test_reservation_does_not_change_a_nodes_kind() -> None:
    before = node_kinds([node("a", "force_excl"), node("b", "force_excl")])
    after = node_kinds([node("a", "force_excl", resv="R7"), node("b", "force_excl")])
    assert before == after
    nodes = (node("a", "force_excl", resv="R7"), node("b"))
    assert not parse_request("1:ncpus=1:resv=R7", "free", *nodes).exclusive
    assert parse_request("1:ncpus=1:resv=R7", "free:excl", *nodes).exclusive, "as the adapter writes it"


def test_node_names_do_not_split_a_kind() -> None:
    [kind] = node_kinds([node("a", "force_excl"), node("b", "force_excl")])
    assert kind.names == {"a", "b", "host-a", "host-b"}
