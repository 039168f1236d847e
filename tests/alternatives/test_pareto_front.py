"""Dominance, weights and crowding: hand-made sets, and comparison with the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.alternatives.pareto_front import ObjectiveWeights, crowding_distance, pareto_front, select_spread


def test_front_has_the_undominated_vectors_from_a_hand_made_set() -> None:
    vectors = np.array([[1.0, 5.0], [2.0, 2.0], [3.0, 3.0], [5.0, 1.0], [2.0, 2.0], [2.0, 4.0]])
    assert pareto_front(vectors).tolist() == [0, 1, 3], "3,3 and 2,4 are dominated; of equal ones the first"
    assert pareto_front(np.zeros((0, 2))).tolist() == []
    assert pareto_front(np.array([[7.0, 7.0]])).tolist() == [0]


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12))
def test_front_holds_exactly_the_undominated_vectors(rows: list[tuple[int, int, int]]) -> None:
    vectors = np.array(rows, float)
    best = pareto_front(vectors).tolist()
    for i, one in enumerate(rows):
        beaten = any(all(a <= b for a, b in zip(o, one, strict=True)) and o != one for o in rows)
        if i in best:
            assert not beaten
        else:
            assert beaten or one in rows[:i]


def test_crowding_distance_matches_the_definition() -> None:
    vectors = np.array([[0.0, 10.0], [4.0, 4.0], [1.0, 9.0], [10.0, 0.0]])
    # By each objective the neighbours of 4,4 are 10 and 1, of 9,1: 4 and 0; all over a spread of 10.
    assert crowding_distance(vectors).tolist() == [np.inf, pytest.approx(1.8), pytest.approx(1.0), np.inf]
    assert crowding_distance(np.full((3, 2), 7.0)).tolist() == [0, 0, 0], (
        "an objective without a spread says nothing"
    )


def test_selected_vectors_are_spread_over_the_front() -> None:
    x = np.array([0.0, 0.1, 0.2, 5.0, 9.9, 10.0])
    vectors = np.stack([x, 10 - x], axis=1)
    kept = select_spread(vectors, 3)
    assert {0, 5} < set(kept.tolist()), "the ends stay"
    assert 3 in kept
    assert select_spread(vectors, 10).tolist() == list(range(6))


def test_weights_apply_to_values_relative_to_the_reference() -> None:
    balance = ObjectiveWeights({"wait": 1.0, "energy": 2.0}, {"wait": 100.0, "energy": 50.0})
    live = np.array([100.0, 50.0])
    assert balance.cost(live) == 3.0
    assert balance.is_as_good(np.array([110.0, 47.5]), live), (
        "10 % more wait for 5 % less energy, twice as dear"
    )
    assert not balance.is_as_good(np.array([110.0, 48.0]), live)


def test_increase_over_a_zero_reference_costs_infinitely_much() -> None:
    balance = ObjectiveWeights({"lateness": 1.0, "wait": 1.0}, {"lateness": 0.0, "wait": 10.0})
    assert balance.cost(np.array([0.0, 5.0])) == 0.5
    assert balance.cost(np.array([0.1, 5.0])) == float("inf")


@pytest.mark.parametrize("weights", [{"wait": 0.0}, {"wait": -1.0}, {"wait": float("nan")}, {}])
def test_invalid_weights_are_refused(weights: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        ObjectiveWeights(weights, {"wait": 1.0})
