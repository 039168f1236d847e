"""A repair in the smallest slices, with changes between them, comes to the same end as one in one piece."""

import random
from typing import Any

import pytest

from schedd.model import Chunk, Node, Request
from schedd.plan import repairs
from schedd.plan.kernels import layout as at
from schedd.plan.kernels.freed import MOST_FREED
from schedd.plan.kernels.layout import Tables
from schedd.plan.kernels.repair import repair
from schedd.plan.plan import Plan
from tests.plan.mirror import Mirror
from tests.property_examples import examples

NODES = 10
CPUS = 4


def _request(rng: random.Random) -> Request:
    count = rng.choice([1, 1, 2, 3, 5, 8])
    if rng.random() < 0.2:
        return Request((Chunk(count, 2), Chunk(rng.randint(1, 2), 3)))
    return Request((Chunk(count, rng.randint(1, CPUS)),))


def _grown(rng: random.Random, ready: int = 0) -> Mirror:
    mirror = Mirror(Plan([Node(f"n{i}", CPUS) for i in range(NODES)], 0))
    for _ in range(30):
        slot = mirror.new(_request(rng), rng.randint(20, 400), ready)
        if mirror.plan.place(slot, 0) < 0:
            mirror.plan.drop_job(slot, 0)
            del mirror.jobs[slot]
    return mirror


def _change(mirror: Mirror, rng: random.Random) -> None:
    """Something happens between two slices: a deletion, an arrival, an earlier moment, a shorter run."""
    plan = mirror.plan
    # Often the job of the interrupted search.
    half = int(plan.slabs.tb.ctl[at.PARTIAL]) - 1
    slot = half if half in mirror.jobs and rng.random() < 0.6 else rng.choice(mirror.slots(at.PLANNED))
    request, duration, ready, pools = mirror.jobs[slot]
    match rng.randrange(5):
        case 0:
            plan.drop_job(slot, 0)
            del mirror.jobs[slot]
        case 1:
            plan.place(mirror.new(_request(rng), rng.randint(20, 400), 0), 0)
        case 2:
            ready = rng.choice([0, rng.randint(0, 300)])
            plan.set_ready(slot, ready)
            if plan.start(slot) < ready:  # the shell replans such a job
                plan.remove(slot, 0)
                plan.place(slot, 0)
            mirror.jobs[slot] = (request, duration, ready, pools)
        case 3:
            shorter = rng.randint(1, duration)
            plan.set_duration(slot, shorter, 0)
            mirror.jobs[slot] = (request, shorter, ready, pools)
        case _:
            plan.mark_all_for_search()


@pytest.mark.parametrize("seed", range(examples(6)))
def test_searches_that_leave_off_go_on(seed: int) -> None:
    rng = random.Random(seed)
    mirror = _grown(rng)
    plan = mirror.plan
    left_off = 0
    for _ in range(60):
        _change(mirror, rng)
        for _ in range(rng.randint(1, 12)):
            before = plan.starts(plan.planned())
            slots = plan.planned()
            _, done = plan.repair(0, 1)
            left_off += bool(plan.slabs.tb.ctl[at.PARTIAL])
            assert (plan.starts(slots) <= before).all()
            if done:
                break
    rounds = 0
    while not plan.repair(0, 1)[1]:
        left_off += bool(plan.slabs.tb.ctl[at.PARTIAL])
        rounds += 1
        assert rounds < 100_000
    assert left_off > 0
    for slot in mirror.slots(at.PLANNED):
        request = mirror.jobs[slot][0]
        if len(request.chunks) == 1:
            assert plan.start(slot) == mirror.earliest(slot, 0), request
    for slot in mirror.slots(at.PLANNED):
        mirror.check_takes(slot)


@pytest.mark.parametrize("change", ["ready", "duration"])
def test_paused_search_is_discarded_after_a_change_of_the_request(change: str) -> None:
    left_off = 0
    for seed in range(12):
        plan = _grown(random.Random(seed), ready=100).plan
        plan.mark_all_for_search()
        while not plan.slabs.tb.ctl[at.PARTIAL]:
            if plan.repair(0, 1)[1]:
                break
        else:
            left_off += 1
            slot = int(plan.slabs.tb.ctl[at.PARTIAL]) - 1
            if change == "ready":
                plan.set_ready(slot, 0)
            else:
                plan.slabs.tb.jobs[at.READY, slot] = (
                    0  # no notification: the shorter run causes another search
                )
            plan.set_duration(slot, 10, 0)
            while not plan.repair(0, 1)[1]:
                pass
            assert plan.start(slot) == 0  # no other job may start before 100
    assert left_off > 0


