"""Jobs that are to be looked at again since something was changed that many share; ``rereading`` does that, a
slice in each call of the engine.
"""

from collections.abc import Iterable, Sequence

from schedd.engine.facts.arrivals import SLICE
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.model import FOREVER
from schedd.plan.columns import Ints

__all__ = ["WAITS", "are_many", "look_later", "look_later_if_many", "units_of"]

WAITS = (Phase.WAITING, Phase.BLOCKED)
"""Phases of jobs that are looked at."""


_UNITS = 10_000
"""Jobs that ask for more units than these together count as many: a wide one takes some milliseconds."""


def are_many(records: Sequence[JobRecord]) -> bool:
    """Whether these are too many to be planned anew by one call."""
    return len(records) > SLICE or sum(map(units_of, records)) > _UNITS


def units_of(record: JobRecord) -> int:
    """How many units a job asks for."""
    request = record.understood.request
    return request.units if request is not None else 0


def look_later(
    state: EngineState, records: Iterable[JobRecord], event: str, words: str, cause: Cause = Cause.QUEUE
) -> None:
    """Let these be looked at again, who is planned soonest first; ``cause`` is why those move that must."""
    found = [(state.plan.start(one.slot) if one.slot >= 0 else -1, one.id) for one in records]
    found.sort(key=lambda pair: pair[0] if pair[0] >= 0 else FOREVER)
    why = (event, words, cause.value)
    for _, job_id in found:
        state.rereading[job_id] = why


def look_later_if_many(
    state: EngineState, slots: Ints, event: str, words: str, cause: Cause = Cause.QUEUE
) -> bool:
    """The same of the jobs of these slots where they are many; returns whether they are."""
    found = [one for slot in slots.tolist() if (one := state.by_slot[slot]) is not None]
    many = are_many(found)
    if many:
        look_later(state, found, event, words, cause)
    return many
