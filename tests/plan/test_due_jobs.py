"""Due jobs: the kernels against NumPy."""

import random

import numpy as np
import pytest

from schedd.model import FOREVER, Chunk, Node, Request
from schedd.plan.columns import PLANNED, UNPLACED
from schedd.plan.plan import Plan


def _plan(rng: random.Random) -> Plan:
    """Jobs of every state; some of those planned are not allowed before a later moment."""
    plan = Plan([Node(f"n{i}", 4) for i in range(3)], 0)
    for _ in range(rng.randint(0, 90)):
        request = Request((Chunk(rng.randint(1, 3), rng.randint(1, 4)),))
        slot = plan.add_job(request, rng.randint(1, 300), rng.choice([0, 0, rng.randint(0, 500)]))
        if rng.random() < 0.8:
            plan.place(slot, 0)
            if plan.start(slot) == 0 and rng.random() < 0.7:
                plan.fix_in_place(slot)
            elif rng.random() < 0.3:
                plan.set_ready(slot, rng.randint(0, 900))
        elif rng.random() < 0.3:
            plan.drop_job(slot, 0)
    return plan


@pytest.mark.parametrize("seed", range(30))
def test_due_jobs_match_numpy(seed: int) -> None:
    rng = random.Random(seed)
    plan = _plan(rng)
    jobs = plan.jobs
    moment = np.where(jobs.states == PLANNED, np.maximum(jobs.starts, jobs.ready), FOREVER)
    assert plan.next_start() == int(moment.min())
    for until in (-1, 0, 1, 100, rng.randint(0, 1_000), FOREVER - 1):
        due = np.flatnonzero(moment <= until)
        assert plan.due_jobs(until).tolist() == sorted(
            due.tolist(), key=lambda slot: (plan.start(slot), slot)
        )
    moments = np.array([rng.choice([rng.randint(0, 1_000), FOREVER]) for _ in range(jobs.size)], np.int64)
    waits = (jobs.states == PLANNED) | (jobs.states == UNPLACED)
    for until in (0, 500, FOREVER, FOREVER + 1):
        assert (
            plan.waiting_before(moments, until).tolist() == np.flatnonzero(waits & (moments < until)).tolist()
        )


def test_empty_plan_has_no_due_jobs() -> None:
    plan = Plan([Node("n", 1)], 0)
    assert plan.next_start() == FOREVER
    assert plan.due_jobs(FOREVER - 1).tolist() == []
