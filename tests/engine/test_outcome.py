"""Outcome of a call: decisions, moved starts, and applied search results."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from schedd.engine import Engine, EngineSettings, Outcome
from schedd.engine.facts.records import Cause
from schedd.engine.plan_improvements import movable_slots, place_facts
from schedd.plan.placements import current_allocation
from schedd.wire import JobDeleted, JobFacts, JobQueued, NodeChanged, NodeFacts, PlanChosen, PlanImproved, Run

T = 1_700_000_000


def engine() -> Engine:
    """One node of four cpus; job 1 is about to start on all of it, 2 and 3 wait behind it."""
    one = Engine(EngineSettings(validate=True, slack="1000000", publish_starts=False), T)
    one.handle([NodeChanged(id="n", time=T, node=NodeFacts(name="n1", cpus=4))], T)
    one.handle([queued(number) for number in (1, 2, 3)], T)
    return one


def queued(number: int) -> JobQueued:
    resources = {"nodes": "1:ppn=4", "walltime": "100"}
    facts = JobFacts(id=f"{number}.s", owner="ann", queue="q", submitted=T, resources=resources)
    return JobQueued(id=f"q:{number}", time=T, job=facts)


def moves(outcome: Outcome) -> list[tuple[str, Cause, list[int], list[int]]]:
    """Of each change: the event, the cause, the starts before and after."""

    def listed(starts: npt.NDArray[np.int64]) -> list[int]:
        return [start - T if start >= 0 else -1 for start in starts.tolist()]

    return [(one.event, one.cause, listed(one.old), listed(one.new)) for one in outcome.moves]


def test_outcome_has_only_the_decisions_and_moves_of_its_call() -> None:
    one = Engine(EngineSettings(validate=True, publish_starts=False), T)
    one.handle([NodeChanged(id="n", time=T, node=NodeFacts(name="n1", cpus=4))], T)
    first = one.handle([queued(1)], T)
    assert [type(decision) for decision in first.decisions] == [Run]
    assert moves(first) == [("q:1", Cause.ARRIVED, [-1], [0])]
    second = one.handle([queued(2)], T)
    assert second.decisions == ()
    assert moves(second) == [("q:2", Cause.ARRIVED, [-1], [100])]
    assert one.handle([], T) == Outcome()


def test_outcome_has_all_moves_although_the_change_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedd.engine.rank.promises._CHANGES_KEPT", 1)
    one = engine()
    made = one.handle([JobDeleted(id="d", time=T, job_id="1.s")], T + 1)
    assert len(one.state.changes) == 1
    assert len(made.moves) > 1 or made.moves[0].slots.shape[0] > 1


def test_outcome_has_the_number_of_moved_jobs_by_event() -> None:
    one = engine()
    plan, jobs = one.state.plan, {record.slot: record.id for record in one.state.records.values()}
    assert one.handle([PlanImproved(id="nothing", time=T, places=())], T).taken == {"nothing": 0}
    slots = movable_slots(one.state).tolist()
    assert len(slots) == 2
    # The two that wait change their turns.
    starts = {slot: plan.start(slot) for slot in slots}
    turned = [
        replace(current_allocation(plan, slot), start=starts[other])
        for slot, other in zip(slots, reversed(slots), strict=True)
    ]
    chosen = PlanChosen(id="choice", time=T, places=place_facts(plan, jobs, turned), by="root")
    made = one.handle([chosen], T)
    assert made.taken == {"choice": 2}
    assert sum(change.slots.shape[0] for change in made.moves if change.cause is Cause.CHOSEN) == 2
    assert one.handle([chosen], T).taken == {"choice": 0}, "it is this plan already"
    assert one.handle([], T).taken == {}
