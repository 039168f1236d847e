"""Does for bookings what is to be done: asks the clusters' plans, books, confirms, gives back, looks.

One thread for all bookings. A cluster that did not answer is asked again a little later.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import structlog

from schedd.client import Client, ClientError, Refused
from schedd.dialect import format_walltime
from schedd.federation.bookings.booking import Booking
from schedd.federation.bookings.events import (
    BookingConfirmed,
    BookingDeclined,
    BookingEvent,
    BookingGivenBack,
    BookingGivenUp,
)
from schedd.federation.bookings.steps import (
    LIVE,
    Answer,
    Call,
    Place,
    calls,
    name_there,
    options_of,
    possible,
    seen,
    taken,
    tried,
)
from schedd.federation.roof.roof import Roof
from schedd.federation.routing.policies import Candidate
from schedd.federation.threads.peers import Connect, client_of
from schedd.store import StoreError
from schedd.supervision import ThreadedWork

__all__ = ["BookingKeeper"]

_log = structlog.get_logger(__name__)
_AT_ONCE: Final = 16
"""Questions to clusters at once."""
_AGAIN_S: Final = 3.0
"""Until a cluster that did not answer is asked again."""
_RARER: Final = 4
"""After so many times as long as it took to fail, if that is later."""
_FOR_NOW: Final = ("not-ready", "too-much", "no-token", "unknown-cluster")
"""Refusals that are about the cluster's schedd, and not about the booking."""
_GONE: Final = ("unknown-booking", "not-now")

Rows = Mapping[str, Mapping[str, Any]]
"""A cluster's bookings, by name."""


