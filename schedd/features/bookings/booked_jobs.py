"""Jobs that name a booking, and their planning when it has room."""

from schedd.engine.facts.records import Cause, JobRecord, Phase, submission_key
from schedd.engine.facts.state import EngineState
from schedd.engine.place.placement import plan_job
from schedd.engine.place.slot_requests import refresh_request
from schedd.features.bookings.placement import find_booking
from schedd.features.bookings.state import booking_table
from schedd.model import WaitingFor
from schedd.plan.columns import PLANNED


def jobs_that_wait(state: EngineState, name: str) -> list[JobRecord]:
    """Jobs that wait for the booking, or for other jobs before they start in it."""
    waiting = [
        one
        for one in state.records.values()
        if isinstance(one.answer, WaitingFor) and one.answer.kind in ("reservation", "dependency")
    ]
    return [one for one in waiting if (its := find_booking(state, one)) is not None and its.name == name]


def plan_waiting_jobs(state: EngineState, event: str, name: str) -> None:
    """Start the possible jobs of the booking, by time of submission."""
    words = f"there is room in reservation {booking_table(state)[name].shown}"
    for record in sorted(jobs_that_wait(state, name), key=submission_key):
        refresh_request(state, record)
        state.refit(record)
        plan_job(state, record, event, Cause.RELEASED, words)


def jobs_planned_elsewhere(state: EngineState, name: str) -> list[JobRecord]:
    """Waiting jobs of a new booking that have a place, in an administrator's reservation of the same name."""
    return [
        one
        for one in state.records.values()
        if one.phase is Phase.WAITING
        and state.plan.state(one.slot) == PLANNED
        and (its := find_booking(state, one)) is not None
        and its.name == name
    ]
