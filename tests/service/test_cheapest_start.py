"""What-if: the cheapest start before a latest end."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.plan.views import StartWindow
from schedd.service.questions.cheapest_start import candidate_starts
from schedd.service.questions.what_if import WhatIfAnswer
from tests.service.planner_harness import T, job, node, planner
from tests.waits import WAIT_S

DAY = 86_400
MIDNIGHT = T - T % DAY + DAY
SITE: dict[str, Any] = {
    "prices": [
        {"core_hour": 1.0},
        {
            "core_hour": 0.25,
            "first": "2023-11-01T22:00:00",
            "last": "2023-11-02T06:00:00",
            "rule": "FREQ=DAILY",
        },
    ]
}


def run_what_if(site: dict[str, Any], by: int, *, cpus: int = 4, walltime: int = 3600) -> WhatIfAnswer:
    with planner(site=site, end_allowance=0, publish_starts=False) as loop:
        loop.submit([node("n1"), job("1", walltime="7200")]).result(WAIT_S)
        facts = job("what-if", nodes=f"1:ppn={cpus}", walltime=str(walltime)).job
        fork = loop.fork().result(WAIT_S)
        before = fork.copy().jobs.starts.copy()
        found = fork.what_if(facts, T, cheapest_by=by)
        assert np.array_equal(fork.copy().jobs.starts, before), "the plan stays"
        return found


def test_cheapest_start_is_at_night() -> None:
    found = run_what_if(SITE, T + DAY, walltime=4 * 3600)
    # T is 22:13:20: the night is on, but the node is held until 00:13:20.
    assert found.cheapest is not None
    assert (found.cheapest.start, found.cheapest.nodes) == (T + 7200, ("n1",))
    assert found.cheapest.cost == pytest.approx(4 * 4 * 0.25)
    late = run_what_if(SITE, T + 2 * DAY, walltime=8 * 3600)
    assert late.cheapest is not None
    assert late.cheapest.start == MIDNIGHT + 22 * 3600, "the next whole night"
    assert late.cheapest.cost == pytest.approx(4 * 8 * 0.25)


def test_job_that_cannot_end_in_time_has_no_cheapest_start() -> None:
    assert run_what_if(SITE, T + 7200 + 3599).cheapest is None
    exact = run_what_if(SITE, T + 7200 + 3600).cheapest
    assert exact is not None
    assert exact.start == T + 7200
    assert run_what_if(SITE, T - 5).cheapest is None
    assert run_what_if(SITE, T + DAY, cpus=9).cheapest is None, "never"


def test_without_prices_there_is_no_cheapest_start() -> None:
    assert run_what_if({}, T + DAY).cheapest is None


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(0, 9), min_size=7, max_size=7),
    st.integers(1, 120),
    st.integers(0, 300),
    st.integers(0, 200),
)
def test_cheapest_start_is_minimal_within_the_window(
    edges: list[int], prices: list[int], walltime: int, first: int, length: int
) -> None:
    """The prices change at each edge."""
    edges = [0, *sorted(edges)]
    price = np.zeros(1000)
    for edge, amount in zip(edges, prices, strict=False):
        price[edge:] = amount
    cost = [price[start : start + walltime].sum() for start in range(first, first + length + 1)]
    tried = candidate_starts([StartWindow(first, first + length)], edges, walltime)
    assert all(first <= start <= first + length for start in tried)
    assert min(cost[start - first] for start in tried) == min(cost)
