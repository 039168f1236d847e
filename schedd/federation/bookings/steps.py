"""What is done for a booking: from what is seen of the clusters to events, and to what is asked of them.

Pure, like the core for jobs: all that is asked of a cluster has a name and may be asked again, so what is
lost in a crash is done anew from the log.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from schedd.federation.bookings.booking import Attempt, Booking
from schedd.federation.bookings.events import (
    BookingConfirmed,
    BookingEvent,
    BookingGivenUp,
    BookingOver,
    BookingRefused,
    BookingStands,
    BookingTaken,
    BookingTried,
    Option,
)
from schedd.federation.routing.policies import Candidate, Policy

__all__ = [
    "LIVE",
    "Answer",
    "BookingRules",
    "Call",
    "Place",
    "calls",
    "name_there",
    "options_of",
    "possible",
    "seen",
    "taken",
    "tried",
]

LIVE: Final = ("flexible", "frozen", "open")
"""Phases in which a booking holds cores at its cluster."""
_TRIES: Final = 3
"""So often a cluster is tried that is not heard of."""
_How = Literal["ended", "cancelled", "lost"]
_HOW: Final[Mapping[str, _How]] = {"over": "ended", "cancelled": "cancelled"}
_LOST: Final = "lost"


@dataclass(frozen=True, slots=True)
class BookingRules:
    """How bookings are treated; times in seconds."""

    name: str = "fed"
    policy: Policy = Policy.PLAN
    expiry: int = 30
    """What is not confirmed is given up by its cluster after this."""
    patience: int = 30
    """So long a cluster that does not answer is waited for."""


@dataclass(frozen=True, slots=True)
class Call:
    """What is to be asked of a cluster. ``name`` is the booking's there."""

    cluster: str
    kind: Literal["book", "confirm", "freeze", "unbook"]
    name: str
    attempt: int
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """What is known of one cluster before it is tried. ``user``: whom the owner is there; empty: nobody.
    ``cannot``: why its server does not understand what is asked for. ``away``: why it does not answer, since
    ``since``.
    """

    user: str = ""
    cannot: str = ""
    away: str = ""
    since: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a cluster's plan says: the earliest ``start`` (None: none is known), and the cluster as policies
    of routing take it.
    """

    start: int | None
    candidate: Candidate | None = None


def name_there(rules: BookingRules, booking: Booking, attempt: Attempt) -> str:
    """Of an attempt at its cluster, used once."""
    return f"{rules.name}.{booking.id}.{attempt.number}"


# ---- what is to be asked --------------------------------------------------------------------------


def calls(booking: Booking, rules: BookingRules) -> Iterator[Call]:
    """What is to be asked of the clusters now."""
    for one in booking.attempts:
        about = (name_there(rules, booking, one), one.number)
        if one.phase == "requested":
            yield Call(one.cluster, "book", *about, body=_body(booking, one))
        elif one.phase == "booked":
            yield Call(one.cluster, "confirm", *about)
        elif one.phase == "withdrawing":
            yield Call(one.cluster, "unbook", *about)
        elif one.phase == "confirmed" and booking.to_freeze and booking.phase == "flexible":
            yield Call(one.cluster, "freeze", *about)


def _body(booking: Booking, one: Attempt) -> dict[str, Any]:
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


def tried(
    booking: Booking,
    rules: BookingRules,
    places: Mapping[str, Place],
    answers: Mapping[str, Answer],
    now: int,
) -> BookingEvent | None:
    """The next cluster for a booking that seeks one, or its refusal; None: some are waited for, or are to be
    asked first. ``places`` are those to which it may go, ``answers`` of those that were asked.

    First those whose plans have room in the window, the best first by the policy of routing; then the others:
    bookings that may still move may make way for it there, and who has no room offers something else. One
    that was not heard of in time comes after those.
    """
    open_ones = possible(booking, places, now, rules)
    if open_ones is None:
        return None
    if not open_ones:
        return BookingRefused(job=booking.id, time=now, text=_why_not(booking, places))
    if any(name not in answers for name in open_ones):
        return None
    missed = booking.missed
    fewest = min(missed[name] for name in open_ones)
    open_ones = [name for name in open_ones if missed[name] == fewest]
    within = {name: answers[name] for name in open_ones if _fits(booking, answers[name])}
    if within:
        candidates = [one.candidate for one in within.values() if one.candidate is not None]
        best = rules.policy.best(candidates, now, booking.id)
        assert best is not None, "an answer within the window has a candidate"
        cluster, why = best.cluster, rules.policy.value
    else:
        cluster = min(open_ones, key=lambda name: (_late(answers[name]), name))
        why = "its plan has no room in the window; bookings that may move may make some"
    return BookingTried(
        job=booking.id,
        time=now,
        attempt=len(booking.attempts) + 1,
        cluster=cluster,
        user=places[cluster].user,
        until=now + rules.expiry,
        expected=within[cluster].start if cluster in within else None,
        why=why,
    )


def possible(
    booking: Booking, places: Mapping[str, Place], now: int, rules: BookingRules
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


def _fits(booking: Booking, answer: Answer) -> bool:
    start = answer.start
    return start is not None and booking.now_ready <= start <= booking.now_deadline - booking.duration


def _late(answer: Answer) -> tuple[bool, int]:
    return answer.start is None, answer.start or 0


def _why_not(booking: Booking, places: Mapping[str, Place]) -> str:
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


def taken(booking: Booking, attempt: int, row: Mapping[str, Any], plan: int, now: int) -> list[BookingEvent]:
    """A cluster says that it has booked it."""
    about: dict[str, Any] = {"job": booking.id, "time": now, "attempt": attempt}
    if row["phase"] not in LIVE:
        return [BookingGivenUp(**about, why=row["text"] or "its cluster does not keep it")]
    made = BookingTaken(**about, start=row["start"], cpus=row["cpus"], plan=plan)
    return [made, _stands(about, row)]


def _stands(about: Mapping[str, Any], row: Mapping[str, Any]) -> BookingStands:
    moves = tuple((one["time"], one["before"], one["after"]) for one in row["moves"])
    return BookingStands(**about, phase=row["phase"], start=row["start"], freezes=row["freezes"], moves=moves)


def seen(
    booking: Booking, rules: BookingRules, looks: Mapping[str, Mapping[str, Any] | None], now: int
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
                found.append(BookingGivenUp(**about, why=f"{one.cluster} did not answer in time"))
        elif one.phase in ("booked", "confirmed") and one.cluster in looks:
            found += _placed_seen(booking, one, looks[one.cluster], about)
    return found


def _placed_seen(
    booking: Booking, one: Attempt, row: Mapping[str, Any] | None, about: Mapping[str, Any]
) -> list[BookingEvent]:
    if row is not None and row["phase"] in LIVE:
        found: list[BookingEvent] = []
        if one.phase == "booked" and row["confirmed"]:
            found.append(BookingConfirmed(**about))
        stands = _stands(about, row)
        known = (booking.phase, booking.start, booking.freezes, booking.moves)
        if (stands.phase, stands.start, stands.freezes, stands.moves) != known:
            found.append(stands)
        return found
    if one.phase == "booked":  # nobody was told of it yet: another place may be found
        why = row["text"] if row is not None else ""
        return [BookingGivenUp(**about, why=why or f"{one.cluster} does not keep it")]
    if row is None:
        return [BookingOver(**about, how="lost", text=f"{one.cluster} does not know it any more")]
    how = _HOW.get(row["phase"], _LOST)
    text = f"{one.cluster}: {row['text']}" if row["text"] else ""
    return [BookingOver(**about, how=how, text=text)]


def options_of(rows: Sequence[Mapping[str, Any]]) -> tuple[Option, ...]:
    """What a cluster that declined offers instead."""
    return tuple(Option(one["start"], one["end"]) for one in rows)
