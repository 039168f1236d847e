"""Worker for bookings: queries plans, books, confirms, cancels, and polls the bookings.

One thread serves all bookings. A cluster that did not answer is retried after a backoff.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog

from schedd.client import Client, ClientError, Refused
from schedd.client.answers import BookingView
from schedd.dialect import format_walltime
from schedd.federation.bookings.bookings import FederationBooking
from schedd.federation.bookings.decisions import (
    LIVE,
    BookingCall,
    ClusterReadiness,
    WindowOffer,
    booking_name,
    eligible_clusters,
    next_attempt,
    observe_booking,
    parse_alternatives,
    pending_calls,
    placement_events,
)
from schedd.federation.elapsed_time import has_waited
from schedd.federation.events import (
    AttemptConfirmed,
    AttemptRefused,
    AttemptWithdrawn,
    FederationEvent,
    WithdrawalRequested,
)
from schedd.federation.routing.policies import RoutingCandidate
from schedd.federation.state.federation_state import FederationState
from schedd.federation.workers.cluster_worker import ClientFactory, connect_cluster
from schedd.federation.workers.item_worker import ItemWorker
from schedd.parallel_calls import call_in_parallel

_log = structlog.get_logger(__name__)
_AT_ONCE: Final = 16  # maximum parallel requests
_AGAIN_S: Final = 3.0  # minimum backoff for a cluster that did not answer
_RARER: Final = 4  # the backoff is at least this multiple of the duration of the failed request
_FOR_NOW: Final = ("not-ready", "too-much", "no-token", "unknown-cluster")
"""Temporary refusals by a cluster's schedd, unrelated to the booking."""
_GONE: Final = ("unknown-booking", "not-now")

BookingRows = Mapping[str, BookingView]  # a cluster's bookings by name


