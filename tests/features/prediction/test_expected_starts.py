"""Projections agree with the engine, which is their reference."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedd.engine.place.backfilling import backfill_rule
from schedd.features.prediction.expected_starts import compute_expected_starts, expected_starts_input
from schedd.model import Chunk, Request
from schedd.plan.columns import FIXED, Ints
from schedd.plan.plan import Plan
from schedd.plan.projection import project_plan
from schedd.predict import StartSampler, decode_starts, start_quantiles, waiting_slots
from tests.engine.cluster import Cluster, T
from tests.property_examples import examples

MUCH = 1 << 40

JOBS = st.lists(
    st.tuples(
        st.integers(1, 3),  # nodes
        st.integers(1, 4),  # cpus on each
        st.integers(60, 4_000),  # walltime
        st.floats(0.01, 1.0),  # the share of it that the job runs
        st.integers(0, 200),  # seconds after the last one
    ),
    min_size=2,
    max_size=14,
)


def filled(jobs: list[tuple[int, int, int, float, int]], **settings: Any) -> Cluster:
    cluster = Cluster(nodes=3, repair_slice=10**9, **{"predict": True, **settings})
    with_room(cluster.engine.state.plan)
    now = 0
    for i, (count, ppn, walltime, share, gap) in enumerate(jobs):
        now += gap
        cluster.at(now)
        runtime = max(1, int(walltime * share))
        cluster.submit(str(i), f"{count}:ppn={ppn}", walltime, runtime=runtime)
    return cluster


def predicted_run_times(cluster: Cluster) -> Ints:
    state = cluster.engine.state
    lasts = state.plan.jobs.durations.copy()
    for record in state.by_slot:
        if record is not None:
            lasts[record.slot] = cluster.server.runtime[record.id]
    return lasts


def with_room(plan: Plan) -> Plan:
    """Return the plan with space in its slabs. A full slab delays immediate starts to a later call, so a
    projection and the engine may differ if only one of them meets one.
    """
    plan.slabs.grow_segments(wanted=1 << 16)
    plan.slabs.grow_alloc(1 << 16)
    return plan


@settings(deadline=None, max_examples=examples(40))
@given(JOBS)
def test_run_on_with_true_run_times_every_job_starts_as_the_engine_starts_it(
    jobs: list[tuple[int, int, int, float, int]],
) -> None:
    cluster = filled(jobs)
    given = expected_starts_input(cluster.engine.state)
    assert given is not None
    before = given.plan.tables.jobs.copy()
    found = project_plan(with_room(given.plan.fork()), predicted_run_times(cluster), given.now, MUCH)
    assert (given.plan.tables.jobs == before).all()
    slots = waiting_slots(given.plan, given.since).tolist()
    foreseen = {given.ids[slot]: [int(found.started[slot]) - T] for slot in slots}
    cluster.at(10**6)
    assert foreseen == {job: cluster.runs(job) for job in foreseen}


@settings(deadline=None, max_examples=examples(20))
@given(JOBS, JOBS)
def test_jobs_that_come_later_are_placed_as_the_engine_places_them(
    jobs: list[tuple[int, int, int, float, int]], later: list[tuple[int, int, int, float, int]]
) -> None:
    cluster = filled(jobs)
    given = expected_starts_input(cluster.engine.state)
    assert given is not None
    moment, coming, arrivals, fork = given.now, [], [], with_room(given.plan.fork())
    waiting = waiting_slots(given.plan, given.since).tolist()
    lasts = predicted_run_times(cluster)
    for i, (count, ppn, walltime, share, gap) in enumerate(later):
        moment += 2 * gap + 1
        run_s = max(1, int(walltime * share))
        duration = walltime + cluster.engine.state.settings.end_allowance
        slot = fork.add_job(Request((Chunk(count, ppn),)), duration, moment)
        lasts = np.concatenate((lasts, np.zeros(fork.jobs.starts.shape[0] - lasts.shape[0], np.int64)))
        lasts[slot] = run_s
        arrivals.append(slot)
        coming.append((moment, f"later{i}", f"{count}:ppn={ppn}", walltime, run_s))
    found = project_plan(fork, lasts, given.now, MUCH, waiting, arrivals=np.array(arrivals, np.int64))
    foreseen = {given.ids[slot]: [int(found.started[slot]) - T] for slot in waiting}
    for moment, job, nodes, walltime, run_s in coming:
        cluster.at(moment - T)
        cluster.submit(job, nodes, walltime, runtime=run_s)
    cluster.at(10**6)
    assert foreseen == {job: cluster.runs(job) for job in foreseen}


@settings(deadline=None, max_examples=examples(100))
@given(JOBS, st.integers(0, 3_000), st.sampled_from([0, 600, 5_000]))
def test_projected_starts_under_a_backfill_rule_match_the_engine(
    jobs: list[tuple[int, int, int, float, int]], patience: int, slack: int
) -> None:
    rules: dict[str, Any] = {"backfill": "shortest", "search_patience": patience, "slack": slack}
    cluster = filled(jobs, predict=False, **rules)
    state = cluster.engine.state
    rule = backfill_rule(state)
    found = project_plan(
        with_room(state.plan.fork()), predicted_run_times(cluster), state.now, MUCH, rule=rule
    )
    foreseen = {
        record.id: [int(found.started[slot]) - T]
        for slot, record in enumerate(state.by_slot)
        if record is not None and found.started[slot] >= 0
    }
    cluster.at(10**6)
    assert foreseen == {job: cluster.runs(job) for job in foreseen}


def test_rule_uses_predictions_of_the_submission_like_the_engine() -> None:
    """The first of many alike has ended since: they are known to be short by now, and go as before."""
    cluster = Cluster(predict=True, backfill="shortest")
    for i in range(6):
        cluster.submit(str(i), walltime=3_600, runtime=60)
    for job, walltime in (("a", 1_800), ("b", 1_700)):
        cluster.submit(job, walltime=walltime, owner="bob@login")
    cluster.at(200)
    given = expected_starts_input(cluster.engine.state)
    assert given is not None
    sampler = compute_expected_starts(given).sampler
    order = sampler.order.tolist()
    assert sampler.median_run_times[order].tolist() == [60] * 5 + [1_800]
    found = project_plan(given.plan.fork(), predicted_run_times(cluster), given.now, MUCH, rule=sampler.rule)
    foreseen = {given.ids[slot]: [int(found.started[slot]) - T] for slot in order}
    cluster.at(10**6)
    assert foreseen == {job: cluster.runs(job) for job in foreseen}


@settings(deadline=None, max_examples=examples(20))
@given(JOBS, st.integers(0, 200_000))
def test_jobs_beyond_the_work_limit_are_decoded_and_projected_starts_stay(
    jobs: list[tuple[int, int, int, float, int]], work: int
) -> None:
    """With a work budget for a few events, the started jobs are the first of a full projection."""
    cluster = filled(jobs)
    given = expected_starts_input(cluster.engine.state)
    assert given is not None
    lasts = predicted_run_times(cluster)
    order = waiting_slots(given.plan, given.since)
    whole = project_plan(given.plan.fork(), lasts, given.now, MUCH).started
    fork = given.plan.fork()
    part = project_plan(fork, lasts, given.now, work)
    reached = part.started >= 0
    assert (part.started[reached] == whole[reached]).all()
    assert (whole[order][part.started[order] < 0] >= part.now).all()
    rest = order[part.started[order] < 0]
    starts = decode_starts(fork, rest, lasts, part.now)
    assert (starts >= part.now).all()
    begins = part.started.copy()
    begins[rest] = starts
    # The cpus of all jobs running together, including the initial ones, fit the machine.
    cpus = given.plan.requested_cpus(order)
    running = np.flatnonzero(given.plan.jobs.states == FIXED)
    for moment in begins[order].tolist():
        used = int(cpus[(begins[order] <= moment) & (moment < begins[order] + lasts[order])].sum())
        ends = np.maximum(given.plan.jobs.starts[running] + lasts[running], given.now + 1)
        used += int(given.plan.requested_cpus(running)[ends > moment].sum()) if running.shape[0] else 0
        assert used <= 12


def test_the_same_state_draws_the_same() -> None:
    cluster = filled([(1, 4, 1_000, 0.2, 0)] * 9)
    rounds = []
    for _ in range(2):
        given = expected_starts_input(cluster.engine.state)
        assert given is not None
        sampler = StartSampler.from_plan(given.plan, given.now, given.since, given.ids, given.predictions)
        rounds.append(np.stack([one.starts[sampler.order] for one in sampler.sample_plans()]))
    assert rounds[0].shape == (9, 6)
    assert (rounds[0] == rounds[1]).all()


@pytest.mark.parametrize("work", [0, 15_000_000])
def test_sampled_plans_are_those_of_forks_of_their_own(monkeypatch: pytest.MonkeyPatch, work: int) -> None:
    monkeypatch.setattr("schedd.predict.start_sampler._WORK_SEGMENTS", work)
    cluster = filled([(1 + i % 3, 1 + i % 4, 500 + 70 * i, 0.3, 0) for i in range(14)])
    given = expected_starts_input(cluster.engine.state)
    assert given is not None
    sampler = StartSampler.from_plan(given.plan, given.now, given.since, given.ids, given.predictions)
    drawn = sampler.sample_plans()
    for k, one in enumerate(drawn):
        fork, plan = sampler.plan.fork(), one.plan.unpack()
        ahead = sampler.with_arrivals(sampler.plan, None)
        now, starts = sampler._draw(k, (), fork, ahead, all_planned=sampler._all_planned)
        assert (now, starts.tolist()) == (one.now, one.starts.tolist())
        assert plan.jobs.starts.tolist() == fork.jobs.starts.tolist()
        for row in range(fork.tables.rows.shape[0]):
            mine, own = plan.timeline(row), fork.timeline(row)
            assert mine.times.tolist() == own.times.tolist()
            assert mine.free.tolist() == own.free.tolist()
    near = sampler.decode_near(sampler.order.tolist())
    assert (near[:, sampler.order] >= sampler.now).all()
    assert work or (near[:, sampler.order] == np.stack([one.starts for one in drawn])[:, sampler.order]).all()


def test_partial_question_agrees_with_the_full_round() -> None:
    cluster = filled([(1 + i % 3, 1 + i % 4, 500 + 70 * i, 0.3, 0) for i in range(14)])
    given = expected_starts_input(cluster.engine.state)
    assert given is not None
    sampler = StartSampler.from_plan(given.plan, given.now, given.since, given.ids, given.predictions)
    whole = start_quantiles(np.stack([one.starts[sampler.order] for one in sampler.sample_plans()]))
    for k, slot in enumerate(sampler.order.tolist()):
        one = start_quantiles(np.stack([each.starts[[slot]] for each in sampler.sample_plans((slot,))]))
        assert (one.p50[0], one.p90[0]) == (whole.p50[k], whole.p90[k])


def test_decoding_stops_after_the_needed_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedd.predict.start_sampler._WORK_SEGMENTS", 0)
    cluster = filled([(1 + i % 3, 1 + i % 4, 500 + 70 * i, 0.3, 0) for i in range(14)])
    given = expected_starts_input(cluster.engine.state)
    assert given is not None
    sampler = StartSampler.from_plan(given.plan, given.now, given.since, given.ids, given.predictions)
    whole = np.stack([one.starts for one in sampler.sample_plans()])
    placed: list[int] = []
    place = Plan.place

    def counted(plan: Plan, slot: int, now: int) -> int:
        placed.append(slot)
        return place(plan, slot, now)

    monkeypatch.setattr(Plan, "place", counted)
    for slot in sampler.order.tolist():
        assert (sampler.sample_starts((slot,))[:, slot] == whole[:, slot]).all()
    every = len(sampler.order) * whole.shape[0] * len(sampler.order)
    assert 0 < len(placed) < 0.75 * every


def test_all_jobs_are_decoded_without_a_work_budget() -> None:
    cluster = filled([(3, 4, 1_000, 0.2, 0)] * 3)
    given = expected_starts_input(cluster.engine.state)
    assert given is not None
    order = waiting_slots(given.plan, given.since)
    lasts = predicted_run_times(cluster)
    fork = given.plan.fork()
    part = project_plan(fork, lasts, given.now, 0)
    # One event, an end, is run on to; it lets the second job start.
    assert part.started[order].tolist() == [T + 200, -1]
    assert decode_starts(fork, order[1:], lasts, part.now).tolist() == [T + 400]


def test_a_plan_that_is_stopped_ends_the_run() -> None:
    cluster = filled([(3, 4, 1_000, 0.2, 0)] * 3)
    given = expected_starts_input(cluster.engine.state)
    assert given is not None
    given.plan.stop()
    assert (project_plan(given.plan, predicted_run_times(cluster), given.now, MUCH).started == -1).all()
