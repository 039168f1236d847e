"""Limits on eligible and submitted jobs and on use over time, and soft limits.

Such a limit counts jobs in a tally. A job that has no room waits without a planned start, and is planned as
soon as others leave room: the highest own priority first (``qsub -p``), then the earliest submission. A job
beyond a soft limit is planned after all others. Use over time counts the whole walltime of planned and
running jobs, and after the run the used amounts.
"""

from collections.abc import Iterable
from typing import Final

from schedd.engine.component.job_hooks import job_scopes
from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.job_requests import ParsedRequest
from schedd.engine.facts.pools import make_claim
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.engine.facts.texts import LIMIT_TO_BE_RAISED
from schedd.engine.place.placement import plan_job, replan
from schedd.engine.rank.promises import record_move
from schedd.engine.rank.ranking import advance_job, set_rank
from schedd.engine.show.job_view import published_record
from schedd.engine.show.plan_snapshot import PlanSnapshot
from schedd.features.limits.state import LimitState, PublishedLimits, limit_state
from schedd.features.limits.tallies import JobTally, UseMeter
from schedd.model import FOREVER, WaitingFor
from schedd.plan.columns import PLANNED
from schedd.policy.limits import (
    PLANNED_WALLTIME,
    Claim,
    Counted,
    Limit,
    format_amount,
    format_hours,
    format_limit,
    strictest,
)
from schedd.wire import JobFacts, ResourceTypes

_MOVED_AT_ONCE: Final = 20  # jobs that are planned or removed in one batch because of such limits
_ORDER: Final[tuple[Counted, ...]] = ("submitted", "eligible", "used")
"""Order of the limits, for the reason of a wait."""
_NO_METER: Final = UseMeter()
_NO_TALLY: Final = JobTally()
_PER_SECOND: Final = {"cpu_seconds": "cpus", "gpu_seconds": "gpus", "node_seconds": "nodes"}


# ---- which jobs may be planned ------------------------------------------------------------------


def idle_hooks(state: EngineState) -> tuple[str, ...]:
    return (
        ()
        if state.site.tallied_limits
        else (
            "must_wait",
            "form_must_wait",
            "job_holds_resources",
            "run_ended",
        )
    )


def wait_for_room(state: EngineState, record: JobRecord) -> WaitingFor | None:
    """Count the job. Return the reason for its wait if a limit has no room for it."""
    part = limit_state(state)
    if not state.site.tallied_limits:
        return None
    wanted = _limited_amounts(state, record)
    _drop(part, record.id, [pool for pool in part.pools.get(record.id, ()) if pool not in wanted])
    blocker = _find_blocker(state, record.id, wanted)
    for pool, amount in wanted.items():
        counts = part.limits[pool].counts
        if counts == "soft":
            continue
        if pool == blocker:
            _let_wait(part, pool, record.id, amount)
        elif blocker is None or (counts == "submitted" and _has_room(state, record.id, pool, amount)):
            _enter(part, pool, record.id, amount)
        else:
            _leave_pool(part, record.id, pool)
            continue
        _note_pool(part, record.id, pool)
    part.shown = None
    if blocker is not None:
        _drop(part, record.id, [pool for pool in wanted if part.limits[pool].counts == "soft"])
        _note_again(state, blocker, wanted[blocker])
        return _explain_wait(
            part.limits[blocker],
            wanted[blocker],
            _tally(part, blocker).total,
            part.meters.get(blocker, _NO_METER),
            state.now,
        )
    _enter_soft(state, record, wanted)
    return None


def lacks_room(state: EngineState, record: JobRecord) -> bool:
    """Whether a limit has no room for an unplaced job with the request of this record."""
    if not state.site.tallied_limits:
        return False
    return _find_blocker(state, record.id, _limited_amounts(state, record)) is not None


def has_room(state: EngineState, record: JobRecord) -> bool:
    """Whether the limits have room for a planned or running job with the walltime of this record."""
    if not state.site.tallied_limits:
        return True
    limits = limit_state(state).limits
    free = ("soft", "eligible") if record.phase is Phase.RUNNING else ("soft",)
    return all(
        limits[pool].counts in free or _has_room(state, record.id, pool, amount)
        for pool, amount in _limited_amounts(state, record).items()
    )


