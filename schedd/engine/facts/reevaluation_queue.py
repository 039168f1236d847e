"""Jobs that are to be looked at again since something was changed that many share; ``rereading`` does that, a
slice in each call of the engine.
"""

from collections.abc import Iterable, Sequence

from schedd.engine.facts.arrivals import ARRIVALS_PER_CALL
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.model import FOREVER
from schedd.plan.columns import Ints

WAITING_PHASES = (Phase.WAITING, Phase.BLOCKED)  # phases of jobs that are looked at


_UNITS = 10_000
"""Jobs that ask for more units than these together count as many: a wide one takes some milliseconds."""


def are_many(records: Sequence[JobRecord]) -> bool:
    """Return whether these jobs are too many to be replanned in one call."""
    return len(records) > ARRIVALS_PER_CALL or sum(map(count_units, records)) > _UNITS


def count_units(record: JobRecord) -> int:
    """How many units a job asks for."""
    request = record.understood.request
    return request.units if request is not None else 0


def queue_reevaluation(
    state: EngineState, records: Iterable[JobRecord], event: str, words: str, cause: Cause = Cause.QUEUE
) -> None:
    """Queue these jobs for re-evaluation, by planned start; ``cause`` is the cause of resulting moves."""
    found = [(state.plan.start(one.slot) if one.slot >= 0 else -1, one.id) for one in records]
    found.sort(key=lambda pair: pair[0] if pair[0] >= 0 else FOREVER)
    why = (event, words, cause.value)
    for _, job_id in found:
        state.to_reevaluate[job_id] = why


def queue_if_many(
    state: EngineState, slots: Ints, event: str, words: str, cause: Cause = Cause.QUEUE
) -> bool:
    """The same of the jobs of these slots where they are many; returns whether they are."""
    found = [one for slot in slots.tolist() if (one := state.by_slot[slot]) is not None]
    many = are_many(found)
    if many:
        queue_reevaluation(state, found, event, words, cause)
    return many
