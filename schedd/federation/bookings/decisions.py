"""What is done for a booking: from what is seen of the clusters to events, and to what is asked of them.

Pure, like the core for jobs: all that is asked of a cluster has a name and may be asked again, so what is
lost in a crash is done anew from the log.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from schedd.federation.bookings.bookings import BookingAttempt, FederationBooking
from schedd.federation.bookings.events import (
    AlternativeStart,
    BookingAttempted,
    BookingConfirmed,
    BookingEnded,
    BookingEvent,
    BookingPlaced,
    BookingRefused,
    BookingUpdated,
    BookingWithdrawalRequested,
)
from schedd.federation.routing.policies import RoutingCandidate, RoutingPolicy

__all__ = [
    "LIVE",
    "BookingCall",
    "ClusterReadiness",
    "FederationBookingRules",
    "WindowOffer",
    "booking_name",
    "eligible_clusters",
    "next_attempt",
    "observe_booking",
    "parse_alternatives",
    "pending_calls",
    "placement_events",
]

LIVE: Final = ("flexible", "frozen", "open")
"""Phases in which a booking holds cores at its cluster."""
_TRIES: Final = 3
"""So often a cluster is tried that is not heard of."""
_EndReason = Literal["ended", "cancelled", "lost"]
_END_REASONS: Final[Mapping[str, _EndReason]] = {"over": "ended", "cancelled": "cancelled"}
_LOST: Final = "lost"


@dataclass(frozen=True, slots=True)
class FederationBookingRules:
    """How bookings are treated; times in seconds."""

    name: str = "fed"
    policy: RoutingPolicy = RoutingPolicy.PLAN
    expiry: int = 30
    """What is not confirmed is given up by its cluster after this."""
    patience: int = 30
    """So long a cluster that does not answer is waited for."""


@dataclass(frozen=True, slots=True)
class BookingCall:
    """What is to be asked of a cluster. ``name`` is the booking's there."""

    cluster: str
    kind: Literal["book", "confirm", "freeze", "unbook"]
    name: str
    attempt: int
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ClusterReadiness:
    """What is known of one cluster before it is tried. ``user``: whom the owner is there; empty: nobody.
    ``cannot``: why its server does not understand what is asked for. ``away``: why it does not answer, since
    ``since``.
    """

    user: str = ""
    cannot: str = ""
    away: str = ""
    since: int = 0


@dataclass(frozen=True, slots=True)
class WindowOffer:
    """What a cluster's plan says: the earliest ``start`` (None: none is known), and the cluster as policies
    of routing take it.
    """

    start: int | None
    candidate: RoutingCandidate | None = None


def booking_name(rules: FederationBookingRules, booking: FederationBooking, attempt: BookingAttempt) -> str:
    """Of an attempt at its cluster, used once."""
    return f"{rules.name}.{booking.id}.{attempt.number}"


# ---- what is to be asked --------------------------------------------------------------------------


def pending_calls(booking: FederationBooking, rules: FederationBookingRules) -> Iterator[BookingCall]:
    """What is to be asked of the clusters now."""
    for one in booking.attempts:
        about = (booking_name(rules, booking, one), one.number)
        if one.phase == "requested":
            yield BookingCall(one.cluster, "book", *about, body=_body(booking, one))
        elif one.phase == "booked":
            yield BookingCall(one.cluster, "confirm", *about)
        elif one.phase == "withdrawing":
            yield BookingCall(one.cluster, "unbook", *about)
        elif one.phase == "confirmed" and booking.freeze_requested and booking.phase == "flexible":
            yield BookingCall(one.cluster, "freeze", *about)


def _body(booking: FederationBooking, one: BookingAttempt) -> dict[str, Any]:
    resources = {name: value for name, value in booking.resources.items() if name.lower() != "walltime"}
    fixed = one.deadline - one.ready == booking.duration
    return {
        "resources": resources,
        "duration": booking.duration,
        "ready": one.ready,
        "deadline": one.deadline,
        "freeze": 0 if fixed else booking.freeze,
        "account": booking.account,
        "owner": one.user,
        "until": one.until,
    }


# ---- which cluster is next ------------------------------------------------------------------------


def next_attempt(
    booking: FederationBooking,
    rules: FederationBookingRules,
    places: Mapping[str, ClusterReadiness],
    answers: Mapping[str, WindowOffer],
    now: int,
) -> BookingEvent | None:
    """The next cluster for a booking that seeks one, or its refusal; None: some are waited for, or are to be
    asked first. ``places`` are those to which it may go, ``answers`` of those that were asked.

    First those whose plans have room in the window, the best first by the policy of routing; then the others:
    bookings that may still move may make way for it there, and who has no room offers something else. One
    that was not heard of in time comes after those.
    """
    open_ones = eligible_clusters(booking, places, now, rules)
    if open_ones is None:
        return None
    if not open_ones:
        return BookingRefused(job=booking.id, time=now, text=_refusal_text(booking, places))
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
        why = "its plan has no room in the window; bookings that may move may make some"
    return BookingAttempted(
        job=booking.id,
        time=now,
        attempt=len(booking.attempts) + 1,
        cluster=cluster,
        user=places[cluster].user,
        until=now + rules.expiry,
        expected=within[cluster].start if cluster in within else None,
        why=why,
    )


