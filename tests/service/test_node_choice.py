"""Description of the choice of nodes."""

import pytest

from schedd.plan.scarcity import NodeChoice
from schedd.service.questions.node_choice import describe_node_choice

_MIB_64 = 64 << 20


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (NodeChoice(True, (), ()), "tightest fit of the nodes that allow this start"),
        (
            NodeChoice(False, (), (("gpus", 1),)),
            "tightest fit of the nodes that allow this start (spare_scarce is off)",
        ),
        (
            NodeChoice(True, (), (("gpus", 4), ("gpus", 1), ("mem", _MIB_64), ("ib", 0), ("fpga", 2))),
            (
                "of the nodes that allow this start, those that leave scarce resources to jobs "
                "that need them (it does not request gpus, 64 GiB mem or more, ib and 1 more)"
            ),
        ),
        (
            NodeChoice(True, (("gpus", 4),), ()),
            (
                "its nodes have 4 gpus or more, which it does not request; "
                "nodes without that did not allow this start when it was planned"
            ),
        ),
    ],
)
def test_node_choice_names_the_rule_and_the_scarce_resources(choice: NodeChoice, words: str) -> None:
    assert describe_node_choice(choice) == words
