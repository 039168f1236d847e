"""Trial changes of a plan, evaluated and reverted: the elements of searches.

The kernels (``kernels/moves.py``, ``kernels/propose.py``) run without the GIL; the plan must be the search's
own. An improvement is then made by the plan's own operations.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

import numpy as np

from schedd.plan.evaluate import CriterionValues, CriterionWeights, Evaluation
from schedd.plan.kernels import displace as dp
from schedd.plan.kernels import layout as at
from schedd.plan.kernels import moves as mv
from schedd.plan.kernels import propose as pr
from schedd.plan.kernels.layout import Ints
from schedd.plan.plan import Plan

LEAST_GAIN: Final = mv.LEAST_GAIN  # minimum gain of a change


class MoveKind(StrEnum):
    """Ways to propose moves."""

    RANDOM = "random"  # random jobs, in random order (Random Search)
    GAP = "gap"  # a random job takes the place of an earlier one, which is then placed again (Gap Search)
    TABU = "tabu"  # the same, by expected gain, without recently tried jobs, sometimes sorted (Tabu Search)


_KINDS: Final = {MoveKind.RANDOM: pr.RANDOM, MoveKind.GAP: pr.GAP, MoveKind.TABU: pr.TABU}


class TrialOutcome(IntEnum):
    """Outcome of a trial."""

    BETTER = mv.BETTER
    NO_BETTER = mv.NO_BETTER
    TOO_LATE = dp.TOO_LATE  # a job would start after its latest start
    STOPPED = dp.STOPPED
    FULL = at.FULL  # there was no room for the last trial; now there is


@dataclass(frozen=True, slots=True)
class TrialRound:
    """Result of a round of trials: the last outcome and jobs; trials ``decided`` and ``too_late``."""

    how: TrialOutcome
    slots: Ints
    decided: int
    too_late: int


class Trials:
    """Tries changes of one plan and compares costs; ``latest`` are the last starts allowed, by slot."""

    def __init__(
        self,
        plan: Plan,
        evaluation: Evaluation,
        weights: CriterionWeights,
        reference: CriterionValues,
        latest: Ints,
        now: int,
        most: int,
        seed: int = 0,
    ) -> None:
        """``most``: maximum number of jobs per change. ``seed``: of the proposals, 64 bits."""
        self._plan, self._evaluation, self._now, self._latest = plan, evaluation, now, latest
        self._weights, self._reference = weights.array, reference.array
        self._trial = mv.trial(plan.tables, evaluation.scores, most)
        self._random = np.array([seed & ((1 << 64) - 1)], np.uint64)
        self._proposals: pr.ProposalState | None = None
        self._full = self._again = 0

    @property
    def placed(self) -> int:
        """Number of jobs of the last trial that found a place in time."""
        return int(self._trial.placed[0])

    def attempt(self, slots: Ints, cost: float, latest: Ints | None = None) -> tuple[TrialOutcome, float]:
        """Try one given change: these planned jobs, removed and placed in this order, with these ``latest``
        starts instead of the usual ones.

        Return the outcome, and the cost after it of the plan, which costs ``cost`` now.
        """
        k, full = slots.shape[0], 0
        latest = self._latest if latest is None else latest
        while True:
            self._trial.slots[:k] = slots
            how, after = mv.attempt(
                self._plan.tables,
                self._evaluation.scores,
                self._trial,
                k,
                latest,
                self._now,
                self._weights,
                self._reference,
                cost,
            )
            if how != at.FULL:
                return TrialOutcome(how), after
            self._make_room(slots, full)
            full += 1

    # ---- changes that are proposed --------------------------------------------------------------

    def order(self, movable: Ints) -> None:
        """Propose changes of these jobs, given by start, from now on; tabu list and generator continue."""
        old = self._proposals
        rows = self._plan.tables.rows.shape[0]
        self._proposals = pr.ProposalState(
            order=movable,
            mixed=movable.copy(),
            tabu=np.full(pr.TABU_LENGTH, -1, np.int64) if old is None else old.tabu,
            counts=np.zeros(2, np.int64) if old is None else old.counts,
            mark=np.zeros(rows, np.int64) if old is None else old.mark,
            random=self._random,
        )

    def propose(self, kind: MoveKind, most: int, tries: int, cost: float) -> TrialRound:
        """Propose and try up to ``tries`` changes of up to ``most`` jobs each, until one is better."""
        proposals = self._proposal_state()
        how, k, decided, too_late = pr.try_moves(
            self._plan.tables,
            self._evaluation.scores,
            self._trial,
            proposals,
            _KINDS[kind],
            most,
            tries,
            self._again,
            self._latest,
            self._now,
            self._weights,
            self._reference,
            cost,
        )
        self._again = k if how == at.FULL else 0
        return self._finish_round(how, k, decided, too_late)

    def try_before(
        self, slot: int, most: int, behind: int, tries: int, cost: float
    ) -> tuple[TrialRound, int]:
        """Try one job before jobs that are planned earlier, fewer than ``most`` at once, until that is
        better; ``behind`` is 0 at first. Return the round and the value of ``behind`` to continue with.
        """
        proposals = self._proposal_state()
        place = np.flatnonzero(proposals.order == slot)
        if not place.shape[0]:
            return TrialRound(TrialOutcome.NO_BETTER, np.zeros(0, np.int64), 0, 0), behind
        how, k, behind, decided, too_late = pr.try_before(
            self._plan.tables,
            self._evaluation.scores,
            self._trial,
            proposals,
            int(place[0]),
            behind,
            most,
            tries,
            self._latest,
            self._now,
            self._weights,
            self._reference,
            cost,
        )
        return self._finish_round(how, k, decided, too_late), int(behind)

    def reset_growth(self) -> None:
        """Start with another job: no room was made for it yet."""
        self._full = 0

    def _proposal_state(self) -> pr.ProposalState:
        if self._proposals is None:
            raise ValueError("say first which jobs changes are proposed of: see order")
        return self._proposals

    def _finish_round(self, how: int, k: int, decided: int, too_late: int) -> TrialRound:
        """Return the result of a kernel. If its last change met a full slab, make room for it."""
        slots = self._trial.slots[:k].copy()
        if how == at.FULL:
            # if others were decided since, the change that met a full slab before was completed
            self._full = 0 if decided else self._full
            self._make_room(slots, self._full)
            self._full += 1
        return TrialRound(TrialOutcome(how), slots, decided, too_late)

    def _make_room(self, slots: Ints, times: int) -> None:
        """Make room for a change of these jobs, for the ``times``-th time."""
        tb = self._plan.tables
        shapes = tb.jobs[at.SHAPE, slots]
        entries = int(tb.jobs[at.POOLS, slots].sum())
        for first, n in zip(tb.shapes[shapes, at.CHUNK], tb.shapes[shapes, at.CHUNKS], strict=True):
            entries += int(tb.chunks[first : first + n, at.COUNT].sum())
        self._plan.slabs.make_room(entries, times)


def requested_and_free_cpus(plan: Plan, slots: Ints, now: int) -> tuple[Ints, int]:
    """Return the cpus that each job requests, (n,), and the cpus free ``now`` on all usable nodes."""
    return pr.requested_and_free_cpus(plan.tables, slots, now)


def startable(plan: Plan, slots: Ints, now: int) -> Ints:
    """Return the jobs of ``slots`` that request no more cpus than are free ``now`` on all usable nodes.

    Necessary for an immediate start, not sufficient: a trial finds the nodes and checks the duration.
    """
    asked, free = requested_and_free_cpus(plan, slots, now)
    fitting: Ints = slots[asked <= free]
    return fitting
