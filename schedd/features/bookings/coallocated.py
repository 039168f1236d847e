"""Components of co-allocations: jobs of a federation that start with their booking, or not at all.

The state of the other components, at other clusters, is unknown here. Two bounds therefore apply without any
message: the maximum delay of a start, and the maximum run without a confirmation. A component with arming
does not start before it is armed.
"""

from collections.abc import Iterator

from schedd.engine.facts.explanations import format_moment
from schedd.engine.facts.records import Phase
from schedd.engine.facts.state import EngineState
from schedd.features.bookings.placement import find_transfer_booking
from schedd.features.bookings.state import LIVE, Booking
from schedd.features.transfers.state import transfer_state
from schedd.model import WaitingFor


def bounds(booking: Booking) -> Iterator[int]:
    """Yield the deadlines after which the job may have to be deleted."""
    event = booking.event
    if booking.phase in LIVE and event.transfer and not booking.kept:
        if event.late:
            yield booking.start + event.late + 1
        if event.guard:
            yield booking.start + event.guard
        if event.arming and not booking.armed:
            yield _unarmed_until(booking)


def overdue(state: EngineState, booking: Booking) -> str:
    """Return the reason to delete the job of the booking now; empty: there is none."""
    event, now = booking.event, state.now
    if booking.phase not in LIVE or not event.transfer or booking.kept:
        return ""
    counts = find_transfer_booking(state, event.transfer)
    if counts is None or counts.name != booking.name:
        return ""  # another booking of the same job counts
    if event.late and now > booking.start + event.late and _waits(state, event.transfer):
        words = f"it could not be started within {event.late} s of {format_moment(booking.start)}"
        return f"{words}: {_missing_start_reason(state, event.transfer)}"
    if event.arming and not booking.armed and now >= _unarmed_until(booking):
        return "no message came in time that all its components may start"
    if event.guard and now >= booking.start + event.guard:
        return "no confirmation came in time that all its components had started"
    return ""


def _unarmed_until(booking: Booking) -> int:
    """Return the latest time for arming a component."""
    event = booking.event
    return booking.start + (event.late + 1 if event.late else max(1, event.guard // 2))


def _waits(state: EngineState, transfer: str) -> bool:
    """Return whether the job of the booking has neither started nor been dispatched."""
    transferred = transfer_state(state).transfers.get(transfer)
    if transferred is None or transferred.end or transferred.phase in ("withdrawn", "refused"):
        return False
    job = state.records.get(transferred.server_job)
    return job is None or job.phase in (Phase.BLOCKED, Phase.WAITING)


def _missing_start_reason(state: EngineState, transfer: str) -> str:
    transferred = transfer_state(state).transfers.get(transfer)
    job = state.records.get(transferred.server_job) if transferred is not None else None
    if job is None:
        return "the server does not have it"
    if isinstance(job.answer, WaitingFor):
        return f"it waits for {job.answer.what}"
    return job.back_off.refusal or "its run decision was not carried out"
