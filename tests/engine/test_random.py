"""The engine among random events, some of them wrong, late, twice or out of order."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedd.engine.facts import arrivals, reevaluation_queue
from schedd.engine.run import reevaluation
from tests.engine.chaos.lives import Chaos, Placed, Ranked, Shortest, ShortestRanked, Strict, play
from tests.engine.chaos.values import seeds
from tests.property_examples import examples

KINDS = [Chaos, Ranked, Placed, Strict, Shortest, ShortestRanked]

TestChaos = Chaos.TestCase
TestRanked = Ranked.TestCase
TestChaos.settings = TestRanked.settings = settings(
    max_examples=examples(30), stateful_step_count=30, suppress_health_check=list(HealthCheck)
)


@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(seed=seeds, steps=st.integers(1, 150), kind=st.sampled_from(KINDS))
def test_a_life_among_random_events_breaks_nothing(seed: int, steps: int, kind: type[Chaos]) -> None:
    play(kind(), Random(seed), steps)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs at a time, where it would be hundreds."""
    monkeypatch.setattr(arrivals, "ARRIVALS_PER_CALL", 2)
    monkeypatch.setattr(reevaluation_queue, "ARRIVALS_PER_CALL", 2)
    monkeypatch.setattr(reevaluation, "ARRIVALS_PER_CALL", 2)
    monkeypatch.setattr(reevaluation, "_LOOKS", 4)


@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("seed", range(examples(12)))
def test_random_operation_with_small_slices_breaks_no_invariant(seed: int) -> None:
    play(KINDS[seed % len(KINDS)](), Random(seed), 60)


@pytest.mark.soak
@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("seed", range(1000, 1500))
def test_long_random_operation_with_small_slices_breaks_no_invariant(seed: int) -> None:
    play(KINDS[seed % len(KINDS)](), Random(seed), 400)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000))
def test_a_long_life_among_random_events_breaks_nothing(seed: int) -> None:
    play(KINDS[seed % len(KINDS)](), Random(seed), 400)
