"""A trial changes nothing, and says truly whether the move is better."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from schedd.plan.evaluate import Criterion, Evaluation, Weights
from schedd.plan.kernels import layout as at
from schedd.plan.kernels import moves as mv
from schedd.plan.latest import latest_starts
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
    weighed = Weights(drawn)
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
            other.plan.lift(slot, NOW)
        placed = [other.plan.place(slot, NOW, int(latest[slot]) + 1) >= 0 for slot in slots]
        assert (how == mv.TOO_LATE) == (not all(placed))
        if all(placed):
            values = Evaluation(other.plan, scene.columns, NOW).values()
            truth = weighed.cost(values, reference)
            assert np.isclose(truth, after, rtol=1e-9, atol=1e-9) or truth == after
            if abs(truth - cost) > 1e-9:
                assert (how == mv.BETTER) == (truth < cost)
