"""Missed deadlines, for sites that hold such jobs (``deadline_lost = "hold"``; multilevel.md §8, 5).

Whether a deadline is missed depends only on the job, the time and the policy. Nothing is stored: the hold
reappears after a restart and ends with a change of the deadline, the walltime or the policy.
"""

from typing import TYPE_CHECKING

import numpy as np

from schedd.dialect.deadline import read_deadline
from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.records import JobRecord
from schedd.model import FOREVER, WaitingFor
from schedd.plan.columns import Ints
from schedd.policy.priority import latest_start

if TYPE_CHECKING:
    from schedd.engine.facts.state import EngineState

__all__ = ["KIND", "lost_deadline", "lost_deadline_slots", "next_lost_deadline"]

KIND = "deadline"
"""Of ``WaitingFor``."""


def lost_deadline(state: "EngineState", record: JobRecord) -> WaitingFor | None:
    """What a job with a slot waits for that can no longer end by its deadline; None where it may start."""
    if state.site.weights.deadline_lost != "hold" or record.slot < 0:
        return None
    # Not from the columns: they have what the job asked for before it was altered.
    deadline = read_deadline(record.facts.resources, record.facts.submitted)
    if deadline is None or latest_start(deadline, record.understood.walltime) >= state.now:
        return None
    return WaitingFor(
        KIND,
        f"its user or an admin, since it can no longer end by its deadline, {format_moment(deadline)}: "
        "set a later deadline or a shorter walltime (qalter)",
    )


def lost_deadline_slots(state: "EngineState") -> list[int]:
    """The slots of jobs that are planned, or are to be, though their deadlines are lost; the first to start
    first.
    """
    slots, latest = _latest(state)
    slots = slots[latest < state.now]
    found: list[int] = slots[np.lexsort((slots, state.plan.starts(slots)))].tolist()
    return found


def next_lost_deadline(state: "EngineState") -> int:
    """Return the first second in which another deadline will be missed; FOREVER: none."""
    if state.site.weights.deadline_lost != "hold":
        return FOREVER
    _, latest = _latest(state)
    return int(latest[latest >= state.now].min(initial=FOREVER - 1)) + 1


def _latest(state: "EngineState") -> tuple[Ints, Ints]:
    """The waiting jobs with a deadline, and when each must start at the latest."""
    unplaced = [*state.queue, *(state.records[job].slot for job in state.without_place)]
    slots = np.union1d(state.plan.planned(), np.array(unplaced, np.int64))
    slots = slots[state.due_by[slots] < FOREVER]
    return slots, state.due_by[slots] - state.plan.jobs.durations[slots]
