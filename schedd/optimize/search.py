"""Search loop: propose a move, try it, accept an improvement, pull jobs left. Can be stopped at any time.

The inner loop runs in kernels without the GIL, on a private fork of the plan. Accepted moves are made through
the plan's public operations.
"""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import numpy as np

from schedd.optimize.orders import OrderingColumns, advance_job, generate_orders, leading_jobs, select_rescue
from schedd.optimize.search_report import CriterionDelta, SearchEndReason, SearchReport
from schedd.optimize.settings import SearchSettings
from schedd.plan.columns import Ints
from schedd.plan.criteria import PATIENCE, UNITS, Criterion
from schedd.plan.evaluate import CriterionValues, CriterionWeights, Evaluation, ScoringColumns
from schedd.plan.latest_starts import reference_values, scale_to_expected
from schedd.plan.placements import Allocation, current_allocation
from schedd.plan.plan import Plan
from schedd.plan.trials import TrialOutcome, TrialRound, Trials

_SEED_MASK = (1 << 64) - 1

_KERNEL_CALL_S = 0.005  # target duration of one kernel call under a time limit

_ORDER_RETRIES = 3  # retries of an order, each with the job that was too late moved forward

_MAX_RESCUES = 20  # rescue attempts for late jobs per search

_NEWCOMER_DEPTH = 16  # jobs that a newcomer is moved ahead of in one attempt

_CONVEX = frozenset(
    criterion
    for criterion in Criterion
    if criterion is Criterion.MAKESPAN
    or criterion.value.partition("_")[0] in ("wait", "response", "slowdown", "bounded")
)
"""Criteria that are sums or maxima of convex functions of the waits, or depend only on the last end."""

_FACTS_BATCH = 2000  # jobs whose slopes are computed between two checks of the stop flag

_PULL_LEFT_SEGMENTS = 300_000
"""Plan segments visited by pull-left after one accepted move; the next call continues there."""


class MoveCounts(NamedTuple):
    """Numbers of moves of a search, as in ``SearchReport``."""

    tried: int
    accepted: int
    too_late: int
    pulled_left: int


@dataclass(frozen=True, slots=True)
class Improvement:
    """Result of a search: new places of the moved jobs, by start, and the report."""

    places: tuple[Allocation, ...]
    report: SearchReport


