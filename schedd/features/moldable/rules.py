"""Choice of walltime or alternative for jobs that leave it to the scheduler.

A job with a range of walltimes gets the earliest start that the shortest allows, and the longest walltime
with this start; if the range allows an end by its deadline, the longest with such an end. Of alternatives,
the one with the earliest end is planned.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from schedd.dialect import RequestError, find_dialect, format_walltime, parse_walltime
from schedd.dialect.moldable import (
    is_moldable,
    marked_alternatives,
    read_alternatives,
    read_walltime_range,
    with_walltime,
)
from schedd.engine.component.hook_values import FormOffer
from schedd.engine.component.placement_hooks import latest_end, may_lengthen
from schedd.engine.facts.job_requests import ParsedRequest, holds_resources
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import NEVER, EngineState
from schedd.engine.place.costs import exceeds_limit
from schedd.engine.place.movable_jobs import movable_jobs
from schedd.engine.place.placement import replan
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.moldable.state import moldable_state
from schedd.model import FOREVER, Never
from schedd.plan.work_limits import WorkSpent
from schedd.wire import JobDeleted, JobEnded, JobFacts

_EXAMINED_EVERY_S: Final = 60
_EXAMINED_AT_ONCE: Final = 50
_LEAST_GAIN_S: Final = 60
"""A planned job gets another choice for at least this much."""
_CHOICES_PER_S: Final = 50
"""Maximum number of repeated choices per second for jobs that others displaced: each costs some searches."""


# ---- the planned part of a request -----------------------------------------------------------------------


def _is_moldable(facts: JobFacts) -> bool:
    """Return whether the request may leave a choice that can be set on the server at the start."""
    return is_moldable(facts.resources) and find_dialect(facts.family).is_shrinkable(facts.resources)


def planned_facts(state: EngineState, facts: JobFacts) -> JobFacts:
    """The facts of a job with the chosen walltime or alternative in its request."""
    if not _is_moldable(facts):
        return facts
    return _with_choice(facts, moldable_state(state).chosen.get(facts.id))


def _with_choice(facts: JobFacts, choice: int | None) -> JobFacts:
    """The facts with this choice; None: the first alternative, or the longest walltime."""
    resources = facts.resources
    if alternatives := marked_alternatives(resources):
        wanted = alternatives[choice if choice is not None and choice < len(alternatives) else 0]
        if holds_resources(facts) and "walltime" in resources:
            wanted = {**wanted, "walltime": resources["walltime"]}
        return replace(facts, resources=wanted)
    bounds = read_walltime_range(resources)
    if bounds is None or holds_resources(facts) or choice is None or not bounds[0] <= choice < bounds[1]:
        return facts
    return replace(facts, resources=with_walltime(resources, choice))


def refuse_range(_: EngineState | PlanSnapshot, facts: JobFacts) -> Never | None:
    """Return why a TORQUE job can never run: its shortest walltime exceeds its walltime. OpenPBS rejects such
    jobs.
    """
    resources = facts.resources
    name = next((name for name in ("minwclimit", "x.minwclimit") if name in resources), None)
    if name is None or not resources.get("walltime"):
        return None
    try:
        if parse_walltime(resources[name]) <= parse_walltime(resources["walltime"]):
            return None
    except RequestError:  # refused by the parser
        return None
    return Never(
        f"it requests minwclimit={resources[name]}, its shortest walltime, above walltime="
        f"{resources['walltime']}: qalter one of them"
    )


# ---- the choice -----------------------------------------------------------------------------------


def request_forms(state: EngineState, record: JobRecord) -> FormOffer | None:
    """The alternatives of a job's request, or its range of walltimes."""
    resources, chosen = record.facts.resources, moldable_state(state).chosen
    if not _is_moldable(record.facts):
        return None
    alternatives, bounds = read_alternatives(resources), read_walltime_range(resources)
    if not (alternatives or bounds) or not _may_choose(state, record):
        return None

    def choose(choice: int) -> None:
        chosen[record.id] = choice

    planned = state.policy is None
    if alternatives:
        values = range(len(alternatives)) if planned else range(1)
        return FormOffer(values, chosen.get(record.id, 0), choose)
    least, most = bounds or (0, 0)
    return FormOffer((most,), chosen.get(record.id, most), choose, least if planned else None)


