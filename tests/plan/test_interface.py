"""Interface of the plan for other packages, which do not depend on its storage."""

import re
from pathlib import Path

import numpy as np
import pytest

import schedd
from schedd.model import Chunk, Node, Request
from schedd.plan.columns import CPUS, FIXED, PLANNED
from schedd.plan.plan import Plan
from schedd.plan.records import Take

ROOT = Path(schedd.__file__).parent
INSIDE = re.compile(r"plan\.(kernels|tables|slabs|shapes\b(?! import)|_\w+)|layout as at\b")


def test_no_other_package_reaches_into_the_plans_arrays() -> None:
    own = ROOT / "predict" / "kernels.py"  # made by the same decorator
    sources = [path for path in ROOT.rglob("*.py") if ROOT / "plan" not in path.parents and path != own]
    assert len(sources) > 200
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if INSIDE.search(line)
    ]
    assert not found


def test_columns_that_are_read_cannot_be_written() -> None:
    plan = Plan([Node("n", 4)], 0)
    plan.place(plan.add_job(Request((Chunk(cpus=4),)), 10, 0), 0)
    readable = plan.read_view()
    for view in (plan.jobs, readable):
        for column in (view.starts, view.durations, view.states):
            with pytest.raises(ValueError, match="read-only"):
                column[0] = 7
    with pytest.raises(ValueError, match="read-only"):
        plan.held(np.array([0])).amounts[0] = 7


def test_read_view_never_changes() -> None:
    plan = Plan([Node("n", 4)], 0)
    slot = plan.add_job(Request((Chunk(cpus=3),)), 10, 0)
    plan.place(slot, 0)
    before = plan.read_view()
    plan.remove(slot, 0)
    plan.fix(slot, 5, [Take(0, 0, 1, (4, 1, 0, 0))])
    assert (before.starts[slot], before.states[slot]) == (0, PLANNED)
    assert [entry.amounts[CPUS] for entry in before.held_by(slot)] == [3]
    assert [take.amounts[CPUS] for take in before.takes(slot)] == [3]
    assert (plan.jobs.starts[slot], plan.jobs.states[slot]) == (5, FIXED)


def test_unfixed_job_stays_planned_at_its_place() -> None:
    plan = Plan([Node("n", 4)], 0)
    slot = plan.add_job(Request((Chunk(cpus=3),)), 10, 0)
    with pytest.raises(ValueError, match="not a placed job"):
        plan.unfix(slot)
    plan.place(slot, 0)
    plan.fix_in_place(slot)
    plan.unfix(slot)
    assert (plan.state(slot), plan.start(slot)) == (PLANNED, 0)


def test_timeline_gives_free_amounts_at_any_time() -> None:
    plan = Plan([Node("n", 4)], 0)
    plan.place(plan.add_job(Request((Chunk(cpus=3),)), 10, 5), 0)
    timeline = plan.timeline(plan.node_rows["n"])
    assert [int(timeline.at(moment)[CPUS]) for moment in (0, 5, 14, 15)] == [4, 1, 1, 4]
    assert timeline.capacity[CPUS] == 4


def test_amounts_are_converted_from_resource_names() -> None:
    plan = Plan([Node("n", 4, resources=(("tape", 2),))], 0)
    assert plan.amounts({"tape": 2, "cpus": 1})[plan.resource_columns["tape"]] == 2
    assert plan.whole_node_amounts(0)[CPUS] == 4
    with pytest.raises(KeyError):
        plan.amounts({"unicorns": 1})
