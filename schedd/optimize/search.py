"""The skeleton of all searches: propose, try, accept what is better, pull left; at any moment ready to end.

The inner loop runs in kernels without the GIL, on a fork of the plan that nobody else touches. Only a move
that was found better is made, through the plan's own operations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from schedd.optimize.orders import JobFacts, foremost, orders, rescue, sooner
from schedd.optimize.report import Change, Report, WhyEnded
from schedd.optimize.settings import Kind, SearchSettings
from schedd.plan.evaluate import UNITS, Criterion, Evaluation, JobColumns, Values, Weights
from schedd.plan.kernels import layout as at
from schedd.plan.kernels import moves as mv
from schedd.plan.kernels import propose as pr
from schedd.plan.kernels.evaluate import ASKED, Floats, slopes
from schedd.plan.kernels.layout import Ints
from schedd.plan.latest import PATIENCE, as_expected, reference
from schedd.plan.places import Place, place_of, takes_in
from schedd.plan.plan import Plan, Take

__all__ = ["Improvement", "Search"]

_KINDS = {Kind.RANDOM: pr.RANDOM, Kind.GAP: pr.GAP, Kind.TABU: pr.TABU}

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

    places: tuple[Place, ...]
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
        waited: Floats | None = None,
        used: Floats | None = None,
    ) -> None:
        """``latest``: the last start allowed, by slot (see ``latest_starts``); none may lie before the job's.

        ``patience``: see ``reference``; ``use``: see ``as_expected``. With ``newcomers``, the slots of jobs
        that came since the last search, or that room came back for, nothing else is tried than each of these
        in front of others, see ``go_before``. ``waited`` and ``used``: see ``Evaluation``.
        """
        self._plan = plan
        self._now = now
        self._latest = latest
        self._settings = settings
        self._weights = Weights(settings.weights)
        self._columns, self._waited, self._used = columns, waited, used
        self._expected, patience = as_expected(columns, now, patience, use)
        self._evaluation = self._evaluated(self._expected)
        self._reference = reference(self._evaluation.values(), patience)
        self._before = self._values()
        self._cost = self._begin = self._costs()
        self._newcomers = newcomers
        most = max(settings.lifted, settings.whole, _FRONT)
        self._trial = mv.trial(plan.tables, self._evaluation.scores, most)
        self._random = np.array([settings.seed & _SEEDS], np.uint64)
        jobs, ctl = plan.tables.jobs, plan.tables.ctl
        self._was = jobs.copy()
        self._was_alloc = plan.tables.alloc[: int(ctl[at.ALLOC_TOP])].copy()
        self._touched: set[int] = set()
        self._tried = self._accepted = self._too_late = self._pulled_left = 0
        self._steps: Iterator[None] = iter(())
        self._stop = ctl
        self._jobs, self._why, self._elapsed = 0, WhyEnded.STOPPED, 0.0

    def stop(self) -> None:
        """Make ``search`` end at once, from any thread; what was found till then is kept."""
        self._stop[at.STOP] = 1

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
        jobs = self._plan.tables.jobs
        movable: Ints = slots[jobs[at.START, slots] > self._now]
        return movable

    def _ended(self, begin: float) -> WhyEnded | None:
        settings = self._settings
        if self._stop[at.STOP]:
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
            if how == mv.BETTER:
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

    def _try_order(self, chosen: Ints, begin: float) -> int | None:
        """Try many jobs in this order, again with who would start too late further ahead; how that went.

        None: orders had half of all moves, or of the time, or the search is to end.
        """
        settings = self._settings
        most = float("inf") if settings.moves is None else settings.moves // 2
        until = float("inf") if settings.seconds is None else begin + settings.seconds / 2
        how = mv.TOO_LATE
        for _ in range(_AGAIN + 1):
            if self._ended(begin) is not None or self._tried >= most or perf_counter() >= until:
                return None
            how = self._try(chosen)
            if how != mv.TOO_LATE:
                break
            chosen = sooner(chosen, int(self._trial.placed[0]))
        return how

    def _facts(self, jobs: Ints) -> JobFacts:
        """What orders are made from; of a search that is to end not all of it is right."""
        tables, scores = self._plan.tables, self._evaluation.scores
        slope = np.zeros(jobs.shape[0])
        for i in range(0, jobs.shape[0], _AT_ONCE):
            if self._stop[at.STOP]:
                break
            some = slice(i, i + _AT_ONCE)
            slope[some] = slopes(tables, scores, jobs[some], self._weights.array, self._reference.array)
        duration = tables.jobs[at.DUR, jobs].astype(np.float64)
        return JobFacts(
            start=tables.jobs[at.START, jobs],
            latest=self._latest[jobs],
            duration=duration,
            cpus=scores.part[ASKED, jobs] / duration,
            waited=(self._now - scores.release[jobs]).astype(np.float64),
            due=scores.due[jobs],
            slope=slope,
        )

    def _try(self, slots: Ints) -> int:
        """Try one given move, and make it if it is better; how that went."""
        k = slots.shape[0]
        full = 0
        while True:
            self._trial.slots[:k] = slots
            how, _ = mv.attempt(
                self._plan.tables,
                self._evaluation.scores,
                self._trial,
                k,
                self._latest,
                self._now,
                self._weights.array,
                self._reference.array,
                self._cost,
            )
            if how != mv.FULL:
                break
            self._grow(slots, full)
            full += 1
        if how == mv.STOPPED:
            return int(how)
        self._tried += 1
        self._too_late += how == mv.TOO_LATE
        if how == mv.BETTER:
            self._accept(slots)
        return int(how)

    def _grow(self, slots: Ints, times: int) -> None:
        """Make room for a move of these jobs, for which it was made so many ``times`` already."""
        slabs = self._plan.slabs
        tb = slabs.tb
        shapes = tb.jobs[at.SHAPE, slots]
        entries = int(tb.jobs[at.POOLS, slots].sum())
        for first, n in zip(tb.shapes[shapes, at.CHUNK], tb.shapes[shapes, at.CHUNKS], strict=True):
            entries += int(tb.chunks[first : first + n, at.COUNT].sum())
        slabs.make_room(entries, times)

    def _left(self) -> int:
        """How many moves may still be tried."""
        return 1 << 40 if self._settings.moves is None else self._settings.moves - self._tried

    def _count(self, how: int, k: int, decided: int, too_late: int, full: int) -> int:
        """Count what a kernel decided, and make room where its last move, of ``k`` jobs, met a full slab for
        the ``full``-th time before; how often it has by now.
        """
        self._tried += decided
        self._too_late += too_late
        if how != mv.FULL:
            return full
        full = 0 if decided else full  # the one that met a full slab before was tried to its end
        self._grow(self._trial.slots[:k], full)
        return full + 1

    def _search(self, begin: float) -> WhyEnded:
        settings = self._settings
        chooser = self._chooser()
        again = full = 0
        calls = 1
        while (why := self._ended(begin)) is None:
            if chooser.order.shape[0] < 2:  # all others start now, after what was accepted
                return WhyEnded.NOTHING_TO_DO
            called = perf_counter()
            how, k, decided, too_late = pr.search(
                self._plan.tables,
                self._evaluation.scores,
                self._trial,
                chooser,
                _KINDS[settings.kind],
                settings.lifted,
                self._left() if settings.seconds is None else min(self._left(), calls),
                again,
                self._latest,
                self._now,
                self._weights.array,
                self._reference.array,
                self._cost,
            )
            full = self._count(how, k, decided, too_late, full)
            again = k if how == mv.FULL else 0
            if how == mv.BETTER:
                self._accept(self._trial.slots[:k].copy())
                chooser = chooser if self._stop[at.STOP] else self._chooser(chooser)
            elif how == mv.NO_BETTER:
                # Few calls where moves are slow, so that the time is kept; many where they are quick.
                spent = perf_counter() - called
                calls = max(1, min(2 * calls, int(calls * _CALL_S / max(spent, 1e-9))))
        return why

    def _try_newcomers(self, newcomers: Ints, begin: float) -> WhyEnded:
        """Try each, the shortest first, in front of jobs that are planned before it, until one gains."""
        jobs = self._plan.tables.jobs
        chooser = self._chooser()
        for slot in newcomers[np.argsort(jobs[at.DUR, newcomers], kind="stable")].tolist():
            place = np.flatnonzero(chooser.order == slot)
            behind = full = 0
            how = mv.FULL if place.shape[0] else mv.NO_BETTER
            while how == mv.FULL:
                if (why := self._ended(begin)) is not None:
                    return why
                how, k, behind, decided, too_late = pr.go_before(
                    self._plan.tables,
                    self._evaluation.scores,
                    self._trial,
                    chooser,
                    int(place[0]),
                    behind,
                    _FRONT,
                    self._left(),
                    self._latest,
                    self._now,
                    self._weights.array,
                    self._reference.array,
                    self._cost,
                )
                full = self._count(how, k, decided, too_late, full)
                if how == mv.BETTER:
                    self._accept(self._trial.slots[:k].copy())
                    chooser = self._chooser(chooser)
        return self._ended(begin) or WhyEnded.NOTHING_LEFT

    def _chooser(self, old: pr.Chooser | None = None) -> pr.Chooser:
        """What moves are proposed from, as the plan is now; memory and generator go on."""
        order = self._movable()
        rows = self._plan.tables.rows.shape[0]
        return pr.Chooser(
            order=order,
            mixed=order.copy(),
            tabu=np.full(pr.TABU_LENGTH, -1, np.int64) if old is None else old.tabu,
            counts=np.zeros(2, np.int64) if old is None else old.counts,
            mark=np.zeros(rows, np.int64) if old is None else old.mark,
            random=self._random,
        )

    # ---- accepting ------------------------------------------------------------------------------

    def _accept(self, slots: Ints) -> None:
        """Make a move that was found better; then let jobs start earlier where room was left.

        A search that is to end leaves what is still to be done of the move to ``improvement``.
        """
        self._steps = self._making(slots)
        for _ in self._steps:
            if self._stop[at.STOP]:
                return
        if self._weights.regular:
            self._pull_left()
        self._cost = self._costs()

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

    def _places(self) -> tuple[Place, ...]:
        slots = np.array(sorted(self._touched), np.int64)
        elsewhen = self._plan.starts(slots) != self._was[at.START, slots]
        new = [
            place_of(self._plan, slot)
            for slot, moved in zip(slots.tolist(), elsewhen.tolist(), strict=True)
            if moved or self._plan.takes(slot) != self._took(slot)
        ]
        return tuple(sorted(new, key=lambda place: (place.start, place.slot)))

    def _took(self, slot: int) -> tuple[Take, ...]:
        """What the job held of nodes in the plan that the search was given."""
        first, n = self._was[(at.ALLOC, at.ALLOCS), slot].tolist()
        return takes_in(self._was_alloc[first : first + n])

    def _evaluated(self, columns: JobColumns) -> Evaluation:
        return Evaluation(
            self._plan,
            columns,
            self._now,
            threshold=self._settings.threshold,
            waited=self._waited,
            used=self._used,
        )

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
