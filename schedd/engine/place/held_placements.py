"""Places kept for jobs on hold: a federation moves a job only to where it has one.

A job that was handed over with ``keep_until`` is planned although it is on hold, as long as that lasts and
the hold is ours alone; it is promised nothing, and not started before it is released.
"""

from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState

__all__ = ["expired_placements", "has_held_placement"]

_ON_HOLD = ("held", "releasing")


def has_held_placement(state: EngineState, record: JobRecord) -> bool:
    """Whether a place is kept for the job though it is on hold."""
    name = state.transfer_by_job.get(record.id)
    transfer = state.transfers.get(name) if name is not None else None
    return (
        transfer is not None
        and transfer.keep_until > state.now
        and transfer.phase in _ON_HOLD
        and record.facts.holds == "o"
    )


def expired_placements(state: EngineState) -> list[JobRecord]:
    """Jobs on hold that are planned though their places are kept no longer."""
    found = []
    for name, until in list(state.kept_places.items()):
        if until <= state.now:
            del state.kept_places[name]
            record = state.records.get(name)
            if record is not None and record.facts.state == "H" and record.slot >= 0:
                found.append(record)
    return found