def _limited_amounts(state: EngineState, record: JobRecord) -> dict[str, int]:
    """By pool: the amount that the job takes of a limit. Notes the limits."""
    claim = make_claim(
        record.facts,
        record.understood,
        state.limits.shared,
        state.limits.types,
        job_scopes(state, record.facts),
    )
    part, found = limit_state(state), {}
    for pool, limit, amount in _claimed(state.site.tallied_limits, claim):
        found[pool] = amount
        before = part.limits.get(pool)
        if before is not limit and before != limit:
            part.limits[pool] = limit
    return found


def _claimed(limits: Iterable[Limit], claim: Claim) -> list[tuple[str, Limit, int]]:
    found = strictest([limits], claim).items()
    taken = [(pool, limit, claim.amounts.get(_counted_amount(limit), 0)) for pool, limit in found]
    return [one for one in taken if one[2] > 0]


def _counted_amount(limit: Limit) -> str:
    """Return the name of the amount that a limit counts: use over time is held for the planned walltime."""
    return PLANNED_WALLTIME if (limit.what, limit.counts) == ("walltime", "used") else limit.what


def _find_blocker(state: EngineState, job: str, wanted: dict[str, int]) -> str | None:
    """The first pool without room for a job."""
    limits = limit_state(state).limits
    for counts in _ORDER:
        for pool, amount in wanted.items():
            if limits[pool].counts == counts and not _has_room(state, job, pool, amount):
                return pool
    return None


def _has_room(state: EngineState, job: str, pool: str, amount: int) -> bool:
    part = limit_state(state)
    limit, tally = part.limits[pool], part.tallies.get(pool, _NO_TALLY)
    if limit.counts in ("eligible", "used") and amount <= tally.inside.get(job, 0):
        return True  # a planned job keeps its room, also if a run used more than was held for it
    used = part.meters[pool].counted(state.now) if pool in part.meters else 0
    return tally.total - tally.inside.get(job, 0) + used + amount <= limit.amount


def _explain_wait(limit: Limit, amount: int, total: int, meter: UseMeter, now: int) -> WaitingFor:
    words = format_limit(limit)
    if amount > limit.amount:
        asked = _format(limit, amount)
        return WaitingFor("limit", f"{LIMIT_TO_BE_RAISED}: {words}; it asks for {asked}")
    if limit.counts == "eligible":
        return WaitingFor("limit", f"another of these jobs to start: {words}")
    if limit.counts == "submitted":
        return WaitingFor("limit", f"another of these jobs to end: {words}; delete some, or wait")
    used = meter.used(now)
    at = meter.below_at(limit.amount - total - amount, now)
    soonest = f", not before {format_moment(at)}" if now < at < FOREVER else ""
    held = f"{_format(limit, used)} are used, {_format(limit, total)} are held for planned and running jobs"
    return WaitingFor(
        "limit", f"use to fall{soonest}: {words}; {held}, and it may take {_format(limit, amount)}"
    )


def _format(limit: Limit, amount: float) -> str:
    if limit.counts == "used":
        return format_hours(amount, limit.what)
    return format_amount(int(amount), limit.what, limit.unit)


def _note_again(state: EngineState, pool: str, amount: int) -> None:
    """Note when enough past use is forgotten for a job that waits."""
    part = limit_state(state)
    limit, meter = part.limits[pool], part.meters.get(pool)
    if limit.counts != "used" or meter is None:
        return
    at = meter.below_at(limit.amount - _tally(part, pool).total - amount, state.now)
    if state.now < at < FOREVER:
        part.again_at[pool] = min(at, part.again_at.get(pool, FOREVER))


# ---- soft limits --------------------------------------------------------------------------------


