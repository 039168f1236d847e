"""Trials of one job on a copy of the plan: its earliest start, cheapest start, and ends of several copies."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from schedd.alternatives.node_economics import NodeEconomics
from schedd.dialect.deadline import read_deadline
from schedd.dialect.moldable import with_walltime
from schedd.engine import (
    HORIZON,
    LimitBook,
    ParsedRequest,
    PlanSnapshot,
    Restriction,
    as_planned_request,
    planned_shares,
)
from schedd.model import FOREVER, NodeSets, Placement, Request, Share, StartKnown, WaitingFor
from schedd.plan.columns import Ints
from schedd.plan.evaluate import CriterionWeights, ScoringColumns
from schedd.plan.latest_starts import latest_starts
from schedd.plan.placement_choice import DisplaceableJobs, choose_placement
from schedd.plan.plan import Plan
from schedd.plan.records import RequestVariant
from schedd.plan.views import StartWindow, find_windows
from schedd.plan.work_limits import WorkSpent
from schedd.policy.access import Access
from schedd.service.questions.cheapest_start import CheapestStart, candidate_starts, cheapest_start
from schedd.wire import JobFacts
from schedd.wire.quick_init import quick_replace

_T = TypeVar("_T")
_WINDOWS = 100  # maximum number of start windows in the search for the cheapest start


@dataclass(frozen=True, slots=True)
class TasksEnd:
    """Time when a number of equal jobs, each placed separately, would all have ended."""

    tasks: int
    end: int


@dataclass(slots=True)
class DeadlineOrder:
    """Placement of a question's jobs before planned jobs with later deadlines, on a plan of their own.

    By slot: the scoring columns, the last starts that keep promises, and the ranks. ``patience`` and ``use``
    are those of ``latest_starts``.
    """

    columns: ScoringColumns
    bounds: Ints
    ranks: Ints
    patience: int
    use: float

    def place(self, trial: "SubmissionTrial", slot: int, weights: CriterionWeights, due: int) -> int:
        """Place a job as the engine would on arrival; return its start, or -1. A job that ends in time is not
        displaced beyond its deadline by the next ones.
        """
        self.columns = self.columns.including([slot], trial.ready, due)
        slots = self.columns.due.shape[0]
        bounds, ranks = np.full(slots, FOREVER, np.int64), np.zeros(slots, np.int64)
        bounds[: self.bounds.shape[0]] = self.bounds
        ranks[: self.ranks.shape[0]] = self.ranks
        bounds[slot], ranks[slot] = FOREVER, 0
        latest = latest_starts(trial.plan, bounds, self.columns, trial.now, self.patience, self.use)
        others = DisplaceableJobs(latest, ranks)
        bound = trial.now + HORIZON
        found = choose_placement(trial.plan, slot, self.columns, trial.now, bound, weights, others)
        if found is None:
            return -1
        last = due - trial.understood.walltime
        if found.start <= last:
            bounds[slot] = last
        self.bounds, self.ranks = bounds, ranks
        return found.start


@dataclass(frozen=True, slots=True)
class SubmissionTrial:
    """Plan and time of one question; ``ready`` is the job's earliest possible start."""

    plan: Plan
    limits: LimitBook
    gates: Mapping[str, Access]
    node_sets: NodeSets | None
    facts: JobFacts
    understood: ParsedRequest
    now: int
    ready: int
    columns: ScoringColumns
    weights: CriterionWeights | None  # weights for choosing among gaps; None: the first gap
    order: DeadlineOrder | None = (
        None  # None, or the order in which it is also tried before jobs with later deadlines
    )
    restriction: Restriction | None = None  # the nodes and times that the job is restricted to
    scopes: frozenset[str] = frozenset()  # the labels of the job for limits
    node_order: str = ""  # the order of nodes that is preferred for the job

    def _as_planned(self, request: Request, walltime: int) -> Request:
        nodes = self.restriction.nodes if self.restriction is not None else ()
        facts = self.facts
        if self.gates and "soft_walltime" not in facts.resources:  # a gate may depend on the walltime
            facts = quick_replace(facts, resources=with_walltime(facts.resources, walltime))
        return as_planned_request(request, facts, self.gates, self.node_sets, nodes, self.node_order)

    @contextmanager
    def _slot(self, request: Request, walltime: int) -> Iterator[int | WaitingFor]:
        """Yield the slot of the temporary job, or the limit that it can never meet."""
        pools = self._pools(request, walltime)
        too_much = self.limits.too_much(pools)
        if too_much is not None:
            yield too_much
            return
        request = self._as_planned(request, walltime)
        slot = self.plan.add_job(request, walltime, self.ready, pools)
        try:
            yield slot
        finally:
            self.plan.drop_job(slot, self.now)

    def _pools(self, request: Request, walltime: int) -> dict[str, int]:
        understood = replace(self.understood, request=request, walltime=walltime)
        found = self.limits.needs(self.plan, self.facts, understood, self.now, self.scopes)
        pool = self.restriction.pool if self.restriction is not None else ""
        return {**found, pool: 1} if pool else found

    def variant(self, request: Request) -> RequestVariant:
        """Return the request of the job as it would be planned."""
        walltime = self.understood.walltime
        return RequestVariant(self._as_planned(request, walltime), walltime, self._pools(request, walltime))

    def limit_exceeded(self, request: Request, walltime: int) -> WaitingFor | None:
        """Return the limit that the job can never meet; None: there is none."""
        return self.limits.too_much(self._pools(request, walltime))

    def fits_on_empty_nodes(self, request: Request, walltime: int) -> bool:
        """Whether the nodes could hold the job when empty and up, or a limit excludes it."""
        with self._slot(request, walltime) as slot:
            return isinstance(slot, WaitingFor) or self.plan.fits_in_slot(slot)

    def start(self, request: Request, walltime: int) -> StartKnown | WaitingFor | None:
        """Return the earliest placement; None if there is none."""
        with self._slot(request, walltime) as slot:
            if isinstance(slot, WaitingFor):
                return slot
            start = self._place(slot)
            if start < 0:
                return None
            shares = tuple(Share(s.node, s.cpus, s.mem, s.gpus) for s in planned_shares(self.plan, slot))
            return StartKnown(Placement(start, start + walltime, shares))

    def tried(self, request: Request, walltime: int, ask: Callable[[Plan, int], _T]) -> _T | None:
        """Return ``ask(plan, slot)`` with the job in its earliest placement; None if there is none."""
        with self._slot(request, walltime) as slot:
            if isinstance(slot, WaitingFor) or self._place(slot) < 0:
                return None
            return ask(self.plan, slot)

    def task(self, request: Request) -> tuple[Request, dict[str, int]] | None:
        """Return what a job needs of the plan and of the limits; None: it is beyond a limit by itself."""
        walltime = self.understood.walltime
        pools = self._pools(request, walltime)
        return (self._as_planned(request, walltime), pools) if self.limits.too_much(pools) is None else None

    def add_task(self, request: Request, pools: Mapping[str, int], others: Sequence[int]) -> tuple[int, int]:
        """Add and place a job; return slot and start, or -1 for both. Raises WorkSpent.

        ``others``: the slots of equal jobs that were placed before.
        """
        slot = self.plan.add_job(request, self.understood.walltime, self.ready, pools)
        start = -1
        try:
            start = self._place(slot, others)
        finally:
            if start < 0:
                self.plan.drop_job(slot, self.now)
        return (slot, start) if start >= 0 else (-1, -1)

    def order_among_forms(self, start: int, *, by_end: bool) -> tuple[int, int]:
        """Return the key by which the plan chooses among forms of a request: the least, then the first one.
        Of scaled walltimes with equal ends, the earlier start counts.
        """
        end = start + self.understood.walltime
        return (end, start if self.understood.scaled else 0) if by_end else (start, 0)

    def _place(self, slot: int, others: Sequence[int] = ()) -> int:
        """Place the job as the engine would, without displacing others unless they have later deadlines;
        return its start, or -1.
        """
        bound = self.now + HORIZON
        due = read_deadline(self.facts.resources, self.facts.submitted)
        due = FOREVER if due is None else due
        if self.order is not None and self.weights is not None:
            return self.order.place(self, slot, self.weights, due)
        if self.weights is None or self.plan.tiers == 1:
            return self.plan.place(slot, self.now, bound)
        columns = self.columns.including([*others, slot], self.ready, due)
        found = choose_placement(self.plan, slot, columns, self.now, bound, self.weights)
        return found.start if found is not None else -1

    def start_in_time(self, request: Request, walltime: int, by: int) -> int:
        """Return the earliest start of the job, if it is no later than ``by``; -1 otherwise."""
        with self._slot(request, walltime) as slot:
            return -1 if isinstance(slot, WaitingFor) else self.plan.probe(slot, self.now, by + 1)

    def cheapest(
        self, request: Request, walltime: int, by: int, published: PlanSnapshot
    ) -> CheapestStart | None:
        """Return the cheapest start with an end by then; None if there is none."""
        last = by - walltime
        if last < self.ready:
            return None
        books = NodeEconomics.from_economy(
            published.settings.site.economy, published.names, published.nodes, self.now, by
        )
        if not books.priced:
            return None
        edges = sorted({edge for rates in books.rates for edge in rates.edges.tolist()})
        planned = self._as_planned(request, walltime)
        pools = self._pools(request, walltime)
        seen = find_windows(self.plan, planned, walltime, self.ready, last + 1, pools=pools, limit=_WINDOWS)
        starts = candidate_starts((StartWindow(w.first, min(w.last, last)) for w in seen), edges, walltime)
        with self._slot(request, walltime) as slot:
            if isinstance(slot, WaitingFor):
                return None
            return cheapest_start(self.plan, slot, walltime, starts, books, self.now)

    def windows(self, request: Request, walltime: int, most: int) -> tuple[StartWindow, ...]:
        pools = self._pools(request, walltime)
        if not most or self.limits.too_much(pools) is not None:
            return ()
        end = self.now + HORIZON
        request = self._as_planned(request, walltime)
        return find_windows(self.plan, request, walltime, self.ready, end, pools=pools, limit=most)