def eligible_clusters(
    booking: FederationBooking,
    places: Mapping[str, ClusterReadiness],
    now: int,
    rules: FederationBookingRules,
) -> Sequence[str] | None:
    """The clusters that may be tried; None: one that fell silent a moment ago is waited for."""
    declined, missed = booking.declined, booking.missed
    left = [
        name
        for name, one in places.items()
        if one.user and not one.cannot and name not in declined and missed[name] < _TRIES
    ]
    for name in left:
        one = places[name]
        if one.away and now - one.since < rules.patience:
            return None
    return [name for name in left if not places[name].away]


def _within_window(booking: FederationBooking, answer: WindowOffer) -> bool:
    start = answer.start
    return start is not None and booking.wanted_ready <= start <= booking.wanted_deadline - booking.duration


def _preference(answer: WindowOffer) -> tuple[bool, int]:
    return answer.start is None, answer.start or 0


def _refusal_text(booking: FederationBooking, places: Mapping[str, ClusterReadiness]) -> str:
    """Why no cluster takes it, cluster by cluster."""
    words = []
    declined = booking.declined
    for name, one in sorted(places.items()):
        if name in declined:
            words.append(f"{name}: {declined[name].text}")
        elif not one.user:
            words.append(f"{name}: {booking.owner} has no user there")
        elif one.cannot:
            words.append(f"{name}: {one.cannot}")
        elif one.away:
            words.append(f"{name} does not answer: {one.away}")
        else:
            words.append(f"{name} did not answer in time")
    return "; ".join(words) or "there is no such cluster"


# ---- what is seen ---------------------------------------------------------------------------------


def placement_events(
    booking: FederationBooking, attempt: int, row: Mapping[str, Any], plan: int, now: int
) -> list[BookingEvent]:
    """A cluster says that it has booked it."""
    about: dict[str, Any] = {"job": booking.id, "time": now, "attempt": attempt}
    if row["phase"] not in LIVE:
        return [BookingWithdrawalRequested(**about, why=row["text"] or "its cluster does not keep it")]
    made = BookingPlaced(**about, start=row["start"], cpus=row["cpus"], plan=plan)
    return [made, _update_event(about, row)]


def _update_event(about: Mapping[str, Any], row: Mapping[str, Any]) -> BookingUpdated:
    moves = tuple((one["time"], one["before"], one["after"]) for one in row["moves"])
    return BookingUpdated(
        **about, phase=row["phase"], start=row["start"], freezes=row["freezes"], moves=moves
    )


def observe_booking(
    booking: FederationBooking,
    rules: FederationBookingRules,
    looks: Mapping[str, Mapping[str, Any] | None],
    now: int,
) -> list[BookingEvent]:
    """The events that follow from what the clusters say of it, and from their silence. ``looks``: by cluster
    that answered, the booking's row there, None: it is not known there.
    """
    found: list[BookingEvent] = []
    for one in booking.attempts:
        about: dict[str, Any] = {"job": booking.id, "time": now, "attempt": one.number}
        if one.phase == "requested":
            # Later it may be given up there before it is confirmed.
            if now >= one.since + rules.expiry // 2:
                found.append(BookingWithdrawalRequested(**about, why=f"{one.cluster} did not answer in time"))
        elif one.phase in ("booked", "confirmed") and one.cluster in looks:
            found += _observe_placed(booking, one, looks[one.cluster], about)
    return found


def _observe_placed(
    booking: FederationBooking, one: BookingAttempt, row: Mapping[str, Any] | None, about: Mapping[str, Any]
) -> list[BookingEvent]:
    if row is not None and row["phase"] in LIVE:
        found: list[BookingEvent] = []
        if one.phase == "booked" and row["confirmed"]:
            found.append(BookingConfirmed(**about))
        update = _update_event(about, row)
        known = (booking.phase, booking.start, booking.freezes, booking.moves)
        if (update.phase, update.start, update.freezes, update.moves) != known:
            found.append(update)
        return found
    if one.phase == "booked":  # nobody was told of it yet: another place may be found
        why = row["text"] if row is not None else ""
        return [BookingWithdrawalRequested(**about, why=why or f"{one.cluster} does not keep it")]
    if row is None:
        return [BookingEnded(**about, how="lost", text=f"{one.cluster} does not know it any more")]
    how = _END_REASONS.get(row["phase"], _LOST)
    text = f"{one.cluster}: {row['text']}" if row["text"] else ""
    return [BookingEnded(**about, how=how, text=text)]


def parse_alternatives(rows: Sequence[Mapping[str, Any]]) -> tuple[AlternativeStart, ...]:
    """What a cluster that declined offers instead."""
    return tuple(AlternativeStart(one["start"], one["end"]) for one in rows)
