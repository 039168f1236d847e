"""Places of planned jobs: kept as values, compared, and given back."""

from dataclasses import dataclass

from schedd.plan.kernels.layout import (
    DUR,
    POOL,
    POOLS,
    USABLE,
    Ints,
)
from schedd.plan.kernels.place import misplaced
from schedd.plan.kernels.rows import floor
from schedd.plan.plan import Plan, Take

__all__ = ["Place", "free_at", "is_misplaced", "place_of", "put_back"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a planned job is: its start (seconds since the epoch), and what it holds of nodes."""

    slot: int
    start: int
    takes: tuple[Take, ...]


def place_of(plan: Plan, slot: int) -> Place:
    """Where ``slot`` is."""
    return Place(slot, plan.start(slot), plan.takes(slot))


def free_at(plan: Plan, place: Place) -> bool:
    """Whether an unplaced job would find all that ``place`` holds free and usable there, its pools too."""
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
    """Whether one of these planned jobs holds a node that its request may not use."""
    return bool(misplaced(plan.tables, slots).shape[0])


def put_back(plan: Plan, place: Place) -> None:
    """Let an unplaced job be planned at exactly this place, whether there is room or not."""
    plan.put(place.slot, place.start, place.takes, anew=False)
