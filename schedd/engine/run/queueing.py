"""Loop over the queue, common to all queue policies, with a policy's three hooks."""

import numpy as np
import numpy.typing as npt

from schedd.engine.component.ranking_hooks import present_shares
from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.engine.rank.quarantine import JobErrorGuard
from schedd.plan.columns import Ints
from schedd.policy.queue_policies import Waiting


def start_by_policy(state: EngineState, event: str) -> list[int]:
    """Place the jobs that start now; return their slots. One too hard to plan is quarantined."""
    policy = state.policy
    if policy is None or not state.queue:
        return []
    plan = state.plan
    waiting = np.fromiter(state.queue, np.int64, len(state.queue))
    slots = waiting[policy.order(_columns(state, waiting))]
    started: list[int] = []
    reserved: list[int] = []
    blocked = 0
    i = 0
    while i < slots.shape[0] and policy.may_start(blocked):
        # A job that gets a reservation, or the first of a strict queue, must be examined separately.
        alone = policy.reserves(blocked) or not policy.may_start(blocked + 1)
        found = plan.first_startable(slots[: i + 1] if alone else slots, i, state.now)
        if found < slots.shape[0] and not (alone and found > i):
            slot = int(slots[found])
            plan.place(slot, state.now, state.now + 1)
            started.append(slot)
            blocked += found - i
            i = found + 1
            continue
        if not alone:
            break
        if policy.reserves(blocked):
            slot = int(slots[i])
            record = state.by_slot[slot]
            with JobErrorGuard(state, record.id if record is not None else "", event):
                plan.place(slot, state.now)
                reserved.append(slot)
        blocked += 1
        i += 1
    for slot in reserved:
        plan.remove(slot, state.now)
    return started


def _columns(state: EngineState, slots: Ints) -> Waiting:
    plan, columns = state.plan, state.columns
    durations = plan.jobs.durations[slots]
    return Waiting(
        now=state.now,
        since=columns.release[slots],
        duration=durations,
        due=columns.due[slots],
        cpus=lambda: plan.requested_cpus(slots),
        queue_priority=lambda: _queue_priorities(state, slots),
        time_used=lambda: _time_used(state, slots),
    )


def _queue_priorities(state: EngineState, slots: Ints) -> npt.NDArray[np.float64]:
    own = state.site.weights.queues

    def priority(record: JobRecord | None) -> float:
        name = record.facts.queue if record is not None else ""
        known = state.queues.get(name)
        return own.get(name, own.get("*", known.priority if known is not None else 0))

    return np.array([priority(state.by_slot[slot]) for slot in slots.tolist()], np.float64)


def _time_used(state: EngineState, slots: Ints) -> npt.NDArray[np.float64]:
    """Charged cpu-seconds of each job's owner in the fair-share tree; 0 without fair share."""
    shares = present_shares(state)
    records = [state.by_slot[slot] for slot in slots.tolist()]
    if shares is None:
        return np.zeros(len(records))
    return np.array(
        [shares.share(shares.key(one.facts)).used if one is not None else 0.0 for one in records], np.float64
    )
