"""Planning of a preemption: the preemptor's earliest start, the victims, and both in the plan.

The earliest start is found on a fork in which running candidates end as soon as they may. Planned jobs may
move as far as their promises allow. The cheapest candidates that allow this start are found by bisection;
``victim_choice`` takes the victims from these.

In the plan each victim then ends at the preemptor's start. The resources of its remaining time, without the
preemptor's part, stay blocked until the preemption is over, so that it can be undone without any effect on
other jobs. A suspended victim blocks the resources that it keeps, and after the preemptor's end all of its
resources for the rest of its walltime.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.shares import BLOCK, takes_for_shares
from schedd.engine.facts.state import HORIZON
from schedd.features.preemption.candidates import Candidate, is_preempt_target, may_begin
from schedd.features.preemption.settings import PreemptionSettings
from schedd.features.preemption.victim_choice import choose_victims
from schedd.model import Request
from schedd.plan.columns import PLANNED, SHARE, WHOLE, Ints
from schedd.plan.gates import CPUS_GATE, GPUS_GATE, MEM_GATE
from schedd.plan.plan import Plan
from schedd.plan.records import Take
from schedd.plan.work_limits import WorkSpent
from schedd.wire import JobFacts

_MOST_MOVED: Final = 100  # planned jobs that may be displaced by one preemptor
_MOST_SETS: Final = 4
_LOCKED: Final = 1 << 62  # rank of preemptors: they are not displaced

NewSlot = Callable[[Request, int, Mapping[str, int]], int]


@dataclass(frozen=True, slots=True)
class ShortenedRun:
    """The slot of a run that ends early in the plan, and the end that it had before.

    A run that is suspended keeps these amounts, by row; None: it is not suspended.
    """

    slot: int
    end: int
    kept: Mapping[int, Ints] | None = None


@dataclass(frozen=True, slots=True)
class PlanAtNow:
    """A plan and the time, with the ranks and the latest permitted starts by slot, and the names of the
    resources that suspended jobs release.
    """

    plan: Plan
    now: int
    rank: Ints
    bound: Ints
    released: frozenset[str] = frozenset({"ncpus"})

    def ended_run(self, one: Candidate) -> ShortenedRun:
        """Return the run of a candidate with an early end."""
        slot = one.record.slot
        suspended = one.method == "suspend"
        kept = suspended_amounts(self.plan, one.record, self.released) if suspended else None
        return ShortenedRun(slot, self.plan.end(slot), kept)


@dataclass(frozen=True, slots=True)
class Arrangement:
    """An earlier start that fits into the plan: by a preemption, or by moves of planned jobs."""

    start: int
    takes: tuple[Take, ...]
    victims: tuple[Candidate, ...]


def find_preemption(
    state: PlanAtNow,
    settings: PreemptionSettings,
    slot: int,
    facts: JobFacts,
    candidates: Sequence[Candidate],
    locked: Sequence[int],
) -> Arrangement | None:
    """Return how the planned job in ``slot`` starts earlier: by moves of planned jobs, or by the preemption
    with the earliest start, if that is worth it compared with such moves. None: it cannot without a broken
    promise. ``locked``: slots of other preemptors.
    """
    before, soon = state.plan.start(slot), state.now + settings.wait
    if before <= soon:
        return None
    moved = _find_move(state, before - settings.gain, slot, locked)
    if moved is not None:
        before = moved.start
    targets = [one for one in candidates if is_preempt_target(facts, one.record.facts)]
    # Each round goes on to the next method of the victims that have one.
    rounds = max((len(one.methods) for one in targets), default=0) if before > soon else 0
    for number in range(rounds):
        these = [replace(one, round=number) for one in targets]
        found = _find_in_round(state, settings, slot, before - settings.gain, these, locked)
        if found is not None:
            return found
    return moved


def _find_move(state: PlanAtNow, latest: int, slot: int, locked: Sequence[int]) -> Arrangement | None:
    """Return an earlier start, no later than ``latest``, by moves of planned jobs and without victims."""
    try:
        start, takes = _Search(state, slot, (), locked).earliest(0)
        if 0 <= start <= latest and _fits(state, slot, start, takes, (), locked):
            return Arrangement(start, takes, ())
    except WorkSpent:
        pass
    return None


def _find_in_round(
    state: PlanAtNow,
    settings: PreemptionSettings,
    slot: int,
    latest: int,
    candidates: Sequence[Candidate],
    locked: Sequence[int],
) -> Arrangement | None:
    """Return the preemption with the earliest start, if that is no later than ``latest``."""
    usable = sorted(candidates, key=lambda one: (one.cost, one.record.run.started, one.record.id))
    search = _Search(state, slot, usable, locked)
    try:
        start, _ = search.earliest(len(usable))
        if not 0 <= start <= latest or not may_begin(settings, start - settings.lead):
            return None
        low, high = 0, len(usable)
        while low < high:
            middle = (low + high) // 2
            found, _ = search.earliest(middle)
            low, high = (low, middle) if 0 <= found <= start else (middle + 1, high)
        for count in dict.fromkeys((low, len(usable))) if low else ():
            start, takes = search.earliest(count)
            chosen = _choose(state, slot, start, takes, usable[:count])
            if chosen and _fits(state, slot, start, takes, chosen, locked):
                return Arrangement(start, takes, chosen)
    except WorkSpent:
        pass
    return None


class _Search:
    """Earliest starts of a job if the first ``count`` candidates are preempted."""

    def __init__(
        self, state: PlanAtNow, slot: int, candidates: Sequence[Candidate], locked: Sequence[int]
    ) -> None:
        self._state, self._slot, self._candidates = state, slot, candidates
        self._rank = state.rank.copy()
        self._rank[[slot, *locked]] = _LOCKED
        self._known: dict[int, tuple[int, tuple[Take, ...]]] = {}

    def earliest(self, count: int) -> tuple[int, tuple[Take, ...]]:
        """Return the start, or -1, and the placement. Raises WorkSpent."""
        if count not in self._known:
            self._known[count] = self._find(count)
        return self._known[count]

    def _find(self, count: int) -> tuple[int, tuple[Take, ...]]:
        state, slot = self._state, self._slot
        fork, now = state.plan.fork(), state.now
        for one in self._candidates[:count]:
            held = one.record.slot
            run = state.ended_run(one)
            fork.set_duration(held, one.free_from - fork.start(held), now)
            if run.kept:
                fix_block(fork, one.free_from, HORIZON, run.kept, lambda *new: _add_to(fork, now, *new))
        fork.remove(slot, now)
        start = fork.place(slot, now, now + HORIZON)
        # First past jobs of lower rank, as each job on its arrival, and then past any others.
        for rank in (state.rank, self._rank) if start > max(now, fork.ready(slot)) else ():
            fork.displace_lower_ranked(
                slot, rank, state.bound, now, until=now + HORIZON, most=_MOST_MOVED, sets=_MOST_SETS
            )
        return fork.start(slot), fork.takes(slot) if start >= 0 else ()


def _add_to(plan: Plan, now: int, request: Request, duration: int, pools: Mapping[str, int]) -> int:
    return plan.add_job(request, duration, now, pools)


# ---- the victims --------------------------------------------------------------------------------


def suspended_amounts(plan: Plan, record: JobRecord, released: frozenset[str]) -> dict[int, Ints]:
    """Return by row the amounts that a job keeps while it is suspended: all but the released resources.

    Limits count it as before. On a node that it has to itself it keeps the requested amounts.
    """
    columns = [column for name, column in plan.resource_columns.items() if _is_released(name, released)]
    request = record.understood.request
    shared = replace(request, exclusive=False) if request is not None else None
    own: dict[int, Ints] = {}
    for take in takes_for_shares(plan, shared, record.facts.shares):
        own[take.row] = own.get(take.row, 0) + np.array(take.amounts, np.int64)
    pools = set(plan.pools.values())
    found: dict[int, Ints] = {}
    for row, held in _sum(plan, [record.slot]).items():
        if row not in pools:
            held = np.minimum(held, own.get(row, held))
            held[[*columns, SHARE]] = 0
            held[SHARE] = int(held.any())  # a whole-node job needs all shares
        if held.any():
            found[row] = held
    return found


def _is_released(name: str, released: frozenset[str]) -> bool:
    if name in ("cpus", "gpus") or name.startswith((CPUS_GATE, GPUS_GATE)):
        reserved = "ncpus" if name == "cpus" or name.startswith(CPUS_GATE) else "ngpus"
        return name in released or reserved in released
    return ("mem" if name.startswith(MEM_GATE) else name) in released


def _choose(
    state: PlanAtNow, slot: int, start: int, takes: Sequence[Take], candidates: Sequence[Candidate]
) -> tuple[Candidate, ...] | None:
    """Return the cheapest candidates without which a job fits into a place at its ``start``."""
    plan = state.plan
    usable = [one for one in candidates if one.free_from <= start < plan.end(one.record.slot)]
    slots = [one.record.slot for one in usable]
    missing = _missing(plan, slot, start, takes)
    kinds = [
        (row, column) for row, amounts in missing.items() for column in np.flatnonzero(amounts > 0).tolist()
    ]
    frees = [[0] * len(kinds) for _ in usable]
    place = {kind: k for k, kind in enumerate(kinds)}
    for owner, entry in plan.held(np.array(slots, np.int64)):
        for column, amount in enumerate(entry.amounts):
            if (entry.row, column) in place:
                frees[owner][place[entry.row, column]] += amount
    for owner, one in enumerate(usable):
        for row, kept in (state.ended_run(one).kept or {}).items():
            for column in np.flatnonzero(kept).tolist():
                if (row, column) in place:
                    frees[owner][place[row, column]] -= int(kept[column])
    wanted = [int(missing[row][column]) for row, column in kinds]
    chosen = choose_victims([one.cost for one in usable], frees, wanted)
    return None if chosen is None else tuple(usable[i] for i in chosen)


def still_needed(plan: Plan, slot: int, victims: Sequence[ShortenedRun], blocks: Sequence[int]) -> bool:
    """Return whether a preemptor could not keep its place if all victims went on."""
    start = plan.start(slot)
    freed = _sum(plan, [one.slot for one in victims if one.end > start])
    for row, amounts in _sum(plan, [block for block in blocks if plan.start(block) == start]).items():
        freed[row] = freed.get(row, 0) - amounts
    missing = _missing(plan, slot, start, plan.takes(slot))
    return any((missing[row] + amounts > 0).any() for row, amounts in freed.items() if row in missing)


def _missing(plan: Plan, slot: int, start: int, takes: Sequence[Take]) -> dict[int, Ints]:
    """Return by row what a job in this place needs beyond what running jobs, reservations and blocks leave
    free at its start. Planned jobs do not count. Negative amounts are to spare.
    """
    needs: dict[int, Ints] = {}
    for take in takes:
        needs[take.row] = needs.get(take.row, 0) + np.array(take.amounts, np.int64)
    width = len(plan.resource_columns)
    for name, amount in plan.pool_amounts(slot).items():
        needs[plan.pools[name]] = np.array([amount] + [0] * (width - 1), np.int64)
    slots = plan.planned()
    starts = plan.starts(slots)
    slots = slots[(starts <= start) & (starts + plan.jobs.durations[slots] > start)]
    planned: dict[int, Ints] = {}
    for _, entry in plan.held(slots):
        if entry.row in needs:
            planned[entry.row] = planned.get(entry.row, 0) + np.array(entry.amounts, np.int64)
    return {row: need - plan.timeline(row).at(start) - planned.get(row, 0) for row, need in needs.items()}


# ---- in the plan --------------------------------------------------------------------------------


def _fits(
    state: PlanAtNow,
    slot: int,
    start: int,
    takes: Sequence[Take],
    victims: Sequence[Candidate],
    locked: Sequence[int],
) -> bool:
    """Return whether the preemption breaks no promise, tried on a fork."""
    fork = state.plan.fork()

    def new_slot(request: Request, duration: int, pools: Mapping[str, int]) -> int:
        return fork.add_job(request, duration, state.now, pools)

    runs = [state.ended_run(one) for one in victims]
    moved = arrange(fork, slot, start, takes, runs, state.bound, state.now, new_slot, locked)
    return moved is not None


def arrange(
    plan: Plan,
    slot: int,
    start: int,
    takes: Sequence[Take],
    runs: Sequence[ShortenedRun],
    bound: Ints,
    now: int,
    new_slot: NewSlot,
    locked: Sequence[int],
) -> tuple[Ints, Ints, tuple[int, ...]] | None:
    """Let the runs end at ``start``, place the preemptor there, and move planned jobs that are in its way,
    none beyond its ``bound`` (by slot).

    Return these jobs with their former starts, and the slots that block what the runs leave. None, with the
    plan in between, if that is impossible. Raises WorkSpent.
    """
    for run in runs:
        plan.set_duration(run.slot, start - plan.start(run.slot), now)
    plan.remove(slot, now)
    plan.place_at(slot, start, takes, search_again=False)
    if runs:
        plan.set_ready(slot, start)
    blocks = block_rest(plan, slot, runs, new_slot)
    held = plan.held(np.array([slot, *(run.slot for run in runs)], np.int64))
    rows = np.unique(held.rows)
    others = plan.planned()
    entries = plan.held(others)
    others = others[np.unique(entries.owner[np.isin(entries.rows, rows)])]
    others = others[~np.isin(others, [slot, *locked])]
    others = np.ascontiguousarray(others[np.argsort(plan.starts(others), kind="stable")][::-1])
    before = plan.jobs.starts.copy()
    gone = plan.remove_overcommitted(others)
    gone = gone[np.argsort(before[gone], kind="stable")]
    if gone.shape[0] > _MOST_MOVED:
        return None
    for one in gone.tolist():
        last = min(int(bound[one]) + 1, now + HORIZON)
        if plan.place(one, now, last) < 0:
            return None
    if plan.overcommitted_rows(rows, max(now, start), plan.end(slot)).shape[0]:
        return None
    return gone, before[gone], blocks


def block_rest(plan: Plan, slot: int, runs: Sequence[ShortenedRun], new_slot: NewSlot) -> tuple[int, ...]:
    """Block the resources of the runs from the preemptor's start on, without the preemptor's part. Suspended
    runs block the amounts that they keep, and all of their resources when they go on. Return the slots of the
    blocks, one for each interval.
    """
    start, end = plan.start(slot), plan.end(slot)
    own = _sum(plan, [slot])
    ends = {run.slot: run.end + (end - start if run.kept is not None else 0) for run in runs}
    edges = sorted({start, end, *ends.values()})
    blocks = []
    for begin, until in pairwise(edges):
        here = [run for run in runs if ends[run.slot] > begin]
        held = _sum(plan, [run.slot for run in here])
        if begin < end:
            kept: dict[int, Ints] = {}
            for run in here:
                for row, amounts in (run.kept or {}).items():
                    kept[row] = kept.get(row, 0) + amounts
            for row, amounts in held.items():
                stays = kept.get(row, np.zeros_like(amounts))
                held[row] = stays + np.maximum(amounts - stays - own.get(row, 0), 0)
                if row in plan.node_names and held[row].any() and row in own and own[row][SHARE] < WHOLE:
                    held[row][SHARE] = max(held[row][SHARE], 1)  # the preemptor's share may end first
        held = {row: amounts for row, amounts in held.items() if amounts.any()}
        if held:
            blocks.append(fix_block(plan, begin, until - begin, held, new_slot))
    return tuple(blocks)


def fix_block(plan: Plan, begin: int, duration: int, held: Mapping[int, Ints], new_slot: NewSlot) -> int:
    """Hold these amounts by row for a time, without a job. Return the slot."""
    names = {row: name for name, row in plan.pools.items()}
    pools = {names[row]: int(amounts[0]) for row, amounts in held.items() if row in names}
    takes = [Take(row, 0, 1, tuple(amounts.tolist())) for row, amounts in held.items() if row not in names]
    block = new_slot(BLOCK, duration, pools)
    plan.fix(block, begin, takes)
    return block


def _sum(plan: Plan, slots: Sequence[int]) -> dict[int, Ints]:
    """Return by row what these slots hold together."""
    found: dict[int, Ints] = {}
    for _, entry in plan.held(np.array(slots, np.int64)):
        found[entry.row] = found.get(entry.row, 0) + np.array(entry.amounts, np.int64)
    return found


def is_planned_at(plan: Plan, slot: int, start: int) -> bool:
    """Return whether a slot is planned to start exactly then."""
    return slot >= 0 and plan.state(slot) == PLANNED and plan.start(slot) == start
