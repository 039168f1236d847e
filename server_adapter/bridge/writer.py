"""Writes plans on jobs: what the server knows and lets us set, found out by asking."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from schedd.wire import JobStarted, Tell
from server_adapter.bridge.commands import (
    Offers,
    is_ours,
    modify_request,
    started_comment,
    tell_request,
    unset,
)
from server_adapter.bridge.link import ServerLink
from server_adapter.bridge.rates import Rate
from server_adapter.bridge.state import State
from server_adapter.bridge.tells import Tells, Write
from server_adapter.dis import Attribute
from server_adapter.torque.connection import Connection
from server_adapter.torque.errors import ServerCode, ServerRefusedError
from server_adapter.torque.requests import ManageRequest

_log = logging.getLogger(__name__)

_UNKNOWN = frozenset({ServerCode.NOATTR, ServerCode.UNKRESC})
_OVERTAKEN = frozenset({ServerCode.UNKJOBID, ServerCode.BADSTATE, ServerCode.MODATRRUN})
_NO_RIGHT = frozenset({ServerCode.ATTRRO, ServerCode.PERM})


class Writer:
    """Keeps what stands on jobs in step with the plan, within a rate, and takes it away again."""

    def __init__(
        self, link: ServerLink, offers: Offers, *, threshold: int = 60, per_second: float = 20.0
    ) -> None:
        self._link = link
        self._offers = offers
        self._planned_known: bool | None = None if offers.planned else False
        self._tells = Tells(threshold)
        self._started: deque[tuple[str, str]] = deque()
        self._rate = Rate(per_second, burst=max(1, int(per_second)))
        self._awake = asyncio.Event()
        self.written = 0

    @property
    def offers(self) -> Offers:
        """What is written now."""
        return self._offers

    def want(self, tell: Tell) -> None:
        """Takes a decision to tell."""
        self._tells.want(tell)
        self._awake.set()

    async def see(self, state: State, started: list[JobStarted]) -> None:
        """Takes a new reading, and the starts since the last one: our comments on those are replaced."""
        for event in started:
            writing = state.writings.get(event.job_id)
            if writing is not None and is_ours(writing.comment) and self._offers.comment:
                planned = self._tells.planned_start(event.job_id)
                self._started.append((event.job_id, started_comment(event.time, event.shares, planned)))
        for _ in self._tells.learn(state):
            await asyncio.sleep(0)
        self._awake.set()

    async def work(self, state: Callable[[], State | None]) -> None:
        """Writes for ever. `state` gives the newest reading. Raises what the connection raises."""
        while True:
            self._awake.clear()
            current = state()
            while current is not None and await self.step(current):
                current = state()
            await self._awake.wait()

    async def step(self, state: State) -> bool:
        """One write, if there is anything to write; tells whether there was."""
        if self._started:
            await self._pause()
            job, text = self._started[0]
            await self._send(modify_request(job, Attribute("comment", text)))
            self._started.popleft()
            return True
        write = self._tells.next(state)
        if write is None:
            return False
        try:
            await self._pause()
            await self._write(write)
        except BaseException:
            self._tells.want(write.tell)
            raise
        return True

    async def clean(self, state: State) -> int:
        """Takes all our writings off all jobs; returns from how many."""
        cleaned = 0
        for job, writing in state.writings.items():
            gone = [unset("comment")] if is_ours(writing.comment) else []
            if writing.start_time is not None and self._offers.start_time:
                gone.append(unset("start_time"))
            if (writing.planned_start is not None or writing.planned_nodes) and self._offers.planned:
                gone += [unset("planned_start"), unset("planned_nodes")]
            if gone:
                await self._send(modify_request(job, *gone))
                cleaned += 1
        return cleaned

    async def _write(self, write: Write) -> None:
        async with self._link.talk() as connection:
            if self._planned_known is None and write.tell.planned_start is not None:
                await self._ask_for_planned(connection, write.tell)
        offers = replace(self._offers, planned=self._planned_known is True)
        request = tell_request(write.tell, offers, comment_free=write.comment_free)
        if request is None or await self._send(request):
            self._tells.wrote(write.tell)
        else:
            self._tells.want(write.tell)

    async def _ask_for_planned(self, connection: Connection, tell: Tell) -> None:
        """Whether the server knows planned_start and planned_nodes shows when they are written."""
        request = tell_request(tell, Offers(comment=False, planned=True))
        assert request is not None
        try:
            await connection.request(request)
        except ServerRefusedError as error:
            if error.code in _UNKNOWN | _NO_RIGHT:
                self._planned_known = False
                _log.info("planned_start and planned_nodes are not written: %s", error)
        else:
            self._planned_known = True

    async def _send(self, request: ManageRequest) -> bool:
        """False when the request is worth another try, with fewer attributes."""
        try:
            async with self._link.talk() as connection:
                await connection.request(request)
                self.written += 1
        except ServerRefusedError as error:
            if error.code not in _NO_RIGHT:
                # Mostly a job that is gone or has just started.
                _log.log(
                    logging.DEBUG if error.code in _OVERTAKEN else logging.WARNING,
                    "nothing was written on %s: %s",
                    request.name,
                    error,
                )
                return True
            names = {attribute.name for attribute in request.attributes}
            if "start_time" in names:
                self._offers = replace(self._offers, start_time=False)
                _log.warning("start_time is not written: it takes a privileged port (%s)", error)
                return False
            self._offers = replace(self._offers, comment=False)
            _log.error("nothing is written on jobs: it takes a manager's rights (%s)", error)
        return True

    async def _pause(self) -> None:
        while (wait := self._rate.wait(time.monotonic())) > 0:
            await asyncio.sleep(wait)
        self._rate.take(time.monotonic())
