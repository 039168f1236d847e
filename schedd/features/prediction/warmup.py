"""Warm-up: calls the kernels of predictions once, so that they are compiled before the daemon is ready."""

from schedd.engine import EngineState
from schedd.features.prediction.expected_starts import compute_expected_starts, expected_starts_input
from schedd.predict import RunTimes


def warm_up(state: EngineState) -> None:
    """Compute the expected starts of a small artificial cluster. ``state`` has predictions."""
    RunTimes().grow()
    given = expected_starts_input(state)
    assert given is not None
    compute_expected_starts(given)
