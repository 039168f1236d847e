"""Rows of a federation's bookings: cluster, state and outcome, counter-offers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from schedd.federation.api.item_answers import (
    BookingAttemptView,
    CounterOfferView,
    FederatedBookingMove,
    FederatedBookingView,
)
from schedd.federation.bookings.bookings import BookingAttempt, FederationBooking
from schedd.federation.state.federation_state import FederationState
from schedd.policy.bookings import Window, nearest, stretch

_MAX_OPTIONS: Final = 20


@dataclass(frozen=True, slots=True)
class CounterOffer:
    """A counter-offer of a cluster. ``stretch`` is its distance from the requested window, in lengths of the
    booking; it is below 0 before the window.
    """

    cluster: str
    start: int
    end: int
    stretch: float


def counter_offers(booking: FederationBooking) -> tuple[CounterOffer, ...]:
    """Return the last counter-offers of all clusters that declined, the nearest first; empty unless the
    booking is refused.
    """
    if booking.over != "refused":
        return ()
    latest = {one.cluster: one for one in booking.attempts if one.phase == "refused"}
    found = (
        CounterOffer(cluster, one.start, one.end, round(stretch(_window(booking, attempt), one.start), 4))
        for cluster, attempt in sorted(latest.items())
        for one in attempt.options
    )
    return nearest(found, _MAX_OPTIONS)


def _window(booking: FederationBooking, attempt: BookingAttempt) -> Window:
    """Return the requested window, with the booking's length at the attempt's cluster."""
    return Window(
        booking.submitted, booking.ready, booking.deadline, attempt.duration, booking.cpus, booking.name
    )


def jobs_by_booking(federation: FederationState, bookings: Iterable[str]) -> dict[str, list[str]]:
    """Return the federation's jobs by their booking, oldest first."""
    found: dict[str, list[str]] = {name: [] for name in bookings}
    for job in list(federation.jobs.by_id.values()):
        if job.booking in found:
            found[job.booking].append(job.id)
    return found


def booking_row(
    federation: FederationState, one: FederationBooking, jobs: Mapping[str, list[str]] | None = None
) -> FederatedBookingView:
    """Return the row of a booking as its owner sees it; ``jobs`` are those of all bookings, if known."""
    attempt = one.placed or one.active or next(iter(reversed(one.attempts)), None)
    shown = attempt is not None and (attempt.live or attempt.phase in ("withdrawing", "ended"))
    cluster = attempt.cluster if attempt is not None and shown else ""
    seen = federation.clusters.get(cluster)
    away = seen.away if seen is not None and not one.over else ""
    live = one.placed is not None and not one.over
    duration = attempt.duration if attempt is not None and shown else one.duration
    spare = one.deadline - max(one.ready, federation.now) - duration
    return FederatedBookingView(
        id=one.id,
        name=one.name,
        owner=one.owner,
        state=_booking_state(one),
        cluster=cluster,
        away=away,
        resources=dict(one.resources),
        cpus=one.cpus or None,
        duration=duration,
        by_speed=one.by_speed,
        ready=one.ready,
        deadline=one.deadline,
        start=one.start,
        end=one.start + duration if one.start is not None else None,
        spare=(max(0, spare) if one.phase == "flexible" else 0) if live else None,
        freezes=one.freezes if live else None,
        clusters=list(one.clusters),
        submitted=one.submitted,
        jobs=(jobs if jobs is not None else jobs_by_booking(federation, [one.id])).get(one.id, []),
        moves=[FederatedBookingMove(time=at, before=before, after=after) for at, before, after in one.moves],
        attempts=[
            BookingAttemptView(
                number=it.number,
                cluster=it.cluster,
                user=it.user,
                name=f"{federation.booking_operations.rules.name}.{one.id}.{it.number}",
                phase=it.phase,
                since=it.since,
                ready=it.ready,
                deadline=it.deadline,
                why=it.why,
                text=it.text,
            )
            for it in one.attempts
        ],
        options=[
            CounterOfferView(option=i, cluster=it.cluster, start=it.start, end=it.end, stretch=it.stretch)
            for i, it in enumerate(counter_offers(one), 1)
        ],
        cancelled=one.cancelled,
        over=one.over,
        over_at=one.over_at or None,
        text=_booking_text(one, cluster, away),
    )


def booking_page_rows(federation: FederationState) -> list[dict[str, Any]]:
    """Return open bookings by start, for the page; without names, since the page needs no token."""
    rows = [booking_row(federation, federation.bookings[name], {}) for name in list(federation.bookings.open)]
    rows = sorted((row for row in rows if not row.over), key=lambda row: (row.start is None, row.start or 0))
    return [
        {
            "id": row.id,
            "state": row.state,
            "cluster": row.cluster,
            "away": row.away,
            "cpus": row.cpus,
            "start": row.start,
            "end": row.end,
            "spare": row.spare or 0,
            "moves": sum(one.before is not None for one in row.moves),
        }
        for row in rows
    ]


def _booking_state(one: FederationBooking) -> str:
    """Return the state in one to three words."""
    if one.over:
        return one.over
    if one.cancelled:
        return "being cancelled"
    if not one.booked:
        return "being booked"
    if one.freeze_requested and one.phase == "flexible":
        return "being frozen"
    return one.phase


def _booking_text(one: FederationBooking, cluster: str, away: str) -> str:
    """Return the reason of the state."""
    if not away:
        return one.text
    if one.cancelled:
        return f"{one.text}; it will be cancelled once {cluster} answers: {away}"
    if one.booked:
        return f"{cluster} does not answer, and keeps the booking: {away}"
    return f"{cluster} does not answer: {away}"
