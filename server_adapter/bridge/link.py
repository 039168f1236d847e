"""The one connection to the server: opened when needed, kept, opened again with growing waits."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from server_adapter.torque.codes import READ_ONLY, RequestCode
from server_adapter.torque.connection import Connection, open_connection
from server_adapter.torque.credentials import Address, Credential
from server_adapter.torque.errors import ServerUnreachableError

_log = logging.getLogger(__name__)
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 30.0

PERMITTED: dict[str, frozenset[RequestCode]] = {
    "shadow": READ_ONLY,
    "adviser": READ_ONLY | {RequestCode.MODIFY_JOB},
    "scheduler": READ_ONLY | {RequestCode.MODIFY_JOB, RequestCode.RUN_JOB, RequestCode.ASYNC_RUN_JOB},
}
"""The requests that may leave in each mode; the connection's encoder refuses all others."""


class ServerLink:
    """Lends out the connection to one user at a time.

    The protocol version is found out once, with the first status request, and then kept: a later 15058 is
    about something else. `up_since` is when the server was first reached after it had been away (it then may
    have been restarted), None where that was never seen. Seconds by `clock`.
    """

    def __init__(
        self,
        address: Address,
        credential: Credential,
        *,
        user: str = "root",
        timeout: float = 30.0,
        permitted: Collection[RequestCode] = READ_ONLY,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._address = address
        self._credential = credential
        self._user = user
        self._timeout = timeout
        self._permitted = frozenset(permitted)
        self._clock = clock
        self._turn = asyncio.Lock()
        self._connection: Connection | None = None
        self._version: int | None = None
        self._was_away = False
        self.up_since: float | None = None
        self.connects = 0

    @asynccontextmanager
    async def talk(self) -> AsyncIterator[Connection]:
        """The connection, for one or several requests that nobody else's come between.

        Raises `ServerUnreachableError`, `RightsError`, `ProtocolError` when there is none to be had.
        """
        async with self._turn:
            connection = await self._open()
            try:
                yield connection
            except ServerUnreachableError as error:
                # A slow server was not restarted; one that hung up may have been.
                self._was_away = self._was_away or not isinstance(error.__cause__, TimeoutError)
                raise

    async def wait_until_up(self) -> None:
        """Tries until the server is there, waiting longer from time to time.

        Raises `RightsError` and `ProtocolError`, which waiting does not cure.
        """
        wait = _FIRST_WAIT
        while True:
            try:
                async with self.talk():
                    return
            except ServerUnreachableError as error:
                _log.warning("%s; next try in %.1f s", error, wait)
            await asyncio.sleep(wait * random.uniform(0.8, 1.2))
            wait = min(_LONGEST_WAIT, wait * 2)

    async def close(self) -> None:
        """Says goodbye."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _open(self) -> Connection:
        if self._connection is not None:
            if self._connection.usable:
                return self._connection
            await self._connection.close()
            self._connection = None
        try:
            connection = await open_connection(
                self._address,
                self._credential,
                user=self._user,
                version=self._version,
                timeout=self._timeout,
                permitted=self._permitted,
            )
        except ServerUnreachableError:
            self._was_away = True
            raise
        self._version = connection.version
        self._connection = connection
        self.connects += 1
        if self._was_away:
            self._was_away = False
            _log.info("pbs_server answers at %s:%d", self._address.host, self._address.port)
            self.up_since = self._clock()
        return connection
