"""The choice of victims has the least cost: compared with all subsets."""

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from schedd.features.preemption.victim_choice import choose_victims

_KINDS = 3
_AMOUNT = st.integers(0, 8)
_CANDIDATES = st.lists(st.tuples(st.integers(0, 30), st.tuples(*[_AMOUNT] * _KINDS)), min_size=0, max_size=8)


def frees_enough(frees: list[tuple[int, ...]], chosen: tuple[int, ...], missing: tuple[int, ...]) -> bool:
    return all(sum(frees[i][k] for i in chosen) >= amount for k, amount in enumerate(missing))


@given(_CANDIDATES, st.tuples(*[st.integers(-2, 20)] * _KINDS))
def test_victims_have_the_least_cost_of_all_sets_that_free_enough(
    candidates: list[tuple[int, tuple[int, ...]]], missing: tuple[int, ...]
) -> None:
    costs, frees = [cost for cost, _ in candidates], [amounts for _, amounts in candidates]
    numbers = range(len(costs))
    subsets = chain.from_iterable(combinations(numbers, count) for count in range(len(costs) + 1))
    possible = [one for one in subsets if frees_enough(frees, one, missing)]
    found = choose_victims(costs, frees, missing)
    if not possible:
        assert found is None
        return
    assert found is not None
    assert frees_enough(frees, found, missing)
    best = min((sum(costs[i] for i in one), len(one)) for one in possible)
    assert (sum(costs[i] for i in found), len(found)) == best
    # A search that is cut off still frees enough, and preempts no job in vain.
    quick = choose_victims(costs, frees, missing, limit=0)
    assert quick is not None
    assert frees_enough(frees, quick, missing)
    assert not any(frees_enough(frees, tuple(j for j in quick if j != i), missing) for i in quick)


def test_hundreds_of_candidates_are_chosen_within_the_limit_of_the_search() -> None:
    costs = [100 + (i * 37) % 101 for i in range(400)]
    frees = [[1 + i % 4, 2] for i in range(400)]
    found = choose_victims(costs, frees, [64, 40])
    assert found is not None
    assert frees_enough([tuple(one) for one in frees], found, (64, 40))
