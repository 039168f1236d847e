"""Decisions for one booking: from cluster states to events, and the requests to the clusters.

Everything here is pure. Every request has a unique name and is idempotent: after a crash it is derived from
the log and sent again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from schedd.client.answers import BookingView
from schedd.federation.bookings.bookings import BookingAttempt, FederationBooking
from schedd.federation.elapsed_time import has_waited
from schedd.federation.events import (
    AlternativeStart,
    AttemptBooked,
    AttemptConfirmed,
    AttemptEnded,
    BookingUpdated,
    ClusterChosen,
    FederationEvent,
    ItemEnded,
    WithdrawalRequested,
)
from schedd.federation.routing.policies import RoutingCandidate, RoutingPolicy

LIVE: Final[tuple[Literal["flexible", "frozen", "open"], ...]] = ("flexible", "frozen", "open")
"""Phases of a booking with reserved cores at its cluster."""
_TRIES: Final = 3  # maximum unanswered attempts at one cluster
_EndReason = Literal["ended", "cancelled", "lost"]
_END_REASONS: Final[Mapping[str, _EndReason]] = {"over": "ended", "cancelled": "cancelled"}
_LOST: Final = "lost"


@dataclass(frozen=True, slots=True)
class FederationBookingRules:
    """Parameters of bookings; times in seconds."""

    name: str = "fed"
    policy: RoutingPolicy = RoutingPolicy.PLAN
    expiry: int = 30  # an unconfirmed booking expires at its cluster after this time
    patience: int = 30  # time to wait for an unreachable cluster


@dataclass(frozen=True, slots=True)
class BookingCall:
    """A request to a cluster. ``name`` is the name of the booking there."""

    cluster: str
    kind: Literal["book", "confirm", "freeze", "unbook"]
    name: str
    attempt: int
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ClusterReadiness:
    """Known state of a cluster before an attempt. ``user`` is the owner's name there; empty if there is none.

    ``speed`` is the cluster's. ``cannot`` is the reason why its server cannot take the request. ``away`` is
    the reason why it is unreachable, since ``since``.
    """

    user: str = ""
    speed: float = 1.0
    cannot: str = ""
    away: str = ""
    since: int = 0


@dataclass(frozen=True, slots=True)
class WindowOffer:
    """A cluster's answer: the earliest ``start``, or None, and the candidate for the routing policy."""

    start: int | None
    candidate: RoutingCandidate | None = None


def booking_name(rules: FederationBookingRules, booking: FederationBooking, attempt: BookingAttempt) -> str:
    """Return the unique name of an attempt's booking at its cluster."""
    return f"{rules.name}.{booking.id}.{attempt.number}"


# ---- requests -------------------------------------------------------------------------------------


def pending_calls(booking: FederationBooking, rules: FederationBookingRules) -> Iterator[BookingCall]:
    """Yield the requests to send to the clusters."""
    for one in booking.attempts:
        about = (booking_name(rules, booking, one), one.number)
        if one.phase == "submitting":
            yield BookingCall(one.cluster, "book", *about, body=_body(booking, one))
        elif one.phase == "booked":
            yield BookingCall(one.cluster, "confirm", *about)
        elif one.phase == "withdrawing":
            yield BookingCall(one.cluster, "unbook", *about)
        elif one.phase == "confirmed" and booking.freeze_requested and booking.phase == "flexible":
            yield BookingCall(one.cluster, "freeze", *about)


def _body(booking: FederationBooking, one: BookingAttempt) -> dict[str, Any]:
    fixed = one.deadline - one.ready == one.duration
    return {
        "resources": booking.resources_at(one.speed),
        **({} if booking.has_alternatives else {"duration": one.duration}),
        "ready": one.ready,
        "deadline": one.deadline,
        "freeze": 0 if fixed else booking.freeze,
        "account": booking.account,
        "owner": one.user,
        "until": one.until,
    }


# ---- next cluster ---------------------------------------------------------------------------------


def next_attempt(
    booking: FederationBooking,
    rules: FederationBookingRules,
    places: Mapping[str, ClusterReadiness],
    answers: Mapping[str, WindowOffer],
    now: int,
) -> FederationEvent | None:
    """Return the next attempt of a booking, or its refusal; None if an answer is awaited or missing.

    ``places`` are the allowed clusters, ``answers`` the answers received before. Order: clusters with room in
    the window by their plans, by the routing policy; then the others, because flexible bookings there may
    move and make room, and a cluster without room offers alternatives; last, clusters that did not answer an
    earlier attempt in time.
    """
    open_ones = eligible_clusters(booking, places, now, rules)
    if open_ones is None:
        return None
    if not open_ones:
        return ItemEnded(how="refused", job=booking.id, time=now, text=_refusal_text(booking, places))
    if any(name not in answers for name in open_ones):
        return None
    missed = booking.missed
    fewest = min(missed[name] for name in open_ones)
    open_ones = [name for name in open_ones if missed[name] == fewest]
    within = {name: answers[name] for name in open_ones if _within_window(booking, answers[name])}
    if within:
        candidates = [one.candidate for one in within.values() if one.candidate is not None]
        best = rules.policy.best(candidates, now, booking.id)
        assert best is not None, "an answer within the window has a candidate"
        cluster, why = best.cluster, rules.policy.value
    else:
        cluster = min(open_ones, key=lambda name: (_preference(answers[name]), name))
        why = "its plan has no free capacity in the window, but flexible bookings may move"
    return ClusterChosen(
        job=booking.id,
        time=now,
        attempt=len(booking.attempts) + 1,
        cluster=cluster,
        user=places[cluster].user,
        until=now + rules.expiry,
        duration=booking.length_at(places[cluster].speed),
        speed=booking.factor_at(places[cluster].speed),
        start=within[cluster].start if cluster in within else None,
        end=None,
        why=why,
    )