def _may_choose(state: EngineState, record: JobRecord) -> bool:
    """Whether to choose for a job now; a job with a choice may have to keep it until it is examined."""
    part = moldable_state(state)
    if record.id not in part.chosen:
        return True
    if part.choice_second != state.now:
        part.choice_second, part.choices = state.now, 0
    part.choices += 1
    return part.choices <= _CHOICES_PER_S


def _read(state: EngineState, facts: JobFacts, choice: int) -> ParsedRequest:
    return state.requests.read(
        _with_choice(facts, choice), state.queues.get(facts.queue), state.server.defaults
    )


def _earliest_start(state: EngineState, record: JobRecord, choice: int, ready: int, bound: int) -> int:
    """The earliest start with this choice: see ``EngineState.earliest_start``."""
    understood = _read(state, record.facts, choice)
    if understood.request is None:
        return NEVER
    wanted = replace(
        state.planned_request(record.facts, understood.request), avoids=state.plan.request(record.slot).avoids
    )
    pools = state.pools_for(record.facts, understood)
    return state.earliest_start(wanted, understood.walltime, pools, ready, bound)


# ---- changes of the plan ------------------------------------------------------------------------------


def next_examination(state: EngineState) -> int:
    """When better choices are next considered; FOREVER: never."""
    part = moldable_state(state)
    return part.examined + _EXAMINED_EVERY_S if part.chosen else FOREVER


def follow_time(state: EngineState, event: str) -> None:
    """Plan again the jobs that have a better choice now, in the order of their starts."""
    part = moldable_state(state)
    if state.now < next_examination(state):
        return
    part.examined = state.now
    jobs = part.chosen if state.policy is None else ()
    waiting = movable_jobs(state, jobs, state.now + _LEAST_GAIN_S)
    for record in waiting[:_EXAMINED_AT_ONCE]:
        with JobErrorGuard(state, record.id, event):
            _examine(state, record, event)


def _examine(state: EngineState, record: JobRecord, event: str) -> None:
    facts, slot = record.facts, record.slot
    ready = max(state.now, state.plan.ready(slot))
    start = state.plan.start(slot)
    try:
        if alternatives := read_alternatives(facts.resources):
            end = start + record.understood.walltime
            for choice in range(len(alternatives)):
                bound = end - _LEAST_GAIN_S - _read(state, facts, choice).walltime + 1
                if bound > ready and _earliest_start(state, record, choice, ready, bound) < FOREVER:
                    replan(state, record, event, Cause.FREED, "it ends earlier with another number of tasks")
                    return
        elif (bounds := read_walltime_range(facts.resources)) is not None:
            bound = start - _LEAST_GAIN_S + 1
            if bound > ready and _earliest_start(state, record, bounds[0], ready, bound) < FOREVER:
                replan(state, record, event, Cause.FREED, "it starts earlier with a shorter walltime")
                return
            end_by = latest_end(state, facts)
            if start + bounds[0] <= end_by < start + record.understood.walltime:
                replan(state, record, event, Cause.FREED, "it ends by its deadline with a shorter walltime")
    except WorkSpent:  # too hard to examine; it keeps its place
        return


def lengthen(state: EngineState, record: JobRecord) -> JobRecord | None:
    """Lengthen the shortened walltime of a due job within its range, as far as it fits before the jobs
    planned next, and within its cost limit, the limits of pools, and the amounts that components count.
    """
    facts, plan, slot = record.facts, state.plan, record.slot
    if not _is_moldable(facts) or read_alternatives(facts.resources) or state.policy is not None:
        return None
    bounds, walltime, start = (
        read_walltime_range(facts.resources),
        record.understood.walltime,
        plan.start(slot),
    )
    if bounds is None or start != state.now:
        return None
    end_by = latest_end(state, facts)
    most = min(bounds[1], end_by - start) if start + walltime <= end_by else bounds[1]
    if walltime >= most:
        return None
    if not _is_allowed(state, record, walltime + 1):
        return None  # the usual case of a limit that is reached: nothing else is tried
    takes = plan.takes(slot)
    longest = _find_last(walltime, most, lambda length: _is_allowed(state, record, length))
    plan.remove(slot, state.now)
    fits = _find_last(walltime, longest, lambda length: _fits(state, record, length))
    if fits == walltime or not (_fits(state, record, fits) and plan.place_at_start(slot, start, state.now)):
        _fits(state, record, walltime)
        plan.place_at(slot, start, takes)
        return None
    # Other nodes may cost more.
    affordable = _find_last(walltime, fits, lambda length: _is_affordable(state, record, length))
    if affordable == walltime:
        plan.remove(slot, state.now)
        _fits(state, record, walltime)
        plan.place_at(slot, start, takes)
        return None
    plan.set_duration(slot, affordable, state.now)
    moldable_state(state).chosen[record.id] = affordable
    understood = state.read_request(facts)
    record = state.store_record(apply_step(record, Step.READ, facts=facts, understood=understood))
    state.refit(record)
    return record