class BookingWorker(ItemWorker):
    """Worker thread for all bookings."""

    def __init__(
        self,
        federation: FederationState,
        stopping: threading.Event,
        clock: Callable[[], float] = time.time,
        connect: ClientFactory = connect_cluster,
    ) -> None:
        super().__init__("bookings", federation, federation.booking_operations, stopping, clock, connect)
        self._backoffs: dict[str, tuple[float, float]] = {}  # last failure by cluster, and seconds to wait
        self._request_started: dict[str, float] = {}  # start time of the last request by cluster
        self._looked_at = float("-inf")

    def round(self) -> None:
        """Poll the bookings, then do the pending work of each, those without a place first."""
        federation = self._federation
        bookings = [federation.bookings[name] for name in list(federation.bookings.open)]
        looks = self._poll(bookings)
        for one in sorted(bookings, key=lambda one: one.booked):
            if self._stopping.is_set():
                return
            self._guarded(one.id, partial(self._observe_and_process, one, looks))

    def _observe_and_process(self, booking: FederationBooking, looks: Mapping[str, BookingRows]) -> None:
        """Apply the clusters' answers about a booking, then do its pending work."""
        operations, clusters = self._federation.booking_operations, self._federation.settings.clusters
        live = [one for one in booking.attempts if one.live]
        rows: dict[str, BookingView | None] = {
            one.cluster: looks[one.cluster].get(booking_name(operations.rules, booking, one))
            for one in live
            if one.cluster in looks
        }
        rows |= dict.fromkeys({one.cluster for one in live} - clusters.keys())
        operations.commit(observe_booking(booking, operations.rules, rows, self._now()))
        self.process(booking.id)

    def process(self, name: str) -> None:
        """Send all pending requests of one booking. Raises StoreError."""
        federation = self._federation
        answers: dict[str, WindowOffer] = {}
        for _ in range(len(federation.settings.clusters) + 2):  # a declined attempt leads to the next one
            booking = federation.bookings.by_id.get(name)
            if booking is None:
                return
            if booking.seeks:
                event = self._next_event(booking, answers)
                if event is None:
                    return
                federation.booking_operations.commit([event])
            before = federation.bookings[name]
            for call in pending_calls(before, federation.booking_operations.rules):
                self._perform(before, call)
            if federation.bookings[name] == before:
                return

    def _client(self, cluster: str) -> Client:
        self._request_started[cluster] = self._clock()
        return self._connect(
            self._federation.settings.clusters[cluster], self._federation.cluster_tokens[cluster]
        )

    def _in_backoff(self, cluster: str) -> bool:
        return cluster in self._backoffs and not self._is_due(*self._backoffs[cluster])

    # ---- polling ----------------------------------------------------------------------------------

    def _poll(self, bookings: Sequence[FederationBooking]) -> dict[str, BookingRows]:
        """Return the bookings of each cluster with placed ones; clusters without an answer are left out."""
        if not self._is_due(self._looked_at, self._federation.settings.routing.poll):
            return {}
        self._looked_at = self._clock()
        placed = {one.placed.cluster for one in bookings if one.placed is not None}
        names = [
            name for name in placed & self._federation.settings.clusters.keys() if not self._in_backoff(name)
        ]
        found = dict(zip(names, call_in_parallel(self._rows, names, _AT_ONCE), strict=True))
        return {name: rows for name, rows in found.items() if rows is not None}

    def _rows(self, cluster: str) -> BookingRows | None:
        try:
            with self._client(cluster) as client:
                return {one.name: one for one in client.bookings()}
        except ClientError as error:
            self._handle_failure(cluster, "look", error)
            return None

    def _handle_failure(self, cluster: str, what: str, error: ClientError) -> None:
        now = self._clock()
        # Bound the share of time that a hanging cluster takes from the others.
        self._backoffs[cluster] = now, max(_AGAIN_S, _RARER * (now - self._request_started[cluster]))
        _log.info("request failed, will be repeated", cluster=cluster, what=what, why=str(error))

    # ---- next cluster -----------------------------------------------------------------------------

    def _next_event(
        self, booking: FederationBooking, answers: dict[str, WindowOffer]
    ) -> FederationEvent | None:
        """Return the next attempt or the refusal. Answers of the plans are stored in ``answers``."""
        rules, now = self._federation.booking_operations.rules, self._now()
        places = self._readiness(booking)
        names = [name for name in eligible_clusters(booking, places, now, rules) or () if name not in answers]
        found = call_in_parallel(lambda name: self._query_plan(booking, name, places[name]), names, _AT_ONCE)
        answers |= {name: one for name, one in zip(names, found, strict=True) if one is not None}
        return next_attempt(booking, rules, places, answers, now)

    def _readiness(self, booking: FederationBooking) -> dict[str, ClusterReadiness]:
        federation = self._federation
        users = federation.cluster_users(booking.owner)
        found = {}
        for name in booking.wanted_clusters or federation.settings.clusters:
            if name not in federation.settings.clusters:
                found[name] = ClusterReadiness(user="", cannot="it is no longer a cluster of the federation")
                continue
            seen_there = federation.clusters[name]
            found[name] = ClusterReadiness(
                user=users.get(name, ""),
                speed=federation.settings.clusters[name].speed,
                cannot=federation.unsupported_reason(name, booking.resources),
                away=seen_there.away,
                since=seen_there.since,
            )
        return found

    def _query_plan(
        self, booking: FederationBooking, cluster: str, place: ClusterReadiness
    ) -> WindowOffer | None:
        """Return the plan's answer, or None if the cluster must be queried again."""
        federation, now = self._federation, self._now()
        late = has_waited(booking.since, now, federation.booking_operations.rules.patience)
        if self._in_backoff(cluster) and not late:
            return None
        resources = booking.resources_at(booking.factor_at(place.speed))
        if not booking.has_alternatives:
            resources["walltime"] = format_walltime(booking.length_at(place.speed))
        try:
            with self._client(cluster) as client:
                found = client.what_if(
                    resources=resources,
                    owner=place.user,
                    not_before=max(now, booking.wanted_ready),
                    for_booking=True,
                )
        except Refused as error:
            if error.kind in _FOR_NOW and not late:
                self._handle_failure(cluster, "what-if", error)
                return None
            return WindowOffer(None)
        except ClientError as error:
            self._handle_failure(cluster, "what-if", error)
            return WindowOffer(None) if late else None
        start, end = found.planned_start, found.planned_end
        if start is None or end is None:
            return WindowOffer(None)
        seen_there, weight = federation.clusters[cluster], federation.settings.routing.price_weight
        candidate = RoutingCandidate(
            cluster=cluster,
            user=place.user,
            start=start,
            end=end,
            handicap=seen_there.handicap + int(weight * (found.cost or 0.0)),
            power=seen_there.power,
            backlog=federation.backlog(cluster),
        )
        return WindowOffer(start, candidate)

    # ---- requests ---------------------------------------------------------------------------------

    def _perform(self, booking: FederationBooking, call: BookingCall) -> None:
        """Send one request. A failed request is repeated while it is pending. Raises StoreError."""
        if call.cluster not in self._federation.settings.clusters:
            self._settle_removed_cluster(booking, call)
            return
        if self._in_backoff(call.cluster):
            return
        try:
            with self._client(call.cluster) as client:
                self._carry_out(client, booking, call)
        except Refused as error:
            self._handle_refusal(booking, call, error)
        except ClientError as error:
            self._handle_failure(call.cluster, call.kind, error)

    def _carry_out(self, client: Client, booking: FederationBooking, call: BookingCall) -> None:
        federation, now = self._federation, self._now()
        about: dict[str, Any] = {"job": booking.id, "time": now, "attempt": call.attempt}
        match call.kind:
            case "book":
                row = client.book(call.name, dict(call.body or {}))
                plan = federation.generations.get(call.cluster, 0)
                federation.booking_operations.commit(placement_events(booking, call.attempt, row, plan, now))
            case "confirm":
                row = client.do_with_booking(call.name, "confirm")
                if row.confirmed and row.phase in LIVE:
                    federation.booking_operations.commit([AttemptConfirmed(**about)])
            case "freeze":
                row = client.do_with_booking(call.name, "freeze")
                federation.booking_operations.commit(
                    observe_booking(booking, federation.booking_operations.rules, {call.cluster: row}, now)
                )
            case "unbook":
                client.cancel_booking(call.name)
                federation.booking_operations.commit([AttemptWithdrawn(**about)])

    def _handle_refusal(self, booking: FederationBooking, call: BookingCall, error: Refused) -> None:
        _log.info("refused", cluster=call.cluster, what=call.kind, name=call.name, why=error.detail)
        take = self._federation.booking_operations.commit
        about: dict[str, Any] = {"job": booking.id, "time": self._now(), "attempt": call.attempt}
        if error.kind in _FOR_NOW:
            self._handle_failure(call.cluster, call.kind, error)
        elif call.kind == "book":
            text = "; ".join(error.places) or error.detail
            take([AttemptRefused(**about, text=text, options=parse_alternatives(error.options))])
        elif call.kind == "unbook" and error.kind == "unknown-booking":
            take([AttemptWithdrawn(**about)])
        elif call.kind == "confirm" and error.kind in _GONE:
            take([WithdrawalRequested(**about, why=f"it expired at {call.cluster} before it was confirmed")])

    def _settle_removed_cluster(self, booking: FederationBooking, call: BookingCall) -> None:
        """Complete the call for a cluster that is no longer in the settings."""
        take = self._federation.booking_operations.commit
        about: dict[str, Any] = {"job": booking.id, "time": self._now(), "attempt": call.attempt}
        if call.kind == "unbook":
            take([AttemptWithdrawn(**about)])
        elif call.kind == "book":
            words = f"{call.cluster} is no longer a cluster of the federation"
            take([WithdrawalRequested(**about, why=words)])
