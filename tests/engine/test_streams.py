"""Random streams of events: an engine, one restored at each step and one restored earlier decide the same."""

from random import Random

import pytest

from tests.engine.chaos.streams import KINDS, QUEUE_KINDS, stream

_KINDS = [*KINDS, *QUEUE_KINDS]


@pytest.mark.parametrize("seed", range(2 * len(KINDS)))
def test_a_restored_engine_decides_the_same_in_a_random_stream(seed: int) -> None:
    stream(KINDS[seed % len(KINDS)](Random(seed)), 60)


@pytest.mark.parametrize("seed", range(len(QUEUE_KINDS)))
def test_a_restored_engine_decides_the_same_under_a_queue_policy(seed: int) -> None:
    stream(QUEUE_KINDS[seed](Random(seed)), 60)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(100, 120))
def test_a_restored_engine_decides_the_same_in_a_random_stream_of_ten_thousand_steps(seed: int) -> None:
    stream(_KINDS[seed % len(_KINDS)](Random(seed), every_call=False), 10_000)
