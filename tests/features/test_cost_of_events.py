"""The work for an event follows its changes, not the number of nodes, with all features of a centre."""

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import pytest

from schedd.wire import QueueFacts
from tests.engine.cluster import Cluster
from tests.features.test_centre import HOUR, centre_nodes, configured_site

FEW, MANY = 100, 500


def centre(nodes: int) -> Cluster:
    """The centre on a part of its nodes. A quarter of them is in maintenance, most of that down."""
    made = Cluster(0, site=configured_site(), validate=False, slack=1800)
    for node in centre_nodes()[:: 1000 // nodes]:
        made.server.nodes[node.name] = node
    for name in ("urgent", "idle"):
        made.server.queues[name] = QueueFacts(name=name)
    made.send(made.server.snapshot())
    for number in range(20):
        made.submit(f"early{number}", "4:ppn=32", 5 * HOUR, runtime=4 * HOUR)
    names = list(made.server.nodes)
    made.reserve("maintenance", *names[: nodes // 4], start=0, end=24 * HOUR)
    for name in names[: nodes // 5]:
        made.send(*made.server.change_node(replace(made.server.nodes[name], state="down")))
    made.at(600)
    return made


EVENTS: dict[str, Callable[[Cluster, str], object]] = {
    "nothing": lambda one, _: one.send(),
    "arrival": lambda one, _: one.submit("late", "1:ppn=4", 600, runtime=300),
    "node down": lambda one, node: one.node(node, state="down"),
    "node up": lambda one, node: one.node(node, state="up"),
    "node offline": lambda one, node: one.node(node, state="drain"),
    "node back": lambda one, node: one.node(node, state="up"),
}


def count_calls(do: Callable[[], object]) -> Counter[str]:
    """Count the calls of functions written in Python, by file and name."""
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found[f"{frame.f_code.co_filename}:{frame.f_code.co_name}"] += 1

    sys.setprofile(note)
    try:
        do()
    finally:
        sys.setprofile(None)
    return found


@pytest.fixture(scope="module")
def calls() -> dict[str, list[Counter[str]]]:
    """By event: the calls on a small and on a large cluster."""
    found: dict[str, list[Counter[str]]] = {name: [] for name in EVENTS}
    for nodes in (FEW, MANY):
        one = centre(nodes)
        for name, happens in EVENTS.items():
            found[name].append(count_calls(lambda: happens(one, list(one.server.nodes)[nodes // 2])))  # noqa: B023
    return found


@pytest.mark.parametrize("event", EVENTS)
def test_work_for_an_event_does_not_grow_with_the_nodes(
    event: str, calls: dict[str, list[Counter[str]]]
) -> None:
    few, many = calls[event]
    more = (many - few).most_common(5)
    assert many.total() <= 1.5 * few.total() + 100, (few.total(), many.total(), more)
