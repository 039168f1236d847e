"""A replay with searches: better plans, kept promises, the same result every time."""

import pytest

from schedd.replay.driver import PLANNING_POLICY, replay
from schedd.replay.lublin import generate
from schedd.replay.prepare import Prepared, prepare
from schedd.replay.result import TIMINGS, ReplayResult
from schedd.replay.searching import NO_PROMISE, SEARCH_POLICY, Searching
from schedd.replay.site import equal_nodes, one_node
from schedd.replay.workload import select


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    chosen = select(generate(300, 32, seed=4, load=1.1), procs=32)
    return prepare(chosen, one_node(32))


def rows(result: ReplayResult) -> dict[str, object]:
    return {name: value for name, value in result.as_row().items() if name not in TIMINGS}


def test_searches_shorten_the_waits_where_nothing_is_promised(prepared: Prepared) -> None:
    plain = replay(prepared, PLANNING_POLICY, slack=NO_PROMISE)
    searched = replay(prepared, PLANNING_POLICY, slack=NO_PROMISE, searching=Searching(), validate=True)
    assert (plain.searches, plain.policy) == (0, PLANNING_POLICY)
    assert searched.policy == SEARCH_POLICY
    assert searched.searches > 10
    assert searched.metrics.avg_wait_s < 0.95 * plain.metrics.avg_wait_s
    assert searched.metrics.avg_bounded_slowdown_10s < plain.metrics.avg_bounded_slowdown_10s


def test_a_seed_gives_one_result_and_another_seed_another(prepared: Prepared) -> None:
    one, again, other = (
        rows(replay(prepared, PLANNING_POLICY, slack=3600, searching=Searching(moves=60, seed=seed)))
        for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


@pytest.mark.parametrize("slack", [0, 1800])
def test_no_promise_is_broken_by_a_search(slack: int) -> None:
    chosen = select(generate(200, 32, seed=5, load=1.2), estimates="user", procs=32)
    on_nodes = prepare(chosen, equal_nodes(8, 4))
    result = replay(on_nodes, PLANNING_POLICY, slack=slack, searching=Searching(every=60), validate=True)
    assert (result.promise_breaches, result.searches > 10) == (0, True)


@pytest.mark.parametrize("wrong", [{"moves": -1}, {"seconds": -1.0}, {"moves": None}, {"every": 0}])
def test_a_search_without_a_sensible_bound_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"moves|seconds|every|bound"):
        Searching(**wrong)
