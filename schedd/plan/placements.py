"""Placements of jobs as values, and reversible attempts on a plan."""

from dataclasses import dataclass
from types import TracebackType
from typing import Self

from schedd.plan.kernels.layout import DUR, FIXED, POOL, POOLS, SEEN, USABLE, Ints
from schedd.plan.kernels.place import misplaced
from schedd.plan.kernels.rows import floor
from schedd.plan.plan import Plan
from schedd.plan.records import Take


@dataclass(frozen=True, slots=True)
class Allocation:
    """Placement of a job: its start (seconds since the epoch), and its takes of nodes."""

    slot: int
    start: int
    takes: tuple[Take, ...]


def current_allocation(plan: Plan, slot: int) -> Allocation:
    """Return the present placement of ``slot``."""
    return Allocation(slot, plan.start(slot), plan.takes(slot))


def free_at(plan: Plan, place: Allocation) -> bool:
    """Return whether an unplaced job would find the nodes of ``place``, and its pools, free and usable."""
    tb = plan.tables
    first = int(tb.jobs[POOL, place.slot])
    wanted: dict[int, list[int]] = {}
    for take in place.takes:
        if not tb.rows[take.row, USABLE]:
            return False
        amounts = wanted.get(take.row)
        more = take.amounts if amounts is None else map(sum, zip(amounts, take.amounts, strict=True))
        wanted[take.row] = list(more)
    for row, amount in tb.pools[first : first + int(tb.jobs[POOLS, place.slot])].tolist():
        wanted[row] = [wanted[row][0] + amount if row in wanted else amount]
    end = place.start + int(tb.jobs[DUR, place.slot])
    return all(
        floor(tb, row, column, place.start, end) >= amount
        for row, amounts in wanted.items()
        for column, amount in enumerate(amounts)
        if amount > 0
    )


def is_misplaced(plan: Plan, slots: Ints) -> bool:
    """Return whether one of these planned jobs holds a node that its request may not use."""
    return bool(misplaced(plan.tables, slots).shape[0])


@dataclass(frozen=True, slots=True)
class _OriginalAllocation:
    """Placement of a job before an attempt first touched it."""

    place: Allocation
    fixed: bool
    seen: int


class PlanAttempt:
    """A reversible change of placed jobs, by the plan's one thread: ``commit`` it, else everything is
    restored.

    It works in place, since a fork costs as much as the whole plan, and this only as much as the touched
    jobs. Jobs must be removed through it. At the end of the ``with`` block, also after an error, each is
    exactly where it was unless the attempt was committed. Intervals freed meanwhile stay in the log of the
    repair, which finds nothing there.
    """

    def __init__(self, plan: Plan, now: int) -> None:
        self._plan, self._now = plan, now
        self._before: dict[int, _OriginalAllocation] = {}
        self._opened: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.revert()

    def remove(self, slot: int) -> None:
        """Remove a job; the freed interval is logged for repair."""
        self._note(slot)
        self._plan.remove(slot, self._now)

    def place_at(self, place: Allocation) -> None:
        """Place an unplaced job exactly there, whether it is free or not."""
        self._plan.place_at(place.slot, place.start, place.takes, search_again=False)

    def restore(self, slot: int) -> None:
        """Restore a removed job's placement, whether it is free or not."""
        before = self._before[slot]
        if before.fixed:
            self._plan.fix(slot, before.place.start, before.place.takes)
        else:
            self.place_at(before.place)
        self._plan.tables.jobs[SEEN, slot] = before.seen

    def open_node(self, row: int) -> None:
        """Make an unusable node usable."""
        self._opened.add(row)
        self._plan.tables.rows[row, USABLE] = 1

    def close_node(self, row: int) -> None:
        """Make it unusable again."""
        self._opened.discard(row)
        self._plan.tables.rows[row, USABLE] = 0

    def commit(self) -> None:
        """Keep the present state."""
        self._before.clear()
        self._opened.clear()

    def revert(self) -> None:
        """Restore all touched jobs and opened nodes."""
        for row in list(self._opened):
            self.close_node(row)
        for slot in self._before:
            self._plan.remove(slot, self._now)
        for slot in self._before:
            self.restore(slot)
        self._before.clear()

    def _note(self, slot: int) -> None:
        if slot not in self._before:
            plan = self._plan
            seen = int(plan.tables.jobs[SEEN, slot])
            self._before[slot] = _OriginalAllocation(
                current_allocation(plan, slot), plan.state(slot) == FIXED, seen
            )
