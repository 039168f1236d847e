"""Reservations that users make at the server: the plan is asked for nodes, the server is told which."""

import logging
from collections.abc import Callable
from typing import Final

from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.daemon_client import DaemonClient, DaemonRefusedError
from server_adapter.bridge.server import OccurrencePlacement, Server
from server_adapter.bridge.state import PendingReservation, ReservationOccurrence, ServerState

_log = logging.getLogger(__name__)
_LATE: Final = 30  # seconds by which a reservation may have begun when it is first seen


class ReservationConfirmer:
    """Settles one wish at a time, so that the next one finds the first one's nodes taken in the plan."""

    def __init__(self, server: Server, client: DaemonClient, clock: Callable[[], float]) -> None:
        self._server = server
        self._client = client
        self._clock = clock
        self._settled: dict[str, PendingReservation] = {}

    def has_open(self, state: ServerState) -> bool:
        """Whether there is a wish that is to be dealt with now."""
        return any(self._is_open(name, pending) for name, pending in state.pending_reservations.items())

    def _is_open(self, name: str, pending: PendingReservation) -> bool:
        return self._settled.get(name) != pending and pending.since <= self._clock()

    async def settle(self, state: ServerState) -> bool:
        """Confirms or refuses the first wish that is to be dealt with; whether there was one.

        All times of one reservation or none. Raises `DaemonAwayError` and what the server's side raises, and
        is then tried again.
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
        """Where the plan has room for one time of a reservation; or why it has none."""
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