def eligible_clusters(
    booking: FederationBooking,
    places: Mapping[str, ClusterReadiness],
    now: int,
    rules: FederationBookingRules,
) -> Sequence[str] | None:
    """Return the clusters for an attempt; None while a recently lost cluster may come back."""
    refused, missed = booking.refused, booking.missed
    left = [
        name
        for name, one in places.items()
        if one.user and not one.cannot and name not in refused and missed[name] < _TRIES
    ]
    for name in left:
        one = places[name]
        if one.away and not has_waited(one.since, now, rules.patience):
            return None
    return [name for name in left if not places[name].away]


def _within_window(booking: FederationBooking, answer: WindowOffer) -> bool:
    found = answer.candidate
    return found is not None and booking.wanted_ready <= found.start and found.end <= booking.wanted_deadline


def _preference(answer: WindowOffer) -> tuple[bool, int]:
    return answer.start is None, answer.start or 0


def _refusal_text(booking: FederationBooking, places: Mapping[str, ClusterReadiness]) -> str:
    """Return the reasons for the refusal, by cluster."""
    words = []
    refused = booking.refused
    for name, one in sorted(places.items()):
        if name in refused:
            words.append(f"{name}: {refused[name].text}")
        elif not one.user:
            words.append(f"{name}: {booking.owner} has no user there")
        elif one.cannot:
            words.append(f"{name}: {one.cannot}")
        elif one.away:
            words.append(f"{name} does not answer: {one.away}")
        else:
            words.append(f"{name} did not answer in time")
    return "; ".join(words) or "there is no such cluster"


# ---- observations ---------------------------------------------------------------------------------


def placement_events(
    booking: FederationBooking, attempt: int, row: BookingView, plan: int, now: int
) -> list[FederationEvent]:
    """Return the events of a cluster's reply to a booking request."""
    about: dict[str, Any] = {"job": booking.id, "time": now, "attempt": attempt}
    update = _update_event(about, row)
    if update is None:
        return [WithdrawalRequested(**about, why=row.text or "its cluster no longer has it")]
    booked = AttemptBooked(**about, start=update.start, cpus=row.cpus, plan=plan, duration=row.duration)
    return [booked, update]


def _update_event(about: Mapping[str, Any], row: BookingView) -> BookingUpdated | None:
    """Return the present state of a booking at its cluster, or None if the cluster does not keep it."""
    phase = next((one for one in LIVE if one == row.phase), None)
    if phase is None or row.start is None:
        return None
    moves = tuple((one.time, one.before, one.after) for one in row.moves)
    return BookingUpdated(**about, phase=phase, start=row.start, freezes=row.freezes, moves=moves)


def observe_booking(
    booking: FederationBooking,
    rules: FederationBookingRules,
    looks: Mapping[str, BookingView | None],
    now: int,
) -> list[FederationEvent]:
    """Return the events that follow from the clusters' replies and from missing replies.

    ``looks`` maps each cluster that replied to its row of the booking, or to None if it does not know the
    booking.
    """
    found: list[FederationEvent] = []
    for one in booking.attempts:
        about: dict[str, Any] = {"job": booking.id, "time": now, "attempt": one.number}
        if one.phase == "submitting":
            # Any later, the booking may expire before it is confirmed.
            if has_waited(one.since, now, rules.expiry // 2):
                found.append(WithdrawalRequested(**about, why=f"{one.cluster} did not answer in time"))
        elif one.phase in ("booked", "confirmed") and one.cluster in looks:
            found += _observe_placed(booking, one, looks[one.cluster], about)
    return found


def _observe_placed(
    booking: FederationBooking, one: BookingAttempt, row: BookingView | None, about: Mapping[str, Any]
) -> list[FederationEvent]:
    update = _update_event(about, row) if row is not None else None
    if row is not None and update is not None:
        found: list[FederationEvent] = []
        if one.phase == "booked" and row.confirmed:
            found.append(AttemptConfirmed(**about))
        known = (booking.phase, booking.start, booking.freezes, booking.moves)
        if (update.phase, update.start, update.freezes, update.moves) != known:
            found.append(update)
        return found
    if one.phase == "booked":  # not confirmed to the owner yet, so another attempt may follow
        why = row.text if row is not None else ""
        return [WithdrawalRequested(**about, why=why or f"{one.cluster} no longer has it")]
    if row is None:
        return [AttemptEnded(**about, how="lost", text=f"{one.cluster} no longer knows it")]
    how = _END_REASONS.get(row.phase, _LOST)
    text = f"{one.cluster}: {row.text}" if row.text else ""
    return [AttemptEnded(**about, how=how, text=text)]


def parse_alternatives(rows: Sequence[Mapping[str, Any]]) -> tuple[AlternativeStart, ...]:
    """Return the alternatives of a cluster that declined."""
    return tuple(AlternativeStart(one["start"], one["end"]) for one in rows)