def _find_last(good: int, last: int, check: Callable[[int], bool]) -> int:
    """Return the last number up to ``last`` that passes a monotonic check; ``good`` passes it."""
    bad = last + 1
    middle = last
    while bad - good > 1:
        if check(middle):
            good = middle
        else:
            bad = middle
        middle = (good + bad) // 2
    return good


def _with_walltime(state: EngineState, record: JobRecord, walltime: int) -> JobRecord:
    """The record of a job as if this walltime of its range was chosen."""
    return replace(record, understood=_read(state, record.facts, walltime))


def _is_affordable(state: EngineState, record: JobRecord, walltime: int) -> bool:
    return not exceeds_limit(state, _with_walltime(state, record, walltime))


def _is_allowed(state: EngineState, record: JobRecord, walltime: int) -> bool:
    """Whether limits, components and the cost limit allow a placed job this walltime."""
    longer = _with_walltime(state, record, walltime)
    if state.limits.too_much(state.pools_for(longer.facts, longer.understood)) is not None:
        return False
    return may_lengthen(state, longer) and not exceeds_limit(state, longer)


def _fits(state: EngineState, record: JobRecord, walltime: int) -> bool:
    """Give an unplaced job this walltime in the plan; return whether it fits at its start, now."""
    longer = _with_walltime(state, record, walltime)
    state.plan.set_duration(record.slot, walltime, state.now)
    request = state.plan.request(record.slot)
    passes = state.open_gates(_with_choice(record.facts, walltime))  # a gate may depend on the walltime
    if passes != request.passes:
        state.plan.set_request(record.slot, replace(request, passes=passes))
    state.refit(longer)
    return state.plan.fits_at_start(record.slot, state.now, state.now)


def walltime_at_start(state: EngineState, record: JobRecord) -> int | None:
    """The walltime to set on the server before the job runs, of a shrinkable walltime."""
    del state
    shrinkable = find_dialect(record.facts.family).is_shrinkable(record.facts.resources)
    return record.understood.walltime if shrinkable and not record.understood.assumed else None


def forget(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Forget the choice for a job that is gone."""
    moldable_state(state).chosen.pop(event.job_id, None)


# ---- readers ------------------------------------------------------------------------------------------


def describe_choice(published: PlanSnapshot, record: JobRecord) -> list[str]:
    """A remark about the walltime or the alternative that is planned."""
    resources, walltime = record.facts.resources, record.understood.walltime
    if not _is_moldable(record.facts) or record.phase is Phase.RUNNING:
        return []
    request = record.understood.request
    if read_alternatives(resources) and request is not None:
        words = f"{request.units} tasks for {format_walltime(walltime)}"
        if published.settings.policy != "conservative":  # there is no plan to choose by
            return [f"it gets {words}, the first of its alternatives"]
        return [f"planned with {words}, the one of its alternatives that ends first"]
    bounds = read_walltime_range(resources)
    if bounds is None or walltime >= bounds[1]:
        return []
    shown = [format_walltime(seconds) for seconds in (walltime, *bounds)]
    start, end_by = int(published.starts[record.slot]), latest_end(published, record.facts)
    reason = "end by its deadline" if start + walltime <= end_by < start + bounds[1] else "start earlier"
    return [f"planned with a walltime of {shown[0]}, between {shown[1]} and {shown[2]}, to {reason}"]


def variants_in_what_if(published: PlanSnapshot, facts: JobFacts) -> list[JobFacts]:
    """Return a hypothetical job with each of its alternatives; without a plan, only with the first."""
    if not _is_moldable(facts):
        return []
    found = [replace(facts, resources=one) for one in marked_alternatives(facts.resources)]
    return found if published.settings.policy == "conservative" else found[:1]


def walltimes_in_what_if(published: PlanSnapshot, facts: JobFacts) -> tuple[int, int] | None:
    """The shortest and the longest walltime of a hypothetical job with a range."""
    if not _is_moldable(facts) or published.settings.policy != "conservative":
        return None
    return None if read_alternatives(facts.resources) else read_walltime_range(facts.resources)
