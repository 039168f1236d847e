"""A trial changes nothing, and says truly whether the move is better."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedd.model import FOREVER, Chunk, Node, Request
from schedd.plan.evaluate import DEFAULT_WEIGHTS, Criterion, CriterionWeights, Evaluation, ScoringColumns
from schedd.plan.kernels import layout as at
from schedd.plan.kernels import moves as mv
from schedd.plan.latest_starts import latest_starts
from schedd.plan.plan import Plan
from tests.optimize.scenes import NOW, Scene, scenes, weights


def state_of(scene: Scene) -> object:
    """All that the plan holds, but for versions and unused places."""
    tb = scene.plan.tables
    rows = []
    for off, length, *_ in tb.rows.tolist():
        rows.append((tb.T[off : off + length].tolist(), tb.F[:, off : off + length].tolist()))
    takes = {slot: scene.plan.takes(slot) for slot in scene.mirror.jobs}
    return rows, tb.jobs.tolist(), takes, tb.ctl[[at.ALLOC_TOP, at.ALLOC_GARBAGE, at.FREED]].tolist()


@given(scenes(), weights(), st.data())
def test_a_trial_leaves_all_as_it_was_and_tells_the_truth(
    scene: Scene, drawn: dict[Criterion, float], data: st.DataObject
) -> None:
    weighed = CriterionWeights(drawn)
    evaluation = Evaluation(scene.plan, scene.columns, NOW)
    reference = evaluation.values()
    cost = weighed.cost(reference, reference)
    latest = latest_starts(scene.plan, scene.promised, scene.columns, NOW)
    trial = mv.trial(scene.plan.tables, evaluation.scores, max(len(scene.waiting), 1))
    for _ in range(data.draw(st.integers(1, 5)) if scene.waiting else 0):
        slots = data.draw(st.lists(st.sampled_from(scene.waiting), min_size=1, unique=True))
        before, parts = state_of(scene), evaluation.scores.part.copy()
        while True:
            trial.slots[: len(slots)] = slots
            how, after = mv.attempt(
                scene.plan.tables,
                evaluation.scores,
                trial,
                len(slots),
                latest,
                NOW,
                weighed.array,
                reference.array,
                cost,
            )
            if how != mv.FULL:
                break
            before = None
            scene.plan.slabs.grow_alloc(200)
            scene.plan.slabs.grow_segments()
        if before is not None:
            assert state_of(scene) == before
        scene.check()
        assert evaluation.values().as_dict() == reference.as_dict()
        assert np.array_equal(evaluation.scores.part, parts)
        # The same by the plan's own operations, on a copy.
        other = scene.on(scene.plan.fork())
        for slot in slots:
            other.plan.remove(slot, NOW)
        placed = [other.plan.place(slot, NOW, int(latest[slot]) + 1) >= 0 for slot in slots]
        assert (how == mv.TOO_LATE) == (not all(placed))
        if all(placed):
            values = Evaluation(other.plan, scene.columns, NOW).values()
            truth = weighed.cost(values, reference)
            assert np.isclose(truth, after, rtol=1e-9, atol=1e-9) or truth == after
            if abs(truth - cost) > 1e-9:
                assert (how == mv.BETTER) == (truth < cost)


def test_jobs_that_were_tried_on_other_nodes_are_known_to_hold_those_that_they_had() -> None:
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
