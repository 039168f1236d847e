"""Properties of requests as readable text."""

import pytest

from schedd.dialect import parse_openpbs, request_words
from schedd.dialect.node_properties import describe_property
from schedd.wire.resources import submitted_resources


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("big", "big"),
        ("!big", "not big"),
        ("of_queue=fast", "queue fast"),
        ("!of_queue=True", "no queue of its own"),
        ("resv=R12", "reservation R12"),
        ("a_vnode_of_ncpus=3_mem=5gb", "a single vnode with ncpus=3, mem=5gb"),
        ("a_vnode_of_chunks=2", "a vnode for each of 2 chunks"),
    ],
)
def test_properties_of_the_adapter_are_described_in_words(name: str, words: str) -> None:
    assert describe_property(name) == words


def test_what_the_adapter_adds_to_a_request_is_not_shown() -> None:
    select = "2:ncpus=1:gpu_type=a100:cpus_of_gpu_type_a100=1:own_vnode=1+1:ncpus=5:vnode=a_vnode_of_ncpus=5"
    shown = submitted_resources({"select": select, "place": "free:excl", "walltime": "60"})
    assert shown == {
        "select": "2:ncpus=1:gpu_type=a100+1:ncpus=5",
        "place": "vscatter:excl",
        "walltime": "60",
    }
    own = {"select": "1:ncpus=1:parts_of_cake=2", "place": "free"}
    assert submitted_resources(own) is own
    request = parse_openpbs({"select": select}, generic=["cpus_of_gpu_type_a100", "own_vnode"])
    of_queue = parse_openpbs({"select": "1:ncpus=1"}, defaults={"neednodes": "!of_queue=True"})
    assert request_words(request).startswith(
        "2 x (1 cpu on gpu_type=a100) + 1 x (5 cpus on a single vnode with ncpus=5); free"
    )
    assert request_words(of_queue).startswith("1 x (1 cpu); free")
