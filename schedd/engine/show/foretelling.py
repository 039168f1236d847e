"""When each waiting job is expected to start: worked out on a copy of the plan, beside the engine."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from schedd.engine.facts.state import EngineState
from schedd.plan.columns import PLANNED, UNPLACED, Ints
from schedd.plan.plan import Plan
from schedd.predict import Calibration, Expected, Kind, Prediction, calm, decode, kind_of, running, waiting
from schedd.wire import ExpectedFacts, StartsExpected

__all__ = ["Foretold", "Outset", "foretell", "outset", "within"]

_WORK = 20_000_000_000
"""Segments of the plan that a round visits at most: some minutes of a processor."""
_SLICE = 500
"""Jobs that are told of in one event: so that none takes long."""


@dataclass(frozen=True, slots=True)
class Outset:
    """What a round begins with, copied between two batches; it is the asker's own."""

    plan: Plan
    now: int
    ids: tuple[str, ...]
    """By slot; empty where there is no job."""
    queued: frozenset[int]
    """Slots of jobs that a queue policy has waiting."""
    since: Ints
    promise: Ints
    expected: Ints
    expected_by: Ints
    predictions: Mapping[str, Prediction]
    kinds: Mapping[Kind, Calibration]


@dataclass(frozen=True, slots=True)
class Foretold:
    """What a round found: all starts by predicted run times, and those that are to be told.

    ``plan`` is the plan with predicted run times, in which further jobs may be tried.
    """

    as_of: int
    plan: Plan
    starts: Mapping[str, int]
    told: tuple[ExpectedFacts, ...]
    kinds: Mapping[Kind, Calibration] = field(repr=False)

    def events(self, name: str) -> Iterator[StartsExpected]:
        """What the engine is to hear of it; ``name`` begins the ids. At least one, which says when it was."""
        for first in range(0, max(1, len(self.told)), _SLICE):
            part = self.told[first : first + _SLICE]
            yield StartsExpected(id=f"{name}:{first // _SLICE}", time=self.as_of, jobs=part)


def outset(state: EngineState) -> Outset | None:
    """To be called between two batches; None where nothing is predicted."""
    outlook = state.outlook
    if outlook is None:
        return None
    plan = state.plan.fork()
    plan.limit_work(all_of_them=_WORK)
    return Outset(
        plan=plan,
        now=state.now,
        ids=tuple(record.id if record is not None else "" for record in state.by_slot),
        queued=frozenset(state.queue),
        since=state.columns.release.copy(),
        promise=state.promise.copy(),
        expected=state.expected.copy(),
        expected_by=state.expected_by.copy(),
        predictions=outlook.learner.predictions(),
        kinds={kind: one.copy() for kind, one in outlook.kinds.items()},
    )


def foretell(given: Outset, ready: Callable[[Plan], None] = lambda _: None) -> Foretold:
    """Work it all out; ``given`` is used up. ``ready`` gets the plan that may be stopped from outside."""
    plan, now, ids = given.plan, given.now, given.ids
    ready(plan)
    jobs = plan.jobs
    order = waiting(plan, given.since)
    waits = jobs.states[order] == PLANNED
    if given.queued:
        waits |= (jobs.states[order] == UNPLACED) & np.isin(order, list(given.queued))
    order = order[waits]
    planned, unplanned = jobs.starts[order], (jobs.states[order] != PLANNED).any()
    by_walltime = jobs.durations.copy()
    duration = by_walltime.copy()
    for slot in order.tolist():
        prediction = given.predictions.get(ids[slot])
        if prediction is not None:
            duration[slot] = min(prediction.p50, int(by_walltime[slot]))
    for slot in running(plan).tolist():
        prediction = given.predictions.get(ids[slot])
        if prediction is not None:
            left = prediction.after(max(0, now - int(jobs.starts[slot])))
            duration[slot] = min(left, int(by_walltime[slot]))
    if unplanned:  # a policy that plans nobody, or only the first
        planned = decode(plan.fork(), order, by_walltime, now)
    predicted = decode(plan, order, duration, now)
    told = []
    starts = {}
    for slot, start, by_plan in zip(order.tolist(), predicted.tolist(), planned.tolist(), strict=True):
        job = ids[slot]
        if min(start, by_plan) < 0 or job not in given.predictions:
            continue
        starts[job] = start
        kind, counts = kind_of(given.kinds, job, now, int(given.since[slot]), start)
        new = within(given.kinds[kind].estimate(now, start, by_plan), now, int(given.promise[slot]))
        p50 = int(given.expected[slot])
        old = Expected(p50, int(given.expected_by[slot])) if p50 >= 0 else None
        if counts or not calm(old, new, now):
            told.append(ExpectedFacts(job, new.p50, new.p90, by_plan, kind if counts else ""))
    return Foretold(now, plan, starts, tuple(told), given.kinds)


def within(expected: Expected, now: int, promised: int) -> Expected:
    """No later than promised, unless that has passed."""
    if promised <= now or expected.p90 <= promised:
        return expected
    return Expected(min(expected.p50, promised), promised)