class PlanSearch:
    """One search on ``plan``, a fork owned by the search from now on."""

    def __init__(
        self,
        plan: Plan,
        columns: ScoringColumns,
        latest: Ints,
        now: int,
        settings: SearchSettings,
        *,
        patience: int = PATIENCE,
        use: float = 1.0,
        newcomers: Ints | None = None,
        on_move: Callable[[Plan], None] | None = None,
    ) -> None:
        """Prepare a search.

        ``latest``: latest start allowed, by slot, not before the current start (see ``latest_starts``);
        ``patience``: see ``reference_values``; ``use``: see ``scale_to_expected``. ``newcomers``: slots; if
        given, only moves of these jobs ahead of others are tried (``try_before``). ``on_move`` is called with
        the plan after every accepted move.
        """
        self._plan = plan
        self._now = now
        self._latest = latest
        self._settings = settings
        self._weights = CriterionWeights(settings.weights)
        self._columns = columns
        self._expected, patience = scale_to_expected(columns, now, patience, use)
        self._evaluation = self._make_evaluation(self._expected)
        self._reference = reference_values(self._evaluation.values(), patience)
        self._initial_values = self._planned_values()
        self._cost = self._initial_cost = self._current_cost()
        self._newcomers = newcomers
        self._on_move = on_move
        self._trials = self._make_trials()
        self._original = plan.read_view()
        self._touched: set[int] = set()
        self._tried = self._accepted = self._too_late = self._pulled_left = 0
        self._steps: Iterator[None] = iter(())
        self._jobs, self._why, self._elapsed = 0, SearchEndReason.STOPPED, 0.0

    def stop(self) -> None:
        """Stop the search; callable from any thread. Accepted moves are kept."""
        self._plan.stop()

    def run(self) -> Improvement:
        """Search and return the improvement; call once."""
        self.search()
        return self.improvement()

    def search(self) -> None:
        """Search; call once. ``stop`` ends it within about 1 ms."""
        begin = perf_counter()
        jobs = self._movable()
        self._jobs = jobs.shape[0]
        if jobs.shape[0] < 2 or self._in_best_order(jobs):
            self._why = SearchEndReason.NOTHING_TO_DO
        elif self._newcomers is not None:
            self._why = self._try_newcomers(self._newcomers, begin)
        else:
            self._try_rescues(begin)
            self._try_orders(begin)
            self._why = self._search(begin)
        self._elapsed = perf_counter() - begin

    def finish(self) -> None:
        """Finish the move during which the search was stopped."""
        for _ in self._steps:
            pass
        self._cost = self._current_cost()

    def improvement(self) -> Improvement:
        """Return the result of the ended search; takes some milliseconds."""
        self.finish()
        places = self._moved_places()
        return Improvement(places, self._make_report(len(places)))

    @property
    def settings(self) -> SearchSettings:
        return self._settings

    @property
    def cost(self) -> float:
        """Cost of the plan, relative to the plan before the search; exact after ``finish``."""
        return self._cost

    @property
    def end_reason(self) -> SearchEndReason:
        return self._why

    @property
    def counts(self) -> MoveCounts:
        """Numbers of moves up to now."""
        return MoveCounts(self._tried, self._accepted, self._too_late, self._pulled_left)

    def branch(self, settings: SearchSettings) -> "PlanSearch":
        """Return a search that goes on from this one after its ``finish``, on a fork of its plan.

        ``settings`` bound only the new search. Its report counts the moves of the new search, but has the
        gains and the moved jobs of both.
        """
        new = copy(self)
        new._restart(settings)  # noqa: SLF001 (it is of this class)
        return new

    def _restart(self, settings: SearchSettings) -> None:
        self._plan, self._settings = self._plan.fork(), settings
        self._touched = set(self._touched)
        self._evaluation = self._make_evaluation(self._expected)
        self._trials = self._make_trials()
        self._tried = self._accepted = self._too_late = self._pulled_left = 0
        self._jobs, self._why, self._elapsed = 0, SearchEndReason.STOPPED, 0.0

    # ---- the loop -------------------------------------------------------------------------------

    def _movable(self) -> Ints:
        """Return the planned jobs, by start, that start after now."""
        slots = self._plan.planned()
        movable: Ints = slots[self._plan.starts(slots) > self._now]
        return movable

    def _in_best_order(self, jobs: Ints) -> bool:
        """Whether no order of ``jobs`` is better: they differ only in their release, and start in its order.

        Jobs with equal requests and durations get the same set of starts in any order, and sums and maxima
        of convex functions of the waits are least if the oldest job has the earliest start.
        """
        if any(
            weight > 0 and criterion not in _CONVEX for criterion, weight in self._settings.weights.items()
        ):
            return False
        columns = self._plan.jobs
        alike = all(
            (column[jobs] == column[jobs[0]]).all()
            for column in (columns.shapes, columns.durations, self._expected.rank)
        )
        if not alike or columns.pool_counts[jobs].any() or (columns.ready[jobs] > self._now).any():
            return False
        release = self._expected.release[jobs]
        return bool((np.diff(release[np.lexsort((release, self._plan.starts(jobs)))]) >= 0).all())

    def _end_reason(self, begin: float) -> SearchEndReason | None:
        settings = self._settings
        if self._plan.stopped:
            return SearchEndReason.STOPPED
        if settings.moves is not None and self._tried >= settings.moves:
            return SearchEndReason.MOVES
        if settings.most_moved is not None and len(self._touched) >= settings.most_moved:
            return SearchEndReason.MOVED_ENOUGH
        if settings.seconds is not None and perf_counter() - begin >= settings.seconds:
            return SearchEndReason.SECONDS
        return None

    def _try_rescues(self, begin: float) -> None:
        """If deadlines have a weight, move late jobs ahead of jobs with slack.

        Tries the most urgent jobs while that improves the plan, then random samples, then a third as many
        jobs.
        """
        settings, most = self._settings, self._settings.whole
        weighed = any(settings.weights.get(c, 0) > 0 for c in (Criterion.LATE_JOBS, Criterion.TARDINESS))
        if most < 2 or not weighed:
            return
        random = np.random.default_rng(settings.seed & _SEED_MASK)
        size, drawn = most // 2, False
        for _ in range(_MAX_RESCUES):
            jobs = self._movable()
            urgent, giving = select_rescue(
                self._facts(jobs), self._now, size, most, random if drawn else None
            )
            if not urgent.shape[0]:
                return
            how = self._try_order(jobs[np.concatenate((urgent, giving))], begin)
            if how is None:
                return
            if how is TrialOutcome.BETTER:
                drawn = False
            elif not drawn and urgent.shape[0] == size:
                drawn = True
            else:
                size, drawn = urgent.shape[0] // 3, False

    def _try_orders(self, begin: float) -> None:
        """Try whole orders of the first ``settings.whole`` jobs."""
        jobs, most = self._movable(), self._settings.whole
        if most < 2 or jobs.shape[0] < 2:
            return
        for order in generate_orders(self._facts(jobs), self._settings.seed):
            if self._try_order(jobs[leading_jobs(order, self._plan.starts(jobs), most)], begin) is None:
                return

    def _try_order(self, chosen: Ints, begin: float) -> TrialOutcome | None:
        """Try an order; retry with the job that is too late moved forward. Return the outcome.

        None: orders used up half of the moves or of the time, or the search must end.
        """
        settings = self._settings
        most = float("inf") if settings.moves is None else settings.moves // 2
        until = float("inf") if settings.seconds is None else begin + settings.seconds / 2
        how = TrialOutcome.TOO_LATE
        for _ in range(_ORDER_RETRIES + 1):
            if self._end_reason(begin) is not None or self._tried >= most or perf_counter() >= until:
                return None
            how = self._try_move(chosen)
            if how is not TrialOutcome.TOO_LATE:
                break
            chosen = advance_job(chosen, self._trials.placed)
        return how

    def _facts(self, jobs: Ints) -> OrderingColumns:
        """Return the columns for orders; incomplete if the search must end."""
        plan, evaluation, expected = self._plan, self._evaluation, self._expected
        slope = np.zeros(jobs.shape[0])
        for i in range(0, jobs.shape[0], _FACTS_BATCH):
            if plan.stopped:
                break
            some = slice(i, i + _FACTS_BATCH)
            slope[some] = evaluation.slopes(jobs[some], self._weights, self._reference)
        duration = plan.jobs.durations[jobs].astype(np.float64)
        return OrderingColumns(
            start=plan.starts(jobs),
            latest=self._latest[jobs],
            duration=duration,
            cpus=evaluation.cpu_seconds(jobs) / duration,
            waited=(self._now - expected.release[jobs]).astype(np.float64),
            due=expected.due[jobs],
            slope=slope,
            rank=evaluation.scores.rank[jobs],
        )

    def _try_move(self, slots: Ints) -> TrialOutcome:
        """Try one move, make it if it is better, and return the outcome."""
        how, _ = self._trials.attempt(slots, self._cost)
        if how is TrialOutcome.STOPPED:
            return how
        self._tried += 1
        self._too_late += how is TrialOutcome.TOO_LATE
        if how is TrialOutcome.BETTER:
            self._accept(slots)
        return how

    def _moves_left(self) -> int:
        return 1 << 40 if self._settings.moves is None else self._settings.moves - self._tried

    def _record_move(self, made: TrialRound) -> None:
        """Count the tried moves and make the better one."""
        self._tried += made.decided
        self._too_late += made.too_late
        if made.how is TrialOutcome.BETTER:
            self._accept(made.slots)

    def _search(self, begin: float) -> SearchEndReason:
        settings, trials = self._settings, self._trials
        trials.order(movable := self._movable())
        calls = 1
        while (why := self._end_reason(begin)) is None:
            if movable.shape[0] < 2:  # all others start now after the accepted moves
                return SearchEndReason.NOTHING_TO_DO
            called = perf_counter()
            tries = self._moves_left() if settings.seconds is None else min(self._moves_left(), calls)
            made = trials.propose(settings.kind, settings.lifted, tries, self._cost)
            self._record_move(made)
            if made.how is TrialOutcome.BETTER and not self._plan.stopped:
                trials.order(movable := self._movable())
            elif made.how is TrialOutcome.NO_BETTER:
                # Adapt the tries per call to the target duration of a call.
                spent = perf_counter() - called
                calls = max(1, min(2 * calls, int(calls * _KERNEL_CALL_S / max(spent, 1e-9))))
        return why

    def _try_newcomers(self, newcomers: Ints, begin: float) -> SearchEndReason:
        """Try to move each newcomer, shortest first, ahead of jobs planned before it."""
        trials, durations = self._trials, self._plan.jobs.durations
        trials.order(self._movable())
        for slot in newcomers[np.argsort(durations[newcomers], kind="stable")].tolist():
            trials.reset_growth()
            behind, how = 0, TrialOutcome.FULL
            while how is TrialOutcome.FULL:
                if (why := self._end_reason(begin)) is not None:
                    return why
                made, behind = trials.try_before(
                    slot, _NEWCOMER_DEPTH, behind, self._moves_left(), self._cost
                )
                how = made.how
                self._record_move(made)
                if how is TrialOutcome.BETTER:
                    trials.order(self._movable())
        return self._end_reason(begin) or SearchEndReason.NOTHING_LEFT

    # ---- accepting ------------------------------------------------------------------------------

    def _accept(self, slots: Ints) -> None:
        """Make an improving move, then pull other jobs left into the freed capacity.

        If the search must end, ``improvement`` finishes the move.
        """
        self._steps = self._move_steps(slots)
        for _ in self._steps:
            if self._plan.stopped:
                return
        if self._weights.regular:
            self._pull_left()
        self._cost = self._current_cost()
        if self._on_move is not None and not self._plan.stopped:
            self._on_move(self._plan)

    def _move_steps(self, slots: Ints) -> Iterator[None]:
        """Make a move step by step: a new order of hundreds of jobs takes milliseconds."""
        plan, now = self._plan, self._now
        self._accepted += 1
        self._touched.update(slots.tolist())
        for slot in slots.tolist():
            plan.remove(slot, now)
            yield
        for slot in slots.tolist():
            if plan.place(slot, now, int(self._latest[slot]) + 1) < 0:
                raise AssertionError(f"slot {slot} had a place in the trial and has none now")
            yield
        self._evaluation.update(slots)

    def _current_cost(self) -> float:
        return self._weights.cost(self._evaluation.values(), self._reference)

    def _pull_left(self) -> None:
        moves, _ = self._plan.repair(self._now, _PULL_LEFT_SEGMENTS)
        self._touched.update(moves.slots.tolist())
        self._evaluation.update(moves.slots)
        self._pulled_left += len(moves)

    # ---- the end --------------------------------------------------------------------------------

    def _moved_places(self) -> tuple[Allocation, ...]:
        slots = np.array(sorted(self._touched), np.int64)
        elsewhen = self._plan.starts(slots) != self._original.starts[slots]
        new = [
            current_allocation(self._plan, slot)
            for slot, moved in zip(slots.tolist(), elsewhen.tolist(), strict=True)
            if moved or self._plan.takes(slot) != self._original.takes(slot)
        ]
        return tuple(sorted(new, key=lambda place: (place.start, place.slot)))

    def _make_evaluation(self, columns: ScoringColumns) -> Evaluation:
        return Evaluation(self._plan, columns, self._now, threshold=self._settings.threshold)

    def _make_trials(self) -> Trials:
        settings = self._settings
        return Trials(
            self._plan,
            self._evaluation,
            self._weights,
            self._reference,
            self._latest,
            self._now,
            max(settings.lifted, settings.whole, _NEWCOMER_DEPTH),
            settings.seed,
        )

    def _planned_values(self) -> CriterionValues:
        """Return the criteria of the plan by walltimes."""
        as_planned = self._expected is self._columns
        return (self._evaluation if as_planned else self._make_evaluation(self._columns)).values()

    def _make_report(self, moved: int) -> SearchReport:
        after = self._planned_values()
        return SearchReport(
            kind=self._settings.kind,
            seed=self._settings.seed,
            jobs=self._jobs,
            tried=self._tried,
            accepted=self._accepted,
            too_late=self._too_late,
            pulled_left=self._pulled_left,
            moved=moved,
            gain=(self._initial_cost - self._cost) / float(np.abs(self._weights.array).sum()),
            changes=tuple(CriterionDelta(c, UNITS[c], self._initial_values[c], after[c]) for c in Criterion),
            why_ended=self._why,
            elapsed_s=self._elapsed,
        )
