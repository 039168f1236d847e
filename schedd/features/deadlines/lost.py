"""Missed deadlines, for sites that hold such jobs (``deadline_lost = "hold"``; multilevel.md §8, 5).

Whether a deadline is missed depends only on the job, the time and the policy. Nothing is stored: the hold
reappears after a restart and ends with a change of the deadline, the walltime or the policy.
"""

from typing import Final

import numpy as np

from schedd.dialect import find_dialect
from schedd.dialect.deadline import read_deadline, read_required_probability
from schedd.dialect.moldable import read_walltime_range
from schedd.engine.component.placement_hooks import is_planned_on_hold
from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import replan
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.deadlines.settings import DeadlineSettings
from schedd.features.deadlines.state import deadlines_state
from schedd.model import FOREVER, WaitingFor
from schedd.plan.columns import Ints
from schedd.policy.priority import latest_start
from schedd.policy.site import SitePolicy
from schedd.wire import JobFacts

WAIT_KIND: Final = "deadline"  # of `WaitingFor`


def idle_hooks(state: EngineState) -> list[str]:
    """Where deadlines are wishes, no job waits because of its own, and none is guaranteed."""
    part = deadlines_state(state)
    judged = state.site.part(DeadlineSettings).admission or part.accepted or part.refused
    waits = state.site.weights.deadline_lost == "hold"
    works = {"must_wait": waits, "form_must_wait": waits, "guaranteed_start": judged}
    return [hook for hook, has_work in works.items() if not has_work]


def wait_for_deadline(state: EngineState, record: JobRecord) -> WaitingFor | None:
    """Return what a job waits for that can no longer end by its deadline; None: it may start."""
    lost = _lost_deadline(state, record)
    return None if lost is None or is_planned_on_hold(state, record) else lost


def _lost_deadline(state: EngineState, record: JobRecord) -> WaitingFor | None:
    if record.slot < 0:
        return None
    # The columns have the deadline before the job was altered.
    return _find_lost(state.site, record.facts, record.understood.walltime, state.now)


def wait_in_what_if(
    published: PlanSnapshot,
    facts: JobFacts,
    understood: ParsedRequest,
    instead_of: str,  # noqa: ARG001
) -> WaitingFor | None:
    """The same for a hypothetical job."""
    return _find_lost(published.settings.site, facts, understood.walltime, published.as_of)


def shortest_walltime(facts: JobFacts, walltime: int) -> int:
    """Return the shortest walltime that a waiting job may get; ``walltime``: the planned one."""
    bounds = read_walltime_range(facts.resources)
    if bounds is None or not find_dialect(facts.family).is_shrinkable(facts.resources):
        return walltime
    return min(walltime, bounds[0])


def _find_lost(site: SitePolicy, facts: JobFacts, walltime: int, now: int) -> WaitingFor | None:
    if site.weights.deadline_lost != "hold":
        return None
    if read_required_probability(facts.resources) is not None:
        return None  # it may end long before its walltime
    deadline = read_deadline(facts.resources, facts.submitted)
    if deadline is None or latest_start(deadline, shortest_walltime(facts, walltime)) >= now:
        return None
    return WaitingFor(
        WAIT_KIND,
        f"its user or an admin, since it can no longer end by its deadline, {format_moment(deadline)}: "
        "set a later deadline or a shorter walltime (qalter)",
    )


def follow_settings(state: EngineState) -> None:
    """Note whether the site holds jobs with lost deadlines."""
    deadlines_state(state).holds_lost = state.site.weights.deadline_lost == "hold"


def remove_lost_deadlines(state: EngineState, event: str) -> None:
    """Remove planned jobs that can no longer end by their deadlines; jobs that are about to start stay."""
    if state.site.weights.deadline_lost != "hold":
        return
    for slot in _lost_slots(state):
        record = state.by_slot[slot]
        if record is None or record.phase is not Phase.WAITING or _lost_deadline(state, record) is None:
            continue
        with JobErrorGuard(state, record.id, event):
            if not is_planned_on_hold(state, record):
                state.frees += state.plan.start(slot) >= 0
                replan(state, record, event, Cause.ADMIN, "it can no longer end by its deadline")


def next_lost_deadline(state: EngineState) -> int:
    """Return the first second when another deadline will be missed; FOREVER: none."""
    if state.site.weights.deadline_lost != "hold":
        return FOREVER
    _, latest = _latest_starts(state)
    return int(latest[latest >= state.now].min(initial=FOREVER - 1)) + 1


def _lost_slots(state: EngineState) -> list[int]:
    """Return the slots of waiting jobs with lost deadlines, the earliest planned start first."""
    slots, latest = _latest_starts(state)
    slots = slots[latest < state.now]
    found: list[int] = slots[np.lexsort((slots, state.plan.starts(slots)))].tolist()
    return found


def _latest_starts(state: EngineState) -> tuple[Ints, Ints]:
    """Return the slots of waiting jobs with a deadline, and the latest start of each that meets it."""
    unplaced = [*state.queue, *(state.records[job].slot for job in state.without_place)]
    slots = np.union1d(state.plan.planned(), np.array(unplaced, np.int64))
    slots = slots[state.due_by[slots] < FOREVER]
    return slots, state.due_by[slots] - state.plan.jobs.durations[slots]
