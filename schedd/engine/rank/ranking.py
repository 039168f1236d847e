"""Priorities in the plan: a job precedes jobs of lower priority as far as their promises allow.

The *rank* of a job is its total priority, in a column by slot. It is computed when the job arrives or is
altered, and for all jobs every ``priority_every`` seconds, in slices; then jobs are advanced in the order of
ranks, with the same test. Equal ranks do not displace each other, so a site without priorities has an
unchanged plan. In the light mode a job keeps the rank of its submission, and jobs are advanced once after a
change of the policy or of a queue's priority.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from schedd.engine.component.job_hooks import job_labels
from schedd.engine.component.placement_hooks import unmovable_jobs
from schedd.engine.component.ranking_hooks import (
    component_ranks,
    goes_last,
    label_points,
    present_shares,
)
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.reevaluation_queue import WAITING_PHASES
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.engine.rank.priorities import (
    current_demand,
    depends_on_demand,
    make_applicant,
    priority_breakdown,
)
from schedd.engine.rank.promises import record_moves
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED, Ints
from schedd.plan.plan import Plan
from schedd.plan.records import Moves
from schedd.policy.priority import best_class, total_priority

_MOST = 60  # maximum number of jobs displaced for one job
_FEW = 20  # while an event waits for it
_SETS = 2  # maximum number of sets of jobs that are tried, by time or by nodes
HIGHEST_RANK = 1 << 60
_SLICE = 100  # ranks worked out between two looks for new events
_BULK_SLICE = 500  # jobs per slice if a component ranks them together
_LONGEST_NAME = 60
_WORDS = "it goes before jobs of lower priority"


def correct_last_rank(state: EngineState, record: JobRecord) -> None:
    """Compute the rank of a job with the last rank, if no component lets it go last any more."""
    slot = record.slot
    if slot >= 0 and state.rank[slot] == -HIGHEST_RANK and not goes_last(state, record):
        set_rank(state, record)


def set_rank(state: EngineState, record: JobRecord) -> None:
    """Compute the job's rank."""
    if record.slot >= 0 and goes_last(state, record):
        state.ranking.has_effect = True
        state.rank[record.slot] = -HIGHEST_RANK
        return
    queue, weights = state.queues.get(record.facts.queue), state.site.weights
    if not state.ranking.has_effect:
        state.ranking.has_effect = weights.active or (queue is not None and queue.priority != 0)
        if not state.ranking.has_effect and weights.qos:
            state.ranking.has_effect = label_points(state, record.facts) != 0
    if record.slot >= 0 and weights.mode == "light" and state.now >= state.ranking.next_at:
        _renew_demand(state)  # the rank is permanent: it must not depend on an old demand
    found = component_ranks(state, [record]) if record.slot >= 0 else None
    if found is not None:
        state.ranking.has_effect = True
        state.rank[record.slot] = found[0]
        return
    if state.ranking.has_effect and record.slot >= 0:
        if weights.short and record.phase is Phase.WAITING:
            state.ranking.demand = state.ranking.demand.beside(record.understood.walltime)
        applicant, demand = make_applicant(state, record), state.ranking.demand
        total = int(total_priority(applicant, state.now, demand, weights))
        state.rank[record.slot] = max(-HIGHEST_RANK, min(total, HIGHEST_RANK))


def _set_ranks(state: EngineState, slots: Sequence[int]) -> int:
    """Set the ranks of the waiting jobs among the last of these slots; returns of how many slots.

    Jobs that may not be planned now get ranks, too: they keep them when they are planned.
    """
    last = slots[: -_BULK_SLICE - 1 : -1]
    found = [state.by_slot[slot] for slot in last]
    records = [one for one in found if one is not None and one.phase in WAITING_PHASES]
    ranks = component_ranks(state, records) if records else None
    if ranks is not None:
        state.ranking.has_effect = True
        state.rank[[record.slot for record in records]] = ranks
        for record in records:
            if goes_last(state, record):
                state.rank[record.slot] = -HIGHEST_RANK
        return len(last)
    for one in found[:_SLICE]:
        if one is not None and one.phase in WAITING_PHASES:
            set_rank(state, one)
    return min(len(last), _SLICE)


def advance_job(state: EngineState, slot: int, event: str, *, thorough: bool = False) -> bool:
    """Advance a planned job past jobs of lower rank, if none of these becomes late.

    Only a few jobs may be displaced, because an event waits, unless ``thorough``. The moves of the others are
    logged, the job's own move is not; returns whether it moved.
    """
    plan = state.plan
    if plan.start(slot) <= max(state.now, plan.ready(slot)):
        return False
    record = state.by_slot[slot]
    breaks = record is not None and _breaks_promises(state, record)
    rank = state.rank
    if breaks:
        rank = rank_unmovable_first(rank, unmovable_jobs(state), state.records)
    moves = move_past_lower_ranks(plan, slot, rank, state.bound, state.now, thorough=thorough, breaks=breaks)
    if not len(moves):
        return False
    state.next_due = None
    theirs = moves.slots != slot
    cause = Cause.CLASS if breaks else Cause.PRIORITY
    name = record.id if record is not None else "a job"
    words = f"job {name} of higher priority goes before{_largest_term(state, record)}"
    state.changed[moves.elsewhere] = state.generation
    record_moves(state, event, cause, words, moves.slots[theirs], moves.old[theirs], moves.new[theirs])
    return True


