"""Queue of jobs for re-evaluation after a change that affects many of them, such as a limit or a queue.

``run/reevaluation.py`` takes a slice of it in each call of the engine.
"""

from collections.abc import Iterable, Sequence

from schedd.engine.facts.arrivals import ARRIVALS_PER_CALL
from schedd.engine.facts.records import Cause, JobRecord, Phase
from schedd.engine.facts.state import EngineState
from schedd.model import FOREVER
from schedd.plan.columns import Ints

WAITING_PHASES = (Phase.WAITING, Phase.BLOCKED)  # phases of jobs that are re-evaluated

_UNITS = 10_000
"""Jobs with more units in total are many, whatever their number: replanning a wide job takes milliseconds."""


def are_many(records: Sequence[JobRecord]) -> bool:
    """Return whether these jobs are too many to be replanned in one call."""
    return len(records) > ARRIVALS_PER_CALL or sum(map(count_units, records)) > _UNITS


def count_units(record: JobRecord) -> int:
    """Return the number of units that a job requests; 0 if its request is not understood."""
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
    """Queue the jobs of these slots for re-evaluation if they are many. Return whether they are."""
    found = [one for slot in slots.tolist() if (one := state.by_slot[slot]) is not None]
    many = are_many(found)
    if many:
        queue_reevaluation(state, found, event, words, cause)
    return many
