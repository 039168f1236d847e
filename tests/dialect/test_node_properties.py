"""Properties of requests as readable text."""

import pytest

from schedd.dialect.node_properties import describe_property


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
