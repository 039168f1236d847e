"""Reservations that users make at the server: the plan is asked for nodes, the server is told which."""

import logging
from collections.abc import Callable
from typing import Final

from server_adapter.batch.errors import ServerRefusedError
from server_adapter.bridge.daemon_client import DaemonClient, DaemonRefusedError
from server_adapter.bridge.server import Server
from server_adapter.bridge.state import State, Wish

_log = logging.getLogger(__name__)
_LATE: Final = 30  # seconds by which a reservation may have begun when it is first seen


class Reservations:
    """Confirms one wish at a time, so that the next one finds the first one's nodes taken in the plan."""

    def __init__(self, server: Server, client: DaemonClient, clock: Callable[[], float]) -> None:
        self._server = server
        self._client = client
        self._clock = clock
        self._settled: set[str] = set()

    def open(self, state: State) -> bool:
        """Whether there is a wish that was not dealt with."""
        return not state.wishes.keys() <= self._settled

    async def settle(self, state: State) -> bool:
        """Confirms or refuses the first wish that was not dealt with; whether there was one.

        Raises `DaemonAwayError` and what the server's side raises, and is then tried again.
        """
        self._settled &= state.wishes.keys()
        for name, wish in state.wishes.items():
            if name not in self._settled:
                await self._settle(name, wish)
                self._settled.add(name)
                return True
        return False

    async def _settle(self, name: str, wish: Wish) -> None:
        now = int(self._clock())
        if wish.problem:
            _log.warning("reservation %s stays unconfirmed: %s", name, wish.problem)
            return
        begin = max(wish.start, now)
        try:
            answer = await self._client.what_if(wish.resources, not_before=begin)
            why = answer.why
        except DaemonRefusedError as error:
            answer, why = None, str(error)
        fits = answer is not None and answer.start is not None and answer.start <= begin + _LATE
        shares = answer.shares if fits and answer is not None else ()
        if not fits and answer is not None and answer.start is not None:
            why = f"its nodes are planned for others until {answer.start}"
        try:
            await self._server.confirm(name, wish, shares)
        except (ServerRefusedError, ValueError) as error:
            _log.warning("reservation %s was not settled: %s", name, error)
            return
        if fits:
            _log.info("reservation %s has %s", name, "+".join(share.node for share in shares))
        else:
            _log.warning("reservation %s was refused: %s", name, why)
