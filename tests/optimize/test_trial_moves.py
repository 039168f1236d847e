"""A trial of a move changes nothing and reports correctly whether the move is better."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import FOREVER, Chunk, Node, Request
from schedd.plan.columns import Ints
from schedd.plan.criteria import DEFAULT_WEIGHTS, Criterion
from schedd.plan.evaluate import CriterionWeights, Evaluation, ScoringColumns
from schedd.plan.kernels import displace as dp
from schedd.plan.kernels import layout as at
from schedd.plan.kernels import moves as mv
from schedd.plan.latest_starts import latest_starts
from schedd.plan.plan import Plan
from tests.optimize.random_plans import NOW, RandomPlan, random_plans, random_weights


def plan_state(random_plan: RandomPlan) -> object:
    """Return the contents of the plan, without versions and unused places."""
    tb = random_plan.plan.tables
    rows = []
    for off, length, *_ in tb.rows.tolist():
        rows.append((tb.T[off : off + length].tolist(), tb.F[:, off : off + length].tolist()))
    takes = {slot: random_plan.plan.takes(slot) for slot in random_plan.mirror.jobs}
    return rows, tb.jobs.tolist(), takes, tb.ctl[[at.ALLOC_TOP, at.ALLOC_GARBAGE, at.FREED]].tolist()


def passes_higher_rank(slots: list[int], old: dict[int, int], new: dict[int, int], rank: Ints) -> bool:
    """Whether one job of the move passes another one of higher rank, which is delayed."""
    return any(
        new[high] > old[high] <= old[low] > new[low] < new[high] and rank[low] < rank[high]
        for high in slots
        for low in slots
    )


@given(random_plans(), random_weights(), st.data())
def test_trial_restores_the_plan_and_reports_the_true_cost(
    random_plan: RandomPlan, drawn: dict[Criterion, float], data: st.DataObject
) -> None:
    weighed = CriterionWeights(drawn)
    evaluation = Evaluation(random_plan.plan, random_plan.columns, NOW)
    reference = evaluation.values()
    cost = weighed.cost(reference, reference)
    latest = latest_starts(random_plan.plan, random_plan.promised, random_plan.columns, NOW)
    trial = mv.trial(random_plan.plan.tables, evaluation.scores, max(len(random_plan.waiting), 1))
    for _ in range(data.draw(st.integers(1, 5)) if random_plan.waiting else 0):
        slots = data.draw(st.lists(st.sampled_from(random_plan.waiting), min_size=1, unique=True))
        before, parts = plan_state(random_plan), evaluation.scores.part.copy()
        while True:
            trial.slots[: len(slots)] = slots
            how, after = mv.attempt(
                random_plan.plan.tables,
                evaluation.scores,
                trial,
                len(slots),
                latest,
                NOW,
                weighed.array,
                reference.array,
                cost,
            )
            if how != at.FULL:
                break
            before = None
            random_plan.plan.slabs.grow_alloc(200)
            random_plan.plan.slabs.grow_segments()
        if before is not None:
            assert plan_state(random_plan) == before
        random_plan.check()
        assert evaluation.values().as_dict() == reference.as_dict()
        assert np.array_equal(evaluation.scores.part, parts)
        # Repeat the move with the plan's own operations, on a copy.
        other = random_plan.with_plan(random_plan.plan.fork())
        for slot in slots:
            other.plan.remove(slot, NOW)
        placed = [other.plan.place(slot, NOW, int(latest[slot]) + 1) >= 0 for slot in slots]
        assert (how == dp.TOO_LATE) == (not all(placed))
        if all(placed):
            passes = passes_higher_rank(slots, random_plan.starts(), other.starts(), random_plan.columns.rank)
            if passes:
                assert how == mv.NO_BETTER
                continue
            values = Evaluation(other.plan, random_plan.columns, NOW).values()
            truth = weighed.cost(values, reference)
            assert np.isclose(truth, after, rtol=1e-9, atol=1e-9) or truth == after
            if abs(truth - cost) > 1e-9:
                assert (how == mv.BETTER) == (truth < cost)


def test_trial_on_other_nodes_restores_the_held_nodes() -> None:
    plan = Plan([Node("n0", 4), Node("n1", 4)], NOW)
    for until in (100, 200):
        plan.place(plan.add_job(Request((Chunk(cpus=4),)), until, NOW), NOW)
    jobs = [plan.add_job(Request((Chunk(cpus=4),)), 300 - i, NOW) for i in range(2)]
    assert [plan.place(slot, NOW) for slot in jobs] == [NOW + 100, NOW + 200]
    before = plan.tables.jobs.copy()
    evaluation = Evaluation(plan, ScoringColumns.blank(before.shape[1]), NOW)
    trial = mv.trial(plan.tables, evaluation.scores, 2)
    trial.slots[:] = jobs[::-1]
    worth, weighed = evaluation.values(), CriterionWeights(DEFAULT_WEIGHTS)
    latest = np.full(before.shape[1], FOREVER, np.int64)
    how, _ = mv.attempt(
        plan.tables, evaluation.scores, trial, 2, latest, NOW, weighed.array, worth.array, 1.0
    )
    assert how in (mv.BETTER, mv.NO_BETTER)
    assert np.array_equal(plan.tables.jobs[at.HELD], before[at.HELD])
    assert np.array_equal(plan.tables.jobs, before)