def rank_unmovable_first(rank: Ints, jobs: Iterable[str], records: Mapping[str, JobRecord]) -> Ints:
    """Return ranks by slot in which these jobs, which components keep in place (``unmovable_jobs``), are
    above all others.
    """
    found = [records.get(job) for job in jobs]
    kept = [one.slot for one in found if one is not None and 0 <= one.slot < rank.shape[0]]
    if not kept:
        return rank
    rank = rank.copy()
    rank[kept] = FOREVER
    return rank


def move_past_lower_ranks(
    plan: Plan, slot: int, rank: Ints, bound: Ints, now: int, *, thorough: bool = False, breaks: bool = False
) -> Moves:
    """Move a planned job to an earlier start past jobs of lower ``rank``, which start no later than their
    ``bound`` (both by slot) unless it ``breaks`` promises. Return all moves.
    """
    most, sets = (_MOST, _SETS) if thorough else (_FEW, 1)
    return plan.displace_lower_ranked(
        slot, rank, bound, now, until=now + HORIZON, most=most, sets=sets, breaks=breaks
    )


def _largest_term(state: EngineState, record: JobRecord | None) -> str:
    """Which term gives the job most of its points; empty where none gives any."""
    if record is None:
        return ""
    found = priority_breakdown(state, record, state.ranking.demand)
    most = max(found.terms, key=lambda one: one.points, default=None)
    if most is None or most.points <= 0:
        return ""
    name = most.name if len(most.name) <= _LONGEST_NAME else f"{most.name[:_LONGEST_NAME]}…"
    if found.formula:
        return f", most by {name} ({found.formula_source})"
    words = name.replace("_", " ")
    if most.name == "class":
        words = f"its class {best_class(make_applicant(state, record), state.site.weights)}"
    elif most.name == "qos":
        words = f"its QOS {job_labels(state, record.facts).get('qos', '')}".rstrip()
    return f", most by {words}"


def _breaks_promises(state: EngineState, record: JobRecord) -> bool:
    classes = state.site.weights.classes.values()
    return any(one.breaks_promises for one in classes) and state.site.weights.breaks_promises(
        make_applicant(state, record)
    )


# ---- all jobs, every few minutes ----------------------------------------------------------------


def next_rerank(state: EngineState) -> int:
    """Return when all ranks are next computed; FOREVER: not before the next event."""
    if not state.ranking.has_effect or state.policy is not None or state.next_due_start() == FOREVER:
        return FOREVER
    ranks, weights = state.ranking, state.site.weights
    if ranks.in_progress:
        return state.now
    repeated = weights.mode == "full" or ranks.rerank_all or depends_on_demand(weights)
    return ranks.next_at if repeated else FOREVER


def rank_all(state: EngineState, event: str) -> None:
    """Compute all ranks, then try to move jobs forward by rank; one slice per call."""
    ranks = state.ranking
    if not ranks.in_progress:
        _renew_demand(state)
        if state.site.weights.mode == "light" and not ranks.rerank_all:
            return
        ranks.rerank_all = bool(state.arriving)  # the total demand is not known yet
        ranks.slots_to_rank = [
            r.slot for r in state.records.values() if r.slot >= 0 and r.phase in WAITING_PHASES
        ]
        ranks.slots_to_rank.reverse()
    if ranks.slots_to_rank:
        done = _set_ranks(state, ranks.slots_to_rank)
        del ranks.slots_to_rank[-done:]
        if not ranks.slots_to_rank:
            ranks.slots_to_try = _promotable_slots(state)
        return
    limit = state.plan.work + state.settings.repair_slice
    while ranks.slots_to_try and state.plan.work < limit:
        slot = ranks.slots_to_try.pop()
        if state.plan.state(slot) != PLANNED:
            continue
        old = state.plan.start(slot)
        if advance_job(state, slot, event, thorough=True):
            moved = (np.array([value], np.int64) for value in (slot, old, state.plan.start(slot)))
            words = _WORDS + _largest_term(state, state.by_slot[slot])
            record_moves(state, event, Cause.PRIORITY, words, *moved)


def _renew_demand(state: EngineState) -> None:
    """Compute the total demand of all jobs."""
    state.ranking.next_at = state.now + state.settings.priority_every
    state.ranking.demand = current_demand(state, present_shares(state, keep=True))


def _promotable_slots(state: EngineState) -> list[int]:
    """Return the planned jobs after a movable one of lower rank, the highest rank last."""
    jobs = state.plan.jobs
    slots = state.plan.planned()
    slots = slots[np.lexsort((jobs.starts[slots], state.rank[slots]))]
    if not slots.shape[0]:
        return []
    start, rank = jobs.starts[slots], state.rank[slots]
    # The first start of any movable job of strictly lower rank.
    movable = np.where(state.bound[slots] > start, start, FOREVER)
    if any(one.breaks_promises for one in state.site.weights.classes.values()):
        movable = start
    first = np.minimum.accumulate(movable)
    below = np.searchsorted(rank, rank, side="left") - 1
    hope = (below >= 0) & (first[np.maximum(below, 0)] < start + jobs.durations[slots])
    hope &= start > np.maximum(state.now, jobs.ready[slots])
    # Of equal ranks, the earliest start is tried first, so it comes last.
    slots, rank, start = slots[hope], rank[hope], start[hope]
    found: list[int] = slots[np.lexsort((-start, rank))][-state.settings.priority_tries :].tolist()
    return found
