"""Order of decisions, and the queue that keeps the latest one about each subject."""

from itertools import pairwise

import pytest

from schedd.wire import Switch
from server_adapter.bridge.decision_order import decision_order
from server_adapter.bridge.decision_queue import DecisionQueue


def switch(name: str, *, term: int = 7, time: int = 100) -> Switch:
    return Switch(id=name, cause="e", time=time, node="n1", on=True, expires=time + 60, term=term)


@pytest.mark.parametrize(
    "made",
    [
        [switch("d9"), switch("d10"), switch("d100")],
        [switch("d000000000009"), switch("d000000000010")],
        [switch("d999999999999"), switch("d1000000000000")],
        [switch("d8", time=9000), switch("d9", time=10)],
        [switch("d5000", term=7), switch("d1", term=9, time=10)],
        [switch("d5000", term=0, time=100), switch("d1", term=0, time=101)],
    ],
    ids=["lengths", "zeros", "more digits", "clock set back", "lost database", "no database"],
)
def test_a_later_decision_replaces_an_earlier_one_and_not_the_other_way_round(made: list[Switch]) -> None:
    assert all(decision_order(b).follows(decision_order(a)) for a, b in pairwise(made))
    queue: DecisionQueue[Switch] = DecisionQueue()
    for one in [*made, *made[:-1]]:
        queue.add("n1", one)
    assert queue.first() == ("n1", made[-1])


def test_a_decision_that_is_delivered_again_changes_nothing() -> None:
    queue: DecisionQueue[Switch] = DecisionQueue()
    for _ in range(2):
        queue.add("n1", switch("d1"))
    queue.settle("n1", queue.first()[1])
    assert not queue