@pytest.mark.parametrize("lost", [True, False])
def test_immediate_starts_are_tried_once_even_if_all_jobs_must_be_searched(*, lost: bool) -> None:
    """During a pass, the log of freed capacity overflows, or a job is marked for another search."""
    rng = random.Random(5)
    mirror = _grown(rng)
    plan = mirror.plan
    plan.mark_all_for_search()
    assert not plan.repair(0, 1)[1]
    if lost:
        for _ in range(MOST_FREED + 1):
            plan._repairs.note_freed(0, 500, 501)
    else:
        plan._repairs.mark_for_search(mirror.slots(at.PLANNED)[-1])
    worked = []
    while True:
        before = int(plan.tables.ctl[at.WORK])
        plan.repair_now(0)
        worked.append(int(plan.tables.ctl[at.WORK]) - before)
        if plan.repair(0, 1)[1]:
            break
    assert worked[0] > 100
    assert len(worked) > 20
    assert sum(worked[1:]) < 3 * worked[0]
    for slot in mirror.slots(at.PLANNED):
        request = mirror.jobs[slot][0]
        if len(request.chunks) == 1:
            assert plan.start(slot) == mirror.earliest(slot, 0), request


def test_moved_job_frees_its_pools_for_others() -> None:
    names = [frozenset({"x"}), frozenset({"y"})]
    plan = Plan([Node("a", 1, features=names[0]), Node("b", 1, features=names[1])], 0)
    plan.set_pool("licence", 1, 0)
    on_a, on_b = (Request((Chunk(features=(features,)),)) for features in names)

    def placed(request: Request, duration: int, pools: dict[str, int]) -> int:
        slot = plan.add_job(request, duration, 0, pools)
        plan.place(slot, 0)
        return slot

    runs = placed(on_a, 100, {})
    placed(on_b, 150, {})
    first, second = placed(on_a, 100, {"licence": 1}), placed(on_b, 100, {"licence": 1})
    assert (plan.start(first), plan.start(second)) == (100, 200)
    plan.fix_in_place(runs)
    plan.set_duration(runs, 50, 0)
    assert plan.repair(0)[1]
    assert (plan.start(first), plan.start(second)) == (50, 150)


@pytest.mark.parametrize("seed", range(examples(20)))
def test_immediate_starts_are_found_in_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, mirror = _grown(random.Random(seed)), _grown(random.Random(seed))
    rng = random.Random(seed)
    gone = rng.sample(whole.slots(at.PLANNED), 6)
    for one in (whole, mirror):
        for slot in gone:
            one.plan.drop_job(slot, 0)
            del one.jobs[slot]
        if seed % 2:
            one.plan.mark_all_for_search()
        for slot in one.slots(at.PLANNED)[:5]:
            one.plan.mark_for_search(slot)
    at_once = set(whole.plan.repair_now(0).slots.tolist())
    monkeypatch.setattr(repairs, "MOST_NOW", 1)
    steps: list[set[int]] = []
    while mirror.plan._repairs._untried.shape[0] or not steps:
        steps.append(set(mirror.plan.repair_now(0).slots.tolist()))
        assert len(steps) < 1_000
    assert len(steps) > 1
    assert set().union(*steps) == at_once
    for slot in mirror.slots(at.PLANNED):
        if mirror.plan.start(slot) > 0 and len(mirror.jobs[slot][0].chunks) == 1:
            assert mirror.earliest(slot, 0) > 0


@pytest.mark.parametrize("seed", range(examples(4)))
def test_slice_with_a_full_slab_continues_after_an_event_made_room(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the slice that ended for want of room and the next one an event finds the slab full as well."""
    rng = random.Random(seed)
    mirror = _grown(rng)
    plan = mirror.plan
    full = 0
    kernel = repair

    def cramped(tb: Tables, *rest: Any) -> tuple[int, int, int]:
        """The slab has no segment to spare, as it comes about after thousands of changes."""
        nonlocal full
        top = int(tb.ctl[at.SLAB_TOP])
        if not full:
            tb.rows[:, at.ROOM] = tb.rows[:, at.LEN]
            tb.ctl[at.SLAB_TOP] = tb.T.shape[0]
        found = kernel(tb, *rest)
        if not full:
            tb.ctl[at.SLAB_TOP] = top
        full += found[2] == at.FULL
        return found

    monkeypatch.setattr(repairs, "repair", cramped)
    while not full:
        _change(mirror, rng)
        plan.repair(0, 10_000)
    assert plan.freed
    plan.slabs.grow()  # what an event does that finds a slab full
    while not plan.repair(0, 10_000)[1]:
        pass
    mirror.check_timelines(0)
    mirror.check_rooms()
    assert not mirror.over_committed(0)
    assert all(mirror.earliest(slot, 0) >= plan.start(slot) for slot in mirror.slots(at.PLANNED))
