"""Registration as scheduler: kept across restarts of the server, and given up at the end."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from server_adapter.batch.errors import (
    BatchError,
    ProtocolError,
    RightsError,
    ServerRefusedError,
    ServerUnreachableError,
    TakenError,
)
from server_adapter.bridge.delivery import Backoff
from server_adapter.bridge.server import ReadScope
from server_adapter.openpbs.codes import OpenPBSCommand, OpenPBSErrorCode
from server_adapter.openpbs.connection import OpenPBSConnection
from server_adapter.openpbs.registration import CycleCommand, Registration, register

_log = logging.getLogger(__name__)

_REMINDED: Final = 60.0  # seconds between log entries about the same problem
_LASTING_S: Final = 15.0  # seconds until a lost registration is reported; a restart of the server is shorter
_ABOUT_JOBS: Final = frozenset({OpenPBSCommand.NEW, OpenPBSCommand.TERM})
_TROUBLE: Final = (ServerUnreachableError, ProtocolError, RightsError, ServerRefusedError, TakenError)


class SchedulerRegistration:
    """Registration as the scheduler `name`, over connections from `connect`, renewed after each loss.

    `qrun` returns the answer to an administrator who leaves the vnodes of a `qrun` to the scheduler.
    """

    def __init__(
        self, name: str, connect: Callable[[], Awaitable[OpenPBSConnection]], qrun: Callable[[str], str]
    ) -> None:
        self._name = name
        self._connect = connect
        self._qrun = qrun
        self._turn = asyncio.Lock()
        self._registration: Registration | None = None
        self._lost = "it was not taken yet"
        self._said = float("-inf")
        self._lost_at: float | None = None
        self._request_reading: Callable[[ReadScope], None] = lambda _: None

    def barred(self) -> str:
        """Return the reason against any start: no registration. Empty if registered."""
        if self._registration is not None and self._registration.usable:
            return ""
        return f"the adapter is not registered as scheduler {self._name!r}: {self._lost}"

    @property
    def trouble(self) -> str:
        """Why it is not registered, once that has lasted; empty if it is, or for a restart of the server."""
        barred = self.barred()
        if not barred:
            self._lost_at = None
            return ""
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
        return barred if now - self._lost_at >= _LASTING_S else ""

    @asynccontextmanager
    async def borrow(self) -> AsyncIterator[OpenPBSConnection]:
        """Lend the registered connection. Raises `ServerUnreachableError` without one."""
        async with self._turn:
            registration = self._registration
            if registration is None or not registration.usable:
                if registration is not None:
                    registration.end_if_broken()
                raise ServerUnreachableError(self.barred())
            try:
                yield registration.primary
            finally:
                registration.end_if_broken()

    async def register(self, request_reading: Callable[[ReadScope], None]) -> None:
        """Register. Raises the errors of opening connections and of `register`."""
        self._request_reading = request_reading
        await self._register()

    async def serve(self) -> None:
        """Answer commands forever; register again with backoff after a loss."""
        waits = Backoff(first=0.25, longest=5.0)  # a restarted server must be noticed quickly
        while True:
            try:
                if self._registration is None:
                    await self._register()
                    self._request_reading(ReadScope.ALL)  # a scheduler that registers later gets no FIRST
                waits.reset()
                await self._attend()
            except _TROUBLE as error:
                await self._lose(error)
                await waits.sleep()

    async def close(self) -> None:
        """Gives the place back."""
        registration, self._registration = self._registration, None
        if registration is not None:
            await registration.close()

    async def _register(self) -> None:
        primary = await self._connect()
        try:
            secondary = await self._connect()
        except BaseException:
            await primary.close()
            raise
        try:
            self._registration = await register(primary, secondary, self._name)
        except BaseException:
            await secondary.close()
            await primary.close()
            raise
        self._lost_at = None
        _log.info("registered as scheduler %r", self._name)

    async def _attend(self) -> None:
        assert self._registration is not None
        while True:
            command = await self._registration.command()
            _log.debug("command %s %s", command.name, command.job)
            if command.code == OpenPBSCommand.QUIT:
                _log.warning("the server told its scheduler to end; the place is kept, nothing is started")
            # The server stores only its last command, so an arrival may be hidden by an end. The cycle ends
            # at once, so that the next command can be sent.
            self._request_reading(ReadScope.JOBS if command.code in _ABOUT_JOBS else ReadScope.ALL)
            if command.code == OpenPBSCommand.RUN_JOB:
                await self._answer_qrun(command)
            await self._registration.end()

    async def _answer_qrun(self, command: CycleCommand) -> None:
        assert self._registration is not None
        text = self._qrun(command.job)
        _log.info("qrun %s: %s", command.job, text)
        async with self._turn:
            try:
                await self._registration.answer_qrun(command.job, OpenPBSErrorCode.EXECTHERE, text)
            except ServerRefusedError as error:
                _log.warning("the answer to qrun %s was not taken: %s", command.job, error)
            finally:
                self._registration.end_if_broken()

    async def _lose(self, error: BatchError) -> None:
        now = time.monotonic()
        if now - self._said >= _REMINDED or str(error) != self._lost:
            _log.error("not registered as scheduler %r, so nothing is started: %s", self._name, error)
            self._said = now
        self._lost = str(error)
        await self.close()
