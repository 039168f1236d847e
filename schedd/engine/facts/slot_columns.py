"""Columns by slot: facts about planned jobs that change often or are computed with as arrays."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, cast

import numpy as np

from schedd.engine.facts.encoding import COLUMN
from schedd.model import FOREVER
from schedd.plan.columns import Ints
from schedd.plan.schema import declared


def _column(initial: int) -> Any:
    """Declare a column; ``initial`` is the value of a slot that was just given to a job."""
    return declared(COLUMN, make=lambda: np.zeros(0, np.int64), begins=initial)


_INITIAL_VALUES: Final[dict[type[Any], tuple[tuple[str, int], ...]]] = {}


def _initial_values(columns: "EngineColumns") -> tuple[tuple[str, int], ...]:
    """Return the columns by name with their initial values; cached per class."""
    kind = type(columns)
    found = _INITIAL_VALUES.get(kind)
    if found is None:
        found = tuple((one.name, one.metadata["begins"]) for one in fields(kind) if "begins" in one.metadata)
        _INITIAL_VALUES[kind] = found
    return found


_RESETS: Final[dict[type[Any], Callable[["EngineColumns", int], None]]] = {}


def _reset_function(kind: type[Any]) -> Callable[["EngineColumns", int], None]:
    """Return a function that sets the initial values of a slot, written for the columns: it takes half of the
    time of a loop over them.
    """
    found = _RESETS.get(kind)
    if found is not None:
        return found
    begins = [(one.name, one.metadata["begins"]) for one in fields(kind) if "begins" in one.metadata]
    names: dict[str, Any] = {}
    lines = ["def reset(columns, slot):", *(f" columns.{name}[slot] = {initial}" for name, initial in begins)]
    exec("\n".join(lines), names)
    found = _RESETS[kind] = cast("Callable[[EngineColumns, int], None]", names["reset"])
    return found


@dataclass(slots=True, kw_only=True)
class EngineColumns:
    """One value per slot of the plan in each column."""

    promise: Ints = _column(FOREVER)
    bound: Ints = _column(FOREVER)
    """Latest start that the plan may give of its own accord, before the promise: see ``promises``."""
    published_start: Ints = _column(-1)  # the start published last; -1: none
    published_at: Ints = _column(0)  # when this start was published; later texts with it do not count
    written_at: Ints = _column(0)  # when the job's attributes were written last, with any start
    update_due: Ints = _column(0)
    changed: Ints = _column(0)
    last_move: Ints = _column(-1)  # the number of the change set that last moved the slot's job; -1: none did
    first_change: Ints = _column(0)
    """Number of the next change set when the job got the slot: older ones are about other jobs."""
    expected: Ints = _column(-1)  # published P50 of the expected start; -1: none
    expected_by: Ints = _column(-1)  # published P90
    rank: Ints = _column(0)  # the total of the job's priority when it was last worked out
    waits_since: Ints = _column(0)  # since when the slot's job waits: since it is eligible, or was submitted
    due_by: Ints = _column(FOREVER)  # when it should have ended; FOREVER without a deadline
    bag_end: Ints = _column(0)
    """For a job of an array that belongs to a bag: the reported end of the bag; 0: unknown."""
    array_hash: Ints = _column(0)
    """A number for the array of the slot's job, the same wherever it is made; 0: it is of none."""
    owner_number: Ints = _column(-1)

    def extend_columns(self, size: int) -> None:
        """Make the columns as long as the plan has slots."""
        for name, initial in _initial_values(self):
            column = getattr(self, name)
            setattr(self, name, np.append(column, np.full(size - column.shape[0], initial)))

    def reset_columns(self, slot: int, generation: int, change: int) -> None:
        """Set the columns of a slot that is vacant now to their initial values."""
        _reset_function(type(self))(self, slot)
        self.note_new_slot(slot, generation, change)

    def note_new_slot(self, slot: int, generation: int, change: int) -> None:
        """Note the present generation and change set for a slot that a job gets or leaves. Its other columns
        have their initial values then.
        """
        self.changed[slot] = generation
        self.first_change[slot] = change

    def has_initial_values(self, slots: Ints) -> bool:
        """Return whether these slots, which are vacant, are as new ones."""
        return all(
            (getattr(self, name)[slots] == initial).all()
            for name, initial in _initial_values(self)
            if name not in ("changed", "first_change")
        )
