"""Jobs like the latest ones come again."""

import json

import numpy as np

from schedd.model import Chunk, Node, Request
from schedd.plan.columns import Ints
from schedd.plan.plan import Plan
from schedd.predict.arrivals import FutureArrivals, PlanWithArrivals, RecentArrivals, foresee_arrivals

DAY = 86_400
DRAWS = 5


def recent(times: list[int], *, cpus: int = 1, walltime: int = 100) -> RecentArrivals:
    plan, found = Plan([Node("a", cpus=8)], 0), RecentArrivals()
    for i, at in enumerate(times):
        slot = plan.add_job(Request((Chunk(1, cpus),)), walltime, at)
        found.record(str(i), at, max(at, times[0]), plan, slot)
    return found


def foreseen(of: RecentArrivals, now: int, until: int, *, run_s: int = 50) -> FutureArrivals:
    found = foresee_arrivals(of, now, until, np.full((DRAWS, len(of)), run_s, np.int64), 8)
    assert found is not None
    return found


def gaps(of: FutureArrivals) -> Ints:
    ordered = np.sort(of.times, axis=1)
    found: Ints = ordered[:, 1:] - ordered[:, :-1]
    return found


def test_without_seen_arrivals_jobs_come_as_fast_as_the_machine_runs_them() -> None:
    """Eight cpus, jobs of two cpus for 400 s: one in 100 s."""
    found = foreseen(recent([0] * 50, cpus=2, walltime=400), 60, 5_060, run_s=400)
    assert len(found.jobs) == 50
    assert (gaps(found) == 100).all()
    assert (found.times > 60).all()


def test_seen_arrivals_replace_those_that_were_found_waiting() -> None:
    """Jobs found at first are large; those that come since are small, one in 200 s."""
    found = recent([0] * 30, cpus=8, walltime=9_000)
    plan = Plan([Node("a", cpus=8)], 0)
    for i in range(100):
        slot = plan.add_job(Request((Chunk(1, 1),)), 60, 0)
        found.record(f"seen{i}", 200 * (i + 1), 200 * (i + 1), plan, slot)
    coming = foreseen(found, 20_060, 30_000)
    assert {one.walltime for one in coming.jobs} == {60}
    assert abs(int(np.median(gaps(coming))) - 200) <= 10


def test_jobs_come_no_faster_than_the_machine_runs_them() -> None:
    """Five hundred jobs of 50 s came in ten minutes; eight at a time run."""
    found = foreseen(recent([0, *range(100, 600)]), 600, 2_600)
    assert (gaps(found) >= 6).all()


def test_each_draw_has_an_order_of_its_own_and_it_stays() -> None:
    known = recent([0, *range(100, 4_000, 100)])
    first, again = (foreseen(known, 4_000, 12_000) for _ in range(2))
    assert (first.times == again.times).all()
    assert len({tuple(np.argsort(row)) for row in first.times.tolist()}) == DRAWS


def test_jobs_come_again_at_their_hour_of_the_day() -> None:
    """Jobs come at noon, three days long; in one draw the first day comes again, in another the last."""
    noons = [DAY * day + DAY // 2 + i for day in range(3) for i in range(10)]
    found = foreseen(recent([0, *noons]), 3 * DAY + 90, 9 * DAY)
    assert set((found.times % DAY // 3_600).ravel().tolist()) == {12}
    per_day = np.stack([np.bincount(row // DAY, minlength=9)[3:6] for row in found.times])
    assert (per_day == 10).all()


def test_a_future_without_time_for_jobs_has_none() -> None:
    of = recent([0, *range(100, 4_000, 100)])
    assert foresee_arrivals(of, 4_000, 4_000, np.full((DRAWS, len(of)), 50, np.int64), 8) is None


def test_the_latest_five_hundred_are_kept() -> None:
    found = recent(list(range(0, 1_200 * 10, 10)))
    assert len(found) == 500
    assert found.since == 6_990


def test_run_times_are_kept_and_deleted_jobs_are_not() -> None:
    found = recent([0, 100, 200])
    found.record_end("1", 30)
    found.record_end("unknown", 30)
    found.forget("2")
    assert [(job, one.run_s) for job, one in found.items()] == [("0", -1), ("1", 30)]


def test_a_job_submitted_before_the_daemon_began_counts_from_its_begin() -> None:
    plan, found = Plan([Node("a", cpus=8)], 0), RecentArrivals()
    slot = plan.add_job(Request((Chunk(1, 1),)), 60, 0)
    found.record("old", 10, 1_000, plan, slot)
    found.record("missed", 1_500, 2_000, plan, slot)
    found.record("ahead", 9_000, 3_000, plan, slot)
    assert [one.at for _, one in found.items()] == [1_000, 1_500, 3_000]


def test_saved_arrivals_are_loaded() -> None:
    plan, found = Plan([Node("a", cpus=8)], 0), recent([0, 100])
    plan.set_pool("licence", 3, 0)
    request = Request((Chunk(2, 1, mem=5),), walltime=70)
    found.record("b", 200, 200, plan, plan.add_job(request, 70, 0, {"licence": 2}))
    found.record_end("0", 9)
    loaded = RecentArrivals.load(json.loads(json.dumps(found.save())))
    assert (list(loaded.items()), loaded.since) == (list(found.items()), found.since)
    copy = found.copy()
    copy.forget("b")
    assert len(found) == 3


def test_arrivals_are_unplaced_jobs_of_a_fork_and_the_last_in_rank() -> None:
    plan = Plan([Node("a", cpus=8)], 0)
    waits = plan.add_job(Request((Chunk(1, 8),)), 100, 0)
    plan.place(waits, 0)
    plan.order_repairs(np.array([7], np.int64))
    found = foreseen(recent([0] * 20, cpus=2), 60, 1_000)
    ahead = PlanWithArrivals.of(plan, found, None)
    assert ahead.plan.starts(ahead.slots).tolist() == [-1] * len(found.jobs)
    assert set(ahead.plan.repairs.ranks[ahead.slots].tolist()) == {7}
    fork = ahead.plan.fork()
    come = ahead.begin(fork, 1)
    assert fork.jobs.ready[come].tolist() == sorted(found.times[1].tolist())
    assert (ahead.run_times(1, plan.jobs.durations)[ahead.slots] == found.run_s[1]).all()
    assert PlanWithArrivals.of(plan, None, None).plan is plan
