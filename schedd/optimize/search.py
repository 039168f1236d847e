"""The skeleton of all searches: propose, try, accept what is better, pull left; at any moment ready to end.

The inner loop runs in kernels without the GIL, on a fork of the plan that nobody else touches. Only a move
that was found better is made, through the plan's own operations.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from schedd.optimize.orders import JobFacts, foremost, orders, rescue, sooner
from schedd.optimize.report import Change, Report, WhyEnded
from schedd.optimize.settings import SearchSettings
from schedd.plan.columns import Ints
from schedd.plan.evaluate import UNITS, Criterion, Evaluation, JobColumns, Values, Weights
from schedd.plan.latest import PATIENCE, as_expected, reference
from schedd.plan.places import Allocation, allocation_of
from schedd.plan.plan import Plan
from schedd.plan.trials import How, Made, Trials

__all__ = ["Improvement", "Search"]

_SEEDS = (1 << 64) - 1

_CALL_S = 0.005
"""How long one call of the kernel should take when time is what bounds the search."""

_AGAIN = 3
"""How often a whole order is tried again with the job that would start too late further ahead."""

_RESCUES = 20
"""So often late jobs are tried before others in one search, at most."""

_FRONT = 16
"""A newcomer is tried in front of fewer jobs than this at once."""

_AT_ONCE = 2000
"""Of so many jobs the facts are found before the search looks whether it is to end."""

_PULL = 300_000
"""Visited segments that pulling left may cost after one accepted move; the next goes on from there."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """What a search found: new places of the jobs that it moved, by start, and how it went."""

    places: tuple[Allocation, ...]
    report: Report


class Search:
    """One search on ``plan``, a fork that is its own from now on."""

    def __init__(
        self,
        plan: Plan,
        columns: JobColumns,
        latest: Ints,
        now: int,
        settings: SearchSettings,
        *,
        patience: int = PATIENCE,
        use: float = 1.0,
        newcomers: Ints | None = None,
        seen: Callable[[Plan], None] | None = None,
    ) -> None:
        """``latest``: the last start allowed, by slot (see ``latest_starts``); none may lie before the job's.

        ``patience``: see ``reference``; ``use``: see ``as_expected``. With ``newcomers``, the slots of jobs
        that came since the last search, or that room came back for, nothing else is tried than each of these
        in front of others (``try_before``). ``seen`` is called with the plan after every move that is made.
        """
        self._plan = plan
        self._now = now
        self._latest = latest
        self._settings = settings
        self._weights = Weights(settings.weights)
        self._columns = columns
        self._expected, patience = as_expected(columns, now, patience, use)
        self._evaluation = self._evaluated(self._expected)
        self._reference = reference(self._evaluation.values(), patience)
        self._before = self._values()
        self._cost = self._begin = self._costs()
        self._newcomers = newcomers
        self._seen = seen
        most = max(settings.lifted, settings.whole, _FRONT)
        self._trials = Trials(
            plan, self._evaluation, self._weights, self._reference, latest, now, most, settings.seed
        )
        self._was = plan.readable()
        self._touched: set[int] = set()
        self._tried = self._accepted = self._too_late = self._pulled_left = 0
        self._steps: Iterator[None] = iter(())
        self._jobs, self._why, self._elapsed = 0, WhyEnded.STOPPED, 0.0

    def stop(self) -> None:
        """Make ``search`` end at once, from any thread; what was found till then is kept."""
        self._plan.stop()

    def run(self) -> Improvement:
        """Search to the end, and tell what was found; call it once."""
        self.search()
        return self.improvement()

    def search(self) -> None:
        """Search to the end; call it once. ``stop`` ends it within about a millisecond."""
        begin = perf_counter()
        jobs = self._movable()
        self._jobs = jobs.shape[0]
        if jobs.shape[0] < 2:
            self._why = WhyEnded.NOTHING_TO_DO
        elif self._newcomers is not None:
            self._why = self._try_newcomers(self._newcomers, begin)
        else:
            self._rescue(begin)
            self._try_orders(begin)
            self._why = self._search(begin)
        self._elapsed = perf_counter() - begin

    def improvement(self) -> Improvement:
        """What the search that has ended found; putting it together takes some milliseconds."""
        for _ in self._steps:  # of the move at which it was stopped
            pass
        self._cost = self._costs()
        places = self._places()
        return Improvement(places, self._report(len(places)))

    # ---- the loop -------------------------------------------------------------------------------

    def _movable(self) -> Ints:
        """The planned jobs by start that do not start now."""
        slots = self._plan.planned()
        movable: Ints = slots[self._plan.starts(slots) > self._now]
        return movable

    def _ended(self, begin: float) -> WhyEnded | None:
        settings = self._settings
        if self._plan.stopped:
            return WhyEnded.STOPPED
        if settings.moves is not None and self._tried >= settings.moves:
            return WhyEnded.MOVES
        if settings.most_moved is not None and len(self._touched) >= settings.most_moved:
            return WhyEnded.MOVED_ENOUGH
        if settings.seconds is not None and perf_counter() - begin >= settings.seconds:
            return WhyEnded.SECONDS
        return None

    def _rescue(self, begin: float) -> None:
        """Where deadlines count, put jobs that would miss theirs before others that have time: the most
        urgent as long as that gains, then some that are drawn, then a third as many.
        """
        settings, most = self._settings, self._settings.whole
        if not any(settings.weights.get(c, 0) > 0 for c in (Criterion.LATE_JOBS, Criterion.TARDINESS)):
            return
        random = np.random.default_rng(settings.seed & _SEEDS)
        size, drawn = most // 2, False
        for _ in range(_RESCUES):
            jobs = self._movable()
            urgent, giving = rescue(self._facts(jobs), self._now, size, most, random if drawn else None)
            if not urgent.shape[0]:
                return
            how = self._try_order(jobs[np.concatenate((urgent, giving))], begin)
            if how is None:
                return
            if how is How.BETTER:
                drawn = False
            elif not drawn and urgent.shape[0] == size:
                drawn = True
            else:
                size, drawn = urgent.shape[0] // 3, False

    def _try_orders(self, begin: float) -> None:
        """Try the jobs in whole orders, of many the foremost."""
        jobs, most = self._movable(), self._settings.whole
        if most < 2 or jobs.shape[0] < 2:
            return
        for order in orders(self._facts(jobs), self._settings.seed):
            if self._try_order(jobs[foremost(order, self._plan.starts(jobs), most)], begin) is None:
                return

    def _try_order(self, chosen: Ints, begin: float) -> How | None:
        """Try many jobs in this order, again with who would start too late further ahead; how that went.

        None: orders had half of all moves, or of the time, or the search is to end.
        """
        settings = self._settings
        most = float("inf") if settings.moves is None else settings.moves // 2
        until = float("inf") if settings.seconds is None else begin + settings.seconds / 2
        how = How.TOO_LATE
        for _ in range(_AGAIN + 1):
            if self._ended(begin) is not None or self._tried >= most or perf_counter() >= until:
                return None
            how = self._try(chosen)
            if how is not How.TOO_LATE:
                break
            chosen = sooner(chosen, self._trials.placed)
        return how

    def _facts(self, jobs: Ints) -> JobFacts:
        """What orders are made from; of a search that is to end not all of it is right."""
        plan, evaluation, expected = self._plan, self._evaluation, self._expected
        slope = np.zeros(jobs.shape[0])
        for i in range(0, jobs.shape[0], _AT_ONCE):
            if plan.stopped:
                break
            some = slice(i, i + _AT_ONCE)
            slope[some] = evaluation.slopes(jobs[some], self._weights, self._reference)
        duration = plan.jobs.durations[jobs].astype(np.float64)
        return JobFacts(
            start=plan.starts(jobs),
            latest=self._latest[jobs],
            duration=duration,
            cpus=evaluation.cpu_seconds(jobs) / duration,
            waited=(self._now - expected.release[jobs]).astype(np.float64),
            due=expected.due[jobs],
            slope=slope,
        )

    def _try(self, slots: Ints) -> How:
        """Try one given move, and make it if it is better; how that went."""
        how, _ = self._trials.attempt(slots, self._cost)
        if how is How.STOPPED:
            return how
        self._tried += 1
        self._too_late += how is How.TOO_LATE
        if how is How.BETTER:
            self._accept(slots)
        return how

    def _left(self) -> int:
        """How many moves may still be tried."""
        return 1 << 40 if self._settings.moves is None else self._settings.moves - self._tried

    def _count(self, made: Made) -> None:
        """Count what was tried, and make what is better."""
        self._tried += made.decided
        self._too_late += made.too_late
        if made.how is How.BETTER:
            self._accept(made.slots)

    def _search(self, begin: float) -> WhyEnded:
        settings, trials = self._settings, self._trials
        trials.order(movable := self._movable())
        calls = 1
        while (why := self._ended(begin)) is None:
            if movable.shape[0] < 2:  # all others start now, after what was accepted
                return WhyEnded.NOTHING_TO_DO
            called = perf_counter()
            tries = self._left() if settings.seconds is None else min(self._left(), calls)
            made = trials.propose(settings.kind, settings.lifted, tries, self._cost)
            self._count(made)
            if made.how is How.BETTER and not self._plan.stopped:
                trials.order(movable := self._movable())
            elif made.how is How.NO_BETTER:
                # Few calls where moves are slow, so that the time is kept; many where they are quick.
                spent = perf_counter() - called
                calls = max(1, min(2 * calls, int(calls * _CALL_S / max(spent, 1e-9))))
        return why

    def _try_newcomers(self, newcomers: Ints, begin: float) -> WhyEnded:
        """Try each, the shortest first, in front of jobs that are planned before it, until one gains."""
        trials, durations = self._trials, self._plan.jobs.durations
        trials.order(self._movable())
        for slot in newcomers[np.argsort(durations[newcomers], kind="stable")].tolist():
            trials.begin_anew()
            behind, how = 0, How.FULL
            while how is How.FULL:
                if (why := self._ended(begin)) is not None:
                    return why
                made, behind = trials.try_before(slot, _FRONT, behind, self._left(), self._cost)
                how = made.how
                self._count(made)
                if how is How.BETTER:
                    trials.order(self._movable())
        return self._ended(begin) or WhyEnded.NOTHING_LEFT

    # ---- accepting ------------------------------------------------------------------------------

    def _accept(self, slots: Ints) -> None:
        """Make a move that was found better; then let jobs start earlier where room was left.

        A search that is to end leaves what is still to be done of the move to ``improvement``.
        """
        self._steps = self._making(slots)
        for _ in self._steps:
            if self._plan.stopped:
                return
        if self._weights.regular:
            self._pull_left()
        self._cost = self._costs()
        if self._seen is not None and not self._plan.stopped:
            self._seen(self._plan)

    def _making(self, slots: Ints) -> Iterator[None]:
        """The steps in which a move is made: to put hundreds of jobs in another order takes milliseconds."""
        plan, now = self._plan, self._now
        self._accepted += 1
        self._touched.update(slots.tolist())
        for slot in slots.tolist():
            plan.lift(slot, now)
            yield
        for slot in slots.tolist():
            if plan.place(slot, now, int(self._latest[slot]) + 1) < 0:
                raise AssertionError(f"slot {slot} found a place when it was tried, and none now")
            yield
        self._evaluation.update(slots)

    def _costs(self) -> float:
        return self._weights.cost(self._evaluation.values(), self._reference)

    def _pull_left(self) -> None:
        moves, _ = self._plan.repair(self._now, _PULL)
        self._touched.update(moves.slots.tolist())
        self._evaluation.update(moves.slots)
        self._pulled_left += len(moves)

    # ---- the end --------------------------------------------------------------------------------

    def _places(self) -> tuple[Allocation, ...]:
        slots = np.array(sorted(self._touched), np.int64)
        elsewhen = self._plan.starts(slots) != self._was.starts[slots]
        new = [
            allocation_of(self._plan, slot)
            for slot, moved in zip(slots.tolist(), elsewhen.tolist(), strict=True)
            if moved or self._plan.takes(slot) != self._was.takes(slot)
        ]
        return tuple(sorted(new, key=lambda place: (place.start, place.slot)))

    def _evaluated(self, columns: JobColumns) -> Evaluation:
        return Evaluation(self._plan, columns, self._now, threshold=self._settings.threshold)

    def _values(self) -> Values:
        """What the plan is worth as it stands, whatever of it is expected."""
        as_planned = self._expected is self._columns
        return (self._evaluation if as_planned else self._evaluated(self._columns)).values()

    def _report(self, moved: int) -> Report:
        after = self._values()
        return Report(
            kind=self._settings.kind,
            seed=self._settings.seed,
            jobs=self._jobs,
            tried=self._tried,
            accepted=self._accepted,
            too_late=self._too_late,
            pulled_left=self._pulled_left,
            moved=moved,
            gain=(self._begin - self._cost) / float(np.abs(self._weights.array).sum()),
            changes=tuple(Change(c, UNITS[c], self._before[c], after[c]) for c in Criterion),
            why_ended=self._why,
            elapsed_s=self._elapsed,
        )
