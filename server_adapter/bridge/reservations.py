"""Reservations of users at the server: requests nodes from the plan, and confirms them at the server."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.daemon_client import (
    DaemonAwayError,
    DaemonClient,
    DaemonRefusedError,
    QuestionTooHardError,
)
from server_adapter.bridge.server import OccurrencePlacement, Server
from server_adapter.bridge.state import PendingReservation, ReservationOccurrence, ServerState

_log = logging.getLogger(__name__)
_NEW_RESERVATION: Final = ":new"
"""Queue of a question for a reservation without nodes. The colon tells the daemon that no queue's limits
apply: without a queue it would judge the question as a submission to the default queue.
"""
_LATE: Final = 30  # tolerated seconds between the start of a reservation and its first reading


_FIRST_WAIT_S: Final = 5
_NAMED: Final = 5
_LONGEST_WAIT_S: Final = 60
_TRIES: Final = 5
"""Attempts that may fail because of the reservation itself, before it is refused or given up."""


@dataclass(frozen=True, slots=True)
class _Postponed:
    """A reservation that could not be settled yet: it is tried again from `again_at` on."""

    pending: PendingReservation
    again_at: float
    wait: int
    failures: int  # failed attempts that were due to the reservation itself, not to an outage
    why: str


class ReservationConfirmer:
    """Settles one pending reservation at a time, so that the plan counts its nodes as taken for the
    next one.

    A reservation that cannot be settled yet is tried again after a wait, which doubles each time; the others
    go on meanwhile.
    """

    def __init__(self, server: Server, client: DaemonClient, clock: Callable[[], float]) -> None:
        self._server = server
        self._client = client
        self._clock = clock
        self._settled: dict[str, PendingReservation] = {}
        self._postponed: dict[str, _Postponed] = {}

    def has_open(self, state: ServerState) -> bool:
        """Return whether any reservation must be settled now. One that does not wait any more is forgotten,
        since it may lose its nodes later, and then waits again.
        """
        pending_now = state.pending_reservations
        self._settled = {name: one for name, one in self._settled.items() if name in pending_now}
        self._postponed = {name: one for name, one in self._postponed.items() if name in pending_now}
        return any(self._is_open(name, pending) for name, pending in state.pending_reservations.items())

    @property
    def trouble(self) -> str:
        """Why a reservation was not settled at its last try and waits; empty if none waits."""
        return "; ".join(
            f"reservation {name} waits: {one.why}" for name, one in list(self._postponed.items())[:_NAMED]
        )

    def forget(self) -> None:
        """Settle all again that wait: a restarted server may have lost the answers."""
        self._settled.clear()

    def _is_open(self, name: str, pending: PendingReservation) -> bool:
        now = self._clock()
        if self._settled.get(name) == pending or pending.since > now:
            return False
        postponed = self._postponed.get(name)
        if postponed is None or postponed.pending != pending:
            return True
        return not now < postponed.again_at <= now + _LONGEST_WAIT_S  # a clock may have been set back

    async def settle(self, state: ServerState) -> bool:
        """Confirm or refuse the first reservation that must be settled now; return whether there was one.

        It gets all its occurrences or none. If the daemon does not answer, or refuses the adapter itself, the
        reservation is postponed. Raises errors of the server's side; it is then tried again.
        """
        for name, pending in state.pending_reservations.items():
            if not self._is_open(name, pending):
                continue
            if await self._try_to_settle(name, pending):
                self._settled[name] = pending
                self._postponed.pop(name, None)
            return True
        return False

    async def _try_to_settle(self, name: str, pending: PendingReservation) -> bool:
        """Return whether the reservation is settled, or given up; otherwise it is postponed."""
        try:
            await self._settle(name, pending)
        except QuestionTooHardError as error:
            if not self._postpone(name, pending, str(error), by_itself=True):
                await self._answer(name, pending, [], f"{error} (after {_TRIES} attempts)")
                return True
        except (DaemonAwayError, DaemonRefusedError) as error:
            self._postpone(name, pending, str(error), by_itself=False)
        except ServerRefusedError as error:
            if not self._postpone(name, pending, str(error), by_itself=True):
                _log.warning("reservation %s was not settled: %s", name, error)
                return True
        else:
            return True
        return False

    def _postpone(self, name: str, pending: PendingReservation, why: str, *, by_itself: bool) -> bool:
        """Postpone the reservation; return False instead if it has failed often enough by itself."""
        before = self._postponed.get(name)
        if before is not None and before.pending != pending:  # it was altered
            before = None
        failures = (before.failures if before else 0) + by_itself
        if failures >= _TRIES:
            return False
        wait = min(_LONGEST_WAIT_S, 2 * before.wait) if before else _FIRST_WAIT_S
        self._postponed[name] = _Postponed(pending, self._clock() + wait, wait, failures, why)
        level = logging.DEBUG if before else logging.WARNING
        _log.log(level, "reservation %s waits, and is tried again in %d s: %s", name, wait, why)
        return True

    async def _settle(self, name: str, pending: PendingReservation) -> None:
        places: list[OccurrencePlacement] = []
        why = pending.problem
        for slot in pending.slots if not why else ():
            found = await self._place(slot, pending)
            if isinstance(found, str):
                places, why = [], found
                break
            places.append(found)
        await self._answer(name, pending, places, why)

    async def _answer(
        self, name: str, pending: PendingReservation, places: list[OccurrencePlacement], why: str
    ) -> None:
        """Confirm the reservation at the server, or refuse it there if it has no places."""
        try:
            await self._server.settle_reservation(name, pending, places)
        except ValueError as error:
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
            queue = pending.queue or _NEW_RESERVATION
            answer = await self._client.earliest_start(slot.resources, not_before=begin, queue=queue)
        except DaemonRefusedError as error:
            if not error.about_content:
                raise  # such as a bad token: not the user's fault
            return str(error)
        if answer.start is None:
            return answer.why
        if pending.begin is not None and answer.start > begin + (_LATE if begin == now else 0):
            return f"what it asks for is planned for others at {begin}, until {answer.start}"
        return OccurrencePlacement(answer.start if pending.begin is None else slot.start, answer.shares)
