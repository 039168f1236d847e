"""Reference for the projection: the same steps by the operations of a plan."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from schedd.model import FOREVER
from schedd.plan.columns import FIXED, Ints
from schedd.plan.job_order import ArrayEnds
from schedd.plan.plan import Plan

__all__ = ["Ahead", "run_on"]

_EVENT_WORK = 2_000
"""What an event costs besides the segments that it visits, in such."""


@dataclass(slots=True)
class Ahead:
    """How far a fork was run on."""

    started: Ints
    """By slot; -1: not yet."""
    now: int
    """The moment that it has come to."""
    ends: list[tuple[int, int]] = field(default_factory=list)
    """A heap of ends before the planned one, with their slots."""


def run_on(
    fork: Plan,
    lasts: Ints,
    now: int,
    work: int,
    until: Collection[int] = (),
    arrays: ArrayEnds | None = None,
    arrivals: Collection[int] = (),
) -> Ahead:
    """Let the plan's jobs run for ``lasts`` seconds (by slot) in total, at most for their planned duration.

    After each end, jobs that fit are started, longest waiting first; then all jobs move to their earliest
    places, as in the engine. ``arrivals``, by the time at which they are ready, get their earliest places
    then. The projection stops when all jobs of ``until`` (default: all planned ones) have
    started, or after ``work`` visited segments of the plan, which depends only on the plan. The fork is left
    at the reached time.
    """
    jobs = fork.jobs
    at = Ahead(np.full(jobs.starts.shape[0], -1, np.int64), now)
    _run(fork, at, np.flatnonzero(jobs.states == FIXED).tolist(), lasts)
    wanted = set(until)
    limit = fork.work + work
    to_come = list(arrivals)
    while not fork.stopped:
        soonest = fork.next_start()
        if soonest >= FOREVER:
            break
        if to_come:
            soonest = min(soonest, fork.ready(to_come[0]))
        at.now = max(at.now, min(at.ends[0][0], soonest) if at.ends else soonest)
        while at.ends and at.ends[0][0] <= at.now:
            end, slot = heappop(at.ends)
            fork.set_duration(slot, end - fork.start(slot), at.now)
        if fork.freed:
            fork.repair_now(at.now, arrays)
            _start(fork, at, lasts)
            while not fork.repair(at.now, arrays=arrays)[1] and not fork.stopped:
                pass
        while to_come and fork.ready(to_come[0]) <= at.now:
            fork.place(to_come.pop(0), at.now)
        _start(fork, at, lasts)
        limit -= _EVENT_WORK
        if fork.work > limit or (wanted and all(at.started[slot] >= 0 for slot in wanted)):
            break
    return at


def _start(fork: Plan, at: Ahead, lasts: Ints) -> None:
    """Start all that is due."""
    slots = fork.due_jobs(at.now).tolist()
    for slot in slots:
        fork.fix_in_place(slot)
        at.started[slot] = at.now
    _run(fork, at, slots, lasts)


def _run(fork: Plan, at: Ahead, slots: Iterable[int], lasts: Ints) -> None:
    """Note the ends of jobs that hold their nodes, if these are earlier than planned."""
    for slot in slots:
        end = max(fork.start(slot) + int(lasts[slot]), at.now + 1)
        if end < fork.end(slot):
            heappush(at.ends, (end, slot))
