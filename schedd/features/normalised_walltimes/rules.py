"""Walltimes by speed: each job is planned on nodes of at least a chosen speed, with its walltime for it.

The chosen speed gives the earliest end. The job may move among these nodes, as its planned walltime
suffices on each. At its start the walltime is shortened to the need of its slowest node, and set on the
server.
"""

from functools import cache
from typing import Final

from schedd.dialect import RequestError, parse_walltime
from schedd.dialect.moldable import is_moldable
from schedd.dialect.walltime_scale import SCALE, WalltimeScale, with_scale
from schedd.engine.component.hook_values import FormOffer, Restriction
from schedd.engine.component.placement_hooks import (
    component_confinement,
    is_planned_on_hold,
)
from schedd.engine.facts.job_requests import BOOKING, ParsedRequest, holds_resources
from schedd.engine.facts.phases import Step, apply_step
from schedd.engine.facts.records import Cause, JobRecord
from schedd.engine.facts.reevaluation_queue import WAITING_PHASES
from schedd.engine.facts.state import EngineState
from schedd.engine.place.movable_jobs import movable_jobs
from schedd.engine.place.placement import replan
from schedd.engine.place.slot_requests import read_variant, refresh_request
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.normalised_walltimes.state import (
    ANYWHERE,
    REFERENCE,
    PublishedWalltimes,
    SpeedTable,
    WalltimeState,
    speed_feature,
    speed_table,
    walltime_state,
)
from schedd.model import FOREVER
from schedd.plan.records import RequestVariant
from schedd.plan.work_limits import WorkSpent
from schedd.wire import JobDeleted, JobEnded, JobFacts, NodeFacts
from schedd.wire.quick_init import quick_replace

_EXAMINED_EVERY_S: Final = 60
_EXAMINED_AT_ONCE: Final = 50
_LEAST_GAIN_S: Final = 60
"""A planned job gets another speed if it then ends at least this much earlier, and starts no later."""


# ---- the planned part of a request -----------------------------------------------------------------------


def node_features(state: EngineState, facts: NodeFacts) -> list[str]:
    """The features of a node of the plan for its speed."""
    table = speed_table(state)
    return table.features(facts) if table else []


def _is_fixed(facts: JobFacts) -> bool:
    """Whether the walltime on the server cannot be set to another one: the job leaves it to the plan anyway,
    is a subjob of OpenPBS, or is no job but a booking, which keeps its length.
    """
    return (
        is_moldable(facts.resources)
        or (facts.family == "openpbs" and "[" in facts.id)
        or facts.id.startswith(BOOKING)
    )


def _stated(known: EngineState | PlanSnapshot, facts: JobFacts, text: str | None) -> int | None:
    """Return the walltime in seconds that a job states; None if it states no valid one. ``text``: the
    server's walltime, which may have been set for an earlier start.
    """
    try:
        seconds = parse_walltime(text) if text is not None else 0
    except RequestError:
        return None
    part = walltime_state(known) if isinstance(known, EngineState) else known.part(PublishedWalltimes)
    stated, *given = part.given.get(facts.id, (0,))
    return stated if seconds in given else seconds or None


def idle_hooks(state: EngineState) -> tuple[str, ...]:
    if speed_table(state):
        return ()
    return "planned_facts", "restriction", "request_forms", "before_start", "walltime_at_start"


def planned_facts(state: EngineState, facts: JobFacts) -> JobFacts:
    """The facts of a job with its walltime for the nodes of the chosen speed."""
    part: WalltimeState = state.parts[WalltimeState]
    speed, given, latest = part.chosen.get(facts.id), part.given.get(facts.id), part.latest
    if latest is None or not (latest[0] is facts and latest[1] is state.site and latest[2] is given):
        latest = part.latest = (facts, state.site, given, {})
    known = latest[3]
    if speed not in known:
        known[speed] = _facts_at_speed(state, facts)
        if speed is None and (table := speed_table(state)):
            known[table.speeds[0]] = known[speed]  # until one is chosen, the lowest applies
    return known[speed]


def _facts_at_speed(state: EngineState, facts: JobFacts) -> JobFacts:
    table = speed_table(state)
    reference = table.reference(facts) if table else 0.0
    if not reference or _is_fixed(facts):
        return facts
    part, text = walltime_state(state), facts.resources.get("walltime")
    stated, speed = _stated(state, facts, text), part.chosen.get(facts.id, table.speeds[0])
    if stated is None:
        return facts
    if speed <= 0:
        restored = {**facts.resources, "walltime": str(stated)}
        return facts if holds_resources(facts) else quick_replace(facts, resources=restored)
    scale = WalltimeScale(stated, reference, speed)
    if not holds_resources(facts):
        return quick_replace(facts, resources=with_scale(facts.resources, scale))
    if facts.id not in part.given or text is None or parse_walltime(text) != scale.walltime:
        return facts  # it was started by others, or altered since
    return quick_replace(facts, resources={**facts.resources, SCALE: scale.text})