def _enter_soft(state: EngineState, record: JobRecord, wanted: dict[str, int]) -> None:
    """Count a job for soft limits; beyond one, it is planned after all others."""
    part = limit_state(state)
    beyond = ""
    for pool, amount in wanted.items():
        if part.limits[pool].counts != "soft":
            continue
        _note_pool(part, record.id, pool)
        if _has_room(state, record.id, pool, amount):
            _enter(part, pool, record.id, amount)
        else:
            _let_wait(part, pool, record.id, amount)
            beyond = beyond or pool
    if beyond != part.last.get(record.id, ""):
        if beyond:
            part.last[record.id] = beyond
        else:
            del part.last[record.id]
        set_rank(state, record)


def goes_last(state: EngineState, job: str) -> bool:
    """Whether a job is planned after all others, since it is beyond a soft limit."""
    return job in limit_state(state).last


def job_notes(published: PlanSnapshot, record: JobRecord) -> list[str]:
    """Return that a job is beyond a soft limit."""
    limit = published.part(PublishedLimits).last.get(record.id)
    return [f"planned after all other jobs, since {format_limit(limit)}"] if limit is not None else []


def _advance(state: EngineState, record: JobRecord, event: str) -> None:
    """Give a job the rank that it has within its soft limits."""
    set_rank(state, record)
    slot = record.slot
    if slot < 0 or record.phase is not Phase.WAITING or state.plan.state(slot) != PLANNED:
        return
    old = state.plan.start(slot)
    if advance_job(state, slot, event):
        words = "it is within its soft limits again"
        record_move(state, event, Cause.PRIORITY, words, slot, old, state.plan.start(slot))


# ---- jobs that come and go ----------------------------------------------------------------------


def hold_for_run(state: EngineState, record: JobRecord) -> None:
    """Count a dispatched or running job, whether there is room for it or not."""
    if not state.site.tallied_limits:
        return
    part, wanted = limit_state(state), _limited_amounts(state, record)
    _drop(part, record.id, [pool for pool in part.pools.get(record.id, ()) if pool not in wanted])
    for pool, amount in wanted.items():
        if part.limits[pool].counts == "eligible" and record.phase is Phase.RUNNING:
            _leave_pool(part, record.id, pool)
        elif part.limits[pool].counts != "eligible":
            _enter(part, pool, record.id, amount)
            _note_pool(part, record.id, pool)
    part.last.pop(record.id, None)
    part.shown = None


def charge_use(state: EngineState, record: JobRecord, end: int) -> None:
    """Charge what a finished run used."""
    if not state.site.tallied_limits:
        return
    part = limit_state(state)
    amounts = make_claim(record.facts, record.understood, (), state.limits.types).amounts
    seconds = record.run.computed_s(end)
    for pool in _limited_amounts(state, record):
        limit = part.limits[pool]
        if limit.counts == "used":
            each = amounts.get(_PER_SECOND[limit.what], 0) if limit.what in _PER_SECOND else 1
            meter = part.meters.setdefault(pool, UseMeter(limit.period, limit.half_life))
            meter.charge(each * seconds, end, state.now)
            _leave_pool(part, record.id, pool)
    part.shown = None


def leave(state: EngineState, job: str) -> None:
    """A job has no place in the plan now; unless it is gone, it still counts as submitted."""
    part = limit_state(state)
    record = state.records.get(job)
    if job in part.pools:
        gone = record is None or record.phase is Phase.RUNNING
        counted = part.pools[job]
        _drop(part, job, [pool for pool in counted if gone or part.limits[pool].counts != "submitted"])
        part.over.pop(job, None)
        part.shown = None
    if record is None or not any(limit.counts == "submitted" for limit in state.site.tallied_limits):
        return
    for pool, amount in _limited_amounts(state, record).items():
        if part.limits[pool].counts == "submitted":
            _enter(part, pool, job, amount)
            _note_pool(part, job, pool)
            part.shown = None


def forget_idle(state: EngineState) -> None:
    """Forget limits that count no job, and use that counts no longer."""
    part = limit_state(state)
    part.meters = {pool: meter for pool, meter in part.meters.items() if meter.used(state.now) >= 1}
    part.limits = {pool: limit for pool, limit in part.limits.items() if pool in part.tallies}
    part.shown = None


