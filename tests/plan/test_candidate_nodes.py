"""Candidate nodes of requests are the nodes that a comparison with each class of nodes finds."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from schedd.model import Chunk
from schedd.plan.candidate_nodes import CandidateNodes, NodeClass

COLUMNS = {"cpus": 0, "share": 1, "mem": 2, "gpus": 3, "disk": 4}
FEATURES = ("fast", "ib")


@given(st.integers(0, 1 << 32))
def test_classes_that_fit_are_those_of_a_plain_comparison(seed: int) -> None:
    random = Random(seed)
    classes = {
        NodeClass(
            frozenset(name for name in FEATURES if random.random() < 0.5),
            (
                random.randint(1, 8),
                1 << 20,
                random.randint(0, 5),
                random.randint(0, 2),
                random.choice((0, 9)),
            ),
        ): [row]
        for row in range(random.randint(0, 6))
    }
    nodes = CandidateNodes(COLUMNS, {}, classes)
    for _ in range(40):
        asked = {name: random.randint(1, 9) for name in ("cpus", "mem", "gpus", "disk", "tape")}
        named = [(name, need) for name, need in asked.items() if random.random() < 0.4]
        wanted = tuple(frozenset({name}) for name in FEATURES if random.random() < 0.3)
        expected = tuple(
            i
            for i, one in enumerate(classes)
            if all(name in COLUMNS and one.capacity[COLUMNS[name]] >= need for name, need in named)
            and all(names & one.features for names in wanted)
        )
        assert nodes.fitting_classes(Chunk(features=wanted), named, by_name=False) == expected
