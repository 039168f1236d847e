"""Order of jobs in a table: columns of keys give the order that each job's own values give."""

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from schedd.array_ids import submission_order
from schedd.dashboard.job_order import JobAndStart, Sort, order_jobs
from schedd.engine import PlanSnapshot, job_displayed_start, job_expected_start
from schedd.model import FOREVER
from schedd.start_sentence import is_forecast_fresh
from tests.service.planner_harness import T, job, node, planner
from tests.waits import WAIT_S

IDS = ("7.server", "10.server", "10.other", "9[2].server", "9[10].server", "9[].server", "x.server", "8")
SORTS: tuple[Sort, ...] = get_args(Sort)


def key_of(published: PlanSnapshot, row: JobAndStart, sort: Sort) -> tuple[Any, ...]:
    """The sort key of one job, from its own values."""
    record, start = row
    facts, slot = record.facts, record.slot
    promise = int(published.promise[slot]) if slot >= 0 else FOREVER
    values: dict[Sort, tuple[Any, ...]] = {
        "start": (start if start >= 0 else FOREVER,),
        "promised": (promise,),
        "job": (),
        "user": (facts.owner,),
        "queue": (facts.queue,),
        "walltime": (record.understood.walltime,),
        "submitted": (facts.submitted,),
    }
    if sort != "expected":
        return (*values[sort], submission_order(record.id))
    found, now = job_expected_start(published, record), published.as_of
    shown = job_displayed_start(published, *row) if start >= 0 else FOREVER
    by = found.by if found.by is not None else promise
    ahead = shown in range(now + 1, FOREVER) and found.start is not None
    if ahead and is_forecast_fresh(found.start or 0, by, found.as_of, now):
        return found.start, by, submission_order(record.id)
    return shown, shown, submission_order(record.id)


@pytest.fixture(scope="module")
def published() -> Iterator[PlanSnapshot]:
    """Starting, planned and impossible jobs, some with equal numbers."""
    with planner() as loop:
        loop.submit([node("n1"), node("n2")]).result(WAIT_S)
        for at, name in enumerate(IDS):
            user, queue = ("ann", "bob", "cyd")[at % 3], ("long", "short")[at % 2]
            loop.submit([job(name, user=user, queue=queue, walltime=str(600 * (1 + at % 4)))]).result(WAIT_S)
        loop.submit([job("20.server", nodes="9:ppn=4")]).result(WAIT_S)
        yield loop.published


def with_random_columns(published: PlanSnapshot, chance: random.Random) -> PlanSnapshot:
    def column(*values: int) -> Any:
        return np.array([chance.choice(values) for _ in published.records], np.int64)

    near = (T - chance.choice((0, 2_000)), T + chance.choice((0, 400)))
    rounds = replace(published.forecasts, as_of=T - chance.choice((0, 800, 2_000)), near=near)
    return replace(
        published,
        expected=column(-1, T - 5, T + 60, T + 300, T + 90_000),
        expected_by=column(T - 2, T + 120, T + 500, T + 100_000, FOREVER),
        promise=column(T + 100, T + 600, FOREVER),
        published_start=column(-1, T - 9, T + 50, T + 7_000),
        forecasts=rounds,
    )


@pytest.mark.parametrize("sort", SORTS)
def test_jobs_are_in_the_order_of_their_own_values(published: PlanSnapshot, sort: Sort) -> None:
    for seed in range(40 if sort in ("expected", "promised") else 1):
        chance = random.Random(seed)
        seen = with_random_columns(published, chance)
        rows = [(one, int(seen.starts[one.slot])) for one in seen.records if one is not None]
        rows += [(one, -1) for one in seen.slotless.values()]
        chance.shuffle(rows)
        for down in (False, True):
            wanted = sorted(rows, key=lambda row: key_of(seen, row, sort), reverse=down)
            assert order_jobs(seen, rows, sort, down=down) == wanted


def test_no_job_and_one_job_are_in_order(published: PlanSnapshot) -> None:
    row = next((one, 5) for one in published.records if one is not None)
    assert order_jobs(published, [], "expected", down=False) == []
    assert order_jobs(published, [row], "expected", down=True) == [row]
