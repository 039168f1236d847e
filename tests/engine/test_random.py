"""The engine among random events, some of them wrong, late, twice or out of order."""

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.chaos import Chaos, Placed, Ranked, play, seeds

TestChaos = Chaos.TestCase
TestRanked = Ranked.TestCase
TestChaos.settings = TestRanked.settings = settings(
    max_examples=30, stateful_step_count=30, suppress_health_check=list(HealthCheck)
)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(seed=seeds, steps=st.integers(1, 150), kind=st.sampled_from([Chaos, Ranked, Placed]))
def test_a_life_among_random_events_breaks_nothing(seed: int, steps: int, kind: type[Chaos]) -> None:
    play(kind(), Random(seed), steps)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1000))
def test_a_long_life_among_random_events_breaks_nothing(seed: int) -> None:
    play([Chaos, Ranked, Placed][seed % 3](), Random(seed), 400)
