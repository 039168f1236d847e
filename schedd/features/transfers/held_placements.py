"""Placements held for jobs on hold, for a federation's transfers.

A job that was transferred with ``keep_until`` is planned although it is on hold, until that time and only
while the hold is the federation's. It gets no promise and does not start before its release.
"""

from schedd.engine.facts.records import JobRecord
from schedd.engine.facts.state import EngineState
from schedd.features.transfers.state import job_transfer, transfer_state

_ON_HOLD = ("held", "releasing")


def has_held_placement(state: EngineState, record: JobRecord) -> bool:
    """Return whether a placement is held for this job, which is on hold."""
    transfer = job_transfer(state, record)
    return (
        transfer is not None
        and transfer.keep_until > state.now
        and transfer.phase in _ON_HOLD
        and record.facts.holds == "o"
    )


def expired_placements(state: EngineState) -> list[JobRecord]:
    """Return the planned jobs on hold without a held placement."""
    found, kept_places = [], transfer_state(state).kept_places
    for name, until in list(kept_places.items()):
        if until <= state.now:
            del kept_places[name]
            record = state.records.get(name)
            if record is not None and record.facts.state == "H" and record.slot >= 0:
                found.append(record)
    return found