def restriction(known: EngineState | PlanSnapshot, facts: JobFacts) -> Restriction | None:
    """The nodes of the chosen speed, or faster ones; None: all nodes."""
    table = speed_table(known)
    if not table or not (reference := table.reference(facts)) or holds_resources(facts):
        return None
    if (text := facts.resources.get(SCALE)) is not None:
        speed = WalltimeScale.from_text(text).speed
    elif _is_fixed(facts):
        speed = REFERENCE
    elif isinstance(known, EngineState):
        speed = walltime_state(known).chosen.get(facts.id, ANYWHERE)
    else:
        return None
    return _restriction_to(table, reference if speed == REFERENCE else speed)


def _restriction_to(table: SpeedTable, speed: float) -> Restriction | None:
    return _nodes_of_speed(speed) if speed > table.speeds[0] else None


@cache
def _nodes_of_speed(speed: float) -> Restriction:
    place = f"speed {speed:g} or more"
    return Restriction(place, (frozenset({speed_feature(speed)}),), "", "let the server set its walltime")


# ---- the choice -----------------------------------------------------------------------------------


def request_forms(state: EngineState, record: JobRecord) -> FormOffer | None:
    """The speeds that nodes of an unplaced job may have at least, the lowest first."""
    table, facts, part = speed_table(state), record.facts, walltime_state(state)
    if not table:
        return None

    def choose(speed: float) -> None:
        part.chosen[facts.id] = speed

    def forget_speed(_: float) -> None:
        part.chosen.pop(facts.id, None)

    present = part.chosen.get(facts.id, table.speeds[0])
    scalable = table.reference(facts) and not _is_fixed(facts)
    if not scalable or _stated(state, facts, facts.resources.get("walltime")) is None:
        return FormOffer((REFERENCE,), present, forget_speed) if facts.id in part.chosen else None
    if component_confinement(state, record) is not None:
        return FormOffer((ANYWHERE,), present, choose)
    if is_planned_on_hold(state, record):
        return FormOffer((REFERENCE,), present, choose)  # of a co-allocation: all components run as long
    if state.policy is not None:
        return FormOffer(table.speeds[:1], present, choose)
    return FormOffer(table.speeds, present, choose)


def _scaled_to(state: EngineState, record: JobRecord, speed: float) -> ParsedRequest | None:
    """Return a scaled request as it is read for another speed; None: it has to be read, since its length is
    not its walltime, or since it may have been read under another policy.
    """
    understood = record.understood
    scale, reference = understood.scale, speed_table(state).reference(record.facts)
    if scale is None or understood.walltime != scale.walltime:
        return None
    if scale.reference != reference or not state.has_present_request(record):
        return None
    if scale.speed == speed:
        return understood
    other = scale._replace(speed=speed)
    return quick_replace(understood, walltime=other.walltime, scaled=other.text)


def _at_speed(
    state: EngineState, record: JobRecord, speed: float
) -> tuple[ParsedRequest, RequestVariant | None]:
    """Return a job's request on nodes of this speed: see ``read_variant``."""
    chosen, job = walltime_state(state).chosen, record.id
    before = chosen.get(job)
    chosen[job] = speed
    try:
        return read_variant(state, record, _scaled_to(state, record, speed))
    finally:
        if before is None:
            del chosen[job]
        else:
            chosen[job] = before


# ---- changes of the plan ------------------------------------------------------------------------------


def next_examination(state: EngineState) -> int:
    """When other speeds are next considered; FOREVER: never."""
    part = walltime_state(state)
    return part.examined + _EXAMINED_EVERY_S if part.chosen and state.policy is None else FOREVER


def follow_time(state: EngineState, event: str) -> None:
    """Plan again the jobs that end earlier on nodes of another speed, in the order of their starts."""
    part = walltime_state(state)
    if state.now < next_examination(state):
        return
    part.examined = state.now
    jobs = [job for job, speed in part.chosen.items() if speed > 0]
    waiting = movable_jobs(state, jobs, state.now + _LEAST_GAIN_S)
    for record in waiting[:_EXAMINED_AT_ONCE]:
        with JobErrorGuard(state, record.id, event):
            _examine(state, record, event)


