"""Searches keep the plan consistent, keep promises, and never increase its cost."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import FOREVER, Chunk, Node, NodeState, Request
from schedd.optimize import MoveKind, PlanSearch, SearchEndReason, SearchSettings
from schedd.plan.criteria import Criterion
from schedd.plan.evaluate import CriterionWeights, Evaluation, ScoringColumns
from schedd.plan.latest_starts import latest_starts, reference_values, scale_to_expected
from schedd.plan.placements import current_allocation
from schedd.plan.plan import Plan
from schedd.plan.trials import startable
from tests.optimize.random_plans import NOW, RandomPlan, cost_between, random_plans, search_settings


def stop_at(search: PlanSearch, plan: Plan, step: int) -> None:
    """Stop the search in the middle of a move, at its ``step``-th removal or placement."""
    steps = itertools.count(1)

    def stopping(operation: Callable[..., Any]) -> Callable[..., Any]:
        def done(*args: int) -> Any:
            if next(steps) == step:
                search.stop()
            return operation(*args)

        return done

    for name in ("remove", "place"):
        setattr(plan, name, stopping(getattr(plan, name)))


@given(
    random_plans(),
    search_settings(),
    st.sampled_from([0, 500, 5000]),
    st.sampled_from([1.0, 0.4]),
    st.sampled_from([None, 1, 2]),
    st.none() | st.integers(1, 12),
)
def test_search_respects_promises_and_plan_consistency(
    random_plan: RandomPlan,
    settings: SearchSettings,
    patience: int,
    use: float,
    every: int | None,
    stopped: int | None,
) -> None:
    newcomers = None if every is None else np.array(random_plan.waiting[::every], np.int64)
    found = random_plan.with_plan(random_plan.plan.fork())
    latest = latest_starts(random_plan.plan, random_plan.promised, random_plan.columns, NOW, patience, use)
    before = random_plan.starts()
    search = PlanSearch(
        found.plan,
        random_plan.columns,
        latest,
        NOW,
        settings,
        patience=patience,
        use=use,
        newcomers=newcomers,
    )
    if stopped is not None:
        stop_at(search, found.plan, stopped)
    improvement = search.run()
    expected, patience = scale_to_expected(random_plan.columns, NOW, patience, use)
    longest = max((before[slot] - expected.release[slot] for slot in random_plan.waiting), default=0)
    report = improvement.report

    assert random_plan.starts() == before, "the search touched more than its fork"
    found.check()
    assert set(found.waiting) == set(random_plan.waiting)
    for slot in random_plan.running:
        assert current_allocation(found.plan, slot) == current_allocation(random_plan.plan, slot)
    for slot in random_plan.waiting:
        start = found.plan.start(slot)
        assert start <= max(random_plan.promised[slot], before[slot])
        release, step = expected.release[slot], max(1, patience // 12)
        assert start - release <= max(longest, 2 * patience)
        if NOW - release >= patience:
            assert (start - release - 1) // step <= (before[slot] - release - 1) // step, "its twelfth"
        if before[slot] == NOW:
            assert current_allocation(found.plan, slot) == current_allocation(random_plan.plan, slot)
    # The cost never increases and decreases by the reported gain.
    weights = CriterionWeights(settings.weights)
    then, now = (replace(plan, columns=expected) for plan in (random_plan, found))
    old, new = (cost_between(weights, plan, then, patience) for plan in (then, now))
    assert new <= old + 1e-9
    assert report.gain == pytest.approx((old - new) / np.abs(weights.array).sum(), rel=1e-9, abs=1e-9)
    assert (report.accepted > 0) == (new < old) or report.gain < 1e-9
    # The reported places are exactly the differences.
    assert {place.slot: place for place in improvement.places} == {
        slot: current_allocation(found.plan, slot)
        for slot in random_plan.waiting
        if current_allocation(found.plan, slot) != current_allocation(random_plan.plan, slot)
    }
    assert report.moved == len(improvement.places)
    assert report.accepted + report.too_late <= report.tried <= (settings.moves or 0)
    values = Evaluation(found.plan, random_plan.columns, NOW, threshold=settings.threshold).values()
    for change in report.changes:
        assert change.after == pytest.approx(values[change.criterion], rel=1e-9, abs=1e-9)


@given(random_plans(), search_settings())
def test_same_seed_gives_the_same_result(random_plan: RandomPlan, settings: SearchSettings) -> None:
    latest = latest_starts(random_plan.plan, random_plan.promised, random_plan.columns, NOW)
    first, second = (
        PlanSearch(random_plan.plan.fork(), random_plan.columns, latest, NOW, settings).run()
        for _ in range(2)
    )
    assert first.places == second.places
    assert replace(first.report, elapsed_s=0.0) == replace(second.report, elapsed_s=0.0)


# ---- examples -----------------------------------------------------------------------------------


def plan_long_before_short(shorts: int = 5) -> tuple[Plan, ScoringColumns]:
    """Plan a long job before short ones on a full node."""
    plan = Plan([Node("a", 1)], 0)
    one = Request((Chunk(cpus=1),))
    runs = plan.add_job(one, 50, 0)
    plan.place(runs, 0)
    plan.fix_in_place(runs)
    for duration in [1000] + [10] * shorts:
        plan.place(plan.add_job(one, duration, 0), 0)
    return plan, ScoringColumns.blank(plan.tables.jobs.shape[1])


def plan_behind_running_job(end: int, now: int) -> tuple[Plan, ScoringColumns]:
    """Plan a job, released at 0, on a node that is full until ``end``."""
    plan = Plan([Node("a", 1)], now)
    one = Request((Chunk(cpus=1),))
    for duration in (end - now, 100):
        plan.place(plan.add_job(one, duration, now), now)
    plan.fix_in_place(0)
    return plan, ScoringColumns.blank(plan.tables.jobs.shape[1])


def no_promises(plan: Plan) -> np.ndarray:
    return np.full(plan.tables.jobs.shape[1], FOREVER, np.int64)


MEANS = {Criterion.WAIT: 1.0, Criterion.BOUNDED_SLOWDOWN: 1.0}


@pytest.mark.parametrize("kind", list(MoveKind))
@pytest.mark.parametrize("whole", [0, 64])
def test_short_jobs_go_first_without_promises(kind: MoveKind, whole: int) -> None:
    plan, columns = plan_long_before_short()
    settings = SearchSettings(kind=kind, weights=MEANS, moves=500, whole=whole)
    report = PlanSearch(plan, columns, no_promises(plan), 0, settings).run().report
    assert plan.start(1) == 100
    assert sorted(plan.start(slot) for slot in range(2, 7)) == [50, 60, 70, 80, 90]
    assert report.why_ended is SearchEndReason.MOVES
    assert report.gain > 0.5


def test_long_waiting_job_is_delayed_only_within_its_patience_step() -> None:
    plan, columns = plan_long_before_short()
    columns.release[1] = -260
    for _ in range(3):
        latest = latest_starts(plan, no_promises(plan), columns, 0, 240)
        assert latest[1] == 60, "twelfths of 20 s: from 300 to 320 s of its wait"
        PlanSearch(plan, columns, latest, 0, SearchSettings(weights=MEANS, moves=100)).run()
        assert plan.start(1) == 60


@pytest.mark.parametrize("use", [1.0, 0.8, 0.4, 0.1])
def test_latest_start_within_a_twelfth_stays_while_time_passes(use: float) -> None:
    """A job that is delayed as far as allowed at each step still starts at the end of its twelfth."""
    patience, planned = 240, 270
    for now in range(patience, 280, 3):
        plan, columns = plan_behind_running_job(planned, now)
        assert plan.start(1) == planned
        planned = int(latest_starts(plan, no_promises(plan), columns, now, patience, use)[1])
        assert planned == 280, "twelfths of 20 s, released at 0"


def test_promise_bounds_the_delay_if_walltimes_are_too_long() -> None:
    """The ends of the twelfths move with the clock, as jobs use half of their walltime; promises do not."""
    patience, planned, promise = 240, 270, 300
    seen = []
    for now in range(patience, 300, 3):
        plan, columns = plan_behind_running_job(planned, now)
        promised = no_promises(plan)
        promised[1] = promise
        planned = int(latest_starts(plan, promised, columns, now, patience, 0.5)[1])
        seen.append(planned)
    assert seen == sorted(seen)
    assert 280 < seen[-1] == promise


@pytest.mark.parametrize(("use", "start", "longest"), [(1.0, 50, 460), (0.25, 1050, 1050)])
def test_elapsed_wait_weighs_more_if_walltimes_are_too_long(use: float, start: int, longest: int) -> None:
    """The short job has the longest planned wait; if jobs use a quarter of their walltime, the other has."""
    plan = Plan([Node("a", 1)], 0)
    one = Request((Chunk(cpus=1),))
    for duration in (50, 1000, 10):
        plan.place(plan.add_job(one, duration, 0), 0)
    plan.fix_in_place(0)
    columns = ScoringColumns.blank(plan.tables.jobs.shape[1])
    columns.release[1] = -400
    settings = SearchSettings(weights={Criterion.WAIT_MAX: 1.0}, moves=20)
    latest = latest_starts(plan, no_promises(plan), columns, 0, 10_000, use)
    report = PlanSearch(plan, columns, latest, 0, settings, patience=1, use=use).run().report
    assert plan.start(2) == start
    changes = {change.criterion: (change.before, change.after) for change in report.changes}
    assert changes[Criterion.WAIT_MAX] == (1050, longest), "of the plan as it stands"


@given(random_plans(), st.sampled_from([0.1, 0.5]), st.integers(0, 50_000))
def test_expected_wait_is_the_planned_wait_times_the_use(
    random_plan: RandomPlan, use: float, patience: int
) -> None:
    same, still = scale_to_expected(random_plan.columns, NOW, patience, 1.0)
    assert (same, still) == (random_plan.columns, patience)
    expected, longer = scale_to_expected(random_plan.columns, NOW, patience, use)
    assert longer * use == pytest.approx(patience, abs=1)
    for slot in random_plan.waiting:
        wait = NOW - random_plan.columns.release[slot] + use * (random_plan.plan.start(slot) - NOW)
        assert use * (random_plan.plan.start(slot) - expected.release[slot]) == pytest.approx(wait, abs=1)


@given(random_plans())
def test_job_is_startable_if_it_needs_no_more_than_the_free_cores(random_plan: RandomPlan) -> None:
    plan, requests = random_plan.plan, {slot: job[0] for slot, job in random_plan.mirror.jobs.items()}
    free = {
        plan.node_rows[node.name]: node.cpus for node in plan.nodes.values() if node.state is NodeState.UP
    }
    for slot in requests:
        if 0 <= plan.start(slot) <= NOW < plan.end(slot):
            for take in plan.takes(slot):
                if take.row in free:
                    free[take.row] -= take.amounts[0]
    chosen = startable(plan, np.array(random_plan.waiting, np.int64), NOW).tolist()
    assert chosen == [
        slot
        for slot in random_plan.waiting
        if sum(chunk.count * chunk.cpus for chunk in requests[slot].chunks) <= sum(free.values())
    ]


def test_only_newcomers_are_tried_before_others() -> None:
    plan, columns = plan_long_before_short()
    settings = SearchSettings(weights=MEANS)
    search = PlanSearch(plan, columns, no_promises(plan), 0, settings, newcomers=np.array([4, 2]))
    report = search.run().report
    starts = [plan.start(slot) for slot in range(1, 7)]
    assert starts == [70, 50, 1070, 60, 1080, 1090], "the other short ones only move up"
    assert (report.tried, report.accepted, report.why_ended) == (2, 2, SearchEndReason.NOTHING_LEFT)


def test_newcomer_that_cannot_pass_the_first_job_is_tried_before_the_next() -> None:
    plan, columns = plan_long_before_short()
    promised = no_promises(plan)
    promised[1] = 50
    settings = SearchSettings(weights=MEANS)
    plan.place(newcomer := plan.add_job(Request((Chunk(cpus=1),)), 5, 0), 0)
    columns = ScoringColumns.blank(plan.tables.jobs.shape[1])
    assert (plan.start(2), plan.start(newcomer)) == (1050, 1100)
    search = PlanSearch(plan, columns, promised, 0, settings, newcomers=np.array([newcomer]))
    report = search.run().report
    assert (plan.start(1), plan.start(newcomer), plan.start(2)) == (50, 1050, 1055)
    assert (report.tried, report.too_late, report.accepted) == (2, 1, 1)


def test_unplanned_and_running_jobs_are_not_newcomers() -> None:
    plan, columns = plan_long_before_short()
    plan.remove(3, 0)
    search = PlanSearch(plan, columns, no_promises(plan), 0, SearchSettings(), newcomers=np.array([0, 3]))
    report = search.run().report
    assert (report.tried, report.why_ended) == (0, SearchEndReason.NOTHING_LEFT)


def test_longest_wait_counts_in_full_only_beyond_the_patience() -> None:
    plan, columns = plan_long_before_short()
    before = Evaluation(plan, columns, 0).values()
    assert before[Criterion.WAIT_MAX] == 1090
    assert reference_values(before, 500).as_dict() == before.as_dict()
    assert reference_values(before, 2180)[Criterion.WAIT_MAX] == 2180
    assert reference_values(before, 2180)[Criterion.WAIT] == before[Criterion.WAIT]
    weights = CriterionWeights({Criterion.WAIT_MAX: 1.0})
    assert weights.cost(before, reference_values(before, 2180)) == 0.5


def test_leading_jobs_in_a_long_queue_are_reordered() -> None:
    plan, columns = plan_long_before_short(30)
    settings = SearchSettings(weights=MEANS, moves=2, whole=8)
    report = PlanSearch(plan, columns, no_promises(plan), 0, settings).run().report
    assert (report.tried, report.accepted) == (2, 1)
    assert plan.start(1) >= 50 + 4 * 10, "the first half of the shortest go before the long one"


def test_search_ends_after_moving_enough_jobs() -> None:
    plan, columns = plan_long_before_short(30)
    settings = SearchSettings(weights=MEANS, moves=500, lifted=2, whole=0, most_moved=2)
    report = PlanSearch(plan, columns, no_promises(plan), 0, settings).run().report
    assert report.why_ended is SearchEndReason.MOVED_ENOUGH
    assert report.accepted == 1
    assert report.moved >= 2
    assert report.tried < 500


def test_search_delays_no_job_for_jobs_of_lower_rank() -> None:
    plan, columns = plan_long_before_short()
    long, shorts = 1, [2, 3, 4, 5, 6]
    columns.rank[long] = 5
    settings = SearchSettings(weights=MEANS, moves=500)
    assert PlanSearch(plan.fork(), columns, no_promises(plan), 0, settings).run().places == ()
    newcomers = np.array(shorts)
    search = PlanSearch(plan.fork(), columns, no_promises(plan), 0, settings, newcomers=newcomers)
    assert search.run().places == ()
    columns.rank[4] = 5
    PlanSearch(plan, columns, no_promises(plan), 0, settings).run()
    assert plan.start(4) == 50, "a short job of the same rank goes first"
    assert plan.start(long) < min(plan.start(slot) for slot in shorts if slot != 4)


def test_promise_limits_a_jobs_delay() -> None:
    plan, columns = plan_long_before_short()
    promised = no_promises(plan)
    promised[1] = 50 + 25
    settings = SearchSettings(weights=MEANS, moves=500)
    report = PlanSearch(plan, columns, promised, 0, settings).run().report
    assert plan.start(1) == 70, "two short jobs fit before it, not three"
    assert report.too_late > 0


def test_long_waiting_job_is_not_delayed() -> None:
    plan, columns = plan_long_before_short()
    columns.release[1] = -100
    for patience, start in ((100, 50), (2000, 100)):
        fork = plan.fork()
        latest = latest_starts(fork, no_promises(fork), columns, 0, patience)
        PlanSearch(fork, columns, latest, 0, SearchSettings(weights=MEANS, moves=500)).run()
        assert fork.start(1) == start


@pytest.mark.parametrize(
    ("patience", "promised", "latest"),
    [
        (0, FOREVER, 50),  # no job is moved back
        (40, FOREVER, 50),  # its wait equals the patience
        (41, FOREVER, -40 + 90),  # the longest wait of the plan is its own: 90 s
        (60, FOREVER, -40 + 2 * 60),
        (60, 70, 70),
        (60, 30, 50),  # its promise is broken: it may stay where it is
    ],
)
def test_latest_start_follows_patience_and_promise(patience: int, promised: int, latest: int) -> None:
    plan, columns = plan_long_before_short(0)
    columns.release[1] = -40
    assert plan.start(1) == 50
    changes = no_promises(plan)
    changes[1] = promised
    assert latest_starts(plan, changes, columns, 0, patience)[1] == latest


def test_capacity_freed_by_a_move_is_used_at_once() -> None:
    plan = Plan([Node("a", 2)], 0)
    for cpus, duration in ((2, 50), (2, 100), (1, 10), (1, 10)):
        plan.place(plan.add_job(Request((Chunk(cpus=cpus),)), duration, 0), 0)
    plan.fix_in_place(0)
    columns = ScoringColumns.blank(plan.tables.jobs.shape[1])
    settings = SearchSettings(weights=MEANS, moves=100, lifted=2, whole=0)
    improvement = PlanSearch(plan, columns, no_promises(plan), 0, settings).run()
    assert [plan.start(slot) for slot in (1, 2, 3)] == [60, 50, 50]
    assert (
        improvement.report.pulled_left == 2
    )  # the last job moves next to its predecessor, then the wide job moves
    assert [place.slot for place in improvement.places] == [2, 3, 1]


def test_search_without_moves_changes_nothing() -> None:
    plan, columns = plan_long_before_short()
    improvement = PlanSearch(plan, columns, no_promises(plan), 0, SearchSettings(moves=0)).run()
    assert improvement.places == ()
    assert improvement.report.why_ended is SearchEndReason.MOVES


def test_search_with_a_single_waiting_job_has_nothing_to_do() -> None:
    plan, columns = plan_long_before_short(0)
    improvement = PlanSearch(plan, columns, no_promises(plan), 0, SearchSettings()).run()
    assert improvement.report.why_ended is SearchEndReason.NOTHING_TO_DO
    assert improvement.report.tried == 0


@pytest.mark.parametrize(
    ("differs", "tried"),
    [("", False), ("release", True), ("rank", True), ("duration", True), ("request", True), ("weight", True)],
)
def test_jobs_that_differ_only_in_their_release_are_not_searched_in_its_order(
    differs: str, tried: bool
) -> None:
    plan = Plan([Node("a", 2)], 0)
    for number in range(6):
        request = Request((Chunk(cpus=1 + (differs == "request" and number == 3)),))
        duration = 50 + 10 * (differs == "duration" and number == 3)
        plan.place(plan.add_job(request, duration, 0), 0)
    columns = ScoringColumns.blank(plan.tables.jobs.shape[1])
    columns.release[:6] = [-6, -5, -4, -3, -2, -1]
    if differs == "release":
        columns.release[:6] = [-6, -5, -4, -1, -2, -3]
    if differs == "rank":
        columns.rank[5] = 1
    weights = {Criterion.TARDINESS: 1.0} if differs == "weight" else MEANS
    settings = SearchSettings(weights=weights, moves=20)
    for newcomers in (None, np.array([4, 5], np.int64)):
        search = PlanSearch(plan.fork(), columns, no_promises(plan), 0, settings, newcomers=newcomers)
        report = search.run().report
        assert (report.tried > 0) is tried
        assert (report.why_ended is SearchEndReason.NOTHING_TO_DO) is not tried


@pytest.mark.parametrize("whole", [0, 64])
def test_search_ends_if_all_jobs_except_a_single_job_start_now(whole: int) -> None:
    plan = Plan([Node("a", 2), Node("b", 1)], 0)
    for cpus, duration in ((1, 50), (1, 50), (2, 100), (1, 10)):
        plan.place(plan.add_job(Request((Chunk(cpus=cpus),)), duration, 0), 0)
    plan.fix_in_place(0)
    plan.fix_in_place(1)
    plan.remove(3, 0)
    plan.place(3, 100)  # later than it need be: any move pulls it to now
    settings = SearchSettings(kind=MoveKind.RANDOM, weights=MEANS, moves=50, whole=whole)
    report = (
        PlanSearch(plan, ScoringColumns.blank(plan.tables.jobs.shape[1]), no_promises(plan), 0, settings)
        .run()
        .report
    )
    assert plan.start(3) == 0
    assert report.why_ended is SearchEndReason.NOTHING_TO_DO


def test_search_ends_at_its_time_limit() -> None:
    plan, columns = plan_long_before_short()
    settings = SearchSettings(moves=None, seconds=0.0)
    assert (
        PlanSearch(plan, columns, no_promises(plan), 0, settings).run().report.why_ended
        is SearchEndReason.SECONDS
    )


def test_stop_ends_a_search_at_once() -> None:
    plan, columns = plan_long_before_short()
    search = PlanSearch(plan, columns, no_promises(plan), 0, SearchSettings())
    search.stop()
    improvement = search.run()
    assert improvement.report.why_ended is SearchEndReason.STOPPED
    assert improvement.report.tried == 0


@pytest.mark.parametrize("step", [1, 15, 31, 32, 45, 62])
def test_search_stopped_during_a_move_reports_the_accepted_plan(step: int) -> None:
    plan, columns = plan_long_before_short(30)
    search = PlanSearch(plan, columns, no_promises(plan), 0, SearchSettings(weights=MEANS))
    stop_at(search, plan, step)
    search.search()
    placed = {slot for slot in range(1, 32) if plan.start(slot) >= 0}
    assert (len(placed) < 31) == (step < 62)
    improvement = search.improvement()
    assert improvement.report.why_ended is SearchEndReason.STOPPED
    assert improvement.report.accepted == 1
    assert improvement.report.gain > 0
    assert {place.slot for place in improvement.places} == set(range(1, 32))
    assert {place.slot: place.start for place in improvement.places} == {
        slot: plan.start(slot) for slot in range(1, 32)
    }


def test_another_thread_can_stop_an_unbounded_search() -> None:
    plan, columns = plan_long_before_short()
    search = PlanSearch(plan, columns, no_promises(plan), 0, SearchSettings(moves=1 << 50))
    timer = threading.Timer(0.2, search.stop)
    timer.start()
    report = search.run().report
    timer.join()
    assert report.why_ended is SearchEndReason.STOPPED
    assert report.tried > 0


def test_late_jobs_are_rescued_under_that_criterion() -> None:
    plan, columns = plan_long_before_short()
    columns.due[2:7] = 100
    settings = SearchSettings(weights={Criterion.LATE_JOBS: 1.0}, moves=200)
    report = PlanSearch(plan, columns, no_promises(plan), 0, settings).run().report
    late = next(change for change in report.changes if change.criterion is Criterion.LATE_JOBS)
    assert (late.before, late.after, late.unit) == (5, 0, "jobs")


def test_many_late_jobs_at_a_long_queues_end_are_rescued_in_few_moves() -> None:
    """A quarter of the queue has to pass jobs far ahead of it; the search has only 40 moves."""
    plan = Plan([Node("a", 4)], 0)
    for _ in range(1200):
        plan.place(plan.add_job(Request((Chunk(cpus=1),)), 100, 0), 0)
    columns = ScoringColumns.blank(plan.tables.jobs.shape[1])
    columns.due[900:1200] = 15_000
    settings = SearchSettings(weights={Criterion.LATE_JOBS: 1.0, Criterion.BOUNDED_SLOWDOWN: 1.0}, moves=40)
    found = PlanSearch(plan.fork(), columns, no_promises(plan), 0, settings).run().report
    (late,) = (change for change in found.changes if change.criterion is Criterion.LATE_JOBS)
    assert (late.before, late.after) == (300, 0)


@pytest.mark.parametrize(
    "wrong", [{"moves": None}, {"moves": -1}, {"seconds": -1.0}, {"seconds": float("nan")}, {"lifted": 1}]
)
def test_invalid_search_settings_are_refused(wrong: dict[str, float | None]) -> None:
    with pytest.raises(ValueError, match=r"must be|needs a bound"):
        SearchSettings(**wrong)  # type: ignore[arg-type]


def test_tables_hold_an_order_with_many_jobs() -> None:
    """One timeline row holds all jobs: placing them in another order needs far more segments for a while."""
    plan = Plan([Node("a", 128)], 0)
    random = np.random.default_rng(5)
    for cpus, duration in zip(random.integers(1, 100, 200), random.integers(10, 9000, 200), strict=True):
        plan.place(plan.add_job(Request((Chunk(cpus=int(cpus)),)), int(duration), 0), 0)
    columns = ScoringColumns.blank(plan.tables.jobs.shape[1])
    report = (
        PlanSearch(plan, columns, no_promises(plan), 0, SearchSettings(weights=MEANS, moves=60)).run().report
    )
    assert report.tried == 60
    assert report.gain > 0.2
