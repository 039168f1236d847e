"""Displacement of jobs of lower rank chooses the same jobs as a plain search of all jobs."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedd.plan.kernels import layout as at
from schedd.plan.kernels.displace import PREFER_OLD_PLACE_AND_POOLS, displace
from schedd.plan.kernels.undo import make_undo_log
from schedd.plan.plan import Plan
from tests.plan.test_futility import NOW, full_plan, is_of_one_unit

UNTIL = 10_000


def displace_plainly(
    plan: Plan, slot: int, rank: np.ndarray, promise: np.ndarray, most: int, breaks: bool
) -> None:
    """Displace jobs as ``displace_lower_ranked`` for a job of one unit does with one set of jobs."""
    tb = plan.tables
    start, end, ready = plan.start(slot), plan.end(slot), max(NOW, plan.ready(slot))
    chunk = int(tb.shapes[tb.jobs[at.SHAPE, slot], at.CHUNK])
    first, n = int(tb.chunks[chunk, at.SET]), int(tb.chunks[chunk, at.SET_LEN])
    useful = set(tb.sets[first : first + n].tolist())
    held = {one: {take.row for take in plan.takes(one)} for one in plan.planned().tolist()}
    found = sorted(
        (plan.start(one), one)
        for one, rows in held.items()
        if rank[one] < rank[slot]
        and plan.start(one) < end
        and plan.end(one) > ready
        and (breaks or promise[one] > plan.start(one))
        and rows & useful
    )
    if not found:
        return
    row = min(held[found[0][1]] & useful)
    others = [one for _, one in found if row in held[one]][:most]
    jobs = np.array([slot, *others])
    latest = np.array([start - 1, *(UNTIL if breaks else min(UNTIL, promise[one]) for one in others)])
    order = [0, *sorted(range(1, len(jobs)), key=lambda i: -rank[jobs[i]])]
    how, times = at.FULL, 0
    while how == at.FULL:
        undo = make_undo_log(plan.tables, len(jobs), 8)
        how, _ = displace(plan.tables, undo, jobs, np.array(order), latest, NOW, PREFER_OLD_PLACE_AND_POOLS)
        times += plan.slabs.make_room(16, times)


@given(seed=st.integers(0, 1 << 32))
def test_the_first_jobs_on_the_row_of_the_first_are_displaced(seed: int) -> None:
    rng = Random(seed)
    plan = full_plan(rng, pools=False)
    size = plan.tables.jobs.shape[1]
    planned = plan.planned().tolist()
    rank, promise = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for one in planned:
        rank[one], promise[one] = rng.randint(0, 3), plan.start(one) + rng.choice([0, 5, 20, 80, 400])
    for slot in [one for one in planned if is_of_one_unit(plan, one)][:20]:
        most, breaks = rng.randint(1, 6), rng.random() < 0.2
        expected, fork = plan.fork(), plan.fork()
        fork.displace_lower_ranked(slot, rank, promise, NOW, until=UNTIL, most=most, breaks=breaks)
        displace_plainly(expected, slot, rank, promise, most, breaks)
        assert [fork.start(one) for one in planned] == [expected.start(one) for one in planned]
        assert [fork.takes(one) for one in planned] == [expected.takes(one) for one in planned]
