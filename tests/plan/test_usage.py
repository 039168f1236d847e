"""Utilisation of an amount relative to the available and the requested amount."""

import numpy as np
import pytest

from schedd.plan.usage import Spans, measure_usage


def spans(*rows: tuple[int, int, int]) -> Spans:
    table = np.array(rows, np.int64).reshape(-1, 3)
    return Spans(table[:, 0], table[:, 1], table[:, 2])


def test_requested_amount_bounds_the_denominator() -> None:
    asked, used = spans((0, 100, 2), (50, 150, 4)), spans((0, 100, 2), (100, 150, 4))
    found = measure_usage(spans((0, 200, 4)), asked, used, 0, 200)
    assert (found.there, found.used) == (4.0, 2 * 100 / 200 + 4 * 50 / 200)
    # Demand and use are 2 up to 50; 6 and 4 up to 100; then 4 and 4.
    assert found.share == (2 * 50 + 2 * 50 + 4 * 50) / (2 * 50 + 4 * 50 + 4 * 50)


def test_only_the_period_counts() -> None:
    asked, used = spans((0, 1_000, 4)), spans((500, 1_000, 4))
    assert measure_usage(spans((0, 1_000, 4)), asked, used, 400, 600).share == 0.5
    assert measure_usage(spans((0, 1_000, 4)), asked, used, 600, 700).share == 1.0
    assert measure_usage(spans((0, 1_000, 4)), asked, used, 0, 500).share == 0.0


def test_varying_amounts_are_averaged_over_time() -> None:
    there = spans((0, 100, 8), (50, 100, -4))  # half of it fails
    found = measure_usage(there, spans((0, 100, 8)), spans((0, 100, 8)), 0, 100)
    assert found.there == 6.0
    assert found.share == 1.0, "what runs on where it counts as gone is not more than all"


def test_share_of_nothing_is_none() -> None:
    assert measure_usage(spans((0, 10, 4)), spans(), spans(), 0, 10).share is None
    assert measure_usage(spans(), spans((0, 10, 1)), spans((0, 10, 1)), 0, 10).share is None
    with pytest.raises(ValueError, match="no time at all"):
        measure_usage(spans(), spans(), spans(), 5, 5)