def _tally(part: LimitState, pool: str) -> JobTally:
    found = part.tallies.get(pool)
    if found is None:
        found = part.tallies[pool] = JobTally()
    return found


def _enter(part: LimitState, pool: str, job: str, amount: int) -> None:
    """Count a job. If it takes less than before, others may have room."""
    tally = _tally(part, pool)
    if tally.enter(job, amount) and tally.outside:
        part.due[pool] = None


def _let_wait(part: LimitState, pool: str, job: str, amount: int) -> None:
    """Let a job wait. If it was counted before, others may have room."""
    if _tally(part, pool).wait(job, amount):
        part.due[pool] = None


def _note_pool(part: LimitState, job: str, pool: str) -> None:
    known = part.pools.get(job, ())
    if pool not in known:
        part.pools[job] = (*known, pool)


def _drop(part: LimitState, job: str, pools: Iterable[str]) -> None:
    for pool in pools:
        _leave_pool(part, job, pool)


def _leave_pool(part: LimitState, job: str, pool: str) -> None:
    tally = part.tallies.get(pool)
    if tally is None:
        return
    if tally.leave(job) and tally.outside:
        part.due[pool] = None
    if not tally.inside and not tally.outside:
        del part.tallies[pool]
        part.again_at.pop(pool, None)
        part.due.pop(pool, None)
    rest = tuple(one for one in part.pools.get(job, ()) if one != pool)
    if rest:
        part.pools[job] = rest
    else:
        part.pools.pop(job, None)
    if part.last.get(job) == pool:
        del part.last[job]


# ---- room ---------------------------------------------------------------------------------------


def next_room(state: EngineState) -> int:
    """When there may be room for jobs that wait; FOREVER: not before something happens."""
    part = limit_state(state)
    if part.due or part.over:
        return state.now
    return min(part.again_at.values(), default=FOREVER)


def follow_room(state: EngineState, event: str) -> None:
    """Plan jobs that have room by now, and remove planned jobs that have none under new limits."""
    part = limit_state(state)
    if next_room(state) > state.now:
        return
    for pool in [pool for pool, at in part.again_at.items() if at <= state.now]:
        del part.again_at[pool]
        part.due[pool] = None
    left = _MOVED_AT_ONCE
    while part.over and left:
        job = next(iter(part.over))
        del part.over[job]
        record = state.records.get(job)
        if record is not None and record.phase is Phase.WAITING:
            replan(state, record, event, Cause.QUEUE, "a limit was lowered")
            left -= 1
    for pool in list(part.due):
        while left and pool in part.due:
            if not _admit_waiting_job(state, pool, event):
                part.due.pop(pool, None)
            left -= 1


def _admit_waiting_job(state: EngineState, pool: str, event: str) -> bool:
    """Give room to the first job that waits for it; return whether one was found."""
    part = limit_state(state)
    tally = part.tallies.get(pool)
    if tally is None:
        return False
    limit = part.limits[pool]
    found: list[tuple[int, int, int, str]] = []
    for job, amount in list(tally.outside.items()):
        record = state.records.get(job)
        if record is None:
            _leave_pool(part, job, pool)
        elif _has_room(state, job, pool, amount):
            found.append((-record.facts.priority, record.facts.submitted, len(job), job))
        elif limit.counts == "used":
            _note_again(state, pool, amount)
    if not found:
        return False
    job = min(found)[3]
    record, part.shown = state.records[job], None
    if limit.counts == "soft":
        tally.enter(job, tally.outside[job])
        if part.last.get(job) == pool:
            others = (
                other
                for other in part.pools.get(job, ())
                if part.limits[other].counts == "soft" and job in _tally(part, other).outside
            )
            beyond = next(others, "")
            if beyond:
                part.last[job] = beyond
            else:
                del part.last[job]
                _advance(state, record, event)
        return True
    if record.phase is Phase.BLOCKED and _waits_for_limit(record):
        plan_job(state, record, event, Cause.FREED, f"there is room for it by its limits ({limit.counts})")
    if job in tally.outside and pool in part.tallies:  # it waits for something else first
        tally.leave(job)
        part.pools[job] = tuple(one for one in part.pools.get(job, ()) if one != pool)
    return True