_Form = tuple[
    SubmissionTrial, tuple[Request, dict[str, int]]
]  # trial of one form of a request, and its needs


def task_ends(forms: Sequence[tuple[SubmissionTrial, Request]], tasks: Sequence[int]) -> Iterator[TasksEnd]:
    """Yield the common end of each number of equal jobs, as long as there are placements.

    Each job takes the form of its request with the earliest start, or end if their numbers of cores differ,
    or their walltimes by the speed of nodes; all trials have one plan.
    """
    slots: list[int] = []
    last = 0
    needs = [(one, need) for one, request in forms if (need := one.task(request)) is not None]
    cores = {sum(chunk.count * chunk.cpus for chunk in request.chunks) for _, request in forms}
    by_end = len(cores) > 1 or any(one.understood.scaled for one, _ in forms)
    try:
        for wanted in tasks:
            while len(slots) < wanted:
                form = needs[0] if len(needs) == 1 else _best_form(needs, slots, by_end=by_end)
                if form is None:
                    return
                trial, need = form
                slot, start = trial.add_task(*need, slots)
                if start < 0:
                    return
                slots.append(slot)
                last = max(last, start + trial.understood.walltime)
            yield TasksEnd(wanted, last)
    except WorkSpent:
        return
    finally:
        for slot in slots:
            forms[0][0].plan.drop_job(slot, forms[0][0].now)


def _best_form(forms: Sequence[_Form], others: Sequence[int], *, by_end: bool) -> _Form | None:
    """Return the form whose first gap starts or ends first for the next job. The plan stays unchanged."""
    best: _Form | None = None
    least = FOREVER, FOREVER
    for trial, need in forms:
        slot, start = replace(trial, weights=None, order=None).add_task(*need, others)
        if start >= 0:
            trial.plan.drop_job(slot, trial.now)
            value = trial.order_among_forms(start, by_end=by_end)
            if value < least:
                best, least = (trial, need), value
    return best