class BookingKeeper(ThreadedWork):
    """The work for all bookings, in one thread."""

    def __init__(
        self,
        roof: Roof,
        stopping: threading.Event,
        clock: Callable[[], float] = time.time,
        connect: Connect = client_of,
    ) -> None:
        super().__init__(roof.supervisor, "bookings")
        self._roof = roof
        self._stopping = stopping
        self._clock = clock
        self._connect = connect
        self._silent: dict[str, float] = {}
        """By cluster that did not answer: when it is asked again."""
        self._begun: dict[str, float] = {}
        """By cluster, when it was asked last."""
        self._look_at = 0.0

    def run(self) -> None:
        """Rounds until it is to stop."""
        while not self._stopping.is_set():
            self._roof.of_bookings.bell.clear()
            self.round()
            self._roof.of_bookings.bell.wait(self._roof.settings.routing.poll)
            self._stopping.wait(0.05)

    def round(self) -> None:
        """Everything that can be done now: what is seen of bookings, then what is to be asked for each; first
        for those that somebody waits for.
        """
        roof = self._roof
        bookings = [roof.bookings[name] for name in list(roof.bookings.open)]
        looks = self._look(bookings)
        for one in sorted(bookings, key=lambda one: one.booked):
            if self._stopping.is_set():
                return
            try:
                rules, now = roof.of_bookings.rules, self._now()
                rows = {
                    attempt.cluster: looks[attempt.cluster].get(name_there(rules, one, attempt))
                    for attempt in one.attempts
                    if attempt.wanted and attempt.cluster in looks
                }
                gone = {it.cluster for it in one.attempts if it.wanted} - roof.settings.clusters.keys()
                rows |= dict.fromkeys(gone)
                roof.of_bookings.take(seen(one, rules, rows, now))
                self.tend(one.id)
            except StoreError as error:
                _log.error("a booking was not tended", booking=one.id, why=str(error))
            except Exception as error:  # the others are tended all the same
                self._failures.note(error)

    def tend(self, name: str) -> None:
        """All that is to be asked for one booking now. Raises StoreError."""
        roof = self._roof
        answers: dict[str, Answer] = {}
        for _ in range(len(roof.settings.clusters) + 2):  # one that declines leads to the next
            booking = roof.bookings.by_id.get(name)
            if booking is None:
                return
            if booking.seeks:
                event = self._next(booking, answers)
                if event is None:
                    return
                roof.of_bookings.take([event])
            before = roof.bookings[name]
            for call in calls(before, roof.of_bookings.rules):
                self._do(before, call)
            if roof.bookings[name] == before:
                return

    def _now(self) -> int:
        return int(self._clock())

    def _client(self, cluster: str) -> Client:
        self._begun[cluster] = self._clock()
        return self._connect(self._roof.settings.clusters[cluster], self._roof.peer_tokens[cluster])

    def _quiet(self, cluster: str) -> bool:
        """Whether it is not to be asked now: it did not answer a moment ago."""
        return self._clock() < self._silent.get(cluster, 0.0)

    # ---- what is seen -----------------------------------------------------------------------------

    def _look(self, bookings: Sequence[Booking]) -> dict[str, Rows]:
        """What the clusters where some are placed say of all that they have; those that do not answer are
        left out.
        """
        if self._clock() < self._look_at:
            return {}
        self._look_at = self._clock() + self._roof.settings.routing.poll
        placed = {one.placed.cluster for one in bookings if one.placed is not None}
        names = [name for name in placed & self._roof.settings.clusters.keys() if not self._quiet(name)]
        if not names:
            return {}
        with ThreadPoolExecutor(min(_AT_ONCE, len(names))) as pool:
            found = dict(zip(names, pool.map(self._rows, names), strict=True))
        return {name: rows for name, rows in found.items() if rows is not None}

    def _rows(self, cluster: str) -> Rows | None:
        try:
            with self._client(cluster) as client:
                return {one["name"]: one for one in client.bookings()}
        except ClientError as error:
            self._failed(cluster, "look", error)
            return None

    def _failed(self, cluster: str, what: str, error: ClientError) -> None:
        now = self._clock()
        # One that hangs must not hold up the others for more than a part of the time.
        self._silent[cluster] = now + max(_AGAIN_S, _RARER * (now - self._begun[cluster]))
        _log.info("not now", cluster=cluster, what=what, why=str(error))

    # ---- which cluster is next --------------------------------------------------------------------

    def _next(self, booking: Booking, answers: dict[str, Answer]) -> BookingEvent | None:
        """The next cluster to be tried, or the refusal; ``answers`` of plans that were asked are kept."""
        rules, now = self._roof.of_bookings.rules, self._now()
        places = self._places(booking)
        names = [name for name in possible(booking, places, now, rules) or () if name not in answers]
        if names:
            with ThreadPoolExecutor(min(_AT_ONCE, len(names))) as pool:
                found = pool.map(lambda name: self._ask(booking, name, places[name].user), names)
                answers |= {name: one for name, one in zip(names, found, strict=True) if one is not None}
        return tried(booking, rules, places, answers, now)

    def _places(self, booking: Booking) -> dict[str, Place]:
        roof = self._roof
        users = roof.users_of(booking.owner)
        found = {}
        for name in booking.now_clusters or roof.settings.clusters:
            if name not in roof.settings.clusters:
                found[name] = Place(user="", cannot="it is not a cluster of the federation any more")
                continue
            seen_there = roof.seen[name]
            found[name] = Place(
                user=users.get(name, ""),
                cannot=roof.cannot(name, booking.resources),
                away=seen_there.away,
                since=seen_there.since,
            )
        return found

    def _ask(self, booking: Booking, cluster: str, user: str) -> Answer | None:
        """What its plan says; None: it did not answer, and is asked again in a moment."""
        roof, now = self._roof, self._now()
        late = now - booking.since >= roof.of_bookings.rules.patience
        if self._quiet(cluster) and not late:
            return None
        resources = {name: value for name, value in booking.resources.items() if name.lower() != "walltime"}
        resources["walltime"] = format_walltime(booking.duration)
        try:
            with self._client(cluster) as client:
                found: Mapping[str, Any] = client.what_if(
                    resources=resources, owner=user, not_before=max(now, booking.now_ready)
                )
        except Refused as error:
            if error.kind in _FOR_NOW and not late:
                self._failed(cluster, "what-if", error)
                return None
            return Answer(None)
        except ClientError as error:
            self._failed(cluster, "what-if", error)
            return Answer(None) if late else None
        start = found["planned_start"]
        if start is None:
            return Answer(None)
        seen_there, weight = roof.seen[cluster], roof.settings.routing.price_weight
        candidate = Candidate(
            cluster=cluster,
            user=user,
            start=start,
            end=start + booking.duration,
            handicap=seen_there.handicap + int(weight * (found.get("cost") or 0.0)),
            cpus=seen_there.cpus,
            backlog=roof.backlog(cluster),
        )
        return Answer(start, candidate)

    # ---- what is asked for ------------------------------------------------------------------------

    def _do(self, booking: Booking, call: Call) -> None:
        """One request; what fails is asked for again, as long as it is wanted. Raises StoreError."""
        if call.cluster not in self._roof.settings.clusters:
            self._settle_lost(booking, call)
            return
        if self._quiet(call.cluster):
            return
        try:
            with self._client(call.cluster) as client:
                self._ask_for(client, booking, call)
        except Refused as error:
            self._refused(booking, call, error)
        except ClientError as error:
            self._failed(call.cluster, call.kind, error)

    def _ask_for(self, client: Client, booking: Booking, call: Call) -> None:
        roof, now = self._roof, self._now()
        about: dict[str, Any] = {"job": booking.id, "time": now, "attempt": call.attempt}
        match call.kind:
            case "book":
                row = client.book(call.name, dict(call.body or {}))
                plan = roof.generations.get(call.cluster, 0)
                roof.of_bookings.take(taken(booking, call.attempt, row, plan, now))
            case "confirm":
                row = client.do_with_booking(call.name, "confirm")
                if row["confirmed"] and row["phase"] in LIVE:
                    roof.of_bookings.take([BookingConfirmed(**about)])
            case "freeze":
                row = client.do_with_booking(call.name, "freeze")
                roof.of_bookings.take(seen(booking, roof.of_bookings.rules, {call.cluster: row}, now))
            case "unbook":
                client.cancel_booking(call.name)
                roof.of_bookings.take([BookingGivenBack(**about)])

    def _refused(self, booking: Booking, call: Call, error: Refused) -> None:
        _log.info("refused", cluster=call.cluster, what=call.kind, name=call.name, why=error.detail)
        take = self._roof.of_bookings.take
        about: dict[str, Any] = {"job": booking.id, "time": self._now(), "attempt": call.attempt}
        if error.kind in _FOR_NOW:
            self._failed(call.cluster, call.kind, error)
        elif call.kind == "book":
            text = "; ".join(error.places) or error.detail
            take([BookingDeclined(**about, text=text, options=options_of(error.options))])
        elif call.kind == "unbook" and error.kind == "unknown-booking":
            take([BookingGivenBack(**about)])
        elif call.kind == "confirm" and error.kind in _GONE:
            take([BookingGivenUp(**about, why=f"{call.cluster} gave it up before it was confirmed")])

    def _settle_lost(self, booking: Booking, call: Call) -> None:
        """The cluster is not one of the federation any more: nothing can be asked of it."""
        take = self._roof.of_bookings.take
        about: dict[str, Any] = {"job": booking.id, "time": self._now(), "attempt": call.attempt}
        if call.kind == "unbook":
            take([BookingGivenBack(**about)])
        elif call.kind == "book":
            words = f"{call.cluster} is not a cluster of the federation any more"
            take([BookingGivenUp(**about, why=words)])
