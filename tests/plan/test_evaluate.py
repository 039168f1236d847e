"""Incrementally updated values equal the plain formulas after any moves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import FOREVER, Chunk, Node, NodeState, Request
from schedd.plan.criteria import NON_REGULAR, Criterion
from schedd.plan.evaluate import CriterionValues, CriterionWeights, Evaluation, ScoringColumns
from schedd.plan.kernels import layout as at
from schedd.plan.plan import Plan
from schedd.plan.records import Take
from tests.plan.strategies import DURATIONS, clusters, requests

NOW = 1_000


@dataclass
class EvaluatedJob:
    """A job as the test knows it."""

    slot: int
    request: Request
    duration: int
    release: int
    due: int
    owner: int


def expected(plan: Plan, jobs: list[EvaluatedJob], threshold: int) -> dict[str, float]:
    """Compute every criterion by its formula, only from starts and takes."""
    planned = [job for job in jobs if plan.state(job.slot) == at.PLANNED]
    running = [job for job in jobs if plan.state(job.slot) == at.FIXED]

    def held(job: EvaluatedJob, weighted: bool) -> float:
        seconds = max(0, plan.end(job.slot) - max(NOW, plan.start(job.slot)))
        nodes = [(plan.nodes[plan.node_names[take.row]], take) for take in plan.takes(job.slot)]
        return sum(take.amounts[at.CPUS] * seconds * (node.speed if weighted else 1) for node, take in nodes)

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    makespan = max([0, *(plan.end(job.slot) - NOW for job in planned + running)])
    up = [node for node in plan.nodes.values() if node.state is NodeState.UP]

    def used_share(weighted: bool) -> float:
        capacity = sum(node.cpus * (node.speed if weighted else 1) for node in up)
        if not makespan or not capacity:
            return 0.0
        return sum(held(job, weighted) for job in planned + running) / (capacity * makespan)

    waits = [plan.start(job.slot) - job.release for job in planned]
    responses = [plan.end(job.slot) - job.release for job in planned]
    slow = [r / job.duration for r, job in zip(responses, planned, strict=True)]
    bounded = [max(1, r / max(threshold, job.duration)) for r, job in zip(responses, planned, strict=True)]
    tardy = [max(0, plan.end(job.slot) - job.due) for job in planned]
    users = max((job.owner + 1 for job in planned), default=0)
    waits_of, used_by = [0.0] * users, [0.0] * users
    for job, wait in zip(planned, waits, strict=True):
        cpus = sum(chunk.count * chunk.cpus for chunk in job.request.chunks)
        waits_of[job.owner] += wait
        used_by[job.owner] += max(cpus, 1) * job.duration
    nuwt = [w / u for w, u in zip(waits_of, used_by, strict=True) if u > 0]
    return {
        "makespan": makespan,
        "utilisation": used_share(weighted=False),
        "weighted_utilisation": used_share(weighted=True),
        "wait": mean(waits),
        "wait_rms": math.sqrt(mean([wait**2 for wait in waits])),
        "wait_max": max(waits, default=0),
        "response": mean(responses),
        "response_max": max(responses, default=0),
        "slowdown": mean(slow),
        "slowdown_max": max(slow, default=0),
        "bounded_slowdown": mean(bounded),
        "bounded_slowdown_max": max(bounded, default=0),
        "late_jobs": sum(t > 0 for t in tardy),
        "tardiness": mean(tardy),
        "tardiness_max": max(tardy, default=0),
        "nuwt": mean(nuwt),
        "nuwt_max": max(nuwt, default=0),
        "unfairness": sum((value - mean(nuwt)) ** 2 for value in nuwt),
    }


def with_speeds(cluster: list[Node], data: st.DataObject) -> list[Node]:
    return [
        Node(n.name, n.cpus, n.mem, n.vmem, n.gpus, n.resources, n.features, n.state, speed)
        for n, speed in zip(
            cluster,
            data.draw(
                st.lists(st.sampled_from([0.5, 1.0, 2.5]), min_size=len(cluster), max_size=len(cluster))
            ),
            strict=True,
        )
    ]


JOB = st.tuples(
    requests(),
    DURATIONS,
    st.integers(0, NOW),
    st.one_of(st.just(FOREVER), st.integers(NOW, NOW + 1500)),
    st.integers(0, 3),
)


@given(
    clusters(),
    st.lists(JOB, max_size=10),
    st.sampled_from([1, 10, 60]),
    st.data(),
)
def test_updated_values_match_the_formulas(
    cluster: list[Node], drawn: list[Any], threshold: int, data: st.DataObject
) -> None:
    plan = Plan(with_speeds(cluster, data), NOW)
    columns = ScoringColumns.blank(plan.tables.jobs.shape[1])
    jobs = []
    for request, duration, release, due, owner in drawn:
        slot = plan.add_job(request, duration, NOW)
        columns.release[slot], columns.due[slot], columns.owner[slot] = release, due, owner
        jobs.append(EvaluatedJob(slot, request, duration, release, due, owner))
        if plan.place(slot, NOW) >= 0 and data.draw(st.integers(0, 4)) == 0:
            plan.fix_in_place(slot)
    evaluation = Evaluation(plan, columns, NOW, threshold=threshold)

    def agrees() -> None:
        assert evaluation.values().as_dict() == pytest.approx(
            expected(plan, jobs, threshold), rel=1e-9, abs=1e-9
        )

    agrees()
    for _ in range(data.draw(st.integers(0, 6)) if jobs else 0):
        movable = [job.slot for job in jobs if plan.state(job.slot) in (at.PLANNED, at.UNPLACED)]
        chosen = data.draw(st.lists(st.sampled_from(movable), unique=True)) if movable else []
        for slot in chosen:
            plan.remove(slot, NOW)
        for slot in chosen:
            if data.draw(st.booleans()):
                plan.place(slot, NOW + data.draw(st.sampled_from([0, 30, 500])))
        evaluation.update(np.array(chosen, np.int64))
        agrees()


def test_an_empty_plan_is_worth_nothing() -> None:
    plan = Plan([Node("a", 4)], 0)
    values = Evaluation(plan, ScoringColumns.blank(plan.tables.jobs.shape[1]), 0).values()
    assert set(values.as_dict().values()) == {0.0}


def two_jobs() -> tuple[Plan, ScoringColumns]:
    plan = Plan([Node("a", 1)], 0)
    for _ in range(2):
        plan.place(plan.add_job(Request((Chunk(cpus=1),)), 100, 0), 0)
    return plan, ScoringColumns.blank(plan.tables.jobs.shape[1])


def test_cost_is_the_weighted_sum_relative_to_the_reference() -> None:
    plan, columns = two_jobs()
    before = Evaluation(plan, columns, 0).values()
    assert (before[Criterion.WAIT], before[Criterion.UTILISATION]) == (50.0, 1.0)
    after = CriterionValues(before.array * 0.5)
    weights = CriterionWeights({Criterion.WAIT: 2, Criterion.UTILISATION: 1})
    assert weights.cost(before, before) == 0.5  # what should grow counts negative, the largest weight as 1
    assert weights.cost(after, before) == 0.5 - 0.5 * 0.5


def test_positive_value_with_zero_reference_costs_infinity() -> None:
    plan, columns = two_jobs()
    before = Evaluation(plan, columns, 0).values()
    assert before[Criterion.LATE_JOBS] == 0
    columns.due[:] = 150
    late = Evaluation(plan, columns, 0).values()
    weights = CriterionWeights({Criterion.LATE_JOBS: 1})
    assert late[Criterion.LATE_JOBS] == 1
    assert weights.cost(late, before) == float("inf")
    assert weights.cost(before, before) == 0


@pytest.mark.parametrize("weights", [{}, {Criterion.WAIT: 0.0}, {Criterion.WAIT: -1.0}])
def test_weights_that_mean_nothing_are_refused(weights: dict[Criterion, float]) -> None:
    with pytest.raises(ValueError, match="weight"):
        CriterionWeights(weights)


@pytest.mark.parametrize("scale", [1e-300, 1e-13, 1e308])
def test_scaling_all_weights_changes_nothing(scale: float) -> None:
    plan, columns = two_jobs()
    before = Evaluation(plan, columns, 0).values()
    plain = CriterionWeights({Criterion.WAIT: 1, Criterion.WAIT_RMS: 0.5})
    scaled = CriterionWeights({Criterion.WAIT: scale, Criterion.WAIT_RMS: scale * 0.5})
    assert scaled.cost(before, before) == pytest.approx(plain.cost(before, before))


def test_a_reservation_is_no_work() -> None:
    plan, columns = two_jobs()
    before = Evaluation(plan, columns, 0).values()
    kept = plan.add_job(Request((Chunk(cpus=1),)), 1 << 40, 0)
    plan.fix(kept, 1000, (Take(0, 0, 1, (1, 0)),))
    columns.owner[kept] = -1
    assert Evaluation(plan, columns, 0).values().as_dict() == before.as_dict()
    columns.owner[kept] = 0
    assert Evaluation(plan, columns, 0).values()[Criterion.MAKESPAN] > 1000


def test_earlier_starts_make_only_some_criteria_worse() -> None:
    assert CriterionWeights({Criterion.WAIT: 1, Criterion.NUWT_MAX: 1}).regular
    assert CriterionWeights({Criterion.LATE_JOBS: 1, Criterion.TARDINESS: 0.1}).only_lateness
    assert not CriterionWeights({Criterion.LATE_JOBS: 1, Criterion.WAIT: 0.1}).only_lateness
    for criterion in NON_REGULAR:
        assert not CriterionWeights({Criterion.WAIT: 1, criterion: 0.1}).regular


def test_a_job_of_a_question_belongs_to_no_known_user() -> None:
    columns = ScoringColumns.blank(2)
    known = replace(columns, history=np.ones((2, 5)))
    assert known.including([2], 0, FOREVER).owner.tolist() == [0, 0, 5]
    assert columns.including([3, 2], 0, FOREVER).owner.tolist() == [0, 0, 1, 1]
