"""Reservations of users at the server: requests nodes from the plan, and confirms them at the server."""

import logging
from collections.abc import Callable
from typing import Final

from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.daemon_client import DaemonClient, DaemonRefusedError
from server_adapter.bridge.server import OccurrencePlacement, Server
from server_adapter.bridge.state import PendingReservation, ReservationOccurrence, ServerState

_log = logging.getLogger(__name__)
_LATE: Final = 30  # tolerated seconds between the start of a reservation and its first reading


class ReservationConfirmer:
    """Settles one pending reservation at a time, so that the plan counts its nodes as taken for the
    next one.
    """

    def __init__(self, server: Server, client: DaemonClient, clock: Callable[[], float]) -> None:
        self._server = server
        self._client = client
        self._clock = clock
        self._settled: dict[str, PendingReservation] = {}

    def has_open(self, state: ServerState) -> bool:
        """Return whether any reservation must be settled now."""
        return any(self._is_open(name, pending) for name, pending in state.pending_reservations.items())

    def _is_open(self, name: str, pending: PendingReservation) -> bool:
        return self._settled.get(name) != pending and pending.since <= self._clock()

    async def settle(self, state: ServerState) -> bool:
        """Confirm or refuse the first reservation that must be settled now; return whether there was one.

        It gets all its occurrences or none. Raises `DaemonAwayError` and errors of the server's side; it is
        then tried again.
        """
        self._settled = {
            name: pending for name, pending in self._settled.items() if name in state.pending_reservations
        }
        for name, pending in state.pending_reservations.items():
            if self._is_open(name, pending):
                await self._settle(name, pending)
                self._settled[name] = pending
                return True
        return False

    async def _settle(self, name: str, pending: PendingReservation) -> None:
        places: list[OccurrencePlacement] = []
        why = pending.problem
        for slot in pending.slots if not why else ():
            found = await self._place(slot, pending)
            if isinstance(found, str):
                places, why = [], found
                break
            places.append(found)
        try:
            await self._server.settle_reservation(name, pending, places)
        except (ServerRefusedError, ValueError) as error:
            _log.warning("reservation %s was not settled: %s", name, error)
            return
        if places:
            nodes = "+".join(share.node for share in places[0].shares) or "the nodes it has"
            times = f" (and at {len(places) - 1} later times)" if len(places) > 1 else ""
            _log.info("reservation %s has %s%s", name, nodes, times)
        else:
            _log.warning("reservation %s was refused: %s", name, why)

    async def _place(
        self, slot: ReservationOccurrence, pending: PendingReservation
    ) -> OccurrencePlacement | str:
        """Return the placement of one occurrence in the plan, or the reason against it."""
        if not slot.resources:
            return OccurrencePlacement(slot.start, ())
        now = int(self._clock())
        begin = max(slot.start, now)
        try:
            answer = await self._client.earliest_start(slot.resources, not_before=begin, queue=pending.queue)
        except DaemonRefusedError as error:
            return str(error)
        if answer.start is None:
            return answer.why
        if pending.begin is not None and answer.start > begin + (_LATE if begin == now else 0):
            return f"what it asks for is planned for others at {begin}, until {answer.start}"
        return OccurrencePlacement(answer.start if pending.begin is None else slot.start, answer.shares)
