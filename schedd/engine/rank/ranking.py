"""Priorities in the plan: a job goes before jobs of lower priority wherever their promises allow it.

A job's *rank* is the total of its priority, in a column by slot. It is worked out when the job arrives or is
altered, and for all jobs every ``priority_every`` seconds, in slices; then the plan is gone through in the
order of ranks, under the same test. Among equal ranks nobody gives way, so a site without priorities has the
plan that it would have anyway. In the light mode a job keeps the rank of its submission, and the plan is gone
through once after the policy or a queue's priority changed.
"""

import numpy as np

from schedd.engine.component import last_place_checks
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import HORIZON, EngineState
from schedd.engine.rank.priorities import applicant_of, breakdown_of, demand_now, looks_around
from schedd.engine.rank.promises import note
from schedd.model import FOREVER
from schedd.plan.columns import PLANNED

__all__ = ["forward", "next_rerank", "rank_all", "set_rank"]

_MOST = 60
"""So many jobs make way for one at most."""
_FEW = 20
"""While an event waits for it."""
_SETS = 2
"""So many sets of jobs are tried: moments from which all make way, or nodes on which they do."""
_HIGHEST = 1 << 60
_SLICE = 100
"""Ranks worked out between two looks for new events."""
_WORDS = "it goes before jobs of lower priority"


def _goes_last(state: EngineState, job: str) -> bool:
    return any(check(state, job) for check in last_place_checks())


def set_rank(state: EngineState, record: JobRecord) -> None:
    """Work out the job's rank anew."""
    if record.slot >= 0 and _goes_last(state, record.id):
        state.ranks.matter = True
        state.rank[record.slot] = -_HIGHEST
        return
    queue = state.queues.get(record.facts.queue)
    if not state.ranks.matter:
        state.ranks.matter = state.site.weights.active or (queue is not None and queue.priority != 0)
    if state.ranks.matter and record.slot >= 0:
        if state.site.weights.mode == "light" and state.now >= state.ranks.again:
            _look_around(state)  # the rank is kept: it is not to come of what was asked for long ago
        if state.site.weights.short and record.phase is Phase.WAITING:
            state.ranks.demand = state.ranks.demand.beside(record.understood.walltime)
        total = breakdown_of(state, record, state.ranks.demand).total
        state.rank[record.slot] = max(-_HIGHEST, min(total, _HIGHEST))


def forward(state: EngineState, slot: int, event: str, *, thorough: bool = False) -> bool:
    """Let a planned job start earlier where only jobs of lower rank are in its way, and none is late by that.

    An event waits for this, so few jobs are asked to make way, unless it is to be ``thorough``.
    Others whose starts moved are noted, the job itself is not; returns whether it moved.
    """
    plan = state.plan
    if plan.start(slot) <= max(state.now, plan.ready(slot)):
        return False
    record = state.by_slot[slot]
    breaks = record is not None and _breaks_promises(state, record)
    most, sets = (_MOST, _SETS) if thorough else (_FEW, 1)
    until = state.now + HORIZON
    moves = plan.displace_lower_ranked(
        slot, state.rank, state.bound, state.now, until=until, most=most, sets=sets, breaks=breaks
    )
    if not len(moves):
        return False
    state.due = None
    theirs = moves.slots != slot
    cause = Cause.CLASS if breaks else Cause.PRIORITY
    name = record.id if record is not None else "a job"
    words = f"job {name} of higher priority goes before{_most_by(state, record)}"
    note(state, event, cause, words, moves.slots[theirs], moves.old[theirs], moves.new[theirs])
    return True


def _most_by(state: EngineState, record: JobRecord | None) -> str:
    """Which term gives the job most of its points; empty where none gives any."""
    if record is None:
        return ""
    terms = breakdown_of(state, record, state.ranks.demand).terms
    most = max(terms, key=lambda one: one.points, default=None)
    return f", most by {most.name.replace('_', ' ')}" if most is not None and most.points > 0 else ""


def _breaks_promises(state: EngineState, record: JobRecord) -> bool:
    classes = state.site.weights.classes.values()
    return any(one.breaks_promises for one in classes) and state.site.weights.breaks_promises(
        applicant_of(state, record)
    )


# ---- all jobs, every few minutes ----------------------------------------------------------------


def next_rerank(state: EngineState) -> int | None:
    """When ranks are to be worked out again; None: not as long as nothing happens."""
    if not state.ranks.matter or state.policy is not None or state.soonest() == FOREVER:
        return None
    ranks, weights = state.ranks, state.site.weights
    if ranks.under_way:
        return state.now
    return ranks.again if weights.mode == "full" or ranks.anew or looks_around(weights) else None


def rank_all(state: EngineState, event: str) -> None:
    """Go on with working out all ranks, and then with the plan in their order, for one slice."""
    ranks = state.ranks
    if not ranks.under_way:
        _look_around(state)
        if state.site.weights.mode == "light" and not ranks.anew:
            return
        ranks.anew = bool(state.arriving)  # what all ask for is not known yet
        ranks.left = [r.slot for r in state.records.values() if r.slot >= 0 and r.phase is Phase.WAITING]
        ranks.left.reverse()
    if ranks.left:
        for slot in ranks.left[: -_SLICE - 1 : -1]:
            record = state.by_slot[slot]
            if record is not None and record.phase is Phase.WAITING:
                set_rank(state, record)
        del ranks.left[-_SLICE:]
        if not ranks.left:
            ranks.tries = _hopeful(state)
        return
    limit = state.plan.work + state.settings.repair_slice
    while ranks.tries and state.plan.work < limit:
        slot = ranks.tries.pop()
        if state.plan.state(slot) != PLANNED:
            continue
        old = state.plan.start(slot)
        if forward(state, slot, event, thorough=True):
            moved = (np.array([value], np.int64) for value in (slot, old, state.plan.start(slot)))
            words = _WORDS + _most_by(state, state.by_slot[slot])
            note(state, event, Cause.PRIORITY, words, *moved)


def _look_around(state: EngineState) -> None:
    """Know what all jobs ask for together."""
    state.ranks.again = state.now + state.settings.priority_every
    state.ranks.demand = demand_now(state)


def _hopeful(state: EngineState) -> list[int]:
    """The planned jobs that stand behind one of lower rank that may be moved: the highest rank last."""
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
    # Of equal ranks who starts first is tried first: it stands last.
    slots, rank, start = slots[hope], rank[hope], start[hope]
    found: list[int] = slots[np.lexsort((-start, rank))][-state.settings.priority_tries :].tolist()
    return found