def _examine(state: EngineState, record: JobRecord, event: str) -> None:
    slot, table = record.slot, speed_table(state)
    ready, start, end = max(state.now, state.plan.ready(slot)), state.plan.start(slot), state.plan.end(slot)
    scale = record.understood.scale
    if not table or scale is None:
        return
    for speed in table.speeds:
        bound = min(start + 1, end - _LEAST_GAIN_S - scale.limit_at(speed) + 1)
        if speed == scale.speed or bound <= ready:
            continue
        _, variant = _at_speed(state, record, speed)
        if variant is None:
            continue
        try:
            found = state.earliest_start(variant.request, variant.duration, variant.pools, ready, bound)
        except WorkSpent:  # too hard to examine; it keeps its place
            return
        if found < FOREVER:
            replan(state, record, event, Cause.FREED, "it ends earlier on nodes of another speed")
            return


def shorten(state: EngineState, record: JobRecord) -> JobRecord | None:
    """Give a due job the walltime for the slowest of its nodes, which may be faster than planned, and note
    what the server is to set.
    """
    part, table, scale = walltime_state(state), speed_table(state), record.understood.scale
    if not table or scale is None or record.id not in part.chosen:
        return None
    names = state.plan.node_names
    slowest = min(state.plan.nodes[names[take.row]].speed for take in state.plan.takes(record.slot))
    faster = max((one for one in table.speeds if one <= slowest), default=scale.speed)
    if faster > scale.speed:
        part.chosen[record.id] = faster
        understood = state.read_request(record.facts)
        record = apply_step(record, Step.READ, facts=record.facts, understood=understood)
        state.plan.set_duration(record.slot, understood.walltime, state.now)
        record = state.store_record(record)
        refresh_request(state, record)
        state.refit(record)
    walltime = walltime_at_start(state, record)
    if walltime is not None:
        _note_given(state, record.id, scale.stated, walltime)
    return record


def _note_given(state: EngineState, job: str, stated: int, walltime: int) -> None:
    part = walltime_state(state)
    earlier = [one for one in part.given.get(job, (stated,))[1:] if one != walltime]
    part.given[job], part.published = (stated, *earlier, walltime), None


def note_ordered_walltime(state: EngineState, _: JobRecord | None, record: JobRecord) -> None:
    """Record the longer walltime ordered for a run, so that after a requeue it is not read as the
    stated one.
    """
    given, ordered = walltime_state(state).given.get(record.id), record.run.ordered_walltime
    if given is not None and ordered and given[-1] != ordered:
        _note_given(state, record.id, given[0], ordered)


def walltime_at_start(state: EngineState, record: JobRecord) -> int | None:
    """The walltime to set on the server before the job runs; None: it keeps the present one."""
    scaled = record.understood.scaled or record.id in walltime_state(state).given
    if not scaled or _is_fixed(record.facts) or not speed_table(state):
        return None
    facts = quick_replace(record.facts, state="Q", shares=())
    return _stated_seconds(planned_facts(state, facts).resources.get("walltime"))


def _stated_seconds(text: str | None) -> int | None:
    return parse_walltime(text) if text is not None else None


def forget_job(state: EngineState, event: JobDeleted | JobEnded) -> None:
    """Forget the speed and walltimes of a job that has left the server."""
    part = walltime_state(state)
    part.chosen.pop(event.job_id, None)
    if part.given.pop(event.job_id, None) is not None:
        part.published = None


# ---- readers ------------------------------------------------------------------------------------------


def describe_scale(published: PlanSnapshot, record: JobRecord) -> list[str]:
    """A remark about the walltime that a job states and the one on its nodes."""
    table, scale = speed_table(published), record.understood.scale
    if scale is not None:
        waits = record.phase in WAITING_PHASES and table
        ends_first = ", where it is planned to end first" if waits and scale.speed > table.speeds[0] else ""
        return [scale.describe() + ends_first]
    if table and _is_fixed(record.facts) and table.reference(record.facts):
        speed = table.reference(record.facts)
        return [f"its walltime is not scaled to its nodes, which have a speed of {speed:g} or more"]
    return []


def variants_in_what_if(published: PlanSnapshot, facts: JobFacts) -> list[JobFacts]:
    """A hypothetical job with its walltime on nodes of each speed, the lowest first."""
    table, resources = speed_table(published), facts.resources
    reference = table.reference(facts) if table else 0.0
    if not reference or SCALE in resources or _is_fixed(facts):
        return []
    queue = published.queues.get(facts.queue)
    defaults = {**published.server.defaults, **(queue.defaults if queue is not None else {})}
    stated = _stated(published, facts, resources.get("walltime", defaults.get("walltime")))
    if stated is None:
        return []
    speeds = table.speeds if published.settings.policy == "conservative" else table.speeds[:1]
    scales = [WalltimeScale(stated, reference, speed) for speed in speeds]
    return [quick_replace(facts, resources=with_scale(resources, scale)) for scale in scales]