def _waits_for_limit(record: JobRecord) -> bool:
    return isinstance(record.answer, WaitingFor) and record.answer.kind == "limit"


def count_again(state: EngineState) -> None:
    """The limits of the site may be others: count all jobs again, running and planned ones first."""
    part = limit_state(state)
    before = set(part.last)
    for tally in part.tallies.values():
        tally.inside, tally.outside, tally.total = {}, {}, 0
    part.tallies, part.pools, part.last, part.due, part.again_at = {}, {}, {}, {}, {}
    part.limits = {}
    part.over, part.shown = {}, None
    if not state.site.tallied_limits and not before:
        return
    waiting: list[tuple[int, int, str, JobRecord]] = []
    others: list[str] = []
    for record in state.records.values():
        if record.phase in (Phase.DISPATCHED, Phase.RUNNING):
            hold_for_run(state, record)
        elif record.phase is Phase.WAITING and record.slot >= 0:
            start = state.plan.start(record.slot)
            at = start if start >= 0 else FOREVER
            waiting.append((at, record.facts.submitted, record.id, record))
        elif not _waits_for_limit(record):
            others.append(record.id)
    for *_, record in sorted(waiting, key=lambda one: one[:3]):
        if wait_for_room(state, record) is not None:
            part.over[record.id] = None
    for (
        job
    ) in others:  # jobs on hold and the like count as submitted; those that wait for a limit are replanned
        leave(state, job)
    for job in before - set(part.last):
        if job in state.records:
            set_rank(state, state.records[job])


# ---- published amounts -----------------------------------------------------------------------


def publish_limits(state: EngineState) -> PublishedLimits:
    """A copy for other threads, made again only after a change."""
    part = limit_state(state)
    if part.shown is None or part.shown.limits is not state.site.tallied_limits:
        part.shown = PublishedLimits(
            state.site.tallied_limits,
            {pool: tally.total for pool, tally in part.tallies.items()},
            {pool: meter.copy() for pool, meter in part.meters.items()},
            {job: part.limits[pool] for job, pool in part.last.items()},
            frozenset(
                job
                for pool, tally in part.tallies.items()
                if part.limits[pool].counts == "submitted"
                for job in tally.outside
            ),
        )
    return part.shown


def present_wait(published: PlanSnapshot, record: JobRecord) -> WaitingFor | None:
    """Return what a job waits for, with the use of the present; None: it does not wait for a limit."""
    if not _waits_for_limit(record):
        return None
    return wait_in_what_if(published, record.facts, record.understood, record.id)


def wait_in_what_if(
    published: PlanSnapshot, facts: JobFacts, understood: ParsedRequest, instead_of: str
) -> WaitingFor | None:
    """Return what a hypothetical job waits for. The job ``instead_of`` makes room for it."""
    part = published.part(PublishedLimits)
    if not part.limits:
        return None
    shared, types = published.copies.keys(), ResourceTypes(published.server.resources)
    claim = make_claim(facts, understood, shared, types, job_scopes(published, facts))
    mine: dict[str, int] = {}
    other = published_record(published, instead_of) if instead_of else None
    if other is not None:
        scopes = job_scopes(published, other.facts)
        own = make_claim(other.facts, other.understood, shared, types, scopes)
        planned = other.slot >= 0 and published.starts[other.slot] >= 0
        submitted = other.id not in part.unsubmitted
        mine = {
            pool: amount
            for pool, limit, amount in _claimed(part.limits, own)
            if planned or (submitted and limit.counts == "submitted")
        }
    claimed = _claimed(part.limits, claim)
    for counts in _ORDER:
        for pool, limit, amount in claimed:
            meter = part.meters.get(pool, _NO_METER)
            if counts != "submitted" and amount <= mine.get(pool, 0):
                continue  # as in _has_room
            total = part.totals.get(pool, 0) - mine.get(pool, 0)
            if limit.counts == counts and total + meter.counted(published.as_of) + amount > limit.amount:
                return _explain_wait(limit, amount, total, meter, published.as_of)
    return None
