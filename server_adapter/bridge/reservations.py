"""Reservations that users make at the server: the plan is asked for nodes, the server is told which."""

import logging
from collections.abc import Callable
from typing import Final

from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.daemon_client import DaemonClient, DaemonRefusedError
from server_adapter.bridge.server import Placed, Server
from server_adapter.bridge.state import Slot, State, Wish

_log = logging.getLogger(__name__)
_LATE: Final = 30  # seconds by which a reservation may have begun when it is first seen


class Reservations:
    """Settles one wish at a time, so that the next one finds the first one's nodes taken in the plan."""

    def __init__(self, server: Server, client: DaemonClient, clock: Callable[[], float]) -> None:
        self._server = server
        self._client = client
        self._clock = clock
        self._settled: dict[str, Wish] = {}

    def open(self, state: State) -> bool:
        """Whether there is a wish that is to be dealt with now."""
        return any(self._is_open(name, wish) for name, wish in state.wishes.items())

    def _is_open(self, name: str, wish: Wish) -> bool:
        return self._settled.get(name) != wish and wish.since <= self._clock()

    async def settle(self, state: State) -> bool:
        """Confirms or refuses the first wish that is to be dealt with; whether there was one.

        All times of one reservation or none. Raises `DaemonAwayError` and what the server's side raises, and
        is then tried again.
        """
        self._settled = {name: wish for name, wish in self._settled.items() if name in state.wishes}
        for name, wish in state.wishes.items():
            if self._is_open(name, wish):
                await self._settle(name, wish)
                self._settled[name] = wish
                return True
        return False

    async def _settle(self, name: str, wish: Wish) -> None:
        places: list[Placed] = []
        why = wish.problem
        for slot in wish.slots if not why else ():
            found = await self._place(slot, wish)
            if isinstance(found, str):
                places, why = [], found
                break
            places.append(found)
        try:
            await self._server.confirm(name, wish, places)
        except (ServerRefusedError, ValueError) as error:
            _log.warning("reservation %s was not settled: %s", name, error)
            return
        if places:
            nodes = "+".join(share.node for share in places[0].shares) or "the nodes it has"
            times = f" (and at {len(places) - 1} later times)" if len(places) > 1 else ""
            _log.info("reservation %s has %s%s", name, nodes, times)
        else:
            _log.warning("reservation %s was refused: %s", name, why)

    async def _place(self, slot: Slot, wish: Wish) -> Placed | str:
        """Where the plan has room for one time of a reservation; or why it has none."""
        if not slot.resources:
            return Placed(slot.start, ())
        now = int(self._clock())
        begin = max(slot.start, now)
        try:
            answer = await self._client.what_if(slot.resources, not_before=begin, queue=wish.queue)
        except DaemonRefusedError as error:
            return str(error)
        if answer.start is None:
            return answer.why
        if wish.begin is not None and answer.start > begin + (_LATE if begin == now else 0):
            return f"what it asks for is planned for others at {begin}, until {answer.start}"
        return Placed(answer.start if wish.begin is None else slot.start, answer.shares)
