"""When all that waits is expected to start: the planner run on several times, with other run times each."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from schedd.model import FOREVER
from schedd.plan.backfill import Rule
from schedd.plan.columns import PLANNED, UNPLACED, Ints
from schedd.plan.onward import run_on
from schedd.plan.plan import Plan
from schedd.plan.turns import Wholes
from schedd.predict.decode import decode, running, waiting
from schedd.predict.draws import MEDIAN, drawn, lasting
from schedd.predict.layout import Prediction

__all__ = ["Drawn", "Likely", "Scene", "likely"]

_MOST_DRAWS: Final = 9
_LEAST_DRAWS: Final = 5
_DECODED: Final = 50_000
"""So many jobs are decoded in all draws together, where the work lets none of them start before."""
_WORK: Final = 15_000_000
"""Segments of the plan that all draws together visit before what is left is decoded: 0.3 s of a processor
where many wait, and up to a second where few do, whose events cost more than their segments."""
_LATE: Final = 0.9


@dataclass(frozen=True, slots=True)
class Drawn:
    """One draw: the plan as it would come about, run on to ``now``; and by slot the starts, -1 for none."""

    plan: Plan
    now: int
    starts: Ints


@dataclass(frozen=True, slots=True)
class Likely:
    """Starts by all draws, seconds since the epoch; -1 where most draws have none."""

    p50: Ints
    late: Ints
    """In nine of ten draws it is not after that; -1 where more than one of ten has none."""


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """What draws begin with: a plan by walltimes, which they leave as it is, and how long its jobs run."""

    plan: Plan
    now: int
    order: Ints
    """The slots of jobs that wait, in the order in which they are expected to go."""
    medians: Ints
    """By slot, in seconds;"""
    lasts: Ints
    """the same as drawn, (draws, slots). Of who has no prediction it is what is planned."""
    arrays: Wholes | None = None
    rule: Rule | None = None

    @classmethod
    def of(
        cls,
        plan: Plan,
        now: int,
        since: Ints,
        ids: Sequence[str],
        predictions: Mapping[str, Prediction],
        *,
        queued: Collection[int] = (),
        arrays: Wholes | None = None,
        rule: Rule | None = None,
    ) -> "Scene":
        """By slot: the jobs' ``ids``, and ``since`` when they wait. ``queued``: slots that a policy has
        waiting without a plan. Who has no prediction lasts as planned.
        """
        jobs = plan.jobs
        order = waiting(plan, since)
        waits = jobs.states[order] == PLANNED
        if queued:
            waits |= (jobs.states[order] == UNPLACED) & np.isin(order, list(queued))
        order = order[waits]
        slots = np.concatenate((order, running(plan)))
        slots = slots[[ids[slot] in predictions for slot in slots.tolist()]]
        told = [predictions[ids[slot]] for slot in slots.tolist()]
        states, starts = jobs.states[slots], jobs.starts[slots]
        elapsed = np.where(states == PLANNED, 0, np.where(states == UNPLACED, 0, now - starts))
        draws = max(_LEAST_DRAWS, min(_MOST_DRAWS, _DECODED // max(1, order.shape[0])))
        durations = jobs.durations
        medians, lasts = durations.copy(), np.tile(durations, (draws, 1))
        longest = durations[slots]
        medians[slots] = np.minimum(lasting(told, elapsed, MEDIAN)[:, 0], longest)
        levels = drawn([ids[slot] for slot in slots.tolist()], draws)
        lasts[:, slots] = np.minimum(lasting(told, elapsed, levels).T, longest)
        return cls(plan, now, order, medians, lasts, arrays, rule)

    @property
    def planned(self) -> Ints:
        """When the plan has those of ``order``; decoded by walltimes where a policy plans nobody, or only the
        first.
        """
        jobs = self.plan.jobs
        if self._all_planned:
            return jobs.starts[self.order]
        return decode(self.plan.fork(), self.order, jobs.durations, self.now)

    @property
    def work(self) -> int:
        """Segments of the plan that a draw may visit before the rest of it is decoded."""
        return _WORK // int(self.lasts.shape[0])

    @property
    def _all_planned(self) -> bool:
        return bool((self.plan.jobs.states[self.order] == PLANNED).all())

    def draws(
        self, until: Collection[int] = (), ready: Callable[[Plan], None] = lambda _: None
    ) -> list[Drawn]:
        """Each draw: run on as far as the work goes, and what waits then decoded.

        With ``until`` only these slots' starts are known. ``ready`` gets each plan before it is worked on.
        """
        found = []
        for k in range(self.lasts.shape[0]):
            fork = self.plan.fork()
            ready(fork)
            found.append(Drawn(fork, *self._draw(k, until, fork)))
        return found

    def starts(self, until: Collection[int]) -> Ints:
        """The starts alone, (draws, slots)."""
        fork = self.plan.fork()
        found = np.empty(self.lasts.shape, np.int64)
        for k in range(self.lasts.shape[0]):
            if k:
                fork.rewind(self.plan)
            _, found[k] = self._draw(k, until, fork)
        return found

    def _draw(self, k: int, until: Collection[int], fork: Plan) -> tuple[int, Ints]:
        """The moment to which ``fork`` was run on, and the starts."""
        lasts, order = self.lasts[k], self.order
        starts, now = np.full(lasts.shape[0], -1, np.int64), self.now
        if self._all_planned:
            at = run_on(fork, lasts, now, self.work, until, self.arrays, self.rule)
            starts, now = at.started, at.now
        if until and (starts[list(until)] >= 0).all():
            return now, starts
        rest = order[starts[order] < 0]
        rest = rest[np.argsort(fork.jobs.starts[rest], kind="stable")] if self._all_planned else rest
        asked = np.flatnonzero(np.isin(rest, list(until)))
        starts[rest] = decode(fork, rest, lasts, now, int(asked[-1]) + 1 if asked.shape[0] else None)
        return now, starts


def likely(starts: Ints) -> Likely:
    """From ``starts``, (draws, jobs), -1 for none."""
    n = starts.shape[0]
    ordered = np.sort(np.where(starts < 0, FOREVER, starts), axis=0)
    p50 = (ordered[(n - 1) // 2] + ordered[n // 2]) // 2
    late = ordered[int(np.ceil(_LATE * n)) - 1]
    return Likely(np.where(ordered[n // 2] < FOREVER, p50, -1), np.where(late < FOREVER, late, -1))
