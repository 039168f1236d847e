"""Partitions in requests, of both families, with and without partitions of the site."""

import pytest

from schedd.dialect.errors import RequestError
from schedd.dialect.openpbs import parse_openpbs
from schedd.dialect.partition import PARTITION, read_partitions
from schedd.dialect.torque import parse_torque
from schedd.wire import ResourceFacts, ResourceTypes


@pytest.mark.parametrize(
    ("resources", "names"),
    [
        ({"partition": "a"}, ("a",)),
        ({"PARTITION": " b:a,b "}, ("b", "a")),
        ({"x.partition": "[a]"}, ("a",)),
        ({"partition": "ALL"}, ()),
        ({"partition": ""}, ()),
        ({"nodes": "a"}, ()),
    ],
)
def test_names_are_read_in_the_order_of_the_request(
    resources: dict[str, str], names: tuple[str, ...]
) -> None:
    assert read_partitions(resources) == names


@pytest.mark.parametrize("text", ["a;b", "1x", "a b", ":"])
def test_a_value_that_is_no_list_of_names_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="no list of names"):
        read_partitions({"partition": text})
    with pytest.raises(RequestError, match="no list of names"):
        parse_openpbs({"select": "1", "partition": text})


def test_without_partitions_of_the_site_nodes_need_a_property_or_resource_of_that_name() -> None:
    torque = parse_torque({"nodes": "2", "partition": "a:b"})
    assert torque.chunks[0].features == (frozenset({"a", "b"}),)
    openpbs = parse_openpbs({"select": "2:ncpus=1", "partition": "a"})
    assert openpbs.chunks[0].features == (frozenset({"a", "partition=a"}),)
    assert openpbs.notes == ()


def test_with_partitions_of_the_site_the_name_is_no_part_of_the_request() -> None:
    types = ResourceTypes({"partition": ResourceFacts("string", "h")})
    for found in (
        parse_torque({"nodes": "2", "partition": "a"}, obeyed={PARTITION}),
        parse_torque({"nodes": "2", "x.partition": "a"}, obeyed={PARTITION}),
        parse_openpbs({"select": "2:ncpus=1", "partition": "a"}, types=types, obeyed={PARTITION}),
        parse_openpbs({"ncpus": "2", "partition": "a"}, types=types, obeyed={PARTITION}),
    ):
        assert all(not chunk.features for chunk in found.chunks)
        assert found.notes == ()
