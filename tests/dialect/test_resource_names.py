"""Names of requested resources in other spellings."""

from collections.abc import Callable
from typing import Any

import pytest

from schedd.dialect.deadline import read_deadline
from schedd.dialect.partition import read_partitions
from schedd.dialect.qos import read_qos
from schedd.dialect.resource_names import find_spellings
from schedd.dialect.shared import shared_amounts


def test_spellings_keep_the_order_of_the_request() -> None:
    names = ("nodes", " X.QOS", "walltime", "Qos")
    assert find_spellings(names, frozenset({"qos", "x.qos"})) == (" X.QOS", "Qos")


READERS: dict[str, tuple[Callable[[dict[str, str]], Any], dict[str, str], Any]] = {
    "the resource precedes the extension": (read_qos, {"X.QOS": "low", "QOS": "high"}, "high"),
    "an empty value is none": (read_qos, {"qos": " ", "x.qos": "low"}, "low"),
    "partition": (read_partitions, {"walltime": "60", "X.Partition": "a:b"}, ("a", "b")),
    "an empty partition is none": (read_partitions, {"partition": "", "x.partition": "b"}, ("b",)),
    "deadline": (lambda one: read_deadline(one, 100), {" DEADLINE": "+60"}, 160),
    "licence": (lambda one: shared_amounts(one, ["Matlab"]), {"MATLAB": "2"}, {"Matlab": 2}),
    "licence in a list": (lambda one: shared_amounts(one, {"matlab"}), {"GRES": "Matlab:3"}, {"matlab": 3}),
    "other licence": (lambda one: shared_amounts(one, {"matlab"}), {"ansys": "3"}, {}),
}


@pytest.mark.parametrize("case", READERS)
def test_resources_are_found_in_each_spelling(case: str) -> None:
    read, resources, expected = READERS[case]
    assert read(resources) == expected
